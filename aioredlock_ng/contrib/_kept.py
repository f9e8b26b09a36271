"""What managers tell of themselves, in the files that any worker reads in Prometheus' mode for several."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Final, Literal, Protocol, TypeAlias, final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import Metric

MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that turns that mode on."""

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


class Told(Protocol):
    """What tells of the managers."""

    def describe(self) -> Iterable[Metric]:
        """Name the metrics."""

    def collect(self) -> Iterable[Metric]:
        """Ask the managers."""


@final
class Kept:
    """Gauges that a thread of this process sets, until this object is dropped."""

    def __init__(self, told: Told, namespace: str, registry: CollectorRegistry) -> None:
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
