"""A round: one command to all nodes at once, one tally of the answers, one time limit (rules R1 and R4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, final

from .._core.clock_watch import ClockWatch
from .._core.command import GRANTED, Answer, Command, Reply, Silence
from .._core.quorum import PENDING, WON, Tally, Verdict, Vote
from .._core.slots import ANY, most_granted
from .._kinds.primitive import Primitive
from .._node.redis_node import Node
from ..errors import NodeVote
from .deadlines import Deadlines, wait_for

Decided: TypeAlias = Callable[[Tally], bool]
"""The condition that `Round.wait` waits for: whether a tally tells the waiting task enough."""

NOTHING_KNOWN: Final[Mapping[int, Answer]] = {}

NO_REPLY: Final = Silence("no answer yet")
"""Stands for a reply that is still missing."""

ORPHANED: Final = Answer(Vote.REFUSED, "granted another slot, which is released again")
"""Replaces the grant of another slot than the one that was won."""


def verdict_known(tally: Tally) -> bool:
    """Whether the round is won or lost."""
    return tally.verdict is not PENDING


def all_answered(tally: Tally) -> bool:
    """Whether every node has answered or was counted as silent; used for reports."""
    return tally.pending == 0


def majority_answered(tally: Tally) -> bool:
    """Whether a majority has answered, or no more answers can come."""
    return tally.granted + tally.refused >= tally.quorum or tally.pending == 0


def keep(reply: Reply) -> Answer:
    """Count any reply as a granted vote, and keep the reply itself in `Answer.found`."""
    if isinstance(reply, Silence):
        return Answer(Vote.SILENT, reply.reason)
    return Answer(Vote.GRANTED, found=reply)


class Asks(Protocol):
    """The part of an outbox that its rounds use."""

    nodes: Sequence[Node]
    size: int
    quorum: int
    node_timeout: float
    deadlines: Deadlines
    loop: asyncio.AbstractEventLoop
    clocks: ClockWatch
    now: Callable[[], float]

    def submit(self, round_: Round, command: Command, known: Container[int]) -> None:
        """Give a command to all nodes but the `known` ones."""


class Round(Tally):
    """One command to all nodes; `read` turns a reply into an answer.

    `on_answer` is called with every answer, including late ones.

    A waiting task continues as soon as the tally tells it enough; the round itself goes on until every node
    has answered or its time is up.  A later reply does not count.  A round that `learns`, a release, still
    stores it in `answers`.
    """

    # Defaults on the class: most rounds never set these, which saves their memory and time.
    _on_answer: Callable[[int, Answer], None] | None = None
    _alarm: asyncio.Future[bool] | None = None
    _alarmed_by: Decided | None = None
    _waiting: Sequence[tuple[Decided, asyncio.Future[bool]]] = ()
    _then: tuple[Decided, Callable[[], None]] | None = None
    _timeout = 0.0  # seconds; 0: a node_timeout
    learns = False
    """Whether `answers` takes up replies that come after the time was up."""
    unsent: Sequence[int] = ()
    """The nodes that were provably never sent the command."""
    read: Callable[[Reply], Answer]
    fences_may_differ = True
    """Whether a node may have granted at another fence than the lease's (R10)."""

    def __init__(
        self,
        outbox: Asks,
        read: Callable[[Reply], Answer],
        on_answer: Callable[[int, Answer], None] | None = None,
    ) -> None:
        self.read = read
        if on_answer is not None:
            self._on_answer = on_answer
        self._begin(outbox)

    def _begin(self, outbox: Asks) -> None:
        """Initialize as `Tally` does, but take the size of a majority from the outbox."""
        self._outbox = outbox
        self.size = self.pending = size = outbox.size
        self.quorum = outbox.quorum
        self.answers: list[Answer | None] = [None] * size

    def ask(self, command: Command, timeout: float, *, known: Mapping[int, Answer] = NOTHING_KNOWN) -> None:
        """Queue `command` for every node in this turn of the event loop, without waiting for any node.

        Nodes whose answer is `known` are not asked.
        """
        # Known answers are counted before the first question: a node that answers at once, with silence
        # because it is down, say, then meets a tally that is complete so far.
        for node, answer in known.items():
            self.answers[node] = answer
            self.cast(answer.vote)
        self._outbox.submit(self, command, known)
        # Nothing is pending when every answer was known, or every node failed at once: no time limit then.
        if self.pending:
            self.limit(timeout)

    def limit(self, timeout: float) -> None:
        """Give the nodes `timeout` seconds, from the end of this turn of the event loop."""
        self._timeout = timeout
        self._outbox.deadlines.watch(self, timeout)

    # -- answers -------------------------------------------------------------------------------

    @property
    def awaited(self) -> bool:
        """Whether a task waits for the outcome."""
        return bool(self._waiting) or self._then is not None or self._alarm is not None

    def on_reply(self, node: int, reply: Reply) -> None:
        """Take a node's reply."""
        self.take(node, self.read(reply))

    def take(self, node: int, answer: Answer) -> None:
        """Take a node's answer, and wake every waiting task for which the tally is decided now."""
        # Before the check for late answers: an extension also learns from a late one.
        if self._on_answer is not None:
            self._on_answer(node, answer)
        # Late: the time was up, and the node was counted as silent.  The vote stays what it was, for a
        # verdict may rest on it.  A release stores the answer all the same: the node did delete the key.
        if self.answers[node] is not None:
            if self.learns and answer.vote is not Vote.SILENT:
                self.answers[node] = answer
            return
        # In time, the usual case: one vote of each node.
        self.answers[node] = answer
        # The node was down, say, and the command provably never left this process: its release need not
        # go there either.
        if not answer.sent:
            self.unsent = (*self.unsent, node)
        self.cast(answer.vote)
        self.tell()

    def tell(self) -> None:
        """Wake every waiting task for which the tally is decided now."""
        # The task that acquires: nearly every round has this one waiter and no other.
        if (alarm := self._alarm) is not None and not alarm.done():
            assert self._alarmed_by is not None, "set with it"
            if self._alarmed_by(self):
                alarm.set_result(True)
        # Further tasks, each with its own condition.  Example: of five nodes three have released.  A task
        # that waits for a majority continues, and one that waits for all answers does not.
        for decided, future in self._waiting:
            if not future.done() and decided(self):
                future.set_result(True)
        # Taken out before it is called: the callback may have a reply taken, which comes back here.
        if self._then is not None and self._then[0](self):
            callback, self._then = self._then[1], None
            callback()

    @property
    def done(self) -> bool:
        """Whether every node has answered, or was counted as silent."""
        return not self.pending

    def time_out(self) -> None:
        """Count every node that has not answered as silent: silence is an answer (R1)."""
        silence = Silence(f"no answer within {self._timeout or self._outbox.node_timeout:.3g} s")
        for node, answer in enumerate(self.answers):
            # Through `on_reply`, as if the node had said so: `read` and `on_answer` see silence, too.
            if answer is None:
                self.on_reply(node, silence)

    # -- waiting -------------------------------------------------------------------------------

    def then(self, decided: Decided, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as `decided`: now, or while a reply is taken.  One per round."""
        assert self._then is None, "one per round"
        # Decided already, by known answers or by nodes that are down.
        if decided(self):
            callback()
        else:
            self._then = (decided, callback)

    def alarm(self, decided: Decided) -> asyncio.Future[bool]:
        """Return a future that is set as soon as `decided`, for the one task that waits for most rounds.

        The condition must still be undecided, and it must become true with a quorum of grants.  With fewer
        grants it may become true only after another node has not granted: `grant` relies on that.
        """
        assert self._alarm is None, "one task"
        self._alarmed_by = decided
        self._alarm = future = self._outbox.loop.create_future()
        return future

    async def wait(self, decided: Decided, *, within: float | None = None) -> None:
        """Wait until `decided`, at the latest until the round's time is up, at most `within` seconds."""
        # Decided already: the calling task continues without a turn of the event loop.
        if decided(self):
            return
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter = (decided, future)
        # A new tuple, for `tell` may be iterating over the old one.
        self._waiting = (*self._waiting, waiter)
        try:
            # No timer: the round's own time limit counts missing answers as silence, which decides it.
            if within is None:
                await future
            else:
                await wait_for(future, within)
        finally:
            # Also after a cancellation: a round must not keep the future of a task that has gone.
            self._waiting = tuple(each for each in self._waiting if each is not waiter)

    def won(self, primitive: Primitive) -> Primitive:
        """Return the primitive that was won: of a semaphore, with the slot."""
        return primitive

    def thin_out(self) -> None:
        """Keep only the votes of grants: their fences and times have been used, and take memory."""
        self._alarm = None
        answers = self.answers
        for node, answer in enumerate(answers):
            # Refusals and silences keep their reasons: hooks and errors report them.
            if answer is not None and answer.vote is Vote.GRANTED:
                answers[node] = GRANTED

    def votes(self) -> tuple[NodeVote, ...]:
        """Return what each node has said so far, in the order of the nodes."""
        silent = self.read(NO_REPLY)
        return tuple(
            NodeVote(node.name, answer.vote, answer.reason, answer.wait)
            for node, answer in zip(self._outbox.nodes, (b or silent for b in self.answers), strict=True)
        )


def grant(rounds: Sequence[Round], node: int, answer: Answer) -> None:
    """Take a node's grant in each of these rounds: `Round.take`, inlined for the most frequent answer."""
    for round_ in rounds:
        answers = round_.answers
        # Late: the node was counted as silent.  `take` knows what to do with that.
        if answers[node] is not None:
            round_.take(node, answer)
            continue
        # What `Tally.cast` does for a grant.  `on_answer` learns nothing from one.
        answers[node] = answer
        round_.pending = pending = round_.pending - 1
        round_.granted = granted = round_.granted + 1
        # Exactly the quorum: the verdict changes with this grant, and with no later one.
        if granted == round_.quorum:
            round_.verdict = WON
            alarm = round_._alarm  # noqa: SLF001 (a method of many rounds)
            # No need to evaluate its condition: `alarm` accepts only conditions that a quorum of grants
            # makes true.
            if alarm is not None and not alarm.done():
                alarm.set_result(True)
        # The usual case: all answers so far are grants, and the alarm is the only waiter.  Otherwise fewer
        # grants than a quorum may decide a condition.  Example: of five nodes the first has refused.  The
        # second grant is the third answer, and `majority_answered` becomes true.
        if granted + pending < round_.size or round_._waiting or round_._then is not None:  # noqa: SLF001
            round_.tell()


# -- rounds that acquire -----------------------------------------------------------------------------


class Granting(Round):
    """A round that acquires, in a batch or as a command of its own."""

    fence = 0
    """The fence of the win, once there is a certificate for it; of a batched acquire only where it is not the
    proposed one."""
    # The value of `fences_may_differ` from the moment at which `thin_out` has removed the fences.
    _fences_differed: bool | None = None

    def _differs_from(self, fence: int) -> bool:
        """Whether a node granted at another fence."""
        return any(a is not None and a.vote is Vote.GRANTED and a.fence != fence for a in self.answers)

    def thin_out(self) -> None:
        """As in `Round`."""
        # Before the fences go: the release still has to know whether to raise a counter (R10).
        self._fences_differed = self.fences_may_differ
        super().thin_out()


class GrantRound(Granting):
    """The acquire of a lock that is not batched."""

    @property
    def fences_may_differ(self) -> bool:  # type: ignore[override]
        """As in `AcquireRound`."""
        return self._differs_from(self.fence) if self._fences_differed is None else self._fences_differed


def grant_round(outbox: Asks, primitive: Primitive) -> GrantRound:
    """Return a round that acquires a lock without a batch."""
    return (SlotRound if primitive.kind.no_slot else GrantRound)(outbox, primitive.read_acquire)


@final
class SlotRound(GrantRound):
    """The acquire of a semaphore's permit, with a tally for each slot (R24, R25).

    WON with Q grants of one slot, LOST as soon as no slot can reach Q.  `granted` counts the grants of the
    slot that most nodes granted; grants of other slots count as refusals.
    """

    slot = ANY
    """The slot that was won, after the win."""
    _give_back: Callable[[list[int]], object] | None = None

    def take(self, node: int, answer: Answer) -> None:
        """Take a node's answer; one that comes after the win may still grant another slot."""
        orphaned = self.verdict is WON and answer.vote is Vote.GRANTED and answer.slot != self.slot
        super().take(node, ORPHANED if orphaned else answer)
        # The holding exists already, and learns at once of a slot that it has to release there.  Before
        # that, `settle` finds the orphaned slot among the answers.
        if orphaned and self._give_back is not None:
            self._give_back([node])

    def cast(self, vote: Vote) -> Verdict:
        """Count the vote that was just stored in `answers`."""
        self.pending -= 1
        # Example: of five nodes two have granted slot 0 to this call, two slot 1, and one has not answered.
        # That is two granted, two refused, one pending, and either slot may still win.
        granted = [a.slot for a in self.answers if a is not None and a.vote is Vote.GRANTED]
        slot, self.granted = most_granted(granted)
        self.silent += vote is Vote.SILENT
        # Not counted one by one: when another slot takes the lead, grants become refusals.
        self.refused = self.size - self.pending - self.silent - self.granted
        # The verdict stands; only the numbers change.
        if self.verdict is not PENDING:
            return self.verdict
        # Won: grants of other slots are worth nothing now, and go back once there is a holding.
        if self.granted == self.quorum:
            self.verdict, self.slot = WON, slot
            self.answers = [ORPHANED if self._is_orphaned(answer) else answer for answer in self.answers]
        # Lost: even if all missing answers are for the leading slot, it falls short.
        elif self.granted + self.pending < self.quorum:
            self.verdict = Verdict.LOST
        return self.verdict

    def _is_orphaned(self, answer: Answer | None) -> bool:
        return answer is not None and answer.vote is Vote.GRANTED and answer.slot != self.slot

    def won(self, primitive: Primitive) -> Primitive:
        """Return the primitive at the slot that was won."""
        return primitive if self.slot == ANY else primitive.at(self.slot)

    def settle(self, give_back: Callable[[list[int]], object]) -> None:
        """Call `give_back` with the nodes that granted another slot than the one that was won.

        Called at once, and again for each such node that answers later.
        """
        # Set first: a late answer during the call below is given back by `take`.
        self._give_back = give_back
        give_back([node for node, answer in enumerate(self.answers) if answer is ORPHANED])
