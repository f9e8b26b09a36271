"""Acquiring: the gate, then one try after the other until the time is up (R13)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, final

from ._ask import majority_answered
from ._attempt import Attempt
from ._core.command import Primitive
from ._core.policy import ExtensionPolicy, aside, reminder
from ._core.quorum import Verdict
from ._core.validity import min_validity, valid_until
from ._gate import MAX_WAITERS, Gate, Pass
from ._holding import Holding
from ._options import OnLost
from ._runtime import Runtime
from ._turns import GLIMPSE, YIELD, Turn
from ._wakeup import Ear
from .errors import (
    LockNotAcquiredError,
    LockTakenError,
    QuorumUnavailableError,
    WouldDeadlockError,
    printable,
)
from .events import Acquired, Refused

SPLIT_WITHIN: Final = 4
"""Round trips after a try in which the notices of those who lost it, too, are expected."""


@final
@dataclass(slots=True, kw_only=True)  # not frozen: that doubles the price of making one
class Request:
    """What a `Lock` asks for; times in seconds.  Never changed."""

    primitive: Primitive
    ttl: float
    blocking_timeout: float | None
    extension: ExtensionPolicy
    on_lost: OnLost
    label: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock."""
        return self.primitive.names


@final
class Acquisition:
    """One call of `acquire`, from the gate to the win or the error."""

    def __init__(self, runtime: Runtime, request: Request, *, patience: float | None, began: float) -> None:
        self._runtime = runtime
        self._request = request
        self._patience = patience
        self._waits = patience != 0  # else it is a single try
        self._began = began
        self._attempts = 0
        self._seen = 0  # the greatest counter that a node has told us: the next ballot is above it
        self._ear: Ear | None = None  # since the first refusal, if this call waits
        self._round_trip = 0.0  # of the last try
        self._asked_at = 0.0  # of the last try
        self._splits = 0  # tries in a row that nobody seems to have won
        self._in_vain = 0  # tries in a row that failed though nobody else seems to hold or want the lock

    async def run(self) -> Holding:
        """Acquire, or raise why not.  Cancelled at any await, it leaves nothing behind (R5)."""
        try:
            way = await self._pass_gates()
            try:
                holding = await self._contend(way)
            except BaseException:
                way.open()
                raise
        finally:
            if self._ear is not None:
                self._runtime.wakeups.rest(self._request.primitive.keys)
        way.held_by(holding, lambda: self._held_here(holding))
        if self._runtime.audience.wants(Acquired):
            try:
                self._tell(holding)
            except BaseException:
                holding.release()  # nobody has it yet who could
                raise
        return holding

    def _left(self) -> float | None:
        """Return the seconds that may still be waited; None when there is no end."""
        if self._patience is None:
            return None
        return self._began + self._patience - self._runtime.clock.now()

    # -- the gate ------------------------------------------------------------------------------

    async def _pass_gates(self) -> Pass:
        runtime, names = self._runtime, self._request.names
        gates = runtime.gates
        passed: list[str] = []
        try:
            for name in names:  # sorted: two tasks cannot wait for each other
                if not gates.enter(name):
                    self._refuse_deadlock()
                    await self._queue_up(name)
                passed.append(name)
            now = runtime.clock.now()
            for name in names:
                if (turn := runtime.turns.take(name, now)) is not None:
                    await self._let_others_ask(turn)
        except BaseException:
            Pass(gates, tuple(passed)).open()
            raise
        return Pass(gates, names)

    async def _queue_up(self, name: str) -> None:
        gates = self._runtime.gates
        single_try = not self._waits
        gate = gates[name]
        if single_try and (gate.holding or gate.refusal):
            raise self._gate_error(gate)
        if len(gate.queue or ()) >= MAX_WAITERS:
            msg = f"more than {MAX_WAITERS} tasks of this process wait for {printable((name,))}"
            raise LockTakenError(msg, names=self._request.names)
        place = gates.queue(name, single_try=single_try, alone=len(self._request.names) == 1)
        # A single try that finds a contender without a verdict waits for that verdict, not longer.
        patience = self._time_for_answers() if single_try else self._left()
        try:
            if await self._runtime.pause(place.future, None if patience is None else max(0.0, patience)):
                return
        except BaseException:
            gates.leave(name, place)
            raise
        gates.leave(name, place)
        raise self._gate_error(gate, place.verdict)

    def _refuse_deadlock(self) -> None:
        """Fail if this task, inside the body of a lease of ours, would wait for its own release."""
        if not self._waits:
            return
        task = asyncio.current_task()
        for name in self._request.names:
            gate = self._runtime.gates.get(name)
            body = gate.holding.body if gate is not None and gate.holding is not None else None
            if body is not None and body.task is task:
                raise WouldDeadlockError(
                    f"this task holds {printable((name,))} and would wait for itself (not reentrant)",
                    names=self._request.names,
                )

    async def _let_others_ask(self, turn: Turn) -> None:
        """Keep still for a moment when this process has had its turn (see `_turns`)."""
        runtime, release = self._runtime, turn.release
        assert release is not None, "a turn ends with a release"
        left = self._left()
        if left is not None and left <= 0:
            return
        await release.wait(majority_answered, within=left)
        reached = [answer.reached for answer in release.answers if answer is not None]
        others = any(count > turn.listened for count in reached)
        # Where nobody can be told of the release, those who want it poll, and cannot be counted.
        untold = sum(count < 0 for count in reached) >= release.tally.quorum or runtime.wakeups.deaf
        if others or untold:
            await runtime.pause(self._listen().enough(), self._within(YIELD))
        else:
            await runtime.sleep(self._within(GLIMPSE))

    def _gate_error(self, gate: Gate, verdict: LockNotAcquiredError | None = None) -> LockNotAcquiredError:
        """Tell what the nodes said last to the contender that is through the gate (R13)."""
        names = self._request.names
        if gate.holding is not None:
            return self._held_here(gate.holding)
        last = verdict or gate.refusal
        if isinstance(last, LockTakenError):
            return LockTakenError(last.args[0], names=names, votes=last.votes, retry_after=last.retry_after)
        if last is not None:
            return QuorumUnavailableError(last.args[0], names=names, votes=last.votes)
        asked = None if gate.attempt is None else gate.attempt.asked
        if asked is None or asked.tally.pending or asked.tally.answered >= asked.tally.quorum:
            return LockTakenError(
                f"another task of this process is acquiring {printable(names)}", names=names
            )
        msg = f"lock {printable(names)}: too few nodes have answered yet"
        return QuorumUnavailableError(msg, names=names, votes=asked.votes())

    def _held_here(self, holding: Holding) -> LockTakenError:
        names = self._request.names
        remaining = max(0.0, holding.valid_until - self._runtime.clock.now())
        return LockTakenError(
            f"lock {printable(names)} is held by this process", names=names, retry_after=remaining
        )

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
            way.refused(error)
            left = self._left()
            if hopeless or (left is not None and left <= 0):
                raise error
            await self._wait_to_retry(error)
            if self._time_for_answers() < runtime.node_timeout / 2:
                raise error  # the loop stood still past the time: hardly an answer could come within it

    async def _wait_to_retry(self, error: LockNotAcquiredError) -> None:
        """Wait for the earliest of: a release, the moment the keys expire, a back-off (R13).

        The last try comes when the time is up, and there is no wait after it.
        """
        runtime = self._runtime
        if self._in_vain:  # that it is free is no news then: our own releases tell us so
            pause = runtime.options.retry.backoff(self._in_vain - 1, runtime.random.random())
            await runtime.sleep(self._within(pause))
            return
        if await runtime.pause(self._listen().enough(), self._within(self._wait_before_retry(error))):
            await runtime.sleep(self._within(self._step_aside()))

    def _step_aside(self) -> float:
        """Return the seconds to wait after a notice, see `aside`; one right after the last try is a split."""
        runtime, now = self._runtime, self._runtime.clock.now()
        split = now - self._asked_at < SPLIT_WITHIN * self._round_trip
        self._splits = self._splits + 1 if split else 0
        return aside(
            runtime.options.retry,
            runtime.random.random(),
            round_trip=self._round_trip,
            splits=self._splits,
            waited=now - self._began,
        )

    def _within(self, wait: float) -> float:
        """Return how much of `wait`, in seconds, the caller's time has room for."""
        left = self._left()
        return wait if left is None else max(0.0, min(wait, left))

    def _wait_before_retry(self, error: LockNotAcquiredError) -> float:
        """Return the seconds to the earlier of the back-off and the moment the keys expire (R13)."""
        runtime = self._runtime
        policy, random = runtime.options.retry, runtime.random
        if runtime.wakeups.hears(self._request.primitive.keys):
            wait = reminder(policy, random.random())
        else:
            wait = policy.backoff(self._attempts - 1, random.random())
        if isinstance(error, LockTakenError) and error.retry_after:
            # All who wait for one holder read the same moment off the nodes: come apart a little.
            wait = min(wait, error.retry_after + policy.backoff(0, random.random()))
        return wait

    def _listen(self) -> Ear:
        """Be told of releases from now on."""
        if self._ear is None:
            self._ear = self._runtime.wakeups.listen(self._request.primitive.keys)
        return self._ear

    async def _try(self, way: Pass) -> Holding | tuple[LockNotAcquiredError, bool]:
        """Ask all nodes once.  Returns the holding, or the refusal and whether it is final."""
        runtime, request = self._runtime, self._request
        runtime.check_configuration()
        self._attempts += 1
        attempt = Attempt(runtime, request.primitive, request.ttl, seen=self._seen)
        way.trying(attempt)
        if self._ear is not None:
            self._ear.clear()
        # A first try whose time was used up before it began is still a try.
        won = await attempt.ask(self._time_for_answers() or runtime.node_timeout)
        self._seen = max(self._seen, attempt.seen)
        # Judged when this task runs again, not when the tally was won (R3).
        left = valid_until(attempt.asked_at, request.ttl) - runtime.clock.now()
        grace = request.extension.grace * request.ttl
        won = won and runtime.conflict is None
        if won and left > min_validity(request.ttl, runtime.node_timeout, grace):
            return self._won(way, attempt)
        self._asked_at, self._round_trip = attempt.asked_at, runtime.clock.now() - attempt.asked_at
        ear = self._listen() if self._waits else None  # queued before the release that tells how long to wait
        runtime.counters.refused += 1
        refusal = await attempt.refused(self._time_for_answers())
        if ear is not None:
            ear.free(attempt.free)
        tally = attempt.asked.tally  # whoever was refused nowhere waits for nobody
        self._in_vain = self._in_vain + 1 if tally.verdict is Verdict.WON or not tally.refused else 0
        if runtime.closing:
            raise runtime.closed_error()
        if runtime.audience.wants(Refused):
            taken = isinstance(refusal[0], LockTakenError)
            event = Refused(names=request.names, label=request.label, taken=taken, votes=refusal[0].votes)
            runtime.audience.tell(event)
        return refusal

    def _time_for_answers(self) -> float:
        """Return how long the nodes' answers may be waited for now.

        A `node_timeout`, but never further than one past the time that the caller gave (R13).
        """
        left = self._left()
        timeout = self._runtime.node_timeout
        return timeout if left is None else min(timeout, max(0.0, left + timeout))

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
        )
        runtime.holdings.add(holding)
        runtime.watchdog.watch(holding)
        runtime.counters.acquired += 1
        return holding

    def _tell(self, holding: Holding) -> None:
        runtime, request = self._runtime, self._request
        runtime.audience.tell(
            Acquired(
                names=request.names,
                label=request.label,
                waited=runtime.clock.now() - self._began,
                attempts=self._attempts,
                fence=holding.fence or None,
                votes=holding.votes(),
            )
        )
