"""Reentrant locks: a task goes again into a lock that it is inside of, without I/O (rule R27).

The leases that it has of one holding are `View`s.  They share its validity and its fence; each is released by
itself, in any order, and the last one releases the lock.  A lock that was not asked for as reentrant has a
plain lease, which counts as one of them and goes with its own block: the views leave the release to it.
"""

from __future__ import annotations

import asyncio
from typing import Any, final

from .._kinds.kind import Kind
from .._kinds.primitive import Primitive
from .._local.runner import current_runners
from .._round.releases import Releases
from .._round.round import Round
from ..errors import LockLostError, LossReason, printable
from .body import Body
from .count import MAX_DEPTH, Count
from .holding import Holding, HoldSession
from .loss import lost_error
from .request import Request


def outermost(holding: Holding, releases: Releases) -> View:
    """Return the first lease of a reentrant lock that was won."""
    holding.count = Count([holding.kind])
    return View(holding, releases, holding.kind, holding.names, unchanged=holding.unchanged)


def reenter(
    session: HoldSession, primitive: Primitive, request: Request, *, since: int | None
) -> View | None:
    """Return a further lease of the lock that the calling task is inside of, if that covers what it asks for.

    None where the task is inside of no such lock: then the nodes are asked, as ever.

    Raises:
        LockLostError: a lock of one of the names, which the task is inside of, is not held any more.
        RuntimeError: the task has `MAX_DEPTH` leases of it.
    """
    inside = _inside(session, primitive.names)
    for holding in inside:
        if not holding.held:
            holding.notice_expiry()
            raise holding.error()
    for holding in inside:
        if _covers(holding, primitive):
            _count_one_more(holding, primitive.kind)
            holding.also(request)
            # Its task may have written since that read lease: False, which may be for nothing (R23).
            unchanged = None if since is None else False
            return View(holding, session.releases, primitive.kind, primitive.names, unchanged=unchanged)
    return None


def _inside(session: HoldSession, names: tuple[str, ...]) -> list[Holding]:
    """Return the locks of any of these names that the calling task is inside of."""
    runners = current_runners()
    if not runners:
        return []
    queue = session.queue.entries
    entries = [queue[name] for name in names if name in queue]
    held = [contender.held for entry in entries for contender in entry.inside]
    lost = [
        each for each in session.holdings.lost if not each.released and not set(names).isdisjoint(each.names)
    ]
    return [each for each in (*held, *lost) if isinstance(each, Holding) and each.task in runners]


def _covers(holding: Holding, primitive: Primitive) -> bool:
    """Whether the lock is all of what is asked for: each of the names, and held at least so."""
    kind = holding.kind
    return set(primitive.names) <= set(holding.names) and primitive.kind in (kind, kind.weaker)


def _count_one_more(holding: Holding, asked: Kind) -> None:
    if holding.count is None:  # a plain lease, and its block
        holding.count = Count([holding.kind], blocks=1)
    if holding.count.full:
        raise RuntimeError(
            f"a task has at most {MAX_DEPTH} leases of a lock at once, and this one has as many of "
            f"{printable(holding.names)}: is there an end to the recursion?"
        )
    holding.count.asked.append(asked)


@final
class View:
    """One lease of several that a task has of a lock; what it does not say itself, the holding says."""

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
        """What it was asked for; the lock may be of more names."""
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
        """Whether it was released, and the task has the lock yet by another lease."""
        return not self._open and not self._holding.released

    def error(self) -> LockLostError:
        """Return the error for a lease that is not held."""
        if self._open or self._loss is not None:
            return self._holding.error()
        return lost_error(self.names, LossReason.RELEASED, (), extensions=0)

    # -- what becomes of it --------------------------------------------------------------------

    def new_body(self, cancels: bool, loop: asyncio.AbstractEventLoop) -> Body:  # noqa: FBT001
        """Return what binds the current task to a block under this lease."""
        return Block(self._holding, self._count, loop, cancels=cancels)

    def downgrade(self, ttl: float) -> Round:
        """Become what lets others in; refused while another lease of the task needs what the lock is."""
        round_ = self._holding.downgrade(ttl, self._asked)
        self._asked = self._holding.kind
        return round_

    def release(self) -> Round:
        """Lower the count, once; the last lease releases the lock, whatever the order."""
        holding, count = self._holding, self._count
        if self._open:
            self._open = False
            count.asked.remove(self._asked)
            holding.notice_expiry()
            self._loss = holding.loss
        return self._releases.still_held if count.asked and not holding.released else holding.release()


@final
class Block(Body):
    """A block under a view: the outermost one is the holding's body, and inner ones leave all to it (R7)."""

    __slots__ = ("_count", "_holding")

    def __init__(
        self, holding: Holding, count: Count, loop: asyncio.AbstractEventLoop, *, cancels: bool
    ) -> None:
        outer = holding.body
        super().__init__(cancels and outer is None, loop)
        if outer is not None and holding.task not in current_runners():
            raise RuntimeError(
                f"another task is inside of lock {printable(holding.names)}, and it alone enters its leases: "
                "what works for it calls check()"
            )
        self._holding = holding
        self._count = count
        count.blocks += 1
        if outer is None:
            holding.body = self

    def disarm(self, exc: BaseException | None) -> bool:
        """End the binding; True when `exc` is our own cancellation, and this block is the outermost one.

        Where that ends before an inner one, the deadline stays for what goes on, unless it is over.
        """
        holding, count, outermost = self._holding, self._count, self._holding.body
        count.blocks -= 1
        if count.blocks and (outermost is not self or holding.loss is None):
            return False
        holding.body = None
        return outermost is not None and Body.disarm(outermost, exc)
