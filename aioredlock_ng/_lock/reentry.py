"""Reentrant locks: a task acquires a lock again inside of its block, without I/O (rule R27).

The leases that a task has of one holding are `View`s.  They share its validity and its fence.  Each is
released by itself, in any order, and the last one releases the lock.  A lock that was not asked for as
reentrant has a plain lease.  That counts as one of the leases, too, and its own block releases the lock: the
views leave that to it.
"""

from __future__ import annotations

import asyncio
from typing import Any, final

from .._kinds.kind import Kind
from .._kinds.primitive import Primitive
from .._round.releases import Releases
from .._round.round import Round
from .._settings.options import Request
from ..errors import LockLostError, LossReason, printable
from .body import Body, current_runners
from .holding import MAX_DEPTH, Count, Holding, lost_error
from .session import Session


def outermost(holding: Holding, releases: Releases) -> View:
    """Return the first lease of a reentrant lock that was won."""
    holding.count = Count([holding.kind])
    return View(holding, releases, holding.kind, holding.names, unchanged=holding.unchanged)


def reenter(session: Session, primitive: Primitive, request: Request, *, since: int | None) -> View | None:
    """Return a further lease of the lock that the calling task is inside of, if that covers the request.

    None where the task is inside of no such lock: then the nodes are asked, as usual.

    Raises:
        LockLostError: a lock of one of the names, which the task is inside of, is not held any more.
        RuntimeError: the task has `MAX_DEPTH` leases of it.
    """
    inside = _inside(session, primitive.names)
    for holding in inside:
        if not holding.held:
            # One of these names is lost: another lease of it would be no right to go on.
            holding.notice_expiry()
            raise holding.error()
    for holding in inside:
        if _covers(holding, primitive):
            _count_one_more(holding, primitive.kind)
            holding.also(request)
            # The task itself may have written since that read lease: False, which can be a false alarm (R23).
            unchanged = None if since is None else False
            return View(holding, session.releases, primitive.kind, primitive.names, unchanged=unchanged)
    return None


def _inside(session: Session, names: tuple[str, ...]) -> list[Holding]:
    """Return the locks of any of these names that the calling task is inside of."""
    # The stack does not tell which blocks this code is inside of: no reentry.
    runners = current_runners()
    if not runners:
        return []
    # A lost lease has left the queue already, while its block may still be open.
    queue = session.queue.entries
    entries = [queue[name] for name in names if name in queue]
    held = [contender.held for entry in entries for contender in entry.inside]
    lost = [
        each for each in session.watchdog.lost if not each.released and not set(names).isdisjoint(each.names)
    ]
    return [each for each in (*held, *lost) if isinstance(each, Holding) and each.task in runners]


def _covers(holding: Holding, primitive: Primitive) -> bool:
    """Whether the holding includes the request: each of the names, by the same kind or a stronger one."""
    kind = holding.kind
    return set(primitive.names) <= set(holding.names) and primitive.kind in (kind, kind.weaker)


def _count_one_more(holding: Holding, asked: Kind) -> None:
    # A plain lease, which was not counted so far, and its block.
    if holding.count is None:
        holding.count = Count([holding.kind], blocks=1)
    if len(holding.count.asked) >= MAX_DEPTH:
        raise RuntimeError(
            f"this task already has {MAX_DEPTH} leases of lock {printable(holding.names)}, the most that "
            "a task may have: does the recursion end?"
        )
    holding.count.asked.append(asked)


@final
class View:
    """One of several leases that a task has of a lock; all other attributes are those of the holding."""

    __slots__ = ("_asked", "_count", "_holding", "_loss", "_open", "_releases", "body", "names", "unchanged")

    def __init__(
        self,
        holding: Holding,
        releases: Releases,
        asked: Kind,
        names: tuple[str, ...],
        *,
        unchanged: bool | None,
    ) -> None:
        assert holding.count is not None, "a view is counted"
        self._holding = holding
        self._count = holding.count
        self._releases = releases
        self._asked = asked
        self._open = True
        self._loss: LossReason | None = None
        self.names = names
        """The names that it was asked for; the lock may have more."""
        self.unchanged = unchanged
        self.body: Body | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._holding, name)

    # -- what it is ----------------------------------------------------------------------------

    @property
    def released(self) -> bool:
        """Whether this lease was released, or the lock was."""
        return not self._open or self._holding.released

    @property
    def held(self) -> bool:
        """Whether the lock is ours by this lease; no I/O."""
        return self._open and self._holding.held

    @property
    def loss(self) -> LossReason | None:
        """Why it was lost before its release."""
        return self._holding.loss if self._open else self._loss

    @property
    def still_held(self) -> bool:
        """Whether it was released, while the task has the lock by another lease still."""
        return not self._open and not self._holding.released

    def error(self) -> LockLostError:
        """Return the error for a lease that is not held."""
        # The lock was lost, or released by its plain lease.
        if self._open or self._loss is not None:
            return self._holding.error()
        # This lease alone was released, and the lock may be held still.
        return lost_error(self.names, LossReason.RELEASED, (), extensions=0)

    # -- what becomes of it --------------------------------------------------------------------

    def new_body(self, cancels: bool, loop: asyncio.AbstractEventLoop) -> Body:  # noqa: FBT001
        """Bind the current task to a block under this lease."""
        return Block(self._holding, self._count, loop, cancels=cancels)

    def downgrade(self, ttl: float) -> Round:
        """Become the weaker kind; refused while another lease of the task needs the stronger one."""
        round_ = self._holding.downgrade(ttl, self._asked)
        self._asked = self._holding.kind
        return round_

    def release(self) -> Round:
        """Release this lease; the last one releases the lock, in whatever order they end."""
        holding, count = self._holding, self._count
        # The first call.  A loss before it stays the reason of this lease, whatever becomes of the others.
        if self._open:
            self._open = False
            count.asked.remove(self._asked)
            holding.notice_expiry()
            self._loss = holding.loss
        return self._releases.still_held if count.asked and not holding.released else holding.release()


@final
class Block(Body):
    """A block under a view.  The outermost one is the holding's body; inner ones cancel nothing (R7)."""

    __slots__ = ("_count", "_holding")

    def __init__(
        self, holding: Holding, count: Count, loop: asyncio.AbstractEventLoop, *, cancels: bool
    ) -> None:
        outer = holding.body
        super().__init__(cancels and outer is None, loop)
        # The right to enter is that of the task alone, and not of the tasks that it has started.
        if outer is not None and holding.task not in current_runners():
            raise RuntimeError(
                f"another task holds lock {printable(holding.names)}, and only that task may enter its "
                "leases: tasks that work for it call check()"
            )
        self._holding = holding
        self._count = count
        count.blocks += 1
        # The outermost block.
        if outer is None:
            holding.body = self

    def disarm(self, exc: BaseException | None) -> bool:
        """End the binding; return whether `exc` is our own cancellation, and this block the outermost one.

        If the outermost block ends before an inner one, the deadline stays for that, unless it has passed.
        """
        holding, count, outermost = self._holding, self._count, self._holding.body
        count.blocks -= 1
        # An inner block ends; or the outermost one ends first, while the lease is held.
        if count.blocks and (outermost is not self or holding.loss is None):
            return False
        holding.body = None
        return outermost is not None and Body.disarm(outermost, exc)
