"""A round: one question to all nodes at once, one tally, one time limit (rules R1 and R4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, final

from .._core.command import GRANTED, Answer, Command, Reply, Silence
from .._core.quorum import Tally, Verdict, Vote
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


@final
class Round:
    """One command, asked of all `nodes`; `read` turns a reply into an answer.

    `heed` is shown every answer, also one that comes after the time was up.

    A waiter leaves as soon as the tally tells it enough; the round itself goes on until every node
    has answered or its time is up.  A reply that comes later counts for nothing; only a round that `learns`,
    a release, has it in its `answers` from then on.
    """

    __slots__ = (
        "_deadlines",
        "_heed",
        "_nodes",
        "_read",
        "_then",
        "_timeout",
        "_waiting",
        "answers",
        "learns",
        "tally",
        "unsent",
    )

    def __init__(
        self,
        nodes: Sequence[Node],
        deadlines: Deadlines,
        read: Callable[[Reply], Answer],
        heed: Callable[[int, Answer], None] | None = None,
    ) -> None:
        self._nodes = nodes
        self._deadlines = deadlines
        self._read = read
        self._heed = heed
        self._timeout = 0.0
        self._waiting: list[tuple[Decided, asyncio.Future[bool]]] = []
        self._then: tuple[Decided, Callable[[], None]] | None = None
        self.learns = False
        self.tally = Tally(len(nodes))
        self.answers: list[Answer | None] = [None] * len(nodes)
        self.unsent: list[int] = []
        """The nodes that were provably never sent the command."""

    def ask(self, command: Command, timeout: float, *, known: Mapping[int, Answer] = NOTHING_KNOWN) -> None:
        """Put `command` in every node's queue in this turn of the loop; no node is waited for.

        Nodes whose answer is `known` are not asked.
        """
        for node, answer in known.items():
            self.answers[node] = answer
            self.tally.cast(answer.vote)
        for index, node_ in enumerate(self._nodes):
            if index not in known:
                node_.submit(command, self, index)
        if self.tally.pending:
            self._timeout = timeout
            self._deadlines.watch(self, timeout)

    @property
    def pending(self) -> bool:
        """Whether a task waits for the outcome."""
        return bool(self._waiting) or self._then is not None

    def on_reply(self, node: int, reply: Reply) -> None:
        """Take a node's reply, and let every waiter go that knows enough now."""
        answer = self._read(reply)
        if self._heed is not None:
            self._heed(node, answer)
        if self.answers[node] is not None:  # it was counted as silent when the time was up, and stays so
            if self.learns and answer.vote is not Vote.SILENT:
                self.answers[node] = answer
            return
        self.answers[node] = answer
        if not answer.sent:
            self.unsent.append(node)
        tally = self.tally
        tally.cast(answer.vote)
        for decided, future in self._waiting:
            if not future.done() and decided(tally):
                future.set_result(True)
        if self._then is not None and self._then[0](tally):
            callback, self._then = self._then[1], None
            callback()

    @property
    def over(self) -> bool:
        """Whether every node has answered, or was counted as silent."""
        return not self.tally.pending

    def time_out(self) -> None:
        """Count every node that has not answered as silent: silence is an answer (R1)."""
        silence = Silence(f"no answer within {self._timeout:.3g} s")
        for node, answer in enumerate(self.answers):
            if answer is None:
                self.on_reply(node, silence)

    def then(self, decided: Decided, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as `decided`: now, or while a reply is taken.  One per round."""
        assert self._then is None, "one per round"
        if decided(self.tally):
            callback()
        else:
            self._then = (decided, callback)

    async def wait(self, decided: Decided, *, within: float | None = None) -> None:
        """Wait until `decided`, at the latest until the round's time is up, at most `within` seconds."""
        if decided(self.tally):
            return
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter = (decided, future)
        self._waiting.append(waiter)
        try:
            if within is None:  # the round's own time limit ends it
                await future
            else:
                await wait_for(future, within)
        finally:
            self._waiting.remove(waiter)

    def thin_out(self) -> None:
        """Keep of the grants the votes alone: what came with them has been used, and takes memory."""
        answers = self.answers
        for node, answer in enumerate(answers):
            if answer is not None and answer.vote is Vote.GRANTED:
                answers[node] = GRANTED

    def votes(self) -> tuple[NodeVote, ...]:
        """Return what each node said so far, in the order of the nodes."""
        silent = self._read(NO_REPLY)
        return tuple(
            NodeVote(node.name, answer.vote, answer.reason, answer.wait)
            for node, answer in zip(self._nodes, (b or silent for b in self.answers), strict=True)
        )
