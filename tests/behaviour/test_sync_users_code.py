"""Users' code beside the loop of a `SyncLockManager`: log handlers and hooks, and what blocks the loop."""

# ruff: noqa: PT012 (a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from aioredlock_ng import LockLostError, ManagerClosedError, QuorumUnavailableError, ReleaseOutcome
from aioredlock_ng.sync import SyncLockManager, _thread
from tests.behaviour.test_sync import in_loop
from tests.behaviour.tools import keys
from tests.servers import Nodes, until

PATIENCE = 60
SOON = 20
"""Seconds that load may take; what would hang, hangs for ever."""

REQUEST: ContextVar[str] = ContextVar("request", default="-")


@pytest.fixture
def root(request: pytest.FixtureRequest) -> Iterator[logging.Logger]:
    """Have the root logger take everything, with its handlers put back at the end."""
    logger, before = logging.getLogger(), logging.getLogger().handlers[:]
    level = logger.level
    yield logger
    logger.handlers[:] = before
    logger.setLevel(level)


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_a_log_handler_takes_a_lock(shared_nodes: Nodes, root: logging.Logger, level: int) -> None:
    """Lines of the manager's own thread wait for it elsewhere, and keep no call from ending."""
    lines: list[str] = []

    class Shared(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logfile = manager.lock("logfile", ttl=5)
            with contextlib.suppress(ManagerClosedError), logfile:  # it logs that it closes, too
                lines.append(record.name)

    with SyncLockManager(shared_nodes.urls) as manager:
        root.handlers[:] = [handler := Shared()]
        root.setLevel(level)
        for _ in range(3):
            logging.getLogger("app").warning("a line")
        root.removeHandler(handler)
    assert lines.count("app") == 3


def test_a_record_is_as_it_would_be(shared_nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """It is handled once, names the line that logs, in the thread that does, and has its error."""
    caplog.set_level(logging.DEBUG, "aioredlock_ng")
    hook = SimpleNamespace(on_acquired=lambda _: 1 / 0)
    with SyncLockManager(shared_nodes.urls, hooks=[hook]) as manager, manager.lock("a"):
        pass
    acquired = [each for each in caplog.records if each.getMessage().startswith("lock 'a' was acquired")]
    assert len(acquired) == 1
    won: Any = acquired[0]
    assert (won.filename, won.threadName, won.lock) == ("acquisition.py", "aioredlock_ng", "a")
    (failed,) = (each for each in caplog.records if "failed; it will not be" in each.getMessage())
    assert failed.exc_info is not None
    assert failed.exc_info[0] is ZeroDivisionError


def test_a_hook_that_never_returns(
    shared_nodes: Nodes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks, losses and the end go on without it; what finds no room is counted, and logged later."""
    monkeypatch.setattr("aioredlock_ng.sync._courier.MAX_UNTOLD", 5)
    goes_on = threading.Event()
    delivered: list[object] = []

    def block(event: object) -> None:
        delivered.append(event)
        goes_on.wait(PATIENCE)

    with SyncLockManager(shared_nodes.urls, hooks=[SimpleNamespace(on_acquired=block)]) as manager:
        for _ in range(10):
            with manager.lock("a", blocking_timeout=SOON):
                pass
        with pytest.raises(LockLostError), manager.lock("a", blocking_timeout=SOON) as lease:
            manager.force_release("a")
            with pytest.raises(LockLostError):
                lease.extend()
            assert lease.lost.wait(SOON)
        assert len(delivered) == 1
        courier = manager._thread.courier
        assert courier.dropped >= 4
        goes_on.set()
        until(lambda: len(delivered) + courier.dropped >= 11, "the others are delivered")
        message = "log lines and calls of hooks of a SyncLockManager were dropped"
        until(lambda: message in caplog.text, "it is logged")
    assert manager.manager.statistics().closed


def test_a_hook_that_calls_back(shared_nodes: Nodes) -> None:
    """It may use the manager as any thread does, and close it."""
    released: list[str] = []

    def on_released(event: Any) -> None:
        if event.names == ("a",):
            with manager.lock("b", blocking_timeout=SOON):
                released.append(REQUEST.get())
            manager.close()

    manager = SyncLockManager(shared_nodes.urls, hooks=[SimpleNamespace(on_released=on_released)])
    REQUEST.set("request 1")
    with manager.lock("a"):
        pass
    until(lambda: manager.manager.statistics().closed, "the hook has closed it")
    manager.close()
    assert released == ["request 1"], "in the context of the code that has released"


# -- a loop that stands still ------------------------------------------------------------------------


@pytest.fixture
def manager(shared_nodes: Nodes) -> Iterator[SyncLockManager]:
    """Return a manager that was used."""
    with SyncLockManager(shared_nodes.urls, ttl=PATIENCE) as manager:
        manager.lock("warm").acquire().release()
        yield manager


@pytest.fixture
def stops(manager: SyncLockManager) -> Iterator[Callable[[], threading.Event]]:
    """Return what has the loop stand still until the event is set that it returns."""
    goes_on = threading.Event()

    def stop() -> threading.Event:
        begun = threading.Event()
        in_loop(manager, lambda: [begun.set(), goes_on.wait(PATIENCE)], waits=False)
        assert begun.wait(PATIENCE)
        return goes_on

    yield stop
    goes_on.set()


def test_a_call_that_no_loop_answers(
    shared_nodes: Nodes, manager: SyncLockManager, stops: Callable[[], threading.Event]
) -> None:
    """Each ends soon after its limit, and has no lock when the loop goes on, nor a block of one."""
    leads = manager.election("g").try_campaign()
    assert leads is not None
    goes_on = stops()
    calls: list[Callable[[], object]] = [
        manager.lock("a", blocking_timeout=0.2).acquire,
        manager.lock("b").try_acquire,
        manager.semaphore("c", permits=2, blocking=False).acquire,
        manager.rwlock("d", blocking_timeout=0.2).read().__enter__,
        manager.election("e").try_campaign,
        manager.election("f", blocking_timeout=0.2).campaign().__enter__,
        manager.lock("a").locked,
        manager.survey,
        manager.election("e").leader,
        leads.__enter__,
    ]
    for call in calls:
        began = time.monotonic()
        with pytest.raises(QuorumUnavailableError, match="thread of the SyncLockManager, which stands still"):
            call()
        assert time.monotonic() - began < SOON
    goes_on.set()
    manager.lock("after").acquire().release()
    assert leads._leadership._lease._holding.body is None
    leads.resign()
    until(lambda: keys(shared_nodes.urls) == {}, "no lock is left")


def test_a_block_that_ends_while_the_loop_stands_still(
    shared_nodes: Nodes, manager: SyncLockManager, stops: Callable[[], threading.Event]
) -> None:
    """Its release waits for the loop, the thread does not; and what could not be released is said so."""
    lease = manager.lock("a").acquire()
    leads = manager.election("b").try_campaign()
    assert leads is not None
    with manager.lock("c"), manager.election("d").campaign():
        goes_on = stops()
    for report in (lease.release(), leads.resign()):
        assert report.count(ReleaseOutcome.UNKNOWN) == len(shared_nodes.urls)
    assert [len(left) for left in keys(shared_nodes.urls).values()] == [4] * len(shared_nodes.urls)
    goes_on.set()
    until(lambda: keys(shared_nodes.urls) == {}, "all are released")


def test_a_loss_while_the_loop_stands_still(
    manager: SyncLockManager, stops: Callable[[], threading.Event]
) -> None:
    """The clock ends the lease, and the end of the block says so."""
    with pytest.raises(LockLostError), manager.lock("a", ttl=0.5) as lease:
        stops()
        until(lambda: not lease.held, "its time is over")


def test_a_limited_number_of_calls_waits_for_a_loop(
    manager: SyncLockManager, stops: Callable[[], threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond that they fail at once: nothing grows without a limit."""
    monkeypatch.setattr(_thread, "MAX_CALLS", 2)
    goes_on = stops()
    for _ in range(2):
        with pytest.raises(QuorumUnavailableError, match="lock 'a': no answer"):
            manager.lock("a", blocking=False).acquire()
    with pytest.raises(QuorumUnavailableError, match="2 calls wait for the thread"):
        manager.lock("a").acquire()
    goes_on.set()
    until(lambda: not manager._thread._calls, "it goes on")
    with manager.lock("a"):
        pass
