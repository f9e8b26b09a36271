"""A round: one question to all nodes at once, one tally, one time limit (rules R1 and R4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from .._core.command import GRANTED, Answer, Command, Reply, Silence
from .._core.quorum import Tally, Verdict, Vote
from .._kinds.primitive import Primitive
from .._node import Node
from ..errors import NodeVote
from .deadlines import Deadlines
from .futures import wait_for

Decided: TypeAlias = Callable[[Tally], bool]
"""Whether a tally is all that a waiter needs to know: what `Round.wait` waits for."""

NOTHING_KNOWN: Final[Mapping[int, Answer]] = {}

NO_REPLY: Final = Silence("no answer yet")
"""Stands for the reply that has not come."""


def verdict_known(tally: Tally) -> bool:
    """Whether the round is won or lost."""
    return tally.verdict is not Verdict.PENDING


def all_answered(tally: Tally) -> bool:
    """Whether every node has answered, or was counted as silent: for reports."""
    return tally.pending == 0


def majority_answered(tally: Tally) -> bool:
    """Whether a majority has answered, or no further node will."""
    return tally.answered >= tally.quorum or tally.pending == 0


def keep(reply: Reply) -> Answer:
    """Take any reply for an answer that counts, and keep it."""
    if isinstance(reply, Silence):
        return Answer(Vote.SILENT, reply.reason)
    return Answer(Vote.GRANTED, found=reply)


class Asks(Protocol):
    """What a round is asked through: the outbox."""

    nodes: Sequence[Node]
    size: int
    quorum: int
    node_timeout: float
    deadlines: Deadlines
    loop: asyncio.AbstractEventLoop

    def drain(self) -> None:
        """Give the nodes what waits to be asked."""


class Round(Tally):
    """One question, asked of all nodes; `read` turns a reply into an answer.

    `on_answer` is shown every answer, also one that comes after the time was up.

    A waiter leaves as soon as the tally tells it enough; the round itself goes on until every node
    has answered or its time is up.  A reply that comes later counts for nothing; only a round that `learns`,
    a release, has it in its `answers` from then on.
    """

    # Of the class, as long as they are what nearly every round keeps.
    _on_answer: Callable[[int, Answer], None] | None = None
    _alarm: asyncio.Future[bool] | None = None
    _alarmed_by: Decided | None = None
    _waiting: Sequence[tuple[Decided, asyncio.Future[bool]]] = ()
    _then: tuple[Decided, Callable[[], None]] | None = None
    _timeout = 0.0  # seconds; 0: a node_timeout
    learns = False
    unsent: Sequence[int] = ()
    """The nodes that were provably never sent the command."""
    read: Callable[[Reply], Answer]
    stragglers = True
    """Whether nodes may have granted that stand at another fence than the lease's (R10)."""

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
        """Do what `Tally` does, without working out each time how many are a majority."""
        self._outbox = outbox
        self.size = self.pending = size = outbox.size
        self.quorum = outbox.quorum
        self.granted = 0
        self.answers: list[Answer | None] = [None] * size

    def ask(self, command: Command, timeout: float, *, known: Mapping[int, Answer] = NOTHING_KNOWN) -> None:
        """Put `command` in every node's queue in this turn of the loop; no node is waited for.

        Nodes whose answer is `known` are not asked.
        """
        outbox = self._outbox
        outbox.drain()  # what was asked before this one comes before it
        for node, answer in known.items():
            self.answers[node] = answer
            self.cast(answer.vote)
        for index, node_ in enumerate(outbox.nodes):
            if index not in known:
                node_.submit(command, self, index)
        if self.pending:
            self.limit(timeout)

    def limit(self, timeout: float) -> None:
        """Give the nodes `timeout` seconds, from the end of this turn of the loop."""
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
        """Take a node's answer, and let every waiter go that knows enough now."""
        if self._on_answer is not None:
            self._on_answer(node, answer)
        if self.answers[node] is not None:  # it was counted as silent when the time was up, and stays so
            if self.learns and answer.vote is not Vote.SILENT:
                self.answers[node] = answer
            return
        self.answers[node] = answer
        if not answer.sent:
            self.unsent = (*self.unsent, node)
        self.cast(answer.vote)
        self.tell()

    def tell(self) -> None:
        """Let every waiter go that knows enough."""
        if (alarm := self._alarm) is not None and not alarm.done():
            assert self._alarmed_by is not None, "set with it"
            if self._alarmed_by(self):
                alarm.set_result(True)
        for decided, future in self._waiting:
            if not future.done() and decided(self):
                future.set_result(True)
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
            if answer is None:
                self.on_reply(node, silence)

    # -- waiting -------------------------------------------------------------------------------

    def then(self, decided: Decided, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as `decided`: now, or while a reply is taken.  One per round."""
        assert self._then is None, "one per round"
        if decided(self):
            callback()
        else:
            self._then = (decided, callback)

    def alarm(self, decided: Decided) -> asyncio.Future[bool]:
        """Return what is set as soon as `decided`, for the one task that nearly every round has.

        Only for what a quorum of grants decides, and no fewer unless another node has not granted; and for
        what is not decided already.
        """
        assert self._alarm is None, "one task"
        self._alarmed_by = decided
        self._alarm = future = self._outbox.loop.create_future()
        return future

    async def wait(self, decided: Decided, *, within: float | None = None) -> None:
        """Wait until `decided`, at the latest until the round's time is up, at most `within` seconds."""
        if decided(self):
            return
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter = (decided, future)
        self._waiting = (*self._waiting, waiter)
        try:
            if within is None:  # the round's own time limit ends it
                await future
            else:
                await wait_for(future, within)
        finally:
            self._waiting = tuple(each for each in self._waiting if each is not waiter)

    def won(self, primitive: Primitive) -> Primitive:
        """Return what was won of what it asked for."""
        return primitive

    def thin_out(self) -> None:
        """Keep of the grants the votes alone: what came with them has been used, and takes memory."""
        self._alarm = None
        answers = self.answers
        for node, answer in enumerate(answers):
            if answer is not None and answer.vote is Vote.GRANTED:
                answers[node] = GRANTED

    def votes(self) -> tuple[NodeVote, ...]:
        """Return what each node said so far, in the order of the nodes."""
        silent = self.read(NO_REPLY)
        return tuple(
            NodeVote(node.name, answer.vote, answer.reason, answer.wait)
            for node, answer in zip(self._outbox.nodes, (b or silent for b in self.answers), strict=True)
        )


def grant_all(rounds: Sequence[Round], node: int, answer: Answer) -> None:
    """Take a node's grants that say nothing else: what `Round.take` comes to in nearly all cases."""
    for round_ in rounds:
        answers = round_.answers
        if answers[node] is not None:  # it was counted as silent
            round_.take(node, answer)
            continue
        answers[node] = answer
        round_.pending -= 1
        round_.granted = granted = round_.granted + 1
        if granted == round_.quorum:
            round_.verdict = Verdict.WON
            alarm = round_._alarm  # noqa: SLF001 (it is a method of many rounds)
            if alarm is not None and not alarm.done():  # it is for what a quorum of grants decides
                alarm.set_result(True)
        others = granted + round_.pending < round_.size  # then fewer grants may decide it
        if others or round_._waiting or round_._then is not None:  # noqa: SLF001
            round_.tell()
