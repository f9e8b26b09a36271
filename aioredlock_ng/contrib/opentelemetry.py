"""Traces and metrics of locks for OpenTelemetry.

    hooks = OpenTelemetryHooks()
    manager = LockManager(nodes, hooks=[hooks])

Needs the package `opentelemetry-api` (the extra ``opentelemetry``); without an SDK in the program all of it
does nothing.  One object serves all managers of a process.  No name of a lock is told, only labels and kinds;
in metrics all labels beyond the first hundred count as ``(others)``.

**Spans.** ``lock acquire`` is one call, as long as it took; one that got no lock is an error.  ``lock held``
is one lease, from the win to its end, with a link to the call that won it, and an event for each extension;
a lease that was lost is an error.  Both are children of the span that called `acquire`.

**Metrics.** Their meaning is that of `contrib.prometheus`: ``redlock.acquire.duration``,
``redlock.hold.duration`` (seconds), ``redlock.tries.refused``, ``redlock.waits``, ``redlock.handed_off``,
``redlock.extensions``, ``redlock.losses``, ``redlock.quorum.lost``, ``redlock.clock.steps``,
``redlock.loop.stalls`` (counters), ``redlock.held``, ``redlock.waiting``, ``redlock.quorum.margin``,
``redlock.conflict``, ``redlock.strangers``, ``redlock.node.up``, ``redlock.node.quarantined``,
``redlock.node.round_trip``, ``redlock.node.clock_offset`` (as they are when they are read).  Attributes:
``redlock.label``, ``redlock.kind``, ``redlock.outcome``, ``redlock.reason``, ``redlock.behind``,
``redlock.node``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, final

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
from opentelemetry.trace import Link, Span, Status, StatusCode, TracerProvider, get_tracer_provider

from ..events import (
    Acquired,
    ClockStepped,
    Downgraded,
    Extended,
    GaveUp,
    Hooks,
    LoopStalled,
    Lost,
    NotExtended,
    QuorumChanged,
    Refused,
    Released,
    Waiting,
)
from ._labels import WON, Labels, Managers, held_by_label, outcome

if TYPE_CHECKING:
    from .. import ManagerStatistics, NodeStatistics

__all__ = ["OpenTelemetryHooks"]

SCOPE: Final = "aioredlock_ng"
"""What the instruments and spans are of."""

MAX_SPANS: Final = 10_000
"""Leases that have an open span; beyond that a lease has none."""

LABEL: Final = "redlock.label"
KIND: Final = "redlock.kind"
OUTCOME: Final = "redlock.outcome"
REASON: Final = "redlock.reason"
BEHIND: Final = "redlock.behind"
NODE: Final = "redlock.node"


@final
class OpenTelemetryHooks(Hooks):
    """Hooks that make spans and metrics.

    Args:
        tracer_provider: default: that of the program.
        meter_provider: default: that of the program.
    """

    wants_votes = False

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._tracer = (tracer_provider or get_tracer_provider()).get_tracer(SCOPE)
        meter = (meter_provider or get_meter_provider()).get_meter(SCOPE)
        self._labels, self._managers = Labels(), Managers()
        self._held: dict[int, Span] = {}  # by the number of the lease
        self._acquires = meter.create_histogram("redlock.acquire.duration", "s", "Calls of acquire")
        self._holds = meter.create_histogram("redlock.hold.duration", "s", "Leases that ended")
        self._refused = meter.create_counter(
            "redlock.tries.refused", "{try}", "Attempts that did not get the lock"
        )
        self._waits = meter.create_counter("redlock.waits", "{call}", "Calls that had to wait")
        self._handed_off = meter.create_counter(
            "redlock.handed_off",
            "{lease}",
            "Acquires by hand-off within the process, without asking the nodes",
        )
        self._extensions = meter.create_counter("redlock.extensions", "{extension}", "Extensions of leases")
        self._losses = meter.create_counter("redlock.losses", "{lease}", "Leases that were lost")
        self._quorum_lost = meter.create_counter(
            "redlock.quorum.lost", "{time}", "Times that no lock could be acquired any more"
        )
        self._steps = meter.create_counter("redlock.clock.steps", "{step}", "Jumps of clocks")
        self._stalls = meter.create_counter("redlock.loop.stalls", "{stall}", "Stalls of the event loop")
        for name, unit, what, read in (
            ("redlock.held", "{lease}", "Leases that are held now", self._count_held),
            ("redlock.waiting", "{call}", "Calls that wait now", self._count_waiting),
            (
                "redlock.quorum.margin",
                "{node}",
                "How many more nodes may fail before no lock can be acquired",
                self._margin,
            ),
            (
                "redlock.conflict",
                "1",
                "Whether the nodes cannot be one quorum: no lock can be acquired",
                self._conflict,
            ),
            (
                "redlock.strangers",
                "{server}",
                "Servers that other clients use and the list of nodes lacks",
                self._strangers,
            ),
        ):
            meter.create_observable_gauge(name, [read], unit, what)
        for name, unit, what, of_node in _OF_NODES:
            meter.create_observable_gauge(name, [self._reading(of_node)], unit, what)

    def attach(self, statistics: Callable[[], ManagerStatistics | None]) -> None:
        """Have what a manager tells of itself among the metrics, as long as it is there."""
        self._managers.attach(statistics)

    # -- calls -----------------------------------------------------------------------------------

    def on_acquired(self, event: Acquired) -> None:
        """Tell of a call that won, and of the lease that begins."""
        of = self._of(event)
        self._acquires.record(event.waited, {**of, OUTCOME: WON})
        if event.handed_off:
            self._handed_off.add(1, of)
        call = self._call_ended(event)
        call.set_attribute("redlock.attempts", event.attempts)
        call.end()
        if len(self._held) < MAX_SPANS:
            link = Link(call.get_span_context())
            held = self._held[event.lease] = self._tracer.start_span(
                "lock held", attributes={LABEL: event.label, KIND: event.kind}, links=[link]
            )
            if event.fence is not None:
                held.set_attribute("redlock.fence", event.fence)

    def on_gave_up(self, event: GaveUp) -> None:
        """Tell of a call that did not win."""
        ended = outcome(event)
        self._acquires.record(event.waited, {**self._of(event), OUTCOME: ended})
        call = self._call_ended(event)
        call.set_attribute("redlock.attempts", event.attempts)
        call.set_attribute("error.type", ended)
        call.set_status(Status(StatusCode.ERROR, ended))
        call.end()

    def on_refused(self, event: Refused) -> None:
        """Count an attempt that did not get the lock."""
        self._refused.add(1, {**self._of(event), REASON: "taken" if event.taken else "no_quorum"})

    def on_waiting(self, event: Waiting) -> None:
        """Count a call that has to wait."""
        self._waits.add(1, {**self._of(event), BEHIND: "nodes" if event.votes else "process"})

    def _call_ended(self, event: Acquired | GaveUp) -> Span:
        began = time.time_ns() - int(event.waited * 1e9)
        attributes = {LABEL: event.label, KIND: event.kind}
        return self._tracer.start_span("lock acquire", start_time=began, attributes=attributes)

    def _of(
        self, event: Acquired | GaveUp | Refused | Waiting | Extended | NotExtended | Lost | Released
    ) -> dict[str, str]:
        return {LABEL: self._labels.of(event.label), KIND: event.kind}

    # -- leases ----------------------------------------------------------------------------------

    def on_extended(self, event: Extended) -> None:
        """Tell of an extension."""
        self._extensions.add(1, {**self._of(event), OUTCOME: "extended"})
        if (span := self._held.get(event.lease)) is not None:
            span.add_event("extended", {"redlock.remaining": event.remaining})

    def on_not_extended(self, event: NotExtended) -> None:
        """Tell of one that failed."""
        why = "refused" if event.refused else "unanswered"
        self._extensions.add(1, {**self._of(event), OUTCOME: why})
        if (span := self._held.get(event.lease)) is not None:
            span.add_event("not extended", {OUTCOME: why, "redlock.remaining": event.remaining})

    def on_downgraded(self, event: Downgraded) -> None:
        """Tell of a writer that became a reader."""
        if (span := self._held.get(event.lease)) is not None:
            span.add_event("downgraded")

    def on_lost(self, event: Lost) -> None:
        """Tell of a loss: the lease ends, in an error."""
        self._losses.add(1, {**self._of(event), REASON: event.reason.value})
        self._holds.record(event.held_for, self._of(event))
        if (span := self._held.pop(event.lease, None)) is not None:
            span.set_attribute("error.type", event.reason.value)
            span.set_status(Status(StatusCode.ERROR, f"lost: {event.reason.value}"))
            span.end()

    def on_released(self, event: Released) -> None:
        """Tell of the end of a lease."""
        if event.lost:
            return
        self._holds.record(event.held_for, self._of(event))
        if (span := self._held.pop(event.lease, None)) is not None:
            span.end()

    # -- the rest --------------------------------------------------------------------------------

    def on_quorum_changed(self, event: QuorumChanged) -> None:
        """Count a time from which on no lock can be acquired."""
        if not event.available:
            self._quorum_lost.add(1)

    def on_clock_stepped(self, event: ClockStepped) -> None:
        """Count a jump of a clock."""
        self._steps.add(1, {NODE: event.node or ""})

    def on_loop_stalled(self, event: LoopStalled) -> None:
        """Count a loop that stood still."""
        self._stalls.add(1)

    def _count_held(self, _: CallbackOptions) -> Iterable[Observation]:
        held: dict[tuple[str, str], int] = {}
        for told in self._managers:
            for of, count in held_by_label(told, self._labels).items():
                held[of] = held.get(of, 0) + count
        return [Observation(count, {LABEL: label, KIND: kind}) for (label, kind), count in held.items()]

    def _count_waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(sum(told.waiting for told in self._managers))]

    def _margin(self, _: CallbackOptions) -> Iterable[Observation]:
        margins = [told.quorum_margin for told in self._managers]
        return [Observation(min(margins))] if margins else []

    def _conflict(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(int(any(told.conflict for told in self._managers)))]

    def _strangers(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(max((len(told.strangers) for told in self._managers), default=0))]

    def _reading(
        self, read: Callable[[NodeStatistics], float | None]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            nodes = {node.name: read(node) for told in self._managers for node in told.nodes}
            return [Observation(value, {NODE: name}) for name, value in nodes.items() if value is not None]

        return observe


_OF_NODES: Final[tuple[tuple[str, str, str, Callable[[NodeStatistics], float | None]], ...]] = (
    (
        "redlock.node.up",
        "1",
        "Whether a node is up: it may vote, and accepts writes",
        lambda node: int(node.state == "up"),
    ),
    (
        "redlock.node.quarantined",
        "1",
        "Whether a node has no vote because of a quarantine",
        lambda node: int(node.state == "quarantined"),
    ),
    (
        "redlock.node.round_trip",
        "s",
        "Round trip of the last heartbeat of a node",
        lambda node: node.round_trip,
    ),
    ("redlock.node.clock_offset", "s", "How far a node's clock is ahead", lambda node: node.clock),
)
