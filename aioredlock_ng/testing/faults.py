"""What goes wrong with masters in memory, and when: faults as data.

    nodes = [MemoryNode() for _ in range(3)]
    async with play(nodes, [Partition(at=0.5, node=0, lasts=2.0), Restart(at=1.0, node=1, lasts=0.2)]):
        ...

A fault is a value: it can be drawn, printed, kept and left out.  Times are seconds since `play` began.
Several at once at one node go on side by side: what one of them does lasts until the last of its kind
ends; of several clock rates, losses or refusals the newest counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias, final

from ._layers import lay
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
    "WireFault",
    "play",
]

End: TypeAlias = Callable[[], None]
"""What ends a fault."""


def _nothing() -> None:
    """End what is over already."""


def _check(fault: Fault, *names: str, most: float = sys.float_info.max) -> None:
    """Check that attributes are numbers from 0 to `most`."""
    for name in names:
        value = getattr(fault, name)
        if not 0 <= value <= most:
            span = f"to {most:g}" if most < sys.float_info.max else "on"
            raise ValueError(f"{name} is a number from 0 {span}, not {value!r}")


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
        _check(self, "at", "lasts")
        if self.node < 0:
            raise ValueError(f"nodes are numbered from 0 on, got {self.node!r}")

    def check(self, nodes: Sequence[MemoryNode]) -> None:
        """Check that what it happens to is there.

        Raises:
            ValueError: it is not.
        """
        if self.node not in range(len(nodes)):
            raise ValueError(f"{self}: there are {len(nodes)} nodes, numbered from 0 on")

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
        return lay(
            node, "frozen", before=False, value=True, put=lambda on: node.freeze() if on else node.thaw()
        )


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
        return lay(node, "down", before=False, value=True, put=lambda on: None if on else node.start())


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

    def __post_init__(self) -> None:
        """As in `Fault`."""
        Fault.__post_init__(self)
        if not self.error or not self.error.isprintable():
            raise ValueError(f"error is one line, such as 'BUSY …', not {self.error!r}")

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        return lay(node, "refusal", before="", value=self.error, put=node.refuse)


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

    def __post_init__(self) -> None:
        """As in `Fault`."""
        Fault.__post_init__(self)
        if not math.isfinite(self.seconds):
            raise ValueError(f"seconds is a number, not {self.seconds!r}")

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].step_clock(self.seconds)
        return _nothing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRate(Fault):
    """The node's wall clock goes at another rate.

    Args:
        rate: 1.0 is right, 0.0 stands still.
    """

    rate: float

    def __post_init__(self) -> None:
        """As in `Fault`."""
        Fault.__post_init__(self)
        _check(self, "rate")

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        return lay(node, "rate", before=node.clock_rate, value=self.rate, put=node.set_clock_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFault(Fault):
    """Something that goes wrong on the way to a node.

    Args:
        client: the number of the way (`MemoryNode.wires`); None: all ways that there are when it begins.
    """

    client: int | None = None

    def __post_init__(self) -> None:
        """As in `Fault`."""
        Fault.__post_init__(self)
        if self.client is not None and self.client < 0:
            raise ValueError(f"ways are numbered from 0 on, got {self.client!r}")

    def check(self, nodes: Sequence[MemoryNode]) -> None:
        """As in `Fault`."""
        Fault.check(self, nodes)
        ways = len(nodes[self.node].wires)
        if self.client is not None and self.client not in range(ways):
            raise ValueError(f"{self}: the node has {ways} wires, numbered from 0 on; wire() makes more")

    def wires(self, nodes: Sequence[MemoryNode]) -> list[Wire]:
        """Return the ways in question."""
        wires = nodes[self.node].wires
        return list(wires) if self.client is None else [wires[self.client]]

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        ends = [self.begin_on(wire) for wire in self.wires(nodes)]

        def end() -> None:
            for end_on_wire in ends:
                end_on_wire()

        return end

    @abstractmethod
    def begin_on(self, wire: Wire) -> End:
        """Let it begin on one way, and return what ends it there."""


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

    def __post_init__(self) -> None:
        """As in `Fault`."""
        WireFault.__post_init__(self)
        if not (self.requests or self.replies):
            raise ValueError("requests=False and replies=False leave nothing that is held up")

    def begin_on(self, wire: Wire) -> End:
        """As in `WireFault`."""
        mend_requests = lay(
            wire,
            "requests",
            before=wire.requests_cut,
            value=self.requests,
            put=lambda on: (wire.cut if on else wire.mend)(replies=False),
            merge=any,
        )
        mend_replies = lay(
            wire,
            "replies",
            before=wire.replies_cut,
            value=self.replies,
            put=lambda on: (wire.cut if on else wire.mend)(requests=False),
            merge=any,
        )

        def end() -> None:
            mend_requests()
            mend_replies()

        return end


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(WireFault):
    """Every message takes longer; several of them add up.

    Args:
        seconds: in each direction.
    """

    seconds: float

    def __post_init__(self) -> None:
        """As in `Fault`."""
        WireFault.__post_init__(self)
        _check(self, "seconds")

    def begin_on(self, wire: Wire) -> End:
        """As in `WireFault`."""

        def put(seconds: float) -> None:
            wire.extra = seconds

        return lay(wire, "extra", before=wire.extra, value=self.seconds, put=put, merge=math.fsum)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(WireFault):
    """Some messages are lost, and come later: TCP sends them again.

    Args:
        share: of the messages, from 0 to 1.
    """

    share: float

    def __post_init__(self) -> None:
        """As in `Fault`."""
        WireFault.__post_init__(self)
        _check(self, "share", most=1.0)

    def begin_on(self, wire: Wire) -> End:
        """As in `WireFault`."""
        salt = f"{self.at} {self.node}"
        return lay(wire, "loss", before=wire.loss, value=self.share, put=lambda share: wire.lose(share, salt))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Break(WireFault):
    """The next command's connection is reset; `lasts` is of no meaning."""

    def take_back(self, nodes: Sequence[MemoryNode]) -> None:
        """See that what waits for its occasion does not happen any more."""
        for wire in self.wires(nodes):
            wire.breaks.clear()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakBefore(_Break):
    """The next command's connection is reset before the node has executed it."""

    def begin_on(self, wire: Wire) -> End:
        """As in `WireFault`."""
        wire.break_before()
        return _nothing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakAfter(_Break):
    """The next command's connection is reset when the node has executed it, but not answered."""

    def begin_on(self, wire: Wire) -> End:
        """As in `WireFault`."""
        wire.break_after()
        return _nothing


def play(nodes: Sequence[MemoryNode], faults: Iterable[Fault]) -> AbstractAsyncContextManager[None]:
    """Let faults happen while the block runs; what has begun and not ended by then ends with the block.

    Raises:
        ValueError: a fault's node, or its way there, does not exist.
    """
    listed = list(faults)
    for fault in listed:
        fault.check(nodes)
    return _playing(nodes, listed)


@contextlib.asynccontextmanager
async def _playing(nodes: Sequence[MemoryNode], faults: list[Fault]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    ends: dict[int, End] = {}
    timers: list[asyncio.TimerHandle] = []

    def begin(number: int, fault: Fault) -> None:
        ends[number] = fault.begin(nodes)
        timers.append(loop.call_later(fault.lasts, end, number))

    def end(number: int) -> None:
        ends.pop(number)()

    timers += [loop.call_later(fault.at, begin, number, fault) for number, fault in enumerate(faults)]
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number in list(ends):
            end(number)
        for fault in faults:
            if isinstance(fault, _Break):
                fault.take_back(nodes)
