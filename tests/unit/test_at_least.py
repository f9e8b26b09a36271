"""Names that stay taken for a while, also when the body ends sooner (R34)."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest

from aioredlock_ng import ExtensionPolicy, LockManager, ReleaseOutcome, RetryPolicy
from aioredlock_ng.errors import LockLostError, LockTakenError, LossReason
from aioredlock_ng.events import Released
from aioredlock_ng.testing import lose
from tests.unit.tasks import cancelled, cycle, in_task, sim
from tests.unit.traces import count
from tests.unit.worlds import LATENCY, TIMEOUT, make, world

AT_LEAST = 30.0
SOON = 0.011
"""Seconds within which a lock that has become free is had: the longest first back-off and a round trip."""
KNOWN_FOR = 60.0
"""Seconds for which a process remembers that a name stays taken."""
HOURS = 6 * 3600.0
FREE = [()] * 3

ways = pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
"""With and without fences."""


async def work(manager: LockManager, *names: str, seconds: float = 0.5, **options: Any) -> float:
    """Hold a lock that stays taken for a while; returns when it was asked for."""
    asked_at = sim().clock.now()
    async with manager.lock(*names or ("a",), **{"at_least": AT_LEAST, **options}):
        await asyncio.sleep(seconds)
    return asked_at


async def until(when: float) -> None:
    """Wait for an instant of the manager's clock."""
    await asyncio.sleep(when - sim().clock.now())


async def is_free(manager: LockManager, name: str = "a") -> None:
    """See that a single try gets the lock."""
    await cycle(manager.lock(name, blocking=False))


# -- for other processes -----------------------------------------------------------------------------


@ways
async def test_the_name_stays_taken_when_the_body_ends_sooner(fencing: bool) -> None:
    """On every node, until `at_least` has passed since the acquire was asked, and no longer."""
    async with world(fencing=fencing) as w, w.process(fencing=fencing) as other:
        asked_at = await work(w.manager, "a", "b")
        values = w.holders("a")
        await until(asked_at + AT_LEAST - LATENCY)
        assert w.holders("a") == w.holders("b") == values != [None] * 3
        tries = await asyncio.gather(*(other.lock(name).try_acquire() for name in "ab"))
        assert tries == [None, None]
        await is_free(other, "c")
        assert w.holders("a") == [None] * 3
        await is_free(other)


async def test_a_holder_that_dies_leaves_the_name_for_as_long() -> None:
    """The keys live for `at_least` from the beginning, if that is longer than the ttl."""
    async with world() as w:
        dead = make(w.nodes, seed=9, extension=ExtensionPolicy.off())
        lease = await dead.lock("a", ttl=2.0, at_least=AT_LEAST).acquire()
        assert lease.remaining == pytest.approx(AT_LEAST, rel=0.02)
        assert all(AT_LEAST - 1 <= node.ttl(b"redlock:a") <= AT_LEAST for node in w.nodes)
        await lease.release()
        await dead.aclose()


# -- what does not stay taken ------------------------------------------------------------------------


@ways
async def test_a_try_that_did_not_win_leaves_nothing(fencing: bool) -> None:
    """It is undone by deleting."""
    async with world(fencing=fencing) as w:
        w.occupy("a", 5.0, 0, 1)
        assert await w.manager.lock("a", at_least=AT_LEAST).try_acquire() is None
        await asyncio.sleep(0.1)
        assert w.keys == [(b"redlock:a",), (b"redlock:a",), ()]


async def test_force_release_frees_the_name() -> None:
    """For this process, too; one that waits notices in a back-off's cap, and does not sleep to the end."""
    async with world(restart_quarantine=HOURS) as w:
        for waits in (False, True):
            await work(w.manager, at_least=HOURS)
            waiting = in_task(w.manager.lock("a").acquire) if waits else None
            await asyncio.sleep(1)
            assert all(node.held for node in await w.manager.force_release("a"))
            freed_at = sim().time()
            if waiting is None:
                await is_free(w.manager)
            else:
                assert (await waiting).at - freed_at < RetryPolicy().cap + 0.1


async def test_what_another_process_frees_is_free_here_within_a_minute() -> None:
    """`aioredlock-ng release` is another process; this one remembers its release for no longer."""
    async with world(restart_quarantine=HOURS) as w:
        await work(w.manager, at_least=HOURS)
        async with w.process(restart_quarantine=HOURS) as operator:
            await operator.force_release("a")
        await asyncio.sleep(KNOWN_FOR)
        await is_free(w.manager)


# -- for other tasks of the process ------------------------------------------------------------------


async def test_tasks_of_this_process_wait_without_io_and_in_order() -> None:
    """The first in line asks when the time is over; no task asks before, also when one was cancelled."""
    async with world() as w:
        asked_at = await work(w.manager)
        asked = count(w.nodes[0], "acquire")
        order: list[int] = []

        async def one(number: int) -> float:
            async with w.manager.lock("a"):
                order.append(number)
                return sim().clock.now() - asked_at

        first, *tasks = [asyncio.create_task(one(number)) for number in range(6)]
        await asyncio.sleep(1.0)
        first.cancel()
        await until(asked_at + AT_LEAST - 0.001)
        assert count(w.nodes[0], "acquire") == asked
        times = await asyncio.gather(*tasks)
        assert order == [1, 2, 3, 4, 5]
        assert times[0] >= AT_LEAST
        assert times[-1] <= AT_LEAST + 5 * SOON


@pytest.mark.parametrize("patience", [0, 2.0])
@pytest.mark.parametrize("place", ["first", "second"])
async def test_a_wait_that_ends_before_the_time_fails_in_time(place: str, patience: float) -> None:
    """Without I/O, with the time that is left, whether it is first in line or behind another task."""
    async with world() as w:
        asked_at = await work(w.manager)
        asked = [count(node, "acquire") for node in w.nodes]
        patient = [in_task(w.manager.lock("a").acquire)] if place == "second" else []
        await asyncio.sleep(0)
        began = sim().clock.now()
        with pytest.raises(LockTakenError, match="stays taken for") as taken:
            await w.manager.lock("a", blocking_timeout=patience).acquire()
        assert sim().clock.now() - began == pytest.approx(patience)
        assert taken.value.names == ("a",)
        assert taken.value.retry_after == pytest.approx(asked_at + AT_LEAST - sim().clock.now())
        assert [count(node, "acquire") for node in w.nodes] == asked
        for task in patient:
            assert (await task).error is None


# -- messages ---------------------------------------------------------------------------------------


async def test_what_a_release_before_the_time_says() -> None:
    """The lease has ended; the report and the event tell that the name has not, and for how long."""
    events: list[Released] = []

    class Hook:
        def on_released(self, event: Released) -> None:
            events.append(event)

    async with world(hooks=[Hook()]) as w:
        lease = await w.manager.lock("a", at_least=AT_LEAST).acquire()
        until_then = lease.valid_until
        await asyncio.sleep(1.0)
        w.nodes[2].delete(b"redlock:a")
        report = await lease.release()
        kept = [ReleaseOutcome.KEPT] * 2
        assert [node.outcome for node in report.nodes] == [*kept, ReleaseOutcome.NOT_HELD]
        assert report == await lease.release(), "it is idempotent"
        assert (lease.held, lease.remaining, lease.valid_until) == (False, 0.0, until_then)
        with pytest.raises(LockLostError) as lost:
            lease.check()
        assert lost.value.reason is LossReason.RELEASED
        (event,) = events
        assert event.stays_taken == pytest.approx(AT_LEAST - event.held_for)
        assert w.manager.statistics().held == 0


async def test_a_lost_lease_deletes_nothing_before_the_time() -> None:
    """The keys that are still ours stay; the tasks of this process ask the nodes, which alone know."""
    async with world() as w:
        asked_at = sim().clock.now()
        lease = await w.manager.lock("a", at_least=AT_LEAST).acquire()
        w.vacate("a", 0, 1)
        lose(w.manager, "a")
        assert (await lease.release()).count(ReleaseOutcome.KEPT) == 1
        assert [value is not None for value in w.holders("a")] == [False, False, True]
        await is_free(w.manager)
        await until(asked_at + AT_LEAST + LATENCY)
        assert w.keys == FREE


# -- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (-1, ValueError, "at_least must be 0 to 86400 seconds"),
        (86401, ValueError, "at_least must be 0 to 86400 seconds"),
        (float("nan"), ValueError, "at_least must be finite"),
        ("30", TypeError, "at_least must be a number"),
        (True, TypeError, "at_least must be a number"),
        (60.5, ValueError, "longer"),
        (61, ValueError, "at_least must not .* got at_least=61 and restart_quarantine=60:"),
    ],
)
def test_bad_values_are_refused_at_the_call(value: Any, error: type[Exception], says: str) -> None:
    """Longer than the quarantine, too: then nodes that have forgotten the lock would vote before its time."""
    manager = LockManager(["redis://a", "redis://b", "redis://c"], restart_quarantine=60)
    with pytest.raises(error, match=says):
        manager.lock("a", at_least=value)
    with pytest.raises(error, match=says):
        manager.locked("a", at_least=value)(asyncio.sleep)
    with pytest.raises(ValueError, match=r"ttl must not .* got ttl=61 and restart_quarantine=60:"):
        manager.lock("a", ttl=61)


@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("extension", [None, ExtensionPolicy.off()], ids=["extended", "not extended"])
@pytest.mark.parametrize("extending", [False, True])
async def test_what_an_inner_acquire_asks_for_is_kept_though_the_block_ends_at_once(
    names: str, extension: ExtensionPolicy | None, extending: bool
) -> None:
    """The keys live for that long before they are released (R27, R34)."""
    async with world() as w, w.process() as other:
        async with w.manager.lock(*names, ttl=2.0, at_least=3.0, extension=extension) as outer:
            if extending:
                under_way = in_task(lambda: outer.extend(2.0))
                await asyncio.sleep(0)
            async with w.manager.lock(*names, reentrant=True, at_least=AT_LEAST):
                asked_at = sim().clock.now()
        if extending:
            assert isinstance((await under_way).error, LockLostError)
        report = await outer.release()
        assert [node.outcome for node in report.nodes] == [ReleaseOutcome.KEPT] * 3
        for node in await other.inspect("a"):
            assert AT_LEAST - 1 < node.ttl <= AT_LEAST
        async with other.lock("a"):
            assert AT_LEAST - 0.01 <= sim().clock.now() - asked_at < AT_LEAST + 0.1
        assert [node.keys for node in w.nodes].count(()) == 0


# -- faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2], ids=["a minority", "a majority"])
@pytest.mark.parametrize("seed", range(2))
async def test_no_two_runs_in_the_time(seed: int, number: int) -> None:
    """Whatever nodes forget: the quarantine outlasts it (R12)."""
    chance = random.Random(seed)
    began: list[float] = []
    options: dict[str, Any] = {
        "restart_quarantine": 10.0,
        "ttl": 2.0,
        "retry": RetryPolicy(base=0.5, cap=3.0),
    }
    async with world(**options) as w, w.process(**options) as second, w.process(**options) as third:

        async def process(manager: LockManager) -> None:
            while True:
                lease = await manager.lock("job", at_least=9.0).acquire()
                began.append(sim().clock.now())
                await asyncio.sleep(chance.random())
                await lease.release()

        tasks = [asyncio.create_task(process(manager)) for manager in (w.manager, second, third)]
        for _ in range(3):
            await asyncio.sleep(chance.uniform(5.0, 20.0))
            for node in chance.sample(w.nodes, number):
                node.restart()
        await asyncio.sleep(15.0)  # by then every node votes again
        await cancelled(*tasks)
    found = [then - one for one, then in itertools.pairwise(began)]
    assert found, "a search that finds no two runs shows nothing"
    assert min(found) >= 9.0 - TIMEOUT, "it counts from when the lock was asked for"
