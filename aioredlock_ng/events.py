"""The events as frozen values, and the hooks that hear of it.

Lock names may be many and may be private: metrics are labelled by `label`, the lock's template,
never by its names.  No event carries an owner value.

One call of `acquire` ends in `Acquired` or in `GaveUp`, and is reported as `Waiting` in between if it has
to wait.  What is refused by the manager itself, since it is closed or its nodes cannot be one quorum,
is reported as neither.  Nor is an acquire of a reentrant lock by the task that is inside of it: `Acquired`
tells of the lock's first lease, and `Released` of its last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from ._node import NodeState
from .errors import LossReason, NodeVote

if TYPE_CHECKING:
    from ._statistics import ManagerStatistics


@dataclass(slots=True, kw_only=True, unsafe_hash=True)  # frozen, it would take three times as long to make
class LockEvent:
    """The fields of all events about a lock."""

    names: tuple[str, ...]
    label: str
    """The `label` of the lock; without one its template, else its kind."""
    kind: str = "mutex"
    """The sort of lock: ``"mutex"``, ``"fair"``, ``"semaphore"``, ``"leader"``, or of a read-write lock
    ``"read"`` or ``"write"``.  Of a lease that was downgraded, the sort that it is by then."""


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class LeaseEvent(LockEvent):
    """The fields of all events about a lease."""

    lease: int = 0
    """The number of the lease in its process: the same in all events of the lease, and in no others."""


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Acquired(LeaseEvent):
    """A lock was acquired."""

    waited: float
    """Seconds from the call to the win."""
    attempts: int
    """Rounds of the nodes; 0 when it was handed off."""
    fence: int | None
    """None without fencing."""
    votes: tuple[NodeVote, ...]
    """The nodes' votes; empty where no hook wants to know (`Hooks.wants_votes`)."""
    handed_off: bool = False
    """Whether it came from another task of this process, for which no node was asked: the votes are those
    that this one had (R43)."""


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Refused(LockEvent):
    """One try to acquire a lock, a round of the nodes, was not a win, and has been undone.

    A call of `acquire` that waits makes many of them; `Acquired` and `GaveUp` say how a call ends.
    """

    taken: bool
    """True: another client holds the lock.  False: too few nodes answered."""
    votes: tuple[NodeVote, ...]
    ahead: int = 0
    """Of a fair lock: the calls of other processes before it in line, at most."""


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Waiting(LockEvent):
    """A call of `acquire` was not let through at once and begins to wait; once per call."""

    waited: float
    """Seconds since the call."""
    taken: bool
    """True: the lock is taken, by a task of this process if `votes` is empty.  False: no quorum answered."""
    votes: tuple[NodeVote, ...]
    """The nodes' votes on the first try; empty when it waits for a task of this process."""
    ahead: int = 0
    """As in `Refused`."""


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class GaveUp(LockEvent):
    """A call of `acquire` or `try_acquire` ended without the lock; once per call."""

    waited: float
    """Seconds since the call."""
    attempts: int
    """Rounds of the nodes; 0 when a task of this process was in the way all the time."""
    taken: bool | None
    """True: the lock is taken, be it by a task of this process.  False: too few nodes answered.  None: the
    call was cut short, as by a cancellation, the end of the manager, or `WouldDeadlockError`."""
    votes: tuple[NodeVote, ...]
    """The nodes' last votes; empty when none was asked."""


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Extended(LeaseEvent):
    """A lease was extended."""

    extensions: int
    remaining: float
    """Seconds of validity after the extension."""
    topped_up: int
    """Nodes that had lost the lock's key and are given it back (R9), as far as they have answered by now."""


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class NotExtended(LeaseEvent):
    """An extension of a lease, a round of the nodes, was not a win.

    It is asked for again while there is time; a lease that is lost by it is reported as `Lost`, too.
    """

    refused: bool
    """True: a majority says that the lock is not ours any more.  False: too few nodes answered in time."""
    remaining: float
    """Seconds of validity that are left."""
    votes: tuple[NodeVote, ...]


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Downgraded(LeaseEvent):
    """A write lease is a read lease from now on (R23).

    The extension by which the nodes follow is reported as `Extended`.
    """

    held_for: float
    """Seconds that it was a write lease."""
    kind: str = "read"
    """That of the lease from now on."""


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class ExtensionsLow(LeaseEvent):
    """A lease has used half of its `ExtensionPolicy.max_extensions`, or nine tenths of them."""

    extensions: int
    """The number of its extensions in the background."""
    max_extensions: int
    remaining: float
    """Seconds until the lock is lost, unless it is released: what the extensions that are left can give."""


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Lost(LeaseEvent):
    """A lease was lost before it was released."""

    reason: LossReason
    held_for: float
    """Seconds."""
    votes: tuple[NodeVote, ...]


@final
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Released(LeaseEvent):
    """The releases of a lease are on their way to the nodes; or another task of this process has the lock."""

    held_for: float
    """Seconds."""
    stays_taken: float = 0.0
    """Seconds for which the names stay taken all the same: the rest of the lock's `at_least`."""
    handed_off: bool = False
    """Whether another task of this process has the lock now: nothing was sent to the nodes (R43)."""
    lost: bool = False
    """Whether it had been lost before, which `Lost` has reported."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanged:
    """A node came up, fell silent, lost its vote, or went down."""

    node: str
    state: NodeState
    reason: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Misconfigured:
    """The lists of nodes are wrong (A4): two nodes are one server, or another client has other nodes.

    Where this client's list is the wrong one, nothing can be locked: `ConfigurationError`.
    """

    reason: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumChanged:
    """No lock can be acquired any more, since fewer than a majority of the nodes are up; or one can again.

    Of a change that has lasted for more than a heartbeat, once a majority was up for the first time.
    `LockManager.available` tells how it is now.
    """

    available: bool
    """Whether a majority is up, so that locks can be acquired."""
    up: int
    """Nodes that are up: that may vote, and accept writes."""
    needed: int
    """The majority."""
    reason: str
    """The other nodes, and why each of them is not up; empty when all are."""
    lasted: float
    """Seconds for which it was the other way before."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStepped:
    """A clock jumped: a node's, or the one that this process goes by (R14)."""

    node: str | None
    """None: half of the nodes or more seemed to jump together, so that it was our own."""
    seconds: float
    """At least so far: > 0 ahead, < 0 back."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStalled:
    """The event loop did not run for a while: leases could be neither extended nor given up."""

    seconds: float
    suspended: float
    """The part of them for which the machine was suspended."""


Event = (
    Acquired
    | Refused
    | Waiting
    | GaveUp
    | Extended
    | NotExtended
    | Downgraded
    | ExtensionsLow
    | Lost
    | Released
    | NodeChanged
    | Misconfigured
    | QuorumChanged
    | ClockStepped
    | LoopStalled
)


class Hooks:
    """Base class of hook objects: methods that do nothing, to override those that are of use.

    Each is called in the event loop, and must be quick and not block; those of a `SyncLockManager` are called
    in a thread of their own, and may use it.  A hook object need not derive from
    this class; then it has some of the methods.  One that raises is logged once and never affects a lock.

    Hooks of a call of `acquire`, and of a release by code of the user's, are called in the context of that
    code (`contextvars`): so the spans of a trace find their parent.  All others are called in an empty
    context, whichever request has started the manager.
    """

    __slots__ = ()

    wants_votes = True
    """Whether it looks at `Acquired.votes`, which take longer to put together than the rest of all events."""

    def attach(self, statistics: Callable[[], ManagerStatistics | None]) -> None:
        """Called once for each manager that has the hook, when it is made.

        `statistics` is what `LockManager.statistics` tells then and later, from any thread and without I/O;
        None once there is no such manager any more, which it does not keep alive.
        """

    def on_acquired(self, event: Acquired) -> None:
        """Called when a lock was acquired."""

    def on_refused(self, event: Refused) -> None:
        """Called when one try, a round of the nodes, was not a win: many times per call, where it waits."""

    def on_waiting(self, event: Waiting) -> None:
        """Called when a call of `acquire` begins to wait."""

    def on_gave_up(self, event: GaveUp) -> None:
        """Called when a call of `acquire` ended without the lock."""

    def on_extended(self, event: Extended) -> None:
        """Called when a lease was extended."""

    def on_not_extended(self, event: NotExtended) -> None:
        """Called when an extension was not a win."""

    def on_downgraded(self, event: Downgraded) -> None:
        """Called when a write lease became a read lease."""

    def on_extensions_low(self, event: ExtensionsLow) -> None:
        """Called when a lease will soon not be extended any more."""

    def on_lost(self, event: Lost) -> None:
        """Called when a lease was lost."""

    def on_released(self, event: Released) -> None:
        """Called when a lease was released."""

    def on_node_changed(self, event: NodeChanged) -> None:
        """Called when a node came, went, or may not vote."""

    def on_misconfigured(self, event: Misconfigured) -> None:
        """Called when nodes cannot be one quorum."""

    def on_quorum_changed(self, event: QuorumChanged) -> None:
        """Called when no lock can be acquired any more, and when one can again."""

    def on_clock_stepped(self, event: ClockStepped) -> None:
        """Called when a clock jumped."""

    def on_loop_stalled(self, event: LoopStalled) -> None:
        """Called when the event loop stood still."""
