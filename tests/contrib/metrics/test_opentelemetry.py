"""Spans and metrics of locks, as the SDK of OpenTelemetry exports them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from aioredlock_ng import LockTakenError
from aioredlock_ng.contrib.opentelemetry import OpenTelemetryHooks
from aioredlock_ng.testing import lose
from tests.unit.tasks import virtual
from tests.unit.worlds import LATENCY, TTL, opened, world


class Telemetry:
    """A program's providers, whose exports stay in memory."""

    def __init__(self) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self._meters = TracerProvider(), MeterProvider([self._metrics])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.hooks = OpenTelemetryHooks(self.tracers, self._meters)

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the spans of a name that have ended."""
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def metrics(self) -> dict[str, dict[tuple[Any, ...], float]]:
        """Return the values by name and attributes: label, kind, the others; of histograms how many."""
        data = self._metrics.get_metrics_data()
        return {
            metric.name: {
                tuple(
                    value
                    for _, value in sorted(
                        (point.attributes or {}).items(),
                        key=lambda one: (one[0] != "redlock.label", one[0] != "redlock.kind"),
                    )
                ): getattr(point, "count", None) or getattr(point, "value", 0)
                for point in metric.data.data_points
            }
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@virtual
async def test_a_lease_is_a_span_with_its_extensions() -> None:
    """A child of the caller's span, linked to the call that won; without the name of the lock."""
    telemetry = Telemetry()
    async with world(hooks=[telemetry.hooks]) as w:
        tracer = telemetry.tracers.get_tracer("test")
        with tracer.start_as_current_span("request") as request:
            async with w.manager.lock("secret", label="job:{id}") as lease:
                await asyncio.sleep(TTL / 2)
        (call,), (held,) = telemetry.spans("lock acquire"), telemetry.spans("lock held")
        for span in (call, held):
            assert span.parent is not None
            assert span.parent.span_id == request.get_span_context().span_id
            assert span.attributes is not None
            assert span.attributes["redlock.label"] == "job:{id}"
            assert "secret" not in span.to_json()
        assert [link.context.span_id for link in held.links] == [call.context.span_id]
        assert held.attributes is not None
        assert held.attributes["redlock.fence"] == lease.fence
        assert [event.name for event in held.events] == ["extended"]
        assert held.status.status_code is not StatusCode.ERROR
        assert call.start_time is not None
        assert call.end_time is not None
        assert call.end_time - call.start_time >= 2 * LATENCY * 1e9


@virtual
async def test_a_call_without_a_lock_is_an_error() -> None:
    """It says how it ended; no lease begins."""
    telemetry = Telemetry()
    async with world(hooks=[telemetry.hooks]) as w, opened(w.nodes, seed=2) as other, other.lock("a"):
        with pytest.raises(LockTakenError):
            await w.manager.lock("a", blocking_timeout=0.3).acquire()
    (call,) = telemetry.spans("lock acquire")
    assert call.status.status_code is StatusCode.ERROR
    assert call.attributes is not None
    assert call.attributes["error.type"] == "taken"
    assert not telemetry.spans("lock held")


@virtual
async def test_metrics_have_the_names_of_opentelemetry() -> None:
    """Of all that ``test_prometheus.py`` counts: a histogram, a counter, gauges of the manager."""
    telemetry = Telemetry()
    async with world(5, hooks=[telemetry.hooks]) as w, opened(w.nodes, seed=2) as other:
        async with other.lock("a"):
            waits = asyncio.create_task(w.manager.lock("a", label="x").acquire())
            await asyncio.sleep(0.1)
            assert telemetry.metrics()["redlock.waiting"] == {(): 1}
        lease = await waits
        now = telemetry.metrics()
        assert now["redlock.held"] == {("x", "mutex"): 1}
        assert now["redlock.acquire.duration"] == {("x", "mutex", "won"): 1}
        assert now["redlock.quorum.margin"] == {(): 2}
        assert set(now["redlock.node.up"].values()) == {1}
        assert len(now["redlock.node.round_trip"]) == 5
        await lease.release()


@virtual
async def test_a_loss_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The span ends with the loss and says why, once; after more losses than spans may be open, too."""
    monkeypatch.setattr("aioredlock_ng.contrib.opentelemetry.MAX_SPANS", 2)
    telemetry = Telemetry()
    async with world(hooks=[telemetry.hooks]) as w:
        for number in range(4):
            lease = await w.manager.lock("a").acquire()
            lose(w.manager, "a")
            await asyncio.sleep(0.1)
            await lease.release()
            held = telemetry.spans("lock held")
            assert len(held) == number + 1
            assert held[-1].status.status_code is StatusCode.ERROR
            assert (held[-1].attributes or {})["error.type"] == "refused"
    assert telemetry.metrics()["redlock.hold.duration"] == {("mutex", "mutex"): 4}
