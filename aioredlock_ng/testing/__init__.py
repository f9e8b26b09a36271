"""For tests, ours and users' own: masters in memory, virtual time, local servers, losses, bypassed locks."""

from ._bypass import bypass
from ._memory_data import Snapshot
from .local_nodes import LocalNodes, NoServerError, ServerStartError, local_nodes
from .loss import lose
from .memory_node import Latency, MemoryNode
from .sim_loop import DeadlockError, SimLoop

__all__ = [
    "DeadlockError",
    "Latency",
    "LocalNodes",
    "MemoryNode",
    "NoServerError",
    "ServerStartError",
    "SimLoop",
    "Snapshot",
    "bypass",
    "local_nodes",
    "lose",
]
