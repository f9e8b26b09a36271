"""Nodes whose ``maxmemory-policy`` lets them delete locks that are held (A2).

It is said at connect and by a diagnosis.  A minority that evicts costs nothing; where a majority does, the
lock is lost: its holder learns of it at its next extension, and until then the fence protects the data.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from redis.exceptions import OutOfMemoryError

from aioredlock_ng import ExtensionPolicy, RetryPolicy
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import no_key_left
from tests.faults.accounts import GUARDED, filled
from tests.faults.claims import OF_FENCES, check_claims
from tests.faults.two_turns import KEY, two_turns
from tests.servers import ask

POLICIES: Final = (
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
)

TTL: Final = 1.0  # seconds; the restart quarantine, too

EAGER: Final = RetryPolicy(base=0.01, cap=0.05)  # so that B is inside as early as it can

SELDOM: Final = ExtensionPolicy(every=0.7)  # so that A learns of it late

BATCHES: Final = 400  # at most; a lock is deleted long before

# A cache that is written and read without end; its keys have no ttl.
FILLER: Final = """
local value = string.rep('x', 1000)
for i = 1, 100 do
  local key = 'filler:' .. ARGV[1] .. ':' .. i
  redis.call('SET', key, value)
  redis.call('GET', key)
end
"""

# The `lfu-log-factor` by which a lock that is looked at often does not outlive the cache.
COUNTED_ONCE: Final = 1_000_000


@pytest.fixture(params=POLICIES)
def nodes(request: pytest.FixtureRequest, make_nodes: Callable[..., LocalNodes]) -> LocalNodes:
    """Give three servers with each policy in turn; none of them is full."""
    return make_nodes(3, options={"maxmemory-policy": request.param, "lfu-log-factor": COUNTED_ONCE})


async def evict(url: str) -> None:
    """Fill a server until it has deleted A's key."""
    key = ask(url, "GET", KEY)
    ask(url, "CONFIG SET", "maxmemory", "2mb")
    for number in range(BATCHES):
        with contextlib.suppress(OutOfMemoryError):  # when nothing with a ttl is left to be deleted
            await asyncio.to_thread(ask, url, "EVAL", FILLER, 0, number)
        if ask(url, "GET", KEY) != key:
            return
    pytest.fail(f"the lock was not deleted: {ask(url, 'INFO', 'memory')}")


def make_room(url: str) -> None:
    """End the cache on a server."""
    ask(url, "CONFIG SET", "maxmemory", 0)
    ask(url, "UNLINK", "filler", *ask(url, "KEYS", "filler:*"))


async def test_a_majority_that_evicts(nodes: LocalNodes, tmp_path: Path) -> None:
    """B may be inside before A learns of it, but not with a smaller fence: what A writes then is refused."""
    path = str(tmp_path / "bank.sqlite")
    account = GUARDED["sqlite"](path)
    with filled("sqlite", path):
        options = {"ttl": TTL, "restart_quarantine": TTL, "retry": EAGER, "extension": SELDOM}
        async with two_turns(nodes.urls, **options) as two:
            assert await account.write(101, two.a.lease.fence)
            by_a = ask(nodes.urls[0], "GET", KEY)
            while not two.a.task.done():  # a node may be given its key again before the other one evicts
                for url in nodes.urls[:2]:
                    if ask(url, "GET", KEY) == by_a:
                        await evict(url)
                for url in nodes.urls[:2]:
                    make_room(url)
                await asyncio.wait((two.a.task,), timeout=TTL / 10)
            assert two.a.lost is not None
            await two.b.begun()
            assert await account.write(102, two.b.lease.fence)
            assert not await account.write(103, two.a.lease.fence)
            await two.all_up()
            await two.b.leaves()
            await no_key_left(nodes.urls)

    check_claims([two.a.claim, two.b.claim], rules=OF_FENCES)
    print(f"{two.a.lost.reason}; together for {two.a.claim.end - two.b.claim.start:.3f} s")
