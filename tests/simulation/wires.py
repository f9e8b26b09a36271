"""A bad network before masters in memory: ways that are cut, slow or lossy, and connections that break.

All that TCP promises holds: nothing inside a connection is skipped or overtaken, so what is lost comes later.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aioredlock_ng._node.handshake import Identity
from aioredlock_ng._node.link import Link
from aioredlock_ng._node.pipe import Fail
from aioredlock_ng._node.redis_node import Node
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_connection import Goodbye, Lane, MemoryConnection
from aioredlock_ng.testing.memory_node import MUTE_LOOK, MemoryEndpoint

RETRANSMISSION: Final = 0.2
"""Seconds until what was lost is sent again, and twice as many each further time: TCP's least timeout."""

MAX_LOSSES: Final = 5
"""Times that one message is lost in a row, at most."""


class WiredNode(MemoryNode):
    """A master in memory that clients reach by wires."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.wires: list[Wire] = []
        """The ways to it: first the one of those clients that have none of their own."""
        self.wire()

    def link(self) -> Node:
        """Return one manager's node over this master."""
        return self.wires[0].link()

    def wire(self) -> Wire:
        """Return a new way to this master, for a client of its own: give it to a manager as the node."""
        self.wires.append(Wire(self, seed=len(self.wires)))
        return self.wires[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Break:
    """Where a connection breaks: at the next command to come; no two of them are equal."""

    after: bool
    """Whether the node has executed that command, and the reply has not left."""


def revive(node: MemoryNode) -> None:
    """Let a node come back after a crash, with the data that it kept; nothing happens to one that runs."""
    if not node.running:
        node.restart()


class Wire:
    """The way between one master and one client; or all clients that have none of their own.

    A manager takes one in place of the node.

    Args:
        server: the master.
        seed: which messages are lost.
    """

    def __init__(self, server: WiredNode, *, seed: int) -> None:
        self.server = server
        self.network = server.network
        self.extra = 0.0
        """Seconds that every message takes longer."""
        self.loss = 0.0
        """Share of the messages that are lost on their way, and sent again."""
        self.lanes: list[WireLane] = []
        self.requests_cut = self.replies_cut = False
        self.breaks: list[Break] = []
        """One for each of the next commands that is to break its connection."""
        self._seed = seed
        self._random = random.Random(seed)

    def link(self) -> Node:
        """Return one manager's node at the other end; a manager calls it itself."""
        return Node(MemoryEndpoint(self.server, self.open))

    @property
    def is_cut(self) -> bool:
        """Whether one direction is cut: no client can connect."""
        return self.requests_cut or self.replies_cut

    async def open(self, on_failure: Fail) -> tuple[Link, Identity]:
        """Accept a connection, once the handshake is answered; behind a cut a dead server is as mute."""
        server = self.server
        while True:
            if not server.running and not self.is_cut:
                raise ConnectionRefusedError(f"{server.name} refused the connection")
            await asyncio.sleep(self.delay() + self.delay())
            if server.answers and not self.is_cut:
                return server.accept(WireConnection(self), on_failure)
            await asyncio.sleep(MUTE_LOOK)

    def cut(self, *, requests: bool = True, replies: bool = True) -> None:
        """Let nothing through any more: what is sent waits, and no client can connect."""
        self.requests_cut |= requests
        self.replies_cut |= replies

    def mend(self, *, requests: bool = True, replies: bool = True) -> None:
        """Let through what has waited, and what comes."""
        held_up = [lane for lane in self.lanes if lane.cut]
        self.requests_cut &= not requests
        self.replies_cut &= not replies
        for lane in held_up:
            if not lane.cut:
                lane.go_on()

    def lose(self, share: float, salt: str) -> None:
        """Lose a share of the messages; `salt` draws which, together with the number of the way.

        Ways to different nodes get different ones: else a round would lose all its messages, or none.
        """
        self.loss = share
        self._random = random.Random(f"{salt} {self._seed}")

    def break_before(self) -> None:
        """Have the connection reset by the next command, which is not executed."""
        self.breaks.append(Break(after=False))

    def break_after(self) -> None:
        """Have the connection reset by the next command, which is executed, but not answered."""
        self.breaks.append(Break(after=True))

    def delay(self) -> float:
        """Return the seconds that the next message takes."""
        return self.losses() + self.trip()

    def trip(self) -> float:
        """Return the seconds that it takes once it is not lost."""
        return self.server.delay() + self.extra

    def losses(self) -> float:
        """Return the seconds until it is sent for the last time, because it was lost before."""
        lost, pause = 0.0, RETRANSMISSION
        for _ in range(MAX_LOSSES):
            if not self.loss or self._random.random() >= self.loss:
                break
            lost += pause
            pause *= 2
        return lost


@dataclass(slots=True)
class _Sent:
    """A message on its way."""

    what: bytes | Goodbye
    sent_at: float
    """When it leaves for the last time: before that it was lost."""
    due: bool = False


class WireLane(Lane):
    """One direction of a connection: nothing arrives while it is cut."""

    def __init__(self, wire: Wire, arrive: Callable[[bytes | Goodbye], None], *, requests: bool) -> None:
        super().__init__(wire.server, arrive)
        self.wire = wire
        self.requests = requests
        self.under_way: deque[_Sent] = deque()
        wire.lanes.append(self)

    @property
    def cut(self) -> bool:
        """Whether nothing gets through."""
        return self.wire.requests_cut if self.requests else self.wire.replies_cut

    def send(self, what: bytes | Goodbye) -> None:
        """Let it arrive at the other end; a reset that is lost is not sent again."""
        network, lost = self.wire.network, self.wire.losses()
        if what is Goodbye.RST and lost:
            return
        sent = _Sent(what, network.time() + lost)
        self._due_at = max(self._due_at, sent.sent_at + self.wire.trip())
        self.under_way.append(sent)
        network.call_at(self._due_at, self._deliver_sent, sent)

    def take_back(self) -> None:
        """Send nothing again that was lost: the connection is reset.  What came behind it is of no use."""
        now = self.wire.network.time()
        self.under_way = deque(itertools.takewhile(lambda sent: sent.sent_at <= now, self.under_way))

    def close(self) -> None:
        """Carry nothing more."""
        super().close()
        self.under_way.clear()
        if self in self.wire.lanes:
            self.wire.lanes.remove(self)

    def go_on(self) -> None:
        """Send what has waited again, unless the connection was reset meanwhile."""
        waiting, self.under_way = self.under_way, deque()
        self._due_at = 0.0  # nothing is on its way that they could overtake
        if waiting and waiting[-1].what is Goodbye.RST:
            self.close()
            return
        for sent in waiting:
            self.send(sent.what)

    def _deliver_sent(self, sent: _Sent) -> None:
        sent.due = True  # loops that do not keep the order of equal times must not turn bytes round
        while self.under_way and self.under_way[0].due and not self.cut:
            self._arrive(self.under_way.popleft().what)


class WireConnection(MemoryConnection):
    """A connection by a wire: it may break at a command, and stay half open.

    After `abort` (RST) the server executes only what was not held up.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        super().__init__(wire.server)

    def _lanes(self) -> tuple[Lane, Lane]:
        wire = self.wire
        return WireLane(wire, self._arrive, requests=True), WireLane(wire, self._come_back, requests=False)

    def abort(self) -> None:
        """Reset it; what is held up is lost, the reset too, and not sent again."""
        assert isinstance(self._requests, WireLane)
        self._requests.take_back()
        if self._requests.cut:
            self._requests.close()
        super().abort()

    def _execute(self, words: list[bytes]) -> None:
        if not self.wire.breaks:
            super()._execute(words)
            return
        if self.wire.breaks.pop(0).after:
            self._server.execute(words, self)
        self._send_back()
        self.reset()

    def _send_back(self) -> None:
        # The client has no such connection any more, and nothing is under way that tells the server so.
        half_open = self._closing and self._requests.closed and not self._over
        if self._answers and half_open and not self.wire.is_cut:
            back_at = self.wire.network.time() + self.wire.delay() + self.wire.delay()
            self.wire.network.call_at(back_at, self._arrive, Goodbye.RST)
        super()._send_back()
