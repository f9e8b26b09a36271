"""What happened, as frozen values, and the hooks that hear of it.

Lock names may be many and may be private: metrics are labelled by `label`, the lock's template,
never by its names.  No event carries an owner value.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, final

from ._log import report
from ._node import NodeState
from .errors import LossReason, NodeVote


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """A lock was acquired."""

    names: tuple[str, ...]
    label: str
    waited: float
    """Seconds from the call to the win."""
    attempts: int
    fence: int | None
    """None without fencing."""
    votes: tuple[NodeVote, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A try to acquire a lock was not a win, and has been undone."""

    names: tuple[str, ...]
    label: str
    taken: bool
    """True: somebody holds the lock.  False: too few nodes answered."""
    votes: tuple[NodeVote, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """A lease was extended."""

    names: tuple[str, ...]
    label: str
    extensions: int
    remaining: float
    """Seconds of validity after the extension."""
    topped_up: int
    """Nodes that had lost the lock's key and are given it back (R9), as far as they have answered by now."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A lease was lost before it was released."""

    names: tuple[str, ...]
    label: str
    reason: LossReason
    held_for: float
    """Seconds."""
    votes: tuple[NodeVote, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The releases of a lease are on their way to the nodes."""

    names: tuple[str, ...]
    label: str
    held_for: float
    """Seconds."""


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
    """Nothing can be locked over these nodes: two are one server, or they are another quorum's (A4)."""

    reason: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStepped:
    """A clock jumped: a node's, or the one that this process goes by (R14)."""

    node: str | None
    """None: half of the nodes or more seemed to jump alike, so that it was our own."""
    seconds: float
    """At least so far: > 0 ahead, < 0 back."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStalled:
    """The event loop did not run for a while: leases could be neither extended nor given up."""

    seconds: float
    suspended: float
    """How many of them the machine was suspended."""


Event = (
    Acquired | Refused | Extended | Lost | Released | NodeChanged | Misconfigured | ClockStepped | LoopStalled
)


class Hooks(Protocol):
    """Methods that a hook object may have; each is called in the loop and must not block."""

    def on_acquired(self, event: Acquired) -> None: ...  # noqa: D102
    def on_refused(self, event: Refused) -> None: ...  # noqa: D102
    def on_extended(self, event: Extended) -> None: ...  # noqa: D102
    def on_lost(self, event: Lost) -> None: ...  # noqa: D102
    def on_released(self, event: Released) -> None: ...  # noqa: D102
    def on_node_changed(self, event: NodeChanged) -> None: ...  # noqa: D102
    def on_misconfigured(self, event: Misconfigured) -> None: ...  # noqa: D102
    def on_clock_stepped(self, event: ClockStepped) -> None: ...  # noqa: D102
    def on_loop_stalled(self, event: LoopStalled) -> None: ...  # noqa: D102


_METHODS: dict[type[Event], str] = {
    Acquired: "on_acquired",
    Refused: "on_refused",
    Extended: "on_extended",
    Lost: "on_lost",
    Released: "on_released",
    NodeChanged: "on_node_changed",
    Misconfigured: "on_misconfigured",
    ClockStepped: "on_clock_stepped",
    LoopStalled: "on_loop_stalled",
}


@final
class Audience:
    """The hooks of one manager.  A hook that raises is logged once and never affects a lock."""

    __slots__ = ("_listeners", "_reported")

    def __init__(self, hooks: Iterable[object]) -> None:
        self._listeners: dict[type[Event], list[tuple[object, Callable[[Any], object]]]] = {
            event: [] for event in _METHODS
        }
        for hook in hooks:
            if isinstance(hook, type):
                raise TypeError(f"a hook is an object, got the class {hook.__name__}")
            for event, name in _METHODS.items():
                method = getattr(hook, name, None)
                if inspect.iscoroutinefunction(method):
                    raise TypeError(f"hooks are called in the loop and not awaited, got the async {method!r}")
                if method is not None:
                    self._listeners[event].append((hook, method))
        self._reported: set[int] = set()

    def wants(self, event: type[Event]) -> bool:
        """Whether any hook listens for `event`; saves making events nobody hears."""
        return bool(self._listeners[event])

    def tell(self, event: Event) -> None:
        """Call the hooks that listen for this event."""
        for hook, method in self._listeners[type(event)]:
            try:
                method(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 (nothing else can end a hook that matters to a lock)
                if id(hook) not in self._reported:
                    self._reported.add(id(hook))
                    name = type(hook).__name__
                    report(
                        logging.ERROR, "hook %s failed; it will not be reported again", name, exc_info=error
                    )
