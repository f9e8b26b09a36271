"""The fixture ``lock_manager`` works with whatever runs a user's async tests, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.runs import ANYIO, MODES, check_run, check_run_in

USERS = """
import asyncio, contextlib, pytest
from aioredlock_ng import LockError, LockLostError, LockManager, LockTakenError, QuorumUnavailableError
from aioredlock_ng.testing import lose

used, left = [], []

async def hold(manager):
    with contextlib.suppress(LockError):
        async with manager.lock("left behind"):
            await asyncio.sleep(3600)

async def test_one_holds_and_another_is_refused(lock_manager):
    async with lock_manager.lock("job") as lease:
        with pytest.raises(LockTakenError):
            async with lock_manager.lock("job", blocking=False):
                pass
        await lease.extend(30)
    assert len(lease.votes) == 3
    async with lock_manager.lock("line", fair=True):
        assert (await lock_manager.queue("line")).waiters == ()

async def test_readers_share_and_a_writer_is_alone(lock_manager):
    catalogue = lock_manager.rwlock("catalogue", blocking=False)
    readers = [await catalogue.read().acquire() for _ in range(2)]
    assert await catalogue.write().try_acquire() is None
    lose(lock_manager, "catalogue")
    for lease in readers:
        assert not lease.held
        await lease.release()
    async with catalogue.write() as lease:
        assert lease.mode == "write"

async def test_a_loss_ends_the_block(lock_manager):
    with pytest.raises(LockLostError):
        async with lock_manager.lock("job"):
            lose(lock_manager, "job")
            await asyncio.sleep(60)

async def test_that_leaves_locks_and_waiters_behind(lock_manager):
    used.append(lock_manager)
    left.append(await lock_manager.lock("mine").acquire())
    left.extend(asyncio.create_task(hold(lock_manager)) for _ in range(2))
    while lock_manager.statistics().held < 2 or lock_manager.statistics().waiting < 1:
        await asyncio.sleep(0.001)

def test_the_last_manager_was_closed():
    lease, *tasks = left
    assert repr(used[0]).startswith("<LockManager closed, 0 held")
    assert not lease.held
    assert all(task.done() for task in tasks)

async def test_each_test_has_a_manager_of_its_own(lock_manager):
    assert repr(lock_manager).startswith("<LockManager not started")
    async with lock_manager.lock("mine", blocking=False):
        pass

def test_a_manager_that_is_not_used_needs_no_loop(lock_manager):
    pass

manager = LockManager(["redis://127.0.0.1:1"], connect_timeout=0.1)

@manager.locked("report:{number}")
async def report(number):
    return number

@pytest.mark.usefixtures("lock_bypass")
async def test_bypassed():
    assert await report(1) == 1

@pytest.mark.usefixtures("lock_bypass")
async def test_bypassed_again():
    assert await report(2) == 2

@pytest.mark.usefixtures("lock_refused")
async def test_refused():
    with pytest.raises(LockTakenError):
        await report(3)

@pytest.mark.parametrize("lock_refused", ["quorum"], indirect=True)
async def test_unavailable(lock_refused):
    with pytest.raises(QuorumUnavailableError):
        await report(3)

def test_outside():
    async def main():
        async with manager:
            with pytest.raises(QuorumUnavailableError):
                await manager.lock("report:3").try_acquire()

    asyncio.run(main())
"""
"""Tests as users write them; each async test is marked as its plugin demands."""


@pytest.mark.parametrize("mode", MODES)
def test_users_tests_pass(mode: str, tmp_path: Path) -> None:
    """One file of tests passes under every plugin, and each manager is closed after its test.

    The bypass is on for its tests only: code with a manager over nodes that are out of reach runs.
    """
    check_run_in(mode, tmp_path, USERS, passed=12)


def test_it_is_closed_with_fixtures_that_keep_the_loop(tmp_path: Path) -> None:
    """The manager is closed after its test also when the loop goes on, and its user was an async fixture."""
    source = """
        import asyncio, pytest

        used = []

        @pytest.fixture(scope="module")
        def anyio_backend():
            return "asyncio"

        @pytest.fixture(scope="module")
        async def keeps_the_loop():
            yield asyncio.get_running_loop()

        @pytest.fixture
        async def lease(keeps_the_loop, lock_manager):
            used.append(lock_manager)
            async with lock_manager.lock("job") as lease:
                yield lease

        @pytest.mark.anyio
        async def test_one(lease):
            lease.check()

        @pytest.mark.anyio
        async def test_two(keeps_the_loop):
            assert keeps_the_loop is asyncio.get_running_loop()
            assert repr(used[0]).startswith("<LockManager closed, 0 held")
            assert not [task for task in asyncio.all_tasks() if "aioredlock" in task.get_name()]
    """
    check_run(tmp_path, source, *ANYIO, passed=2)


@pytest.mark.heavy
@pytest.mark.full
def test_trio_is_skipped_with_the_reason(tmp_path: Path) -> None:
    """A test that anyio runs on each of its backends is skipped on the one that has no asyncio."""
    source = """
        import pytest

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio", ("trio", {})])
        async def test_on_both(lock_manager, anyio_backend):
            async with lock_manager.lock("job"):
                pass
    """
    check_run(
        tmp_path,
        source,
        *ANYIO,
        passed=1,
        skipped=1,
        says="lock_manager needs asyncio, and this test runs on trio",
    )


def test_without_any_plugin(tmp_path: Path) -> None:
    """A test may run its own loop, two of them, or a `SimLoop`, where ten extensions pass at once.

    Test clients of web frameworks run one in a thread; it may end before the manager or after it.  For a
    coroutine that no plugin runs pytest says what is missing.
    """
    source = """
        import asyncio, pytest, time
        from aioredlock_ng.testing import SimLoop
        from anyio.from_thread import start_blocking_portal  # what Starlette's TestClient is made of

        async def hold(manager):
            async with manager.lock("job", blocking_timeout=1) as lease:
                return lease.votes

        def test_that_runs_a_loop(lock_manager):
            assert len(asyncio.run(hold(lock_manager))) == 3

        def test_that_runs_two(lock_manager):
            asyncio.run(hold(lock_manager))
            assert len(asyncio.run(hold(lock_manager))) == 3

        async def test_that_nobody_runs(lock_manager):
            await hold(lock_manager)

        def test_a_minute_of_virtual_time(lock_manager):
            async def scenario():
                async with lock_manager.lock("job") as lease:
                    await asyncio.sleep(60)
                    assert lease.extensions > 10
                    assert 5 < lease.remaining < 10
                    survey = await lock_manager.survey()
                    assert 59 < survey.at - survey.locks[0].since < 61
                return lease

            began = time.monotonic()
            assert not SimLoop.run(scenario()).held
            assert time.monotonic() - began < 30
            assert lock_manager.clock.now() >= 1060  # also after the end of its loop

        managers, closed = [], []

        @pytest.fixture
        def client():
            with start_blocking_portal() as client:
                yield client
                closed.append(repr(managers[-1]).startswith("<LockManager closed, 0 held"))

        def twice(client, manager):
            managers.append(manager)
            assert [len(client.call(hold, manager)) for _ in range(2)] == [3, 3]
            assert manager.statistics().released == 2

        def test_a_thread_that_outlives_the_manager(client, lock_manager):
            twice(client, lock_manager)

        def test_a_thread_that_ends_before_the_manager(lock_manager, client):
            twice(client, lock_manager)

        def test_they_were_closed():
            assert closed == [True, False]  # by the fixture; not before the loop's end
            assert all("closed, 0 held" in repr(manager) for manager in managers)
    """
    check_run(tmp_path, source, passed=6, failed=1, says="async def functions are not natively supported")
