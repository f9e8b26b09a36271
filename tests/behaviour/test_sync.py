"""The façade for threads: the same locks, without ``await``."""

# ruff: noqa: PT012 (a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
import gc
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aioredlock_ng import (
    ConfigurationError,
    ExtensionPolicy,
    LockLostError,
    LockManager,
    LockTakenError,
    LossReason,
    ManagerClosedError,
    NodeState,
    QuorumUnavailableError,
    ReleaseOutcome,
    WouldDeadlockError,
)
from aioredlock_ng.events import Hooks, Released
from aioredlock_ng.sync import SyncLease, SyncLockManager
from aioredlock_ng.testing import LocalNodes, lose
from tests.behaviour.tools import PATIENCE, keys
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask

SHORT = ExtensionPolicy(grace=0.2)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait, in this thread, until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Every test ends with the threads that it began with."""
    before = set(threading.enumerate())
    yield
    wait_for(lambda: set(threading.enumerate()) <= before, "every thread has ended")


@pytest.fixture
def manager(shared_nodes: Nodes) -> Iterator[SyncLockManager]:
    """Give a manager over real nodes."""
    with SyncLockManager(shared_nodes.urls, connect_timeout=10.0) as manager:
        yield manager


def test_one_thread_at_a_time(shared_nodes: Nodes, manager: SyncLockManager) -> None:
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
    assert keys(shared_nodes.urls) == {}


def test_a_thread_and_a_loop(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """A lock of a thread keeps an asyncio manager out, and the other way round."""

    async def try_it() -> bool:
        async with LockManager(shared_nodes.urls) as other:
            lease = await other.lock("x").try_acquire()
            if lease is not None:
                async with lease:
                    assert await asyncio.to_thread(manager.lock("x").try_acquire) is None
            return lease is not None

    with ThreadPoolExecutor(1) as loops:
        with manager.lock("x"):
            assert loops.submit(asyncio.run, try_it()).result() is False
        assert loops.submit(asyncio.run, try_it()).result() is True


def test_what_a_lease_can_do(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """Held, remaining, check, extend, release, and what the asyncio lease knows."""
    lease = manager.lock("x", ttl=5).acquire()
    assert lease.held
    assert 4 < lease.remaining <= 5
    lease.check()
    lease.extend(30)
    assert 25 < lease.remaining <= 30
    assert lease.lease.names == ("x",)
    assert (lease.extensions, lease.fence) == (1, lease.lease.fence)
    assert isinstance(lease.fence, int)
    assert [vote.node for vote in lease.votes] == shared_nodes.urls
    assert not lease.lost.is_set()
    assert re.fullmatch(rf"<SyncLease 'x' fence={lease.fence} valid \d\d\.\ds [345]/5>", repr(lease))
    assert manager.statistics().held == 1

    assert lease.release().count(ReleaseOutcome.RELEASED) == 5
    assert not lease.held
    assert lease.remaining == 0
    assert lease.release().count(ReleaseOutcome.RELEASED) == 5
    with pytest.raises(LockLostError) as error:
        lease.check()
    assert error.value.reason is LossReason.RELEASED
    with pytest.raises(LockLostError):
        lease.extend()
    assert not lease.lost.is_set(), "it was given back"
    assert keys(shared_nodes.urls) == {}


def test_taken(manager: SyncLockManager) -> None:
    """A lock that has a holder: None at once, or the error when the time is over."""
    held = manager.lock("x").acquire()
    assert manager.lock("x").try_acquire() is None
    began = time.monotonic()
    with pytest.raises(LockTakenError):
        manager.lock("x", blocking_timeout=0.2).acquire()
    with pytest.raises(LockTakenError):
        manager.lock("x", blocking=False).__enter__()
    assert time.monotonic() - began >= 0.2
    held.release()
    lease = manager.lock("x").try_acquire()
    assert lease is not None
    lease.release()


def test_something_else_under_the_name(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """What is there is told, and each node's vote with it; nothing of it is touched."""
    for url in shared_nodes.urls:
        ask(url, "SADD", "redlock:res", "x")
    for lock in (manager.lock("res"), manager.rwlock("res").read(), manager.rwlock("res").write()):
        with pytest.raises(ConfigurationError, match=r"on 5 of 5 nodes .* holds a set, which") as caught:
            lock.acquire()
        assert isinstance(caught.value.__cause__, QuorumUnavailableError)
    assert [ask(url, "SCARD", "redlock:res") for url in shared_nodes.urls] == [1] * 5


def test_loss(make_nodes: Callable[..., LocalNodes]) -> None:
    """With a majority frozen, the clock ends it: check raises, and so does the end of the block."""
    nodes = make_nodes(3)
    with SyncLockManager(nodes.urls, ttl=1, extension=SHORT) as manager:
        with pytest.raises(LockLostError) as at_the_end, manager.lock("x") as lease:
            nodes.pause(0)
            nodes.pause(1)
            wait_for(lambda: not lease.held, "the clock ends it")
            assert lease.remaining == 0
            with pytest.raises(LockLostError) as at_check:
                lease.check()
        nodes.resume(0)
        nodes.resume(1)
    assert at_check.value.reason is at_the_end.value.reason is LossReason.EXPIRED


def test_a_loss_is_noticed_in_the_loop(shared_nodes: Nodes) -> None:
    """When a thread is the first to see that the time is over, the loop is told: nothing there is touched."""
    threads: list[int] = []

    class Watch:
        def on_lost(self, event: object) -> None:
            threads.append(threading.get_ident())

    with SyncLockManager(shared_nodes.urls, ttl=0.5, hooks=[Watch()]) as manager:
        loop_thread = manager._thread.submit(threading.get_ident).result()
        with pytest.raises(LockLostError), manager.lock("x") as lease:
            stalled = manager._thread.submit(time.sleep, 1)  # nothing in the loop can notice
            wait_for(lambda: not lease.held, "the clock ends it")
            lease.check()
        stalled.result()
    assert threads == [loop_thread]


def test_a_thread_can_wait_for_the_loss(shared_nodes: Nodes) -> None:
    """Also when it asks after the loss; leases that were not lost stay as they are."""

    class Watch:
        def on_released(self, event: Released) -> None:
            released.append(event.names)

    released: list[tuple[str, ...]] = []
    with SyncLockManager(shared_nodes.urls, ttl=30, hooks=[Watch()]) as manager:
        lost, kept, late = (manager.lock(name).acquire() for name in ("lost", "kept", "late"))
        waiting = lost.lost
        assert waiting is lost.lost
        assert not kept.lost.is_set()
        for name in ("lost", "late"):
            manager._thread.submit(_lose, manager, name).result()
        assert waiting.wait(PATIENCE)
        assert late.lost.is_set()
        assert not kept.lost.is_set()
        for lease in (lost, kept, late):
            lease.release()
    assert len(released) == 3, "the hooks of the user's own are heard, too"


def test_threads_that_ask_at_once_wait_for_one_event(shared_nodes: Nodes) -> None:
    """However the threads take turns: an event that another one has replaced would never be set."""

    def ask_for_it() -> None:
        barrier.wait()
        events.append(lease.lost)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with SyncLockManager(shared_nodes.urls) as manager:
            for _ in range(20):
                lease, barrier, events = manager.lock("lost").acquire(), threading.Barrier(8), []
                threads = [threading.Thread(target=ask_for_it) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                lease.release()
                assert len(set(map(id, events))) == 1
    finally:
        sys.setswitchinterval(interval)


async def _lose(manager: SyncLockManager, name: str) -> None:
    """Take a lock away; to be called in the loop."""
    lose(manager.manager, name)


def test_a_decorated_function(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """It runs under the lock that its arguments name, in the thread that calls it."""

    @manager.locked("report:{customer}", blocking=False)
    def report(customer: int, *, full: bool = True) -> tuple[int, bool, bool]:
        """Report."""
        return customer, full, any(node.held for node in manager.inspect(f"report:{customer}"))

    with manager.lock("warm"):  # a single try does not wait for connections that take long beside other work
        pass
    assert report(1) == (1, True, True)
    assert report(customer=2, full=False) == (2, False, True)
    assert report.__doc__ == "Report."
    with manager.lock("report:3"), pytest.raises(LockTakenError):
        report(3)
    assert keys(shared_nodes.urls) == {}


def test_a_read_write_lock(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """Threads read together, and write alone; a writer downgrades, and learns whether all is as it was."""
    lock = manager.rwlock("c", ttl=20)
    assert repr(lock) == "<SyncReadWriteLock 'c' ttl=20s>"
    together = threading.Barrier(3)

    def read() -> str | None:
        with lock.read() as lease:
            together.wait(PATIENCE)
            return lease.mode

    with ThreadPoolExecutor(3) as threads:
        assert [done.result() for done in [threads.submit(read) for _ in range(3)]] == ["read"] * 3
    with lock.read() as first:
        assert lock.write().try_acquire() is None
    with lock.write(since=first) as writer:
        assert (writer.mode, writer.unchanged, first.unchanged) == ("write", True, None)
        assert lock.read().try_acquire() is None
        writer.downgrade()
        assert writer.mode == "read"
        with ThreadPoolExecutor(1) as another:
            another.submit(lambda: lock.read().acquire().release()).result(PATIENCE)
    with lock.write(since=first) as again:
        assert again.unchanged is False
    with pytest.raises(TypeError, match="since must be a read lease"):
        lock.write(since=first.fence)  # type: ignore[arg-type]
    assert keys(shared_nodes.urls) == {}


def test_a_semaphore(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """Threads hold permits at the same time, each another slot; a function takes one, too."""
    pool = manager.semaphore("pool", permits=2, ttl=20)
    assert repr(pool) == "<SyncLock 'pool' permits=2 ttl=20s>"

    @manager.locked("pool", permits=2, blocking=False)
    def work() -> str:
        return "done"

    with pool as one:
        assert work() == "done"
        with pool as two:
            assert {one.slot, two.slot} == {0, 1}
            assert pool.try_acquire() is None
            with pytest.raises(LockTakenError):
                work()
    with manager.lock("c") as lease:
        assert lease.slot is None
    assert keys(shared_nodes.urls) == {}


def test_a_fair_lock(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """Threads take turns in it, and a thread sees which processes wait."""

    @manager.locked("printer", fair=True)
    def work() -> str | None:
        return manager.inspect("printer")[0].kind

    assert work() == "fair"
    assert repr(manager.lock("printer", fair=True, ttl=20)) == "<SyncLock 'printer' fair ttl=20s>"
    with SyncLockManager(shared_nodes.urls, holder="next") as other, ThreadPoolExecutor(1) as thread:
        with manager.lock("printer", fair=True):
            waiting = thread.submit(lambda: other.lock("printer", fair=True).acquire().release())
            wait_for(lambda: manager.queue("printer").waiters, "it waits")
            (waiter,) = manager.queue("printer").waiters
            assert (waiter.place, waiter.holder, waiter.ours) == (0, "next", False)
        waiting.result(PATIENCE)
        wait_for(lambda: not keys(shared_nodes.urls), "nothing is left")


def test_a_function_in_a_mode(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """`locked` takes the mode, as that of a `LockManager` does."""

    @manager.locked("c:{number}", mode="read", blocking=False)
    def read(number: int) -> int:
        return number

    @manager.locked("c:{number}", mode="write", blocking=False)
    def write(number: int) -> int:
        return number

    with manager.rwlock("c:1").read():
        assert read(1) == 1
        with pytest.raises(LockTakenError):
            write(1)
    assert write(1) == 1
    with pytest.raises(ValueError, match="mode must be"):
        manager.locked("c", mode="both")(read)  # type: ignore[arg-type]
    assert keys(shared_nodes.urls) == {}


def test_what_cannot_be_decorated() -> None:
    """Each fails at decoration: it would run without its lock, or never."""
    manager = SyncLockManager(["redis://a"])

    def one(a: int) -> None:
        """Do nothing."""

    async def later(a: int) -> None:
        """Do nothing."""

    def some(a: int) -> Iterator[int]:
        yield a

    for function in (later, some):
        with pytest.raises(TypeError, match="wants an ordinary function"):
            manager.locked("x:{a}")(function)
    with pytest.raises(ValueError, match="'b' is no parameter of"):
        manager.locked("x:{b}")(one)
    with pytest.raises(ValueError, match="ttl must be positive"):
        manager.locked("x:{a}", ttl=-1)(one)
    with pytest.raises(TypeError, match="wants a template"):
        manager.locked(one)  # type: ignore[arg-type]


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
        wait_for(lambda: all(node.state is NodeState.UP for node in manager.statistics().nodes), "all are up")
        assert (manager.available, manager.unavailable_for) == (True, 0.0)
        assert {node.holder for node in manager.inspect("x") if node.held} == {"thread-1"}
        assert [(found.name, found.state) for found in manager.survey().locks] == [("x", "held")]
        assert [found.name for found in manager.survey("y").locks] == ["y"]
        with pytest.raises(LockTakenError):
            manager.init()
        assert all(node.held for node in manager.force_release("x"))
        lease.release()
        assert len(manager.init()) == 5
        assert {finding.node for finding in manager.diagnose()} >= set(shared_nodes.urls)
        statistics = manager.statistics()
        assert (statistics.acquired, statistics.held) == (1, 0)
    assert "closed" in repr(manager)
    for use in (manager.survey, manager.init, manager.diagnose):
        with pytest.raises(ManagerClosedError):
            use()


def test_one_lock_lost_and_entered_again(manager: SyncLockManager) -> None:
    """A thread that leaves late, after its loss, does not end the next thread's block under the same lock."""
    lock = manager.lock("x", ttl=0.5, extension=ExtensionPolicy.off())
    entered, leave = threading.Event(), threading.Event()

    def next_one() -> bool:
        with lock as lease:
            lease.extend(60)
            entered.set()
            leave.wait(PATIENCE)
            return lease.held

    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(LockLostError), lock as lease:
            wait_for(lambda: not lease.held, "it is lost")
            second = threads.submit(next_one)
            assert entered.wait(PATIENCE)
        leave.set()
        assert second.result(PATIENCE) is True


def test_errors_of_the_block(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """What a block raises leaves unchanged, with a note if the lock was lost as well."""
    with pytest.raises(ZeroDivisionError) as plain, manager.lock("x"):
        raise ZeroDivisionError
    assert not hasattr(plain.value, "__notes__")

    with pytest.raises(ZeroDivisionError) as noted, manager.lock("x", ttl=0.5) as lease:
        for url in shared_nodes.urls:
            ask(url, "DEL", "redlock:x")
        wait_for(lambda: not lease.held, "it is refused")
        raise ZeroDivisionError
    assert "was lost" in "".join(noted.value.__notes__)
    assert keys(shared_nodes.urls) == {}


def test_closing(shared_nodes: Nodes) -> None:
    """Closing waits for the blocks of other threads, which learn that they have lost; then it is over."""
    manager = SyncLockManager(shared_nodes.urls)
    inside, noticed, leave = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with manager.lock("x") as lease:
            inside.set()
            wait_for(lease.lease.lost.is_set, "it is told")
            assert keys(shared_nodes.urls), "the keys protect the block to its end"
            noticed.set()
            leave.wait(PATIENCE)

    with ThreadPoolExecutor(3) as threads:
        at_work = threads.submit(work)
        inside.wait(PATIENCE)
        waiting = threads.submit(manager.lock("x").acquire)
        wait_for(lambda: manager.manager.statistics().waiting == 1, "another thread waits")
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


def test_a_block_that_outlives_its_manager(shared_nodes: Nodes) -> None:
    """A block whose own thread closes the manager ends in the loss; its own error would come first."""
    manager = SyncLockManager(shared_nodes.urls, ttl=0.5)
    with pytest.raises(LockLostError) as error, manager.lock("x") as lease:
        manager.close()
        with pytest.raises(LockLostError):
            lease.check()
    assert error.value.reason is LossReason.MANAGER_CLOSED
    assert keys(shared_nodes.urls) == {}

    manager = SyncLockManager(shared_nodes.urls, ttl=0.5)
    with pytest.raises(ZeroDivisionError), manager.lock("x"):
        manager.close()
        raise ZeroDivisionError


def test_a_call_that_has_begun_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does not end between a look at whether it runs and a call, which would wait for ever."""
    manager = SyncLockManager(["redis://127.0.0.1:1"])
    loop = manager._thread.submit(asyncio.get_running_loop).result()
    call_soon, loop_thread = (
        loop.call_soon_threadsafe,
        manager._thread.submit(threading.current_thread).result(),
    )
    begun, caller = threading.Event(), []

    def late(*arguments: Any, **options: Any) -> Any:
        if threading.get_ident() in caller:
            begun.set()
            loop_thread.join(0.3)  # it would end meanwhile, if nothing kept it
        return call_soon(*arguments, **options)

    def call() -> Any:
        caller.append(threading.get_ident())
        return manager._thread.submit(int).result(PATIENCE)

    monkeypatch.setattr(loop, "call_soon_threadsafe", late)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(call)
        begun.wait(PATIENCE)
        manager.close()
        assert answer.result(PATIENCE) == 0


def test_closed_without_use() -> None:
    """A manager that was never used closes, and stays closed."""
    manager = SyncLockManager(["redis://127.0.0.1:1"])
    assert "not started" in repr(manager.manager)
    before = threading.enumerate()
    manager.close()
    assert threading.enumerate() == before
    with pytest.raises(ManagerClosedError):
        manager.lock("x").acquire()


def test_not_inside_a_loop(manager: SyncLockManager) -> None:
    """A thread that runs an event loop is refused, because it would stand still."""

    async def use() -> None:
        with pytest.raises(RuntimeError, match="would block this event loop"), manager.lock("x"):
            pass

    asyncio.run(use())


def test_bad_values() -> None:
    """What cannot work is refused where it is written."""
    with pytest.raises(ConfigurationError, match="at least one node"):
        SyncLockManager([])
    with pytest.raises(TypeError, match="on_lost"):
        SyncLockManager(["redis://a"], on_lost="cancel")
    with pytest.raises(TypeError, match="hooks is a list"):
        SyncLockManager(["redis://a"], hooks=Hooks())
    with pytest.raises(ValueError, match="ttl must be positive"):
        SyncLockManager(["redis://a"]).lock("x", ttl=-1)


# -- interrupts ----------------------------------------------------------------------------------------


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
    return len(manager._thread.submit(asyncio.all_tasks).result())


def test_interrupted_while_waiting(
    shared_nodes: Nodes, manager: SyncLockManager, interrupts: Callable[[float], None]
) -> None:
    """A KeyboardInterrupt ends the waiting; the loop waits no longer either, and no key comes later."""
    with SyncLockManager(shared_nodes.urls) as other:
        with other.lock("x"):
            with manager.lock("warm"):
                pass
            tasks = tasks_of(manager)
            interrupts(0.2)
            with pytest.raises(KeyboardInterrupt), manager.lock("x"):
                raise AssertionError("entered a lock that another client has")
            wait_for(lambda: tasks_of(manager) <= tasks, "no task waits in the loop")
        wait_for(lambda: keys(shared_nodes.urls) == {}, "no key is left")
        with other.lock("x", blocking_timeout=60):
            pass


def test_interrupted_when_the_lease_has_arrived(
    shared_nodes: Nodes, manager: SyncLockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that reached no caller is released at once: the traceback may keep it uncollected."""

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aioredlock_ng.sync._lock.SyncLease", interrupted)
    for take in (manager.lock("x").acquire, manager.lock("x").try_acquire):
        with pytest.raises(KeyboardInterrupt) as kept:
            take()
        wait_for(lambda: keys(shared_nodes.urls) == {}, "no key is left")
        assert kept.value.__traceback__ is not None
    assert manager.manager.statistics().released == 2


@pytest.mark.heavy
def test_interrupted_at_any_moment(
    shared_nodes: Nodes, manager: SyncLockManager, interrupts: Callable[[float], None]
) -> None:
    """Wherever an interrupt strikes, the lock is free soon, and the next one gets it."""
    chance = random.Random(1)
    struck = 0
    with manager.lock("warm"):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # some leases are left to the collector
        for _ in range(120):
            try:
                interrupts(chance.uniform(0.0001, 0.004))
                while True:
                    with manager.lock("x", blocking_timeout=60):
                        pass
            except KeyboardInterrupt:
                struck += 1
            gc.collect()
            with manager.lock("x", blocking_timeout=60):
                pass
    assert struck == 120
    wait_for(lambda: keys(shared_nodes.urls) == {}, "no key is left")
    assert manager.manager.statistics().held == 0


# -- reentrant locks (R27) -----------------------------------------------------------------------------


def test_a_thread_goes_in_again(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """What was said of tasks holds for threads: the same lease inside, and no other thread comes in."""
    lock = manager.lock("x", reentrant=True)
    tried: list[SyncLease | None] = []
    with lock as outer:
        with lock as inner, manager.lock("x", reentrant=True, blocking=False) as third:
            assert inner.fence == third.fence == outer.fence
            other = threading.Thread(target=lambda: tried.append(lock.try_acquire()))
            other.start()
            other.join()
            assert tried == [None]
        kept = lock.acquire()
        assert kept.release().count(ReleaseOutcome.STILL_HELD) == 5
        with pytest.raises(WouldDeadlockError):
            manager.lock("x", "y", reentrant=True).acquire()
        assert (outer.held, inner.held) == (True, False)
        kept = lock.acquire()
    assert kept.held
    assert kept.release().count(ReleaseOutcome.RELEASED) == 5
    assert keys(shared_nodes.urls) == {}
    rw = manager.rwlock("x", reentrant=True)
    with rw.write() as writer, rw.read() as reader:
        assert reader.fence == writer.fence
    with manager.lock("x") as plain, lock as inner:
        assert inner.fence == plain.fence
    assert manager.manager.statistics().held == 0


def test_a_thread_that_would_wait_for_itself_is_told_so(manager: SyncLockManager) -> None:
    """Else a reader that wants to write would wait for ever, and keep all other readers out (R20)."""
    rw = manager.rwlock("x")
    with rw.read():
        for lock in (rw.read(), rw.write(), manager.lock("x")):
            with pytest.raises(WouldDeadlockError, match="this thread holds 'x'"):
                lock.acquire()
    with manager.election("x").campaign(), pytest.raises(WouldDeadlockError):
        manager.election("x").campaign().__enter__()
    lock = manager.lock("x", blocking_timeout=0.1)
    with lock, ThreadPoolExecutor(1) as another, pytest.raises(LockTakenError):
        another.submit(lock.acquire).result(PATIENCE)  # that one waits for this one, not for itself


def test_a_lease_of_acquire_is_no_thread_s(manager: SyncLockManager) -> None:
    """It may be another thread's business: the thread that acquired it waits, as any other."""
    lock = manager.lock("x", reentrant=True, blocking_timeout=0.2)
    lease = lock.acquire()
    with pytest.raises(LockTakenError):
        lock.acquire()
    lease.release()


def test_a_function_of_a_thread_that_calls_itself(manager: SyncLockManager) -> None:
    """`locked` has the option, too; threads take turns, each with all of its calls."""
    calls: list[tuple[int, int]] = []

    @manager.locked("x", reentrant=True)
    def walk(depth: int) -> None:
        calls.append((threading.get_ident(), depth))
        if depth:
            walk(depth - 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(walk, [3] * 4))
    assert [depth for _, depth in calls] == [3, 2, 1, 0] * 4
    assert all(len({thread for thread, _ in calls[i : i + 4]}) == 1 for i in range(0, 16, 4))


# -- forks ---------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time
from aioredlock_ng.sync import SyncLockManager

with SyncLockManager(sys.argv[1].split(",")) as manager, manager.lock("x", ttl=5) as lease:
    child = os.fork()
    if not child:
        try:
            manager.lock("y").acquire()
        except RuntimeError as error:
            print(error, flush=True)
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), lease.held, flush=True)
    lease.extend()
with SyncLockManager(sys.argv[1].split(",")) as manager, manager.lock("x", blocking_timeout=3):
    print("free")
"""


@pytest.mark.process
def test_a_forked_child(shared_nodes: Nodes) -> None:
    """A child cannot use its parent's manager, leaves its blocks alone, and ends."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, ",".join(shared_nodes.urls)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    first, second, third = done.stdout.splitlines()
    assert "before a fork" in first
    assert (second, third) == ("7 True", "free")
