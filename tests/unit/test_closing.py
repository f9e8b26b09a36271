"""Ends: of the manager, of the trust in its nodes, of a coroutine that is thrown away."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from aioredlock_ng import (
    Lease,
    LockLostError,
    LockManager,
    LossReason,
    ManagerClosedError,
)
from tests.unit.tasks import cycle, in_task, sim
from tests.unit.worlds import LATENCY, world

# -- other code cancels background tasks (R44) -----------------------------------------------------------


def background(*, name: str = "") -> list[asyncio.Task[Any]]:
    """Return the background tasks of all managers, or those of this name."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith(f"aioredlock_ng {name}")]


@pytest.mark.parametrize("part", ["watchdog", "memory"])
async def test_a_part_that_others_cancel_is_started_again(part, caplog):
    """A lease outlives it, by extensions of the new task; one CRITICAL line tells of it."""
    async with world() as w:
        lease = await w.manager.lock("a", ttl=3).acquire()
        for task in background(name=part):
            task.cancel()
            await asyncio.sleep(1)
        await asyncio.sleep(20)
        lease.check()
        assert all(len(keys) == 1 for keys in w.keys)
        critical = [record for record in caplog.records if record.levelno == logging.CRITICAL]
        assert len(critical) == (3 if part == "memory" else 1)
        assert all("started again" in record.getMessage() for record in critical)
        await lease.release()


KINDS: dict[str, Callable[[LockManager], Any]] = {
    "lock": lambda manager: manager.lock("a"),
    "reentrant": lambda manager: manager.lock("a", reentrant=True),
    "several": lambda manager: manager.lock("a", "b"),
    "write": lambda manager: manager.rwlock("a").write(),
    "read": lambda manager: manager.rwlock("a").read(),
    "permit": lambda manager: manager.semaphore("a", permits=2),
    "leadership": lambda manager: manager.election("a").campaign(),
}


@pytest.mark.parametrize("enters", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_lease_whose_manager_others_cancel_is_lost(kind, enters, caplog):
    """As a shutdown handler does: the block is cancelled, one loss is reported, and the next call works."""
    async with world() as w:
        leases: list[Any] = []

        async def use() -> None:
            what = KINDS[kind](w.manager)
            if enters:
                async with what as lease:
                    leases.append(lease)
                    await asyncio.sleep(100)
            else:
                leases.append(await (what if kind == "leadership" else what.acquire()))
                await leases[0].lost.wait()
                leases[0].check()

        user = in_task(use)
        await asyncio.sleep(1)
        for task in background():
            task.cancel()
        end = await asyncio.wait_for(user, 1)
        assert isinstance(end.error, LockLostError)
        assert end.error.reason is LossReason.CANCELLED
        assert leases[0].lost.is_set()
        assert not leases[0].held
        (warning,) = [record for record in caplog.records if "was lost" in record.getMessage()]
        assert warning.levelno == logging.WARNING
        await asyncio.sleep(1)
        assert w.keys == [()] * 3
        await cycle(KINDS[kind](w.manager))


async def test_what_waits_when_others_cancel_the_manager_gets_an_error():
    """A call that waits for a lock, and an observer of an election: neither waits for ever."""
    async with world() as w, w.process() as manager:
        held = await w.manager.lock("a").acquire()

        async def observe() -> None:
            async for _ in manager.election("e").observe():
                pass

        tasks = [in_task(manager.lock("a").acquire), in_task(observe)]
        await asyncio.sleep(1)
        supervisor = manager._life._background._supervisor
        supervisor.cancel()
        for task in tasks:
            end = await asyncio.wait_for(task, 1)
            assert isinstance(end.error, ManagerClosedError)
            assert "other code cancelled" in str(end.error)
        await cycle(manager.lock("b"))
        await held.release()


async def test_a_block_that_swallows_that_is_told_of_its_loss():
    """It goes on, and nothing extends its lease any more: it is lost at its deadline."""
    async with world() as w:

        async def swallow() -> None:
            async with w.manager.lock("a") as lease:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(100)
                await lease.lost.wait()
                assert lease.held, "before it can be another's"

        user = in_task(swallow)
        await asyncio.sleep(1)
        for task in (*background(), user):
            task.cancel()
        assert isinstance((await asyncio.wait_for(user, 20)).error, (LockLostError, asyncio.CancelledError))


# -- blocks that no code will leave ------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["before", "meanwhile"])
async def test_aclose_does_not_wait_for_a_task_that_has_ended(ends):
    """An exit stack that no code closes: its lock is released at once, not after its ttl."""
    async with world() as w:

        async def enter() -> None:
            await stack.enter_async_context(w.manager.lock("a", ttl=100, on_lost="raise"))
            await asyncio.sleep(0.5 if ends == "before" else 1.5)

        stack = contextlib.AsyncExitStack()
        user = asyncio.create_task(enter())
        await asyncio.sleep(1)
        began = sim().time()
        await w.manager.aclose()
        assert sim().time() - began < 1
        assert w.keys == [()] * 3
        await user
        with pytest.raises(LockLostError):
            await stack.aclose()


# -- coroutines that are thrown away -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lock", "lease", "nested"])
async def test_a_coroutine_that_is_thrown_away_inside_a_block(how):
    """close() of a coroutine under a lock is not refused, and its keys are released all the same."""
    async with world() as w:
        leases: list[Lease] = []

        async def body() -> None:
            async with contextlib.AsyncExitStack() as stack:
                if how == "nested":
                    await stack.enter_async_context(w.manager.lock("b"))
                lock = w.manager.lock("a")
                block = await lock.acquire() if how == "lease" else lock
                async with block as lease:
                    leases.append(lease)
                    await asyncio.sleep(100)

        await ThrownAway(body(), lambda: bool(leases))
        assert [lease.held for lease in leases] == [False]
        assert w.manager.statistics().held == 0
        await asyncio.sleep(3 * LATENCY)
        assert w.keys == [()] * 3
        await cycle(w.manager.lock("a", "b", blocking_timeout=0))
        gc.collect()


class ThrownAway:
    """Runs a coroutine until it is inside; then it is closed where it stands, as a collector does it."""

    def __init__(self, run: Coroutine[Any, Any, None], is_inside: Callable[[], bool]) -> None:
        self._run = run
        self._is_inside = is_inside

    def __await__(self) -> Generator[Any, Any, None]:
        """Pass everything through, until it is inside."""
        while True:
            pause = self._run.send(None)
            if self._is_inside():
                break
            yield pause
        self._run.close()
