"""The outbox: what is asked of all nodes in one turn of the loop leaves together at its end (R1, R42).

Most questions are about one lock and the same bytes for every node.  They wait here until the turn is over;
then they are put into batches, and each node is given all of them in one piece.  In what order tasks asked
within the turn does not matter, but for this: a lock that is released is free for whichever task of this
process asks for it next, and nothing follows the release of an owner (R6).  So extensions leave first, then
releases, then acquires.  The undo of a try that has not left yet calls `drain` before, to come behind it.

Anything that is asked in another way calls `drain`, too.  A node that cannot take batches as it is now (it is
not up, or its ledger has acquires that may still be executed, or it is a user's own client) is asked for each
lock alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol, TypeVar, final, runtime_checkable

from .._core.clock_watch import ClockWatch
from .._core.command import Answer
from .._core.quorum import Vote, majority
from .._node import Node
from .._node.link import flusher
from .._node.parcel import Parcel
from .asked import AcquireRound, Asked, ExtendRound, ReleaseRound
from .batch import MAX_BATCH, Batch, Extensions, FencedAcquires, PlainAcquires, Releases
from .deadlines import Deadlines

NOT_HELD: Final = Answer(Vote.REFUSED, "was not held", wait=0.0)
"""What a node would answer to a release whose acquire it was never sent."""


@runtime_checkable
class TakesBatches(Protocol):
    """A node that batches can be given to."""

    def post(self, batches: Sequence[Parcel], replies: int, index: int) -> bool:
        """Send all of them, as node number `index`; False when that cannot be, and nothing was sent.

        `replies` is how many replies they have together.
        """


def _posts_nothing(_batches: Sequence[Parcel], _replies: int, _index: int) -> bool:
    return False


@final
@dataclass(slots=True)
class TickContext:
    """What the acquires of one turn of the loop have in common."""

    asked_at: float
    """On the manager's clock, read before the first of them was put here (R3)."""
    ballot: int
    """The fence that is proposed (R10)."""
    owner_ends: bytes
    """What stands behind the random part of an owner value."""


@final
class Outbox:
    """What the rounds of one manager are asked through."""

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
        self._clocks = clocks
        self._now = now
        self._posts = [n.post if isinstance(n, TakesBatches) else _posts_nothing for n in nodes]
        self._flusher = flusher(self.loop)
        self._extensions: list[ExtendRound] = []
        self._releases: list[ReleaseRound] = []
        self._acquires: list[AcquireRound] = []
        self.tick: TickContext | None = None
        """What was read for an acquire that waits here: for the next ones it need not be read again."""
        self._scheduled = False
        self._sent: list[Batch] = []  # in this turn: their time begins at its end
        self._under_way: deque[tuple[float, Batch]] = deque()  # and until when they may be answered
        self._timer: asyncio.TimerHandle | None = None

    # -- to be asked in this turn --------------------------------------------------------------

    def extend(self, round_: ExtendRound) -> None:
        """Have an extension leave in this turn of the loop."""
        self._extensions.append(round_)
        if not self._scheduled:
            self._schedule()

    def release(self, round_: ReleaseRound) -> None:
        """Have a release leave in this turn of the loop."""
        self._releases.append(round_)
        if not self._scheduled:
            self._schedule()

    def acquire(self, round_: AcquireRound, tick: TickContext) -> None:
        """Have an acquire leave in this turn of the loop; `tick` is what was read for it."""
        self.tick = tick
        self._acquires.append(round_)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._flusher.soon(self, self.loop)

    # -- leaving -------------------------------------------------------------------------------

    def drain(self) -> None:
        """Give the nodes all that waits here: what comes next comes behind it."""
        self.tick = None
        if not (self._acquires or self._releases or self._extensions):
            return
        batches, replies = self._batches(), 0
        for batch in batches:
            replies += batch.replies
        self._sent += batches
        alone = [index for index, post in enumerate(self._posts) if not post(batches, replies, index)]
        if alone:
            self._ask_one_by_one(iter([(i, one) for i in alone for each in batches for one in each.rounds]))

    def _batches(self) -> list[Batch]:
        extensions, self._extensions = self._extensions, []
        releases, self._releases = self._releases, []
        acquires, self._acquires = self._acquires, []
        batches: list[Batch] = []
        if extensions:
            batches += map(Extensions, _alike(extensions, _TTL_AND_FENCED))
        if releases:
            batches += map(Releases, _alike(releases, _QUIET))
        if not acquires:
            return batches
        if not acquires[0].primitive.fenced:
            batches.append(PlainAcquires(acquires))
            return batches
        for alike in _alike(acquires, _TTL_AND_FENCES):
            batches.append(FencedAcquires(alike, self._clocks, self._now))
        return batches

    def _ask_one_by_one(self, questions: Iterator[tuple[int, Asked]]) -> None:
        try:
            for index, round_ in questions:
                if index in round_.unsent:
                    round_.take(index, NOT_HELD)
                else:
                    self.nodes[index].submit(round_.command, round_, index)
        except BaseException:  # of a hook that hears of a silent node: the others are asked all the same
            self._ask_one_by_one(questions)
            raise

    def flush(self) -> None:
        """Send what waits here, and begin its time; called at the end of the turn.

        No node is to blame for what keeps the loop busy until then.
        """
        self._scheduled = False
        try:
            self.drain()
        finally:
            self._begin_their_time()

    def _begin_their_time(self) -> None:
        under_way = self._under_way
        while under_way and under_way[0][1].done:
            under_way.popleft()
        ends = self.loop.time() + self.node_timeout
        for batch in self._sent:
            under_way.append((ends, batch))
        self._sent.clear()
        if under_way and self._timer is None:
            self._timer = self.loop.call_at(under_way[0][0], self._ring)

    def _ring(self) -> None:
        """Count as silent what is late (R1); all have the same limit, so the first is due first."""
        self._timer = None
        under_way, now = self._under_way, self.loop.time()
        try:
            while under_way and (under_way[0][0] <= now or under_way[0][1].done):
                for round_ in under_way[0][1].rounds:
                    if not round_.done:
                        round_.time_out()
                under_way.popleft()
        finally:  # whatever that raises, the others end in time, too
            if under_way and self._timer is None:
                self._timer = self.loop.call_at(under_way[0][0], self._ring)

    def unanswered(self) -> list[Asked]:
        """Return the rounds that some node has not answered yet."""
        batches = [*(batch for _, batch in self._under_way), *self._sent]
        waiting = [*self._extensions, *self._releases, *self._acquires]
        return [r for r in (*waiting, *(r for batch in batches for r in batch.rounds)) if not r.done]

    def for_node(self, node: Node) -> Outbox:
        """Return an outbox over one node, for what concerns no other."""
        return Outbox((node,), self.deadlines, self.node_timeout, self._clocks, self._now)


AskedRound = TypeVar("AskedRound", bound=Asked)


_TTL_AND_FENCED: Final = attrgetter("ttl", "fenced")

_TTL_AND_FENCES: Final = attrgetter("ttl", "ballot", "block")

_QUIET: Final = attrgetter("quiet")


def _alike(rounds: list[AskedRound], key: Callable[[AskedRound], object]) -> list[list[AskedRound]]:
    """Part rounds into those that one script can ask, `MAX_BATCH` at most, in their order."""
    if len(rounds) == 1:
        return [rounds]
    sorts: dict[object, list[AskedRound]] = {}
    for round_ in rounds:
        sorts.setdefault(key(round_), []).append(round_)
    return [
        alike[first : first + MAX_BATCH]
        for alike in sorts.values()
        for first in range(0, len(alike), MAX_BATCH)
    ]
