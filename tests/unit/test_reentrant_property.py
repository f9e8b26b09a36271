"""Any trees of tasks that go into a reentrant lock and come out of it (R27)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioredlock_ng import Lease, ReleaseOutcome
from tests.unit.tasks import virtual
from tests.unit.traces import PREFIX
from tests.unit.worlds import World, world

KEY = PREFIX + b"a"

OVER = {ReleaseOutcome.RELEASED, ReleaseOutcome.HANDED_OFF}
"""What the nodes, or the process, say to the last release."""


@dataclass(frozen=True)
class Step:
    """What code does that a task runs inside of the lock."""

    kind: str
    inner: tuple[Step, ...] = ()
    """What the code does that it runs itself, or in a task of its own."""
    number: int = 0


def programs_over(inner: st.SearchStrategy[tuple[Step, ...]]) -> st.SearchStrategy[tuple[Step, ...]]:
    """Return programs whose parts are drawn from `inner`."""
    step = st.one_of(
        st.just(Step("wait")),
        st.builds(Step, st.sampled_from(["go in", "go in and fail", "go in by two stacks", "start"]), inner),
        st.builds(Step, st.sampled_from(["keep", "release"]), number=st.integers(0, 5)),
    )
    return st.lists(step, max_size=4).map(tuple)


PROGRAMS = st.recursive(st.just(()), programs_over, max_leaves=12)


@dataclass
class Trees:
    """Tasks that go in and come out, and what is known of each."""

    w: World
    leases: Counter[object] = field(default_factory=Counter)
    """How many each task has, those that were not released."""
    kept: list[tuple[object, Lease]] = field(default_factory=list)
    """Leases that no block will release."""
    started: list[asyncio.Task[None]] = field(default_factory=list)
    most: int = 0

    def __post_init__(self) -> None:
        """Make the lock."""
        self.lock = self.w.manager.lock("a", reentrant=True)

    def counted(self, change: int, owner: object) -> None:
        """Count a lease of a task, and see that it alone is inside, and that the nodes know it."""
        self.leases[owner] += change
        assert self.leases[owner] >= 0
        self.look()

    def look(self) -> None:
        """At most one task has leases; as long as it has, the nodes have the lock."""
        inside = [task for task, number in self.leases.items() if number]
        self.most = max(self.most, len(inside))
        assert len(inside) <= 1
        if inside:
            assert self.w.keys == [(KEY,)] * 3

    async def start(self, program: tuple[Step, ...]) -> None:
        """Go in, in a task of its own."""
        await self.go_in(program, self.run)

    async def go_in(
        self, program: tuple[Step, ...], run: Callable[[tuple[Step, ...]], Awaitable[None]]
    ) -> None:
        """Go in, run a program, and come out: by a release, and then by the end of the block."""
        me = asyncio.current_task()
        async with self.lock as lease:
            self.counted(1, me)
            try:
                await run(program)
            finally:
                await self.release(me, lease)

    async def run(self, program: tuple[Step, ...]) -> None:
        """Do one step after the other."""
        for step in program:
            await self.do(step)
            self.look()

    async def fail(self, program: tuple[Step, ...]) -> None:
        """Do so, and end in an error."""
        await self.run(program)
        raise ZeroDivisionError

    async def do(self, step: Step) -> None:
        """Do one step."""
        me = asyncio.current_task()
        match step.kind:
            case "wait":
                await asyncio.sleep(0.01)
            case "go in":
                await self.go_in(step.inner, self.run)
            case "go in and fail":
                try:
                    await self.go_in(step.inner, self.fail)
                except ZeroDivisionError:
                    return
                raise AssertionError("an error of the block's own is the caller's")
            case "go in by two stacks":
                await self.go_in_by_two_stacks(step.inner)
            case "start":
                self.started.append(asyncio.create_task(self.start(step.inner)))
            case "keep":
                lease = await self.lock.acquire()
                self.counted(1, me)
                self.kept.append((me, lease))
            case "release" if self.kept:
                await self.release(*self.kept.pop(step.number % len(self.kept)))

    async def go_in_by_two_stacks(self, program: tuple[Step, ...]) -> None:
        """Go in twice; the block that was entered first ends first, and the program runs in the other."""
        me = asyncio.current_task()
        async with AsyncExitStack() as later:
            async with AsyncExitStack() as sooner:
                first = await sooner.enter_async_context(self.lock)
                self.counted(1, me)
                second = await later.enter_async_context(self.w.manager.lock("a", reentrant=True))
                self.counted(1, me)
                await self.release(me, first)
            await self.run(program)
            await self.release(me, second)

    async def release(self, owner: object, lease: Lease) -> None:
        """Release one lease, which is the last one of its task or not."""
        last = self.leases[owner] == 1
        self.leases[owner] -= 1
        found = {node.outcome for node in (await lease.release()).nodes}
        assert found <= OVER if last else found == {ReleaseOutcome.STILL_HELD}

    async def tidy(self) -> None:
        """Release, now and then, what was kept: tasks wait for it."""
        while True:
            await asyncio.sleep(0.5)
            while self.kept:
                await self.release(*self.kept.pop())

    async def grow(self, programs: list[tuple[Step, ...]]) -> None:
        """Run the programs beside each other, each in a task, and wait for all that they start."""
        tidy = asyncio.create_task(self.tidy())
        self.started += [asyncio.create_task(self.start(program)) for program in programs]
        async with asyncio.timeout(600):
            while any(not task.done() for task in self.started) or self.kept:
                await asyncio.sleep(0.1)
        for task in self.started:
            task.result()
        tidy.cancel()
        await asyncio.gather(tidy, return_exceptions=True)


@pytest.mark.heavy
@settings(max_examples=150)
@given(st.lists(PROGRAMS, min_size=1, max_size=3))
@virtual
async def test_at_most_one_task_is_inside_and_its_last_release_frees_the_nodes(programs):
    """Whatever tasks go in and out, fail, keep leases, start others, or end blocks in another order."""
    async with world() as w:
        trees = Trees(w)
        await trees.grow(programs)
        await asyncio.sleep(0.1)
        assert trees.most == 1
        assert not any(trees.leases.values())
        assert w.keys == [()] * 3
        assert w.manager.statistics().held == 0
        assert not w.manager._life.session.queue.entries
