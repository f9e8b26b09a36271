"""Acquiring: the gate, then one try after the other until the time is up (R13)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from .._core.policy import ExtensionPolicy
from .._core.validity import min_validity, valid_until
from .._hold.holding import Holding
from .._kinds.primitive import Primitive
from .._local.admission import not_asked, stand_in_line
from .._local.local_queue import MAX_WAITERS, Gate, Pass
from .._log import debugging
from .._options import OnLost
from .._session.runtime import Runtime
from ..errors import LockNotAcquiredError, LockTakenError, QuorumUnavailableError, printable
from ..events import Acquired
from .attempt import Attempt
from .quorum_watch import QuorumWatch
from .refusals import cooling, held_here, in_the_way, refuse_deadlock
from .telling import tell_acquired, tell_gave_up, tell_refused, tell_waiting
from .waiting import Patience, Waiting


@final
@dataclass(slots=True, kw_only=True)  # not frozen: that doubles the price of making one
class Request:
    """What a `Lock` asks for; times in seconds.  Never changed."""

    primitive: Primitive
    ttl: float
    blocking_timeout: float | None
    quorum_timeout: float | None
    extension: ExtensionPolicy
    on_lost: OnLost
    label: str
    at_least: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock."""
        return self.primitive.names


@final
class Acquisition:
    """One call of `acquire`, from the gate to the win or the error."""

    __slots__ = (
        "_attempts",
        "_behind",
        "_has_place",
        "_patience",
        "_refusal",
        "_request",
        "_runtime",
        "_seen",
        "_waiting",
        "_waits_told",
    )

    def __init__(self, runtime: Runtime, request: Request, *, patience: float | None, began: float) -> None:
        self._runtime = runtime
        self._request = request
        self._patience = Patience(
            runtime.clock, began, patience, runtime.node_timeout, request.quorum_timeout
        )
        self._waiting: Waiting | None = None
        self._waits_told = False
        self._behind: Gate | None = None  # where it waits for a task of this process
        self._refusal: LockNotAcquiredError | None = None  # of the last try
        self._attempts = 0
        self._has_place = False  # among the tries in flight
        self._seen = 0  # the greatest counter that a node has told us: the next ballot is above it

    async def run(self) -> Holding:
        """Acquire, or raise why not.  Cancelled at any await, it leaves nothing behind (R5)."""
        try:
            if self._runtime.admission.full and not self._patience.single_try:
                await self._stand_in_line()  # before any work: a burst of calls does that in turn, too
            way = await self._pass_gates()
            try:
                holding = await self._contend(way)
            except BaseException:
                way.open()
                raise
        except BaseException as error:
            self._gave_up(error)
            raise
        finally:
            self._leave_place()
            if self._waiting is not None:
                self._waiting.over()
            if self._waits_told:
                self._runtime.long_waits.drop(self)
        way.held_by(holding, lambda: held_here(self._runtime, self.names, holding))
        if self._runtime.audience.wants(Acquired) or debugging():
            waited, attempts = self._patience.used, self._attempts
            try:
                tell_acquired(self._runtime, self._request, holding, waited=waited, attempts=attempts)
            except BaseException:
                holding.taken_until = 0.0  # no caller got it: it is undone like a try that lost
                holding.release()
                raise
        return holding

    # -- the gate ------------------------------------------------------------------------------

    async def _pass_gates(self) -> Pass:
        runtime, names = self._runtime, self._request.names
        gates = runtime.gates
        passed: list[str] = []
        if self._patience.single_try and (error := cooling(runtime, names)) is not None:
            raise self._refused_here(error)
        try:
            for name in names:  # sorted: two tasks cannot wait for each other
                if not gates.enter(name):
                    self._leave_place()
                    if not self._patience.single_try:
                        refuse_deadlock(runtime, names)
                    await self._queue_up(name)
                passed.append(name)
            now = runtime.clock.now()
            for name in names:
                if (turn := runtime.turns.take(name, now)) is not None:
                    self._leave_place()
                    await self._must_wait().let_others_ask(turn)
            if runtime.cooldowns:
                await self._cool_down()
        except BaseException:
            Pass(gates, tuple(passed)).open()
            raise
        return Pass(gates, names)

    async def _queue_up(self, name: str) -> None:
        gates = self._runtime.gates
        single_try = self._patience.single_try
        gate = gates[name]
        if single_try and (gate.holding or gate.refusal):
            raise self._refused_here(in_the_way(self._runtime, self.names, gate))
        if len(gate.queue or ()) >= MAX_WAITERS:
            msg = f"more than {MAX_WAITERS} tasks of this process wait for {printable((name,))}"
            raise self._refused_here(LockTakenError(msg, names=self._request.names))
        if not single_try:
            self._waits(None)
        place = gates.queue(name, single_try=single_try, alone=len(self._request.names) == 1)
        # A single try that finds a contender without a verdict waits for that verdict, not longer.
        patience = self._patience.for_answers() if single_try else self._patience.left()
        limited = self._patience.for_quorum is not None and not single_try
        watch = QuorumWatch(self._runtime, self._patience, gate, place) if limited else None
        try:
            self._behind = gate
            if await self._runtime.pause(place.future, None if patience is None else max(0.0, patience)):
                self._patience.goes_on_from(gate.refusal, gate.answered_at)
                return
        except BaseException:
            gates.leave(name, place)
            raise
        finally:
            self._behind = None
            if watch is not None:
                watch.cancel()
        gates.leave(name, place)
        raise self._refused_here(in_the_way(self._runtime, self.names, gate, place.verdict))

    async def _cool_down(self) -> None:
        """Wait while a name stays taken that this process has released; no node need be asked (R34)."""
        runtime, names = self._runtime, self._request.names
        if (error := cooling(runtime, names)) is not None:
            self._waits(error)
            self._leave_place()
            await self._must_wait().cool_down(names)
            if (error := cooling(runtime, names)) is not None:
                raise self._refused_here(error)

    def _refused_here(self, error: LockNotAcquiredError) -> LockNotAcquiredError:
        """Count a refusal for which no node was asked."""
        self._runtime.counters.refused += 1
        return error

    def _must_wait(self) -> Waiting:
        """Note that this call is not let through at once."""
        if self._waiting is None:
            self._waiting = Waiting(self._runtime, self._request.primitive.keys, self._patience)
        return self._waiting

    # -- contending ----------------------------------------------------------------------------

    async def _contend(self, way: Pass) -> Holding:
        runtime = self._runtime
        while True:
            outcome = await self._try(way)
            if isinstance(outcome, Holding):
                return outcome
            error, hopeless = outcome
            for name in way.names:
                runtime.turns.lose(name)
            self._patience.judged(error)
            way.refused(error, self._patience.answered_at)
            left = self._patience.left()
            if hopeless or (left is not None and left <= 0):
                raise error
            self._waits(error)
            await self._must_wait().for_next_try(error)
            if self._patience.for_answers() < runtime.node_timeout / 2:
                raise error  # the loop stood still past the time: hardly an answer could come within it

    async def _stand_in_line(self) -> None:
        """Wait for a place among the tries in flight, in the caller's time."""
        self._has_place = await stand_in_line(self._runtime, self._patience)
        if not self._has_place:
            raise self._refusal or self._refused_here(not_asked(self._runtime, self._request.names))
        self._runtime.check_configuration()

    def _leave_place(self) -> None:
        """Let the next one ask: this call does not, for now."""
        if self._has_place:
            self._has_place = False
            self._runtime.admission.leave()

    async def _try(self, way: Pass) -> Holding | tuple[LockNotAcquiredError, bool]:
        """Ask all nodes once.  Returns the holding, or the refusal and whether it is final."""
        runtime, request = self._runtime, self._request
        runtime.check_configuration()
        self._has_place = self._has_place or way.take_place() or runtime.admission.enter()
        if not self._has_place:
            await self._stand_in_line()
        self._attempts += 1
        attempt = Attempt(runtime, request.primitive, request.ttl, seen=self._seen)
        way.trying(attempt)
        if self._waiting is not None:
            self._waiting.asks()
        self._has_place = False  # it is the attempt's now
        # A first try whose time was used up before it began is still a try.
        won = await attempt.ask(self._patience.for_answers() or runtime.node_timeout)
        self._seen = max(self._seen, attempt.seen)
        # Judged when this task runs again, not when the tally was won (R3).
        left = valid_until(attempt.asked_at, request.ttl) - runtime.clock.now()
        grace = request.extension.grace * request.ttl
        won = won and runtime.conflict is None
        if won and left > min_validity(request.ttl, runtime.node_timeout, grace):
            return self._won(way, attempt)
        runtime.counters.refused += 1
        waiting = None if self._patience.single_try else self._must_wait()
        if waiting is not None:
            waiting.lost(attempt)
        refusal = await attempt.refused(self._patience.for_answers())
        if waiting is not None:
            waiting.undone(attempt)
        if runtime.closing:
            raise runtime.closed_error()
        tell_refused(runtime, request, refusal[0])
        return refusal

    def _won(self, way: Pass, attempt: Attempt) -> Holding:
        runtime, request = self._runtime, self._request
        holding = Holding(
            runtime,
            request.primitive,
            owner=attempt.owner,
            fence=attempt.fence,
            ttl=request.ttl,
            asked_at=attempt.asked_at,
            won=attempt.asked,
            extension=request.extension,
            label=request.label,
            way=way,
            at_least=request.at_least,
        )
        runtime.holdings[holding] = None
        runtime.watchdog.watch(holding)
        runtime.counters.acquired += 1
        return holding

    # -- what it tells -------------------------------------------------------------------------

    def _waits(self, error: LockNotAcquiredError | None) -> None:
        """Tell, once, that this call begins to wait; without an error it waits for a task of this process."""
        self._refusal = error
        if not self._waits_told:
            self._waits_told = True
            self._runtime.long_waits.add(self)
            tell_waiting(self._runtime, self._request, error, waited=self._patience.used)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock."""
        return self._request.names

    def why(self) -> LockNotAcquiredError | None:
        """Return what keeps this call from the lock now."""
        return self._refusal if self._behind is None else in_the_way(self._runtime, self.names, self._behind)

    def _gave_up(self, error: BaseException) -> None:
        """Count and tell that this call ends without the lock."""
        if isinstance(error, QuorumUnavailableError):
            wait = self._runtime.unavailable_for()
            error.retry_after = wait if 0 < wait < math.inf else None
        self._runtime.counters.gave_up += 1
        tell_gave_up(self._runtime, self._request, error, waited=self._patience.used, attempts=self._attempts)
