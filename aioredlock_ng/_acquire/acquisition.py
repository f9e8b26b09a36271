"""Acquiring: the local queue, then one try after the other until the time is up (R13)."""

from __future__ import annotations

import math
from typing import final
from weakref import ref

from .._core.seats import NO_SEAT, SHARED_SEAT
from .._hold.ancestors import ACQUIRED, REMEMBERED, Locks
from .._hold.holding import Holding
from .._hold.hooks import About
from .._hold.request import Request
from .._hold.succession import Grant
from .._kinds.primitive import Primitive
from .._local.local_queue import MAX_WAITERS, Contender, NameQueue
from .._local.patience import LETS_IN, Patience, PatienceInLine
from .._log import debugging
from .._round.slots import SlotRound
from ..errors import (
    ConfigurationError,
    LockNotAcquiredError,
    LockTakenError,
    QuorumUnavailableError,
    printable,
)
from ..events import Acquired, GaveUp, Refused
from ..events import Waiting as WaitingEvent
from .attempt import Attempt
from .deadline import Deadline
from .other_kind import other_kind
from .refusals import not_asked, report_key_without_expiry
from .session import AcquireSession
from .waiting import Waiting


@final
class Acquisition:
    """One call of `acquire`, from the local queue to the win or the error."""

    # Of the class, as long as they are what nearly every call keeps.
    _has_place = False  # among the tries in flight
    _patience: Patience | None = None  # since it was first kept from the lock, if it keeps others out
    _attempts = 0
    _ahead = 0  # calls of other processes that come before it in line, as the last try was told (R28)
    _seen = 0  # the greatest counter that a node has told us: the next ballot is above it
    _waiting: Waiting | None = None  # since the call was first kept from the lock
    _waits_told = False
    _acquired: Locks = ()  # in its context, when it began to wait
    _behind: NameQueue | None = None  # where it waits for a task of this process
    _refusal: LockNotAcquiredError | None = None  # of the last try

    def __init__(
        self,
        session: AcquireSession,
        primitive: Primitive,
        request: Request,
        given: float | None,
        began: float,
        *,
        since: int | None = None,
    ) -> None:
        self._session = session
        self._primitive = primitive
        self._request = request
        self._since = since
        self.names = primitive.names
        self._deadline = Deadline(session.clock, session.node_timeout, given, began, request.quorum_timeout)
        self._contender = Contender(session.queue, primitive)
        self._seat = NO_SEAT  # what says to the nodes that the call waits, if its kind does (R22)
        if (seat_of := primitive.kind.seat) is not None and not self._deadline.single_try:
            self._seat = seat = seat_of(lambda: session.seat, session.owners.new)
            if seat is not SHARED_SEAT:
                self._contender.seat = seat

    async def run(self) -> Holding:
        """Acquire, or raise why not.  Cancelled at any await, it leaves nothing behind (R5)."""
        session = self._session
        try:
            holding = await self._acquire()
        except BaseException as error:
            if isinstance(grant := self._contender.held, Grant):  # the next in line may have it
                session.succession.pass_on(grant, self._contender, session.clock.now())
            self._contender.leave()
            if self._attempts and self._contender.seat.name:
                session.releases.leave_queue(self._primitive, self._contender.seat)
            self._gave_up(error)
            raise
        finally:
            if self._has_place:
                self._leave_place()
            if self._waiting is not None:
                self._waiting.stop()
            if self._waits_told:
                session.long_waits.drop(self)
        if Acquired in session.hooks.wanted or debugging():
            self._tell_acquired(holding)
        ACQUIRED.set((*ACQUIRED.get()[1 - REMEMBERED :], ref(holding)))
        return holding

    async def _acquire(self) -> Holding:
        """The story of a call, from first to last."""
        session, contender, deadline = self._session, self._contender, self._deadline
        # A burst: too many tries are in flight.  Stand in line before any other work.
        if session.attempt_limiter.in_flight >= session.attempt_limiter.most and not deadline.single_try:
            await self._stand_in_line()
        # What others may hold beside this task may still be what it would wait for, behind a writer (R20).
        if not (deadline.single_try or session.queue.entries.keys().isdisjoint(self.names)):
            session.local.check_deadlock(self._primitive, reentrant=self._request.reentrant)
        # One contender per name and process: the other tasks wait here, in the order of their calls.
        await self._queue_locally()
        # One of them may have handed its lock on, as it is: then no node need be asked.
        if isinstance(held := contender.held, Grant) and (holding := self._adopt(held)) is not None:
            return holding
        while True:
            # Ask all nodes at once.  A first try whose time was used up before it began is still a try.
            attempt = await self._prepare()
            grant = await attempt.ask(deadline.for_answers() or session.node_timeout)
            # There are three cases.
            # 1. A majority granted, and enough of the validity is left: the lock is ours.
            if grant is not None and (holding := self._hold(grant, attempt)) is not None:
                return holding
            # 2. It is not ours: undo the try everywhere, and learn from that why, and for how long.
            #    Give up if the name is something else's, or the time is up.
            error, waiting = await self._undo(attempt)
            contender.refused(error, deadline.answered_at)
            left = deadline.left()
            if left is not None and left <= 0:
                raise error
            # 3. There is time left: wait for a release, the end of the key or a back-off, and ask again;
            #    unless the loop stood still past the time, so that hardly an answer could come within it.
            #    One that shares the name with others of this process waits behind the first that was refused.
            self._tell_waiting(error)
            if waiting is not None:
                await waiting.for_next_try(error)
            elif (
                not contender.represents_process()
            ):  # else the one that waited for both has left: ask at once
                contender.requeue()
                await self._queue_locally()
            await self._let_others_in(error)
            if deadline.for_answers() < session.node_timeout / 2:
                raise error

    # -- behind other tasks of this process ----------------------------------------------------

    async def _queue_locally(self) -> None:
        """Wait until no task of this process is in the way of any name, and let other processes ask first."""
        session, contender, single_try = self._session, self._contender, self._deadline.single_try
        if single_try and (error := session.local.cooling(self.names)) is not None:
            raise self._refused_here(error)
        for name in self.names:
            if not session.queue.enter(name, contender):
                self._leave_place()
                await self._queue_behind(name)
                if contender.held is not None:
                    return  # handed off by another task, as it is (R43)
                break
        handoff = session.queue.handoff
        for name in self.names:
            if (last := handoff.windows.get(name)) is None or not last.ended:
                continue  # the most frequent case: this process has not had it for long
            if (window := handoff.take(name, session.clock.now())) is not None:
                self._leave_place()
                await self._begin_to_wait().let_others_ask(window)
        if session.queue.cooldowns.until:
            await self._cool_down()

    async def _queue_behind(self, name: str) -> None:
        """Wait for the names that tasks of this process have, or want, beginning with `name`.

        What it waits for may wait for this call, too: so it keeps no name from others while it waits for its
        first.  If all others are free then, it has them; else it waits for one after the other in their
        order, and keeps those before, for a while (`PatienceInLine`).
        """
        contender = self._contender
        contender.leave()
        await self._queue_for(name)
        while contender.held is None and (further := contender.enter_in_order()) is not None:
            await self._queue_for(further)

    async def _queue_for(self, name: str) -> None:
        """Wait in the queue of one name until the contender is let in; raises when the time is up before."""
        session, deadline, single_try = self._session, self._deadline, self._deadline.single_try
        if single_try:
            session.local.check_kind(self._primitive, name)
        else:
            session.local.check_deadlock(self._primitive, reentrant=self._request.reentrant)
        entry = session.queue.entries[name]
        if single_try and (entry.held or entry.refusal):
            raise self._refused_here(session.local.in_the_way(self.names, entry))
        if len(entry.queue or ()) >= MAX_WAITERS:
            msg = f"more than {MAX_WAITERS} tasks of this process wait for {printable((name,))}"
            raise self._refused_here(LockTakenError(msg, names=self.names))
        place = session.queue.line_up(name, self._contender, single_try=single_try, wanted=self._request)
        deadline.watch_quorum(entry, place)
        patience = self._patience_of_claim()
        claim = None if patience is None else PatienceInLine(patience, name, place)
        try:
            self._behind = entry
            if not single_try:
                self._tell_waiting(None)  # code of users, which may find that the lease in the way has ended
            # A single try that finds a contender without a verdict waits for that verdict, not longer.
            if await session.sleeps.wait(
                place.future, deadline.for_answers() if single_try else deadline.room()
            ):
                deadline.goes_on_from(entry.refusal, entry.answered_at)
                return
        except BaseException:
            session.queue.step_out(name, place)
            raise
        finally:
            self._behind = None
            deadline.watch_no_more()
            if claim is not None:
                claim.cancel()
        session.queue.step_out(name, place)
        raise self._refused_here(session.local.in_the_way(self.names, entry, place.verdict))

    async def _cool_down(self) -> None:
        """Wait while a name stays taken that this process has released; no node need be asked (R34)."""
        local = self._session.local
        if (error := local.cooling(self.names)) is not None:
            self._tell_waiting(error)
            self._leave_place()
            if len(self.names) > 1:  # those that do not stay taken are for others to have meanwhile
                self._contender.leave()
            await self._begin_to_wait().cool_down(self.names)
            if (error := local.cooling(self.names)) is not None:
                raise self._refused_here(error)
            if len(self.names) > 1:
                await self._queue_locally()

    def _patience_of_claim(self) -> Patience | None:
        """Return for how long this call keeps others out on end; None if it does not."""
        if self._patience is None and self._contender.claims:
            self._patience = Patience()
        return self._patience

    async def _let_others_in(self, error: LockNotAcquiredError) -> None:
        """Give up marks and places in line for a moment, if it has had them for long (R22).

        It keeps others out and has nothing itself; the holder may wait for one of them.  Without a quorum it
        is not a holder that it waits for.
        """
        session, contender = self._session, self._contender
        patience, taken = self._patience_of_claim(), isinstance(error, LockTakenError)
        if patience is None or not patience.is_over(session.clock.now(), taken=taken):
            return
        if self._waiting is not None:
            self._waiting.stop()
        contender.returns = bool(contender.seat.name)  # among writers its place is the first
        contender.leave()
        if contender.seat.name:
            session.releases.leave_queue(self._primitive, contender.seat)
        await session.sleeps.sleep(self._deadline.within(LETS_IN))
        await self._queue_locally()

    def _refused_here(self, error: LockNotAcquiredError) -> LockNotAcquiredError:
        """Count a refusal for which no node was asked."""
        self._session.counters.refused += 1
        return error

    def _begin_to_wait(self) -> Waiting:
        """Note that this call is not let through at once."""
        if self._waiting is None:
            self._waiting = Waiting(self._session, self._contender, self._deadline)
        return self._waiting

    # -- a place among the tries in flight -----------------------------------------------------

    async def _stand_in_line(self) -> None:
        """Wait for a place among the tries in flight, in the caller's time; a single try in its own line."""
        session, deadline = self._session, self._deadline
        attempt_limiter, began = session.attempt_limiter, session.clock.now()
        place = attempt_limiter.line_up(single_try=deadline.single_try)
        if place is not None:
            try:
                limit = None if deadline.single_try else deadline.room()
                self._has_place = await session.sleeps.wait(place, limit)
            finally:
                if not self._has_place:
                    attempt_limiter.step_out(place)
            deadline.stood_in_line(session.clock.now() - began)
        if not self._has_place:
            error = not_asked(self.names, session.outbox.nodes, attempt_limiter.most)
            raise self._refusal or self._refused_here(error)
        session.availability.check()

    def _leave_place(self) -> None:
        """Let the next one ask: this call does not, for now."""
        if self._has_place:
            self._has_place = False
            self._session.attempt_limiter.leave()

    # -- one try -------------------------------------------------------------------------------

    async def _prepare(self) -> Attempt:
        """Return the next try, for which there is a place."""
        session, contender = self._session, self._contender
        if session.availability.conflict is not None:
            session.availability.check()
        # Where tasks of this process want the name, too, each is to have a fence of the block (R43).  They
        # come back for it, so that those that wait now are not all; and a block costs no more than one.
        followed = contender.notice_pending or session.queue.entries[self.names[0]].queue
        block = self._primitive.block if followed else 1
        if contender.notice_pending:  # a place was kept for this question
            contender.notice_pending, self._has_place = False, True
        if not self._has_place and not session.attempt_limiter.enter():
            await self._stand_in_line()
        self._attempts += 1
        attempt = Attempt(
            session, self._primitive, self._request, seen=self._seen, block=block, seat=self._seat
        )
        contender.acquire_round = attempt.acquire_round
        if self._waiting is not None:
            attempt.slot = self._waiting.asks()
        self._has_place = False  # it is the attempt's now
        return attempt

    def _hold(self, grant: Grant, attempt: Attempt | None = None) -> Holding | None:
        """Return the lock that a try has won, or another task has handed off; None when it came too late."""
        session, request, contender = self._session, self._request, self._contender
        # Judged when this task runs again, not when the tally was won (R3).
        too_late = grant.valid_until - session.clock.now() <= request.least_validity
        if too_late or session.availability.conflict is not None:
            return None
        holding = Holding(session, grant, request, contender)
        if attempt is not None and self._since is not None:
            holding.unchanged = attempt.unchanged_since(self._since)
        if attempt is not None and isinstance(attempt.acquire_round, SlotRound):
            attempt.acquire_round.settle(holding.give)
        contender.now_held(holding, lambda: session.local.held_here(self.names, holding))
        session.counters.acquired += 1
        return holding

    def _adopt(self, grant: Grant) -> Holding | None:
        """Return the lock that was handed to this task (R43); None when it comes too late."""
        session = self._session
        session.succession.take(grant)
        holding = self._hold(grant)
        if holding is None:
            self._contender.held = None  # this task is the contender now
            session.succession.give_back(grant)
        else:
            session.counters.handed_off += 1
        return holding

    async def _undo(self, attempt: Attempt) -> tuple[LockNotAcquiredError, Waiting | None]:
        """Undo a try that was no win; return why, and how to wait.  Raise if another one is pointless."""
        session, deadline = self._session, self._deadline
        session.counters.refused += 1
        self._seen = max(self._seen, attempt.seen)
        waiting = None
        if not deadline.single_try and self._contender.represents_process():
            waiting = self._begin_to_wait()
            waiting.lost(attempt)  # listens to releases, before those of this try are queued
        elif self._waiting is not None:
            self._waiting.stop()
        self._seat = attempt.seat
        error = await attempt.undo_and_explain(deadline.for_answers())
        misuse = await other_kind(session.outbox, self._primitive, error, deadline.for_answers())
        if waiting is not None:
            waiting.undone(attempt)
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
        return error, waiting

    # -- what it tells -------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """What the lock's kind is called."""
        return self._primitive.kind.name

    @property
    def about(self) -> About:
        """What it asks for, as hooks and the log are told."""
        return About(self.names, self._request.label, self.kind)

    def why(self) -> LockNotAcquiredError | None:
        """Return what keeps this call from the lock now."""
        behind = self._behind
        return self._refusal if behind is None else self._session.local.in_the_way(self.names, behind)

    def waits_long(self) -> None:
        """Warn if this call may wait for its own task."""
        if self._acquired:
            self._session.ancestors.check(self._primitive, self._acquired)

    def _tell_waiting(self, error: LockNotAcquiredError | None) -> None:
        """Tell, once, that this call begins to wait; without an error it waits for a task of this process."""
        self._refusal = error
        if self._waits_told:
            self._session.long_waits.reconsider(self)
        else:
            self._waits_told = True
            session = self._session
            session.long_waits.add(self)
            session.hooks.emit(
                WaitingEvent,
                self,
                waited=self._deadline.used,
                taken=error is None or isinstance(error, LockTakenError),
                votes=() if error is None else error.votes,
                ahead=self._ahead,
            )
            self._acquired = ACQUIRED.get()

    def _tell_acquired(self, holding: Holding) -> None:
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
            holding.taken_until = 0.0  # no caller got it: it is undone like a try that lost
            holding.release()
            raise

    def _gave_up(self, error: BaseException) -> None:
        """Count and tell that this call ends without the lock."""
        session = self._session
        if isinstance(error, QuorumUnavailableError):
            wait = session.availability.seconds()
            error.retry_after = wait if 0 < wait < math.inf else None
        session.counters.gave_up += 1
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
