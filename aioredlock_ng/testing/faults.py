"""What goes wrong with masters in memory, and when: faults as data.

    nodes = [MemoryNode() for _ in range(3)]
    async with play(nodes, [Partition(at=0.5, node=0, lasts=2.0), Restart(at=1.0, node=1, lasts=0.2)]):
        ...

A fault is a value: it can be drawn, printed, kept and left out.  Times are seconds since `play` began.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from ._memory_wire import Wire
from .memory_node import MemoryNode

__all__ = [
    "BreakAfter",
    "BreakBefore",
    "ClockRate",
    "ClockStep",
    "Delay",
    "Disconnect",
    "Fault",
    "FlushData",
    "FlushScripts",
    "Loss",
    "Partition",
    "Refusal",
    "Relapse",
    "Restart",
    "Stall",
    "play",
]

End: TypeAlias = Callable[[], None]
"""What ends a fault."""


def _nothing() -> None:
    """End what is over already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(ABC):
    """Something that goes wrong with one node.

    Args:
        at: when it begins, in seconds.
        node: the number of the node, from 0 on.
        lasts: seconds until it ends; of no meaning for what happens in a moment.
    """

    at: float
    node: int
    lasts: float = 0.0

    def __post_init__(self) -> None:
        for name in ("at", "lasts"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is a number of seconds, not {getattr(self, name)!r}")
        if self.node < 0:
            raise ValueError(f"nodes are numbered from 0 on, got {self.node!r}")

    @abstractmethod
    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """Let it begin, and return what ends it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stall(Fault):
    """The node answers nothing, like a process that got SIGSTOP, and executes later what came meanwhile."""

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        node.freeze()
        return node.thaw


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Restart(Fault):
    """The node dies, and comes back after `lasts` seconds as another process.

    Args:
        keep_data: it has its data again, as with an append-only file; without it, it comes back empty.
    """

    keep_data: bool = False

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        node.crash(keep_data=self.keep_data)
        return node.start


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Relapse(Fault):
    """After `lasts` seconds the node comes back as another process with the data of the beginning."""

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        snapshot = node.snapshot()
        return lambda: node.restart(from_=snapshot)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FlushData(Fault):
    """The node loses all its data, as by FLUSHALL."""

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].flush()
        return _nothing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FlushScripts(Fault):
    """The node forgets all scripts, as by SCRIPT FLUSH."""

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].flush_scripts()
        return _nothing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Fault):
    """The node answers every command with an error.

    Args:
        error: such as ``LOADING Redis is loading the dataset in memory``.
    """

    error: str

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        node.refuse(self.error)
        return lambda: node.refuse("")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect(Fault):
    """The node resets all its connections, as by CLIENT KILL."""

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].disconnect()
        return _nothing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep(Fault):
    """The node's wall clock is set.

    Args:
        seconds: forward, or back when negative.
    """

    seconds: float

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].step_clock(self.seconds)
        return _nothing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRate(Fault):
    """The node's wall clock goes at another rate.

    Args:
        rate: 1.0 is right.
    """

    rate: float

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        before = node.clock_rate
        node.set_clock_rate(self.rate)
        return lambda: node.set_clock_rate(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFault(Fault):
    """Something that goes wrong on the way to a node.

    Args:
        client: the number of the way (`MemoryNode.wires`); None: all ways.
    """

    client: int | None = None

    def wires(self, nodes: Sequence[MemoryNode]) -> list[Wire]:
        """Return the ways in question."""
        wires = nodes[self.node].wires
        return list(wires) if self.client is None else [wires[self.client]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(WireFault):
    """Nothing gets through; what is sent arrives when it is over, unless the connection is given up.

    Args:
        requests: whether what clients send is held up.
        replies: whether what the node sends is held up.
    """

    requests: bool = True
    replies: bool = True

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        wires = self.wires(nodes)
        for wire in wires:
            wire.cut(requests=self.requests, replies=self.replies)

        def end() -> None:
            for wire in wires:
                wire.mend()

        return end


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(WireFault):
    """Every message takes longer.

    Args:
        seconds: in each direction.
    """

    seconds: float

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        wires = self.wires(nodes)
        for wire in wires:
            wire.extra += self.seconds

        def end() -> None:
            for wire in wires:
                wire.extra -= self.seconds

        return end


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(WireFault):
    """Some messages are lost, and come later: TCP sends them again.

    Args:
        share: of the messages, from 0 to 1.
    """

    share: float

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        wires = self.wires(nodes)
        for wire in wires:
            wire.loss = self.share

        def end() -> None:
            for wire in wires:
                wire.loss = 0.0

        return end


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakBefore(WireFault):
    """The next command's connection is reset before the node has executed it."""

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        for wire in self.wires(nodes):
            wire.break_before()
        return _nothing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakAfter(WireFault):
    """The next command's connection is reset when the node has executed it, but not answered."""

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        for wire in self.wires(nodes):
            wire.break_after()
        return _nothing


@contextlib.asynccontextmanager
async def play(nodes: Sequence[MemoryNode], faults: Iterable[Fault]) -> AsyncIterator[None]:
    """Let faults happen while the block runs; what has begun and not ended by then ends with the block."""
    loop = asyncio.get_running_loop()
    ends: dict[int, End] = {}
    timers: list[asyncio.TimerHandle] = []

    def begin(number: int, fault: Fault) -> None:
        ends[number] = fault.begin(nodes)
        timers.append(loop.call_later(fault.lasts, end, number))

    def end(number: int) -> None:
        if number in ends:
            ends.pop(number)()

    timers += [loop.call_later(fault.at, begin, number, fault) for number, fault in enumerate(faults)]
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number in list(ends):
            end(number)
