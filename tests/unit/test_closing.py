"""Ends: of the manager, of the trust in its nodes, of a coroutine that is thrown away."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, cast

import pytest

from aioredlock_ng import ConfigurationError, Lease, LockLostError, LossReason, ManagerClosedError
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node import fork
from aioredlock_ng._round.round import Round
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cycle, in_task, sim, turns
from tests.unit.traces import locks
from tests.unit.worlds import LATENCY, PLAIN, make, world

# -- leases without a body -----------------------------------------------------------------------------


@pytest.mark.parametrize("extension", [None, PLAIN])
async def test_closing_tells_leases_without_a_body(extension):
    """aclose() sets `lost` of a lease from acquire(), which wakes its watcher; check() gives the reason."""
    async with world() as w:
        lease = await w.manager.lock("a", extension=extension).acquire()
        other = await w.manager.lock("b", extension=extension).acquire()
        watcher = asyncio.create_task(lease.lost.wait())
        await asyncio.sleep(1)
        began = sim().time()
        await w.manager.aclose()
        assert sim().time() - began < 0.1, "there is no body to wait for"
        assert watcher.done()
        assert other.lost.is_set()
        for _ in range(2):
            assert not lease.held
            with pytest.raises(LockLostError) as caught:
                lease.check()
            assert caught.value.reason is LossReason.MANAGER_CLOSED
            await asyncio.sleep(30)
        assert w.manager.statistics().lost == 2
        assert w.keys == [()] * 3


# -- an end that nobody asked for ------------------------------------------------------------------------


async def test_a_background_task_that_others_cancel_is_a_failure(caplog):
    """No manager ends in silence: it is logged, its bodies stop, and each further call says so."""
    async with world() as w:

        async def hold() -> None:
            async with w.manager.lock("a"):
                await asyncio.sleep(100)

        body = in_task(hold)
        await asyncio.sleep(1)
        (watchdog,) = [task for task in asyncio.all_tasks() if task.get_name() == "aioredlock_ng watchdog"]
        watchdog.cancel()
        error = (await body).error
        assert isinstance(error, LockLostError)
        assert error.reason is LossReason.MANAGER_CLOSED
        (logged,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
        assert "the lock manager has failed" in logged.getMessage()
        with pytest.raises(ManagerClosedError, match="the lock manager has failed") as caught:
            await w.manager.lock("a").acquire()
        assert "cancelled a background task" in str(caught.value.__cause__)
        await asyncio.sleep(1)
        assert w.keys == [()] * 3


@pytest.mark.filterwarnings("ignore:coroutine 'Background._settle' was never awaited:RuntimeWarning")
async def test_a_start_that_others_cancel_keeps_no_caller_waiting():
    """Not either if it had not begun."""
    began = sim().time()
    manager = make([MemoryNode() for _ in range(3)])
    starting = in_task(manager.start)
    await turns(2)
    (start,) = [task for task in asyncio.all_tasks() if task.get_name() == "aioredlock_ng start"]
    start.cancel()
    assert (await starting).at - began < 1.0
    with pytest.raises(ManagerClosedError):
        await manager.lock("a").acquire()
    await manager.aclose()


# -- nodes that turn out to be one server ----------------------------------------------------------------


async def test_one_server_under_two_names_is_found_while_tasks_wait(caplog):
    """A waiter gets the error when two nodes turn out to be one server; it is logged once."""
    nodes = [MemoryNode(name, latency=LATENCY) for name in ("left", "right", "other")]
    nodes[1].crash()
    strangers = {"fencing": False, "restart_quarantine": 0}  # over two nodes, which is another quorum
    async with make(nodes) as manager, make([nodes[0], nodes[2]], **strangers) as stranger:
        held = await stranger.lock("a").acquire()
        waiters = [in_task(manager.lock("a").acquire) for _ in range(3)]
        await asyncio.sleep(1)
        with caplog.at_level(logging.ERROR, "aioredlock_ng"):
            nodes[1].restart()
            nodes[1]._server.run_id = nodes[0]._server.run_id
            for waiter in waiters:
                end = await asyncio.wait_for(waiter, 5)
                assert isinstance(end.error, ConfigurationError)
                assert "left" in str(end.error)
                assert "right" in str(end.error)
            nodes[2].disconnect()  # news of the nodes, though not of this
            await asyncio.sleep(2)
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(errors) == 1, [record.getMessage() for record in errors]
        await held.release()
        await asyncio.sleep(1)
        assert [locks(node) for node in nodes] == [()] * 3


async def test_a_win_that_counts_one_server_twice_is_no_win():
    """A lock whose votes come in just when two nodes turn out to be one server is given back."""
    nodes = [MemoryNode(name, latency=LATENCY) for name in ("left", "right", "other")]
    async with make(nodes) as manager:
        task = in_task(manager.lock("a").acquire)
        await asyncio.sleep(LATENCY / 2)  # asked, and not answered yet
        session = manager._life.session
        assert session is not None
        session.availability.conflict = "nodes left and right are the same server"
        end = await task
        assert isinstance(end.error, ConfigurationError)
        session.availability.conflict = None
        await asyncio.sleep(3 * LATENCY)
        assert [locks(node) for node in nodes] == [()] * 3


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


# -- forked children ---------------------------------------------------------------------------------------


async def test_a_forked_child_has_no_connection(monkeypatch):
    """What a child would send over its parent's connections is answered with silence, and never sent."""
    async with world() as w, w.manager.lock("a"):
        session = w.manager._life.session
        assert session is not None
        executed = [len(node.executed) for node in w.nodes]
        with monkeypatch.context() as patch:  # it puts back what the fork changes
            patch.setattr(fork, "generation", fork.generation)
            for node in cast("Any", session.nodes):
                patch.setattr(node._link.pipe, "_room", node._link.pipe._room)
            fork._forked()
            mutex = Primitive(MUTEX, ("b",), (b"redlock:b",))
            seen = Round(session.outbox, mutex.read_acquire)
            seen.ask(mutex.acquire(b"another", 1.0), 1.0)
            assert seen.silent == 3, "at once, and not at the end of some timeout"
        await asyncio.sleep(1)
        assert [len(node.executed) for node in w.nodes] == executed
