"""One holder at a time: between processes, and with programs that are not ours."""

from __future__ import annotations

import contextlib

import pytest
import redis

from aioredlock_ng import ExtensionPolicy, LockManager, LockTakenError, Vote
from aioredlock_ng.testing._fresh import initialise
from tests.behaviour.tools import quiet
from tests.servers import Nodes, ask

OTHERS_TTL = 30.0
prefixes = pytest.mark.parametrize(("prefix", "key"), [("redlock:", "redlock:shared"), ("", "shared")])


@prefixes
@pytest.mark.parametrize("other", ["redis-py", "SET NX"])
async def test_another_program_excludes_us(shared_nodes: Nodes, prefix: str, key: str, other: str) -> None:
    """A lock that another program holds on a majority is taken for us, and on a minority it is not."""
    initialise(shared_nodes.urls, prefix)
    clients = [redis.Redis.from_url(url) for url in shared_nodes.urls]
    theirs = [client.lock(key, timeout=OTHERS_TTL) for client in clients]

    def acquire(i: int) -> None:
        if other == "redis-py":
            assert theirs[i].acquire(blocking=False)
        else:
            assert clients[i].set(key, "theirs", nx=True, px=int(OTHERS_TTL * 1000))

    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.enter_context(client)
        async with quiet(), LockManager(shared_nodes.urls, prefix=prefix) as manager:
            lock = manager.lock("shared", blocking_timeout=0)
            acquire(0)
            acquire(1)
            async with lock as lease:
                assert sum(vote.vote is Vote.REFUSED for vote in lease.votes) <= 2
            acquire(2)
            with pytest.raises(LockTakenError) as taken:
                await lock.acquire()
            assert taken.value.retry_after == pytest.approx(OTHERS_TTL, abs=5.0)
            # Neither the failure nor our release before it touched what is theirs.
            values = [client.get(key) for client in clients]
            assert [value is not None for value in values] == [True, True, True, False, False]
            assert other != "redis-py" or all(lock.owned() for lock in theirs[:3])
            clients[1].delete(key)
            async with lock:
                pass


@prefixes
async def test_we_exclude_another_program(shared_nodes: Nodes, prefix: str, key: str) -> None:
    """While we hold a lock another program cannot take it on any node; afterwards it can on all of them."""

    def granted() -> int:
        count = 0
        for url in shared_nodes.urls:
            with redis.Redis.from_url(url) as client:
                lock = client.lock(key, timeout=OTHERS_TTL)
                if lock.acquire(blocking=False):
                    lock.release()
                    count += 1
            if ask(url, "SET", key, "theirs", "NX", "PX", 5000):
                count += ask(url, "DEL", key)
        return count

    initialise(shared_nodes.urls, prefix)
    async with quiet(), LockManager(shared_nodes.urls, prefix=prefix) as manager:
        async with manager.lock("shared", extension=ExtensionPolicy.off()):
            assert granted() == 0
        assert granted() == 2 * len(shared_nodes.urls)
