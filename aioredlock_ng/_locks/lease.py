"""The lease: one holding of a lock, as users see it (rules R6 and R7)."""

from __future__ import annotations

import asyncio
import sys
import warnings
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, final

from .._core.quorum import Extension, Vote, extension_verdict
from .._kinds.kind import Mode
from .._lock.holding import Holding, extension_decided
from .._lock.reentry import View
from .._lock.session import Session
from .._round.round import all_answered, majority_answered
from .._settings.options import Renamed, Seconds
from ..errors import (
    ConfigurationError,
    LockLostError,
    LossReason,
    NodeVote,
    QuorumUnavailableError,
    printable,
)
from . import WITH, instead


class ReleaseOutcome(StrEnum):
    """A node's answer to a release."""

    RELEASED = "released"
    HANDED_OFF = "handed off"
    """Another task of this process has the lock now: the node was not asked (R43)."""
    KEPT = "kept"
    """The key is ours and stays until the lock's `at_least` is over."""
    NOT_HELD = "was not held"
    STILL_HELD = "still held"
    """A reentrant lock, of which its task has another lease: the node was not asked (R27)."""
    UNKNOWN = "unknown"
    """No answer in time; the release is repeated until the key has certainly ended."""


@final
@dataclass(frozen=True, slots=True)
class NodeRelease:
    """One node's part in a release."""

    node: str
    outcome: ReleaseOutcome
    reason: str = ""


@final
@dataclass(frozen=True, slots=True)
class ReleaseReport:
    """The answer of each node to a release, in the order of the nodes."""

    nodes: tuple[NodeRelease, ...]

    def count(self, outcome: ReleaseOutcome) -> int:
        """Return how many nodes answered with `outcome`."""
        return sum(node.outcome is outcome for node in self.nodes)


_OUTCOMES = {
    Vote.GRANTED: ReleaseOutcome.RELEASED,
    Vote.REFUSED: ReleaseOutcome.NOT_HELD,
    Vote.SILENT: ReleaseOutcome.UNKNOWN,
}


class HeldState:
    """The state of a lease or a leadership, which any thread can read; no I/O."""

    __slots__ = ()

    if TYPE_CHECKING:
        _session: Session
        _holding: Holding | View

    @property
    def name(self) -> str:
        """The name of the lock, or of the election; of several, the first in order."""
        return self._holding.names[0]

    @property
    def remaining(self) -> float:
        """Seconds of validity left; 0 once it is over.  No I/O."""
        return max(0.0, self._holding.valid_until - self._session.clock.now()) if self.held else 0.0

    @property
    def held(self) -> bool:
        """Whether the lock is ours, as far as is known and by the clock.  No I/O.

        Still true in the grace after `lost` was set by the clock: until validity ends the keys protect the
        clean-up of the body.  False in a forked child: the lease is its parent's.
        """
        return self._holding.held and not self._session.inherited

    def check(self) -> None:
        """Raise unless the lock is still ours; call it right before a write, from any thread.  No I/O.

        Raises:
            LockLostError: when validity has ended, a majority refused the lock, or the lease was released.
                In the grace after `lost` was set by the clock it still passes, as `held` does.
            RuntimeError: this is a forked child, which hears nothing of its parent's lease.
        """
        # Any thread may call this; the state of the lease changes in its loop only.
        if not self._holding.held or self._session.inherited:
            self._session.check_process()
            self._session.do_in_loop(self._holding.notice_expiry)
            raise self._holding.error()

    def _check_end(self) -> None:
        """Raise at the end of a block whose lease was lost, also in the grace; used by `sync`."""
        if self._holding.loss is not None:
            raise self._holding.error()
        self.check()


class LeaseState(HeldState, Renamed):
    """The state of a lease, which any thread can read; no I/O."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names, sorted."""
        return self._holding.names

    @property
    def fence(self) -> int:
        """The fencing token: unique for the lock's names, and greater than those of all earlier leases (R10).

        Hand it to the resource that the lock protects, and let the resource refuse what comes with a smaller
        one than it has seen: that protects it even when this process stood still past its validity.  A lease
        that another task of this process has handed off counts from when the process acquired the lock (R43).
        The number stays the same for as long as the lease lives; an integer below 2**53.

        Raises:
            ConfigurationError: the manager was made with ``fencing=False``.
        """
        if not self._holding.fence:
            raise ConfigurationError(
                f"lock {printable(self.names)}: this lease has no fence, since its manager was made with "
                "fencing=False: leave that option out"
            )
        return self._holding.fence

    @property
    def mode(self) -> Mode | None:
        """``"read"`` or ``"write"`` of a lease of a read-write lock; None of any other."""
        return self._holding.kind.mode

    @property
    def slot(self) -> int:
        """The number of this permit of a semaphore, from 0 on.

        No two leases have the same number at the same time.  Fences grow for each slot by itself: give a
        resource that all holders use both numbers, and let it compare fences of the same slot only.

        Raises:
            TypeError: this is no lease of a semaphore.
        """
        slot = self._holding.slot
        if slot is None:
            raise TypeError(f"only a lease of `LockManager.semaphore` has a slot, got {self!r}")
        return slot

    @property
    def unchanged(self) -> bool | None:
        """Whether no writer came since the read lease that `ReadWriteLock.write` was given (R23).

        True only if no writer with a fence came.  False can be a false alarm, such as after a write that was
        not won: then read again.  None for a lease that was asked for without ``since``.
        """
        return self._holding.unchanged

    @property
    def valid_until(self) -> float:
        """The moment until which the lock is ours, on the manager's clock (R2, R3), in seconds."""
        return self._holding.valid_until

    @property
    def extensions(self) -> int:
        """Number of times that the validity was extended."""
        return self._holding.extensions

    @property
    def votes(self) -> tuple[NodeVote, ...]:
        """The votes of the nodes in the latest round that was won."""
        return self._holding.votes()


@final
@instead("`async with lease:`", "__await__", *WITH)
@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Lease(LeaseState):
    """One holding of a lock, from its win to its release.

    Use it as ``async with lease:`` or call `release`.  A lease that is dropped without either stops
    being extended, is released, and warns (`ResourceWarning`).
    """

    _session: Session
    _holding: Holding | View

    def __repr__(self) -> str:
        names = printable(self.names)
        holding = self._holding
        state = "released" if holding.released else holding.loss or ("valid" if self.held else "expired")
        granted = sum(vote.vote is Vote.GRANTED for vote in self.votes)
        fence = f" fence={holding.fence}" if holding.fence else ""
        return f"<Lease {names}{fence} {state} {self.remaining:.1f}s {granted}/{len(self.votes)}>"

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is lost: refused by a majority, or `grace` before its validity ends."""
        return self._holding.lost

    async def extend(self, ttl: Seconds | None = None) -> None:
        """Extend the validity to `ttl` seconds from now, by default the longest asked; never shorten it.

        The watchdog goes on with the longest ttl asked.

        Raises:
            LockLostError: the lease is lost, or was lost before.
            QuorumUnavailableError: too few nodes answered to tell; it is still held by the clock.
        """
        await self._extend(ttl, downgrade=False)

    async def downgrade(self) -> None:
        """Turn a write lease into a read lease; no other client can write in between (R23).

        Readers that wait may come in; the fence stays.  From the call on, or from the end of an extension
        that is under way, `mode` is ``"read"``, even if this ends in an error or is cancelled: nodes that
        were not reached keep readers out until the next extension.  A read lease stays a read lease.

        Raises:
            TypeError: this is no lease of a read-write lock.
            RuntimeError: another lease of the lock, inside or outside of this one, was asked for to write.
            LockLostError, QuorumUnavailableError: as `extend`.
        """
        if self.mode is None:
            raise TypeError(f"only a write lease can be downgraded, got {self!r}")
        if self.mode == "write":
            await self._extend(None, downgrade=True)

    async def _extend(self, ttl: Seconds | None, *, downgrade: bool) -> None:
        self._session.check_here()
        holding = self._holding
        wanted = holding.wanted if ttl is None else self._session.options.checked_ttl(ttl)
        while (other := holding.extending) is not None:  # one extension round per lease in flight
            await other.wait(extension_decided)
        self.check()
        # Lost in the grace: still ours by the clock, but no extension brings it back.
        if holding.loss is not None:
            raise holding.error()
        round_ = holding.downgrade(wanted) if downgrade else holding.extend(wanted)
        await round_.wait(extension_decided)
        # Refused by a majority; or too slow, so that the clock has ended the lease meanwhile.
        if holding.loss is not None or not holding.held:
            holding.notice_expiry()
            raise holding.error()
        if extension_verdict(round_) is not Extension.EXTENDED:
            await round_.wait(all_answered)  # for the votes: a round without a quorum ends at once
            raise QuorumUnavailableError(
                f"lock {printable(self.names)}: too few nodes answered; it is still held for "
                f"{self.remaining:.3f} s",
                names=self.names,
                votes=round_.votes(),
            )

    async def release(self) -> ReleaseReport:
        """Release on all nodes and return their answers, after at most one `node_timeout` (R6).

        Idempotent; any task of the loop may call it.  The releases are queued before the first await: they
        leave even if this call is cancelled.  Called again, it returns the answers that came since: a node
        that was `UNKNOWN` may have been reached by now.

        Before the lock's `at_least` is over, the lease ends all the same, but its keys stay until then
        (`ReleaseOutcome.KEPT`), and no notification is published.  If another task of this process waits for
        the same lock, it may get it at once, and the nodes are not asked (`ReleaseOutcome.HANDED_OFF`).  If
        its task has other leases of a reentrant lock, the last of them releases it
        (`ReleaseOutcome.STILL_HELD`).
        """
        self._session.check_here()
        round_ = self._holding.release()
        await round_.wait(all_answered)
        return ReleaseReport(tuple(map(self._outcome, round_.votes())))

    def _outcome(self, vote: NodeVote) -> NodeRelease:
        if self._holding.handed_off:
            return NodeRelease(vote.node, ReleaseOutcome.HANDED_OFF, vote.reason)
        if self._holding.still_held:
            return NodeRelease(vote.node, ReleaseOutcome.STILL_HELD, vote.reason)
        if vote.vote is Vote.GRANTED and self._holding.stays:
            return NodeRelease(
                vote.node, ReleaseOutcome.KEPT, f"taken for another {self._holding.stays:.3f} s"
            )
        return NodeRelease(vote.node, _OUTCOMES[vote.vote], vote.reason)

    # -- async with ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Make the current task the body of the lease.

        Raises:
            LockLostError: the lease is not held any more.
        """
        self._session.check_here()
        self.check()
        self._bind()
        return self

    def _bind(self) -> asyncio.Task[object]:
        """Arm the lease as the deadline of the current task (R7), and return that; no await inside."""
        holding = self._holding
        if holding.body is not None:
            raise RuntimeError(f"a lease can be entered by one block only, and {self!r} already was")
        holding.body = body = holding.new_body(holding.cancels, self._session.loop)
        # Lost in the grace, before it had a body: the block begins, and is cancelled at its first await.
        if holding.loss is not None:
            body.stop()
        return body.task

    def _bind_or_release(self) -> None:
        """Arm the lease; if that fails, release it: no code has it."""
        try:
            self._bind()
        except BaseException:
            self._holding.release()
            raise

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release, and turn our own cancellation into `LockLostError`; leave any other error alone."""
        # A forked child: the lease is its parent's.
        if self._session.inherited:
            return
        holding = self._holding
        # Entered in another loop, which is closed by now: nothing can be sent any more.
        if self._session.loop.is_closed():
            holding.abandon()
            if exc is None and holding.loss is not None:
                raise holding.error()
            return
        # No await before the releases are queued: the deadline ends first (R7), then they leave (R6).
        body, holding.body = holding.body, None
        ours = body.disarm(exc) if body is not None else False
        round_ = holding.release()
        lost = holding.loss is not None
        # The body's own error leaves as it is; the loss is a note at it.
        if exc is not None and lost and not ours:
            _note(exc, holding.error())
        # The coroutine is being thrown away: it must not wait, and the releases are queued.
        if isinstance(exc, GeneratorExit):
            return
        if holding.quiet:
            # A task of this process asks next: come back when the releases are written.
            await asyncio.sleep(0)
        elif not majority_answered(round_):
            # Come back when another client can get in.
            await round_.alarm(majority_answered)
        if ours or (lost and exc is None):
            raise holding.error() from exc

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled: a copy that is collected would release what is still held."""
        raise TypeError(
            "a Lease cannot be copied or pickled, since it stands for one holding of a lock: pass on its "
            "fence instead"
        )

    def __del__(self) -> None:
        """Release a lease that no code can release any more, and warn."""
        holding = self._holding
        # It was released, or its loop is closed; or the interpreter ends, and nothing can be done.
        if holding.released or holding.loss is LossReason.LOOP_CLOSED or sys.is_finalizing():
            return
        # A forked child has dropped a copy: the lease is its parent's.
        if self._session.inherited:
            return
        # Collection may run in any thread and at any moment: the release is the loop's business.
        # It comes before the warning, which may be turned into an error.
        self._session.call_in_loop(_drop, holding)
        warnings.warn(
            f"lease of {printable(holding.names)} was dropped without release()",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )


def _note(exc: BaseException, loss: LockLostError) -> None:
    """Add a loss to another error that ends the block, unless an inner block has reported it (R27)."""
    if not (isinstance(exc, LockLostError) and exc.names == loss.names):
        exc.add_note(str(loss))


def _drop(holding: Holding | View) -> None:
    holding.release()
