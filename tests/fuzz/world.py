"""A few processes over nodes in memory, on virtual time, driven one step at a time."""

from __future__ import annotations

import asyncio
import random
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aioredlock_ng import ExtensionPolicy, LockError, LockManager, NodeState
from aioredlock_ng._settings.options import OnLost
from aioredlock_ng.testing import MemoryNode, SimLoop
from tests.fuzz.model import Call, Grant, Model, Process, check_error
from tests.unit.traces import PREFIX, locks

T = TypeVar("T")

TTL: Final = 2.0
LONGEST: Final = 5.0  # seconds: no lock is asked for longer


class BodyError(Exception):
    """What a body raises of its own."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What one run is like."""

    size: int
    fenced: bool
    quarantine: float
    extends: bool
    on_lost: OnLost
    latency: float


class World:
    """Nodes, processes, and the calls under way; every method leaves the loop standing."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.loop = SimLoop()
        self.stray: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.stray.append(context))
        self.nodes = [MemoryNode(f"node-{i}", latency=shape.latency) for i in range(shape.size)]
        self.model = Model(self.nodes, shape.fenced)
        self.calls: list[Call] = []  # calls whose task has not ended
        self.processes: list[Process] = []
        self.seeds = iter(range(1, 10_000))
        for _ in range(2):
            self.open()
        self.pass_time(3.0)  # until the nodes' clocks have caught up with their floors (R12)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Let the loop run until this has ended."""
        return self.loop.run_until_complete(main)

    def ends_in(self, main: Coroutine[Any, Any, object]) -> LockError | None:
        """Let the loop run until this has ended; return the lock's error that it raised."""
        try:
            self.run(main)
        except LockError as error:
            return error
        return None

    def inside(self, function: Callable[[], T]) -> T:
        """Call a function inside the loop, where the nodes know the time."""

        async def main() -> T:
            return function()

        return self.run(main())

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and note which calls have ended."""
        self.run(asyncio.sleep(seconds))
        self.reap()

    def open(self) -> Process:
        """Start one more process."""
        process = Process(self.run(self._open()))
        self.processes.append(process)
        return process

    async def _open(self) -> LockManager:
        shape = self.shape
        manager = LockManager(
            self.nodes,
            ttl=TTL,
            fencing=shape.fenced,
            restart_quarantine=shape.quarantine,
            extension=ExtensionPolicy() if shape.extends else ExtensionPolicy.off(),
            on_lost=shape.on_lost,
            clock=self.loop.clock,
            random=random.Random(next(self.seeds)),
        )
        await manager.start()
        if shape.quarantine and not self.processes:
            await manager.init()
        return manager

    # -- calls ---------------------------------------------------------------------------------

    def call(self, process: Process, names: tuple[str, ...], ttl: float, *, how: str, body: bool) -> Call:
        """Have a task of `process` acquire, and keep the lease or run a body under it."""
        ordered = tuple(sorted(set(names)))
        call = Call(process, ordered, ttl)
        call.orders = self.loop.create_future() if body else None
        process.waits += 1
        call.task = self.loop.create_task(self._call(call, how))
        self.calls.append(call)
        return call

    async def _call(self, call: Call, how: str) -> None:
        """Acquire, and stay inside until the order to end."""
        patience = {"wait": 4.0, "once": 0.0, "try": None, "ever": None}[how]
        waiting = True
        try:
            lock = call.process.manager.lock(*call.names, ttl=call.ttl, blocking_timeout=patience)
            if how == "try":
                if (lease := await lock.try_acquire()) is not None:
                    self.model.grant(call, lease)
            elif call.orders is None:
                self.model.grant(call, await lock.acquire())
            else:
                async with lock as lease:
                    self.model.grant(call, lease)
                    call.process.waits, waiting = call.process.waits - 1, False
                    if await call.orders == "raise":
                        raise BodyError
        finally:
            call.process.waits -= waiting
            if call.orders is not None and call.grant is not None:
                self.model.forget(call.grant)

    def reap(self) -> None:
        """Check how calls have ended."""
        for call in [call for call in self.calls if call.task is not None and call.task.done()]:
            self.calls.remove(call)
            assert call.task is not None
            if call.task.cancelled():
                assert call.cancelled, f"{call} was cancelled without a cause"
                continue
            error = call.task.exception()
            if isinstance(error, BodyError):
                assert call.orders is not None
                assert call.orders.result() == "raise"
            elif isinstance(error, AssertionError):
                raise error
            elif error is not None:
                check_error(error, call.names)

    @property
    def leases(self) -> list[Grant]:
        """Those that are released by hand."""
        return [grant for grant in self.model.grants if grant.call.orders is None]

    @property
    def keys(self) -> set[bytes]:
        """The keys of locks on any node."""
        return self.inside(lambda: {key for node in self.nodes for key in locks(node)})

    def free(self, process: Process, names: tuple[str, ...]) -> bool:
        """Whether nothing is in the way of `process` and these names: then a try must win."""
        return (
            self.keys.isdisjoint(PREFIX + name.encode() for name in names)
            and not any(set(names).intersection(call.names) for call in self.calls)
            and not any(set(names).intersection(grant.lease.names) for grant in self.model.grants)
            and all(node.state is NodeState.UP for node in process.manager.statistics().nodes)
        )

    # -- the end -------------------------------------------------------------------------------

    def end(self) -> None:
        """Close everything; no task and, after a ttl, no key may be left."""
        for call in self.calls:
            assert call.task is not None
            call.cancelled = True
            call.task.cancel()
        self.pass_time(0)
        for process in self.processes:
            self.run(process.manager.aclose())
        self.pass_time(0.2)
        assert not self.calls, self.calls
        assert not self.keys, "a manager that closes in peace leaves no key"
        left = asyncio.all_tasks(self.loop)
        assert not left, left
        assert not self.stray, self.stray

    def close(self) -> None:
        """Close the loop, whatever has happened."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.run(asyncio.sleep(0))
            self.loop.close()
