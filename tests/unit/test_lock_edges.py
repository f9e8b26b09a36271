"""`Lock.locked`, names of two kinds, and objects that cannot be copied."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

from aioredlock_ng import ConfigurationError, QuorumUnavailableError, Vote
from aioredlock_ng.sync import SyncLockManager
from tests.unit.worlds import world


async def test_a_lock_says_whether_it_is_taken() -> None:
    """By a majority, whichever client has it; a name is what is locked."""
    async with world() as w, w.process() as other:
        lock = w.manager.lock("b", "a")
        assert (lock.name, lock.names) == ("a", ("a", "b"))
        assert not await lock.locked()
        async with other.lock("a"):
            assert await lock.locked()
            assert not await w.manager.lock("b").locked()
        assert not await lock.locked()
        async with lock:
            assert await lock.locked()
        semaphore = w.manager.semaphore("s", permits=2)
        async with other.semaphore("s", permits=2):
            assert not await semaphore.locked()
            async with semaphore:
                assert await semaphore.locked()
        async with other.rwlock("r").read():
            assert await w.manager.rwlock("r").write().locked()
        w.nodes[0].crash()
        w.nodes[1].crash()
        with pytest.raises(QuorumUnavailableError, match="too few nodes answered to tell") as caught:
            await lock.locked()
        assert [vote.vote is Vote.SILENT for vote in caught.value.votes] == [True, True, False]


async def test_one_process_has_a_name_as_one_kind() -> None:
    """As between processes: a mutex and a semaphore of one name are a mistake, not a wait."""
    async with world() as w:
        m = w.manager
        pairs = (
            (m.lock("x"), m.semaphore("x", permits=2)),
            (m.semaphore("x", permits=2), m.lock("x")),
            (m.semaphore("x", permits=1), m.rwlock("x").read()),
            (m.election("x").campaign(), m.semaphore("x", permits=1)),
        )
        for first, second in pairs:
            async with first:
                for ask in (second.acquire, second.try_acquire):
                    with pytest.raises(
                        ConfigurationError, match=r"'x' is requested as a .* this process already uses"
                    ):
                        await asyncio.create_task(ask())
            async with second:
                pass
        async with m.lock("x"):  # kinds that exclude each other may share a name
            assert await asyncio.create_task(m.rwlock("x").read().try_acquire()) is None


async def test_nothing_that_rests_on_connections_is_copied() -> None:
    """A worker process that is handed one gets an error: it has to make its own."""
    async with world() as w:
        m = w.manager
        sync = SyncLockManager(["redis://127.0.0.1:1"])
        election, threads = m.election("e"), sync.election("e")
        made = [m, m.lock("x"), m.rwlock("x"), m.rwlock("x").read(), m.semaphore("x", permits=1), election]
        made += [election.campaign(), await election.campaign(), sync, sync.lock("x"), sync.rwlock("x")]
        made += [threads, threads.campaign()]
        for each in made:
            for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=f"a {type(each).__name__} depends on the connections"):
                    duplicate(each)
