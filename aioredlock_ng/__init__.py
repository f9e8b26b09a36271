"""An asyncio-native, multiplexed Redlock over N independent Redis or Valkey masters.

The modules, each above what it imports; ``.github/CONTRIBUTING.md`` has the whole map::

_cli/, contrib/     the command; metrics, FastAPI, aiohttp
_dashboard/, _demo, _view/, sync/, pytest_plugin   built on what users see
testing/     for users' own tests: masters in memory, virtual time, local servers
_manager     the manager
_locks/      what it makes: locks, leases, elections, decorators
_admin/      what administrators do: inspect, survey, diagnose
_session/    what a manager lives in, from its start in a loop to its end
_lock/       one process's side of a lock: a call, its queue and attempts, the lock that it won
_round/      one question to all nodes
_settings/   what users give, checked: options, nodes, durations
_node/       how commands reach the masters
_kinds/      lock kinds: what to send, how to read the answers
_scripts/    the Lua scripts
_core/       the protocol without I/O: start reading there, its docstring is the theory

Every name below is imported when it is first used (PEP 562), so that what is imported by every start
of pytest, or of a command, costs nothing.  A new name stands three times: among the imports, which
type checkers read, in `__all__`, and in `_HOMES`; a test compares them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._admin.doctor.findings import Finding
    from ._admin.initialise import NodeInitialisation
    from ._admin.inspection import NodeInspection, PermitInspection, ReaderInspection
    from ._admin.survey import LockInspection, QueueInspection, SilentNode, Survey, WaiterInspection
    from ._clock import Clock
    from ._core.election import Leader, LeaderUnknown
    from ._core.policy import ExtensionPolicy, RetryPolicy
    from ._core.quorum import Vote
    from ._kinds.kind import Mode
    from ._locks.election import Campaign, Election, Leadership
    from ._locks.lease import Lease, NodeRelease, ReleaseOutcome, ReleaseReport
    from ._locks.lock import Lock
    from ._locks.rwlock import ReadWriteLock
    from ._log import LOG_FIELDS
    from ._manager import LockManager
    from ._node import NodeState, NodeStatistics
    from ._settings.options import LockOptions, ReadWriteLockOptions, SemaphoreOptions
    from ._statistics import LeaseStatistics, ManagerStatistics
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
    "LOG_FIELDS",
    "Campaign",
    "Clock",
    "ConfigurationError",
    "Election",
    "ExtensionPolicy",
    "Finding",
    "Hooks",
    "Leader",
    "LeaderUnknown",
    "Leadership",
    "Lease",
    "LeaseStatistics",
    "Lock",
    "LockError",
    "LockInspection",
    "LockLostError",
    "LockManager",
    "LockNotAcquiredError",
    "LockOptions",
    "LockTakenError",
    "LossReason",
    "ManagerClosedError",
    "ManagerStatistics",
    "Mode",
    "NodeInitialisation",
    "NodeInspection",
    "NodeRelease",
    "NodeState",
    "NodeStatistics",
    "NodeVote",
    "PermitInspection",
    "QueueInspection",
    "QuorumUnavailableError",
    "ReadWriteLock",
    "ReadWriteLockOptions",
    "ReaderInspection",
    "ReleaseOutcome",
    "ReleaseReport",
    "RetryPolicy",
    "SemaphoreOptions",
    "SilentNode",
    "Survey",
    "Vote",
    "WaiterInspection",
    "WouldDeadlockError",
]

_HOMES = {
    name: module
    for module, names in {
        "_admin.doctor.findings": "Finding",
        "_admin.initialise": "NodeInitialisation",
        "_admin.inspection": "NodeInspection PermitInspection ReaderInspection",
        "_admin.survey": "LockInspection QueueInspection SilentNode Survey WaiterInspection",
        "_clock": "Clock",
        "_core.election": "Leader LeaderUnknown",
        "_core.policy": "ExtensionPolicy RetryPolicy",
        "_core.quorum": "Vote",
        "_kinds.kind": "Mode",
        "_locks.election": "Campaign Election Leadership",
        "_locks.lease": "Lease NodeRelease ReleaseOutcome ReleaseReport",
        "_locks.lock": "Lock",
        "_locks.rwlock": "ReadWriteLock",
        "_log": "LOG_FIELDS",
        "_manager": "LockManager",
        "_node": "NodeState NodeStatistics",
        "_settings.options": "LockOptions ReadWriteLockOptions SemaphoreOptions",
        "_statistics": "LeaseStatistics ManagerStatistics",
        "errors": "ConfigurationError LockError LockLostError LockNotAcquiredError LockTakenError LossReason "
        "ManagerClosedError NodeVote QuorumUnavailableError WouldDeadlockError",
        "events": "Hooks",
    }.items()
    for name in names.split()
}
"""The module that each name comes from."""

_MODULES = ("errors", "events")
"""Public modules that are there without an import of their own."""

if not TYPE_CHECKING:  # a type checker that saw it would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Import `name` at its first use; from then on it is an ordinary global."""
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        return value

    def __dir__() -> list[str]:
        """List what is there and what would be imported."""
        return sorted({*globals(), *__all__, *_MODULES})
