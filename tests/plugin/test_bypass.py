"""`testing.bypass`: locks as if there were nodes, without any; and nothing of it is left afterwards."""

from __future__ import annotations

import asyncio
import gc
import math
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aioredlock_ng import (
    Lock,
    LockLostError,
    LockManager,
    LockTakenError,
    LossReason,
    QuorumUnavailableError,
    ReleaseOutcome,
    Vote,
)
from aioredlock_ng.events import Acquired, Extended, Lost, Refused, Released
from aioredlock_ng.testing import MemoryNode, SimLoop, bypass, lose
from aioredlock_ng.testing._bypass import RETRY_AFTER
from tests.behaviour.tools import Recorder
from tests.unit.tasks import sim, turns, virtual
from tests.unit.worlds import world

URLS = [f"redis://user:secret@192.0.2.{number}" for number in (1, 2, 3)]
"""Nodes that do not exist (TEST-NET-1): a question to them is never answered."""


def make(**options: object) -> LockManager:
    """Make a manager as production code does, at module level and never closed."""
    return LockManager(URLS, **options)  # type: ignore[arg-type]


KINDS: dict[str, Callable[..., Lock]] = {
    "mutex": lambda manager, **options: manager.lock("gpu", **options),
    "several names": lambda manager, **options: manager.lock("x", "gpu", **options),
    "fair": lambda manager, **options: manager.lock("gpu", fair=True, **options),
    "read": lambda manager, **options: manager.rwlock("gpu", **options).read(),
    "write": lambda manager, **options: manager.rwlock("gpu", **options).write(),
    "semaphore": lambda manager, **options: manager.semaphore("gpu", permits=2, **options),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
fences_or_none = pytest.mark.parametrize("fencing", [True, False])


@each_kind
@fences_or_none
@virtual
async def test_a_lease_says_all_that_a_real_one_says(kind: str, fencing: bool) -> None:
    """Granted by every node, valid for its ttl, extended when asked; nothing excludes anything.

    Fences grow from lease to lease, and block to block (R10); those of readers alone are odd (R21).
    """
    manager, fences = make(fencing=fencing), []
    for _ in range(2):
        with bypass():
            async with KINDS[kind](manager, ttl=20) as lease, KINDS[kind](manager) as other:
                fences += [lease._holding.fence, other._holding.fence]
                assert (lease.held, other.held, lease.lost.is_set()) == (True, True, False)
                assert [(vote.node, vote.vote) for vote in lease.votes] == [
                    (f"redis://192.0.2.{number}", Vote.GRANTED) for number in (1, 2, 3)
                ]
                assert lease.mode == (kind if kind in ("read", "write") else None)
                assert lease._holding.slot == (0 if kind == "semaphore" else None)
                lease.check()
                assert 19 < lease.remaining < 20
                await lease.extend(60)
                assert (lease.extensions, 59 < lease.remaining < 60) == (1, True)
                assert lease._holding.fence == fences[-2]
                if kind == "write":
                    await lease.downgrade()
                    assert (lease.mode, lease.held) == ("read", True)
                report = await lease.release()
                assert report.count(ReleaseOutcome.RELEASED) == 3
                assert (lease.held, lease.remaining) == (False, 0)
                with pytest.raises(LockLostError) as caught:
                    lease.check()
                assert caught.value.reason is LossReason.RELEASED
    if not fencing:
        assert fences == [0] * 4
    else:
        assert fences == sorted(set(fences))
        assert {fence % 2 for fence in fences} == {int(kind == "read")}


@virtual
async def test_unchanged_is_true_only_if_no_writer_came_between() -> None:
    """A bypassed writer or mutex changes what was read before it, whatever its name (R23)."""
    manager = make()
    lock = manager.rwlock("a")
    with bypass():
        for between, unchanged in ((lock.read(), True), (lock.write(), False), (manager.lock("b"), False)):
            async with lock.read() as read:
                pass
            async with between:
                pass
            async with lock.write(since=read) as lease:
                assert lease.unchanged is unchanged


@virtual
async def test_each_candidate_leads_and_none_is_seen() -> None:
    """Terms grow; a look at the nodes finds no leader, as it finds no lock."""
    with bypass():
        election = make().election("scheduler", holder="one")
        terms = []
        for _ in range(2):
            async with election.campaign() as leadership:
                terms.append(leadership.term)
                assert (leadership.holder, leadership.held) == ("one", True)
                assert await election.leader() is None
        assert terms == sorted(set(terms))
        news = election.observe()
        assert await anext(news) is None
        await news.aclose()


@pytest.mark.parametrize("refuse", [True, "scheduler", "quorum"])
@virtual
async def test_a_candidate_is_refused(refuse: Any) -> None:
    """Another client leads, and has announced nothing, or no node answers, to a look either.

    A candidate waits as long as it is let: that is no error, and can be cancelled.
    """
    led: list[int] = []

    async def lead(_: object) -> None:
        led.append(1)

    with bypass(refuse=refuse):
        with pytest.raises(QuorumUnavailableError if refuse == "quorum" else LockTakenError):
            await make().election("scheduler", blocking_timeout=5).campaign()
        election = make().election("scheduler")
        if refuse == "quorum":
            with pytest.raises(QuorumUnavailableError):
                await election.leader()
            return
        running = asyncio.create_task(election.run(lead))
        await asyncio.sleep(60)
        assert (running.done(), led) == (False, [])
        assert (await election.try_campaign(), await election.leader()) == (None, None)
        running.cancel()
        await asyncio.wait((running,))
        assert running.cancelled()


@pytest.mark.parametrize("refuse", ["gpu", ["gpu"], {"gpu", "printer"}, ("a", "gpu")])
@virtual
async def test_locks_can_be_refused_by_name(refuse: Any) -> None:
    """Those are held by another client, and all others granted, of whatever kind."""
    manager = make(prefix="app:")
    with bypass(refuse=refuse):
        for kind in KINDS.values():
            assert await kind(manager).try_acquire() is None
        async with manager.lock("x") as lease, manager.semaphore("y", permits=3):
            assert lease.fence
        async with manager.election("z").campaign():
            pass
        found = await manager.survey("gpu", "x")
        assert [lock.state for lock in found.locks] == ["held", "free"]
        assert manager.available


@virtual
async def test_no_task_waits_and_none_is_excluded() -> None:
    """One task takes the same lock inside itself, a second beside it; a few turns of the loop are enough."""
    manager = make()

    @manager.locked("report:{number}")
    async def report(number: int) -> int:
        async with manager.lock(f"report:{number}", blocking=False) as lease:
            assert lease.held
            return number

    stop = asyncio.Event()

    async def work() -> None:
        while not stop.is_set():
            async with manager.lock("job"):
                pass

    with bypass():
        lock = manager.lock("job")
        async with lock as first, lock as second:
            third = asyncio.create_task(lock.try_acquire())
            await turns(4)  # to begin, to ask, to be answered at the end of the turn, to go on
            assert third.done()
            leases = [first, second, third.result()]
            assert all(lease is not None and lease.held for lease in leases)
        assert await report(7) == 7
        async with third.result():  # type: ignore[union-attr]
            pass
        worker = asyncio.create_task(work())  # takes locks until it is to stop, and hears of that
        await turns(10)
        stop.set()
        await turns(10)
        assert worker.done()
        assert [lease.held for lease in leases] == [False] * 3  # type: ignore[union-attr]


@virtual
async def test_looking_finds_nothing() -> None:
    """Listing, naming, deleting, diagnosing and initialising ask no node: nothing is there or wrong."""
    manager = make()
    with bypass():
        assert (await manager.survey()).locks == ()
        assert [lock.state for lock in (await manager.survey("job")).locks] == ["free"]
        assert {entry.held for entry in await manager.inspect("job")} == {False}
        assert {entry.held for entry in await manager.force_release("job")} == {False}
        assert await manager.diagnose() == ()
        assert [node.done for node in await manager.init()] == [True] * 3


def test_no_task_no_connection_no_loop() -> None:
    """One manager serves one loop after the other; nothing runs in them, and nothing is to be closed."""
    manager = make()
    before = repr(manager)

    async def use(manager: LockManager) -> None:
        async with manager.lock("job"):
            assert asyncio.all_tasks() == {asyncio.current_task()}
        assert manager.available

    with bypass():
        for _ in range(2):
            SimLoop.run(use(manager))  # where every connection is refused

    assert repr(manager) == before == repr(make())
    assert manager.statistics() == make().statistics()
    assert manager.unavailable_for == math.inf, "outside it says what it is"
    del manager
    gc.collect()  # a warning would be an error


@virtual
async def test_a_lease_can_be_lost() -> None:
    """A forced loss under the bypass is like any other, and takes every lease of the name."""
    manager, other = make(), make()
    with bypass():
        kept = await other.lock("job").acquire()
        for reason in (LossReason.REFUSED, LossReason.EXPIRED):
            outer = await manager.lock("job").acquire()

            async def job(reason: LossReason = reason) -> None:
                async with manager.lock("job"):
                    lose(manager, "job", reason)
                    await asyncio.Event().wait()

            with pytest.raises(LockLostError) as caught:
                await job()
            assert caught.value.reason is reason
            assert outer.lost.is_set()
            await outer.release()
        assert kept.held
        await kept.release()
        with pytest.raises(LookupError, match="holds nothing"):
            lose(manager, "job")


@virtual
async def test_hooks_hear_what_they_always_hear() -> None:
    """Metrics can be tested, too."""
    recorder = Recorder()
    manager = make(hooks=[recorder])
    lock = manager.lock("job", label="jobs")
    with bypass():
        lease = await lock.acquire()
        await lease.extend()
        lose(manager, "job")
        await lease.release()
    acquired, extended, lost, released = recorder.events
    assert [*map(type, recorder.events)] == [Acquired, Extended, Lost, Released]
    assert (acquired.label, acquired.attempts, len(acquired.votes)) == ("jobs", 1, 3)
    assert acquired.waited == pytest.approx(0.0, abs=0.05)
    assert (extended.extensions, lost.reason, released.names) == (1, LossReason.REFUSED, ("job",))
    with bypass(refuse=True):
        await lock.try_acquire()
    with bypass(refuse="quorum"), pytest.raises(QuorumUnavailableError):
        await lock.try_acquire()
    assert [event.taken for event in recorder.events if isinstance(event, Refused)] == [True, False]


@virtual
async def test_an_app_may_start_and_close_its_manager() -> None:
    """Closing ends the leases that are held, and what observes; the next test can open the manager again."""
    manager = make()

    async def follow() -> list[object]:
        return [leader async for leader in manager.election("scheduler").observe()]

    with bypass():
        for _ in range(2):
            async with manager:
                following = asyncio.create_task(follow())
                lease = await manager.lock("forgotten").acquire()
                waiting = asyncio.create_task(_hold(manager))
                await turns(3)
                assert not any(node.held for node in await manager.inspect("forgotten"))
                assert not any(node.held for node in await manager.force_release("forgotten"))
            async with asyncio.timeout(1):
                assert await following == [None]
            await asyncio.wait((waiting,))
            error = waiting.exception()
            assert isinstance(error, LockLostError)
            assert (error.reason, lease.held) == (LossReason.MANAGER_CLOSED, False)
        async with manager.lock("own"):
            await manager.aclose()  # by the holder itself, who is not cancelled
            await asyncio.sleep(1)


async def _hold(manager: LockManager) -> None:
    async with manager.lock("job"):
        await asyncio.Event().wait()


async def granted(manager: LockManager) -> bool:
    """Return whether one try is granted; real nodes that are not there do not grant it."""
    try:
        lease = await manager.lock("job").try_acquire()
    except QuorumUnavailableError:
        return False
    assert lease is not None
    await lease.release()
    return True


def frozen() -> list[MemoryNode]:
    """Return nodes that do not answer."""
    nodes = [MemoryNode() for _ in range(3)]
    for node in nodes:
        node.freeze()
    return nodes


@virtual
async def test_afterwards_locks_are_real_again() -> None:
    """However the block ends, and however deep it was nested: outside of it, nodes are asked."""
    manager = LockManager(frozen())
    with bypass():
        with bypass():
            assert await granted(manager)
        assert await granted(manager)
        with pytest.raises(ZeroDivisionError), bypass():
            raise ZeroDivisionError
        assert await granted(manager)
    assert not await granted(manager)
    first, second = bypass(), bypass()  # fixtures of two tests that overlap may end in any order
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert await granted(manager)
    second.__exit__()
    assert not await granted(manager)
    await manager.aclose()


def test_it_holds_in_every_thread() -> None:
    """A block around the test reaches a loop in another thread, such as a web framework's test client's."""
    manager = make()

    def use() -> bool:
        return asyncio.run(granted(manager))

    with bypass(), ThreadPoolExecutor(max_workers=1) as pool:
        assert pool.submit(use).result()
        assert pool.submit(lambda: manager.available).result()


@virtual
async def test_a_manager_that_runs_is_left_alone() -> None:
    """A bypass around the use of a started manager does not touch its leases, and it can be closed inside."""
    async with world() as here:
        async with here.manager.lock("job") as real:
            with bypass():
                async with here.manager.lock("job", blocking=False) as lease:
                    assert lease.held
                assert real.held
                assert here.holders("job") != [None] * 3
            assert real.held
            with pytest.raises(LookupError):
                lose(here.manager, "another")
        with bypass():
            await here.manager.aclose()
        assert "closed" in repr(here.manager)


@virtual
async def test_a_reentrant_lock_is_one_lease() -> None:
    """A task goes in again as it does over nodes; refused or not, since its own lock cannot be."""
    lock = make().lock("job", reentrant=True)
    with bypass():
        async with lock as outer:
            for refuse in (False, True):
                with bypass(refuse=refuse):
                    async with lock as inner:
                        assert inner.fence == outer.fence
                    kept = await lock.acquire()
                    assert (await kept.release()).count(ReleaseOutcome.STILL_HELD) == 3
            assert outer.held
            other = await asyncio.create_task(lock.acquire())
            assert other.fence > outer.fence, "no task is excluded"
            await other.release()
        async with lock as later:
            assert later.fence > outer.fence
    assert not outer.held


# -- refused -----------------------------------------------------------------------------------------


@each_kind
@fences_or_none
@pytest.mark.parametrize(
    ("refuse", "error", "vote"),
    [(True, LockTakenError, Vote.REFUSED), ("quorum", QuorumUnavailableError, Vote.SILENT)],
)
@virtual
async def test_every_lock_is_refused(
    *, refuse: Any, error: type[Exception], vote: Vote, fencing: bool, kind: str
) -> None:
    """At once, whatever the time to wait; with every node's vote, and the time to try again.

    Neither the body of a block nor a decorated function runs; a look at the nodes tells the same.
    """
    manager = make(fencing=fencing)
    waits: list[dict[str, Any]] = [{}, {"blocking_timeout": 60}, {"blocking": False}]
    locks = [KINDS[kind](manager, **options) for options in waits]

    @manager.locked("gpu", at_least=1)
    async def work() -> None:
        raise AssertionError("it runs without its lock")

    began = sim().time()
    with bypass(refuse=refuse):
        for enter in (work, *(enter for lock in locks for enter in (lock.acquire, lock.__aenter__))):
            with pytest.raises(error) as refused:
                await enter()
            assert refused.value.names == (("gpu",) if enter is work else locks[0].names)
            assert [one.vote for one in refused.value.votes] == [vote] * 3
            assert refuse is not True or refused.value.retry_after == RETRY_AFTER
        if refuse is True:
            assert await locks[0].try_acquire() is None
        else:
            with pytest.raises(error):
                await locks[0].try_acquire()
        looks = [(node.held, node.ours) for node in await manager.inspect("gpu")]
        assert looks == [(True if refuse is True else None, False)] * 3
        assert manager.unavailable_for == (0 if refuse is True else math.inf)
        if fencing and refuse == "quorum":  # else there is nothing to state
            with pytest.raises(QuorumUnavailableError, match="no node answers"):
                await manager.init()
    assert sim().time() == began


@virtual
async def test_the_block_that_was_entered_last_counts() -> None:
    """A refusal inside a bypass, and a bypass inside that; what was granted before stays granted."""
    lock = make().lock("a")
    with bypass():
        async with lock as lease:
            with bypass(refuse=True):
                assert await lock.try_acquire() is None
                with bypass():
                    async with lock:
                        pass
                with bypass(refuse="quorum"), pytest.raises(QuorumUnavailableError):
                    await lock.try_acquire()
                assert await lock.try_acquire() is None
                await lease.extend()
                assert lease.held
            async with lock:
                pass
            assert (await lease.release()).count(ReleaseOutcome.RELEASED) == 3


@pytest.mark.parametrize("refuse", [None, 1, "", ["a", ""], [1], b"a"])
def test_another_refusal_is_an_error(refuse: Any) -> None:
    """Nothing else is taken for one of them."""
    with pytest.raises(ValueError, match="refuse must be True, False, 'quorum' or names of locks, got "):
        bypass(refuse=refuse)


def test_using_locks_does_not_import_the_testing_kit() -> None:
    """Production code cannot switch it on."""
    lines = (
        "import sys, aioredlock_ng; aioredlock_ng.LockManager(['redis://a']); print(*sys.modules, sep='\\n')"
    )
    modules = subprocess.check_output([sys.executable, "-c", lines], text=True).split()
    assert "aioredlock_ng._manager" in modules
    assert not [module for module in modules if module.startswith("aioredlock_ng.testing")]
