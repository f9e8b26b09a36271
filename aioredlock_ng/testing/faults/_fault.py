"""What every fault has: when it begins, at which node, and for how long it lasts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from .._arguments import check_amount, check_index
from ..memory_node import MemoryNode
from ._playing import End


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
