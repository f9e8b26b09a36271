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
                                                  than 0: so many are missing; of several managers the least
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
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar, final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..events import (
    Acquired,
    ClockStepped,
    Extended,
    GaveUp,
    Hooks,
    LoopStalled,
    Lost,
    NodeChanged,
    NotExtended,
    QuorumChanged,
    Refused,
    Released,
    Waiting,
)
from ._labels import WON, Labels, Managers, held_by_label, outcome

if TYPE_CHECKING:
    from .. import ManagerStatistics, NodeStatistics

__all__ = ["PrometheusHooks"]

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: from a round trip to a minute."""

_M = TypeVar("_M", Counter, Gauge, Histogram)


@final
class PrometheusHooks(Hooks):
    """Hooks that keep metrics in a registry of `prometheus_client`.

    Args:
        registry: where they are read from; a second object needs another one, or another namespace.
        namespace: begins every name.
        buckets: upper bounds of the histograms, in seconds.

    Raises:
        ValueError: the registry has metrics of these names already.
    """

    wants_votes = False
    _kept: Kept | None = None

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        namespace: str = "redlock",
        buckets: tuple[float, ...] = BUCKETS,
    ) -> None:
        self._labels, self._managers = Labels(), Managers()

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(name, what, labels, namespace=namespace, registry=None)

        def histogram(name: str, what: str, *labels: str) -> Histogram:
            return Histogram(name, what, labels, namespace=namespace, registry=None, buckets=buckets)

        of = ("label", "kind")
        self._acquires = histogram(
            "acquire_duration_seconds", "Calls of acquire, by how they ended", *of, "outcome"
        )
        self._refused = counter("refused", "Attempts that did not get the lock", *of, "reason")
        self._waits = counter("waits", "Calls of acquire that had to wait", *of, "behind")
        self._handed_off = counter(
            "handed_off", "Acquires by hand-off within the process, without asking the nodes", *of
        )
        self._ahead = Gauge(
            "calls_ahead",
            "Calls ahead of the last refused call in the queue of a fair lock",
            ("label",),
            namespace=namespace,
            registry=None,
            multiprocess_mode="livemax",
        )
        self._holds = histogram("hold_duration_seconds", "Leases that ended", *of)
        self._extensions = counter("extensions", "Extensions of leases", *of, "outcome")
        self._losses = counter("losses", "Leases that were lost", *of, "reason")
        self._quorum_lost = counter("quorum_lost", "Times that no lock could be acquired any more")
        self._steps = counter("clock_steps", "Jumps of clocks", "node")
        self._stalls = counter("loop_stalls", "Stalls of the event loop")
        self._of: dict[tuple[object, ...], Counter | Gauge | Histogram] = {}
        metrics: list[Collector] = [
            each for each in vars(self).values() if isinstance(each, (Counter, Gauge, Histogram))
        ]
        now = _Now(namespace, self._managers, self._labels)
        if MULTIPROCESS_VARIABLE in os.environ:
            self._kept = Kept(now, namespace, registry)
        else:
            metrics.append(now)
        _register(registry, metrics)

    def _at(self, metric: _M, label: str, *rest: str) -> _M:
        """Return the series of a metric; to look it up by its labels takes longer than to count."""
        series = self._of.get((metric, label, *rest))
        if series is None:
            known = self._labels.of(label)
            series = metric.labels(known, *rest)
            if known == label:
                self._of[metric, label, *rest] = series
        return series  # type: ignore[return-value]  # of the same metric

    def attach(self, statistics: Callable[[], ManagerStatistics | None]) -> None:
        """Have what a manager tells of itself among the metrics, as long as it is there."""
        self._managers.attach(statistics)

    def on_node_changed(self, event: NodeChanged) -> None:
        """Keep what managers tell, where several processes are one to Prometheus: a manager runs here."""
        if self._kept is not None:
            self._kept.begin()

    def on_acquired(self, event: Acquired) -> None:
        """Count a call that won."""
        self._at(self._acquires, event.label, event.kind, WON).observe(event.waited)
        if event.handed_off:
            self._at(self._handed_off, event.label, event.kind).inc()

    def on_gave_up(self, event: GaveUp) -> None:
        """Count a call that did not."""
        self._at(self._acquires, event.label, event.kind, outcome(event)).observe(event.waited)

    def on_refused(self, event: Refused) -> None:
        """Count an attempt that did not get the lock."""
        reason = "taken" if event.taken else "no_quorum"
        self._at(self._refused, event.label, event.kind, reason).inc()
        if event.kind == "fair":
            self._at(self._ahead, event.label).set(event.ahead)

    def on_waiting(self, event: Waiting) -> None:
        """Count a call that has to wait."""
        behind = "nodes" if event.votes else "process"
        self._at(self._waits, event.label, event.kind, behind).inc()

    def on_extended(self, event: Extended) -> None:
        """Count an extension."""
        self._at(self._extensions, event.label, event.kind, "extended").inc()

    def on_not_extended(self, event: NotExtended) -> None:
        """Count one that failed."""
        why = "refused" if event.refused else "unanswered"
        self._at(self._extensions, event.label, event.kind, why).inc()

    def on_lost(self, event: Lost) -> None:
        """Count a loss, and for how long the lease was held."""
        self._at(self._losses, event.label, event.kind, event.reason.value).inc()
        self._at(self._holds, event.label, event.kind).observe(event.held_for)

    def on_released(self, event: Released) -> None:
        """Count a release, and for how long the lease was held, unless its loss has been."""
        if not event.lost:
            self._at(self._holds, event.label, event.kind).observe(event.held_for)

    def on_quorum_changed(self, event: QuorumChanged) -> None:
        """Count a time from which on no lock can be acquired."""
        if not event.available:
            self._quorum_lost.inc()

    def on_clock_stepped(self, event: ClockStepped) -> None:
        """Count a jump of a clock."""
        self._steps.labels(event.node or "").inc()

    def on_loop_stalled(self, event: LoopStalled) -> None:
        """Count a loop that stood still."""
        self._stalls.inc()


def _register(registry: CollectorRegistry, metrics: list[Collector]) -> None:
    """Put all metrics into a registry, or none."""
    there: list[Collector] = []
    try:
        for metric in metrics:
            registry.register(metric)
            there.append(metric)
    except ValueError as error:
        for metric in there:
            registry.unregister(metric)
        raise ValueError(
            "one PrometheusHooks serves all managers of a process; another one needs a registry, or a "
            f"namespace, of its own: {error}"
        ) from error


@final
class _Now(Collector):
    """What the managers tell of themselves when they are asked."""

    def __init__(self, namespace: str, managers: Managers, labels: Labels) -> None:
        self._namespace = namespace
        self._managers = managers
        self._labels = labels
        self._held: dict[tuple[str, str], int] = {}

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the metrics, so that the registry can tell when a name is there twice."""
        return self._families([])

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Ask the managers."""
        return self._families(list(self._managers))

    def _families(self, told: list[ManagerStatistics]) -> Iterator[GaugeMetricFamily]:
        def gauge(name: str, what: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"{self._namespace}_{name}", what, labels=labels)

        held = gauge("held", "Leases that are held now", "label", "kind")
        of = dict.fromkeys(self._held, 0)  # what is held no more is 0, not gone
        for each in told:
            for key, count in held_by_label(each, self._labels).items():
                of[key] = of.get(key, 0) + count
        self._held = of
        for key, count in of.items():
            held.add_metric(key, count)
        yield held
        waiting = gauge("waiting", "Calls of acquire that wait now")
        waiting.add_metric((), sum(each.waiting for each in told))
        yield waiting
        margin = gauge("quorum_margin", "How many more nodes may fail before no lock can be acquired")
        if told:
            margin.add_metric((), min(each.quorum_margin for each in told))
        yield margin
        conflict = gauge("conflict", "Whether the nodes cannot be one quorum: no lock can be acquired")
        conflict.add_metric((), any(each.conflict for each in told))
        yield conflict
        strangers = gauge("strangers", "Servers that other clients use and the list of nodes lacks")
        strangers.add_metric((), max((len(each.strangers) for each in told), default=0))
        yield strangers
        # Of several managers over the same nodes the last one speaks.
        nodes = {node.name: node for each in told for node in each.nodes}
        for name, what, read in _OF_NODES:
            family = gauge(name, what, "node")
            for node in nodes.values():
                if (value := read(node)) is not None:
                    family.add_metric((node.name,), value)
            yield family


_OF_NODES: Final[tuple[tuple[str, str, Callable[[NodeStatistics], float | None]], ...]] = (
    ("node_up", "Whether a node is up: it may vote, and accepts writes", lambda node: node.state == "up"),
    (
        "node_quarantined",
        "Whether a node has no vote because of a quarantine",
        lambda node: node.state == "quarantined",
    ),
    ("node_round_trip_seconds", "Round trip of the last heartbeat of a node", lambda node: node.round_trip),
    ("node_clock_offset_seconds", "How far a node's clock is ahead", lambda node: node.clock),
    (
        "node_pending_releases",
        "Releases that a node has not acknowledged",
        lambda node: node.pending_releases,
    ),
)


MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which any worker answers for all."""

KEPT_EVERY: Final = 1.0
"""Seconds between two looks at the managers."""

Mode: TypeAlias = Literal["livemin", "livesum", "livemax"]

MODES: Final[dict[str, Mode]] = {
    "quorum_margin": "livemin",
    "held": "livesum",
    "waiting": "livesum",
    "node_pending_releases": "livesum",
}
"""How the processes' values become one; of all others the greatest counts."""


@final
class Kept:
    """Gauges that a thread of this process sets, until this object is dropped."""

    def __init__(self, told: _Now, namespace: str, registry: CollectorRegistry) -> None:
        self._told = told
        self._namespace = namespace
        self._registry = registry
        self._gauges: dict[str, Gauge] = {}
        self._runs_in: int | None = None

    def begin(self) -> None:
        """Set them from now on in this process; called again, it does nothing more.

        Not before a manager has started here: a parent that only forks its workers has nothing to tell, and
        a gauge that it made would be 0 for all.
        """
        if self._runs_in != os.getpid():
            self._runs_in = os.getpid()
            self._gauges = self._gauges or {each.name: self._gauge(each) for each in self._told.describe()}
            keep = (weakref.ref(self),)
            threading.Thread(target=_keep, args=keep, name="aioredlock_ng metrics", daemon=True).start()

    def _gauge(self, family: Metric) -> Gauge:
        mode = MODES.get(family.name.removeprefix(f"{self._namespace}_"), "livemax")
        labels = getattr(family, "_labelnames", ())
        return Gauge(
            family.name, family.documentation, labels, registry=self._registry, multiprocess_mode=mode
        )

    def set(self) -> None:
        """Set all gauges to what the managers tell now."""
        for family in self._told.collect():
            gauge = self._gauges[family.name]
            for sample in family.samples:
                of = gauge.labels(**sample.labels) if sample.labels else gauge
                of.set(sample.value)


def _keep(kept: weakref.ref[Kept]) -> None:
    while (this := kept()) is not None:
        this.set()
        del this
        time.sleep(KEPT_EVERY)
