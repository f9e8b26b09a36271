"""The way between masters in memory and their clients: how long messages take, and what is cut off."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias, TypeVarTuple, final

from .._node import Node
from .sim_loop import SimLoop

_Ts = TypeVarTuple("_Ts")

Latency: TypeAlias = float | Callable[[], float]
"""Seconds from one end of a connection to the other, or what draws them for each message."""

RETRANSMISSION: Final = 0.2
"""Seconds until what was lost is sent again, and twice as many each further time: TCP's least timeout."""

MAX_LOSSES: Final = 5
"""Times that one message is lost in a row, at most."""


class Network(Protocol):
    """What masters in memory have in common: it carries messages, and knows the true time."""

    def new_identity(self) -> str:
        """Return what no server process has been called yet."""

    def time(self) -> float:
        """Return the time that messages go by."""

    def clock(self) -> float:
        """Return the time that the nodes' clocks go by."""

    def call_at(self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts) -> object:
        """Let something happen between two ends of a connection, or at a node."""

    def hand(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[*_Ts], object], *args: *_Ts
    ) -> object:
        """Let something happen in a client's loop: it has come to its end of the connection."""


@final
class OneLoop:
    """The running loop, which clients and nodes share.

    A machine that is suspended (`SimLoop.suspend`) is the client's: the nodes' clocks go on.
    """

    __slots__ = ()

    _identities = itertools.count(1)

    def new_identity(self) -> str:
        return f"{next(self._identities):040x}"

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    def clock(self) -> float:
        loop = asyncio.get_running_loop()
        return loop.clock.now() if isinstance(loop, SimLoop) else loop.time()

    def call_at(self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts) -> object:
        return asyncio.get_running_loop().call_at(when, callback, *args)

    def hand(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[*_Ts], object], *args: *_Ts
    ) -> object:
        return callback(*args)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Break:
    """Where a connection breaks: at the next command to come; no two of them are equal."""

    after: bool
    """Whether the node has executed that command, and the reply has not left."""


@final
class Wire:
    """The way between one master and one client; or all clients that have none of their own.

    `MemoryNode.wire` makes them.  A manager takes one in place of the node.  All that TCP promises holds:
    nothing inside a connection is skipped or overtaken, so what is lost comes later.

    Args:
        network: carries the messages.
        latency: draws the seconds that a message takes.
        connect: makes the client's node.
        seed: which messages are lost.
    """

    def __init__(
        self, network: Network, latency: Callable[[], float], connect: Callable[[Wire], Node], *, seed: int
    ) -> None:
        self.network = network
        self.extra = 0.0
        """Seconds that every message takes longer."""
        self.loss = 0.0
        """Share of the messages that are lost on their way, and sent again."""
        self.lanes: list[Lane] = []
        self.requests_cut = self.replies_cut = False
        self.breaks: list[Break] = []
        """One for each of the next commands that is to break its connection."""
        self._latency = latency
        self._connect = connect
        self._seed = seed
        self._random = random.Random(seed)

    def link(self) -> Node:
        """Return one manager's node at the other end; a manager calls it itself."""
        return self._connect(self)

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
        return self._latency() + self.extra

    def losses(self) -> float:
        """Return the seconds until it is sent for the last time, because it was lost before."""
        lost, pause = 0.0, RETRANSMISSION
        for _ in range(MAX_LOSSES):
            if not self.loss or self._random.random() >= self.loss:
                break
            lost += pause
            pause *= 2
        return lost


class Goodbye(Enum):
    """The end of a connection, as it travels."""

    FIN = auto()
    """All has been sent."""
    RST = auto()
    """It is reset."""


@dataclass(slots=True)
class _Sent:
    """Something on its way."""

    what: bytes | Goodbye
    sent_at: float
    """When it leaves for the last time: before that it was lost."""
    due: bool = False


@final
class Lane:
    """One direction of a connection: what is sent arrives in order, later, and not while it is cut."""

    def __init__(self, wire: Wire, arrive: Callable[[bytes | Goodbye], None], *, requests: bool) -> None:
        self._wire = wire
        self._arrive = arrive
        self._requests = requests
        self._sent: deque[_Sent] = deque()
        self._due_at = 0.0
        wire.lanes.append(self)

    @property
    def closed(self) -> bool:
        """Whether it carries nothing more."""
        return self not in self._wire.lanes

    @property
    def cut(self) -> bool:
        """Whether nothing gets through."""
        return self._wire.requests_cut if self._requests else self._wire.replies_cut

    def send(self, what: bytes | Goodbye) -> None:
        """Let it arrive at the other end; a reset that is lost is not sent again."""
        network, lost = self._wire.network, self._wire.losses()
        if what is Goodbye.RST and lost:
            return
        sent = _Sent(what, network.time() + lost)
        self._due_at = max(self._due_at, sent.sent_at + self._wire.trip())
        self._sent.append(sent)
        network.call_at(self._due_at, self._deliver, sent)

    def take_back(self) -> None:
        """Send nothing again that was lost: the connection is reset.  What came behind it is of no use."""
        now = self._wire.network.time()
        left = itertools.takewhile(lambda sent: sent.sent_at <= now, self._sent)
        self._sent = deque(left)

    def close(self) -> None:
        """Carry nothing more."""
        self._sent.clear()
        if not self.closed:
            self._wire.lanes.remove(self)

    def go_on(self) -> None:
        """Send what has waited again, unless the connection was reset meanwhile."""
        waiting, self._sent = self._sent, deque()
        self._due_at = 0.0  # nothing is on its way that they could overtake
        if waiting and waiting[-1].what is Goodbye.RST:
            self.close()
            return
        for sent in waiting:
            self.send(sent.what)

    def _deliver(self, sent: _Sent) -> None:
        sent.due = True  # loops that do not keep the order of equal times must not turn bytes round
        while self._sent and self._sent[0].due and not self.cut:
            self._arrive(self._sent.popleft().what)
