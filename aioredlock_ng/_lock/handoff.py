"""Hand-off: a name goes from one task of a process to the next, for a limited time (rules R13 and R43).

When another task of the process is next, its acquire leaves in the same write as the release before it, and
no other process is notified.  So that other processes get the lock, too, such a window is limited in time and
in number of releases.  The release that ends the window notifies all listeners, and the next contender of
this process lets them ask first.  It waits for `YIELD` seconds, or until the next release, if other processes
listened or cannot be notified; otherwise for `YIELD_WITHOUT_LISTENERS`.

The steps of a quiet release, which notifies no other process:

1. The leaving `Contender` finds that the next waiter asks at once (`Contender.keep_quiet`).  It keeps a place
   among the attempts in flight for that waiter, sets `notice_pending`, and its release is quiet.
2. It leaves, and `notice_pending` moves to the contender that is let in.
3. That contender asks: it uses the place, and clears `notice_pending`.  Other processes are notified of its
   own release.
4. Or it leaves without having asked, since it was cancelled, say.  Then the place is given back, and the
   release is published after all.

Within a window a lock may also go to the next task as it is, and the nodes are not asked (R43).  For them the
process is the holder, by one owner value, with one validity and a range of fences.  Its leases are parts of
that, one after the other.

1. A lease that is released hands its `Grant` off to the next waiter, if that may have it (`hand_off`): the
   waiter is let in, with the grant in its contender.  Both happen at once, and nothing is sent.
2. When the waiter's task goes on, it judges the grant as it would judge a win, and begins a lease.
3. If the task does not go on, the grant goes to the waiter behind it, with the next fence, or is released on
   the nodes (`pass_on`).  If it goes on too late, the grant is released, and the task asks (`give_back`).
4. A grant that no task has taken when the manager closes is released, too (`end`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

from .._core.validity import may_be_handed_off
from .._kinds.primitive import Primitive
from .._round.availability import Availability
from .._round.releases import Releases
from .._round.round import Round

if TYPE_CHECKING:
    from .local_queue import Contender, QueueEntry

WINDOW: Final = 0.05
"""Seconds that one process may pass a name between its tasks before it lets other processes ask."""

MAX_HAND_OFFS: Final = 1024
"""Most releases in one window."""

YIELD: Final = 0.025
"""Most seconds that the process then waits before it asks: a process that polls since lately has asked."""

YIELD_WITHOUT_LISTENERS: Final = 0.001
"""Seconds that it waits when no other process listens: there may still be one that polls."""

MAX_WINDOWS: Final = 1024
"""Names whose windows are remembered after their last release; beyond that the oldest are forgotten."""

SPARE_WINDOWS: Final = 64
"""Windows that may say nothing any more, beside two for each that does, before they are forgotten."""


@final
class HandoffWindow:
    """A period in which this process has had a name again and again, with short gaps at most."""

    # Defaults on the class, and no `__init__`: most names are used once, and a window is made for each.
    began = 0.0
    """When the name was asked for first."""
    used = 0.0
    """When the name was last released."""
    count = 0
    """Number of releases."""
    ended = False
    fence = 0
    """Where the counter stands since the last release: the next acquire proposes a greater fence (R10)."""
    release: Round | None = None
    """The release that ended the window; set by the holding that made it."""
    listened = False
    """Whether this process itself was subscribed when that release was sent."""


@final
class HandoffWindows:
    """The windows of one process, by name.  Times are from the manager's clock."""

    def __init__(self) -> None:
        self.windows: dict[str, HandoffWindow] = {}
        """By name, in the order in which they began.  Callers may skip `take` for a name without a window, or
        with one that has not ended."""
        self._room = min(SPARE_WINDOWS, MAX_WINDOWS)

    def take(self, name: str, now: float) -> HandoffWindow | None:
        """Return the window of `name` if it has ended and others are to ask first; forget it then.

        Called when this process is about to ask for `name`.
        """
        window = self.windows.get(name)
        # Not had lately, or the window goes on: ask at once.
        if window is None or not window.ended:
            return None
        del self.windows[name]
        # Nothing of this process has asked since the release that ended the window: if that is a while ago,
        # other processes have had their time without a wait.
        return None if now - window.used >= YIELD else window

    def count_release(self, name: str, asked: float, now: float, fence: int) -> HandoffWindow | None:
        """Count a release of `name`, which was acquired with `fence` by a question at `asked`.

        Returns its window if this release ends it.
        """
        windows = self.windows
        window = windows.get(name)
        # A new window: the first release, or a gap before the acquire in which other processes could ask.
        # Example: released at 10.000 s.  Asked for again at 10.001 s, the window goes on; at 10.030 s, a new
        # one begins.
        if window is None or asked - window.used >= YIELD:
            if window is not None:
                del windows[name]
            elif len(windows) >= self._room:
                self._forget(now)
            window = windows[name] = HandoffWindow()
            window.began = asked
        window.used = now
        window.fence = fence
        window.count += 1
        window.ended = now - window.began >= WINDOW or window.count >= MAX_HAND_OFFS
        return window if window.ended else None

    def _forget(self, now: float) -> None:
        """Forget windows that say nothing any more, and of too many the oldest."""
        excess = len(self.windows) - MAX_WINDOWS * 7 // 8
        for number, (name, window) in enumerate(list(self.windows.items())):
            # Not sooner than this: the name may be held since before, and a new window for it has to end with
            # its first release.
            if number >= excess and now - window.used < YIELD + WINDOW:
                break
            del self.windows[name]
        self._room = min(2 * len(self.windows) + SPARE_WINDOWS, MAX_WINDOWS)

    def end(self, name: str) -> None:
        """Forget the window of `name`: another process has had the lock."""
        self.windows.pop(name, None)


@final
class Grant(NamedTuple):
    """A lock that this process has, won by an attempt or handed off by a task; a lease begins with it."""

    primitive: Primitive
    """With the slot that was won, if its kind has slots."""
    owner: bytes
    """The value under the keys."""
    ttl: float
    """Seconds that the keys live on the nodes: the longest ttl that was won."""
    holder: str | None
    """The holder's label in the owner value; None where that is its manager's."""
    fence: int
    """The last fence of the range, which is what nodes store; 0 without fences."""
    fences_left: int
    """Number of fences of the range that are left for other tasks: that of the lease comes before them."""
    round: Round
    """The last round that was won."""
    since: float
    """When the lock was asked for, or handed off to its task."""
    valid_until: float
    """The end of the validity."""
    unsent: Sequence[int]
    """The nodes that were never sent a command that sets the keys."""

    def __repr__(self) -> str:
        return f"<Grant {self.primitive.names}>"  # never the owner value (A5)

    @property
    def task(self) -> None:
        """No task runs under it."""


@final
class Succession:
    """Hands locks off between the tasks of one manager."""

    def __init__(self, availability: Availability, releases: Releases) -> None:
        self._availability = availability
        self._releases = releases

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
        waiter.contender.held = grant
        contender.leave()
        assert waiter.future.done(), "the next waiter is let in"
        return True

    def pass_on(self, grant: Grant, contender: Contender, now: float) -> None:
        """Pass the grant on to the next waiter, since the task of `contender` does not take it."""
        if not self.hand_off(grant, contender, contender.next_waiter(), now):
            # No waiter may have it.  First let the next one in: its acquire leaves in the same write, behind
            # the release (R15).
            contender.leave()
            self.give_back(grant)

    def give_back(self, grant: Grant) -> None:
        """Release the grant on all nodes."""
        # Where nodes may stand at another fence, the release lifts them to this one (R10).
        fence = grant.fence if grant.round.differs_from(grant.fence) else 0
        self._releases.release(
            grant.primitive, grant.owner, keeps=grant.ttl, fence=fence, unsent=grant.unsent
        )

    def end(self, contenders: Iterable[Contender]) -> None:
        """Release the grants that no task has taken: the manager is being closed."""
        for contender in contenders:
            if isinstance(grant := contender.held, Grant):
                contender.held = None
                self.give_back(grant)
