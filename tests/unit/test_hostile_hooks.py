"""Other people's code – hooks, log filters, nodes, warnings filters – fails, and no lock suffers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aioredlock_ng import Lease, LockLostError, LockManager, LossReason, NodeState
from aioredlock_ng.events import Hooks, Waiting
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cycle, sim, turns
from tests.unit.worlds import LATENCY, TIMEOUT, deadline, make, opened, world

LOGGER = logging.getLogger("aioredlock_ng")
TTL = 3.0


class OddError(BaseException):
    """Neither an Exception nor a CancelledError, like the one of ``pytest.fail``."""


class Hostile:
    """A hook that raises whenever it is told anything, or one thing."""

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


class Moody:
    """A hook whose attribute can be read so many times."""

    def __init__(self, readable: int) -> None:
        self._reads = iter([[].append] * readable)

    @property
    def on_lost(self) -> Callable[[object], None]:
        """Raise, later than the others."""
        for read in self._reads:
            return read
        raise RuntimeError("this attribute cannot be read")


async def test_hooks_are_looked_at_once():
    """A hook whose attributes fail is found when the manager is made, and never in the middle of a loss."""
    with pytest.raises(RuntimeError, match="cannot be read"):
        make([MemoryNode()], hooks=[Moody(0)])
    async with world(ttl=TTL, hooks=[Moody(1)]) as w:
        reason, _ = await lost(w.manager, [], lambda: w.vacate("a"))
        assert reason is LossReason.REFUSED
        await cycle(w.manager.lock("a"))


# -- nodes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ZeroDivisionError, OddError, GeneratorExit, asyncio.CancelledError])
async def test_a_node_that_fails_is_down_and_no_more(error, caplog):
    """A node's run() that raises costs its own vote alone; the log has the cause once (R44)."""
    nodes: list[Any] = [MemoryNode(latency=LATENCY).link() for _ in range(3)]
    failing = asyncio.Event()

    async def run() -> None:
        await failing.wait()
        raise error("a bug")

    async with opened(nodes) as manager:
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


# -- warnings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extended", [False, True])
async def test_a_dropped_lease_is_released_where_warnings_are_errors(extended, monkeypatch):
    """The ResourceWarning of a dropped lease may be raised: the lease is given up all the same."""
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))
    async with world() as w:
        lease = await w.manager.lock("a", ttl=TTL).acquire()
        if extended:
            await lease.extend()
        del lease
        gc.collect()
        await turns(2)
        assert w.manager.statistics().held == 0
        await asyncio.sleep(3 * LATENCY)
        assert w.keys == [()] * 3
    (warning,) = raised
    assert isinstance(warning, ResourceWarning)
    assert "'a'" in str(warning)


class Checks(Hooks):
    """A hook that checks a lease whenever a call begins to wait."""

    lease: Lease | None = None

    def on_waiting(self, event: Waiting) -> None:
        """Find out that the lease in the way has ended."""
        assert self.lease is not None
        with pytest.raises(LockLostError):
            self.lease.check()


async def test_a_hook_that_ends_the_lease_in_the_way_lets_the_waiting_call_in():
    """A check notices that validity has ended before the watchdog has; what waits for it goes on at once."""
    hook = Checks()
    async with world(hooks=[hook]) as w:
        hook.lease = await w.manager.lock("a", ttl=TTL).acquire()
        sim().advance(2 * TTL)  # the loop stood still
        began = sim().time()
        async with w.manager.lock("a"):
            assert sim().time() - began < TIMEOUT
        await hook.lease.release()
