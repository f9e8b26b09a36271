"""Metrics for Prometheus: what locks cost, what waits, why leases are lost, how near its edge the quorum is.

    hooks = PrometheusHooks()
    manager = LockManager(nodes, hooks=[hooks])

Needs the package `prometheus_client` (the extra ``prometheus``).  One object serves all managers of a
process.  Metrics are labelled by `label` and kind, never by names; beyond a hundred labels the others count
as ``(others)``.  What managers tell of themselves is asked for when the registry is read; it takes no I/O.

=====================================  =========  ====================================================
metric, each with the namespace        labels     what it counts
=====================================  =========  ====================================================
`acquire_duration_seconds`             l k o      calls of `acquire`, by how they ended: outcome is
                                                  ``won``, ``taken``, ``no_quorum``, ``cancelled``
`refused_total`                        l k r      attempts without a lock: ``taken``, ``no_quorum``
`waits_total`                          l k b      calls that had to wait: behind ``nodes``, or a task of
                                                  this ``process``
`handed_off_total`                     l k        acquires for which no node was asked (R43)
`calls_ahead`                          l          calls before the last refused one, in the queue of a
                                                  fair lock (R28)
`hold_duration_seconds`                l k        leases that ended, by how long they were held
`extensions_total`                     l k o      extensions: ``extended``, ``unanswered``, ``refused``
`losses_total`                         l k r      leases lost, by `LossReason`
`held`, `waiting`                      l k, –     leases that are held now; calls that wait now
`node_up`, `node_quarantined`          n          1 or 0
`node_round_trip_seconds`              n          of the last heartbeat
`node_clock_offset_seconds`            n          how far its clock is ahead of this machine's (R14)
`node_pending_releases`                n          releases that it has not acknowledged (R5)
`clock_steps_total`                    n          jumps of its clock; ``""``: of our own
`quorum_margin`                        –          nodes that may fail until nothing can be locked; less
                                                  than 0: that many are missing; of several managers the least
`quorum_lost_total`                    –          times that no lock could be acquired any more
`conflict`                             –          1 while nothing can be locked, whatever the nodes answer:
                                                  `ManagerStatistics.conflict` says why
`strangers`                            –          servers that other clients use and the list of nodes
                                                  lacks (R12c): `ManagerStatistics.strangers`; of several
                                                  managers the most, as with `conflict`
`loop_stalls_total`                    –          times that the event loop stood still
=====================================  =========  ====================================================

Labels: l `label`, k `kind`, n `node`, o `outcome`, r `reason`, b `behind`.

With ``PROMETHEUS_MULTIPROC_DIR``, where any worker answers for all, what managers tell of themselves is
written down every second: of living workers the sum of `held`, `waiting` and `node_pending_releases`, the
least `quorum_margin`, the greatest of the others.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, TypeAlias, final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from ..events import NodeChanged
from ._metrics import COUNTERS, HISTOGRAMS, Metric, MetricHooks, Readings

__all__ = ["PrometheusHooks"]

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: from a round trip to a minute."""


@final
class PrometheusHooks(MetricHooks):
    """Hooks that keep metrics in a registry of `prometheus_client`.

    Args:
        registry: where they are read from; a second object needs another one, or another namespace.
        namespace: begins every name.
        buckets: upper bounds of the histograms, in seconds.

    Raises:
        ValueError: the registry has metrics of these names already.
    """

    _kept: Kept | None = None

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        namespace: str = "redlock",
        buckets: tuple[float, ...] = BUCKETS,
    ) -> None:
        super().__init__()
        self._metrics: dict[Metric, Counter | Histogram] = {
            metric: Histogram(
                _name(metric, namespace), metric.what, metric.labels, registry=None, buckets=buckets
            )
            for metric in HISTOGRAMS
        }
        for metric in COUNTERS:
            name = _name(metric, namespace)
            self._metrics[metric] = Counter(name, metric.what, metric.labels, registry=None)
        self._series: dict[tuple[str, tuple[str, ...]], Callable[[float], None]] = {}
        gauges = {_name(metric, namespace): (metric, read) for metric, read in self.gauges()}
        if MULTIPROCESS_VARIABLE in os.environ:
            self._kept = Kept(gauges, registry)
        now = _Now(list(self._metrics.values()), {} if self._kept else gauges)
        try:
            registry.register(now)  # all of them, or none
        except ValueError as error:
            raise ValueError(
                "one PrometheusHooks serves all managers of a process; another one needs a registry, or a "
                f"namespace, of its own: {error}"
            ) from error

    def record(self, metric: Metric, labels: tuple[str, ...], value: float = 1) -> None:
        """Add one event to a metric."""
        key = metric.name, labels
        add = self._series.get(key)
        if add is None:  # to look it up by its labels takes longer than to count
            series = self._metrics[metric]
            series = series.labels(*labels) if labels else series
            add = self._series[key] = series.observe if isinstance(series, Histogram) else series.inc
        add(value)

    def on_node_changed(self, event: NodeChanged) -> None:
        """Keep the gauges, where several processes are one to Prometheus: a manager runs here."""
        if self._kept is not None:
            self._kept.begin()


def _name(metric: Metric, namespace: str) -> str:
    seconds = "_seconds" if metric.unit == "s" else ""
    return f"{namespace}_{metric.name.replace('.', '_')}{seconds}"


_Gauges: TypeAlias = Mapping[str, tuple[Metric, Callable[[], Readings]]]


@final
class _Now(Collector):
    """All metrics; the gauges are read off the managers when Prometheus asks."""

    def __init__(self, counted: list[Counter | Histogram], gauges: _Gauges) -> None:
        self._counted = counted
        self._gauges = gauges

    def describe(self) -> Iterator[Family]:
        """Name the metrics, so that the registry can tell when a name is there twice."""
        for metric in self._counted:
            yield from metric.describe()
        yield from (GaugeMetricFamily(name, metric.what) for name, (metric, _) in self._gauges.items())

    def collect(self) -> Iterator[Family]:
        """Return what was counted, and ask the managers."""
        for counted in self._counted:
            yield from counted.collect()
        for name, (metric, read) in self._gauges.items():
            family = GaugeMetricFamily(name, metric.what, labels=metric.labels)
            for labels, value in read().items():
                family.add_metric(labels, value)
            yield family


MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which any worker answers for all."""

KEPT_EVERY: Final = 1.0
"""Seconds between two looks at the managers."""

Mode: TypeAlias = Literal["livemin", "livesum", "livemax"]

MODES: Final[dict[str, Mode]] = {
    "quorum.margin": "livemin",
    "held": "livesum",
    "waiting": "livesum",
    "node.pending_releases": "livesum",
}
"""The way in which the processes' values become one; of all others the greatest counts."""


@final
class Kept:
    """Gauges that a thread of this process sets, until this object is dropped."""

    def __init__(self, gauges: _Gauges, registry: CollectorRegistry) -> None:
        self._read = gauges
        self._registry = registry
        self._gauges: dict[str, Gauge] = {}
        self._runs_in: int | None = None

    def begin(self) -> None:
        """Set them from now on in this process; called again, it does nothing more.

        Not before a manager has started here: a parent that only forks its workers has nothing to show, and
        a gauge that it made would be 0 for all.
        """
        if self._runs_in != os.getpid():
            self._runs_in = os.getpid()
            self._gauges = self._gauges or {name: self._gauge(name) for name in self._read}
            keep = (weakref.ref(self),)
            threading.Thread(target=_keep, args=keep, name="aioredlock_ng metrics", daemon=True).start()

    def _gauge(self, name: str) -> Gauge:
        metric, _ = self._read[name]
        mode = MODES.get(metric.name, "livemax")
        return Gauge(name, metric.what, metric.labels, registry=self._registry, multiprocess_mode=mode)

    def set(self) -> None:
        """Set all gauges to what the managers show now."""
        for name, (_, read) in self._read.items():
            for labels, value in read().items():
                gauge = self._gauges[name]
                (gauge.labels(*labels) if labels else gauge).set(value)


def _keep(kept: weakref.ref[Kept]) -> None:
    while (this := kept()) is not None:
        this.set()
        del this
        time.sleep(KEPT_EVERY)
