"""Count what code does, where its time would say more about the machine's other work."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Work:
    """Lines of Python that were executed."""

    lines = 0


class Compared:
    """For a base of values in a test: comparisons, which C code makes without a line, execute lines."""

    def __lt__(self, other: Any) -> Any:
        return super().__lt__(other)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # said by the class that needs one


@contextlib.contextmanager
def counted() -> Iterator[Work]:
    """Count the lines that this thread executes in functions that are called, or resumed, meanwhile."""
    work = Work()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            work.lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield work
    finally:
        sys.settrace(before)
