"""Succession: a lock goes from one task of a process to the next without a word to the nodes (rule R43).

For the nodes the process is the holder, by one owner value, with one validity and a block of fences.  Its
leases are parts of that, one after the other.

1. A lease that is released leaves an `Estate` to the next in line, if that may have it (`hand_on`): the next
   is let in, with the estate in its ticket.  Both happen at once, and nothing is sent.
2. When that task goes on, it judges the estate as it would judge a win, and has a lease of its own (`take`).
3. Or it does not go on: then the estate goes to the one behind it, with the next fence, or is released on the
   nodes (`decline`).  Or it goes on too late: then it is released, and the task asks (`give_back`).
4. What no task has taken when the manager closes is released, too (`end`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from .._core.validity import may_be_handed_on
from .._kinds.primitive import Primitive
from .._local.local_queue import Place, Ticket
from .._round.availability import Availability
from .._round.releases import Releases
from .._round.round import Round


@final
@dataclass(slots=True, eq=False, kw_only=True)
class Estate:
    """A lock that one task has left to the next, until that one takes it."""

    primitive: Primitive
    owner: bytes
    ttl: float
    """Seconds that the keys live on the nodes."""
    holder: str | None
    """What the owner value says of the holder, where that is not its manager's name."""
    fence: int
    """The last of the block, which is what the nodes know; 0 without."""
    left: int
    """How many fences of the block have not been given: that of the lease comes before them."""
    asked: Round
    """The last round that was won."""
    asked_at: float
    valid_until: float
    left_at: float
    """When a task released it to the next one."""
    unsent: Sequence[int]
    """The nodes that were never sent a command that sets the keys."""

    @property
    def task(self) -> None:
        """No task runs under it."""


@final
class Succession:
    """The estates of one manager that no task has taken yet."""

    __slots__ = ("_availability", "_releases", "_untaken")

    def __init__(self, availability: Availability, releases: Releases) -> None:
        self._availability = availability
        self._releases = releases
        self._untaken: dict[Estate, None] = {}

    def hand_on(self, estate: Estate, ticket: Ticket, heir: Place | None, now: float) -> bool:
        """Let `heir`, the next in line behind `ticket`, have it if it may; False when nothing has changed."""
        if self._availability.closing or self._availability.conflict is not None:
            return False
        if estate.fence and not estate.left:
            return False  # the block is used up
        if heir is None or (wanted := heir.wanted) is None:
            return False
        # With another ttl a crash would keep the name for longer than was asked, or not for as long.
        if wanted.ttl != estate.ttl or wanted.at_least:
            return False
        if wanted.holder != estate.holder:
            return False  # the owner value stays, and people go by what it says
        if not may_be_handed_on(estate.valid_until - now, estate.ttl):
            return False
        if estate.fence:
            estate.left -= 1  # that one is never given again, whatever becomes of the heir
        self._untaken[estate] = None
        heir.ticket.held = estate
        ticket.leave()
        assert heir.future.done(), "the first in line is let in"
        return True

    def take(self, estate: Estate) -> None:
        """Note that the task that it was left to goes on."""
        del self._untaken[estate]

    def decline(self, estate: Estate, ticket: Ticket, now: float) -> None:
        """Pass it on to the next in line: the task of `ticket` does not take it."""
        if estate not in self._untaken:
            return  # the manager is closed
        self.take(estate)
        if not self.hand_on(estate, ticket, ticket.heir(), now):
            ticket.leave()  # first: then the next acquire leaves in the same write, behind the release (R15)
            self.give_back(estate)

    def give_back(self, estate: Estate) -> None:
        """Release it on all nodes."""
        fence = estate.fence if estate.asked.stragglers else 0
        self._releases.release(
            estate.primitive, estate.owner, keeps=estate.ttl, fence=fence, unsent=estate.unsent
        )

    def end(self) -> None:
        """Release what no task has taken: the manager is being closed."""
        while self._untaken:
            self.give_back(self._untaken.popitem()[0])
