"""Where the demo speaks: lines, and below them a progress bar when somebody watches on a terminal."""

from __future__ import annotations

import os
import shutil
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TextIO, final

if TYPE_CHECKING:
    from rich.progress import Progress

_BAR: Final = 30
"""Cells of the simple bar."""

_CLEAR_LINE: Final = "\r\x1b[2K"


class Screen(Protocol):
    """What the story speaks to."""

    def say(self, line: str) -> None:
        """Show a line that stays."""

    def progress(self, share: float, note: str) -> None:
        """Show how far we are, from 0 to 1."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...


def open_screen(stream: TextIO) -> Screen:
    """Return the best screen for `stream`: rich's bar, a simple one, or plain lines."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return Plain(stream)
    try:
        return Rich(stream)
    except ImportError:
        return Simple(stream)


@final
class Plain:
    """Lines only, each out at once: for pipes, files and CI."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, line: str) -> None:
        """See `Screen`."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def progress(self, share: float, note: str) -> None:
        """Nothing to show it with."""

    def __enter__(self) -> Plain:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Nothing to put back."""


@final
class Simple:
    """A bar on the last line, drawn with one carriage return: needs nothing installed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""

    def say(self, line: str) -> None:
        """See `Screen`."""
        self._stream.write(f"{_CLEAR_LINE}{line}\n{self._last}")
        self._stream.flush()

    def progress(self, share: float, note: str) -> None:
        """See `Screen`."""
        cells = round(share * _BAR)
        bar = f"[{'#' * cells}{'.' * (_BAR - cells)}] {share:4.0%} {note}"
        self._last = bar[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be redrawn
        self._stream.write(_CLEAR_LINE + self._last)
        self._stream.flush()

    def __enter__(self) -> Simple:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Take the bar away."""
        self._last = ""
        self._stream.write(_CLEAR_LINE)
        self._stream.flush()


@final
class Rich:
    """A bar drawn by rich.

    Raises:
        ImportError: rich is not installed.
    """

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        console = Console(file=stream, soft_wrap=True)
        # No refreshing thread: the story draws as often as it looks around.
        self._progress: Progress = Progress(
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=1.0)

    def say(self, line: str) -> None:
        """See `Screen`."""
        self._progress.console.print(line, markup=False, highlight=False)

    def progress(self, share: float, note: str) -> None:
        """See `Screen`."""
        self._progress.update(self._task, completed=share, description=note, refresh=True)

    def __enter__(self) -> Rich:
        self._progress.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Take the bar away and give the cursor back."""
        self._progress.stop()
