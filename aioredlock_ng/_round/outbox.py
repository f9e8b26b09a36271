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
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from contextvars import Context
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeVar, final, runtime_checkable

from .._core.clock_watch import ClockWatch
from .._core.command import Answer, Command
from .._core.quorum import Vote, majority
from .._node.link import flusher
from .._node.pipe import Parcel, takes_none
from .._node.redis_node import Node
from .batch import (
    MAX_BATCH,
    AcquireRound,
    Asked,
    Batch,
    ExtendRound,
    Extensions,
    FencedAcquires,
    PlainAcquires,
    ReleaseRound,
    Releases,
)
from .deadlines import Deadlines
from .round import Round

CALM: Final = 8
"""Rounds in a row that found the one before them decided, before the next one is sent at once."""

NOT_HELD: Final = Answer(Vote.REFUSED, "was not held", wait=0.0)
"""Stands for a node's answer to a release whose acquire it was never sent."""


@runtime_checkable
class TakesBatches(Protocol):
    """A node that can take batches."""

    post: Callable[[Sequence[Parcel], int, int], bool]
    """Sends all batches to this node; False when it cannot take them: nothing was sent.

    Called with the batches, with the number of replies to all of them, and with the number of the node.  The
    node may change it at any time.
    """


@final
class TakesNone:
    """Stands for a node that cannot take batches."""

    def __init__(self) -> None:
        self.post: Callable[[Sequence[Parcel], int, int], bool] = takes_none


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

    def __init__(
        self,
        nodes: Sequence[Node],
        deadlines: Deadlines,
        node_timeout: float,
        clocks: ClockWatch,
        now: Callable[[], float],
    ) -> None:
        self.nodes = nodes
        self.size = len(nodes)
        self.quorum = majority(len(nodes))
        self.deadlines = deadlines
        self.node_timeout = node_timeout
        self.loop = asyncio.get_running_loop()
        self.clocks = clocks
        self.now = now
        self._takers = [node if isinstance(node, TakesBatches) else TakesNone() for node in nodes]
        self._flusher = flusher(self.loop)
        self._extensions: list[ExtendRound] = []
        self._releases: list[ReleaseRound] = []
        self._acquires: list[AcquireRound] = []
        # The latest round, and how many in a row have found the one before them decided.
        self._latest: Round | None = None
        self._calm = 0
        self._sending = False
        self.tick: TickContext | None = None
        """The values read for an acquire that waits here; later acquires of the turn use them again."""
        self._scheduled = False
        # Batches with a running time limit, and the moment it ends, by the event loop's clock.
        self._under_way: deque[tuple[float, Asked | Batch]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    # -- sent at once, or queued for the end of this turn --------------------------------------

    def extend(self, round_: ExtendRound) -> None:
        """Send an extension at the end of this turn of the event loop."""
        self._extensions.append(round_)
        self._schedule()

    def ask(self, round_: AcquireRound | ReleaseRound, tick: TickContext | None = None) -> None:
        """Send an acquire or a release, at the latest at the end of this turn of the event loop.

        `tick` has the values that were read for an acquire.
        """
        # Behind a quiet release, a task of this process asks for the name in the same write.
        if not round_.quiet and self._is_calm(round_):
            try:
                self._send((round_.parcel(),))
            except Exception as error:  # noqa: BLE001 (a hook for silent nodes: no business of the caller's)
                what = {"message": "sending to the nodes failed", "exception": error}
                self.loop.call_exception_handler(what)
            return
        if type(round_) is ReleaseRound:
            self._releases.append(round_)
        else:
            self.tick = tick
            self._acquires.append(round_)
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
        # Nothing waits: a command that does not go through the outbox has called, in a turn without batches.
        if self._acquires or self._releases or self._extensions:
            # The lists are emptied before the first node is called.  Code that runs during the writes may
            # queue further rounds: these wait for the next drain, and no round is sent twice.
            self._send(self._batches())

    def _send(self, batches: Sequence[Asked | Batch]) -> None:
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
            for index, node in enumerate(self._takers):
                if not node.post(batches, replies, index):
                    alone = (*alone, index)
            if alone:
                self._ask_one_by_one(
                    iter([(i, one) for i in alone for each in batches for one in each.rounds])
                )
        finally:
            self._sending = False
            # Forget batches at the head that every node has answered: nearly all are done by the next turn.
            under_way = self._under_way
            while under_way and not under_way[0][1].pending:
                under_way.popleft()
            # Every batch has the same limit, so appending keeps the queue sorted by the end of the limit.
            ends = self.loop.time() + self.node_timeout
            for batch in batches:
                under_way.append((ends, batch))
            # A timer that is already set rings earlier than these are due; it then sets the next one.
            if self._timer is None:
                self._timer = self.loop.call_at(under_way[0][0], self._ring, context=Context())

    def _batches(self) -> list[Asked | Batch]:
        """Take what waits here, in batches."""
        extensions, self._extensions = self._extensions, []
        releases, self._releases = self._releases, []
        acquires, self._acquires = self._acquires, []
        batches: list[Asked | Batch] = []
        # One round alone.
        if len(extensions) + len(releases) + len(acquires) == 1:
            return [one.parcel() for one in (*extensions, *releases, *acquires)]
        # Extensions first: an extension and the release of its owner may both wait here, and nothing may
        # follow the release (R6).
        if extensions:
            batches += map(Extensions, _alike(extensions, _TTL_AND_FENCED))
        # Releases before acquires: task A releases "x" and task B acquires "x" in the same turn.  B finds it
        # free, in whichever order the two tasks ran.
        if releases:
            batches += map(Releases, _alike(releases, _QUIET))
        if not acquires:
            return batches
        # All acquires of a manager have fences, or none: fencing is an option of the manager.  Without
        # fences they are plain SET commands, which share no arguments: one batch takes any number of them.
        if not acquires[0].primitive.fenced:
            batches.append(PlainAcquires(acquires))
            return batches
        # With fences: one script for each group that has the same ttl, ballot and length of fence range.
        for alike in _alike(acquires, _TTL_AND_FENCES):
            batches.append(FencedAcquires(alike, self.clocks, self.now))
        return batches

    def _ask_one_by_one(self, questions: Iterator[tuple[int, Asked]]) -> None:
        try:
            for index, round_ in questions:
                # A release whose acquire this node was provably never sent: there is nothing to delete.
                if index in round_.unsent:
                    round_.take(index, NOT_HELD)
                # The usual case: a command for this lock alone, with its own place in the node's ledger.
                else:
                    self.nodes[index].submit(round_.command, round_, index)
        except BaseException:
            # A hook for silent nodes has failed.  The iterator continues behind the question that failed, so
            # that the other nodes and locks are asked all the same.
            self._ask_one_by_one(questions)
            raise

    def flush(self) -> None:
        """Send what waits here; called at the end of the turn."""
        self._scheduled = False
        self.drain()

    def _ring(self) -> None:
        """Count late answers as silence (R1).  All batches have the same limit: the first is due first."""
        self._timer = None
        under_way, now = self._under_way, self.loop.time()
        try:
            # Two cases at the head: its time is up, or it is done and only takes up room.
            while under_way and (under_way[0][0] <= now or not under_way[0][1].pending):
                # Out of the queue first: code that hears of the silence may send, which drops done heads.
                due = under_way.popleft()
                try:
                    for round_ in due[1].rounds:
                        if round_.pending:
                            round_.time_out()
                except BaseException:
                    # The other rounds of this batch end next time.
                    under_way.appendleft(due)
                    raise
        finally:
            # Also when a time-out has raised: the remaining batches must end in time, too.
            if under_way and self._timer is None:
                self._timer = self.loop.call_at(under_way[0][0], self._ring, context=Context())

    def unanswered(self) -> list[Asked]:
        """Return the rounds that are still waiting for the answer of a node."""
        batches = [batch for _, batch in self._under_way]
        waiting = [*self._extensions, *self._releases, *self._acquires]
        return [r for r in (*waiting, *(r for batch in batches for r in batch.rounds)) if r.pending]

    def for_node(self, node: Node) -> Outbox:
        """Return an outbox for one node, for operations that concern no other node."""
        return Outbox((node,), self.deadlines, self.node_timeout, self.clocks, self.now)


AskedRound = TypeVar("AskedRound", bound=Asked)

_TTL_AND_FENCED: Final = attrgetter("ttl", "fenced")

_TTL_AND_FENCES: Final = attrgetter("ttl", "ballot", "block")

_QUIET: Final = attrgetter("quiet")


def _alike(rounds: list[AskedRound], key: Callable[[AskedRound], object]) -> list[list[AskedRound]]:
    """Group rounds that one script can ask, at most `MAX_BATCH` in a group, in their order."""
    # The usual case outside of bursts: one lock.
    if len(rounds) == 1:
        return [rounds]
    # Example: 40 acquires, of them 35 with a ttl of 10 s and 5 with 30 s, become groups of 32, 3 and 5.
    groups: dict[object, list[AskedRound]] = {}
    for round_ in rounds:
        groups.setdefault(key(round_), []).append(round_)
    return [
        alike[first : first + MAX_BATCH]
        for alike in groups.values()
        for first in range(0, len(alike), MAX_BATCH)
    ]
