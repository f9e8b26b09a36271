"""For tests, ours and users' own: masters in memory, virtual time, local servers."""

from .local_nodes import LocalNodes, NoServerError, ServerStartError, local_nodes
from .memory_node import MemoryNode
from .sim_loop import DeadlockError, SimLoop

__all__ = [
    "DeadlockError",
    "LocalNodes",
    "MemoryNode",
    "NoServerError",
    "ServerStartError",
    "SimLoop",
    "local_nodes",
]
