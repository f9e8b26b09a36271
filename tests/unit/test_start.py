"""The first use of a manager: its start takes none of the caller's time, and waits for no node in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioredlock_ng import Leadership, LockManager, ManagerClosedError, QuorumUnavailableError
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import sim
from tests.unit.worlds import LATENCY, TIMEOUT, each, make, opened

CONNECT = 5.0
"""The `connect_timeout`, in seconds."""

SLOW = 2.0
"""Seconds until nodes answer: longer than any limit of the calls below."""


class FrozenLoop(asyncio.SelectorEventLoop):
    """Its clock shows the time of day and stands still, as freezegun has it: no timer ever rings."""

    def time(self) -> float:
        """Return always the same."""
        return 1_767_225_600.0


@pytest.mark.timeout(30)
def test_neither_start_nor_cycle_needs_a_timer_while_all_nodes_answer():
    """A test that freezes time gets its lock, and its manager ends."""

    async def use() -> bool:
        async with LockManager([MemoryNode() for _ in range(3)]) as manager:
            return await entered(manager.lock("a"))

    with asyncio.Runner(loop_factory=FrozenLoop) as runner:
        assert runner.run(use())


def masters() -> list[MemoryNode]:
    """Make three."""
    return [MemoryNode(latency=LATENCY) for _ in range(3)]


async def used(nodes: list[MemoryNode], **options: Any) -> None:
    """Let there have been a client, so that the nodes have records."""
    async with opened(nodes, **options) as manager, manager.lock("before", blocking_timeout=1):
        pass


async def entered(lock: Any) -> bool:
    """Run an empty block."""
    async with lock:
        return True


async def wins(taking: Awaitable[Any]) -> bool:
    """Whether a call gets the lock; it gives it back."""
    if (lease := await taking) is None:
        return False
    await (lease.resign() if isinstance(lease, Leadership) else lease.release())
    return True


CALLS: dict[str, Callable[[LockManager], Awaitable[Any]]] = {
    "try": lambda manager: wins(manager.lock("a").try_acquire()),
    "not blocking": lambda manager: wins(manager.lock("a", blocking=False).acquire()),
    "block": lambda manager: entered(manager.lock("a", blocking_timeout=0.01)),
    "quorum": lambda manager: entered(manager.lock("a", quorum_timeout=0.01)),
    "several": lambda manager: wins(manager.lock("a", "b", blocking_timeout=0).acquire()),
    "fair": lambda manager: wins(manager.lock("a", fair=True, blocking_timeout=0.01).acquire()),
    "read": lambda manager: wins(manager.rwlock("a").read(blocking_timeout=0).acquire()),
    "write": lambda manager: wins(manager.rwlock("a").write(blocking_timeout=0.01).acquire()),
    "semaphore": lambda manager: wins(manager.semaphore("a", permits=2).try_acquire()),
    "campaign": lambda manager: wins(manager.election("a").try_campaign()),
    "decorated": lambda manager: manager.locked("a", blocking=False)(decorated)(),
}


async def decorated() -> bool:
    """Say that it was called."""
    return True


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_first_call_has_its_whole_limit_once_the_nodes_are_connected(call):
    """Healthy nodes that take longer to connect than the call may wait do not make it fail."""
    nodes = masters()
    each(nodes).freeze()
    manager = make(nodes, node_timeout=TIMEOUT, connect_timeout=CONNECT)
    for node in nodes:
        sim().call_later(SLOW, node.thaw)
    began = sim().time()
    assert await call(manager)
    assert SLOW <= sim().time() - began < SLOW + TIMEOUT
    await manager.aclose()


async def test_nodes_that_never_answer_are_waited_for_once():
    """For a `connect_timeout`; then a call ends at once, by its own limit."""
    nodes = masters()
    each(nodes).freeze()
    manager = make(nodes, node_timeout=TIMEOUT, connect_timeout=CONNECT)
    for limit in (CONNECT, 0.0):
        began = sim().time()
        with pytest.raises(QuorumUnavailableError, match="no answer"):
            await manager.lock("a").try_acquire()
        assert sim().time() - began == pytest.approx(limit, abs=TIMEOUT)
    await manager.aclose()
    each(nodes).thaw()


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_node_that_has_failed_is_not_waited_for(*, recorded: bool):
    """Two of three refuse connections, and the third says nothing; or a first use would need the one."""
    nodes = masters()
    if recorded:
        await used(nodes, restart_quarantine=60)
        each(nodes[1:]).crash(keep_data=True)
        nodes[0].freeze()
    else:
        each(nodes).restart()
        await asyncio.sleep(30)  # since when they remember all
        nodes[2].crash(keep_data=True)
    manager = make(nodes, node_timeout=TIMEOUT, connect_timeout=CONNECT, restart_quarantine=60)
    began = sim().time()
    with pytest.raises(QuorumUnavailableError):
        await manager.lock("a").try_acquire()
    assert sim().time() - began < TIMEOUT
    await manager.aclose()
    nodes[0].thaw()


@pytest.mark.parametrize("number", [2, 3])
async def test_the_first_call_waits_until_fresh_nodes_can_agree(number: int):
    """Their floors differ, as their clocks do, and are further ahead than a fence may be raised (R10)."""
    nodes = [MemoryNode(latency=LATENCY, clock_offset=index * 0.02) for index in range(number)]
    each(nodes).restart()
    manager = make(nodes, restart_quarantine=0)
    assert await wins(manager.lock("a").try_acquire())
    await manager.aclose()


# -- a readiness probe -------------------------------------------------------------------------------


async def test_a_probe_alone_becomes_ready():
    """Nothing but `available` is asked of the manager; when it is closed, nothing starts it again."""
    manager = make(masters())
    assert not manager.available
    await asyncio.sleep(1)
    assert manager.available
    assert await wins(manager.lock("a").try_acquire())
    await manager.aclose()
    assert not manager.available
    await asyncio.sleep(1)
    assert not manager.available
    with pytest.raises(ManagerClosedError):
        await manager.lock("a").try_acquire()


async def test_a_manager_that_was_closed_unused_is_not_started_by_a_probe():
    """Nor does the probe leave anything behind."""
    nodes = masters()
    manager = make(nodes)
    await manager.aclose()
    assert manager.unavailable_for > 0
    await asyncio.sleep(1)
    assert not any(node.executed for node in nodes)
