"""Other people's code – hooks, log filters, nodes, warnings filters – fails, and no lock suffers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aioredlock_ng import Lease, LockLostError, LockManager, LossReason, NodeState
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cycle, sim
from tests.unit.worlds import LATENCY, deadline, opened, world

LOGGER = logging.getLogger("aioredlock_ng")
TTL = 3.0


class OddError(BaseException):
    """Neither an Exception nor a CancelledError, like the one of ``pytest.fail``."""


class Hostile:
    """A hook that raises at each event, or at one."""

    def __init__(self, error: BaseException, method: str = "on_") -> None:
        self._error, self._method = error, method

    def __getattr__(self, name: str) -> Callable[[object], None]:
        if not name.startswith(self._method):
            raise AttributeError(name)
        return self._raise

    def _raise(self, _: object) -> None:
        raise self._error


def fails(*_: object) -> bool:
    """Raise, as a filter or a handler of the application."""
    raise RuntimeError("the application failed")


@contextlib.contextmanager
def hostile_logging(kind: object) -> Iterator[None]:
    """Let logging raise in the application's code."""
    level, handler = LOGGER.level, logging.Handler()
    handler.emit = fails  # type: ignore[method-assign]
    LOGGER.setLevel(logging.DEBUG)
    if kind == "filter":
        LOGGER.addFilter(fails)
    elif kind == "handler":
        LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeFilter(fails)
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


HOSTILE = ["filter", "handler", ValueError("hook"), asyncio.CancelledError("hook"), OddError("hook")]
LOSSES: dict[str, tuple[Callable[[MemoryNode], object], Callable[[MemoryNode], object]]] = {
    "deleted": (lambda node: node.delete(b"redlock:a"), MemoryNode.flush_scripts),
    "frozen": (MemoryNode.freeze, MemoryNode.thaw),
    "crashed": (MemoryNode.crash, MemoryNode.restart),
}


async def lost(
    manager: LockManager, leases: list[Lease], then: Callable[[], object]
) -> tuple[LossReason, float]:
    """Do something under the lock that costs it; return why it was lost and when the body ended."""
    ended = 0.0
    try:
        async with manager.lock("a") as lease:
            leases.append(lease)
            then()
            try:
                await asyncio.sleep(100)
            finally:
                ended = sim().time()
    except LockLostError as error:
        return error.reason, ended
    pytest.fail("the body was not stopped")


@pytest.mark.parametrize("loss", [None, *LOSSES])
@pytest.mark.parametrize("hostile", HOSTILE, ids=repr)
async def test_a_loss_reaches_the_body_in_time(hostile, loss):
    """Whatever hooks and logging raise: the body ends before its lock does, and the manager lives on.

    The death of one node of three costs no lease.
    """
    break_it, mend_it = LOSSES[loss or "crashed"]
    hooks = [] if isinstance(hostile, str) else [Hostile(hostile)]
    with hostile_logging(hostile):
        async with world(ttl=TTL, hooks=hooks) as w:
            if loss is None:
                async with w.manager.lock("a") as lease:
                    break_it(w.nodes[0])
                    await asyncio.sleep(5 * TTL)
                    lease.check()
            else:
                began = sim().time()
                leases: list[Lease] = []
                reason, ended = await lost(w.manager, leases, lambda: [break_it(node) for node in w.nodes])
                assert leases[0].lost.is_set()
                assert reason is (LossReason.REFUSED if loss == "deleted" else LossReason.EXPIRED)
                assert ended <= (began + TTL / 2 if loss == "deleted" else deadline(leases[0], TTL) + 1e-6)
            for node in w.nodes:
                mend_it(node)
            await asyncio.sleep(2)
            async with w.manager.lock("a", blocking_timeout=1) as again:
                await again.extend()
            await asyncio.sleep(3 * LATENCY)
            assert w.keys == [()] * 3


async def test_an_interrupt_inside_a_hook_leaks_no_key():
    """Ctrl-C that strikes inside a hook goes to the caller, and the lock that has no lease is released."""
    async with world(hooks=[Hostile(KeyboardInterrupt(), "on_acquired")]) as w:
        with pytest.raises(KeyboardInterrupt):
            await w.manager.lock("a").acquire()
        await asyncio.sleep(3 * LATENCY)
        assert w.keys == [()] * 3
        assert w.manager.statistics().held == 0


@pytest.mark.parametrize("error", [ZeroDivisionError, OddError, GeneratorExit, asyncio.CancelledError])
async def test_a_node_that_fails_is_down_and_no_more(error, caplog):
    """A node's run() that raises costs its own vote alone; the log has the cause once (R44)."""
    masters = [MemoryNode(latency=LATENCY) for _ in range(3)]
    failing = asyncio.Event()

    async def run() -> None:
        await failing.wait()
        raise error("a bug")

    async with opened(masters) as manager:
        nodes: Any = manager._life.nodes
        nodes[0].run = run
        lease = await manager.lock("held").acquire()
        for task in asyncio.all_tasks():
            if task.get_name() == f"aioredlock_ng {nodes[0].name}":
                task.cancel()  # the next run is the user's
        failing.set()
        await asyncio.sleep(3 * TTL)
        lease.check()
        await lease.release()
        await cycle(manager.lock("other"))
        first, *_ = manager.statistics().nodes
        assert first.state is NodeState.DOWN
        assert "a bug" in first.reason
    assert [record.levelno for record in caplog.records].count(logging.CRITICAL) == 1
