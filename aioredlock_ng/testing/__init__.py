"""For tests, ours and users' own: masters in memory, virtual time, local servers, losses, bypassed locks."""

from . import faults
from ._bypass import bypass
from ._memory_data import Snapshot
from ._memory_wire import Latency, Wire
from .local_nodes import LocalNodes, NoServerError, ServerStartError, local_nodes
from .loss import lose
from .memory_node import MemoryNode
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
    "Wire",
    "bypass",
    "faults",
    "local_nodes",
    "lose",
]
