"""Acquiring: the gate, then one try after the other until the time is up (R13)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import final

from ._attempt import Attempt
from ._core.command import Primitive
from ._core.policy import ExtensionPolicy
from ._core.validity import min_validity, valid_until
from ._gate import MAX_WAITERS, Gate, Pass
from ._holding import Holding
from ._options import OnLost
from ._runtime import Runtime
from .errors import (
    LockNotAcquiredError,
    LockTakenError,
    QuorumUnavailableError,
    WouldDeadlockError,
    printable,
)
from .events import Acquired, Refused


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a `Lock` asks for; times in seconds."""

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
        self._began = began
        self._attempts = 0
        self._seen = 0  # the greatest counter that a node has told us: the next ballot is above it

    async def run(self) -> Holding:
        """Acquire, or raise why not.  Cancelled at any await, it leaves nothing behind (R5)."""
        way = await self._pass_gates()
        try:
            holding = await self._contend(way)
        except BaseException:
            way.open()
            raise
        way.held_by(holding, self._held_here(holding))
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
        passed: list[str] = []
        try:
            for name in self._request.names:  # sorted: two tasks cannot wait for each other
                self._refuse_deadlock()
                await self._pass_gate(name)
                passed.append(name)
            await self._let_others_ask()
        except BaseException:
            Pass(self._runtime.gates, tuple(passed)).open()
            raise
        return Pass(self._runtime.gates, tuple(passed))

    async def _pass_gate(self, name: str) -> None:
        gates = self._runtime.gates
        single_try = self._patience == 0
        gate = gates.get(name)
        if gate is not None:
            if single_try and (gate.holding or gate.refusal):
                raise self._gate_error(gate)
            if len(gate.queue) >= MAX_WAITERS:
                msg = f"more than {MAX_WAITERS} tasks of this process wait for {printable((name,))}"
                raise LockTakenError(msg, names=self._request.names)
        place = gates.enter(name, single_try=single_try)
        if place is None:
            return
        assert gate is not None, "there is a queue only where somebody is through"
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
        if self._patience == 0:
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

    async def _let_others_ask(self) -> None:
        """Keep still for a moment when this process has had its turn (see `_gate`)."""
        runtime = self._runtime
        now = runtime.clock.now()
        pause = max(runtime.gates.pause_due(name, now) for name in self._request.names)
        left = self._left()
        if left is not None:
            pause = min(pause, left)
        if pause > 0:
            await runtime.pause(asyncio.get_running_loop().create_future(), pause)

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
        if gate.attempt is None or gate.attempt.asked.tally.pending:
            return LockTakenError(
                f"another task of this process is acquiring {printable(names)}", names=names
            )
        msg = f"lock {printable(names)}: too few nodes have answered yet"
        return QuorumUnavailableError(msg, names=names, votes=gate.attempt.asked.votes())

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
            way.refused(error)
            left = self._left()
            if hopeless or (left is not None and left <= 0):
                raise error
            wait = self._wait_before_retry(error)
            if left is not None:
                wait = min(wait, left)  # the last try comes when the time is up, and no sleep after it
            await runtime.pause(asyncio.get_running_loop().create_future(), wait)
            if self._time_for_answers() < runtime.node_timeout / 2:
                raise error  # the loop stood still past the time: hardly an answer could come within it

    def _wait_before_retry(self, error: LockNotAcquiredError) -> float:
        """Return the seconds to the earlier of the back-off and the moment the keys expire (R13)."""
        policy, random = self._runtime.options.retry, self._runtime.random
        wait = policy.backoff(self._attempts - 1, random.random())
        if isinstance(error, LockTakenError) and error.retry_after:
            # All who wait for one holder read the same moment off the nodes: come apart a little.
            wait = min(wait, error.retry_after + policy.backoff(0, random.random()))
        return wait

    async def _try(self, way: Pass) -> Holding | tuple[LockNotAcquiredError, bool]:
        """Ask all nodes once.  Returns the holding, or the refusal and whether it is final."""
        runtime, request = self._runtime, self._request
        runtime.check_configuration()
        self._attempts += 1
        attempt = Attempt(runtime, request.primitive, request.ttl, seen=self._seen)
        way.trying(attempt)
        # A first try whose time was used up before it began is still a try.
        won = await attempt.ask(self._time_for_answers() or runtime.node_timeout)
        self._seen = max(self._seen, attempt.seen)
        # Judged when this task runs again, not when the tally was won (R3).
        left = valid_until(attempt.asked_at, request.ttl) - runtime.clock.now()
        grace = request.extension.grace * request.ttl
        won = won and runtime.conflict is None
        if won and left > min_validity(request.ttl, runtime.node_timeout, grace):
            return self._won(way, attempt)
        refusal = await attempt.refused(self._time_for_answers())
        runtime.counters.refused += 1
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
        if runtime.audience.wants(Acquired):
            waited = runtime.clock.now() - self._began
            votes = holding.votes()
            event = Acquired(
                names=request.names,
                label=request.label,
                waited=waited,
                attempts=self._attempts,
                fence=holding.fence or None,
                votes=votes,
            )
            runtime.audience.tell(event)
