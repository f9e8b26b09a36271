"""Ends of a program, orderly and not, and uses of a manager where it does not belong (R6, R18)."""

from __future__ import annotations

import asyncio
import gc
import signal
import warnings
from collections.abc import Callable
from typing import Final

import pytest

from aioredlock_ng import Lease, LockManager
from aioredlock_ng.events import NodeChanged
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, PATIENCE, boot_time, keys, no_key_left, quiet, worker
from tests.servers import Nodes, ask

TTL: Final = 60  # seconds: a key that is left behind outlives the test


def complaints(errors: str) -> list[str]:
    """Return the lines of a process's errors in which Python complains of something left behind."""
    words = ("Warning", "never", "was destroyed", "unhandled", "Unclosed", "unclosed", "Error in")
    return [line for line in errors.splitlines() if any(word in line for word in words)]


@pytest.mark.process
@pytest.mark.parametrize("ending", ["leave", "exit", "SIGINT"])
async def test_a_program_ends_while_it_holds_locks(shared_nodes: Nodes, ending: str) -> None:
    """However `asyncio.run` ends, the locks held in it are released, and Python complains of nothing."""
    task = "hold" if ending == "SIGINT" else ending
    async with worker(task, shared_nodes.urls, "ending", TTL) as child:
        await child.said("held")
        if ending == "SIGINT":
            assert len(keys(shared_nodes.urls)) == 5
            child.process.send_signal(signal.SIGINT)
        out, errors = await child.ended()
    assert keys(shared_nodes.urls) == {}
    assert out == ""
    assert complaints(errors) == [], errors
    expected = {"leave": 0, "exit": 3, "SIGINT": -signal.SIGINT}[ending]
    assert child.process.returncode == expected, errors
    if ending == "leave":  # no block holds this lease that could end by itself: its loss is reported
        assert [line for line in errors.splitlines() if "'ending:plain' was lost" not in line] == []


@pytest.mark.process
async def test_a_holder_is_killed(shared_nodes: Nodes) -> None:
    """The locks of a process that was killed are free when their ttl has passed, and not before."""
    ttl = 1.0
    async with (
        quiet(),
        LockManager(shared_nodes.urls) as manager,
        worker("hold", shared_nodes.urls, "killed", ttl) as child,
    ):
        await child.said("held")
        waiter = asyncio.create_task(manager.lock("killed:0").acquire())
        done, _ = await asyncio.wait((waiter,), timeout=2 * ttl)
        assert not done, "it is extended while its holder lives"
        child.process.kill()
        await child.process.wait()
        killed = boot_time()
        # The kill may have cut an extension short: a majority is free with the third key of five.
        left = sorted(ask(url, "PTTL", "redlock:killed:0") / 1000 for url in shared_nodes.urls)[2]
        assert 0 < left <= ttl
        lease = await asyncio.wait_for(waiter, ttl + 5)
        assert boot_time() - killed <= ttl + ALLOWANCE
        assert boot_time() - killed >= left - 0.1
        await lease.release()
    await no_key_left(shared_nodes.urls, within=ttl + ALLOWANCE)


# -- loops -----------------------------------------------------------------------------------------


def test_a_manager_that_is_never_closed(shared_nodes: Nodes) -> None:
    """A module-level manager that is never closed leaves neither a key nor a warning when its loop ends."""
    manager = LockManager(shared_nodes.urls)

    async def use() -> Lease:
        lease = await manager.lock("never closed", ttl=TTL).acquire()
        await lease.extend()
        return lease

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        lease = asyncio.run(use(), debug=True)
        assert keys(shared_nodes.urls) == {}
        assert not lease.held
        del lease
        gc.collect()
    assert [str(warning.message) for warning in warned] == []


# -- closing ---------------------------------------------------------------------------------------


async def test_closing_waits_until_all_releases_are_read(make_nodes: Callable[..., LocalNodes]) -> None:
    """A server that goes on when its connection is being closed has more to read than it takes at once.

    A socket that is closed for reading, too, would be reset by the first answer, and the rest be lost.
    """
    nodes = make_nodes(1)

    class Thaw:
        def on_node_changed(self, event: NodeChanged) -> None:
            if event.reason == "closed":
                asyncio.get_running_loop().call_soon(nodes.resume, 0)

    async with quiet():
        manager = LockManager(nodes.urls, ttl=TTL, node_timeout=0.3, hooks=[Thaw()])
        await manager.start()
        kept = [await manager.lock(f"kept:{i}").acquire() for i in range(1000)]
        nodes.pause(0)
        await manager.aclose()
        assert not any(lease.held for lease in kept)
        await no_key_left(nodes.urls)


async def test_another_loop(shared_nodes: Nodes) -> None:
    """Using a manager or its leases from another loop is a clear `RuntimeError` and does no harm."""
    async with quiet(), LockManager(shared_nodes.urls, ttl=5) as manager:
        lease = await manager.lock("here").acquire()
        lock = manager.lock("there")

        async def misuse() -> list[object]:
            uses = (manager.start, lock.acquire, lock.try_acquire, lambda: manager.inspect("here"))
            ends = (lease.extend, lease.release, manager.aclose)
            calls = [asyncio.wait_for(use(), PATIENCE) for use in (*uses, *ends)]
            return await asyncio.gather(*calls, return_exceptions=True)

        errors = await asyncio.to_thread(asyncio.run, misuse())
        assert lease.held, errors
        await lease.extend()
        await lease.release()
        assert all(type(error) is RuntimeError and "loop" in str(error) for error in errors), errors
    assert keys(shared_nodes.urls) == {}
