"""Packets between some clients and some nodes are lost, in one direction or in both (N3, N4).

Every client reaches the servers by an address of its own, so that a partition is one client's alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import pytest

from aioredlock_ng import LockManager, QuorumUnavailableError
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, PATIENCE, no_key_left, only_these_silent
from tests.faults.claims import check_claims
from tests.faults.contention import contention
from tests.faults.namespaces import Network, reached_at, replies, requests
from tests.faults.two_turns import Two, two_apart
from tests.servers import ask, eventually

BY_A, BY_B, _ = ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")

DIRECTIONS: Final = ("requests", "replies", "both")

MINORITY: Final = (1, 3)
MAJORITY: Final = (0, 2, 4)

TTL: Final = 1.5

NAMES: Final = ("one", "other")  # what the processes contend for


def cut(nodes: LocalNodes, address: str, which: Iterable[int], direction: str) -> list[str]:
    """Return the rules that keep a client with an address from some of the nodes."""
    ports = [nodes.ports[i] for i in which]
    rules = {
        "requests": f"ip daddr {address} {requests(ports)} counter drop",
        "replies": f"ip saddr {address} {replies(ports)} counter drop",
    }
    return list(rules.values()) if direction == "both" else [rules[direction]]


@contextlib.asynccontextmanager
async def held_by_a(nodes: LocalNodes) -> AsyncIterator[Two]:
    """Have A hold the lock and B wait for it, each at an address of its own."""
    urls = (reached_at(nodes, address) for address in (BY_A, BY_B))
    async with two_apart(*urls, nodes.urls, ttl=TTL) as two:
        yield two


async def fails_fast(manager: LockManager, which: Sequence[int]) -> None:
    """Try a free lock: no quorum is the answer, in time, and the reason is given per node."""
    began = time.monotonic()
    with pytest.raises(QuorumUnavailableError) as caught:
        await manager.lock("another", blocking_timeout=0.3).acquire()
    assert time.monotonic() - began <= 0.3 + 0.1 + ALLOWANCE

    only_these_silent(caught.value.votes, which)
    assert all("no answer" in caught.value.votes[i].reason for i in which)


@pytest.mark.parametrize("direction", ["requests", "replies"])
async def test_the_holder_is_cut_off_from_a_minority(
    direction: str, nodes: LocalNodes, network: Network
) -> None:
    """It goes on and takes other locks; the waiter is not let in, and has its turn in the end."""
    async with held_by_a(nodes) as two:
        network.have(*cut(nodes, BY_A, MINORITY, direction))

        await two.a.outlives(TTL)
        async with two.a.manager.lock("another", blocking_timeout=1.0):
            pass

        assert all(network.counted()), "packets were lost"
        assert not two.b.inside.is_set()
        network.heal()
        await two.recovered()


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_the_holder_is_cut_off_from_a_majority(
    direction: str, nodes: LocalNodes, network: Network
) -> None:
    """Its lock is lost before it ends, whatever still arrives; the waiter is let in, but not earlier."""
    async with held_by_a(nodes) as two:
        network.have(*cut(nodes, BY_A, MAJORITY, direction))

        await fails_fast(two.a.manager, MAJORITY)
        await two.a.over()
        assert two.a.lost is not None
        assert two.a.lost.reason == "expired"
        assert two.a.claim.end < two.a.lease.valid_until
        await two.b.begun()

        await fails_fast(two.a.manager, MAJORITY)
        network.heal()
        await two.recovered()


async def test_the_waiter_is_cut_off_from_a_majority(nodes: LocalNodes, network: Network) -> None:
    """The holder sees nothing of it; one that asks there hears so soon, and a waiter has its turn later."""
    async with held_by_a(nodes) as two:
        network.have(*cut(nodes, BY_B, MAJORITY, "both"))

        await fails_fast(two.b.manager, MAJORITY)
        await two.a.outlives(TTL / 3)
        await two.a.leaves()
        await fails_fast(two.b.manager, MAJORITY)

        assert not two.b.inside.is_set()
        network.heal()
        await two.recovered()


async def all_hold(urls: Sequence[str], *, number: int) -> None:
    """Wait until `number` processes have been seen to hold a lock that they did not hold before."""

    def owners() -> set[bytes]:
        return {owner for owner in ask(urls[0], "MGET", *(f"redlock:{name}" for name in NAMES)) if owner}

    before, seen = owners(), set[bytes]()

    def look() -> bool:
        seen.update(owner.rpartition(b":")[2] for owner in owners() - before)  # the number of its process
        return len(seen) == number

    await eventually(look, within=PATIENCE, what=f"{number} processes have had a lock")


async def test_partitions_that_come_and_go(nodes: LocalNodes, network: Network) -> None:
    """Three processes contend, each cut off from other nodes in other directions: never two are inside."""
    draw = random.Random()
    options = {"apart": [0.0], "names": NAMES, "inside": 0.05, "idle": 0.02, "ttl": 1.0}
    async with contextlib.AsyncExitStack() as stack:
        contenders = [
            await stack.enter_async_context(contention(reached_at(nodes, address), **options))
            for address in ADDRESSES
        ]
        for _ in range(6):
            rules = []
            for address in ADDRESSES:
                which = draw.sample(range(5), draw.choice((0, 1, 2, 2, 3)))
                rules += [rule for i in which for rule in cut(nodes, address, [i], draw.choice(DIRECTIONS))]
            network.have(*rules)
            await asyncio.sleep(draw.uniform(0.1, 0.8))
        network.heal()
        whole = time.monotonic()
        await all_hold(nodes.urls, number=len(ADDRESSES))
        for contender in contenders:
            contender.stop()
        for contender in contenders:
            await contender.ended(within=PATIENCE)

    print([contender.number for contender in contenders], [contender.counts for contender in contenders])
    for name in NAMES:
        check_claims(claim for contender in contenders for claim in contender.claims[name])
    for contender in contenders:
        assert any(claim.start > whole for claims in contender.claims.values() for claim in claims)
    await no_key_left(nodes.urls)
