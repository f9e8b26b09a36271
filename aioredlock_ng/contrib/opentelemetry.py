"""Traces and metrics of locks for OpenTelemetry.

    hooks = OpenTelemetryHooks()
    manager = LockManager(nodes, hooks=[hooks])

Needs the package `opentelemetry-api` (the extra ``opentelemetry``); without an SDK in the program all of it
does nothing.  One object serves all managers of a process.  No name of a lock is exported, only labels and
kinds; in metrics all labels beyond the first hundred count as ``(others)``.

**Spans.** ``lock acquire`` is one call, as long as it took; one that got no lock is an error.  ``lock held``
is one lease, from the win to its end, with a link to the call that won it, and an event for each extension;
a lease that was lost is an error.  Both are children of the span that called `acquire`.

**Metrics.** Their meaning is that of `contrib.prometheus`: ``redlock.acquire.duration``,
``redlock.hold.duration`` (seconds), ``redlock.refused``, ``redlock.waits``, ``redlock.handed_off``,
``redlock.extensions``, ``redlock.losses``, ``redlock.quorum.lost``, ``redlock.clock.steps``,
``redlock.loop.stalls`` (counters), ``redlock.held``, ``redlock.waiting``, ``redlock.quorum.margin``,
``redlock.conflict``, ``redlock.strangers``, ``redlock.node.up``, ``redlock.node.quarantined``,
``redlock.node.round_trip``, ``redlock.node.clock_offset``, ``redlock.node.pending_releases``,
``redlock.calls.ahead`` (as they are when they are read).  Attributes:
``redlock.label``, ``redlock.kind``, ``redlock.outcome``, ``redlock.reason``, ``redlock.behind``,
``redlock.node``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, final

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
from opentelemetry.trace import Link, Span, Status, StatusCode, TracerProvider, get_tracer_provider

from ..events import Acquired, Downgraded, Extended, GaveUp, Lost, NotExtended, Released
from ._metrics import COUNTERS, HISTOGRAMS, Metric, MetricHooks, Readings, outcome

__all__ = ["OpenTelemetryHooks"]

SCOPE: Final = "aioredlock_ng"

MAX_SPANS: Final = 10_000
"""Leases that have an open span; beyond that a lease has none."""

LABEL: Final = "redlock.label"
KIND: Final = "redlock.kind"


@final
class OpenTelemetryHooks(MetricHooks):
    """Hooks that make spans and metrics.

    Args:
        tracer_provider: default: that of the program.
        meter_provider: default: that of the program.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        super().__init__()
        self._tracer = (tracer_provider or get_tracer_provider()).get_tracer(SCOPE)
        meter = (meter_provider or get_meter_provider()).get_meter(SCOPE)
        self._spans: dict[int, Span] = {}  # by the number of the lease
        self._record: dict[Metric, Callable[[float, Mapping[str, str]], None]] = {
            metric: meter.create_histogram(f"redlock.{metric.name}", metric.unit, metric.what).record
            for metric in HISTOGRAMS
        }
        for metric in COUNTERS:
            self._record[metric] = meter.create_counter(
                f"redlock.{metric.name}", metric.unit, metric.what
            ).add
        for metric, read in self.gauges():
            meter.create_observable_gauge(
                f"redlock.{metric.name}", [_reading(metric, read)], metric.unit, metric.what
            )

    def record(self, metric: Metric, labels: tuple[str, ...], value: float = 1) -> None:
        """Add one event to a metric."""
        self._record[metric](value, _attributes(metric, labels))

    # -- spans -----------------------------------------------------------------------------------

    def on_acquired(self, event: Acquired) -> None:
        """End the span of a call that won, and begin that of the lease."""
        super().on_acquired(event)
        call = self._call_ended(event)
        call.end()
        if len(self._spans) < MAX_SPANS:
            link = Link(call.get_span_context())
            held = self._spans[event.lease] = self._tracer.start_span(
                "lock held", attributes={LABEL: event.label, KIND: event.kind}, links=[link]
            )
            if event.fence is not None:
                held.set_attribute("redlock.fence", event.fence)

    def on_gave_up(self, event: GaveUp) -> None:
        """End the span of a call that did not win, in an error."""
        super().on_gave_up(event)
        _fail(self._call_ended(event), outcome(event))

    def _call_ended(self, event: Acquired | GaveUp) -> Span:
        began = time.time_ns() - int(event.waited * 1e9)
        attributes: dict[str, str | int] = {LABEL: event.label, KIND: event.kind}
        attributes["redlock.attempts"] = event.attempts
        return self._tracer.start_span("lock acquire", start_time=began, attributes=attributes)

    def _note(self, lease: int, what: str, **attributes: str | float) -> None:
        if (span := self._spans.get(lease)) is not None:
            span.add_event(what, {f"redlock.{name}": value for name, value in attributes.items()})

    def on_extended(self, event: Extended) -> None:
        """Note an extension."""
        super().on_extended(event)
        self._note(event.lease, "extended", remaining=event.remaining)

    def on_not_extended(self, event: NotExtended) -> None:
        """Note one that failed."""
        super().on_not_extended(event)
        why = "refused" if event.refused else "unanswered"
        self._note(event.lease, "not extended", outcome=why, remaining=event.remaining)

    def on_downgraded(self, event: Downgraded) -> None:
        """Note that a writer became a reader."""
        self._note(event.lease, "downgraded")

    def on_lost(self, event: Lost) -> None:
        """End the span of the lease, in an error."""
        super().on_lost(event)
        if (span := self._spans.pop(event.lease, None)) is not None:
            _fail(span, event.reason.value, "lost: ")

    def on_released(self, event: Released) -> None:
        """End the span of the lease."""
        super().on_released(event)
        if (span := self._spans.pop(event.lease, None)) is not None:
            span.end()


def _fail(span: Span, why: str, before: str = "") -> None:
    span.set_attribute("error.type", why)
    span.set_status(Status(StatusCode.ERROR, f"{before}{why}"))
    span.end()


def _attributes(metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
    return {f"redlock.{name}": value for name, value in zip(metric.labels, labels, strict=True)}


def _reading(
    metric: Metric, read: Callable[[], Readings]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _: [Observation(value, _attributes(metric, of)) for of, value in read().items()]
