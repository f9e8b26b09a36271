"""Which block is whose where frameworks move them: generators in pools, context managers, greenlets (R27)."""

# ruff: noqa: F811, PT012 (fixtures; a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
import io
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse

from aioredlock_ng import Lease, LockLostError, LockTakenError, LossReason, WouldDeadlockError
from aioredlock_ng.sync import SyncLock, SyncLockManager
from aioredlock_ng.sync._entries import _ENTERED
from aioredlock_ng.sync._thread import LossEvent
from tests.behaviour.test_sync import (  # noqa: F401 (fixtures)
    clean,
    in_another_thread,
    interrupts,
    manager,
    no_thread_left,
    nothing_left,
)
from tests.behaviour.tools import PATIENCE, keys
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, until

# Everything that is entered by ``with``.
KINDS: dict[str, Callable[[SyncLockManager], Any]] = {
    "lock": lambda manager: manager.lock("x", blocking_timeout=0.2),
    "reentrant": lambda manager: manager.lock("x", reentrant=True, blocking_timeout=0.2),
    "read": lambda manager: manager.rwlock("x").read(),
    "write": lambda manager: manager.rwlock("x", reentrant=True, blocking_timeout=0.2).write(),
    "semaphore": lambda manager: manager.semaphore("x", permits=1, blocking_timeout=0.2),
    "campaign": lambda manager: manager.election("x").campaign(),
}

ONE_HOLDER = ("lock", "reentrant", "write", "semaphore")


def held(manager: SyncLockManager, kind: str) -> Iterator[Any]:
    """Be a request that holds something while it is answered."""
    with KINDS[kind](manager) as lease:
        yield lease


@clean
@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_left_in_another_thread(manager: SyncLockManager, kind: str) -> None:
    """Frameworks do so with generators: what was won is given back, and at once."""
    request = held(manager, kind)
    lease = in_another_thread(lambda: next(request))
    assert lease.held
    request.close()
    assert not lease.held


@pytest.mark.parametrize("kind", ONE_HOLDER)
def test_a_thread_that_began_a_generator_is_not_inside(manager: SyncLockManager, kind: str) -> None:
    """The next request of the same thread waits like any other: it neither goes in again nor deadlocks."""
    first, second = held(manager, kind), held(manager, kind)
    with ThreadPoolExecutor(1) as one:
        one.submit(next, first).result(PATIENCE)
        with pytest.raises(LockTakenError):
            one.submit(next, second).result(PATIENCE)
        one.submit(first.close).result(PATIENCE)
        third = held(manager, kind)
        assert one.submit(next, third).result(PATIENCE).held
        third.close()


@clean
def test_blocks_of_one_lock_are_left_in_any_order(manager: SyncLockManager) -> None:
    """Generators of two threads that share a lock each give back their own lease."""
    lock = manager.semaphore("x", permits=2)
    first, second = by_generator(lock), by_generator(lock)
    one, two = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    assert (one.held, two.held) == (False, True)
    second.__exit__(None, None, None)
    assert not two.held
    with pytest.raises(RuntimeError, match="was not entered"):
        lock.__exit__(None, None, None)


@clean
def test_stacks_with_a_lock_object_each_are_left_in_any_order(manager: SyncLockManager) -> None:
    """As the page about threads says; one object would end the block that was entered last."""
    first, second = ExitStack(), ExitStack()
    one = first.enter_context(manager.semaphore("x", permits=2))
    two = second.enter_context(manager.semaphore("x", permits=2))
    first.close()
    assert (one.held, two.held) == (False, True)
    second.close()
    assert not two.held


@contextmanager
def by_generator(lock: Any) -> Iterator[Any]:
    """Enter a lock for the caller, as many programs do."""
    with lock as lease:
        yield lease


@contextmanager
def by_two_generators(lock: Any) -> Iterator[Any]:
    """The same, once more."""
    with by_generator(lock) as lease:
        yield lease


class ByClass:
    """Enter a lock for the caller by an object of its own."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __enter__(self) -> Any:
        return self.lock.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        self.lock.__exit__(*exc_info)


@contextmanager
def by_stack(lock: Any) -> Iterator[Any]:
    """Enter a lock by a stack."""
    with ExitStack() as stack:
        yield stack.enter_context(lock)


WAYS = [by_generator, by_two_generators, ByClass, by_stack]


@clean
@pytest.mark.parametrize("way", WAYS)
def test_code_below_a_block_is_inside(shared_nodes: Nodes, manager: SyncLockManager, way: Any) -> None:
    """Also where a function has entered the block for it."""
    with way(manager.lock("x")), pytest.raises(WouldDeadlockError, match="this thread holds 'x'"):
        manager.lock("x").acquire()
    with pytest.raises(LockTakenError), ExitStack() as stack:  # and no more when it is left
        stack.enter_context(way(manager.lock("x")))
        stack.pop_all().close()
        manager.lock("x", blocking_timeout=PATIENCE).acquire().release()
        with SyncLockManager(shared_nodes.urls) as other, other.lock("x"):
            manager.lock("x", blocking_timeout=0.1).acquire()
    with way(manager.lock("x", reentrant=True)) as outer, way(manager.lock("x", reentrant=True)) as inner:
        assert inner.fence == outer.fence


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_enters_for_another_is_not_inside(manager: SyncLockManager, way: Any) -> None:
    """A pool of threads runs the entry in a context of its own and goes on with other work."""

    async def requests() -> None:
        one = anyio.CapacityLimiter(1)

        async def run(function: Callable[..., Any], *arguments: object) -> Any:
            return await anyio.to_thread.run_sync(function, *arguments, limiter=one)

        first = way(manager.lock("x", reentrant=True))
        lease = await run(first.__enter__)
        with pytest.raises(LockTakenError):
            await run(way(manager.lock("x", reentrant=True, blocking_timeout=0.2)).__enter__)
        assert lease.held
        await run(first.__exit__, None, None, None)
        assert not lease.held

    anyio.run(requests)


@clean
def test_fastapi_runs_a_dependency_in_several_threads(manager: SyncLockManager) -> None:
    """A ``def`` dependency that yields, and a streamed generator: one request at a time, nothing is left."""
    app = FastAPI()
    inside: list[int] = []

    def locked() -> Iterator[int]:
        with manager.lock("x", reentrant=True, blocking_timeout=PATIENCE) as lease:
            yield lease.fence

    @app.get("/")
    def answer(fence: int = Depends(locked)) -> int:  # noqa: FAST002 (a name of this function)
        inside.append(fence)
        assert manager.lock("x").try_acquire() is None
        return fence

    def rows() -> Iterator[str]:
        with manager.lock("y", blocking_timeout=PATIENCE):
            for _ in range(3):
                yield "row"

    @app.get("/rows")
    def stream() -> StreamingResponse:
        return StreamingResponse(rows())

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here", timeout=PATIENCE) as client:
            return await asyncio.gather(*(client.get(path) for path in ("/", "/rows") * 4))

    answers = asyncio.run(ask())
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.text for answer in answers[1::2]} == {"rowrowrow"}
    assert len(set(inside)) == 4, "each had a fence of its own"


def test_greenlets_share_a_thread_and_no_block(manager: SyncLockManager) -> None:
    """A greenlet whose fellow is inside of a block is not, whether the lock is reentrant or not."""
    greenlet = pytest.importorskip("greenlet", reason="no greenlet: pip install --group workers")
    told: list[object] = []

    def first() -> None:
        with manager.lock("x", reentrant=True) as lease:
            told.append(lease.fence)
            second.switch()

    def other() -> None:
        for reentrant in (True, False):
            try:
                told.append(manager.lock("x", reentrant=reentrant, blocking_timeout=0.1).acquire())
            except LockTakenError as error:
                told.append(type(error))

    second = greenlet.greenlet(other)
    greenlet.greenlet(first).switch()
    assert told[1:] == [LockTakenError, LockTakenError]
    manager.lock("x", blocking_timeout=PATIENCE).acquire().release()


@clean
def test_what_fails_between_the_win_and_the_block(
    manager: SyncLockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is, the lock is given back: there is no block that could do so."""
    monkeypatch.setattr(Lease, "_bind", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError), manager.lock("x"):
        raise AssertionError("entered")


# -- closing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_closing_does_not_wait_for_its_own_thread(shared_nodes: Nodes, kind: str) -> None:
    """What the thread that closes is inside of, has suspended, or has no block for ends with the call."""

    def closed(manager: SyncLockManager) -> bool:
        manager.close()
        until(lambda: keys(shared_nodes.urls) == {}, "no key is left")
        return True

    manager = SyncLockManager(shared_nodes.urls, ttl=3600)
    loose = manager.lock("loose").acquire()
    with pytest.raises(LockLostError) as lost, KINDS[kind](manager) as lease:
        assert closed(manager)
        assert (lease.held, loose.held) == (False, False)
    assert lost.value.reason is LossReason.MANAGER_CLOSED
    manager = SyncLockManager(shared_nodes.urls, ttl=3600)
    with pytest.raises(ZeroDivisionError), KINDS[kind](manager):
        assert closed(manager)
        raise ZeroDivisionError
    manager = SyncLockManager(shared_nodes.urls, ttl=3600)
    suspended = held(manager, kind)
    next(suspended)
    assert closed(manager)
    suspended.close()


def test_a_signal_handler_closes_the_manager(shared_nodes: Nodes) -> None:
    """As a server's stop does, while the main thread is in a block."""
    manager = SyncLockManager(shared_nodes.urls, ttl=3600)
    before = signal.signal(signal.SIGUSR1, lambda *_: manager.close())
    try:
        with pytest.raises(LockLostError), manager.lock("x"):
            signal.raise_signal(signal.SIGUSR1)
            until(lambda: keys(shared_nodes.urls) == {}, "no key is left")
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", [*KINDS, "leadership"])
def test_closing_does_not_wait_for_a_block_that_is_being_left(
    shared_nodes: Nodes, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler that closes may interrupt ``__exit__`` before the loop has heard of it."""

    def interrupt(*arguments: object, **options: Any) -> Any:
        patch.undo()
        began = time.monotonic()
        manager.close()
        assert time.monotonic() - began < 10
        return manager._thread.call(*arguments, **options)  # type: ignore[arg-type]

    manager = SyncLockManager(shared_nodes.urls, ttl=20)
    manager._thread.call(manager.manager.start)
    block = manager.election("x").try_campaign() if kind == "leadership" else KINDS[kind](manager)
    with monkeypatch.context() as patch, pytest.raises(LockLostError), block as lease:
        patch.setattr(manager._thread, "call", interrupt)
    assert not lease.held


def test_closing_waits_only_for_a_loop_that_turns(
    shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may call code of the user's that waits for what a signal handler has interrupted."""
    monkeypatch.setattr("aioredlock_ng.sync._thread.STANDSTILL", 0.2)
    goes_on = threading.Event()
    manager = SyncLockManager(shared_nodes.urls, ttl=3600)
    with pytest.raises(LockLostError), manager.lock("x"):
        manager._thread.submit(goes_on.wait, PATIENCE)
        manager.close()
        goes_on.set()
        until(lambda: keys(shared_nodes.urls) == {}, "no key is left")


def test_closing_does_not_wait_for_a_log_handler_for_long(
    shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A signal handler that closes may have interrupted code in it; the loop needs none to release."""
    caplog.set_level(logging.INFO, "aioredlock_ng")
    handler = logging.StreamHandler(io.StringIO())
    monkeypatch.setattr(logging.getLogger("aioredlock_ng"), "handlers", [handler])
    manager = SyncLockManager(shared_nodes.urls, ttl=3600)
    with pytest.raises(LockLostError), manager.lock("x"):
        handler.acquire()
        try:
            manager.close()
            assert keys(shared_nodes.urls) == {}
        finally:
            handler.release()
    manager._thread.courier.wait(PATIENCE)
    assert "is disconnected" in handler.stream.getvalue()


def test_closing_waits_for_a_loop_that_turns(
    manager: SyncLockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the blocks of other threads take, up to their deadline."""
    monkeypatch.setattr("aioredlock_ng.sync._thread.STANDSTILL", 0.5)
    entered, finished = threading.Event(), threading.Event()
    looks: list[float | None] = []
    over = manager._thread._over
    wait = over.wait
    monkeypatch.setattr(over, "wait", lambda timeout: (looks.append(timeout), wait(timeout))[1])

    def work() -> None:
        with suppress(LockLostError), manager.lock("x") as lease:
            entered.set()
            lease.lost.wait(PATIENCE)
            until(lambda: len(looks) > 2, "close has waited for longer than for a standstill")
            finished.set()

    with ThreadPoolExecutor(1) as thread:
        at_work = thread.submit(work)
        assert entered.wait(PATIENCE)
        manager.close()
        assert finished.is_set()
        at_work.result(PATIENCE)


CLOSED_BY_A_HANDLER = """
import faulthandler, random, signal
from aioredlock_ng import LockLostError, ManagerClosedError
from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import MemoryNode
faulthandler.dump_traceback_later(45, exit=True)
signal.signal(signal.SIGALRM, lambda *_: manager.close())
for _ in range(100):
    manager = SyncLockManager([MemoryNode()], ttl=60)
    lock = manager.lock("x")
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-5 + random.random() / 250)
        {work}
    except (LockLostError, ManagerClosedError):
        pass
"""

INTERRUPTED_WORK = {
    "looks for a loss": """
        with lock as lease:
            while not lease.lost.is_set(): pass
    """,
    "enters": """
        while True:
            with lock: pass
    """,
}


@pytest.mark.process
@pytest.mark.parametrize("work", INTERRUPTED_WORK)
def test_a_signal_handler_closes_the_manager_at_any_moment(work: str) -> None:
    """Whatever the main thread is doing: nothing that it holds is waited for by the loop."""
    program = CLOSED_BY_A_HANDLER.format(work=INTERRUPTED_WORK[work].strip())
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, check=True, timeout=60)


# -- the end of the interpreter ------------------------------------------------------------------------

ENDINGS = {
    "a suspended generator": """
        def rows():
            with manager.lock("x"):
                yield 1
                yield 2
        g = rows(); next(g)
    """,
    "a context manager that is kept": """
        import contextlib
        @contextlib.contextmanager
        def locked():
            with manager.lock("x"):
                yield
        kept = locked(); kept.__enter__()
    """,
    "a finalizer": """
        class Late:
            def __init__(self): self.lease = manager.lock("x").acquire()
            def __del__(self): self.lease.release()
        late = Late()
    """,
    "a finalizer that uses another manager": """
        class Late:
            def __del__(self): SyncLockManager.from_env().lock("x").acquire()
        late = Late()
    """,
    "an observer": """
        seen = manager.election("x").observe(); next(seen)
    """,
    "a daemon thread in a block": """
        import threading
        inside = threading.Event()
        def work():
            with manager.lock("y"):
                inside.set(); threading.Event().wait()
        threading.Thread(target=work, daemon=True).start(); inside.wait()
        lease = manager.lock("x").acquire()
    """,
}


@pytest.mark.process
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends(shared_nodes: Nodes, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for when its threads stand still already, and what can be released is."""
    monkeypatch.setenv("REDLOCK_URLS", ",".join(shared_nodes.urls))
    lines = ["from aioredlock_ng.sync import SyncLockManager", "manager = SyncLockManager.from_env(ttl=3600)"]
    lines += [line.removeprefix("        ") for line in ENDINGS[ending].splitlines()]
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, check=True, timeout=PATIENCE)
    assert time.monotonic() - began < PATIENCE

    def left() -> list[bytes]:
        return [key for found in keys(shared_nodes.urls).values() for key in found if key.endswith(b":x")]

    until(lambda: not left(), "what can be released is")


# -- gevent --------------------------------------------------------------------------------------------


# -- signals -------------------------------------------------------------------------------------------


def test_an_interrupt_in_a_wait_for_a_loss_keeps_no_other_from_it(
    interrupts: Callable[[float], None],
) -> None:
    """A thread that is interrupted in `lost.wait()` leaves nothing locked for the loop, or for others."""
    event = LossEvent()
    assert not event.wait(0.001)
    interrupts(0.05)
    with pytest.raises(KeyboardInterrupt):
        event.wait(PATIENCE)
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(event.wait, PATIENCE) for _ in range(2)]
        event.set()
        assert [wait.result(PATIENCE) for wait in waits] == [True, True]
    assert event.wait()
    assert event.is_set()
    with pytest.raises(RuntimeError):
        event.clear()


@contextmanager
def interrupted_exits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have ``__exit__`` raise before it has done anything, as a signal handler may."""

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(SyncLock, "__exit__", interrupt)
        yield


def test_a_lock_is_entered_again_after_an_interrupted_exit(
    manager: SyncLockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same ``with``, or after the end of the function that had it."""
    lock, leases = manager.lock("x", blocking_timeout=PATIENCE), []

    def work() -> None:
        with lock as lease:
            leases.append(lease)

    for _ in range(3):
        with interrupted_exits(monkeypatch):
            work()
    for _ in range(3):
        with interrupted_exits(monkeypatch), by_generator(lock) as lease:
            leases.append(lease)
    for again in (True, True, False):
        with interrupted_exits(monkeypatch) if again else nullcontext(), lock as lease:
            leases.append(lease)
    until(lambda: not any(lease.held for lease in leases), "all are released")
    assert len(leases) == 9
    assert not lock._entered


@pytest.mark.parametrize("interrupted", ["leaving", "submit"])
def test_an_interrupted_exit_releases(
    shared_nodes: Nodes, manager: SyncLockManager, interrupted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would, until the lock is entered again."""

    def interrupt(*arguments: object) -> None:
        patch.undo()
        raise KeyboardInterrupt

    lock = manager.lock("x")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), lock as lease:
        if interrupted == "leaving":
            patch.setattr("aioredlock_ng.sync._lock.leaving", interrupt)
        else:
            patch.setattr(manager._thread, "submit", interrupt)
    until(lambda: not lease.held and not keys(shared_nodes.urls), "it is released")
    assert not lock._entered


def test_blocks_that_are_open_are_not_taken_for_interrupted_ones(manager: SyncLockManager) -> None:
    """One frame enters at two places, or by calls; a function leaves its block to others, or a generator."""
    pool = manager.semaphore("x", permits=6)

    def enter() -> Any:
        return pool.__enter__()

    with pool as first, pool as second:
        leases = [first, second, enter(), enter(), *(pool.__enter__() for _ in range(1))]
        suspended = by_generator(pool)
        leases.append(suspended.__enter__())
        assert pool.try_acquire() is None
        assert all(lease.held for lease in leases)
        suspended.__exit__(None, None, None)
        for _ in range(3):
            pool.__exit__(None, None, None)
    assert not any(lease.held for lease in leases)


def test_waits_that_are_over_leave_nothing(interrupts: Callable[[float], None]) -> None:
    """A thread may poll `lost.wait(1)` for as long as it holds a lease, and be interrupted in it."""
    event = LossEvent()
    for _ in range(10):
        assert not event.wait(0)
    interrupts(0.05)
    with pytest.raises(KeyboardInterrupt):
        event.wait(PATIENCE)
    assert not event._waiters


def test_contexts_do_not_gather_what_was_left_elsewhere(manager: SyncLockManager) -> None:
    """A thread of a pool that enters blocks for others, which end them, remembers none of them."""
    before = len(_ENTERED.get())
    for _ in range(5):
        entered = by_generator(manager.lock("x"))
        entered.__enter__()
        in_another_thread(lambda: entered.__exit__(None, None, None))  # noqa: B023
        assert len(_ENTERED.get()) <= before + 1
