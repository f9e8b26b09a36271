"""The outbox: operations of one turn of the event loop leave for all nodes together at its end (R1, R42).

Most operations concern one lock and send the same bytes to every node.  They wait here until the turn ends;
then they are grouped into batches, and each node gets all batches in one write.  An operation leaves at once
where nothing else is under way, as in a program that acquires one lock after the other.

The order in which tasks asked within the turn does not matter, with one exception: a released lock is free
for the next task of this process that asks for it, and nothing follows the release of an owner (R6).  So
extensions leave first, then releases, then acquires.  The undo of an attempt that is still waiting here calls
`drain` first, so that the attempt leaves before its undo.

Commands that do not pass through the outbox call `drain` first, too.  A node that cannot take batches at the
moment gets a command for each lock: it is not up, or its ledger has acquires that may still be executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator, Sequence
from typing import Final, NamedTuple, final

from .._core.command import Answer, Command
from .._core.quorum import Vote, majority
from .._node.link import flusher
from .._node.redis_node import Node
from .batch import Asked, Batch, Extensions, FencedAcquires, PlainAcquires, Releases
from .deadlines import Deadlines
from .round import Round, take

CALM: Final = 8
"""Rounds in a row that found the one before them decided, before the next one is sent at once."""

NOT_HELD: Final = Answer(Vote.REFUSED, "was not held", wait=0.0)
"""Stands for a node's answer to a release whose acquire it was never sent."""

_ORDER: Final[tuple[type[Batch], ...]] = (Extensions, Releases, FencedAcquires, PlainAcquires)
"""Extensions first: an extension and the release of its owner may both wait, and nothing may follow the
release (R6).  Releases before acquires: task A releases "x" and task B acquires "x" in the same turn.  B
finds it free, in whichever order the two tasks ran."""


class TickContext(NamedTuple):
    """The values that all acquires of one turn of the event loop share."""

    asked_at: float
    """The manager's clock, read before the first acquire of the turn was queued here (R3)."""
    ballot: int
    """The fence that the acquires propose (R10)."""
    owner_ends: bytes
    """The end of every owner value, behind its random part."""


@final
class Outbox:
    """Sends the rounds of one manager to its nodes."""

    def __init__(self, nodes: Sequence[Node], deadlines: Deadlines, node_timeout: float) -> None:
        self.nodes = nodes
        self.size = len(nodes)
        self.quorum = majority(len(nodes))
        self.deadlines = deadlines
        self.node_timeout = node_timeout
        self.loop = asyncio.get_running_loop()
        self._flusher = flusher(self.loop)
        # What waits for the end of the turn, in the order in which it leaves.
        self._waiting: dict[type[Batch], list[Asked]] = {each: [] for each in _ORDER}
        # The latest round, and how many in a row have found the one before them decided.
        self._latest: Round | None = None
        self._calm = 0
        self._sending = False
        self.tick: TickContext | None = None
        """The values read for an acquire that waits here; later acquires of the turn use them again."""
        self._scheduled = False

    # -- sent at once, or queued for the end of this turn --------------------------------------

    def ask(
        self, round_: Asked, timeout: float, tick: TickContext | None = None, *, waits: bool = False
    ) -> None:
        """Send a round, at the latest at the end of this turn of the event loop.

        The nodes have `timeout` seconds to answer, at most a `node_timeout`.  `tick` has the values that were
        read for an acquire.  One that `waits` leaves at the end: others that go with it may still come.
        """
        # The time of its batch is a `node_timeout`: its caller has less left.
        if timeout < self.node_timeout:
            round_.limit(timeout)
        if not waits and self._is_calm(round_):
            try:
                self._send((round_.batch((round_,)),))
            except Exception as error:  # noqa: BLE001 (a hook for silent nodes: no business of the caller's)
                what = {"message": "sending to the nodes failed", "exception": error}
                self.loop.call_exception_handler(what)
            return
        if tick is not None:
            self.tick = tick
        self._waiting[round_.batch].append(round_)
        self._schedule()

    def submit(self, round_: Round, command: Command, known: Container[int]) -> None:
        """Give a round's own command to all nodes but the `known` ones; it leaves with what waits here.

        What other rounds have queued in this turn comes first: an undo must not overtake its acquire.
        """
        self.drain()
        at_once = self._is_calm(round_) and self._flusher.hold()
        try:
            for index, node in enumerate(self.nodes):
                if index not in known:
                    node.submit(command, round_, index)
        finally:
            if at_once:
                self._flusher.flush(self.loop)

    def _is_calm(self, round_: Round) -> bool:
        """Whether no other round is likely to leave in the same turn (R42)."""
        before, self._latest = self._latest, round_
        # The one before is still undecided: there are several tasks, whose rounds are better sent together.
        if before is not None and before.pending and before.granted < before.quorum:
            self._calm = 0
            return False
        # Not for long: one task alone, whose rounds come one after the other, soon shows.
        if self._calm < CALM:
            self._calm += 1
            return False
        # Others wait for the end of this turn, or are being sent, and it must not overtake them.
        return not (self._scheduled or self._sending)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._flusher.soon(self.flush, self.loop)

    # -- leaving -------------------------------------------------------------------------------

    def drain(self) -> None:
        """Give the nodes everything that waits here, so that the caller's next command comes behind it."""
        # Acquires after this point have to read the clock again: their first byte leaves later (R3).
        self.tick = None
        # The lists are emptied before the first node is called.  Code that runs during the writes may queue
        # further rounds: these wait for the next drain, and no round is sent twice.
        if batches := self._batches():
            self._send(batches)

    def _send(self, batches: Sequence[Batch]) -> None:
        """Give batches to all nodes, and begin the time for their answers."""
        replies = 0
        for batch in batches:
            replies += batch.replies
        # The usual case: every node takes the batches.  Example of the other one: of five nodes, node 3 has
        # just reconnected and its ledger has an acquire that may still be executed.  Nodes 0 to 2 and 4 get
        # the batches, and node 3 gets a command for each lock.
        alone: tuple[int, ...] = ()
        self._sending = True
        try:
            for index, node in enumerate(self.nodes):
                if not node.post(batches, replies, index):
                    alone = (*alone, index)
            if alone:
                self._ask_one_by_one(
                    iter([(i, each, one) for i in alone for each in batches for one in each.rounds])
                )
        finally:
            self._sending = False
            for batch in batches:
                self.deadlines.begin(batch, self.node_timeout)

    def _batches(self) -> list[Batch]:
        """Take what waits here, in batches: one script for each group of rounds, or several."""
        batches: list[Batch] = []
        for make, rounds in self._waiting.items():
            # Example: 40 acquires, of them 35 with a ttl of 10 s and 5 with 30 s: batches of 32, 3 and 5.
            groups: dict[object, list[Asked]] = {}
            for round_ in rounds:
                groups.setdefault(make.terms(round_), []).append(round_)
            for group in groups.values():
                batches += [make(group[at : at + make.most]) for at in range(0, len(group), make.most)]
            rounds.clear()
        return batches

    def _ask_one_by_one(self, questions: Iterator[tuple[int, Batch, Asked]]) -> None:
        try:
            for index, batch, round_ in questions:
                # A release whose acquire this node was provably never sent: there is nothing to delete.
                if index in round_.unsent:
                    take((round_,), index, NOT_HELD)
                # The usual case: a command for this lock alone, with its own place in the node's ledger.
                else:
                    self.nodes[index].submit(batch.command(round_), round_, index)
        except BaseException:
            # A hook for silent nodes has failed.  The iterator continues behind the question that failed, so
            # that the other nodes and locks are asked all the same.
            self._ask_one_by_one(questions)
            raise

    def flush(self) -> None:
        """Send what waits here; called at the end of the turn."""
        self._scheduled = False
        self.drain()

    def for_node(self, node: Node) -> Outbox:
        """Return an outbox for one node, for operations that concern no other node."""
        return Outbox((node,), self.deadlines, self.node_timeout)
