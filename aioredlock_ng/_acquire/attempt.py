"""One try: a fresh owner, asked of all nodes once, and undone unless it is a win (R1, R5)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from .._core.command import ABOVE_FENCE, GRANTED, Answer
from .._core.fencing import agreeable, ballot, certified
from .._core.quorum import Tally, Verdict, Vote
from .._core.validity import free_after
from .._kinds.primitive import Primitive
from .._round.round import Round, all_answered
from ..errors import LockNotAcquiredError, LockTakenError, NodeVote, QuorumUnavailableError, printable

if TYPE_CHECKING:
    from .._session.runtime import Runtime

STRAGGLERS: Final = 0.01
"""Seconds that slower nodes are given, once a round is lost, to tell how long their key will stay."""

WRONG_TYPE: Final = "WRONGTYPE"
"""The error of a node where something that is not a lock lives under the lock's key."""


@final
class Attempt:
    """A try to acquire `primitive` for `ttl` seconds; `seen` is the greatest counter that is known of."""

    def __init__(self, runtime: Runtime, primitive: Primitive, ttl: float, *, seen: int) -> None:
        self._runtime = runtime
        self._primitive = primitive
        self._ttl = ttl
        self._undone: Round | None = None
        self.owner = runtime.new_owner()  # fresh for every try, and known before the first byte (R5)
        self.asked = Round(runtime.nodes, runtime.deadlines, primitive.read_acquire)
        self.asked_at = 0.0
        self.seen = seen
        self.fence = 0
        """The fence, once there is a certificate for it (R10); 0 without fencing."""
        self._raising: Round | None = None

    async def ask(self, timeout: float) -> bool:
        """Ask all nodes; True when a majority granted, and agrees on a fence.

        Takes `timeout` seconds at most.  What ends it otherwise undoes it, too.  The caller has taken a place
        for it (`_local/admission`), which is given back with the verdict.
        """
        runtime, primitive = self._runtime, self._primitive
        runtime.attempts.add(self)
        proposed = ballot(self.seen, runtime.nodes_time_ms()) if primitive.fenced else 0
        self.asked_at = runtime.clock.now()  # before the first byte (R3)
        try:
            self.asked.ask(primitive.acquire(self.owner, self._ttl, proposed), timeout)
            await self.asked.wait(_decided)
            won = self.asked.tally.verdict is Verdict.WON
            if won and primitive.fenced:
                won = await self._certify(timeout)
        except BaseException:
            self.undo(timeout)
            raise
        finally:
            runtime.attempts.discard(self)
            runtime.admission.leave(self.asked.tally)
        return self._undone is None and won

    # -- the fence -----------------------------------------------------------------------------

    async def _certify(self, timeout: float) -> bool:
        """Find the fence that a majority stands at, or raise the nodes to one (R10)."""
        runtime = self._runtime
        agreed = self._certified()
        if not agreed:
            # Who has not answered yet is likely to agree; a round for that is saved at a small price.
            await self.asked.wait(lambda tally: not tally.pending or self._certified(), within=STRAGGLERS)
            agreed = self._certified()
        if agreed:
            runtime.counters.certified += 1
            return True
        if self._undone is None and await self._raise(timeout):
            runtime.counters.raised += 1
            return True
        runtime.counters.uncertified += 1
        return False

    def _grants(self) -> dict[int, Answer]:
        """Return the answers of the nodes that granted, but for those whose clock has jumped (R14)."""
        clocks, now = self._runtime.clocks, self._runtime.clock.now()
        return {
            node: answer
            for node, answer in enumerate(self.asked.answers)
            if answer is not None
            and answer.vote is Vote.GRANTED
            and clocks.trusted(node)
            and not clocks.ahead(node, now, answer.time)
        }

    def _certified(self) -> bool:
        fences = (answer.fence for answer in self._grants().values())
        self.fence = certified(fences, self.asked.tally.quorum) or 0
        return self.fence > 0

    async def _raise(self, timeout: float) -> bool:
        """Raise the counters to one that most can follow; True when a majority stands there then."""
        runtime, tally, grants = self._runtime, self.asked.tally, self._grants()
        left = self.asked_at + timeout - runtime.clock.now()
        if len(grants) + tally.pending < tally.quorum or not grants or left <= 0:
            return False
        fence = agreeable([(answer.fence, int(answer.time * 1000)) for answer in grants.values()])
        self.seen = max(self.seen, fence)
        known: dict[int, Answer] = {}
        for node, answer in enumerate(self.asked.answers):
            if node in grants:
                if grants[node].fence >= fence:
                    known[node] = GRANTED if grants[node].fence == fence else ABOVE_FENCE
            elif answer is not None:  # else it may well grant still: its raise is queued behind that
                known[node] = Answer(Vote.SILENT, answer.reason or "its grant does not count")
        round_ = self._raising = Round(runtime.nodes, runtime.deadlines, self._primitive.read_raise)
        round_.ask(self._primitive.raise_(self.owner, fence), left, known=known)
        await round_.wait(_decided)
        self.fence = fence if round_.tally.verdict is Verdict.WON else 0
        return self.fence > 0

    @property
    def free(self) -> list[int]:
        """The nodes that are free now that this try is undone: they granted it, or nothing is there any more.

        The latter are those whose holder went while this try was on its way.
        """
        assert self._undone is not None, "a refused try has been undone"
        return [
            node
            for node, (first, then) in enumerate(zip(self.asked.answers, self._undone.answers, strict=True))
            if first is not None
            and (
                first.vote is Vote.GRANTED
                or (first.vote is Vote.REFUSED and then is not None and then.wait == 0.0)
            )
        ]

    @property
    def crowd(self) -> int:
        """How many listen to releases of the lock, as its own releases were told; 0 when unknown (R33)."""
        assert self._undone is not None, "a refused try has been undone"
        told = (answer.reached for answer in self._undone.answers if answer is not None)
        return max(0, max(told, default=0))

    @property
    def foreign(self) -> frozenset[int]:
        """The nodes where another program's key is in the way."""
        assert self._undone is not None, "a refused try has been undone"
        answers = enumerate(self._undone.answers)
        return frozenset(node for node, answer in answers if answer is not None and answer.foreign)

    def undo(self, timeout: float) -> Round:
        """Release on every node that was asked, queued before anything is awaited; once (R5)."""
        if self._undone is None:
            self._undone = self._runtime.release(
                self._primitive,
                self.owner,
                keeps=self._ttl,
                fence=0,
                unsent=unsent_in(self.asked),
                timeout=timeout,
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
        if won and self._primitive.fenced and not self.fence:
            if self._raising is not None:
                votes = self._raising.votes()
            msg = (
                f"lock {printable(names)}: a majority granted it, but the nodes did not agree on a fence; "
                "after a loss of their memory that may take two seconds"
            )
            return QuorumUnavailableError(msg, names=names, votes=votes), False
        if won:
            msg = f"lock {printable(names)}: a majority granted it too late to be of use"
            return QuorumUnavailableError(msg, names=names, votes=votes), False
        return _refusal(names, votes, self._holder_in(undo))

    def _holder_in(self, undo: Round) -> str | None:
        """Return what the holder calls itself that a majority of the nodes names; None without such."""
        labels = Counter(
            then.found
            for first, then in zip(self.asked.answers, undo.answers, strict=True)
            if first is not None and first.vote is Vote.REFUSED and then is not None
        )
        label, count = labels.most_common(1)[0] if labels else (None, 0)
        if not isinstance(label, bytes) or count < self.asked.tally.quorum:
            return None
        text = label.decode(errors="replace")
        return text if text.isprintable() else ascii(text)[1:-1]

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
                self._runtime.report_eternal(self._primitive.names, self._primitive.keys, vote.node)
                return


def unsent_in(asked: Round) -> list[int]:
    """Return the nodes that were provably never sent the command of `asked`."""
    return [node for node, answer in enumerate(asked.answers) if answer is not None and not answer.sent]


def _decided(tally: Tally) -> bool:
    return tally.verdict is not Verdict.PENDING


def _refusal(
    names: tuple[str, ...], votes: tuple[NodeVote, ...], holder: str | None
) -> tuple[LockNotAcquiredError, bool]:
    """Tell contention from fault, with every node's answer and the time to try again."""
    tally = Tally(len(votes))
    for vote in votes:
        tally.cast(vote.vote)
    quorum = tally.quorum
    if tally.answered < quorum:
        wrong = sum(WRONG_TYPE in vote.reason for vote in votes)  # old servers wrap the errors of scripts
        answered = f"{tally.answered} of {len(votes)} nodes voted, {quorum} are needed"
        msg = f"lock {printable(names)}: {answered}"
        return QuorumUnavailableError(msg, names=names, votes=votes), wrong > len(votes) - quorum
    waits = [0.0 if v.vote is Vote.GRANTED else v.retry_after for v in votes if v.vote is not Vote.SILENT]
    msg = f"lock {printable(names)} is held by {holder or 'another client'}"
    wait = free_after(waits, quorum)
    return LockTakenError(msg, names=names, votes=votes, retry_after=wait, holder=holder), False


def _with_wait(vote: NodeVote, undo: Answer | None) -> NodeVote:
    """Add to a refusal what the release that followed it found under the key."""
    if vote.vote is not Vote.REFUSED or undo is None:
        return vote
    if undo.vote is Vote.SILENT:
        if undo.reason.startswith(WRONG_TYPE):
            return NodeVote(vote.node, Vote.SILENT, undo.reason)
        return vote
    return NodeVote(vote.node, vote.vote, vote.reason, undo.wait)
