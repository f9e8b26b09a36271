"""A task that would wait for its own release is told so at once, however many names it asks for (R13)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioredlock_ng import Lease, LockLostError, LockTakenError, WouldDeadlockError
from tests.unit.worlds import PLAIN, deadline, ending, sim, until, virtual, world

NAMES = ("a", "b", "c")


@pytest.mark.parametrize("others", [False, True], ids=["the rest is free", "the rest is held by others"])
@pytest.mark.parametrize("patience", [None, 5.0])
@pytest.mark.parametrize("own", NAMES)
@virtual
async def test_any_name_of_several_that_the_task_holds(own, patience, others):
    """Whichever of the names is the task's own: the error comes at once, and no gate is left shut."""
    async with world() as w:
        strangers: list[Lease] = []
        if others:
            strangers += [await w.manager.lock(name).acquire() for name in NAMES if name != own]
        async with w.manager.lock(own) as lease:
            asked = [len(node.executed) for node in w.nodes]
            began = sim().time()
            for names in (NAMES, (own,)):
                with pytest.raises(WouldDeadlockError, match=f"'{own}'") as caught:
                    await w.manager.lock(*names, blocking_timeout=patience).acquire()
                assert caught.value.names == names
            end = await ending(w.manager.lock(own, blocking_timeout=0).acquire)
            assert isinstance(end.error, LockTakenError), "a single try does not wait"
            assert await w.manager.lock(own).try_acquire() is None
            assert sim().time() == began
            assert [len(node.executed) for node in w.nodes] == asked, "no node is asked"
            lease.check()
        for stranger in strangers:
            await stranger.release()
        async with w.manager.lock(*NAMES, blocking_timeout=1):
            pass


@virtual
async def test_two_tasks_that_want_what_the_other_has():
    """One asks for both names and is told at once; so the other one gets its lock in the end."""
    async with world() as w:

        async def one() -> None:
            async with w.manager.lock("b"):
                await asyncio.sleep(0.1)
                began = sim().time()
                with pytest.raises(WouldDeadlockError):
                    await w.manager.lock("a", "b").acquire()
                assert sim().time() == began

        async def other() -> float:
            async with w.manager.lock("a"):
                await asyncio.sleep(0.1)
                async with w.manager.lock("b"):
                    return sim().time()

        began = sim().time()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(one())
            ended = tasks.create_task(other())
        assert ended.result() - began < 1


@virtual
async def test_a_lost_or_released_lock_is_no_deadlock():
    """Inside the block, once the lease is over, the task may wait for the name again."""
    async with world() as w:
        async with w.manager.lock("a") as lease:
            await lease.release()
            async with w.manager.lock("a"):
                pass

        async def lost_and_again() -> None:
            async with w.manager.lock("a", extension=PLAIN, on_lost="raise") as lease:
                await until(deadline(lease) + 0.01)
                async with w.manager.lock("a", blocking_timeout=5):
                    pass

        assert isinstance((await ending(lost_and_again)).error, LockLostError)


# -- what may be a deadlock, and need not be one ---------------------------------------------------------


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was warned of."""
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("kind", ["lock", "write", "two names"])
@virtual
async def test_a_task_that_waits_for_its_own_child_is_warned_of(kind, caplog):
    """Once, after two seconds: a child that wants the same lock waits for the block, and the block for it."""
    async with world() as w:
        lock = {
            "lock": w.manager.lock("a"),
            "write": w.manager.rwlock("a").write(),
            "two names": w.manager.lock("a", "b"),
        }[kind]
        async with lock:
            wanted = [asyncio.create_task(w.manager.lock("a", blocking_timeout=5).acquire()) for _ in "12"]
            await asyncio.sleep(1.9)
            assert not warnings(caplog)
            for error in await asyncio.gather(*wanted, return_exceptions=True):
                assert type(error) is LockTakenError
        (line,) = warnings(caplog)
        assert line.startswith(
            "a task waits for lock 'a', which it has acquired itself, or a task that started it"
        )


@pytest.mark.parametrize("between", [0, 3, 4])
@virtual
async def test_a_task_that_acquires_twice_is_warned_of(caplog, between):
    """By `acquire()` no block tells whose lease it is: no error at once; four locks are known so."""
    async with world() as w:
        lock = w.manager.lock("a", blocking_timeout=3)
        lease = await lock.acquire()
        for number in range(between):
            await (await w.manager.lock(f"{number}").acquire()).release()
        with pytest.raises(LockTakenError):
            await lock.acquire()
        assert len(warnings(caplog)) == (between < 4)
        await lease.release()
        await (await lock.acquire()).release()
        assert len(warnings(caplog)) == (between < 4)


@virtual
async def test_tasks_that_wait_for_others_are_not_warned_of(caplog):
    """Neither those of other tasks, nor those of what their own task has released, nor of a semaphore."""
    async with world() as w:
        lock, pool = w.manager.lock("a"), w.manager.semaphore("s", permits=2)
        await (await lock.acquire()).release()
        holder = await asyncio.create_task(lock.acquire())
        waits = asyncio.create_task(lock.acquire())
        one, two = await pool.acquire(), await asyncio.create_task(pool.acquire())
        third = asyncio.create_task(pool.acquire())
        await asyncio.sleep(4)
        for lease in (holder, one, two):
            await lease.release()
        for task in (waits, third):
            await (await task).release()
        assert not warnings(caplog)
