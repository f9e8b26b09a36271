"""The session of one manager, as each part of the package sees it.

`_session.session.Session` is the whole session.  Each part declares what it uses in a class of its own, which
adds to the class of the part below it: `RoundSession`, `HoldSession`, `TrySession`, `AcquireSession`.
"""

from __future__ import annotations

from random import Random

from .._clock import Clock
from .._core.clock_watch import ClockWatch
from .availability import Availability
from .outbox import Outbox
from .releases import Releases


class RoundSession:
    """What rounds use of their session."""

    __slots__ = ()

    clock: Clock
    random: Random
    clocks: ClockWatch
    """The nodes'."""
    outbox: Outbox
    releases: Releases
    availability: Availability
