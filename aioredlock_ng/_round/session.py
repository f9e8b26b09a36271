"""The session of one manager, as each floor sees it.

`_session.session.Session` is all of it, put together.  Each floor declares in a class of its own what it uses
of it, above what the floors below it use: `RoundSession`, `HoldSession`, `TrySession`, `AcquireSession`.
"""

from __future__ import annotations

from random import Random

from .._clock import Clock
from .._core.clock_watch import ClockWatch
from .availability import Availability
from .outbox import Outbox
from .releases import Releases


class RoundSession:
    """What asking the nodes has of a session."""

    __slots__ = ()

    clock: Clock
    random: Random
    clocks: ClockWatch
    """The nodes'."""
    outbox: Outbox
    releases: Releases
    availability: Availability
