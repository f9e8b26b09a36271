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

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from .._arguments import listed
from ..memory_node import MemoryNode
from ._fault import Act, End, Fault, playing
from ._node_faults import (
    ClockRate,
    ClockStep,
    Disconnect,
    FlushData,
    FlushScripts,
    Refusal,
    Relapse,
    Restart,
    Stall,
)
from ._wire_faults import BreakAfter, BreakBefore, Delay, Loss, Partition, WireFault

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
    lasts = None if isinstance(fault, (BreakBefore, BreakAfter)) else fault.lasts  # these wait for a command
    return Act(what=fault, at=fault.at, lasts=lasts, begin=partial(fault.begin, nodes))
