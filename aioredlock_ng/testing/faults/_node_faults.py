"""What goes wrong with a node itself: its process, its data, its connections, its clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from ..._core.policy import number
from .._arguments import check_amount, check_line
from ..memory_node import MemoryNode
from ._fault import End, Fault, lasts, lay


def _nothing() -> None:
    """End what is over already."""


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
