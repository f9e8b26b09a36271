"""The one place that reads a clock (rule R2)."""

from __future__ import annotations

import time
from typing import Final, Protocol, final


class Clock(Protocol):
    """A clock that never goes back and goes on while the machine is suspended."""

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

    def now(self) -> float:
        """Return seconds since the machine started."""
        return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
