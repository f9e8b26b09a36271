"""Raises an error at a call from the package into another library: the event loop, redis-py, anyio, sockets.

A *place* is a line of the package and what it calls there. A first run records all places that a program
passes, in their order; each further run raises one error at one of them, as that library might.
"""

from __future__ import annotations

import asyncio
import linecache
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import aioredlock_ng

PACKAGE: Final = str(Path(aioredlock_ng.__file__).parent)

ROOMS: Final = tuple(f"{PACKAGE}/{room}/" for room in ("_lock", "_node", "_round", "_session"))
"""Where the calls are made: by background tasks and callbacks of the loop."""

SHARED: Final = tuple(f"{PACKAGE}/{room}/" for room in ("_node", "_round"))
"""The rooms whose calls concern all locks, whichever task makes them."""

LIBRARIES: Final = frozenset(("_socket", "_ssl", "anyio", "asyncio", "redis", "socket", "ssl", "uvloop"))
"""Not `_asyncio`: a future does what the language says."""

MEMORY: Final = "aioredlock_ng.testing."
"""The package that stands for the loop's transports and the servers, in memory."""


class InjectedError(ValueError):
    """An error that a library raises, of a type that no code of ours knows."""


class Place(NamedTuple):
    """A line of the package, and what it calls."""

    file: str
    line: int
    called: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.called}"


class Injection:
    """Counts the places that a program passes, and raises `error` when it passes one for the nth time."""

    def __init__(
        self, place: Place | None = None, nth: int = 1, error: type[BaseException] = InjectedError
    ) -> None:
        self.passed: Counter[Place] = Counter()
        self._place, self._nth, self._error = place, nth, error

    @contextmanager
    def active(self) -> Iterator[None]:
        """Watch the calls of this thread."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            caller, module, called = frame, _module_of(arg), arg.__name__
        elif event == "call" and frame.f_back is not None:
            caller, called = frame.f_back, frame.f_code.co_name
            module = str(frame.f_globals.get("__name__"))
        else:
            return
        file = caller.f_code.co_filename
        if not file.startswith(ROOMS):
            return
        if module.partition(".")[0] not in LIBRARIES and not module.startswith(MEMORY):
            return
        task = asyncio.current_task() if asyncio._get_running_loop() is not None else None
        name = "" if task is None else task.get_name()
        if not (file.startswith(SHARED) or task is None or name.startswith("aioredlock_ng")):
            return
        # It only starts tasks and waits for them: without anyio's task groups there is no manager.
        if name == "aioredlock_ng supervisor" and module.startswith("anyio"):
            return
        # A clock; or a future calls it, and not the line.
        future = called == "call_soon" and called not in linecache.getline(file, caller.f_lineno)
        if future or called in ("now", "time", "wall"):
            return
        place = Place(file.removeprefix(f"{PACKAGE}/"), caller.f_lineno, called)
        self.passed[place] += 1
        if place == self._place and self.passed[place] == self._nth:
            raise self._error(f"injected at {place}")


def _module_of(function: Any) -> str:
    return str(getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__)
