"""What goes wrong on the way to a node: messages that wait, come late, or break their connection."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from .._arguments import check_amount, check_index
from .._memory_wire import Break, Wire
from ..memory_node import MemoryNode
from ._fault import End, Fault, lay


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
