"""An asyncio-native, multiplexed Redlock over N independent Redis or Valkey masters.

The modules::

_core/       the protocol without I/O: start reading there, its docstring is the theory
_scripts/    the Lua scripts
_kinds/      lock kinds: what to send, how to read the answers
_node/       how commands reach the masters
_ask … _manager   the shell: rounds, gate, holding, watchdog, lease, lock, manager
testing/     for users' own tests: masters in memory, virtual time, local servers
"""

from ._admin import NodeInspection
from ._clock import Clock
from ._core.policy import ExtensionPolicy, RetryPolicy
from ._core.quorum import Vote
from ._lease import Lease, NodeRelease, ReleaseOutcome, ReleaseReport
from ._lock import Lock
from ._manager import LockManager
from ._node import Node, NodeState
from ._options import LockOptions
from ._statistics import ManagerStatistics, NodeStatistics
from .errors import (
    ConfigurationError,
    LockError,
    LockLostError,
    LockNotAcquiredError,
    LockTakenError,
    LossReason,
    ManagerClosedError,
    NodeVote,
    QuorumUnavailableError,
    WouldDeadlockError,
)
from .events import Hooks

__all__ = [
    "Clock",
    "ConfigurationError",
    "ExtensionPolicy",
    "Hooks",
    "Lease",
    "Lock",
    "LockError",
    "LockLostError",
    "LockManager",
    "LockNotAcquiredError",
    "LockOptions",
    "LockTakenError",
    "LossReason",
    "ManagerClosedError",
    "ManagerStatistics",
    "Node",
    "NodeInspection",
    "NodeRelease",
    "NodeState",
    "NodeStatistics",
    "NodeVote",
    "QuorumUnavailableError",
    "ReleaseOutcome",
    "ReleaseReport",
    "RetryPolicy",
    "Vote",
    "WouldDeadlockError",
]
