"""`testing.lose`: what users see is a real loss, by whichever way it came."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioredlock_ng import Lock, LockLostError, LockManager, LossReason
from aioredlock_ng.events import Lost, Released
from aioredlock_ng.testing import MemoryNode, lose
from tests.behaviour.tools import Recorder
from tests.servers import Nodes
from tests.unit.tasks import sim, virtual
from tests.unit.worlds import world

REASONS = (LossReason.REFUSED, LossReason.EXPIRED)


def ended(recorder: Recorder) -> list[Any]:
    """Return the losses and releases that a hook has heard of."""
    return [event for event in recorder.events if isinstance(event, Lost | Released)]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("kind", ["mutex", "read", "write", "servers"])
async def test_a_loss_is_seen_everywhere(kind: str, reason: LossReason, shared_nodes: Nodes) -> None:
    """The block is cancelled, the lease and hooks know, the error says why, the key is free."""
    recorder, cleaned_up = Recorder(), []
    nodes: Any = shared_nodes.urls if kind == "servers" else [MemoryNode() for _ in range(3)]
    async with LockManager(nodes, hooks=[recorder]) as manager:
        lock: Lock = manager.lock("job", label="a job")
        if kind in ("read", "write"):
            lock = getattr(manager.rwlock("job", label="a job"), kind)()

        async def job() -> None:
            async with lock as lease:
                try:
                    lose(manager, "job", reason)
                    assert (lease.held, lease.remaining, lease.lost.is_set()) == (False, 0, True)
                    with pytest.raises(LockLostError):
                        lease.check()
                    await asyncio.Event().wait()
                finally:
                    cleaned_up.append(True)

        task = asyncio.create_task(job())
        await asyncio.wait((task,))
        error = task.exception()
        assert isinstance(error, LockLostError)
        assert (error.reason, error.names, task.cancelling(), cleaned_up) == (reason, ("job",), 0, [True])
        lost, released = ended(recorder)
        assert (lost.names, lost.label, lost.reason, released.names) == (("job",), "a job", reason, ("job",))
        assert manager.statistics().lost == 1
        assert not any(node.held for node in await manager.inspect("job"))


@virtual
async def test_all_readers_of_the_manager_lose_it() -> None:
    """Those of other processes keep it."""
    async with world() as here, here.process() as other:
        lock = here.manager.rwlock("job")
        readers = [await lock.read().acquire(), await lock.read().acquire()]
        kept = await other.rwlock("job").read().acquire()
        lose(here.manager, "job")
        assert [lease.held for lease in (*readers, kept)] == [False, False, True]
        for lease in (*readers, kept):
            await lease.release()


@virtual
async def test_a_waiter_gets_its_turn_after_the_block() -> None:
    """The next in line gets the lock when the loser has let it go, not before."""
    async with world() as here:
        order = []

        async def loser() -> None:
            async with here.manager.lock("job"):
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(1)
                    order.append("cleaned up")

        async def waiter() -> None:
            async with here.manager.lock("job"):
                order.append("next")

        tasks = [asyncio.create_task(loser()), asyncio.create_task(waiter())]
        await asyncio.sleep(0.5)
        lose(here.manager, "job")
        await asyncio.wait(tasks)

        assert order == ["cleaned up", "next"]
        assert isinstance(tasks[0].exception(), LockLostError)


@virtual
async def test_one_of_several_names_is_enough() -> None:
    """A lock over several names is lost as a whole, and no other lock with it."""
    async with world() as here, here.manager.lock("c") as kept:
        lease = await here.manager.lock("a", "b").acquire()
        lose(here.manager, "b")
        assert (lease.held, kept.held) == (False, True)
        await lease.release()


@virtual
async def test_what_is_not_held_cannot_be_lost() -> None:
    """The error names what is held, which is what a misspelt name needs."""
    async with world() as here:
        with pytest.raises(LookupError, match=r"^this manager does not hold 'job'; it holds nothing$"):
            lose(here.manager, "job")
        async with here.manager.lock("jobs"), here.manager.lock("a", "b"):
            with pytest.raises(
                LookupError, match=r"^this manager does not hold 'job'; it holds 'a', 'b', 'jobs'$"
            ):
                lose(here.manager, "job")
        async with here.process() as other, other.lock("job"):
            with pytest.raises(LookupError):
                lose(here.manager, "job")
        lease = await here.manager.lock("job").acquire()
        lose(here.manager, "job")
        with pytest.raises(LookupError):
            lose(here.manager, "job")  # once is enough
        await lease.release()
        assert here.manager.statistics().lost == 1
    with pytest.raises(LookupError):
        lose(LockManager(["redis://a"]), "job")


@virtual
async def test_what_is_lost_already_cannot_be_lost_again() -> None:
    """Neither in the grace after a real loss, nor when validity ended unnoticed."""
    async with world() as here:
        lease = await here.manager.lock("job").acquire()
        for node in here.nodes:
            node.freeze()
        await lease.lost.wait()
        assert lease.held  # the grace
        with pytest.raises(LookupError):
            lose(here.manager, "job")
        for node in here.nodes:
            node.thaw()
        await lease.release()

        unnoticed = await here.manager.lock("another").acquire()
        sim().advance(60)
        with pytest.raises(LookupError):
            lose(here.manager, "another")
        assert not unnoticed.lost.is_set()
        await unnoticed.release()


@pytest.mark.parametrize("reason", sorted(set(LossReason) - set(REASONS)))
@virtual
async def test_other_ends_are_no_losses_from_outside(reason: LossReason) -> None:
    """A reason that the holder brings about itself is refused, and nothing happens."""
    async with world() as here, here.manager.lock("job") as lease:
        with pytest.raises(ValueError, match="reason must be one of refused, expired, got .*" + reason):
            lose(here.manager, "job", reason)
        assert lease.held


def test_it_is_refused_in_another_loop() -> None:
    """A manager belongs to one loop, and so do its losses; in another thread there may be none."""
    with asyncio.Runner() as first, asyncio.Runner() as second:
        manager = LockManager([MemoryNode()])
        lease = first.run(manager.lock("job").acquire())

        async def lose_it() -> None:
            lose(manager, "job")

        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            second.run(lose_it())
        with pytest.raises(RuntimeError, match="no running event loop"):
            first.run(asyncio.to_thread(lose, manager, "job"))
        assert lease.held
        first.run(manager.aclose())
