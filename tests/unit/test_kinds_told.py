"""What hooks, log and statistics hear of a lease says of what kind it is."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from aioredlock_ng import ExtensionPolicy, Lease, LockManager, LockTakenError, events
from aioredlock_ng._hold.hooks import METHODS
from aioredlock_ng.events import Downgraded, NotExtended
from aioredlock_ng.testing import lose
from tests.unit.test_log import logged
from tests.unit.worlds import LATENCY, TTL, in_task, opened, virtual, world

OF_LOCKS = {event for event in METHODS if "label" in event.__dataclass_fields__}
"""The events that are about a lock."""


class Diary:
    """Writes down all that is told."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        for method in METHODS.values():
            setattr(self, method, self.events.append)

    def about_locks(self) -> list[tuple[str, str]]:
        """Return what was told about locks, each with its kind."""
        return [(type(event).__name__, event.kind) for event in self.events if type(event) in OF_LOCKS]


def lock(manager: LockManager, kind: str, **options: Any) -> Any:
    """Describe a lock of a kind."""
    if kind in ("mutex", "fair"):
        return manager.lock("a", fair=kind == "fair", **options)
    return getattr(manager.rwlock("a", **options), kind)()


@pytest.mark.parametrize("kind", ["mutex", "fair", "read", "write"])
@virtual
async def test_every_event_about_a_lock_says_its_kind(kind: str) -> None:
    """From the call to the end, however it ends; an event of one's own making need not say it."""
    diary = Diary()
    low = ExtensionPolicy(max_extensions=2)
    async with world(hooks=[diary]) as w, opened(w.nodes, seed=2, hooks=[diary]) as other:
        async with lock(w.manager, kind, extension=low):
            with pytest.raises(LockTakenError):
                await lock(other, "write" if kind == "read" else kind, blocking_timeout=TTL).acquire()
        lease = await lock(w.manager, kind).acquire()
        lose(w.manager, "a")
        await lease.release()
        w.occupy("a", 1000.0)
        with pytest.raises(LockTakenError):
            await lock(w.manager, kind, blocking_timeout=1).acquire()
    told = diary.about_locks()
    assert {kind for _, kind in told} == ({"read", "write"} if kind == "read" else {kind})
    assert {name for name, of in told if of == kind} == {event.__name__ for event in OF_LOCKS} - {
        "Downgraded",
        "NotExtended",
    }
    plain = events.Released(names=("a",), label="", held_for=1.0)
    assert plain.kind == "mutex"


@virtual
async def test_a_downgrade_is_told_and_what_follows_is_a_readers() -> None:
    """Once, with how long it wrote; a lease that reads already is downgraded no more."""
    diary = Diary()
    async with world(hooks=[diary]) as w, w.manager.rwlock("a", label="x").write() as lease:
        await asyncio.sleep(TTL / 4)
        await lease.downgrade()
        await lease.downgrade()
        await asyncio.sleep(TTL / 2)
    told = [event for event in diary.events if type(event) in OF_LOCKS]
    assert diary.about_locks() == [
        ("Acquired", "write"),
        ("Downgraded", "read"),
        ("Extended", "read"),
        ("Extended", "read"),
        ("Released", "read"),
    ]
    downgraded, released = told[1], told[-1]
    assert downgraded == Downgraded(
        names=("a",),
        label="x",
        held_for=pytest.approx(TTL / 4 + 2 * LATENCY),
        kind="read",
        lease=released.lease,
    )
    assert released.held_for == pytest.approx(TTL * 3 / 4, abs=0.1)


@virtual
async def test_a_downgrade_that_nodes_did_not_hear_of_is_told_all_the_same() -> None:
    """It counts here at once: what the nodes do not know keeps more out, not less."""
    diary = Diary()
    async with world(hooks=[diary]) as w:
        lease = await w.manager.rwlock("a").write().acquire()
        for node in w.nodes:
            node.freeze()
        end = await in_task(lease.downgrade)
        assert end.error is not None
        assert ("Downgraded", "read") in diary.about_locks()
        for node in w.nodes:
            node.thaw()
        await lease.release()


@pytest.mark.parametrize("refused", [False, True])
@virtual
async def test_an_extension_that_fails_is_told(refused: bool) -> None:
    """Each that too few nodes answer, while the time runs; or the one by which the lock is lost."""
    diary = Diary()
    async with world(hooks=[diary]) as w:
        lease = await w.manager.lock("a", label="x").acquire()
        w.vacate("a") if refused else [node.freeze() for node in w.nodes]
        await asyncio.sleep(TTL * 1.1)
        [node.thaw() for node in w.nodes]
        await lease.release()
    told = [event for event in diary.events if isinstance(event, NotExtended)]
    assert {(event.refused, event.label, event.lease, len(event.votes)) for event in told} == {
        (refused, "x", told[0].lease, 3)
    }
    assert len(told) == 1 if refused else len(told) > 5
    remaining = [event.remaining for event in told]
    assert remaining == sorted(remaining, reverse=True)
    assert remaining[0] < TTL


@virtual
async def test_the_events_of_a_lease_have_its_number() -> None:
    """Also where one task hands the lock on to the next: these are two leases."""
    diary = Diary()
    async with world(hooks=[diary]) as w:

        async def work() -> None:
            async with w.manager.lock("a"):
                await asyncio.sleep(TTL / 2)

        await asyncio.gather(work(), work())
    told = [(type(event).__name__, event.lease) for event in diary.events if hasattr(event, "lease")]
    first = told[0][1]
    assert [(what, lease - first + 1) for what, lease in told] == [
        ("Acquired", 1),
        ("Extended", 1),
        ("Released", 1),
        ("Acquired", 2),
        ("Extended", 2),
        ("Released", 2),
    ]


@virtual
async def test_a_hook_is_told_of_its_manager_and_does_not_keep_it() -> None:
    """It can ask for the statistics at any time, until the manager is gone."""

    class Attached:
        def __init__(self) -> None:
            self.statistics: list[Any] = []

        def attach(self, statistics: Any) -> None:
            self.statistics.append(statistics)

    hook = Attached()
    async with world(hooks=[hook]) as w:
        (statistics,) = hook.statistics
        async with w.manager.lock("a"):
            assert statistics().held == 1
    del w
    gc.collect()
    assert statistics() is None


@virtual
async def test_a_leader_is_told_of_as_one() -> None:
    """Its lock is a mutex of another name."""
    diary = Diary()
    async with world(hooks=[diary]) as w, w.manager.election("a").campaign():
        assert [held.kind for held in w.manager.statistics().leases] == ["leader"]
    assert diary.about_locks() == [("Acquired", "leader"), ("Released", "leader")]


@virtual
async def test_held_leases_are_listed_with_their_kind() -> None:
    """What they are now."""
    async with world() as w:
        leases: list[Lease] = [await lock(w.manager, "mutex").acquire()]
        rw = w.manager.rwlock("b")
        leases += [await w.manager.rwlock("c").write().acquire()]
        leases += [await rw.read().acquire(), await rw.read().acquire()]

        def kinds() -> list[str]:
            return [held.kind for held in w.manager.statistics().leases]

        assert kinds() == ["mutex", "write", "read", "read"]
        await leases[1].downgrade()
        assert kinds() == ["mutex", "read", "read", "read"]
        assert w.manager.statistics().held == 4
        for lease in leases:
            await lease.release()


@pytest.mark.parametrize("kind", ["mutex", "read", "write"])
def test_every_record_about_a_lock_says_its_kind(kind: str) -> None:
    """From DEBUG to warnings; what is about no lock has none."""

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=2) as other:
            async with lock(w.manager, kind, extension=ExtensionPolicy(max_extensions=2)):
                w.nodes[0].flush()
                waits = in_task(
                    lock(other, "write" if kind == "read" else kind, blocking_timeout=TTL).acquire
                )
                await asyncio.sleep(TTL)
            await waits
            lease = await lock(w.manager, kind).acquire()
            lose(w.manager, "a")
            await lease.release()
            w.occupy("a", None)
            with pytest.raises(LockTakenError):
                await lock(w.manager, kind, blocking_timeout=3).acquire()

    with logged() as log:
        virtual(main)()
    about = [
        (record.__dict__["kind"], record.getMessage()) for record in log.records if record.__dict__["lock"]
    ]
    assert {told for told, _ in about} == ({kind, "write"} if kind == "read" else {kind})
    for words in ("acquired in", "extended for", "extended 1 of 2", "given it back", "released after", "lost",
                  "still waiting", "without expiry", "was not acquired"):  # fmt: skip
        assert any(words in line and told == kind for told, line in about), words
    assert {record.__dict__["kind"] for record in log.records if not record.__dict__["lock"]} == {None}


def test_a_downgrade_is_logged() -> None:
    """At DEBUG, as the rest of a lease's life."""

    async def main() -> None:
        async with world() as w, w.manager.rwlock("a").write() as lease:
            await lease.downgrade()

    with logged() as log:
        virtual(main)()
    (line,) = [record for record in log.records if "downgraded" in record.getMessage()]
    assert (line.levelno, line.__dict__["kind"], line.__dict__["lock"]) == (logging.DEBUG, "read", "a")
