"""Blocks of threads (R27): what each kind promises, frameworks that move blocks, interrupts, and the end."""

# ruff: noqa: PT012 (fixtures; a block under a lock is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse

from aioredlock_ng import LockLostError, LockTakenError, LossReason, WouldDeadlockError
from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import MemoryNode
from tests.behaviour.test_sync import (  # noqa: F401 (fixtures)
    in_another_thread,
    in_loop,
    interrupts,
    no_thread_left,
    take_away,
)
from tests.behaviour.tools import PATIENCE, keys
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, until

# Everything that is entered by ``with``.
KINDS: Final[dict[str, Callable[[SyncLockManager], Any]]] = {
    "lock": lambda manager: manager.lock("x", blocking_timeout=0.2),
    "fair": lambda manager: manager.lock("x", fair=True, blocking_timeout=0.2),
    "reentrant": lambda manager: manager.lock("x", reentrant=True, blocking_timeout=0.2),
    "read": lambda manager: manager.rwlock("x", blocking_timeout=0.2).read(),
    "write": lambda manager: manager.rwlock("x", blocking_timeout=0.2).write(),
    "semaphore": lambda manager: manager.semaphore("x", permits=1, blocking_timeout=0.2),
    "campaign": lambda manager: manager.election("x", blocking_timeout=0.2).campaign(),
    "leadership": lambda manager: manager.election("x").try_campaign(),
}

each_kind = pytest.mark.parametrize("kind", KINDS)


@contextmanager
def by_generator(block: Any) -> Iterator[Any]:
    """Enter a block for the caller, as many programs do."""
    with block as held:
        yield held


class ByClass:
    """Enter a block for the caller by an object of its own."""

    def __init__(self, block: Any) -> None:
        self.block = block

    def __enter__(self) -> Any:
        return self.block.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        self.block.__exit__(*exc_info)


@contextmanager
def by_stack(block: Any) -> Iterator[Any]:
    """Enter a block by a stack."""
    with ExitStack() as stack:
        yield stack.enter_context(block)


WAYS: Final = (lambda block: block, by_generator, ByClass, by_stack)

each_way = pytest.mark.parametrize("way", WAYS, ids=["itself", "generator", "class", "stack"])


@pytest.fixture
def manager() -> Iterator[SyncLockManager]:
    """Give a manager, and see that no lease is left."""
    with SyncLockManager([MemoryNode()]) as manager:
        yield manager
        until(lambda: manager.statistics().held == 0, "all are released")


def enter_rival(manager: SyncLockManager, kind: str, **options: Any) -> None:
    """Take what excludes `kind`, and give it back."""
    if kind == "semaphore":
        manager.semaphore("x", permits=1, **options).acquire().release()
    else:
        manager.lock("x", **options).acquire().release()


def is_inside(manager: SyncLockManager, kind: str) -> bool:
    """Whether the calling code would wait for itself, and not for other code, if it asked for the lock."""
    try:
        enter_rival(manager, kind, blocking_timeout=0.01)
    except WouldDeadlockError:
        return True
    except LockTakenError:
        if kind == "reentrant":  # nor does it go in again
            with pytest.raises(LockTakenError):
                KINDS[kind](manager).acquire()
        return False
    raise AssertionError("it is free")


# -- what each kind promises ---------------------------------------------------------------------------


@each_way
@each_kind
def test_a_block(manager: SyncLockManager, kind: str, way: Any) -> None:
    """The context that enters a block is inside of it, by whichever way; a copy in another thread is not."""
    with way(KINDS[kind](manager)) as held:
        assert is_inside(manager, kind)
        assert copy_context().run(is_inside, manager, kind)
        assert not in_another_thread(lambda context: context.run(is_inside, manager, kind), copy_context())
        assert not asyncio.run(in_thread(is_inside, manager, kind))
        assert not in_another_thread(is_inside, manager, kind)
        assert held.held
    assert not held.held
    enter_rival(manager, kind, blocking=False)


async def in_thread(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in a thread of the loop's pool, in a copy of this context."""
    return await asyncio.to_thread(function, *arguments)


@each_way
@each_kind
def test_a_block_of_a_pool(manager: SyncLockManager, kind: str, way: Any) -> None:
    """A worker enters for one request, and is not inside for the next; any thread leaves, at once."""

    async def requests() -> None:
        one = anyio.CapacityLimiter(1)

        async def run(function: Callable[..., Any], *arguments: object) -> Any:
            return await anyio.to_thread.run_sync(function, *arguments, limiter=one)

        for leave_here in (False, True):
            block = way(await run(KINDS[kind], manager))
            held = await run(block.__enter__)
            assert not await run(is_inside, manager, kind)
            assert held.held
            if leave_here:
                in_another_thread(block.__exit__, None, None, None)
            else:
                await run(block.__exit__, None, None, None)
            assert not held.held

    anyio.run(requests)


@each_kind
def test_a_loss(manager: SyncLockManager, kind: str) -> None:
    """It sets `lost`, and raises at `check` and at the end, where an error of the block has a note of it."""
    for error in (None, ZeroDivisionError()):
        with (
            pytest.raises(error.__class__ if error else LockLostError) as raised,
            KINDS[kind](manager) as held,
        ):
            event = held.lost
            assert not event.is_set()
            take_away(manager, "x")
            assert event.wait(PATIENCE)
            assert held.lost.is_set()
            assert not held.held
            with pytest.raises(LockLostError):
                held.check()
            if error:
                raise error
        assert error is None or "was lost" in "".join(raised.value.__notes__)
    with pytest.raises(ZeroDivisionError) as plain, KINDS[kind](manager):
        raise ZeroDivisionError
    assert not hasattr(plain.value, "__notes__")


@each_kind
def test_closing_in_a_block(kind: str) -> None:
    """Blocks of the thread that closes, also suspended ones, and leases without a block end at once."""

    def suspended(block: Any) -> Iterator[Any]:
        with block as held:
            yield held

    for error in (LockLostError, ZeroDivisionError, None):
        manager = SyncLockManager([MemoryNode()], ttl=3600)
        loose = manager.lock("loose").acquire()
        if error is None:
            generator = suspended(KINDS[kind](manager))
            held = next(generator)
            manager.close()
            generator.close()
        else:
            with pytest.raises(error) as raised, KINDS[kind](manager) as held:
                manager.close()
                if error is ZeroDivisionError:
                    raise error
            assert error is ZeroDivisionError or raised.value.reason is LossReason.MANAGER_CLOSED  # type: ignore[attr-defined]
        assert (held.held, loose.held) == (False, False)


@each_kind
def test_an_interrupted_exit(manager: SyncLockManager, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that raises in it costs no lock, wherever it strikes once that has begun."""

    def interrupt(*arguments: object, **options: object) -> None:
        patch.undo()
        raise KeyboardInterrupt

    steps: list[tuple[object, str]] = [(manager._thread, "call"), (manager._thread, "_post")]
    if kind not in ("campaign", "leadership"):
        steps += [(sys.modules["aioredlock_ng.sync._lock"], each) for each in ("leaving", "generator_around")]
    for step in steps:
        block = KINDS[kind](manager)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), block as held:
            patch.setattr(*step, interrupt)
        until(lambda: not held.held, "it is released")
        enter_rival(manager, kind, blocking_timeout=PATIENCE)


@pytest.mark.parametrize("way", [by_generator, by_stack])
def test_blocks_of_one_lock_are_left_in_any_order(manager: SyncLockManager, way: Any) -> None:
    """Generators are distinguished, in one thread or by threads of a pool, and functions within them."""
    lock = manager.semaphore("x", permits=3)
    for call in (lambda function, *arguments: function(*arguments), in_another_thread):
        first, second = way(lock), way(lock)
        one, two = call(first.__enter__), call(second.__enter__)
        with lock as three:
            assert all(held.held for held in (one, two, three))
        assert (one.held, two.held, three.held) == (True, True, False)
        call(first.__exit__, None, None, None)
        assert (one.held, two.held) == (False, True)
        call(second.__exit__, None, None, None)
        assert not two.held
    with pytest.raises(RuntimeError, match="was not entered"):
        lock.__exit__(None, None, None)


def test_threads_hold_several_permits_at_once(manager: SyncLockManager) -> None:
    """Each gets what it wants, and no slot is another's; one that gives up leaves nothing."""
    held: set[int] = set()

    def work(weight: int) -> None:
        for _ in range(3):
            with manager.fair_semaphore("x", permits=4, weight=weight, blocking_timeout=PATIENCE) as leases:
                slots = {lease.slot for lease in leases}
                assert len(slots) == weight
                assert held.isdisjoint(slots)
                held.update(slots)
                time.sleep(0.005)
                held.difference_update(slots)

    with ThreadPoolExecutor() as pool:
        list(pool.map(work, (1, 2, 3, 4)))
    with manager.fair_semaphore("x", permits=4, weight=3), pytest.raises(LockTakenError):
        in_another_thread(manager.fair_semaphore("x", permits=4, weight=2, blocking=False).__enter__)
    assert {lock.state for lock in manager.survey("x", "x:door").locks} == {"free"}


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

    pool = manager.semaphore("y", permits=2, blocking_timeout=PATIENCE)  # one object for all requests

    def rows() -> Iterator[str]:
        with pool as permit:
            for _ in range(3):
                yield "row"
                permit.check()

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
    found: list[bool] = []

    def first() -> None:
        with manager.lock("x"):
            second.switch()

    second = greenlet.greenlet(lambda: found.append(is_inside(manager, "lock")))
    greenlet.greenlet(first).switch()
    assert found == [False]


# -- closing -------------------------------------------------------------------------------------------


def test_closing_waits_only_for_a_loop_that_turns(
    manager: SyncLockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may call code of the user's that waits for what a signal handler has interrupted."""
    monkeypatch.setattr("aioredlock_ng.sync._thread.STANDSTILL", 0.2)
    goes_on = threading.Event()
    with pytest.raises(LockLostError), manager.lock("x") as held:
        stopped = in_loop(manager, goes_on.wait, PATIENCE, waits=False)
        manager.close()
        goes_on.set()
        assert stopped.over.wait(PATIENCE)
        until(lambda: not held.held, "it is released")


def test_a_second_closing_may_end_later_than_the_first(
    manager: SyncLockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop only waits for what is left by then: it is not stopped in that."""
    monkeypatch.setattr("aioredlock_ng.sync._thread.STANDSTILL", 0.2)
    goes_on = threading.Event()
    blocked = in_loop(manager, goes_on.wait, PATIENCE, waits=False)
    for seconds in (0, 0.2):
        manager._thread.stop(asyncio.sleep, seconds)
    goes_on.set()
    assert blocked.over.wait(PATIENCE)
    assert manager._thread._over.wait(PATIENCE)
    manager._thread._thread.join(PATIENCE)  # type: ignore[union-attr]


# -- interrupts at any moment --------------------------------------------------------------------------

INTERRUPTED = """
import faulthandler, random, signal
from aioredlock_ng import LockLostError, ManagerClosedError
from aioredlock_ng.sync import SyncLockManager
from aioredlock_ng.testing import MemoryNode
faulthandler.dump_traceback_later(90, exit=True)
class Late(Exception): pass
def strike(seconds): signal.setitimer(signal.ITIMER_REAL, seconds)
def handle(handler): signal.signal(signal.SIGALRM, handler)
"""

CLOSED = """
handle(lambda *_: manager.close())
for _ in range(100):
    manager = SyncLockManager([MemoryNode()], ttl=60)
    lock = manager.lock("x")
    try:
        strike(1e-5 + random.random() / 250)
        {work}
    except (LockLostError, ManagerClosedError):
        pass
"""

INTERRUPTS: Final = {
    "closes as it looks for a loss": CLOSED.format(
        work="""
        with lock as lease:
            while not lease.lost.is_set(): pass
        """
    ),
    "closes as it enters": CLOSED.format(
        work="""
        while True:
            with lock: pass
        """
    ),
    "raises": """
def late(*_): raise Late
handle(late)
manager, struck = SyncLockManager([MemoryNode()], ttl=60), 0
with manager.lock("k"): pass
for n in range(5000):
    try:
        try:
            strike(1e-5 + random.random() / 1500)
            with manager.lock("k", blocking_timeout=30): pass
        finally:
            strike(0)
    except Late:
        struck += 1
with manager.lock("k", blocking_timeout=30): pass
assert struck > 2000, struck
manager.close()
""",
}


@pytest.mark.process
@pytest.mark.parametrize("case", INTERRUPTS)
def test_a_signal_handler_at_any_moment(case: str) -> None:
    """It closes, and waits for nothing that it interrupts; or it raises, which costs one call."""
    program = INTERRUPTED + INTERRUPTS[case]
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, check=True, timeout=100)


# -- the end of the interpreter ------------------------------------------------------------------------

ENDINGS = {
    "a suspended generator": """
        def rows():
            with manager.lock("x"):
                yield 1
                yield 2
        g = rows(); next(g)
    """,
    "a generator of a thread that has ended": """
        import threading
        def rows():
            with manager.lock("x"):
                yield 1
        g = rows(); thread = threading.Thread(target=next, args=[g]); thread.start(); thread.join()
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
    subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, check=True, timeout=PATIENCE)

    def left(name: bytes) -> bool:
        return any(key.endswith(name) for found in keys(shared_nodes.urls).values() for key in found)

    until(lambda: not left(b":x"), "what can be released is")
    assert left(b":y") == (ending == "a daemon thread in a block"), "a thread that runs protects its block"
