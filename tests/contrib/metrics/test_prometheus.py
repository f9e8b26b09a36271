"""Metrics of locks, read as Prometheus reads them: what they count, and that they stay few."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aioredlock_ng import ConfigurationError, LockTakenError, QuorumUnavailableError
from aioredlock_ng.contrib.prometheus import PrometheusHooks
from aioredlock_ng.testing import MemoryNode, lose
from tests.unit.tasks import virtual
from tests.unit.worlds import LATENCY, TTL, make, opened, world


def read(registry: CollectorRegistry) -> dict[str, dict[tuple[str, ...], float]]:
    """Return what a scrape finds: values by name, and by their labels: label, kind, the others."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            if not sample.name.endswith(("_created", "_bucket")):
                labels = sorted(sample.labels.items(), key=lambda one: (one[0] != "label", one[0] != "kind"))
                found.setdefault(sample.name, {})[tuple(value for _, value in labels)] = sample.value
    return found


@virtual
async def test_calls_are_counted_by_how_they_end() -> None:
    """Won, taken, without a quorum, cancelled; with the seconds that each took."""
    registry = CollectorRegistry()
    async with world(hooks=[PrometheusHooks(registry)]) as w, opened(w.nodes, seed=2) as other:
        async with w.manager.lock("a", label="job:{id}"):
            pass
        async with other.lock("a"):
            with pytest.raises(LockTakenError):
                await w.manager.lock("a", label="job:{id}", blocking_timeout=0.5).acquire()
            task = asyncio.create_task(w.manager.lock("a", label="job:{id}").acquire())
            await asyncio.sleep(0.5)
            assert read(registry)["redlock_waiting"][()] == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for node in w.nodes:
            node.freeze()
        with pytest.raises(QuorumUnavailableError):
            await w.manager.lock("a", label="job:{id}", blocking_timeout=0).acquire()
        for node in w.nodes:
            node.thaw()
        found = read(registry)
        assert found["redlock_acquire_duration_seconds_count"] == {
            ("job:{id}", "mutex", outcome): 1 for outcome in ("won", "taken", "cancelled", "no_quorum")
        }
        took = found["redlock_acquire_duration_seconds_sum"]["job:{id}", "mutex", "taken"]
        assert took == pytest.approx(0.5, abs=0.1)
        assert found["redlock_waits_total"] == {("job:{id}", "mutex", "nodes"): 2}
        assert found["redlock_refused_total"]["job:{id}", "mutex", "no_quorum"] >= 1
        assert found["redlock_hold_duration_seconds_count"] == {("job:{id}", "mutex"): 1}


@virtual
async def test_leases_are_counted_by_how_they_go_on_and_end() -> None:
    """Held now, extended, lost by its reason; a lease that was lost ends once."""
    registry = CollectorRegistry()
    async with world(hooks=[PrometheusHooks(registry)]) as w:
        async with w.manager.lock("a", label="x"), w.manager.rwlock("b", label="y").read():
            await asyncio.sleep(TTL / 2)
            assert read(registry)["redlock_held"] == {("x", "mutex"): 1, ("y", "read"): 1}
        lease = await w.manager.lock("a", label="x").acquire()
        lose(w.manager, "a")
        await lease.release()
        lease = await w.manager.lock("a", label="x").acquire()
        w.vacate("a")
        await asyncio.sleep(TTL / 2)
        await lease.release()
        found = read(registry)
        assert set(found["redlock_held"].values()) == {0}
        assert found["redlock_extensions_total"] == {
            ("x", "mutex", "extended"): 1,
            ("x", "mutex", "refused"): 1,
            ("y", "read", "extended"): 1,
        }
        assert sum(found["redlock_losses_total"].values()) == 2
        assert found["redlock_losses_total"]["x", "mutex", "refused"] >= 1
        assert found["redlock_hold_duration_seconds_count"] == {("x", "mutex"): 3, ("y", "read"): 1}


@virtual
async def test_waits_within_the_process_are_counted_apart() -> None:
    """A task behind another one waits for the process; what it is handed cost no node."""
    registry = CollectorRegistry()
    async with world(hooks=[PrometheusHooks(registry)]) as w:

        async def work() -> None:
            async with w.manager.lock("a", label="x"):
                await asyncio.sleep(0.01)

        await asyncio.gather(work(), work(), work())
        found = read(registry)
        assert found["redlock_waits_total"] == {("x", "mutex", "process"): 2}
        assert found["redlock_handed_off_total"] == {("x", "mutex"): 1}  # the first had no block


@virtual
async def test_calls_in_line_tell_their_place() -> None:
    """The number that comes before the last one that was refused."""
    registry = CollectorRegistry()
    async with world(hooks=[PrometheusHooks(registry)]) as w, w.process() as first, w.process() as second:
        async with first.lock("a", fair=True):
            waits = asyncio.create_task(second.lock("a", fair=True, blocking_timeout=1).acquire())
            await asyncio.sleep(0.1)
            with pytest.raises(LockTakenError):
                await w.manager.lock("a", fair=True, label="x", blocking_timeout=0.4).acquire()
            assert read(registry)["redlock_calls_ahead"] == {("x",): 1}
        await (await waits).release()


@virtual
async def test_nodes_and_the_margin_of_the_quorum() -> None:
    """Of five two may fail; when one has lost its memory, one; without a majority it is less than nothing."""
    registry = CollectorRegistry()
    hooks = PrometheusHooks(registry)
    async with world(5, hooks=[hooks], restart_quarantine=30.0) as w:
        await asyncio.sleep(31)
        found = read(registry)
        assert found["redlock_quorum_margin"][()] == 2
        assert set(found["redlock_node_up"].values()) == {1}
        assert (
            len(found["redlock_node_round_trip_seconds"])
            == len(found["redlock_node_clock_offset_seconds"])
            == 5
        )
        w.nodes[0].restart()
        await asyncio.sleep(1)
        found = read(registry)
        assert found["redlock_quorum_margin"][()] == 1
        assert sorted(found["redlock_node_quarantined"].values()) == [0, 0, 0, 0, 1]
        for node in w.nodes[1:4]:
            node.crash()
        await asyncio.sleep(1)
        assert read(registry)["redlock_quorum_margin"][()] == -2
        for node in w.nodes[1:4]:
            node.restart()


@virtual
async def test_lists_of_nodes_that_differ() -> None:
    """The client that came first learns of a server that it lacks; the other one is refused as well."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(4)]
    first, second = CollectorRegistry(), CollectorRegistry()
    lists = (nodes[:3], first), ([*nodes[:2], nodes[3]], second)
    ours, theirs = (
        make(servers, restart_quarantine=60, hooks=[PrometheusHooks(registry)]) for servers, registry in lists
    )
    async with contextlib.aclosing(ours), contextlib.aclosing(theirs):
        async with ours.lock("a"):
            await asyncio.sleep(TTL)
        assert {read(first)[f"redlock_{name}"][()] for name in ("conflict", "strangers")} == {0}
        with pytest.raises(ConfigurationError):
            await theirs.lock("a").acquire()
        await asyncio.sleep(TTL)
        names = ("redlock_conflict", "redlock_strangers", "redlock_quorum_margin")
        assert [read(first)[name][()] for name in names] == [0, 1, 1]
        assert [read(second)[name][()] for name in names] == [1, 1, -2]


@virtual
async def test_a_flood_of_labels_and_names_stays_small() -> None:
    """A thousand labels are a hundred series and one, for all others; names are none at all."""
    registry = CollectorRegistry()
    async with world(hooks=[PrometheusHooks(registry)]) as w:
        for i in range(300):
            async with w.manager.lock(f"name-{i}", label=f"label-{i}"):
                pass
        found = read(registry)
        series = found["redlock_acquire_duration_seconds_count"]
        assert len(series) == 101
        assert series["(others)", "mutex", "won"] == 200
        assert "name-" not in generate_latest(registry).decode()


def test_a_registry_has_the_names_once() -> None:
    """A second object says what is there already, and what to do; with another namespace it has its own."""
    registry = CollectorRegistry()
    PrometheusHooks(registry)
    with pytest.raises(ValueError, match=r"one PrometheusHooks.*redlock_acquire_duration_seconds"):
        PrometheusHooks(registry)
    PrometheusHooks(registry, namespace="jobs")


def test_a_registry_gets_all_metrics_or_none() -> None:
    """One name that is in use leaves nothing behind: the next try is not refused because of the first."""
    registry = CollectorRegistry()
    theirs = Gauge("redlock_held", "Their own", registry=registry)
    with pytest.raises(ValueError, match="redlock_held"):
        PrometheusHooks(registry)
    registry.unregister(theirs)
    PrometheusHooks(registry)


@virtual
async def test_of_several_managers_the_least_margin_counts() -> None:
    """One that is near its edge is not hidden by another; nodes of both are there once.

    A manager that is closed is not seen any more, nor one that is gone: its hook does not keep it.
    """
    registry = CollectorRegistry()
    hooks = PrometheusHooks(registry)
    async with world(hooks=[hooks]) as w:
        async with opened(w.nodes, seed=2, hooks=[hooks]) as other, other.lock("a"), w.manager.lock("b"):
            assert sum(read(registry)["redlock_held"].values()) == 2
            assert len(read(registry)["redlock_node_up"]) == 3
        assert (other.statistics().closed, w.manager.statistics().closed) == (True, False)
        assert read(registry)["redlock_quorum_margin"] == {(): 1}
        async with world(5, hooks=[hooks]) as wide, wide.manager.lock("a"):
            w.nodes[0].crash()
            await asyncio.sleep(TTL)
            assert read(registry)["redlock_quorum_margin"] == {(): 0}
        del wide
    del w
    gc.collect()
    assert "redlock_quorum_margin" not in read(registry)
