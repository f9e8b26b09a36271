"""Output of the commands: lines with a style, drawn on a terminal by rich if it is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, TypeAlias, TypeVar, final

from .common import OutputError, UsageError, closing, document

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from .. import LockManager

T = TypeVar("T")

_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "bold red", "head": "bold", "": ""}


@final
class Line(NamedTuple):
    """One line of output; with tabs it is a row of a table."""

    text: str
    style: str = ""
    """One of ``ok``, ``warning``, ``error``, ``head`` and nothing."""


Draw: TypeAlias = Callable[[int | None], Sequence[Line]]
"""Returns a picture of at most this number of lines; None: without a limit."""


def printable(text: str) -> str:
    """Return text from outside as a terminal may get it: quoted and escaped when it is not harmless.

    Names and labels come from other programs: line ends, tabs, control sequences, and what reorders a line.
    """
    return text if text.isprintable() and text else ascii(text)


def write(lines: Sequence[Line], stream: TextIO) -> None:
    """Write lines; where rich draws them, tables have columns, and nothing is cut."""
    if _rich_draws_on(stream):
        from rich.console import Console

        console = Console(file=stream, highlight=False)
        for each in _drawn(lines, cut=False):
            console.print(each)
    else:
        stream.writelines(line.text + "\n" for line in lines)
        stream.flush()


@contextlib.contextmanager
def screen(stream: TextIO) -> Iterator[Callable[[Draw], None]]:
    """Give what shows one picture after the other: in its place where rich draws, else below each other."""
    if _rich_draws_on(stream):
        from rich.console import Console, Group
        from rich.live import Live

        console = Console(file=stream, highlight=False)
        with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
            yield lambda draw: live.update(Group(*_drawn(draw(console.height - 1), cut=True)), refresh=True)
    else:
        yield lambda draw: write([*draw(None), Line("")], stream)


def _rich_draws_on(stream: TextIO) -> bool:
    able = stream.isatty() and os.environ.get("TERM") != "dumb"
    return able and importlib.util.find_spec("rich") is not None


def _drawn(lines: Sequence[Line], *, cut: bool) -> Iterator[Text | Table]:
    """Make tables of the rows; what does not fit is `cut`, or goes on in the next line."""
    from rich.table import Table
    from rich.text import Text

    table: Table | None = None
    for line in lines:
        style, overflow = _STYLES[line.style], "ellipsis" if cut else "fold"
        cells = [Text(cell, style, no_wrap=cut, overflow=overflow) for cell in line.text.split("\t")]  # type: ignore[arg-type]  # literals
        if len(cells) > 1:
            table = table or Table.grid(padding=(0, 2, 0, 0), pad_edge=True)
            table.add_row(*cells)
        else:
            if table is not None:
                yield table
            table = None
            yield cells[0]
    if table is not None:
        yield table


def ask(manager: LockManager, work: Coroutine[Any, Any, T]) -> T:
    """Do what asks the nodes, without lines of the log, and close the manager.

    Raises:
        UsageError: the names, the nodes or the options cannot be used.
    """
    import asyncio

    with quiet():
        try:
            return asyncio.run(closing(manager, work))
        except ValueError as error:
            raise UsageError(str(error)) from None


def show(
    arguments: Namespace, fields: Mapping[str, Any], lines: Sequence[Line], error: str | None = None
) -> None:
    """Print the result of a command: as a JSON object if that was asked for, else as lines."""
    with output() as stream:
        if arguments.json:
            print(document(arguments.command, fields, error), file=stream)
        else:
            write(lines, stream)


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
    """Give the standard output to write to; what its encoding lacks is escaped.

    When the reader goes away, such as ``head``, the block ends without an error.

    Raises:
        OutputError: it is closed, or its disk is full.
    """
    stream: TextIO | None = sys.stdout
    if stream is None:
        raise OutputError("the standard output is closed")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    try:
        yield stream
        stream.flush()
    except OSError as error:
        # What is still buffered would fail once more when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"the output cannot be written: {error.strerror}") from None
