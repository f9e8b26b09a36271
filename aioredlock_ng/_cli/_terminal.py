"""What the commands that show something share: lines with a style, on a terminal, in a pipe or file."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TextIO, final

from .common import OutputError

if TYPE_CHECKING:
    from rich.text import Text

_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "bold red", "head": "bold", "": ""}
"""rich's names for ours."""

_HIDE_CURSOR: Final = "\x1b[?25l"
_SHOW_CURSOR: Final = "\x1b[?25h"
_CLEAR_BELOW: Final = "\x1b[J"
_UP: Final = "\x1b[{}F"
"""To the beginning of the line so many lines higher."""


@final
class Line(NamedTuple):
    """One line of output."""

    text: str
    style: str = ""
    """One of ``ok``, ``warning``, ``error``, ``head`` and nothing."""


def printable(text: str) -> str:
    """Return text from outside as a terminal may get it: quoted and escaped when it is not harmless.

    Names and labels come from other programs: line ends, control sequences, and what reorders a line.
    """
    return text if text.isprintable() and text else ascii(text)


def cells(text: str) -> int:
    """Return how many columns a line takes."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def clipped(text: str, width: int) -> str:
    """Return text that takes at most `width` columns."""
    if cells(text) <= width:
        return text
    while text and cells(text) >= width:
        text = text[:-1]
    return text + "…"


def encodable(text: str, stream: TextIO) -> str:
    """Return text that the stream's encoding can express."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _coloured(stream: TextIO) -> bool:
    """Whether colours can be seen there, and are wanted (https://no-color.org)."""
    return _drawable(stream) and not os.environ.get("NO_COLOR")


def _drawable(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _styled(line: Line, stream: TextIO) -> Text:
    from rich.text import Text

    return Text(encodable(line.text, stream), style=_STYLES[line.style], no_wrap=True, overflow="ellipsis")


def write(lines: Sequence[Line], stream: TextIO) -> None:
    """Write lines, with colours where rich is installed and a terminal shows them."""
    if _coloured(stream):
        with contextlib.suppress(ImportError):
            from rich.console import Console

            with Console(file=stream, soft_wrap=True, highlight=False) as console:  # no flicker: one write
                for line in lines:
                    console.print(_styled(line, stream), soft_wrap=True)
            return
    stream.writelines(encodable(line.text, stream) + "\n" for line in lines)
    stream.flush()


def quiet() -> contextlib.AbstractContextManager[None]:
    """Keep log lines off the terminal: without any handler Python prints warnings, which are shown anyway."""
    return logged_by(logging.NullHandler())


@contextlib.contextmanager
def logged_by(handler: logging.Handler, level: int = logging.NOTSET) -> Iterator[None]:
    """Have `handler` take what the library logs from `level` on, for as long as the block lasts."""
    log = logging.getLogger("aioredlock_ng")
    before = log.level
    log.setLevel(level)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@contextlib.contextmanager
def output() -> Iterator[TextIO]:
    """Give the standard output to write to.

    When the reader goes away, such as ``head``, the block ends without an error.

    Raises:
        OutputError: it is closed, or its disk is full.
    """
    stream: TextIO | None = sys.stdout
    if stream is None:
        raise OutputError("the standard output is closed")
    try:
        yield stream
        stream.flush()
    except OSError as error:
        # What is still buffered would fail once more when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"the output cannot be written: {error.strerror}") from None


class Snapshots:
    """Pictures below each other, with an empty line between them: for pipes, files and plain terminals."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._first = True

    def show(self, draw: Callable[[int | None, int | None], Sequence[Line]]) -> None:
        """Show the picture that `draw` makes for a number of lines and columns; None: without a limit."""
        lines = draw(None, None)
        write(lines if self._first else [Line(""), *lines], self._stream)
        self._first = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Nothing to put back."""


@final
class Redrawn(Snapshots):
    """One picture, drawn anew in its place."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._height = 0

    def show(self, draw: Callable[[int | None, int | None], Sequence[Line]]) -> None:
        """See `Snapshots`."""
        columns, rows = shutil.get_terminal_size()
        lines = [line._replace(text=clipped(line.text, columns - 1)) for line in draw(rows - 1, columns - 1)]
        up = _UP.format(self._height) if self._height else ""
        self._stream.write(up + _CLEAR_BELOW)
        write(lines, self._stream)
        self._height = len(lines)

    def __enter__(self) -> Self:
        self._stream.write(_HIDE_CURSOR)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Give the cursor back; the last picture stays."""
        self._stream.write(_SHOW_CURSOR)
        self._stream.flush()


def open_screen(stream: TextIO) -> Snapshots:
    """Return the best screen for `stream`: one that is redrawn, or one picture below the other."""
    return Redrawn(stream) if _drawable(stream) else Snapshots(stream)
