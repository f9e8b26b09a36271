"""Acquiring: first the local queue, then one attempt after the other until the time is up (R13)."""

from __future__ import annotations

import asyncio
import math
from contextvars import Context
from typing import Final, final
from weakref import ref

from .._clock import Clock
from .._core.quorum import PENDING
from .._core.seats import NO_SEAT, SHARED_SEAT
from .._kinds.kind import Kind
from .._kinds.primitive import Primitive
from .._log import debugging
from .._round.deadlines import give_up
from .._round.round import SlotRound, verdict_known
from .._settings.options import Request
from ..errors import (
    ConfigurationError,
    LockNotAcquiredError,
    LockTakenError,
    QuorumUnavailableError,
    WouldDeadlockError,
    printable,
)
from ..events import Acquired, GaveUp, Refused, Waiting
from .attempt import Attempt
from .body import current_runners
from .handoff import Grant
from .holding import Holding
from .hooks import About
from .local_queue import MAX_WAITERS, Contender, NameQueue, QueueEntry
from .long_waits import ACQUIRED, REMEMBERED, Locks
from .refusals import not_asked, other_kind, report_key_without_expiry
from .session import Session
from .waiting import LETS_IN, Patience, PatienceInLine, Retries

CHECKS: Final = 10
"""Most checks, within the limit for a missing quorum, of whether the task before this call misses one."""


@final
class Deadline:
    """The time that the caller has `given`, in seconds: None for no limit, 0 for a single attempt.

    While attempts end without a quorum, a shorter limit may apply: `for_quorum` seconds since `answered_at`.
    Example: ``blocking_timeout=60, quorum_timeout=5``.  The call waits a minute for a holder, but gives up
    when no quorum has answered for five seconds.
    """

    # Defaults on the class: most calls never set these.
    quorum_missing = False
    """Whether the last attempt ended without a quorum."""
    _in_line = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self, clock: Clock, node_timeout: float, given: float | None, for_quorum: float | None, began: float
    ) -> None:
        self._clock = clock
        self._node_timeout = node_timeout
        self.given = given
        self._for_quorum = for_quorum
        self._began = began
        self.single_try = given == 0
        """Whether the call is non-blocking: it makes one attempt."""
        self.answered_at = began
        """When a quorum last answered that the lock is taken; before that, when the call began."""

    @property
    def used(self) -> float:
        """The seconds since the call began."""
        return self._clock.now() - self._began

    def left(self) -> float | None:
        """Return the seconds left, negative when they have passed; None without a limit."""
        given, began = self.given, self._began
        # The last attempt ended without a quorum: the earlier of the two limits applies.
        if self.quorum_missing and self._for_quorum is not None:
            ends = self.answered_at + self._for_quorum
            return (ends if given is None else min(ends, began + given)) - self._clock.now()
        return None if given is None else began + given - self._clock.now()

    def room(self) -> float | None:
        """Return the longest time for a wait: the seconds left, at least 0; None without a limit."""
        left = self.left()
        return None if left is None else max(0.0, left)

    def within(self, wait: float) -> float:
        """Return `wait`, in seconds, cut to the time left."""
        left = self.left()
        return wait if left is None else max(0.0, min(wait, left))

    def for_answers(self) -> float:
        """Return how long to wait for the nodes' answers now.

        A `node_timeout`, but no longer than until a `node_timeout` after the caller's time (R13).
        """
        timeout = self._node_timeout
        # Waits without a limit, and the nodes answer: the most frequent case.
        if self.given is None and not self.quorum_missing:
            return timeout
        # Example: `node_timeout` is 0.5 s.  With 0.3 s left it is 0.5 s; 0.2 s after the end it is 0.3 s.
        left = self.left()
        return timeout if left is None else min(timeout, max(0.0, left + timeout + self._in_line))

    # -- what happens during the call ----------------------------------------------------------

    def heard(self, error: LockNotAcquiredError) -> None:
        """Take note of the error that ended an attempt."""
        self.quorum_missing = not isinstance(error, LockTakenError)
        # Taken: a quorum has answered, and the limit for a missing one starts again.
        if not self.quorum_missing:
            self.answered_at = self._clock.now()

    def goes_on_from(self, refusal: LockNotAcquiredError | None, answered_at: float) -> None:
        """Go on after the wait for another task, whose last `refusal` counts; None: it had the lock."""
        missing = isinstance(refusal, QuorumUnavailableError)
        # That task has found no quorum since `answered_at`: this call does not start from zero.
        self.answered_at = max(self._began, answered_at) if missing else self._clock.now()

    def stood_in_line(self, seconds: float) -> None:
        """Leave out the time that a non-blocking call waited for its place: its attempt gets full time."""
        if self.single_try:
            self._in_line += seconds

    # -- behind a task of this process ---------------------------------------------------------

    def watch_quorum(self, entry: NameQueue, waiter: QueueEntry) -> None:
        """End the wait of `waiter` when the contender inside has found no quorum for too long.

        The contender inside asks the nodes on behalf of all tasks behind it, so its answers count for them.
        """
        if self._for_quorum is not None and not self.single_try:
            self._check_quorum_in(self._for_quorum - self.used, entry, waiter)

    def watch_no_more(self) -> None:
        """Stop what `watch_quorum` has started."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_quorum_in(self, seconds: float, entry: NameQueue, waiter: QueueEntry) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._check_quorum, entry, waiter, context=Context())

    def _check_quorum(self, entry: NameQueue, waiter: QueueEntry) -> None:
        limit = self._for_quorum
        assert limit is not None, "a quorum is watched only where it has a limit"
        left = max(entry.answered_at, self._began) + limit - self._clock.now()
        missing = entry.held is None and isinstance(entry.refusal, QuorumUnavailableError)
        # Missing for too long: this call ends with the refusal of the contender inside.
        if missing and left <= 0:
            waiter.verdict = entry.refusal
            give_up(waiter.future)
            return
        # A quorum has answered not long ago, or the lock is held: check again when that may have changed.
        least = self._node_timeout if missing else max(self._node_timeout, limit / CHECKS)
        self._check_quorum_in(max(left, least), entry, waiter)


@final
class Acquisition:
    """One call of `acquire`, from the local queue to the win or the error, within its `Deadline`."""

    # Defaults on the class: most calls never set these, which saves their memory and time.
    _patience: Patience | None = None  # from the first refusal on, if the call keeps others out
    _attempts = 0
    _ahead = 0  # calls of other processes before it in the queue, by the last attempt's answers (R28)
    _seen = 0  # the greatest counter that a node has reported: the next ballot is above it
    _retries: Retries | None = None  # from the first refusal on
    _long_wait: asyncio.TimerHandle | None = None  # since it began to wait: until the log says so
    acquired: Locks = ()
    """The locks acquired in its context before it began to wait."""
    _behind: NameQueue | None = None  # the local queue in which it waits
    _refusal: LockNotAcquiredError | None = None  # of the last attempt
    _asking: Attempt | None = None  # the attempt that waits for its verdict
    _seat = NO_SEAT

    def __init__(  # noqa: PLR0917 (see `Asked`)
        self,
        session: Session,
        primitive: Primitive,
        request: Request,
        given: float | None,
        began: float,
        since: int | None = None,
        place: bool | None = None,  # noqa: FBT001
    ) -> None:
        self._deadline = Deadline(session.clock, session.node_timeout, given, request.quorum_timeout, began)
        self._session = session
        self._primitive = primitive
        self._request = request
        self._since = since
        # Whether there is a place for its first attempt, if the call has queued for one.
        self._queued, self._has_place = place is not None, place is True
        self.names = primitive.names
        self._contender = contender = Contender(session.queue, primitive)
        # What marks the call at the nodes while it waits, if its kind uses marks (R22).  A non-blocking call
        # does not wait, and leaves none.
        if (seat_of := primitive.kind.seat) is not None and given != 0:
            self._seat = seat = seat_of(lambda: session.seat, session.new_name)
            # `SHARED_SEAT` only says that the call may wait: there is no mark of its own to take away.
            if seat is not SHARED_SEAT:
                contender.seat = seat

    async def run(self) -> Holding:  # noqa: C901, PLR0912 (the story of a call)
        """Acquire, or raise the reason why not.  A cancellation at any await leaves nothing behind (R5).

        This is the story of a call, from first to last; in the usual case it awaits the verdict alone.
        """
        session, contender = self._session, self._contender
        try:
            if self._queued:
                self._check_place()
            # The usual case: nothing of this process is in the way.
            if not self._enter_at_once():
                await self._enter()
            # Another task has handed its lock to this one: no node need be asked.
            held = contender.held
            holding = self._adopt(held) if isinstance(held, Grant) else None
            while holding is None:
                # Ask all nodes at once, and wait until the verdict is known, or all have answered.
                if not (self._has_place or contender.notice_pending or self._take_place()):
                    await self._queue_for_place()
                attempt = self._ask()
                if attempt.round.verdict is PENDING:
                    await attempt.round.alarm(verdict_known)
                # There are three cases.
                # 1. A majority granted, agrees on a fence, and enough of the validity is left: the lock is
                #    ours.
                won = attempt.outcome()
                if won is None:
                    won = await attempt.certify()
                self._asking = None
                attempt.end()
                if won and (holding := self._hold(attempt.grant(), attempt)) is not None:
                    break
                # 2. The attempt has failed: undo it everywhere, and learn from the replies why, and how long
                #    the lock will stay taken.  Give up if a key has another type, or the time is up.
                # 3. There is time left: wait, and ask again.
                await self._wait_for_next_try(attempt)
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            # It ended between taking a place and asking.
            if self._has_place:
                self._leave_place()
            if self._retries is not None:
                self._retries.stop()
            if self._long_wait is not None:
                self._long_wait.cancel()
                session.long_waits.drop(self)
        if Acquired in session.hooks.wanted or debugging():
            self._emit_acquired(holding)
        ACQUIRED.set((*ACQUIRED.get()[1 - REMEMBERED :], ref(holding)))
        return holding

    def fail(self, error: BaseException) -> None:
        """Leave nothing behind, since the call ends in an error or was cancelled, and say so."""
        session, contender = self._session, self._contender
        try:
            # Cancelled before the verdict, or a hook has failed: no other code will undo this attempt.
            if (attempt := self._asking) is not None:
                try:
                    attempt.undo()
                finally:
                    attempt.end()
        finally:
            # Cancelled in the moment in which another task handed its lock to this one: the next waiter may
            # have it.
            if isinstance(grant := contender.held, Grant):
                session.succession.pass_on(grant, contender, session.clock.now())
            contender.leave()
            # Nodes may have its mark: without an attempt they cannot.
            if self._attempts and contender.seat.name:
                session.releases.leave_queue(self._primitive, contender.seat)
            self._gave_up(error)

    async def _wait_for_next_try(self, attempt: Attempt) -> None:
        """Undo an attempt that did not win, and wait until the next one may win; raise if none may."""
        session, contender = self._session, self._contender
        error, retries = await self._undo(attempt)
        contender.refused(error, self._deadline.answered_at)
        left = self._deadline.left()
        if left is not None and left <= 0:
            raise error
        self._emit_waiting(error)
        # This call waits at the nodes on behalf of its process: for a release, the expiry of the keys, or a
        # back-off.
        if retries is not None:
            await retries.for_next_try(error)
        # Another task of this process, which shares the name and was refused before, does so: wait behind it
        # in the local queue.  If that task has given up meanwhile, ask again at once.
        elif not contender.represents_process():
            contender.requeue()
            await self._queue_locally()
        await self._let_others_in(error)
        # The event loop stood still until after the end of the time: hardly an answer could be in time.
        if self._deadline.for_answers() < session.node_timeout / 2:
            raise error

    # -- behind other tasks of this process ----------------------------------------------------

    def _enter_at_once(self) -> bool:
        """Enter the names, if no other task of this process wants or lately had them, and take a place.

        False: something is in the way, and nothing was entered.
        """
        queue, contender = self._session.queue, self._contender
        entries, windows, attempt_limiter = queue.entries, queue.handoff.windows, queue.attempt_limiter
        # A burst is under way; or names stay taken after their release.
        full = attempt_limiter.in_flight >= attempt_limiter.most
        if (full and not self._has_place) or queue.cooldowns.until:
            return False
        for name in self.names:
            # Another task has the name or is queued for it.
            if name in entries:
                return False
            # This process has had the name lately, and other processes may ask first; or not for long.
            if (window := windows.get(name)) is not None:
                if window.ended:
                    return False
                self._seen = max(self._seen, window.fence)
        for name in self.names:
            entries[name] = entry = NameQueue()
            entry.inside = [contender]
        contender.names = self.names
        if not self._has_place:
            attempt_limiter.in_flight += 1
            self._has_place = True
        return True

    async def _enter(self) -> None:
        """Enter the names, after waiting for what is in the way."""
        session = self._session
        # This task may wait for its own release even where others could share the lock with it: it holds a
        # read lock, a writer is queued, and it wants to read once more (R20).
        if not (self._deadline.single_try or session.queue.entries.keys().isdisjoint(self.names)):
            self._check_deadlock()
        # One contender per name and process: the other tasks wait here, in the order of their calls.
        await self._queue_locally()

    async def _queue_locally(self) -> None:
        """Wait until no task of this process is in the way, and let other processes ask first if due."""
        session, contender = self._session, self._contender
        # A name stays taken after its release by this process: a non-blocking call need not ask the nodes.
        if self._deadline.single_try and (error := self._cooling()) is not None:
            raise self._refused_here(error)
        for name in self.names:
            # Another task of this process has the name, or is queued for it.
            if not session.queue.enter(name, contender):
                self._leave_place()
                await self._queue_behind(name)
                # Handed to this task by another one, unchanged (R43).
                if contender.held is not None:
                    return
                break
        handoff = session.queue.handoff
        for name in self.names:
            # This process has not had the name for long: the usual case.
            if (last := handoff.windows.get(name)) is None or not last.ended:
                continue
            # It has: other processes may ask first.
            if (window := handoff.take(name, session.clock.now())) is not None:
                self._leave_place()
                await self._begin_to_wait().let_others_ask(window)
        if session.queue.cooldowns.until:
            await self._cool_down()

    async def _queue_behind(self, name: str) -> None:
        """Wait for the names that other tasks of this process have or want, beginning with `name`.

        The task that it waits for may wait for this call, too.  So it keeps no name from others while it
        waits for the first one.  If all others are free then, it enters them.  Otherwise it waits for one
        after the other in their order, and keeps those before, for a limited time (`PatienceInLine`).
        """
        contender = self._contender
        contender.leave()
        await self._queue_for(name)
        # Example: the call wants a, b and c, and b was taken.  Let into b, it enters a and c if they are
        # free.  If a is taken, it gives b up, waits for a, and enters b and c after that.
        while contender.held is None and (further := contender.enter_in_order()) is not None:
            await self._queue_for(further)

    async def _queue_for(self, name: str) -> None:
        """Wait in the queue of one name until the contender is let in; raise if the time is up before."""
        session, deadline, single_try = self._session, self._deadline, self._deadline.single_try
        # A non-blocking call cannot wait for itself.  The other check includes that of the kind.
        if single_try:
            self._check_kind(name)
        else:
            self._check_deadlock()
        entry = session.queue.entries[name]
        # A non-blocking call: the answer is known already, from a holder or from a refusal.
        if single_try and (entry.held or entry.refusal):
            raise self._refused_here(self._in_the_way(entry))
        if len(entry.queue or ()) >= MAX_WAITERS:
            msg = f"more than {MAX_WAITERS} tasks of this process wait for {printable((name,))}"
            raise self._refused_here(LockTakenError(msg, names=self.names))
        wanted = None if single_try else self._request
        waiter = session.queue.line_up(name, self._contender, wanted)
        deadline.watch_quorum(entry, waiter)
        patience = self._patience_of_claim()
        claim = None if patience is None else PatienceInLine(patience, name, waiter)
        try:
            self._behind = entry
            # Runs users' hooks, which may let the lease in the way end: so the entry is in the queue before.
            if not single_try:
                self._emit_waiting(None)
            # A non-blocking call that finds a contender without a verdict waits for that verdict, no longer.
            limit = deadline.for_answers() if single_try else deadline.room()
            if await session.sleeps.wait(waiter.future, limit):
                deadline.goes_on_from(entry.refusal, entry.answered_at)
                return
        except BaseException:
            session.queue.step_out(name, waiter)
            raise
        finally:
            self._behind = None
            deadline.watch_no_more()
            if claim is not None:
                claim.cancel()
        # Not let in: the time is up, or a verdict has ended the wait.
        session.queue.step_out(name, waiter)
        raise self._refused_here(self._in_the_way(entry, waiter.verdict))

    async def _cool_down(self) -> None:
        """Wait while a name that this process has released stays taken; no node need be asked (R34).

        It waits in short steps: the event loop's timers stand still while the machine is suspended, and the
        lock may be deleted by force.
        """
        session, policy = self._session, self._session.retry
        if (error := self._cooling()) is None:
            return
        self._emit_waiting(error)
        self._leave_place()
        # Others may have the names that do not stay taken meanwhile.
        if len(self.names) > 1:
            self._contender.leave()
        while (error := self._cooling()) is not None:
            # All waiters know the same moment, those of other processes, too: a random delay spreads them.
            left = (error.retry_after or 0.0) + policy.backoff(0, session.random.random())
            wait = self._deadline.within(min(policy.cap, left))
            # The caller's time is up before the names are free.
            if wait <= 0:
                raise self._refused_here(error)
            await session.sleeps.sleep(wait)
        if len(self.names) > 1:
            await self._queue_locally()

    def _patience_of_claim(self) -> Patience | None:
        """Return how long this call keeps others out; None if it keeps no call out."""
        if self._patience is None and self._contender.claims:
            self._patience = Patience()
        return self._patience

    async def _let_others_in(self, error: LockNotAcquiredError) -> None:
        """Give up marks and places in queues for a moment, after having had them for long (R22).

        The call keeps others out and holds nothing itself, and the holder may wait for one of those.  Without
        a quorum the call does not wait for a holder.
        """
        session, contender = self._session, self._contender
        patience, taken = self._patience_of_claim(), isinstance(error, LockTakenError)
        # It keeps no call out; or not for long enough to give way.
        if patience is None or not patience.is_over(session.clock.now(), taken=taken):
            return
        if self._retries is not None:
            self._retries.stop()
        # A writer is queued first again: only readers are to pass it, no other writer.
        contender.returns = bool(contender.seat.name)
        contender.leave()
        if contender.seat.name:
            session.releases.leave_queue(self._primitive, contender.seat)
        await session.sleeps.sleep(self._deadline.within(LETS_IN))
        await self._queue_locally()

    def _refused_here(self, error: LockNotAcquiredError) -> LockNotAcquiredError:
        """Count a refusal for which no node was asked."""
        self._session.counters.refused += 1
        return error

    def _begin_to_wait(self) -> Retries:
        """Return the state of this call's waits, made when it first has to wait."""
        if self._retries is None:
            self._retries = Retries(self._session, self._contender, self._deadline)
        return self._retries

    # -- a place among the attempts in flight --------------------------------------------------

    def _take_place(self) -> bool:
        """Take a place if there is one."""
        self._has_place = self._session.attempt_limiter.enter()
        return self._has_place

    async def _queue_for_place(self) -> None:
        """Wait for a place among the attempts in flight, in the caller's time.

        A non-blocking call waits in a queue of its own.
        """
        session, deadline = self._session, self._deadline
        began = session.clock.now()
        limit = None if deadline.single_try else deadline.room()
        self._has_place = await session.attempt_limiter.wait(limit, single_try=deadline.single_try)
        deadline.stood_in_line(session.clock.now() - began)
        self._check_place()

    def _check_place(self) -> None:
        """Raise if the wait for a place has ended without one, or no lock can be acquired any more."""
        session = self._session
        if session.availability.closing:
            raise session.availability.closed_error()
        # The nodes' answers to an earlier attempt say more to the caller than that this one was not made.
        if not self._has_place:
            error = not_asked(self.names, session.outbox.nodes, session.attempt_limiter.most)
            raise self._refusal or self._refused_here(error)
        session.availability.check()

    def _leave_place(self) -> None:
        """Give the place back: this call does not ask for now."""
        if self._has_place:
            self._has_place = False
            self._session.attempt_limiter.leave()

    # -- one attempt ---------------------------------------------------------------------------

    def _ask(self) -> Attempt:
        """Make the next attempt: ask all nodes in this turn of the event loop.  There is a place for it."""
        session, contender = self._session, self._contender
        if session.availability.conflict is not None:
            session.availability.check()
        # Where other tasks of this process want the name, too, each can get a fence of one range (R43).  The
        # range is longer than the queue, since tasks come back for the lock; it costs no more than one fence.
        block = self._primitive.block if session.queue.entries[self.names[0]].queue else 1
        # The quiet release before this contender has kept a place for this attempt.
        if contender.notice_pending:
            block = self._primitive.block
        self._attempts += 1
        timeout, deadline = session.node_timeout, self._deadline
        # Less for a call that waits with a limit.  If that was used up before the first attempt, it is made
        # all the same, with a `node_timeout`.
        if deadline.given is not None or deadline.quorum_missing:
            timeout = deadline.for_answers() or timeout
        attempt = Attempt(session, self._primitive, self._request, timeout, self._seen, block, self._seat)
        contender.acquire_round = attempt.round
        if self._retries is not None:
            attempt.named = self._retries.asks()
        # From here on the place is the attempt's.
        self._asking, self._has_place, contender.notice_pending = attempt, False, False
        attempt.ask()
        return attempt

    def _hold(self, grant: Grant, attempt: Attempt | None = None) -> Holding | None:
        """Return the lock that an attempt has won or another task has handed off; None if it is too late."""
        session, request, contender = self._session, self._request, self._contender
        # Judged when this task runs again, not when the tally was won (R3).
        too_late = grant.valid_until - session.clock.now() <= request.least_validity
        if too_late or session.availability.conflict is not None:
            return None
        holding = Holding(session, grant, request, contender)
        # The caller has given the fence of an earlier lease: did another writer hold the lock since?
        if attempt is not None and self._since is not None:
            holding.unchanged = attempt.unchanged_since(self._since)
        # Some nodes may have granted another slot of the semaphore: release it there.
        if attempt is not None and isinstance(attempt.round, SlotRound):
            attempt.round.settle(holding.give)
        contender.now_held(holding, lambda: self._held_here(holding))
        session.counters.acquired += 1
        return holding

    def _adopt(self, grant: Grant) -> Holding | None:
        """Return the lock that was handed to this task (R43); None if too little of its validity is left."""
        session = self._session
        holding = self._hold(grant)
        # Too late: release it, and let this task ask the nodes.
        if holding is None:
            self._contender.held = None
            session.succession.give_back(grant)
        else:
            session.counters.handed_off += 1
        return holding

    async def _undo(self, attempt: Attempt) -> tuple[LockNotAcquiredError, Retries | None]:
        """Undo an attempt that did not win; return the reason, and how to wait for the next one.

        Raises if another attempt is pointless.  The second value is None for a call that does not wait at the
        nodes itself.
        """
        session, deadline = self._session, self._deadline
        session.counters.refused += 1
        self._seen = max(self._seen, attempt.seen)
        retries = None
        # This call waits at the nodes on behalf of its process.  It subscribes to releases before those of
        # the attempt are queued.
        if not deadline.single_try and self._contender.represents_process():
            retries = self._begin_to_wait()
            retries.lost(attempt)
        # Another task of the process does, and keeps the subscription.
        elif self._retries is not None:
            self._retries.stop()
        self._seat = attempt.seat
        error = await attempt.undo_and_explain(deadline.for_answers())
        misuse = await other_kind(session.outbox, self._primitive, error, deadline.for_answers())
        if retries is not None:
            retries.undone(attempt)
        if session.availability.closing:
            raise session.availability.closed_error()
        if (node := attempt.no_expiry) is not None:
            report_key_without_expiry(session.no_expiry, self._primitive, node)
        self._ahead = attempt.ahead
        taken, votes = isinstance(error, LockTakenError), error.votes
        session.hooks.emit(Refused, self, taken=taken, votes=votes, ahead=self._ahead)
        for name in self._contender.names:
            session.queue.handoff.end(name)
        deadline.heard(error)
        if misuse is not None:
            raise misuse from error
        return error, retries

    # -- kept from the lock by this process: no node is asked ------------------------------------

    def _check_deadlock(self) -> None:
        """Raise an error if this task, or thread, would wait for a lock that its own block holds.

        Names that this process uses for another kind are refused first (`_check_kind`).

        A reentrant call comes here if no lease of its own task covers what it wants (R27).
        """
        for name in self.names:
            # No task of this process has to do with the name.
            if (entry := self._session.queue.entries.get(name)) is None:
                continue
            # First: a lock of another kind will never be free for this one, not even after its release.
            self._check_kind(name)
            held, runners = [contender.held for contender in entry.inside], current_runners()
            mine = sum(each is not None and each.task in runners for each in held)
            kind = self._primitive.kind
            # Of three permits this task holds two: the third may become free, and it may wait.  If all three
            # are its own, it would wait for itself.
            if mine and kind.full(mine):
                why = "requested without reentrant=True"
                # It holds "a", and wants "a" and "b"; or it reads "a", and wants to write it.
                if self._request.reentrant:
                    wanted = f"{printable(self.names)} as a {kind.noun}"
                    why = f"reentrant, but none of its leases covers all of {wanted}"
                if kind.permits:
                    why = f"it holds {kind.permits} of {kind.permits} permits itself"
                runner = "task" if isinstance(runners[0], asyncio.Task) else "thread"
                msg = f"this {runner} holds {printable((name,))} and would wait for itself ({why})"
                raise WouldDeadlockError(msg, names=self.names)

    def _check_kind(self, name: str) -> None:
        """Raise an error if this process uses the name for a kind that cannot exist beside this one (R19)."""
        kind = self._primitive.kind
        for contender in self._session.queue.entries[name].inside:
            other = contender.primitive.kind
            # A mutex and a semaphore, say: their keys have different types, and nodes would refuse for ever.
            if other.key_types.isdisjoint(kind.key_types):
                raise ConfigurationError(
                    f"lock {printable((name,))} is requested as a {kind.noun}, but this process already uses "
                    f"this name for a {other.noun}: give each its own name"
                )

    def _cooling(self) -> LockTakenError | None:
        """Return the error for names that stay taken after their release by this process, or None (R34)."""
        session, names = self._session, self.names
        cooldowns = session.queue.cooldowns
        # No name does: the usual case; or none of these.
        if not cooldowns.until or not (left := cooldowns.left(names, session.clock.now())):
            return None
        msg = f"lock {printable(names)} was released but stays taken for another {left:.3f} s (at_least)"
        return LockTakenError(msg, names=names, retry_after=left, holder=session.holder)

    def _held_here(self, held: Holding | Grant) -> LockTakenError:
        """Return the error for a lock that this process holds."""
        return LockTakenError(
            f"lock {printable(self.names)} is held by this process",
            names=self.names,
            retry_after=max(0.0, held.valid_until - self._session.clock.now()),
            holder=self._session.holder,
        )

    def _in_the_way(
        self, entry: NameQueue, verdict: LockNotAcquiredError | None = None
    ) -> LockNotAcquiredError:
        """Return the error for a call in the queue of a name: what keeps the contender inside, too (R13)."""
        names = self.names
        # A task of this process holds the lock.
        if (held := entry.held) is not None:
            return self._held_here(held)
        # One has released it, but it stays taken.
        if (error := self._cooling()) is not None:
            return error
        # One asks the nodes, and was refused: by a holder, or for want of a quorum.  The error is made again,
        # with the names of this call.
        last = verdict or entry.refusal
        if isinstance(last, LockTakenError):
            return LockTakenError(
                last.args[0], names=names, votes=last.votes, retry_after=last.retry_after, holder=last.holder
            )
        if last is not None:
            return QuorumUnavailableError(last.args[0], names=names, votes=last.votes)
        # One asks the nodes, and no attempt has ended: it may still win.  Unless all nodes have answered or
        # are silent and there is no quorum among them: that is known although its task has not run since.
        acquire_round = entry.acquire_round
        if acquire_round is None or acquire_round.pending or acquire_round.answered >= acquire_round.quorum:
            msg = f"another task of this process is acquiring {printable(names)}"
            return LockTakenError(msg, names=names)
        msg = f"lock {printable(names)}: too few nodes have answered so far"
        return QuorumUnavailableError(msg, names=names, votes=acquire_round.votes())

    # -- events and the log --------------------------------------------------------------------

    @property
    def kind(self) -> Kind:
        """The lock's kind."""
        return self._primitive.kind

    @property
    def about(self) -> About:
        """The names, label and kind of the lock, for hooks and the log."""
        return About(self.names, self._request.label or self.kind.name, self.kind.name)

    def why(self) -> LockNotAcquiredError | None:
        """Return what keeps this call from the lock now."""
        # In the local queue: a task of this process.  Otherwise the nodes' answers to the last attempt.
        behind = self._behind
        return self._refusal if behind is None else self._in_the_way(behind)

    def _emit_waiting(self, error: LockNotAcquiredError | None) -> None:
        """Emit, once for a call, that it begins to wait: for the nodes, or without an error in the queue."""
        self._refusal = error
        # It waits already: only the reason may have changed.
        session = self._session
        if self._long_wait is not None:
            session.long_waits.reconsider(self)
        else:
            self._long_wait = session.long_waits.begin(self)
            self.acquired = ACQUIRED.get()
            session.hooks.emit(
                Waiting,
                self,
                waited=self._deadline.used,
                taken=error is None or isinstance(error, LockTakenError),
                votes=() if error is None else error.votes,
                ahead=self._ahead,
            )

    def _emit_acquired(self, holding: Holding) -> None:
        hooks, attempts = self._session.hooks, self._attempts
        try:
            hooks.emit(
                Acquired,
                holding,
                waited=self._deadline.used,
                attempts=attempts,
                fence=holding.fence or None,
                votes=holding.votes if hooks.votes else (),
                handed_off=not attempts,
            )
        except BaseException:
            # A hook has failed, and the caller gets no lease: release at once, without a time (`at_least`)
            # for which the name stays taken.
            holding.taken_until = 0.0
            holding.release()
            raise

    def _gave_up(self, error: BaseException) -> None:
        """Count and emit that this call ends without the lock."""
        session = self._session
        if isinstance(error, QuorumUnavailableError):
            wait = session.availability.seconds()
            error.retry_after = wait if 0 < wait < math.inf else None
        session.counters.gave_up += 1
        # A key of another type: its cause is the refusal that led to the check (`other_kind`).
        why = error.__cause__ if isinstance(error, ConfigurationError) else error
        refusal = why if isinstance(why, LockNotAcquiredError) else None
        session.hooks.emit(
            GaveUp,
            self,
            error=error,
            waited=self._deadline.used,
            attempts=self._attempts,
            taken=None if refusal is None else isinstance(refusal, LockTakenError),
            votes=() if refusal is None else refusal.votes,
        )
