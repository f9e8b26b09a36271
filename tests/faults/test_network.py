"""Packets that are lost between one client and some nodes, by rules of the kernel (N1 to N5, N9)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import pytest

from aioredlock_ng import LockManager, QuorumUnavailableError
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, only_these_silent
from tests.faults.namespaces import Network, reached_at, replies, requests
from tests.faults.two_turns import two_apart

BY_A, BY_B = "127.0.0.2", "127.0.0.3"

MINORITY: Final = (1, 3)
MAJORITY: Final = (0, 2, 4)

TTL: Final = 1.5

FATES: Final = {
    "requests lost": ["ip daddr {client} {to} counter drop"],
    "replies lost": ["ip saddr {client} {back} counter drop"],
    "both lost": ["ip daddr {client} {to} counter drop", "ip saddr {client} {back} counter drop"],
    "refused": ["ip daddr {client} {to} counter reject with tcp reset"],
    "one in five lost": ["ip daddr {client} {to} numgen random mod 5 == 0 counter drop"],
}
"""The rules of each fault, for packets of one client."""


def strike(network: Network, fate: str, nodes: LocalNodes, client: str, which: Sequence[int]) -> None:
    """Let a fault begin between a client and some of the nodes."""
    ports = [nodes.ports[i] for i in which]
    network.have(
        *(rule.format(client=client, to=requests(ports), back=replies(ports)) for rule in FATES[fate])
    )


async def fails_fast(manager: LockManager, which: Sequence[int]) -> None:
    """Try a free lock: there is no quorum, which is known in time, and each node has its reason."""
    began = time.monotonic()
    with pytest.raises(QuorumUnavailableError) as caught:
        await manager.lock("another", blocking_timeout=0.3).acquire()
    assert time.monotonic() - began <= 0.3 + 0.1 + ALLOWANCE
    only_these_silent(caught.value.votes, which)


@pytest.mark.parametrize("fate", FATES)
async def test_the_holder_is_cut_off_from_a_minority(fate: str, nodes: LocalNodes, network: Network) -> None:
    """It is extended and takes other locks; the waiter is not let in, and has its turn in the end."""
    async with two_apart(reached_at(nodes, BY_A), reached_at(nodes, BY_B), nodes.urls, ttl=TTL) as two:
        strike(network, fate, nodes, BY_A, MINORITY)

        await two.a.outlives(TTL)
        async with two.a.manager.lock("another", blocking_timeout=1.0):
            pass

        assert any(network.counted()), "packets were lost"
        assert not two.b.inside.is_set()
        network.heal()
        await two.recovered()


@pytest.mark.parametrize("fate", ["requests lost", "replies lost", "both lost", "refused"])
async def test_the_holder_is_cut_off_from_a_majority(fate: str, nodes: LocalNodes, network: Network) -> None:
    """Its lock is lost before it ends, whatever still arrives; the waiter is let in, but not earlier.

    What it asks for meanwhile fails in time, and leaves no key, though nodes may have granted it.
    """
    async with two_apart(reached_at(nodes, BY_A), reached_at(nodes, BY_B), nodes.urls, ttl=TTL) as two:
        strike(network, fate, nodes, BY_A, MAJORITY)

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
    async with two_apart(reached_at(nodes, BY_A), reached_at(nodes, BY_B), nodes.urls, ttl=TTL) as two:
        strike(network, "both lost", nodes, BY_B, MAJORITY)

        await fails_fast(two.b.manager, MAJORITY)
        await two.a.outlives(TTL / 3)
        await two.a.leaves()
        await fails_fast(two.b.manager, MAJORITY)

        assert not two.b.inside.is_set()
        network.heal()
        await two.recovered()
