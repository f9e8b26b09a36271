"""Hand-off: a lock goes from one task of a process to the next, and the nodes are not asked (rule R43).

For the nodes the process is the holder, by one owner value, with one validity and a range of fences.  Its
leases are parts of that, one after the other.

1. A lease that is released hands its `Grant` off to the next waiter, if that may have it (`hand_off`): the
   waiter is let in, with the grant in its contender.  Both happen at once, and nothing is sent.
2. When the waiter's task goes on, it judges the grant as it would judge a win, and begins a lease (`take`).
3. If the task does not go on, the grant goes to the waiter behind it, with the next fence, or is released on
   the nodes (`pass_on`).  If it goes on too late, the grant is released, and the task asks (`give_back`).
4. A grant that no task has taken when the manager closes is released, too (`end`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from .._core.validity import may_be_handed_off
from .._kinds.primitive import Primitive
from .._lock.local_queue import Contender, QueueEntry
from .._round.availability import Availability
from .._round.releases import Releases
from .._round.round import Round


@final
class Grant(NamedTuple):
    """A lock that this process has, won by an attempt or handed off by a task; a lease begins with it."""

    primitive: Primitive
    owner: bytes
    ttl: float
    """Seconds that the keys live on the nodes."""
    holder: str | None
    """The holder's label in the owner value; None where that is its manager's."""
    fence: int
    """The last fence of the range, which is what nodes store; 0 without fences."""
    fences_left: int
    """How many fences of the range are left for other tasks: that of the lease comes before them."""
    round: Round
    """The last round that was won."""
    asked_at: float
    since: float
    """When the lock was asked for, or handed off to its task."""
    valid_until: float
    unsent: Sequence[int]
    """The nodes that were never sent a command that sets the keys."""

    @property
    def task(self) -> None:
        """No task runs under it."""


@final
class Succession:
    """The grants of one manager that were handed off, and that no task has taken so far."""

    __slots__ = ("_availability", "_releases", "_untaken")

    def __init__(self, availability: Availability, releases: Releases) -> None:
        self._availability = availability
        self._releases = releases
        self._untaken: dict[bytes, Grant] = {}  # by their owner values

    def hand_off(self, grant: Grant, contender: Contender, waiter: QueueEntry | None, now: float) -> bool:
        """Give the grant to `waiter`, the next behind `contender`; False: it may not have it."""
        # No lock is granted any more: the manager is closing, or its nodes are no quorum.
        if self._availability.closing or self._availability.conflict is not None:
            return False
        # The range of fences is used up.
        if grant.fence and not grant.fences_left:
            return False
        # No task waits; or the waiter makes a single attempt, and is never handed a lock.
        if waiter is None or (wanted := waiter.wanted) is None:
            return False
        # With another ttl a crash would keep the name for longer than was asked, or not for as long.
        if wanted.ttl != grant.ttl or wanted.at_least:
            return False
        # The owner value stays, and people go by the holder that it names.
        if wanted.holder != grant.holder:
            return False
        # Too little validity is left for another lease.
        if not may_be_handed_off(grant.valid_until - now, grant.ttl):
            return False
        # A fence is never given again, even if the waiter does not take the grant.
        if grant.fence:
            grant = grant._replace(fences_left=grant.fences_left - 1)
        self._untaken[grant.owner] = waiter.contender.held = grant
        contender.leave()
        assert waiter.future.done(), "the next waiter is let in"
        return True

    def take(self, grant: Grant) -> None:
        """Note that the task to which the grant was handed off goes on."""
        del self._untaken[grant.owner]

    def pass_on(self, grant: Grant, contender: Contender, now: float) -> None:
        """Pass the grant on to the next waiter, since the task of `contender` does not take it."""
        # The manager is closed, and has released the grant.
        if grant.owner not in self._untaken:
            return
        self.take(grant)
        if not self.hand_off(grant, contender, contender.next_waiter(), now):
            # No waiter may have it.  First let the next one in: its acquire leaves in the same write, behind
            # the release (R15).
            contender.leave()
            self.give_back(grant)

    def give_back(self, grant: Grant) -> None:
        """Release the grant on all nodes."""
        # Where nodes may stand at another fence, the release lifts them to this one (R10).
        fence = grant.fence if grant.round.fences_may_differ else 0
        self._releases.release(
            grant.primitive, grant.owner, keeps=grant.ttl, fence=fence, unsent=grant.unsent
        )

    def end(self) -> None:
        """Release the grants that no task has taken: the manager is being closed."""
        while self._untaken:
            self.give_back(self._untaken.popitem()[1])
