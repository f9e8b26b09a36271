"""One try: a fresh owner, asked of all nodes once, and undone unless it is a win (R1, R5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ._ask import Round, all_answered
from ._core.command import Answer, Primitive
from ._core.quorum import Tally, Verdict, Vote
from ._core.validity import free_after
from .errors import LockNotAcquiredError, LockTakenError, NodeVote, QuorumUnavailableError, printable

if TYPE_CHECKING:
    from ._runtime import Runtime

STRAGGLERS: Final = 0.01
"""Seconds that slower nodes are given, once a round is lost, to tell how long their key will stay."""

WRONG_TYPE: Final = "WRONGTYPE"
"""The error of a node where something that is not a lock lives under the lock's key."""


@final
class Attempt:
    """A try to acquire `primitive` for `ttl` seconds."""

    def __init__(self, runtime: Runtime, primitive: Primitive, ttl: float) -> None:
        self._runtime = runtime
        self._primitive = primitive
        self._ttl = ttl
        self._undone: Round | None = None
        self.owner = runtime.new_owner()  # fresh for every try, and known before the first byte (R5)
        self.asked = Round(runtime.nodes, primitive.read_acquire)
        self.asked_at = 0.0

    async def ask(self, timeout: float) -> bool:
        """Ask all nodes; True when a majority granted.  What ends it otherwise undoes it, too."""
        runtime = self._runtime
        runtime.attempts.add(self)
        self.asked_at = runtime.clock.now()  # before the first byte (R3)
        try:
            self.asked.ask(self._primitive.acquire(self.owner, self._ttl), timeout)
            await self.asked.wait(_decided)
        except BaseException:
            self.undo(timeout)
            raise
        finally:
            runtime.attempts.discard(self)
        return self._undone is None and self.asked.tally.verdict is Verdict.WON

    def undo(self, timeout: float) -> Round:
        """Release on every node that was asked, queued before anything is awaited; once (R5)."""
        if self._undone is None:
            unsent = unsent_in(self.asked)
            self._undone = self._runtime.release(
                self._primitive, self.owner, keeps=self._ttl, unsent=unsent, timeout=timeout
            )
        return self._undone

    async def refused(self, timeout: float) -> tuple[LockNotAcquiredError, bool]:
        """Undo, and return why it was no win, and whether another try is pointless."""
        won = self.asked.tally.verdict is Verdict.WON
        undo = self.undo(timeout)
        await undo.wait(lambda _: self._knows_why(undo))
        await undo.wait(all_answered, within=STRAGGLERS)
        names = self._primitive.names
        votes = tuple(map(_with_wait, self.asked.votes(), undo.answers))
        self._report_eternal(votes, undo)
        if won:
            msg = f"lock {printable(names)}: a majority granted it too late to be of use"
            return QuorumUnavailableError(msg, names=names, votes=votes), False
        return _refusal(names, votes)

    def _knows_why(self, undo: Round) -> bool:
        """Whether it is certain why the round was lost, and how long the keys in the way will stay.

        Each node that refused tells that with its release.  Without a quorum every node that can
        answer is heard, so that the error shows which ones are at fault.
        """
        tally = self.asked.tally
        if undo.tally.pending == 0:
            return True
        if not tally.taken:
            return tally.taken is False and tally.pending == 0
        return all(
            then is not None
            for first, then in zip(self.asked.answers, undo.answers, strict=True)
            if first is not None and first.vote is Vote.REFUSED
        )

    def _report_eternal(self, votes: tuple[NodeVote, ...], undo: Round) -> None:
        """Report a key that no ttl will free (R16): a release that found it could name no time."""
        for vote, found in zip(votes, undo.answers, strict=True):
            if vote.vote is not Vote.REFUSED or found is None or found.vote is not Vote.REFUSED:
                continue
            if found.wait is None:
                self._runtime.report_eternal(self._primitive.keys, vote.node)
                return


def unsent_in(asked: Round) -> list[int]:
    """Return the nodes that were provably never sent the command of `asked`."""
    return [node for node, answer in enumerate(asked.answers) if answer is not None and not answer.sent]


def _decided(tally: Tally) -> bool:
    return tally.verdict is not Verdict.PENDING


def _refusal(names: tuple[str, ...], votes: tuple[NodeVote, ...]) -> tuple[LockNotAcquiredError, bool]:
    """Tell contention from fault, with every node's answer and the time to try again."""
    tally = Tally(len(votes))
    for vote in votes:
        tally.cast(vote.vote)
    quorum = tally.quorum
    if tally.answered < quorum:
        wrong = sum(vote.reason.startswith(WRONG_TYPE) for vote in votes)
        answered = f"{tally.answered} of {len(votes)} nodes answered, {quorum} are needed"
        msg = f"lock {printable(names)}: {answered}"
        return QuorumUnavailableError(msg, names=names, votes=votes), wrong > len(votes) - quorum
    waits = [0.0 if v.vote is Vote.GRANTED else v.retry_after for v in votes if v.vote is not Vote.SILENT]
    msg = f"lock {printable(names)} is held by somebody else"
    return LockTakenError(msg, names=names, votes=votes, retry_after=free_after(waits, quorum)), False


def _with_wait(vote: NodeVote, undo: Answer | None) -> NodeVote:
    """Add to a refusal what the release that followed it found under the key."""
    if vote.vote is not Vote.REFUSED or undo is None:
        return vote
    if undo.vote is Vote.SILENT:
        if undo.reason.startswith(WRONG_TYPE):
            return NodeVote(vote.node, Vote.SILENT, undo.reason)
        return vote
    return NodeVote(vote.node, vote.vote, vote.reason, undo.wait)
