"""A round: one command to all nodes at once, one tally of the answers, one time limit (rules R1 and R4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, final

from .._core.command import GRANTED, Answer, Command, Reply, Silence
from .._core.quorum import GRANT, LOST, PENDING, WON, Tally, Verdict, Vote
from .._core.slots import ANY, most_granted
from .._kinds.primitive import Primitive
from .._node.redis_node import Node
from ..errors import NodeVote
from .deadlines import Deadlines, wait_for

Decided: TypeAlias = Callable[[Tally], bool]
"""A condition to wait for: whether a tally tells the waiting task enough.

It is not evaluated while all answers are grants and fewer than a quorum."""

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
    return Answer(GRANT, found=reply)


class Asks(Protocol):
    """The part of an outbox that its rounds use."""

    nodes: Sequence[Node]
    size: int
    quorum: int
    node_timeout: float
    deadlines: Deadlines
    loop: asyncio.AbstractEventLoop

    def submit(self, round_: Round, command: Command, known: Container[int]) -> None:
        """Give a command to all nodes but the `known` ones."""


class Round(Tally):
    """One command to all nodes; `read` turns a reply into an answer.

    `on_answer` is called with every answer but grants that come in time.

    A waiting task continues as soon as the tally tells it enough; the round itself goes on until every node
    has answered or its time is up.  A later reply does not count.  A round that `learns`, a release, still
    stores it in `answers`.
    """

    _timeout = 0.0  # seconds; 0: a node_timeout
    on_answer: Callable[[int, Answer], None] | None = None
    learns = False
    """Whether `answers` takes up replies that come after the time was up."""
    unsent: Sequence[int] = ()
    """The nodes that were provably never sent the command."""

    def __init__(
        self,
        outbox: Asks,
        read: Callable[[Reply], Answer],
        on_answer: Callable[[int, Answer], None] | None = None,
    ) -> None:
        # As `Tally` does, but with the size of a majority from the outbox.
        self.size = self.pending = size = outbox.size
        self.quorum = outbox.quorum
        self.answers: list[Answer | None] = [None] * size
        self.read = read
        self._outbox = outbox
        self.on_answer = on_answer
        # Not of the class: `take` reads these for every reply, and reads them from the object in less time.
        self.granted = 0
        self.waiting: tuple[tuple[Decided, asyncio.Future[bool]], ...] = ()
        self.callback: tuple[Decided, Callable[[], None]] | None = None

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
        self._outbox.deadlines.begin_after_turn(self, timeout)

    # -- answers -------------------------------------------------------------------------------

    @property
    def awaited(self) -> bool:
        """Whether a task waits for the outcome."""
        return bool(self.waiting) or self.callback is not None

    def on_reply(self, node: int, reply: Reply) -> None:
        """Take a node's reply."""
        take((self,), node, self.read(reply))

    def counts(self, node: int, answer: Answer) -> bool:
        """Count an answer that is no grant in time; False for one that is late."""
        # Before the check for late answers: an extension also learns from a late one.
        if self.on_answer is not None:
            self.on_answer(node, answer)
        # Late: the time was up, and the node was counted as silent.  The vote stays what it was, for a
        # verdict may rest on it.  A release stores the answer all the same: the node did delete the key.
        if self.answers[node] is not None:
            if self.learns and answer.vote is not Vote.SILENT:
                self.answers[node] = answer
            return False
        self.answers[node] = answer
        # The node was down, say, and the command provably never left this process: its release need not go
        # there either.
        if not answer.sent:
            self.unsent = (*self.unsent, node)
        self.cast(answer.vote)
        return True

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
        assert self.callback is None, "one per round"
        # Decided already, by known answers or by nodes that are down.
        if decided(self):
            callback()
        else:
            self.callback = (decided, callback)

    def alarm(self, decided: Decided) -> asyncio.Future[bool]:
        """Return a future that is set as soon as `decided`, which is not the case so far.

        The round's own time limit counts missing answers as silence, which decides it at the latest.
        """
        future: asyncio.Future[bool] = self._outbox.loop.create_future()
        # A new tuple, for `take` may be iterating over the old one.
        self.waiting += ((decided, future),)
        return future

    async def wait(self, decided: Decided, *, within: float | None = None) -> None:
        """Wait until `decided`, at the latest until the round's time is up, at most `within` seconds."""
        # Decided already: the calling task continues without a turn of the event loop.
        if decided(self):
            return
        future = self.alarm(decided)
        try:
            await (future if within is None else wait_for(future, within))
        finally:
            # Also after a cancellation: a round must not keep the future of a task that has gone.
            self.waiting = tuple([each for each in self.waiting if each[1] is not future])

    def won(self, primitive: Primitive) -> Primitive:
        """Return the primitive that was won: of a semaphore, with the slot."""
        return primitive

    def differs_from(self, fence: int) -> bool:
        """Whether a node granted at another fence (R10).  An extension is granted at its own, without one."""
        for answer in self.answers:
            if answer is None or answer is GRANTED:
                continue
            if answer.fence != fence and answer.vote is GRANT:
                return True
        return False

    def thin_out(self, fence: int) -> None:
        """Keep only the votes of grants at `fence`: their times have been used, and take memory."""
        self.waiting = tuple([each for each in self.waiting if not each[1].done()])
        # Refusals and silences keep their reasons: hooks and errors report them.
        for node, answer in enumerate(self.answers):
            if answer is not None and answer.vote is GRANT and answer.fence == fence:
                self.answers[node] = GRANTED

    def votes(self) -> tuple[NodeVote, ...]:
        """Return what each node has said so far, in the order of the nodes."""
        silent = self.read(NO_REPLY)
        return tuple(
            NodeVote(node.name, answer.vote, answer.reason, answer.wait)
            for node, answer in zip(self._outbox.nodes, (b or silent for b in self.answers), strict=True)
        )


def take(rounds: Sequence[Round], node: int, answer: Answer) -> None:
    """Take a node's answer in each of these rounds, and wake the tasks for which its tally is decided now."""
    granted = answer.vote is GRANT
    for round_ in rounds:
        answers = round_.answers
        # The usual case: one vote of each node in time, and nearly every one is a grant.
        if granted and answers[node] is None:
            answers[node] = answer
            round_.pending = pending = round_.pending - 1
            round_.granted = grants = round_.granted + 1
            # All answers so far are grants, and fewer than a quorum: no condition is decided by these.
            if grants < round_.quorum and grants + pending == round_.size:
                continue
        elif not round_.counts(node, answer):
            continue
        # Each task has its own condition.  Example: of five nodes three have released.  A task that waits
        # for a majority continues, and one that waits for all answers does not.
        for decided, future in round_.waiting:
            if not future.done() and decided(round_):
                future.set_result(True)
        # Taken out before it is called: the callback may have a reply taken, which comes back here.
        if round_.callback is not None and round_.callback[0](round_):
            callback, round_.callback = round_.callback[1], None
            callback()


# -- rounds that acquire -----------------------------------------------------------------------------


@final
class SlotRound(Round):
    """The acquire of a semaphore's permit, with a tally for each slot (R24, R25).

    WON with Q grants of one slot, LOST as soon as no slot can reach Q.
    """

    slot = ANY
    """The slot that was won, after the win."""
    _give_back: Callable[[list[int]], object] | None = None

    def on_reply(self, node: int, reply: Reply) -> None:
        """Take a node's reply; one that comes after the win may still grant another slot."""
        answer, was_won = self.read(reply), self.verdict is WON
        orphaned = was_won and self._is_orphaned(answer)
        take((self,), node, ORPHANED if orphaned else answer)
        # The holding exists already, and learns at once of a slot that it has to release there.  Before
        # that, `settle` finds the orphaned slot among the answers.
        if orphaned and self._give_back is not None:
            self._give_back([node])
        # Won: grants of other slots are worth nothing now, and go back once there is a holding.
        if not was_won and self.verdict is WON:
            self.slot = self._leading[0]
            self.answers = [ORPHANED if self._is_orphaned(answer) else answer for answer in self.answers]

    @property
    def _leading(self) -> tuple[int, int]:
        """The slot that most nodes have granted, and by how many of them."""
        return most_granted([a.slot for a in self.answers if a is not None and a.vote is GRANT])

    @property
    def verdict(self) -> Verdict:
        """As in `Tally`, but of the leading slot alone.

        Example: of five nodes two have granted slot 0 to this call, two slot 1, and one has not answered:
        either slot may still win.
        """
        granted = self._leading[1]
        # Won before: `thin_out` has dropped the slots of some grants since, and the verdict stands.
        if self.slot != ANY or granted >= self.quorum:
            return WON
        return LOST if granted + self.pending < self.quorum else PENDING

    def _is_orphaned(self, answer: Answer | None) -> bool:
        return answer is not None and answer.vote is GRANT and answer.slot != self.slot

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
