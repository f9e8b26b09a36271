"""One fault stays one fault (R44): whatever another library raises, no manager ends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest
import redis.asyncio
import uvloop

from aioredlock_ng import LockError, LockManager
from aioredlock_ng.testing import MemoryNode, SimLoop
from tests.faults.injection import InjectedError, Injection, Place

# What an injected error keeps from being closed or awaited warns when it is collected.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

CHUNKS = 12
TTL = 0.5
ENDS = (LockError, InjectedError)
"""The errors of a call that an injected error struck; a cancellation it shows as its caller's own."""


class Program:
    """Two processes hold the same lock in turn, and one of them leads; connections are lost meanwhile."""

    def __init__(self, managers: Sequence[LockManager], disturb: Callable[[], Awaitable[None]]) -> None:
        self.managers, self.disturb = managers, disturb
        self.inside = 0

    async def hold(self, manager: LockManager) -> None:
        """Hold the lock for longer than its ttl."""
        while True:
            with contextlib.suppress(*ENDS):
                async with manager.lock("a", ttl=TTL) as lease:
                    assert not self.inside, "two holders"
                    self.inside += 1
                    try:
                        await asyncio.sleep(1.5 * TTL)
                        lease.check()
                        return
                    finally:
                        self.inside -= 1
            await asyncio.sleep(0.01)

    async def lead(self, manager: LockManager) -> None:
        """Lead until the same process has observed that."""
        election = manager.election("e", ttl=TTL)
        with contextlib.suppress(*ENDS):
            async with election.campaign():
                async for leader in election.observe():
                    if leader is not None:
                        return

    async def run(self) -> None:
        """Do all of it; then each manager must still give a lock."""
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for manager in self.managers:
                group.create_task(self.hold(manager))
            group.create_task(self.lead(self.managers[0]))
            await asyncio.sleep(0.3)
            await self.disturb()
        for manager in self.managers:
            async with asyncio.timeout(30):
                while True:
                    with contextlib.suppress(*ENDS):
                        async with manager.lock("after", ttl=TTL):
                            break
                    await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Close the managers, in spite of an error: no task of theirs may be left."""
        for manager in self.managers:
            with contextlib.suppress(InjectedError):
                await manager.aclose()
            await manager.aclose()
        assert not [task for task in asyncio.all_tasks() if "aioredlock_ng" in task.get_name()]


async def run(program: Program, injection: Injection) -> None:
    """Run it with an injection; what only the loop's handler hears of is contained."""
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    with injection.active():
        await program.run()
        await program.close()


def in_memory(injection: Injection) -> None:
    """Run the program on virtual time, over masters in memory."""

    async def main() -> None:
        clock = SimLoop.running().clock
        nodes = [MemoryNode(latency=0.001) for _ in range(3)]

        async def disturb() -> None:
            nodes[0].disconnect()

        managers = [LockManager(nodes, clock=clock, random=random.Random(seed)) for seed in (1, 2)]
        await run(Program(managers, disturb), injection)

    SimLoop.run(main())
    gc.collect()


def over_servers(injection: Injection, urls: Sequence[str], *, loop: str, by: str) -> None:
    """Run the program over real servers, whose connections one of them closes meanwhile."""

    async def main() -> None:
        async def disturb() -> None:
            async with redis.asyncio.Redis.from_url(urls[0]) as server:
                await server.client_kill_filter(_type="normal", skipme=True)

        clients = [redis.asyncio.Redis.from_url(url) for url in urls] if by == "client" else []
        managers = [LockManager(clients or urls) for _ in range(2)]
        await run(Program(managers, disturb), injection)
        for client in clients:
            await client.aclose()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        runner.run(main())
    gc.collect()


def injections(record: Callable[[Injection], None], chunk: int) -> Iterator[Injection]:
    """Record the places that a program passes; yield what raises each error at each place of a chunk."""
    recorded = Injection()
    record(recorded)
    passed: list[tuple[Place, int]] = sorted(recorded.passed.items())
    assert len(passed) > 40, "it passes through all of the package"
    for place, times in passed[chunk::CHUNKS]:
        for nth in {1, (times + 1) // 2}:
            yield from (Injection(place, nth, error) for error in (InjectedError, asyncio.CancelledError))


@pytest.mark.parametrize(
    "chunk", [0, *(pytest.param(chunk, marks=pytest.mark.campaign) for chunk in range(1, CHUNKS))]
)
def test_no_manager_ends(chunk):
    """On virtual time: whatever is raised where, each manager gives locks again, to one holder at a time."""
    for injection in injections(in_memory, chunk):
        in_memory(injection)


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize(("loop", "by"), [("asyncio", "client"), ("uvloop", "url")])
def test_no_manager_over_servers_ends(loop, by, chunk, shared_nodes):
    """The same over real servers, on both event loops."""
    program = functools.partial(over_servers, urls=shared_nodes.urls, loop=loop, by=by)
    for injection in injections(program, chunk):
        program(injection)
