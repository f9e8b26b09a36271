"""Small worlds on virtual time: masters in memory, a manager over them, and what must hold at the end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from aioredlock_ng import ExtensionPolicy, Lease, LockManager, NodeState, RetryPolicy, _scripts
from aioredlock_ng.events import Hooks
from aioredlock_ng.testing import MemoryNode, SimLoop
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.batches import singles

Event = TypeVar("Event")

PLAIN = ExtensionPolicy.off()
PREFIX = b"redlock:"
TTL = 10.0
TIMEOUT = 0.1
LATENCY = 0.001
GRACE = ExtensionPolicy().grace

STRANGER = b"a stranger"
"""What another program writes under a lock."""

ANOTHER = b"%b:%013d:another" % (b"5eed" * 10, 1_700_000_000_000)
"""What another process of this package does."""

SCRIPTS = {script.digest: script.name.replace("_", "-") for script in _scripts.ALL}
SCRIPTS[_scripts.SET_ALL.digest] = "acquire"
"""What the scripts are for: for the digests that are sent."""

MARKS = (b"fence:{", b"slots:{", b"leader:{", b"{meta}")
"""What the keys that outlive a lease have behind the prefix: counters, leaders, the record (R16)."""

SOURCES = {script.source: SCRIPTS[script.digest] for script in _scripts.ALL}


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own, on virtual time; no error may end up in the loop's handler."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            stray: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
            await test(*args, **kwargs)
            gc.collect()
            await turns(3)
            assert not stray, stray

        SimLoop.run(main())

    return run


sim = SimLoop.running


async def turns(number: int) -> None:
    """Let the loop take so many turns, without time passing."""
    for _ in range(number):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Fail the test where the block takes more of the loop's time; it would else wait for ever."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            pytest.fail(f"not done in {seconds} s")
        raise


async def until(when: float) -> None:
    """Wait for an instant of the loop's time, to the last bit."""
    arrived = sim().create_future()
    sim().call_at(when, lambda: arrived.done() or arrived.set_result(None))
    await arrived


class each:  # noqa: N801 (a word in a sentence: ``each(w.nodes).freeze()``)
    """Some nodes, of each of which a method is called with the same arguments."""

    def __init__(self, nodes: Iterable[Any]) -> None:
        self._nodes = tuple(nodes)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what calls that method of each."""
        return lambda *arguments, **options: [
            getattr(node, name)(*arguments, **options) for node in self._nodes
        ]


def is_ours_to_stay(key: bytes) -> bool:
    """Say whether a key is one of those that outlive a lease, whatever the prefix."""
    return any(mark in key for mark in MARKS)


def locks(node: MemoryNode) -> tuple[bytes, ...]:
    """Return the keys on a node that do not outlive a lease, whatever the prefix."""
    return tuple(key for key in node.keys if not is_ours_to_stay(key))


def deadline(lease: Lease, ttl: float = TTL) -> float:
    """Return the moment at which the body of a lease has to stop."""
    return lease.valid_until - GRACE * ttl


@dataclass(frozen=True, slots=True)
class Sent:
    """One command as a node executed it."""

    kind: str
    key: bytes
    owner: bytes
    words: tuple[bytes, ...]


def executed(node: MemoryNode) -> list[tuple[bytes, ...]]:
    """Return what `node` has executed, in order; a batch is the commands that it stands for (R42)."""
    return [single for words in node.executed for single in singles(words)]


def sent(node: MemoryNode) -> list[Sent]:
    """Return what `node` has executed, in order, with the owner each command was sent for.

    A batch is the commands that it stands for.
    """
    commands = []
    for words in executed(node):
        if words[0] == b"SET":
            commands.append(Sent("acquire", words[1], words[2], words))
        elif words[0] in (b"EVALSHA", b"EVAL"):
            kind = SCRIPTS.get(words[1]) or SOURCES[words[1]]
            count = int(words[2])
            owner = words[3 + count] if len(words) > 4 + count else b""  # the last one is the tag
            commands.append(Sent(kind, words[3], owner, words))
        else:
            commands.append(Sent(words[0].decode(), words[1], b"", words))
    return commands


def count(node: MemoryNode, kind: str, name: str | None = None) -> int:
    """Return how many commands of a kind `node` has executed, for one name if given."""
    key = None if name is None else PREFIX + name.encode()
    return sum(one.kind == kind and key in (None, one.key) for one in sent(node))


@dataclass(slots=True)
class World:
    """Nodes, and the managers over them that were opened; each stands for a process of its own."""

    nodes: list[MemoryNode]
    manager: LockManager
    seeds: Any = field(default_factory=lambda: iter(range(2, 1_000)))
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    @property
    def keys(self) -> list[tuple[bytes, ...]]:
        """Return the keys on every node, but for counters and incarnation records."""
        return [locks(node) for node in self.nodes]

    def holders(self, name: str) -> list[bytes | None]:
        """Return the value under a lock's name on every node."""
        return [node.get(PREFIX + name.encode()) for node in self.nodes]

    def occupy(self, name: str, ttl: float | None, *nodes: int, value: bytes = STRANGER) -> None:
        """Let a stranger hold a name on some nodes, without a number on all; or the value's holder."""
        for index in nodes or range(len(self.nodes)):
            self.nodes[index].set(PREFIX + name.encode(), value, ttl)

    def vacate(self, name: str, *nodes: int) -> None:
        """Delete a name's key on some nodes, without a number on all."""
        for index in nodes or range(len(self.nodes)):
            self.nodes[index].delete(PREFIX + name.encode())

    @contextlib.asynccontextmanager
    async def process(self, **options: Any) -> AsyncIterator[LockManager]:
        """Open one more manager over the same nodes, as another process would."""
        async with opened(self.nodes, seed=next(self.seeds), **options) as manager:
            yield manager


def drawn_backoffs(monkeypatch: pytest.MonkeyPatch, policy: RetryPolicy) -> list[int]:
    """Write down after which try of its own, from 0 on, each wait by `policy` was drawn."""
    seen: list[int] = []
    backoff = RetryPolicy.backoff

    def spy(self: RetryPolicy, attempt: int, chance: float, **options: float) -> float:
        if self is policy:
            seen.append(attempt)
        return backoff(self, attempt, chance, **options)

    monkeypatch.setattr(RetryPolicy, "backoff", spy)
    return seen


class Heard(Hooks):
    """A hook that keeps all that it is told, and when."""

    def __init__(self) -> None:
        self.told: list[tuple[float, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        """Return what keeps an event."""
        if name.startswith("on_"):
            return lambda event: self.told.append((sim().time(), event))
        return super().__getattribute__(name)

    def of(self, *kinds: type[Event]) -> list[Event]:
        """Return the events of these kinds."""
        return [event for _, event in self.told if isinstance(event, kinds)]

    def take(self, *kinds: type[Event]) -> list[Event]:
        """Return the events of these kinds, and forget all."""
        events = self.of(*kinds)
        self.told.clear()
        return events


def counter(name: str) -> bytes:
    """Return the key of a name's counter."""
    return PREFIX + b"fence:{" + PREFIX + name.encode() + b"}"


def ago(seconds: float) -> int:
    """Return the fence that belongs to some seconds ago, by a right clock."""
    return round((EPOCH + sim().clock.now() - seconds) * 1000) << 10


def put(w: World, name: str, *fences: int | None) -> None:
    """Have the nodes' counters stand somewhere; None leaves one as it is."""
    for node, fence in zip(w.nodes, fences, strict=True):
        if fence is not None:
            node.set(counter(name), b"%d" % fence, 600.0)


@contextlib.asynccontextmanager
async def opened(nodes: list[MemoryNode], *, seed: int = 1, **options: Any) -> AsyncIterator[LockManager]:
    """Open a manager over `nodes`; at the end no key and no task of its may be left."""
    before = asyncio.all_tasks()
    manager = make(nodes, seed=seed, **options)
    async with manager:
        yield manager
    left = {task for task in asyncio.all_tasks() - before if "aioredlock_ng" in task.get_name()}
    assert not left, left


def make(nodes: Sequence[Any], *, seed: int = 1, **options: Any) -> LockManager:
    """Make a manager on virtual time and with a seed; it is not started."""
    return LockManager(nodes, clock=sim().clock, random=random.Random(seed), **options)


@contextlib.asynccontextmanager
async def world(
    number: int = 3, *, latency: float | Callable[[], float] = LATENCY, **options: Any
) -> AsyncIterator[World]:
    """Open a world of `number` nodes and one manager; at the end no task of its may be left."""
    nodes = [MemoryNode(latency=latency) for _ in range(number)]
    async with opened(nodes, **options) as manager:
        yield World(nodes, manager)


def states(w: World) -> list[NodeState]:
    """Return how the nodes stand."""
    return [node.state for node in w.manager.statistics().nodes]


@dataclass(frozen=True, slots=True)
class End:
    """How a task ended, when, and how many cancellations it was left with."""

    error: BaseException | None
    cancelling: int
    at: float


async def ending(run: Callable[[], Awaitable[object]]) -> End:
    """Run something in the current task and return how it ended; a lease that it returns is given back."""
    error: BaseException | None = None
    result: object = None
    try:
        result = await run()
    except BaseException as raised:  # noqa: BLE001 (how it ended is the question)
        error = raised
    task = asyncio.current_task()
    assert task is not None
    end = End(error, task.cancelling(), sim().time())
    if isinstance(result, Lease):
        await result.release()
    return end


def in_task(run: Callable[[], Awaitable[object]]) -> asyncio.Task[End]:
    """Run something in a task of its own, which returns how it ended."""
    return asyncio.create_task(ending(run))


class Tripwire:
    """Runs a coroutine and cancels its task at the coroutine's pause number `at`, counted from 1.

    ``waking=False``: while it sleeps there.  ``waking=True``: when what it waits for has just
    happened, but before it hears of it.
    """

    def __init__(self, run: Awaitable[object], at: int, *, waking: bool) -> None:
        self._run = run
        self._at = at
        self._waking = waking
        self.sleeps = 0
        self.tripped = False
        """Whether the task was cancelled while the coroutine ran."""
        self._ended = False

    def __await__(self) -> Generator[Any, Any, object]:
        """Pass everything through, and count."""
        inner = self._run.__await__()
        raised: BaseException | None = None
        while True:
            try:
                pause = next(inner) if raised is None else inner.throw(raised)  # type: ignore[attr-defined]
            except StopIteration as stop:
                self._ended = True
                return stop.value
            except BaseException:
                self._ended = True
                raise
            self.sleeps += 1
            if self.sleeps == self._at:
                self._trip(pause)
            raised = None
            try:
                yield pause
            except BaseException as error:  # noqa: BLE001 (it belongs to the coroutine)
                raised = error

    def _trip(self, pause: asyncio.Future[Any] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._waking and pause is not None:
            pause.add_done_callback(lambda _: self._cancel(task))
        else:
            asyncio.get_running_loop().call_soon(self._cancel, task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        if not self._ended:
            self.tripped = True
            task.cancel()
