"""The metrics of locks, for Prometheus and OpenTelemetry: their table, and the events that they count.

Nothing here or in its users has the name of a lock: names may be many, and may be private.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from ..events import (
    Acquired,
    ClockStepped,
    Extended,
    GaveUp,
    Hooks,
    LockEvent,
    LoopStalled,
    Lost,
    NotExtended,
    QuorumChanged,
    Refused,
    Released,
    Waiting,
)

if TYPE_CHECKING:
    from .. import ManagerStatistics, NodeStatistics

MAX_LABELS: Final = 100
"""Labels of locks that are counted apart."""

OTHERS: Final = "(others)"

MAX_MANAGERS: Final = 64
"""Managers that are alive and seen at once; beyond that the oldest is seen no more."""


@final
class Metric(NamedTuple):
    """One metric; its name has dots, as OpenTelemetry writes names."""

    name: str
    unit: str
    what: str
    labels: tuple[str, ...] = ("label", "kind")


ACQUIRES: Final = Metric(
    "acquire.duration", "s", "Calls of acquire, by how they ended", ("label", "kind", "outcome")
)
HOLDS: Final = Metric("hold.duration", "s", "Leases that ended")
HISTOGRAMS: Final = (ACQUIRES, HOLDS)

REFUSED: Final = Metric("refused", "{try}", "Attempts that did not get the lock", ("label", "kind", "reason"))
WAITS: Final = Metric("waits", "{call}", "Calls of acquire that had to wait", ("label", "kind", "behind"))
HANDED_OFF: Final = Metric(
    "handed_off", "{lease}", "Acquires by hand-off within the process, without asking the nodes"
)
EXTENSIONS: Final = Metric("extensions", "{extension}", "Extensions of leases", ("label", "kind", "outcome"))
LOSSES: Final = Metric("losses", "{lease}", "Leases that were lost", ("label", "kind", "reason"))
QUORUM_LOST: Final = Metric("quorum.lost", "{time}", "Times that no lock could be acquired any more", ())
STEPS: Final = Metric("clock.steps", "{step}", "Jumps of clocks", ("node",))
STALLS: Final = Metric("loop.stalls", "{stall}", "Stalls of the event loop", ())
COUNTERS: Final = (REFUSED, WAITS, HANDED_OFF, EXTENSIONS, LOSSES, QUORUM_LOST, STEPS, STALLS)

HELD: Final = Metric("held", "{lease}", "Leases that are held now")
AHEAD: Final = Metric(
    "calls.ahead", "{call}", "Calls ahead of the last refused call in the queue of a fair lock", ("label",)
)

_NODE: Final = ("node",)
WAITING: Final = Metric("waiting", "{call}", "Calls of acquire that wait now", ())
MARGIN: Final = Metric(
    "quorum.margin", "{node}", "How many more nodes may fail before no lock can be acquired", ()
)
CONFLICT: Final = Metric(
    "conflict", "1", "Whether the nodes cannot be one quorum: no lock can be acquired", ()
)
STRANGERS: Final = Metric(
    "strangers", "{server}", "Servers that other clients use and the list of nodes lacks", ()
)
UP: Final = Metric("node.up", "1", "Whether a node is up: it may vote, and accepts writes", _NODE)
QUARANTINED: Final = Metric(
    "node.quarantined", "1", "Whether a node has no vote because of a quarantine", _NODE
)
ROUND_TRIP: Final = Metric("node.round_trip", "s", "Round trip of the last heartbeat of a node", _NODE)
OFFSET: Final = Metric("node.clock_offset", "s", "How far a node's clock is ahead", _NODE)
PENDING: Final = Metric(
    "node.pending_releases", "{release}", "Releases that a node has not acknowledged", _NODE
)

_OF_MANAGERS: Final[dict[Metric, Callable[[list[ManagerStatistics]], float | None]]] = {
    WAITING: lambda seen: sum(each.waiting for each in seen),
    MARGIN: lambda seen: min((each.quorum_margin for each in seen), default=None),
    CONFLICT: lambda seen: any(each.conflict for each in seen),
    STRANGERS: lambda seen: max((len(each.strangers) for each in seen), default=0),
}

_OF_NODES: Final[dict[Metric, Callable[[NodeStatistics], float | None]]] = {
    UP: lambda node: node.state == "up",
    QUARANTINED: lambda node: node.state == "quarantined",
    ROUND_TRIP: lambda node: node.round_trip,
    OFFSET: lambda node: node.clock,
    PENDING: lambda node: node.pending_releases,
}

Readings: TypeAlias = Mapping[tuple[str, ...], float]
"""The values of a gauge by those of its labels."""


class MetricHooks(Hooks):
    """Hooks that count events, where a subclass says, and read gauges off the managers that have them."""

    wants_votes = False

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._managers: list[Callable[[], ManagerStatistics | None]] = []
        self._held: Counter[tuple[str, ...]] = Counter()
        self._ahead: dict[tuple[str, ...], float] = {}

    def record(self, metric: Metric, labels: tuple[str, ...], value: float = 1) -> None:
        """Add one event to a metric."""
        raise NotImplementedError

    def attach(self, statistics: Callable[[], ManagerStatistics | None]) -> None:
        """Read gauges off a manager, too, as long as it is there."""
        self._managers = [each for each in self._managers if each() is not None][1 - MAX_MANAGERS :]
        self._managers.append(statistics)

    # -- gauges ----------------------------------------------------------------------------------

    def gauges(self) -> Iterator[tuple[Metric, Callable[[], Readings]]]:
        """Yield each gauge, and what reads it."""
        yield HELD, self._read_held
        yield AHEAD, self._ahead.copy
        for metric, of_managers in _OF_MANAGERS.items():
            yield metric, functools.partial(self._read_managers, of_managers)
        for metric, of_node in _OF_NODES.items():
            yield metric, functools.partial(self._read_nodes, of_node)

    def _open(self) -> list[ManagerStatistics]:
        """Return the statistics of the managers that are not closed."""
        seen = (statistics() for statistics in self._managers)
        return [each for each in seen if each is not None and not each.closed]

    def _read_held(self) -> Readings:
        """Count the leases by label and kind; of those that are not listed the kind is empty."""
        held = Counter(dict.fromkeys(self._held, 0))  # what is held no more is 0, not gone
        for each in self._open():
            held.update((self._label(lease.label), lease.kind) for lease in each.leases)
            if more := each.held - len(each.leases):
                held[OTHERS, ""] += more
        self._held = held
        return held

    def _read_managers(self, read: Callable[[list[ManagerStatistics]], float | None]) -> Readings:
        value = read(self._open())
        return {} if value is None else {(): float(value)}

    def _read_nodes(self, read: Callable[[NodeStatistics], float | None]) -> Readings:
        # Of several managers over the same nodes the last one counts.
        values = {(node.name,): read(node) for each in self._open() for node in each.nodes}
        return {name: float(value) for name, value in values.items() if value is not None}

    # -- events ----------------------------------------------------------------------------------

    def _label(self, label: str) -> str:
        """Return the label that a label counts as: the first hundred for themselves, all others together."""
        known = self._labels.get(label)
        if known is None:
            if len(self._labels) >= MAX_LABELS:
                return OTHERS
            known = self._labels[label] = label
        return known

    def _count(self, metric: Metric, event: LockEvent, *more: str, value: float = 1) -> None:
        self.record(metric, (self._label(event.label), event.kind, *more), value)

    def on_acquired(self, event: Acquired) -> None:
        """Count a call that won."""
        self._count(ACQUIRES, event, "won", value=event.waited)
        if event.handed_off:
            self._count(HANDED_OFF, event)

    def on_gave_up(self, event: GaveUp) -> None:
        """Count a call that did not."""
        self._count(ACQUIRES, event, outcome(event), value=event.waited)

    def on_refused(self, event: Refused) -> None:
        """Count an attempt that did not get the lock."""
        self._count(REFUSED, event, "taken" if event.taken else "no_quorum")
        if event.kind == "fair":
            self._ahead[self._label(event.label),] = event.ahead

    def on_waiting(self, event: Waiting) -> None:
        """Count a call that has to wait."""
        self._count(WAITS, event, "nodes" if event.votes else "process")

    def on_extended(self, event: Extended) -> None:
        """Count an extension."""
        self._count(EXTENSIONS, event, "extended")

    def on_not_extended(self, event: NotExtended) -> None:
        """Count one that failed."""
        self._count(EXTENSIONS, event, "refused" if event.refused else "unanswered")

    def on_lost(self, event: Lost) -> None:
        """Count a loss, and for how long the lease was held."""
        self._count(LOSSES, event, event.reason.value)
        self._count(HOLDS, event, value=event.held_for)

    def on_released(self, event: Released) -> None:
        """Count a release, and for how long the lease was held, unless its loss has been."""
        if not event.lost:
            self._count(HOLDS, event, value=event.held_for)

    def on_quorum_changed(self, event: QuorumChanged) -> None:
        """Count a time from which on no lock can be acquired."""
        if not event.available:
            self.record(QUORUM_LOST, ())

    def on_clock_stepped(self, event: ClockStepped) -> None:
        """Count a jump of a clock."""
        self.record(STEPS, (event.node or "",))

    def on_loop_stalled(self, event: LoopStalled) -> None:
        """Count a loop that stood still."""
        self.record(STALLS, ())


def outcome(event: GaveUp) -> str:
    """Return how a call that got no lock ended: `taken`, `no_quorum` or `cancelled`."""
    if event.taken is None:
        return "cancelled"
    return "taken" if event.taken else "no_quorum"
