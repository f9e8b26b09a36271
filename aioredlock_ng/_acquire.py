"""Acquiring: the gate, one try after the other, and the undoing of whatever is not a win (R5, R13)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, final

from ._ask import Round, all_answered
from ._core.command import Ballot, Primitive
from ._core.policy import ExtensionPolicy
from ._core.quorum import Tally, Verdict, Vote
from ._core.validity import free_after, min_validity, valid_until
from ._gate import Gate, Pass
from ._holding import NOT_HELD, Holding
from ._options import OnLost
from ._runtime import Runtime
from .errors import (
    LockNotAcquiredError,
    LockTakenError,
    NodeVote,
    QuorumUnavailableError,
    WouldDeadlockError,
    printable,
)
from .events import Acquired, Refused

STRAGGLERS: Final = 0.01
"""Seconds that slower nodes are given, once a round is lost, to tell how long their key will stay."""

WRONG_TYPE: Final = "WRONGTYPE"
"""The error of a node where something that is not a lock lives under the lock's key."""


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

    async def run(self) -> Holding:
        """Acquire, or raise why not.  Cancelled at any await, it leaves nothing behind (R5)."""
        way = await self._pass_gates()
        try:
            holding = await self._contend(way)
        except BaseException:
            way.open()
            raise
        way.held_by(holding)
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
                await self._pass_gate(name)
                passed.append(name)
        except BaseException:
            Pass(self._runtime.gates, tuple(passed)).open()
            raise
        return Pass(self._runtime.gates, tuple(passed))

    async def _pass_gate(self, name: str) -> None:
        gates = self._runtime.gates
        gate = gates.get(name)
        if gate is not None:
            self._refuse_deadlock(name, gate)
            if self._patience == 0 and (gate.holding or gate.refusal):
                raise self._gate_error(gate)
        turn = gates.enter(name, single_try=self._patience == 0)
        if turn is None:
            return
        assert gate is not None, "there is a queue only where somebody is through"
        # A single try that finds a contender without a verdict waits for that verdict, not longer.
        patience = self._time_for_answers() if self._patience == 0 else self._left()
        try:
            if await self._runtime.pause(turn, None if patience is None else max(0.0, patience)):
                return
        except BaseException:
            gates.leave(name, turn)
            raise
        gates.leave(name, turn)
        raise self._gate_error(gate)

    def _refuse_deadlock(self, name: str, gate: Gate) -> None:
        holding = gate.holding
        body = holding.body if holding is not None else None
        if self._patience != 0 and body is not None and body.task is asyncio.current_task():
            raise WouldDeadlockError(
                f"this task holds {printable((name,))} and would wait for itself: locks are not reentrant",
                names=self._request.names,
            )

    def _gate_error(self, gate: Gate) -> LockNotAcquiredError:
        """Tell what the nodes said last to the contender that is through the gate (R13)."""
        names = self._request.names
        if gate.holding is not None:
            remaining = max(0.0, gate.holding.valid_until - self._runtime.clock.now())
            msg = f"lock {printable(names)} is held by this process"
            return LockTakenError(msg, names=names, retry_after=remaining)
        if isinstance(gate.refusal, QuorumUnavailableError):
            return QuorumUnavailableError(gate.refusal.args[0], names=names, votes=gate.refusal.votes)
        if isinstance(gate.refusal, LockTakenError):
            last = gate.refusal
            return LockTakenError(last.args[0], names=names, votes=last.votes, retry_after=last.retry_after)
        return LockTakenError(f"another task of this process is acquiring {printable(names)}", names=names)

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

    def _wait_before_retry(self, error: LockNotAcquiredError) -> float:
        """Return the seconds to the earlier of the back-off and the moment the keys expire (R13)."""
        policy, random = self._runtime.options.retry, self._runtime.random
        wait = policy.backoff(self._attempts - 1, random.random())
        if isinstance(error, LockTakenError) and error.retry_after:
            # All who wait for one holder read the same moment off the nodes: come apart a little.
            wait = min(wait, error.retry_after + policy.backoff(0, random.random()))
        return wait

    async def _try(self, way: Pass) -> Holding | tuple[LockNotAcquiredError, bool]:
        """Ask all nodes once (R1).  Returns the holding, or the refusal and whether it is final."""
        runtime, request = self._runtime, self._request
        self._attempts += 1
        owner = runtime.new_owner()  # fresh for every try, and known before the first byte (R5)
        round_ = Round(runtime.nodes, request.primitive.read_acquire)
        command = request.primitive.acquire(owner, request.ttl)
        asked_at = runtime.clock.now()  # before the first byte (R3)
        try:
            round_.ask(command, self._time_for_answers())
            await round_.wait(_decided)
        except BaseException:
            self._undo(owner, round_)
            raise
        # Judged when this task runs again, not when the tally was won (R3).
        left = valid_until(asked_at, request.ttl) - runtime.clock.now()
        grace = request.extension.grace * request.ttl
        won = round_.tally.verdict is Verdict.WON
        if won and left > min_validity(request.ttl, runtime.node_timeout, grace) and not runtime.closing:
            return self._won(way, owner, asked_at, round_)
        undo = self._undo(owner, round_)
        runtime.counters.refused += 1
        await undo.wait(lambda _: _know_why(round_, undo))
        await undo.wait(all_answered, within=STRAGGLERS)
        if runtime.closing:
            raise runtime.closed_error()
        refusal = self._refusal(round_, undo, too_late=won)
        if runtime.audience.wants(Refused):
            taken = isinstance(refusal[0], LockTakenError)
            event = Refused(names=request.names, label=request.label, taken=taken, votes=refusal[0].votes)
            runtime.audience.tell(event)
        return refusal

    def _undo(self, owner: bytes, asked: Round) -> Round:
        """Release on every node that was asked, queued before anything is awaited (R5)."""
        runtime = self._runtime
        unsent = [i for i, ballot in enumerate(asked.ballots) if ballot is not None and not ballot.sent]
        undo = Round(runtime.nodes, self._request.primitive.read_release)
        command = self._request.primitive.release(owner, self._request.ttl)
        undo.ask(command, self._time_for_answers(), spare=unsent, instead=NOT_HELD)
        return undo

    def _time_for_answers(self) -> float:
        """Return how long the nodes' answers may be waited for now.

        A `node_timeout`, but never further than one past the time that the caller gave (R13).
        """
        left = self._left()
        timeout = self._runtime.node_timeout
        return timeout if left is None else min(timeout, max(0.0, left + timeout))

    def _won(self, way: Pass, owner: bytes, asked_at: float, won: Round) -> Holding:
        runtime, request = self._runtime, self._request
        holding = Holding(
            runtime,
            request.primitive,
            owner=owner,
            ttl=request.ttl,
            asked_at=asked_at,
            won=won,
            extension=request.extension,
            label=request.label,
            way=way,
        )
        runtime.holdings.add(holding)
        runtime.watchdog.watch(holding)
        runtime.counters.acquired += 1
        if runtime.audience.wants(Acquired):
            waited = runtime.clock.now() - self._began
            votes = won.votes()
            event = Acquired(
                names=request.names, label=request.label, waited=waited, attempts=self._attempts, votes=votes
            )
            runtime.audience.tell(event)
        return holding

    def _refusal(self, asked: Round, undo: Round, *, too_late: bool) -> tuple[LockNotAcquiredError, bool]:
        """Tell contention from fault, with every node's answer and the time to try again."""
        names = self._request.names
        votes = tuple(map(_with_wait, asked.votes(), undo.ballots))
        self._report_eternal(votes, undo)
        if too_late:
            msg = f"lock {printable(names)}: a majority granted it too late to be of use"
            return QuorumUnavailableError(msg, names=names, votes=votes), False
        tally = Tally(len(votes))
        for vote in votes:
            tally.cast(vote.vote)
        quorum = tally.quorum
        wrong = sum(vote.reason.startswith(WRONG_TYPE) for vote in votes)
        if tally.answered < quorum:
            answered = f"{tally.answered} of {len(votes)} nodes answered, {quorum} are needed"
            msg = f"lock {printable(names)}: {answered}"
            return QuorumUnavailableError(msg, names=names, votes=votes), wrong > len(votes) - quorum
        waits = [0.0 if v.vote is Vote.GRANTED else v.retry_after for v in votes if v.vote is not Vote.SILENT]
        msg = f"lock {printable(names)} is held by somebody else"
        return LockTakenError(msg, names=names, votes=votes, retry_after=free_after(waits, quorum)), False

    def _report_eternal(self, votes: tuple[NodeVote, ...], undo: Round) -> None:
        """Report a key that no ttl will free (R16): a release that found it could name no time."""
        for vote, found in zip(votes, undo.ballots, strict=True):
            if vote.vote is not Vote.REFUSED or found is None or found.vote is not Vote.REFUSED:
                continue
            if found.wait is None:
                self._runtime.report_eternal(self._request.primitive.keys, vote.node)
                return


def _decided(tally: Tally) -> bool:
    return tally.verdict is not Verdict.PENDING


def _know_why(asked: Round, undo: Round) -> bool:
    """Whether it is certain why the round was lost, and how long the keys in the way will stay.

    Each node that refused tells that with its release.  Without a quorum every node that can answer
    is heard, so that the error shows which ones are at fault.
    """
    if undo.tally.pending == 0:
        return True
    if not asked.tally.taken:
        return asked.tally.taken is False and asked.tally.pending == 0
    return all(
        then is not None
        for first, then in zip(asked.ballots, undo.ballots, strict=True)
        if first is not None and first.vote is Vote.REFUSED
    )


def _with_wait(vote: NodeVote, undo: Ballot | None) -> NodeVote:
    """Add to a refusal what the release that followed it found under the key."""
    if vote.vote is not Vote.REFUSED or undo is None:
        return vote
    if undo.vote is Vote.SILENT:
        if undo.reason.startswith(WRONG_TYPE):
            return NodeVote(vote.node, Vote.SILENT, undo.reason)
        return vote
    return NodeVote(vote.node, vote.vote, vote.reason, undo.wait)
