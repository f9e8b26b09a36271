"""Succession: a lock goes from one task of a process to the next without a word to the nodes (rule R43).

For the nodes the process is the holder, by one owner value, with one validity and a block of fences.  Its
leases are parts of that, one after the other.

1. A lease that is released leaves its `Grant` to the next in line, if that may have it (`hand_off`): the next
   is let in, with the grant in its contender.  Both happen at once, and nothing is sent.
2. When that task goes on, it judges the grant as it would judge a win, and has a lease of its own (`take`).
3. Or it does not go on: then the grant goes to the one behind it, with the next fence, or is released on the
   nodes (`pass_on`).  Or it goes on too late: then it is released, and the task asks (`give_back`).
4. What no task has taken when the manager closes is released, too (`end`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from .._core.validity import may_be_handed_off
from .._kinds.primitive import Primitive
from .._local.local_queue import Contender, QueueEntry
from .._round.availability import Availability
from .._round.releases import Releases
from .._round.round import Round


@final
class Grant(NamedTuple):
    """A lock that this process has: what a try has won, or one task hands off; a lease begins with it."""

    primitive: Primitive
    owner: bytes
    ttl: float
    """Seconds that the keys live on the nodes."""
    holder: str | None
    """What the owner value says of the holder, where that is not its manager's name."""
    fence: int
    """The last of the block, which is what the nodes know; 0 without."""
    fences_left: int
    """How many fences of the block are left for others: that of the lease comes before them."""
    round: Round
    """The last round that was won."""
    asked_at: float
    since: float
    """When its task got it: it was asked for then, or handed off."""
    valid_until: float
    unsent: Sequence[int]
    """The nodes that were never sent a command that sets the keys."""

    @property
    def task(self) -> None:
        """No task runs under it."""


@final
class Succession:
    """What was handed off in one manager, and no task has taken so far."""

    __slots__ = ("_availability", "_releases", "_untaken")

    def __init__(self, availability: Availability, releases: Releases) -> None:
        self._availability = availability
        self._releases = releases
        self._untaken: dict[bytes, Grant] = {}  # by their owner values

    def hand_off(self, grant: Grant, contender: Contender, waiter: QueueEntry | None, now: float) -> bool:
        """Let `waiter`, the next behind `contender`, have it if it may; False when nothing has changed."""
        if self._availability.closing or self._availability.conflict is not None:
            return False
        if grant.fence and not grant.fences_left:
            return False  # the block is used up
        if waiter is None or (wanted := waiter.wanted) is None:
            return False
        # With another ttl a crash would keep the name for longer than was asked, or not for as long.
        if wanted.ttl != grant.ttl or wanted.at_least:
            return False
        if wanted.holder != grant.holder:
            return False  # the owner value stays, and people go by what it says
        if not may_be_handed_off(grant.valid_until - now, grant.ttl):
            return False
        if grant.fence:
            grant = grant._replace(
                fences_left=grant.fences_left - 1
            )  # never given again, whatever becomes of the heir
        self._untaken[grant.owner] = waiter.contender.held = grant
        contender.leave()
        assert waiter.future.done(), "the first in line is let in"
        return True

    def take(self, grant: Grant) -> None:
        """Note that the task that it was left to goes on."""
        del self._untaken[grant.owner]

    def pass_on(self, grant: Grant, contender: Contender, now: float) -> None:
        """Pass it on to the next in line: the task of `contender` does not take it."""
        if grant.owner not in self._untaken:
            return  # the manager is closed
        self.take(grant)
        if not self.hand_off(grant, contender, contender.next_waiter(), now):
            contender.leave()  # first: the next acquire leaves in the same write, behind the release (R15)
            self.give_back(grant)

    def give_back(self, grant: Grant) -> None:
        """Release it on all nodes."""
        fence = grant.fence if grant.round.stragglers else 0
        self._releases.release(
            grant.primitive, grant.owner, keeps=grant.ttl, fence=fence, unsent=grant.unsent
        )

    def end(self) -> None:
        """Release what no task has taken: the manager is being closed."""
        while self._untaken:
            self.give_back(self._untaken.popitem()[1])
