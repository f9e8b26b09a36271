"""The clocks of the library: nothing else in it reads one (rule R2).

Two exceptions: what an event loop is asked to do at some time is in its own ``loop.time()``, and the guard
of ``aioredlock-ng run``, a process of its own that imports nothing of the library, reads the same clock.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Final, Protocol, cast, final, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """A clock that never goes back and goes on while the machine is suspended.

    It may also have ``wall() -> float``, the time of day in seconds since 1970 (UTC): it is
    shown to people, and a first guess at the nodes' time when a fence is proposed, which the nodes correct
    (R10).  The system's is taken for one that has none.
    """

    def now(self) -> float:
        """Return seconds since some fixed moment."""


_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""The clock that counts suspended time: on Linux `CLOCK_BOOTTIME`, on macOS `CLOCK_MONOTONIC`."""


@final
class SystemClock:
    """The machine's suspend-safe clock; the monotonic clock where there is none.

    A virtual machine that is paused from outside does not see its own pause on any clock.
    """

    __slots__ = ()

    now = staticmethod(time.monotonic if _CLOCK is None else functools.partial(time.clock_gettime, _CLOCK))
    """Seconds since the machine started.  No function of ours around it: an acquire reads it six times."""

    wall = staticmethod(time.time)
    """Seconds since 1970 (UTC).  They jump when the time is set: no lock is decided by them."""


def clock_of(loop: object) -> Clock:
    """Return the clock of an event loop on virtual time, such as `SimLoop`; of any other the machine's."""
    clock = getattr(loop, "clock", None)
    return clock if isinstance(clock, Clock) else SystemClock()


def wall_of(clock: Clock) -> Callable[[], float]:
    """Return what tells the time of day for a manager with this clock."""
    return cast("Callable[[], float]", getattr(clock, "wall", time.time))
