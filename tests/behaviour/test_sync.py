"""The façade for threads: the same locks, without ``await``."""

# ruff: noqa: PT012 (a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

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
    ReleaseOutcome,
    WouldDeadlockError,
)
from aioredlock_ng.events import Hooks
from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import LocalNodes, lose
from tests.behaviour.tools import PATIENCE, Recorder, delete, keys, strike, told
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, until

NODE_TIMEOUT: Final = 1.5  # seconds: more than a busy server takes to answer


def in_another_thread(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a thread of its own."""
    with ThreadPoolExecutor(1) as another:
        return another.submit(function).result(PATIENCE)


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
        manager._thread.call(manager.manager.start)
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
    """Held, remaining, check, extend, release, and what the asyncio lease knows."""
    lease = manager.lock("x", ttl=5).acquire()
    assert lease.held
    assert 0 < lease.remaining <= 5
    lease.check()
    lease.extend(30)
    assert 25 < lease.remaining <= 30
    assert lease.lease.names == ("x",)
    assert (lease.extensions, lease.fence) == (1, lease.lease.fence)
    assert isinstance(lease.fence, int)
    assert [vote.node for vote in lease.votes] == shared_nodes.urls
    assert re.fullmatch(rf"<SyncLease 'x' fence={lease.fence} valid \d\d\.\ds [345]/5>", repr(lease))
    assert manager.statistics().held == 1
    for _ in range(2):
        assert lease.release().count(ReleaseOutcome.RELEASED) == 5
    assert (lease.held, lease.remaining) == (False, 0)
    with pytest.raises(LockLostError) as error:
        lease.check()
    assert error.value.reason is LossReason.RELEASED
    with pytest.raises(LockLostError):
        lease.extend()
    assert not lease.lost.is_set(), "it was given back"


@clean
def test_taken(manager: SyncLockManager) -> None:
    """A lock that has a holder: None at once, or the error when the time is over."""
    held = manager.lock("x").acquire()
    assert manager.lock("x").try_acquire() is None
    began = time.monotonic()
    with pytest.raises(LockTakenError):
        manager.lock("x", blocking_timeout=0.2).acquire()
    assert time.monotonic() - began >= 0.2
    with pytest.raises(LockTakenError):
        manager.lock("x", blocking=False).__enter__()
    held.release()
    lease = manager.lock("x").try_acquire()
    assert lease is not None
    lease.release()


# -- losses --------------------------------------------------------------------------------------------


def test_loss(make_nodes: Callable[..., LocalNodes]) -> None:
    """With a majority frozen, the clock ends it: check raises, and so does the end of the block."""
    nodes = make_nodes(3)
    with SyncLockManager(nodes.urls, ttl=1, extension=ExtensionPolicy(grace=0.2)) as manager:
        with pytest.raises(LockLostError) as at_the_end, manager.lock("x") as lease:
            strike(nodes, "frozen", 0, 1)
            until(lambda: not lease.held, "the clock ends it")
            assert lease.remaining == 0
            with pytest.raises(LockLostError) as at_check:
                lease.check()
        nodes.resume(0)
        nodes.resume(1)
    assert at_check.value.reason is at_the_end.value.reason is LossReason.EXPIRED


def test_a_loss_is_noticed_in_the_loop(shared_nodes: Nodes) -> None:
    """When a thread is the first to see that the time is over, the loop is told, and hooks hear of it."""
    threads: list[int] = []

    class Watch:
        def on_lost(self, event: object) -> None:
            threads.append(threading.get_ident())

    with SyncLockManager(shared_nodes.urls, ttl=0.5, hooks=[Watch()]) as manager:
        with pytest.raises(LockLostError), manager.lock("x") as lease:
            stalled = manager._thread.submit(time.sleep, 1)  # nothing in the loop can notice
            until(lambda: not lease.held, "the clock ends it")
            lease.check()
        stalled.result()
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
            manager._thread._wake(cancel)
            until(lease.lost.is_set, "it is told")
        assert caught.value.reason is LossReason.CANCELLED
        with manager.lock("x", blocking_timeout=10):
            pass


def test_a_thread_can_wait_for_the_loss(shared_nodes: Nodes) -> None:
    """Also when it asks after the loss; leases that were not lost stay as they are."""
    recorder = Recorder()
    with SyncLockManager(shared_nodes.urls, ttl=30, hooks=[recorder]) as manager:
        lost, kept, late = (manager.lock(name).acquire() for name in ("lost", "kept", "late"))
        waiting = lost.lost
        assert waiting is lost.lost
        assert not kept.lost.is_set()
        for name in ("lost", "late"):
            manager._thread.submit(lose, manager.manager, name).result()
        assert waiting.wait(PATIENCE)
        assert (late.lost.is_set(), kept.lost.is_set()) == (True, False)
        for lease in (lost, kept, late):
            lease.release()
    assert told(recorder.events)["Released"] == 3, "the hooks of the user's own are heard, too"


def test_threads_that_ask_at_once_wait_for_one_event(manager: SyncLockManager) -> None:
    """However the threads take turns: an event that another one has replaced would never be set."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            for _ in range(100):
                lease, barrier = manager.lock("lost").acquire(), threading.Barrier(8)
                asked = [threads.submit(lambda: (barrier.wait(), lease.lost)[1]) for _ in range(8)]  # noqa: B023
                (event,) = {each.result(PATIENCE) for each in asked}
                manager._thread.submit(lose, manager.manager, "lost").result()
                assert event.wait(PATIENCE)
                lease.release()
    finally:
        sys.setswitchinterval(interval)


def test_one_lock_lost_and_entered_again(manager: SyncLockManager) -> None:
    """A thread that leaves late, after its loss, does not end the next thread's block under the same lock."""
    lock = manager.lock("x", ttl=2, extension=ExtensionPolicy.off())
    entered, leave = threading.Event(), threading.Event()

    def next_one() -> bool:
        with lock as lease:
            lease.extend(60)
            entered.set()
            leave.wait(PATIENCE)
            return lease.held

    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(LockLostError), lock as lease:
            until(lambda: not lease.held, "it is lost")
            second = threads.submit(next_one)
            assert entered.wait(PATIENCE)
        leave.set()
        assert second.result(PATIENCE) is True


@clean
def test_errors_of_the_block(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """What a block raises leaves unchanged, with a note if the lock was lost as well."""
    with pytest.raises(ZeroDivisionError) as plain, manager.lock("x"):
        raise ZeroDivisionError
    assert not hasattr(plain.value, "__notes__")
    until(lambda: keys(shared_nodes.urls) == {}, "no key is left")
    with pytest.raises(ZeroDivisionError) as noted, manager.lock("x", ttl=2) as lease:
        until(lambda: len(keys(shared_nodes.urls)) == 5, "all have it")
        delete(shared_nodes, range(5), "redlock:x")
        until(lambda: not lease.held, "it is refused")
        raise ZeroDivisionError
    assert "was lost" in "".join(noted.value.__notes__)


# -- kinds of locks ------------------------------------------------------------------------------------


@clean
def test_decorated_functions(manager: SyncLockManager) -> None:
    """They run under the lock that their arguments name, of each kind, in the thread that calls them."""

    def function(template: str, **options: Any) -> Callable[..., Any]:
        @manager.locked(template, **options)
        def work(number: int, *, full: bool = True) -> tuple[int, bool, str | None]:
            """Work."""
            return number, full, manager.inspect(f"c:{number}")[0].kind

        return work

    alone, reads, writes, takes, stands = (
        function("c:{number}", blocking=False),
        function("c:{number}", mode="read", blocking=False),
        function("c:{number}", mode="write", blocking=False),
        function("c:{number}", permits=2, blocking=False),
        function("c:{number}", fair=True),
    )
    with manager.lock("warm"):  # a single try does not wait for connections that take long beside other work
        pass
    assert alone(1)[:2] == (1, True)
    assert alone(number=2, full=False)[:2] == (2, False)
    assert alone.__doc__ == "Work."
    with manager.lock("c:3"), pytest.raises(LockTakenError):
        alone(3)
    with manager.rwlock("c:4").read():
        assert reads(4)[0] == 4
        with pytest.raises(LockTakenError):
            writes(4)
    with manager.semaphore("c:5", permits=2):
        assert takes(5)[0] == 5
        with manager.semaphore("c:5", permits=2), pytest.raises(LockTakenError):
            takes(5)
    assert stands(6)[2] == "fair"


def test_what_cannot_be_decorated() -> None:
    """Each fails at decoration: it would run without its lock, or never."""
    locked = SyncLockManager(["redis://a"]).locked

    def one(a: int) -> None:
        """Do nothing."""

    async def later(a: int) -> None:
        """Do nothing."""

    def some(a: int) -> Iterator[int]:
        yield a

    for function in (later, some):
        with pytest.raises(TypeError, match="needs an ordinary function"):
            locked("x:{a}")(function)
    for options, refusal in (({"ttl": -1}, "ttl must be positive"), ({"mode": "both"}, "mode must be")):
        with pytest.raises(ValueError, match=refusal):
            locked("x:{a}", **options)(one)
    with pytest.raises(ValueError, match="'b' is not a parameter of"):
        locked("x:{b}")(one)
    with pytest.raises(TypeError, match="needs a template"):
        locked(one)  # type: ignore[arg-type]


@clean
def test_a_read_write_lock(manager: SyncLockManager) -> None:
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
        in_another_thread(lambda: lock.read().acquire().release())
    with lock.write(since=first) as again:
        assert again.unchanged is False
    with pytest.raises(TypeError, match="since must be a read lease"):
        lock.write(since=first.fence)  # type: ignore[arg-type]


@clean
def test_a_semaphore_and_a_fair_lock(shared_nodes: Nodes, manager: SyncLockManager) -> None:
    """Threads hold permits at the same time, each another slot; and see which processes wait in line."""
    pool, fair = manager.semaphore("pool", permits=2, ttl=20), manager.lock("printer", fair=True, ttl=20)
    assert repr(pool) == "<SyncLock 'pool' permits=2 ttl=20s>"
    assert repr(fair) == "<SyncLock 'printer' fair ttl=20s>"
    with pool as one, pool as two:
        assert {one.slot, two.slot} == {0, 1}
        assert pool.try_acquire() is None
    with (
        manager.lock("c") as lease,
        pytest.raises(TypeError, match=r"only a lease of `LockManager\.semaphore`"),
    ):
        lease.slot  # noqa: B018
    with SyncLockManager(shared_nodes.urls, holder="next") as other, ThreadPoolExecutor(1) as thread:
        with fair:
            waiting = thread.submit(lambda: other.lock("printer", fair=True).acquire().release())
            until(lambda: manager.queue("printer").waiters, "it waits")
            (waiter,) = manager.queue("printer").waiters
            assert (waiter.place, waiter.holder, waiter.ours) == (0, "next", False)
        waiting.result(PATIENCE)


@clean
def test_a_thread_goes_in_again(manager: SyncLockManager) -> None:
    """What was said of tasks holds for threads (R27): the same lease inside, and no other thread comes in."""
    lock = manager.lock("x", reentrant=True)
    with lock as outer:
        with lock as inner, manager.lock("x", reentrant=True, blocking=False) as third:
            assert inner.fence == third.fence == outer.fence
            assert in_another_thread(lock.try_acquire) is None
        kept = lock.acquire()
        assert kept.release().count(ReleaseOutcome.STILL_HELD) == 5
        with pytest.raises(WouldDeadlockError):
            manager.lock("x", "y", reentrant=True).acquire()
        assert (outer.held, inner.held) == (True, False)
        kept = lock.acquire()
    assert kept.held
    with pytest.raises(LockTakenError):  # a lease of `acquire` may be another thread's business
        manager.lock("x", reentrant=True, blocking_timeout=0.2).acquire()
    assert kept.release().count(ReleaseOutcome.RELEASED) == 5
    rw = manager.rwlock("x", reentrant=True)
    with rw.write() as writer, rw.read() as reader:
        assert reader.fence == writer.fence
    with manager.lock("x") as plain, lock as inner:
        assert inner.fence == plain.fence


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
    with lock, pytest.raises(LockTakenError):
        in_another_thread(lock.acquire)  # that one waits for this one, not for itself


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
        assert [found.name for found in manager.survey("y").locks] == ["y"]
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


def test_the_last_block_closes(shared_nodes: Nodes) -> None:
    """Of all threads: one that is left does not close it for the others."""
    with SyncLockManager(shared_nodes.urls) as manager:
        thread = threading.Thread(target=lambda: [manager.__enter__(), manager.__exit__()])
        thread.start()
        thread.join()
        with manager, manager.lock("x"):
            pass
        with manager.lock("x"):
            pass
    with pytest.raises(ManagerClosedError):
        manager.lock("x").acquire()


def test_closing(shared_nodes: Nodes) -> None:
    """Closing waits for the blocks of other threads, which learn that they have lost; then it is over."""
    manager = SyncLockManager(shared_nodes.urls)
    inside, noticed, leave = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with manager.lock("x") as lease:
            inside.set()
            until(lease.lease.lost.is_set, "it is told")
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


def test_a_call_that_has_begun_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does not end between a look at whether it runs and a call, which would wait for ever."""
    manager = SyncLockManager(["redis://127.0.0.1:1"])
    loop = manager._thread.submit(asyncio.get_running_loop).result()
    loop_thread = manager._thread.submit(threading.current_thread).result()
    call_soon = loop.call_soon_threadsafe
    begun, caller = threading.Event(), []

    def late(*arguments: Any, **options: Any) -> Any:
        if threading.get_ident() in caller:
            begun.set()
            loop_thread.join(0.3)  # it would end meanwhile, if nothing kept it
        return call_soon(*arguments, **options)

    def call() -> Any:
        caller.append(threading.get_ident())
        return manager._thread.submit(asyncio.sleep, 0.05, "done").result(PATIENCE)

    monkeypatch.setattr(loop, "call_soon_threadsafe", late)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(call)
        begun.wait(PATIENCE)
        manager.close()
        assert answer.result(PATIENCE) == "done"


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
        with pytest.raises(RuntimeError, match="would block this event loop"), manager.lock("x"):
            pass

    asyncio.run(use())


def test_options_are_shown_and_bad_values_refused(manager: SyncLockManager) -> None:
    """`help` names the options; what cannot work is refused where it is written."""
    making = (SyncLockManager, SyncLockManager.from_env)
    for described in (*making, manager.lock, manager.rwlock, manager.semaphore, manager.locked):
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
    return len(manager._thread.submit(asyncio.all_tasks).result())


@clean
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
            until(lambda: tasks_of(manager) <= tasks, "no task waits in the loop")
        until(lambda: keys(shared_nodes.urls) == {}, "no key is left")
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
        until(lambda: keys(shared_nodes.urls) == {}, "no key is left")
        assert kept.value.__traceback__ is not None
    assert manager.manager.statistics().released == 2


@clean
def test_interrupted_but_won_all_the_same(manager: SyncLockManager) -> None:
    """A call that its cancellation reaches too late has a lease, which no caller takes."""

    async def acquire() -> Any:
        lease = await manager.manager.lock("x").acquire()
        won.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE)
        leases.append(lease)
        return lease

    won = threading.Event()
    leases: list[Any] = []
    call = manager._thread.submit(acquire)
    assert won.wait(PATIENCE)
    call.give_up()
    until(lambda: leases and not leases[0].held, "it is released")


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
            manager._thread.submit(int)
        assert manager._thread.submit(int).result(PATIENCE) == 0


def test_entering_starts(shared_nodes: Nodes) -> None:
    """As `async with` does: no call is needed for that."""
    with SyncLockManager(shared_nodes.urls, connect_timeout=10.0) as manager:
        assert manager.available
    with pytest.raises(ConfigurationError), SyncLockManager([shared_nodes.urls[0]] * 2):
        pass


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_a_probe_alone_becomes_ready(*, in_a_loop: bool, shared_nodes: Nodes) -> None:
    """In the manager's own thread, also when a loop's code asks; a closed one is not started."""

    async def asked() -> bool:
        return manager.available

    def probe() -> bool:
        return asyncio.run(asked()) if in_a_loop else manager.available

    with contextlib.closing(SyncLockManager(shared_nodes.urls)) as manager:
        assert not probe()
        until(probe, "it is ready")
        with manager.lock("probed", blocking_timeout=0):
            pass
    assert not probe()


INTERRUPTED = """
import faulthandler, random, signal
from aioredlock_ng.sync import SyncLockManager
faulthandler.dump_traceback_later(90, exit=True)
class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
manager = SyncLockManager.from_env()
with manager.lock("warm"): pass
struck = 0
same = manager.lock("same", ttl=60, blocking_timeout=30)
for n in range(5000):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-5 + random.random() / 1000)
            with same if n % 2 else manager.lock("k", ttl=60, blocking_timeout=30): pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Late:
        struck += 1
with manager.lock("k", blocking_timeout=30), same: pass
assert struck > 2000, struck
manager.close()
"""

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
@pytest.mark.parametrize(
    ("program", "warnings"), [(INTERRUPTED, "ignore"), (FORKED, "error")], ids=["interrupted", "forked"]
)
def test_a_program(shared_nodes: Nodes, program: str, warnings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that raises, as soft time limits do thousands of times, costs one call, wherever it strikes.

    A forked child cannot use its parent's manager, leaves its blocks alone, and ends.
    """
    monkeypatch.setenv("REDLOCK_URLS", ",".join(shared_nodes.urls))
    subprocess.run([sys.executable, "-W", warnings, "-c", program], cwd=ROOT, check=True, timeout=100)
    until(lambda: keys(shared_nodes.urls) == {}, "no key is left")
