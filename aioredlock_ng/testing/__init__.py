"""For tests, ours and users' own: masters in memory, virtual time, local servers."""

from .local_nodes import LocalNodes, NoServerError, local_nodes
from .memory_node import MemoryNode
from .sim_loop import SimLoop

__all__ = ["LocalNodes", "MemoryNode", "NoServerError", "SimLoop", "local_nodes"]
