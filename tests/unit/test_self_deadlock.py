"""A task that would wait for its own release is told so at once, however many names it asks for (R13)."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import Lease, WouldDeadlockError
from tests.unit.worlds import sim, virtual, world

NAMES = ("a", "b", "c")


@pytest.mark.parametrize("others", [False, True], ids=["the rest is free", "the rest is held by others"])
@pytest.mark.parametrize("patience", [None, 5.0])
@pytest.mark.parametrize("own", NAMES)
def test_any_name_of_several_that_the_task_holds(own, patience, others):
    """Whichever of the names is the task's own: the error comes at once, and no gate is left shut."""

    @virtual
    async def main() -> None:
        async with world() as w:
            strangers: list[Lease] = []
            if others:
                strangers += [await w.manager.lock(name).acquire() for name in NAMES if name != own]
            async with w.manager.lock(own) as lease:
                asked = [len(node.executed) for node in w.nodes]
                began = sim().time()
                with pytest.raises(WouldDeadlockError, match=f"'{own}'") as caught:
                    await w.manager.lock(*NAMES, blocking_timeout=patience).acquire()
                assert sim().time() == began
                assert caught.value.names == NAMES
                assert [len(node.executed) for node in w.nodes] == asked, "no node is asked"
                lease.check()
            for stranger in strangers:
                await stranger.release()
            async with w.manager.lock(*NAMES, blocking_timeout=1):
                pass

    main()


@virtual
async def test_two_tasks_that_want_what_the_other_has():
    """One asks for both names and is told at once; so the other one gets its lock in the end."""
    async with world() as w:
        told: list[float] = []

        async def one() -> None:
            async with w.manager.lock("b"):
                await asyncio.sleep(0.1)
                began = sim().time()
                with pytest.raises(WouldDeadlockError):
                    await w.manager.lock("a", "b").acquire()
                told.append(sim().time() - began)

        async def other() -> float:
            async with w.manager.lock("a"):
                await asyncio.sleep(0.1)
                async with w.manager.lock("b"):
                    return sim().time()

        began = sim().time()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(one())
            ended = tasks.create_task(other())
        assert told == [0.0]
        assert ended.result() - began < 1
