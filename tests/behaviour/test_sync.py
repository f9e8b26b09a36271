"""The façade for threads: the same locks, without ``await``."""

# ruff: noqa: PT012 (a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import math
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from aioredlock_ng import (
    ConfigurationError,
    Lock,
    LockLostError,
    LockManager,
    LockTakenError,
    LossReason,
    ManagerClosedError,
    NodeState,
    ReleaseOutcome,
    WouldDeadlockError,
)
from aioredlock_ng.events import Hooks
from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import lose
from tests.behaviour.tools import PATIENCE, keys
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, until

NODE_TIMEOUT: Final = 1.5  # seconds: more than a busy server takes to answer


def in_another_thread(function: Callable[..., Any], *arguments: object) -> Any:
    """Return what a function returns in a thread of its own."""
    with ThreadPoolExecutor(1) as another:
        return another.submit(function, *arguments).result(PATIENCE)


def in_loop(
    manager: SyncLockManager, function: Callable[..., Any], *arguments: object, waits: bool = True
) -> Any:
    """Call a function in the manager's loop, and return its result; or the call, if this is not to wait."""

    async def call() -> Any:
        return function(*arguments)

    return manager._thread.call(call) if waits else manager._thread.submit(call)


def take_away(manager: SyncLockManager, name: str) -> None:
    """Have the manager lose a lock."""
    in_loop(manager, lose, manager.manager, name)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Every test ends with the threads that it began with."""
    before = set(threading.enumerate())
    yield
    until(lambda: set(threading.enumerate()) <= before, "every thread has ended")


@pytest.fixture
def manager(shared_nodes: Nodes) -> Iterator[SyncLockManager]:
    """Give a manager over real nodes, which has started: time limits of tests are not for that."""
    with SyncLockManager(shared_nodes.urls, node_timeout=NODE_TIMEOUT, connect_timeout=10.0) as manager:
        yield manager


@pytest.fixture
def nothing_left(shared_nodes: Nodes, manager: SyncLockManager) -> Iterator[None]:
    """A test ends without a key and without a lease."""
    yield
    until(lambda: keys(shared_nodes.urls) == {}, "no key is left")
    assert manager.manager.statistics().held == 0


clean = pytest.mark.usefixtures("nothing_left")


@clean
def test_one_thread_at_a_time(manager: SyncLockManager) -> None:
    """Threads that share a manager and a lock take turns, and none of their additions is lost."""
    total = 0
    lock = manager.lock("total")

    def add() -> None:
        nonlocal total
        for _ in range(5):
            with lock as lease:
                seen = total
                time.sleep(0.001)
                lease.check()
                total = seen + 1

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(add) for _ in range(8)]:
            done.result()
    assert total == 40


def test_a_thread_and_a_loop(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """A lock of a thread keeps an asyncio manager out, and the other way round."""

    async def try_it() -> bool:
        async with LockManager(shared_nodes.urls) as other:
            lease = await other.lock("x").try_acquire()
            if lease is not None:
                async with lease:
                    assert await asyncio.to_thread(manager.lock("x").try_acquire) is None
            return lease is not None

    with manager.lock("x"):
        assert in_another_thread(lambda: asyncio.run(try_it())) is False
    assert in_another_thread(lambda: asyncio.run(try_it())) is True


@clean
def test_what_a_lease_can_do(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """It can be checked, extended and released, and shows what the asyncio lease does."""
    lease = manager.lock("x", ttl=5).acquire()
    lease.check()
    lease.extend(30)
    assert 25 < lease.remaining <= 30
    assert (lease.names, lease.extensions, lease.fence) == (("x",), 1, lease.lease.fence)
    assert [vote.node for vote in lease.votes] == shared_nodes.urls
    assert re.fullmatch(rf"<SyncLease 'x' fence={lease.fence} valid \d\d\.\ds [345]/5>", repr(lease))
    for _ in range(2):
        assert lease.release().count(ReleaseOutcome.RELEASED) == 5
    assert (lease.held, lease.remaining) == (False, 0)
    for use in (lease.check, lease.extend):
        with pytest.raises(LockLostError) as error:
            use()
        assert error.value.reason is LossReason.RELEASED
    assert not lease.lost.is_set(), "it was given back"


# -- losses --------------------------------------------------------------------------------------------


def test_a_loss_is_noticed_in_the_loop(shared_nodes: Nodes) -> None:
    """When a thread is the first to see that the time is over, the loop learns of it, and so do hooks."""
    threads: list[int] = []

    class Watch:
        def on_lost(self, event: object) -> None:
            threads.append(threading.get_ident())

    with SyncLockManager(shared_nodes.urls, ttl=0.5, hooks=[Watch()]) as manager:
        with pytest.raises(LockLostError), manager.lock("x") as lease:
            stalled = in_loop(manager, time.sleep, 1, waits=False)  # nothing in the loop can notice
            until(lambda: not lease.held, "the clock ends it")
            lease.check()
        assert stalled.over.wait(PATIENCE)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


@pytest.mark.parametrize("kind", ["lock", "election"])
def test_a_manager_whose_tasks_other_code_cancels(shared_nodes: Nodes, kind: str) -> None:
    """Code in its thread cancels all of them: the block ends in LockLostError, and the next call works."""

    def cancel() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    with SyncLockManager(shared_nodes.urls) as manager:
        block = manager.lock("x") if kind == "lock" else manager.election("x").campaign()
        with pytest.raises(LockLostError) as caught, block as lease:
            with contextlib.suppress(asyncio.CancelledError):  # that call's, too
                in_loop(manager, cancel)
            until(lease.lost.is_set, "it is set")
        assert caught.value.reason is LossReason.CANCELLED
        with manager.lock("x", blocking_timeout=10):
            pass


# -- kinds of locks ------------------------------------------------------------------------------------


def test_what_cannot_be_decorated() -> None:
    """Each fails at decoration: it would run without its lock, or never."""
    locked = SyncLockManager(["redis://a"]).locked

    async def later(a: int) -> None:
        """Do nothing."""

    def some(a: int) -> Iterator[int]:
        yield a

    async def some_later(a: int) -> AsyncIterator[int]:
        yield a

    class Later:
        async def __call__(self, a: int) -> None:
            """Do nothing."""

    for function in (later, some, some_later, Later(), functools.partial(later)):
        with pytest.raises(TypeError, match="needs an ordinary function"):
            locked("x:{a}")(function)
    for template, options in (
        ("x", {"ttl": -1}),
        ("x", {"mode": "both"}),
        ("x:{b}", {}),
        ("x", {"otherwise": 0}),
    ):
        with pytest.raises(
            ValueError, match=r"ttl must be|mode must be|'b' is not a parameter of|otherwise=0"
        ):
            locked(template, **options)(lambda a: a)


@clean
def test_decorated_functions_of_several_names_and_those_that_are_skipped(manager: SyncLockManager) -> None:
    """Two names are held together; a call is skipped where they are taken, and for nothing else."""

    class Shop:
        @manager.locked("a:{x}", "{y}", blocking=False, otherwise="skipped")
        def move(self, x: int, y: str, work: Callable[[], Any] = list) -> Any:
            return work() or {name for lease in manager.statistics().leases for name in lease.names}

    shop, inner = Shop(), manager.locked("inner", blocking=False)(lambda: "ran")
    assert shop.move(1, "b") == {"a:1", "b"}
    assert shop.move(1, "a:1") == {"a:1"}

    def elsewhere() -> None:
        with manager.lock("b"):
            assert in_another_thread(lambda: shop.move(1, "b")) == "skipped"
            assert in_another_thread(lambda: manager.lock("a:1").locked()) is False
        with manager.lock("inner"), pytest.raises(LockTakenError, match="inner"):
            in_another_thread(lambda: shop.move(1, "b", inner))

    elsewhere()
    with pytest.raises(LockLostError):
        shop.move(1, "b", lambda: in_loop(manager, lose, manager.manager, "b"))


@clean
def test_a_read_write_lock(manager: SyncLockManager) -> None:
    """Threads read together; a writer downgrades, and learns whether all is as it was."""
    lock = manager.rwlock("c", ttl=20)
    assert repr(lock) == "<SyncReadWriteLock 'c' ttl=20s>"
    with lock.read() as first:
        in_another_thread(lambda: lock.read().acquire().release())
        assert lock.write().try_acquire() is None
    with lock.write(since=first) as writer:
        assert (writer.mode, writer.unchanged, first.unchanged) == ("write", True, None)
        writer.downgrade()
        assert writer.mode == "read"
    with pytest.raises(TypeError, match="since must be a read lease"):
        lock.write(since=first.fence)  # type: ignore[arg-type]


@clean
def test_a_thread_goes_in_again(manager: SyncLockManager) -> None:
    """The rules for tasks hold for threads (R27): inside it is the same lease, and a block has the right."""
    lock = manager.lock("x", reentrant=True)
    with lock as outer:
        with lock as inner:
            assert inner.fence == outer.fence
        kept = lock.acquire()
        with pytest.raises(WouldDeadlockError):
            manager.lock("x", "y", reentrant=True).acquire()
        assert (outer.held, inner.held) == (True, False)
    assert kept.held
    with pytest.raises(LockTakenError):  # a lease of `acquire` may be another thread's business
        manager.lock("x", reentrant=True, blocking_timeout=0.2).acquire()
    assert kept.release().count(ReleaseOutcome.RELEASED) == 5


# -- managers ------------------------------------------------------------------------------------------


def test_what_a_manager_tells(shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a `LockManager` does beside locking."""
    monkeypatch.setenv("REDLOCK_URLS", ",".join(shared_nodes.urls))
    manager = SyncLockManager.from_env(holder="thread-1", node_timeout=2.0, connect_timeout=10.0)
    assert repr(manager).startswith("<SyncLockManager not started, 0 held: ")
    assert (manager.available, manager.unavailable_for) == (False, math.inf)
    with manager:
        lock = manager.lock("x", ttl=20)
        assert repr(lock) == "<SyncLock 'x' ttl=20s>"
        lease = lock.acquire()
        until(lambda: all(node.state is NodeState.UP for node in manager.statistics().nodes), "all are up")
        assert (manager.available, manager.unavailable_for) == (True, 0.0)
        assert {node.holder for node in manager.inspect("x") if node.held} == {"thread-1"}
        assert [(found.name, found.state) for found in manager.survey().locks] == [("x", "held")]
        assert manager.queue("x").waiters == ()
        with pytest.raises(LockTakenError):
            manager.init()
        assert all(node.held for node in manager.force_release("x"))
        lease.release()
        assert len(manager.init()) == 5
        assert {finding.node for finding in manager.diagnose()} >= set(shared_nodes.urls)
        assert (manager.statistics().acquired, manager.statistics().held) == (1, 0)
    assert "closed" in repr(manager)
    for use in (manager.survey, manager.init, manager.diagnose):
        with pytest.raises(ManagerClosedError):
            use()


def test_closing(shared_nodes: Nodes) -> None:
    """Closing waits for the blocks of other threads, which learn that they have lost; then it is over."""
    manager = SyncLockManager(shared_nodes.urls)
    inside, noticed, leave = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with manager.lock("x") as lease:
            inside.set()
            until(lease.lost.is_set, "it is set")
            assert keys(shared_nodes.urls), "the keys protect the block to its end"
            noticed.set()
            leave.wait(PATIENCE)

    with ThreadPoolExecutor(3) as threads:
        at_work = threads.submit(work)
        inside.wait(PATIENCE)
        waiting = threads.submit(manager.lock("x").acquire)
        until(lambda: manager.manager.statistics().waiting == 1, "another thread waits")
        closing = threads.submit(manager.close)
        noticed.wait(PATIENCE)
        with pytest.raises(ManagerClosedError):
            waiting.result(PATIENCE)
        assert not closing.done()
        leave.set()
        with pytest.raises(LockLostError) as error:
            at_work.result(PATIENCE)
        assert error.value.reason is LossReason.MANAGER_CLOSED
        closing.result(PATIENCE)
    assert keys(shared_nodes.urls) == {}
    manager.close()
    for use in (manager.lock("x").acquire, manager.lock("x").try_acquire):
        with pytest.raises(ManagerClosedError):
            use()


def test_where_it_cannot_be_used(manager: SyncLockManager) -> None:
    """A manager that was closed before its first use, and a thread with a loop, which would stand still."""
    closed = SyncLockManager(["redis://127.0.0.1:1"])
    assert "not started" in repr(closed.manager)
    before = threading.enumerate()
    closed.close()
    assert threading.enumerate() == before
    with pytest.raises(ManagerClosedError):
        closed.lock("x").acquire()

    async def use() -> None:
        with pytest.raises(RuntimeError, match=r"would block this event loop: .*to_thread"):
            manager.lock("x").acquire()

    asyncio.run(use())


def test_options_are_shown_and_bad_values_refused(manager: SyncLockManager) -> None:
    """`help` names the options; what cannot work is refused where it is written."""
    making = (SyncLockManager, SyncLockManager.from_env)
    permits = (manager.semaphore, manager.fair_semaphore)
    for described in (*making, manager.lock, manager.rwlock, *permits, manager.locked):
        shown = inspect.signature(described).parameters
        assert {"ttl", "extension"} <= set(shown)
        assert "on_lost" not in shown
    assert "blocking_timeout" in inspect.signature(manager.lock).parameters
    manager.lock("x", on_lost="raise")
    cancel: dict[str, Any] = {"on_lost": "cancel"}
    for refused in (
        lambda: manager.lock("x", **cancel),
        lambda: manager.rwlock("x", **cancel),
        lambda: manager.semaphore("x", permits=2, **cancel),
        lambda: manager.fair_semaphore("x", permits=2, **cancel),
        lambda: manager.locked("x", **cancel),
        lambda: SyncLockManager(["redis://a"], **cancel),
    ):
        with pytest.raises(TypeError, match="on_lost='cancel': a thread cannot be cancelled"):
            refused()
    with pytest.raises(ConfigurationError, match="at least one node"):
        SyncLockManager([])
    with pytest.raises(TypeError, match="hooks must be a list"):
        SyncLockManager(["redis://a"], hooks=Hooks())
    with pytest.raises(ValueError, match="ttl must be positive"):
        manager.lock("x", ttl=-1)


# -- interrupts and forks ------------------------------------------------------------------------------


@pytest.fixture
def interrupts() -> Iterator[Callable[[float], None]]:
    """Give a function that has KeyboardInterrupt raised in this, the main thread, after some seconds."""
    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)

    def interrupt(delay: float) -> None:
        threading.Timer(delay, signal.pthread_kill, (main, signal.SIGUSR1)).start()

    yield interrupt
    signal.signal(signal.SIGUSR1, before)


def tasks_of(manager: SyncLockManager) -> int:
    """Return how many tasks the manager's loop has."""
    return len(in_loop(manager, asyncio.all_tasks))


@clean
@pytest.mark.parametrize("waits", ["lock", "campaign", "observer"])
def test_interrupted_while_waiting(
    shared_nodes: Nodes, manager: SyncLockManager, interrupts: Callable[[float], None], waits: str
) -> None:
    """A KeyboardInterrupt ends the waiting; the loop waits no longer either, and no key comes later."""
    news = manager.election("x").observe()
    calls: dict[str, Callable[[], object]] = {
        "lock": manager.lock("x").acquire,
        "campaign": manager.election("x").campaign().__enter__,
        "observer": lambda: list(news),
    }
    with SyncLockManager(shared_nodes.urls) as other, other.election("x").campaign():
        with manager.lock("warm"):
            pass
        tasks = tasks_of(manager)
        interrupts(0.2)
        with pytest.raises(KeyboardInterrupt):
            calls[waits]()
        until(lambda: tasks_of(manager) <= tasks, "no task waits in the loop")


@clean
@pytest.mark.parametrize("slow", [False, True])
def test_interrupted_but_won_all_the_same(
    manager: SyncLockManager,
    interrupts: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    slow: bool,
) -> None:
    """A call whose lease has arrived, or that its cancellation reaches too late, gives it back."""

    async def acquire(*_: object, **__: object) -> Any:
        leases.append(lease := await manager.manager.lock("x").acquire())
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE if slow else 0)
        return lease

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    leases: list[Any] = []
    lock = manager.lock("x")
    monkeypatch.setattr(Lock, "_acquire_for", acquire)
    if slow:
        interrupts(0.2)
    else:
        monkeypatch.setattr("aioredlock_ng.sync._thread.Call.result", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:
        lock.acquire()
    monkeypatch.undo()
    until(lambda: leases and not leases[0].held, "it is released")
    assert kept.value.__traceback__ is not None, "the collector has released nothing"


@pytest.mark.parametrize("begun", [True, False])
def test_interrupted_while_the_thread_begins(*, begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call starts another one; the first, if it has begun, ends: no test leaves a thread."""

    def interrupted(thread: threading.Thread) -> None:
        if begun:
            start(thread)
        monkeypatch.undo()
        raise KeyboardInterrupt

    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with contextlib.closing(SyncLockManager(["redis://127.0.0.1:1"])) as manager:
        with pytest.raises(KeyboardInterrupt):
            in_loop(manager, int)
        assert in_loop(manager, int) == 0


FORKED = """
import os, sys, time
from aioredlock_ng.sync import SyncLockManager

with SyncLockManager.from_env() as manager, manager.lock("x", ttl=5) as lease:
    child = os.fork()
    if not child:
        try:
            manager.lock("y").acquire()
        except RuntimeError as error:
            assert "before a fork" in str(error)
            sys.exit(7)
    _, status = os.waitpid(child, 0)
    assert (os.waitstatus_to_exitcode(status), lease.held) == (7, True)
    lease.extend()
with SyncLockManager.from_env() as manager, manager.lock("x", blocking_timeout=3):
    pass
"""


@pytest.mark.process
def test_a_forked_child(shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot use its parent's manager, leaves its blocks alone, and ends."""
    monkeypatch.setenv("REDLOCK_URLS", ",".join(shared_nodes.urls))
    subprocess.run([sys.executable, "-W", "error", "-c", FORKED], cwd=ROOT, check=True, timeout=100)
    until(lambda: keys(shared_nodes.urls) == {}, "no key is left")
