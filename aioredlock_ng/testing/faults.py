"""What goes wrong with masters in memory, and when: faults as data.

    nodes = [MemoryNode() for _ in range(3)]
    async with play(nodes, [Partition(at=0.5, node=0, lasts=2.0), Restart(at=1.0, node=1, lasts=0.2)]):
        ...

A fault is a value: it can be drawn, printed, kept and left out.  Times are seconds since `play` began.
Several at once at one node go on side by side:

- What one of them does lasts until the last of its kind ends.  Delays add up; of several clock rates,
  losses or refusals the newest counts that has not ended.  When all have ended, it is again as a test had
  left it by hand before.  What is done by hand in between is undone when one of them begins, or when an
  end changes what the others make of it.
- Those of different kinds do not touch each other, but for those that bring another process: `Restart`
  and `Relapse`.  It is up, even if a test had let the node crash before; and not stalled, for every
  `Stall` has ended that began before it came, however long that was to last.  A `Relapse` that ends while
  a `Restart` lasts replaces the data alone: the node comes back with it when the last restart is over.
- `BreakBefore` and `BreakAfter` do not end: they wait for a command until the block ends.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

from .._core.policy import number
from ._arguments import check_amount, check_index, check_line, listed
from ._layers import lasts, lay
from ._memory_wire import Break, Wire
from ._playing import Act, End, playing
from .memory_node import MemoryNode

__all__ = [
    "BreakAfter",
    "BreakBefore",
    "ClockRate",
    "ClockStep",
    "Delay",
    "Disconnect",
    "End",
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


def _nothing() -> None:
    """End what is over already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(ABC):
    """Something that goes wrong with one node.

    Args:
        at: when it begins, in seconds from 0 on.
        node: the number of the node, from 0 on.
        lasts: seconds until it ends, from 0 on; of no meaning for what happens in a moment.

    Raises:
        TypeError: a number is none (`node` and `client` are ints), or `error` is no str.
        ValueError: a value is out of its range, NaN or infinite.
    """

    at: float
    node: int
    lasts: float = 0.0

    def __post_init__(self) -> None:
        check_amount("at", self.at)
        check_amount("lasts", self.lasts)
        check_index("node", self.node, of="nodes")

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
        process = node.identity

        def put(on: bool) -> None:  # noqa: FBT001 (what `lay` calls)
            if node.identity == process:  # another one is not stalled
                (node.freeze if on else node.thaw)()

        return lay(node, f"frozen {process}", before=node.frozen, value=True, put=put)


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

        def end() -> None:
            node.restart(from_=snapshot)
            if lasts(node, "down"):
                node.crash(keep_data=True)

        return end


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
        error: one line, such as ``LOADING Redis is loading the dataset in memory``.
    """

    error: str

    def __post_init__(self) -> None:
        """As in `Fault`."""
        Fault.__post_init__(self)
        check_line("error", self.error)
        if not self.error:
            raise ValueError("error is one line, such as 'BUSY …', not ''")

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        return lay(node, "refusal", before=node.refusal, value=self.error, put=node.refuse)


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
        number("seconds", self.seconds)

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        nodes[self.node].step_clock(self.seconds)
        return _nothing


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRate(Fault):
    """The node's wall clock goes at another rate.

    Args:
        rate: seconds per second, from 0 on: 1.0 is right, 0.0 stands still.
    """

    rate: float

    def __post_init__(self) -> None:
        """As in `Fault`."""
        Fault.__post_init__(self)
        check_amount("rate", self.rate)

    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """As in `Fault`."""
        node = nodes[self.node]
        return lay(node, "rate", before=node.clock_rate, value=self.rate, put=node.set_clock_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFault(Fault):
    """Something that goes wrong on the way to a node.

    Args:
        client: the number of the way (`MemoryNode.wires`), from 0 on; None: all ways that there are when it
            begins.
    """

    client: int | None = None

    def __post_init__(self) -> None:
        """As in `Fault`."""
        Fault.__post_init__(self)
        if self.client is not None:
            check_index("client", self.client, of="ways")

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
        seconds: in each direction, from 0 on.
    """

    seconds: float

    def __post_init__(self) -> None:
        """As in `Fault`."""
        WireFault.__post_init__(self)
        check_amount("seconds", self.seconds)

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
        check_amount("share", self.share, most=1.0)

    def begin_on(self, wire: Wire) -> End:
        """As in `WireFault`."""
        salt = f"{self.at} {self.node}"
        return lay(wire, "loss", before=wire.loss, value=self.share, put=lambda share: wire.lose(share, salt))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Break(WireFault):
    """The next command's connection is reset; `lasts` is of no meaning.

    Its end takes back what no command has met yet.
    """

    after: ClassVar[bool]

    def begin_on(self, wire: Wire) -> End:
        """As in `WireFault`."""
        mine = Break(after=self.after)
        wire.breaks.append(mine)
        return lambda: wire.breaks.remove(mine) if mine in wire.breaks else None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakBefore(_Break):
    """The next command's connection is reset before the node has executed it."""

    after: ClassVar[bool] = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakAfter(_Break):
    """The next command's connection is reset when the node has executed it, but not answered."""

    after: ClassVar[bool] = True


def play(nodes: Sequence[MemoryNode], faults: Iterable[Fault]) -> AbstractAsyncContextManager[None]:
    """Let faults happen while the block runs; what has begun and not ended by then ends with the block.

    What a fault itself raises when it begins or ends is raised by the end of the block, several as an
    `ExceptionGroup`.  A block that ends by an exception of its own keeps it, with a note for each.

    Raises:
        TypeError: a node is no `MemoryNode`, or a fault no `Fault`.
        ValueError: a fault's node, or its way there, does not exist.
    """
    known, planned = listed("nodes", nodes, MemoryNode), listed("faults", faults, Fault)
    for fault in planned:
        fault.check(known)
    return playing([_act(fault, known) for fault in planned])


def _act(fault: Fault, nodes: Sequence[MemoryNode]) -> Act:
    """Return what a fault makes happen."""
    lasts = None if isinstance(fault, _Break) else fault.lasts  # it waits for a command
    return Act(what=fault, at=fault.at, lasts=lasts, begin=partial(fault.begin, nodes))
