"""Replies that come in other pieces than they were sent in, and one that does not come (N12, N13)."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from aioredlock_ng import ExtensionPolicy, LockManager, LockTakenError, QuorumUnavailableError, Vote
from tests.behaviour.tools import PATIENCE, all_up, no_key_left
from tests.faults.chaos_proxy import ChaosProxy
from tests.faults.two_turns import two_apart, two_managers
from tests.servers import Nodes, eventually

TTL: Final = 3.0
LONG: Final = 60.0  # seconds of a ttl that no test waits for: a key that is gone was released

MAJORITY: Final = (0, 2, 4)

MERGED: Final = 100  # fewer tries than may be in flight at once


# -- split and merged ------------------------------------------------------------------------------


def any_size() -> int:
    """Draw the size of a piece."""
    return random.randint(1, 400)


@pytest.mark.parametrize("size", [lambda: 1, any_size], ids=["byte by byte", "anywhere"])
async def test_requests_and_replies_may_be_split(
    size: Callable[[], int], proxies: list[ChaosProxy], shared_nodes: Nodes
) -> None:
    """Of everything, the login and the scripts included; holder and waiter notice nothing."""
    ways = [way for proxy in proxies for way in proxy.ways]
    for way in ways:
        way.piece = any_size
    urls, direct = [proxy.url for proxy in proxies], shared_nodes.urls
    often = ExtensionPolicy(every=0.01)
    async with two_apart(urls, urls, direct, ttl=LONG, node_timeout=20.0, extension=often) as two:
        for way in ways:
            way.piece, way.passed, way.pieces = size, 0, 0
        async with two.a.manager.lock("one", "two", blocking_timeout=PATIENCE):
            pass
        await two.a.outlives(LONG / 200)  # by an extension

        assert not two.b.inside.is_set()
        await two.recovered()
        for turn in (two.a, two.b):
            assert [node.mismatched for node in turn.manager.statistics().nodes] == [0] * 5
        assert all(way.pieces == way.passed for way in ways) or size is any_size


@pytest.mark.full
@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
async def test_replies_may_be_merged(fencing: bool, proxies: list[ChaosProxy], shared_nodes: Nodes) -> None:
    """A hundred of them in one piece; each reaches the caller that asked, be it granted or refused.

    No two locks have one ttl, so that each is asked for by a script of its own.
    """
    options = {"ttl": LONG, "node_timeout": 5.0, "fencing": fencing}
    async with two_managers([proxy.url for proxy in proxies], shared_nodes.urls, **options) as (a, b):
        held = [await b.lock(f"{number}").acquire() for number in range(0, MERGED, 2)]
        for proxy in proxies:
            proxy.replies.stall()
        trying = [
            asyncio.create_task(a.lock(f"{n}", ttl=LONG - n / 10, blocking=False).acquire())
            for n in range(MERGED)
        ]
        await eventually(
            lambda: all(node.in_flight >= MERGED for node in a.statistics().nodes), what="all are asked"
        )
        for proxy in proxies:
            proxy.replies.flow()

        outcomes = await asyncio.gather(*trying, return_exceptions=True)

        assert all(isinstance(outcome, LockTakenError) for outcome in outcomes[::2])
        for lease in outcomes[1::2]:
            lease.check()
            assert [vote.vote for vote in lease.votes].count(Vote.REFUSED) == 0
        for lease in [*held, *outcomes[1::2]]:
            await lease.release()
    await no_key_left(shared_nodes.urls)


# -- one reply is missing --------------------------------------------------------------------------


_FENCED: Final = re.compile(rb"\*\d+\r\n\$3\r\n\d{3}\r\n:\d{16}\r\n(:-?\d+\r\n)+")


def is_answer_to_acquire(reply: bytes) -> bool:
    """Whether it is: with fences a tag, the time and a number for each lock, else OK."""
    return _FENCED.fullmatch(reply) is not None or reply == b"+OK\r\n"


def mismatched(manager: LockManager) -> list[int]:
    """Return how many connections to each node were dropped, since replies were not those expected."""
    return [node.mismatched for node in manager.statistics().nodes]


@pytest.mark.parametrize("which", [(1,), MAJORITY, (0, 1, 2, 3, 4)], ids=["one", "majority", "all"])
@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
async def test_a_missing_reply_counts_for_nothing(
    fencing: bool, which: Sequence[int], proxies: list[ChaosProxy], shared_nodes: Nodes
) -> None:
    """The next reply does not belong to the request: the connection is dropped, the vote unknown.

    One missing vote keeps no client from the lock; three do, and then nothing of it is left.  Waiters are let
    in as after any other release or failure, long before the ttl has passed.
    """
    options = {"ttl": LONG, "node_timeout": 0.5, "fencing": fencing}
    urls = shared_nodes.urls
    async with two_managers([proxy.url for proxy in proxies], urls, **options) as (a, b):
        for i in which:
            proxies[i].replies.drop(is_answer_to_acquire)

        if len(which) == 1:
            lease = await a.lock("asked", blocking=False).acquire()
            assert await b.lock("asked").try_acquire() is None
            await eventually(lambda: any(mismatched(a)), what="it is noticed")
            lease.check()
            await lease.release()
        else:
            with pytest.raises(QuorumUnavailableError) as caught:
                await a.lock("asked", blocking=False).acquire()
            assert [vote.vote for vote in caught.value.votes].count(Vote.SILENT) >= 3

        await eventually(lambda: mismatched(a) == [int(i in which) for i in range(5)], what="all are dropped")
        assert all(len(proxies[i].replies.dropped) == 1 for i in which)
        async with b.lock("asked", blocking_timeout=PATIENCE):
            pass
        await all_up(a)
        async with a.lock("asked", blocking=False):
            pass
    await no_key_left(urls)
