"""Packets that are lost for a while, or now and then; TCP sends them again, some time (N1, N2, N5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import pytest

from aioredlock_ng import LockLostError, LockManager, QuorumUnavailableError, Vote
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, PATIENCE, Recorder, all_up, no_key_left, quiet, told
from tests.faults.chaos_proxy import proxied
from tests.faults.claims import Claim, check_claims
from tests.faults.contention import contention
from tests.faults.namespaces import Network, reached_at, replies, requests
from tests.faults.two_turns import two_managers
from tests.servers import ask, eventually

BY_A, BY_B = "127.0.0.2", "127.0.0.3"

MAJORITY: Final = (0, 2, 4)

LONG: Final = 60.0  # seconds of a ttl that no test waits for: a key that is gone was released


def asked(urls: Sequence[str], name: str) -> list[int]:
    """Return for each server whether it was asked for a lock whose fence is new: it has a counter then."""
    return [ask(url, "EXISTS", f"redlock:fence:{{redlock:{name}}}") for url in urls]


def owners(urls: Sequence[str], name: str) -> list[bytes]:
    """Return the owners of a lock, as the servers have them."""
    return [owner for url in urls if (owner := ask(url, "GET", f"redlock:{name}")) is not None]


# -- requests are late -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lost", "cancelled"])
async def test_requests_that_arrive_late_leave_no_key(how: str, nodes: LocalNodes, network: Network) -> None:
    """An acquire was given up or cancelled: what the nodes get a second later is undone at once.

    B is not in the way meanwhile, and stays the holder of what A asks for.
    """
    every = requests(nodes.ports)
    urls = (reached_at(nodes, address) for address in (BY_A, BY_B))
    async with two_managers(*urls, ttl=LONG) as (a, b):
        taken = await b.lock("taken").acquire()
        network.have(f"ip daddr {BY_A} {every} counter drop")
        if how == "lost":
            for name in ("free", "taken"):
                with pytest.raises(QuorumUnavailableError):
                    await a.lock(name, blocking=False).acquire()
        else:
            trying = [asyncio.create_task(a.lock(name).acquire()) for name in ("free", "taken")]
            await eventually(
                lambda: all(node.in_flight >= 2 for node in a.statistics().nodes), what="both are asked for"
            )
            for task in trying:
                task.cancel()
            await asyncio.wait(trying)
            assert all(task.cancelled() for task in trying)
        await eventually(lambda: network.counted()[0] >= 3 * 5, what="they are sent again, and again lost")
        assert asked(nodes.urls, "free") == [0] * 5

        network.heal()

        await eventually(lambda: any(asked(nodes.urls, "free")), what="they arrive after all")
        await all_up(a)
        await eventually(lambda: not any(node.in_flight for node in a.statistics().nodes), what="all of them")
        await eventually(lambda: not owners(nodes.urls, "free"), within=1.0, what="the ghosts are gone")
        assert len(set(owners(nodes.urls, "taken"))) == 1, "they are B's"
        taken.check()
        await taken.release()
        await all_up(a)
        async with a.lock("taken", blocking_timeout=1.0):
            pass
    await no_key_left(nodes.urls)


async def test_an_acquire_that_arrives_behind_its_release(nodes5: LocalNodes) -> None:
    """It had left the kernel when its connection was lost, so it cannot be taken back.

    That its release found nothing settles nothing: it is repeated, and the ghost is gone soon.
    """
    async with (
        quiet(),
        proxied(nodes5.urls) as proxies,
        LockManager([proxy.url for proxy in proxies], ttl=LONG, node_timeout=2.0) as a,
    ):
        await all_up(a)
        passed = [proxy.requests.passed for proxy in proxies]
        for proxy in proxies:
            proxy.requests.stall_present()
        trying = asyncio.create_task(a.lock("free", blocking=False).acquire())
        await eventually(lambda: all(proxy.requests.kept > 200 for proxy in proxies), what="it is under way")
        for proxy in proxies:
            proxy.reset_clients()
        with pytest.raises(QuorumUnavailableError):
            await trying
        await all_up(a)
        assert all(proxy.requests.passed > before for proxy, before in zip(proxies, passed, strict=True))
        assert asked(nodes5.urls, "free") == [0] * 5
        assert all(node.pending_releases for node in a.statistics().nodes), (
            "what was released is not settled yet"
        )

        for proxy in proxies:
            proxy.requests.flow()

        await eventually(lambda: asked(nodes5.urls, "free") == [1] * 5, what="it arrives after all")
        await no_key_left(nodes5.urls, within=2.0 + ALLOWANCE)  # with the next heartbeat


# -- replies are lost ------------------------------------------------------------------------------


async def test_replies_that_are_lost_count_for_nothing(nodes: LocalNodes, network: Network) -> None:
    """Three nodes have granted, but the client cannot know: no lock, and it is released without a word."""
    urls = (reached_at(nodes, address) for address in (BY_A, BY_B))
    async with two_managers(*urls, ttl=LONG) as (a, b):
        network.have(f"ip saddr {BY_A} {replies([nodes.ports[i] for i in MAJORITY])} drop")

        with pytest.raises(QuorumUnavailableError) as caught:
            await a.lock("free", blocking=False).acquire()

        votes = [vote.vote for vote in caught.value.votes]
        assert votes == [Vote.SILENT if i in MAJORITY else Vote.GRANTED for i in range(5)]
        assert all("no answer within" in caught.value.votes[i].reason for i in MAJORITY)
        assert asked(nodes.urls, "free") == [1] * 5, "they did grant it"
        await no_key_left(nodes.urls)  # it is released all the same
        async with b.lock("free", blocking_timeout=1.0):
            pass
        network.heal()
        await all_up(a)
        async with a.lock("free", blocking_timeout=1.0):
            pass
    await no_key_left(nodes.urls)


# -- one packet of five is lost --------------------------------------------------------------------


LOOK: Final = "return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}"

LOOKS: Final = 30


async def honest(urls: Sequence[str], manager: LockManager, seconds: float) -> list[Claim]:
    """Hold a lock again and again; compare what each lease promises with what a majority has left of it."""
    looks, claims = 0, []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends or looks < LOOKS:
        asked_at = time.monotonic()
        try:
            async with manager.lock("own") as lease:
                start = time.monotonic()
                while time.monotonic() < start + 0.7:  # so long that it has to be extended
                    now, promised = time.monotonic(), lease.remaining
                    left: dict[bytes, list[float]] = {}
                    for url in urls:
                        owner, ttl_ms = ask(url, "EVAL", LOOK, 1, "redlock:own")
                        if owner is not None:
                            left.setdefault(owner, []).append(ttl_ms / 1000 + time.monotonic() - now)
                    ours = max(left.values(), key=len, default=[])
                    assert promised <= (sorted(ours, reverse=True)[2] if len(ours) > 2 else 0.0)
                    looks += 1
                    await asyncio.sleep(0.02)
                claims.append(Claim(start, time.monotonic(), lease.fence, asked_at))
        except LockLostError:
            pass  # by the clock, and in time: what it promised was looked at until then
    return claims


@pytest.mark.parametrize("percent", [20])
async def test_a_part_of_all_packets_is_lost(percent: int, nodes: LocalNodes, network: Network) -> None:
    """Locks go on; no lease promises more than the third longest of its keys has left to live."""
    recorder = Recorder()
    urls = reached_at(nodes)
    async with (
        quiet(),
        LockManager(urls, ttl=1.0, hooks=[recorder]) as a,
        contention(urls, apart=[0.0, 0.0], names=["one", "other"], idle=0.01, ttl=1.0) as contenders,
    ):
        await all_up(a)
        lose = f"numgen random mod 100 < {percent} counter drop"
        network.have(f"{requests(nodes.ports)} {lose}", f"{replies(nodes.ports)} {lose}")

        claims = await honest(nodes.urls, a, 3.0)

        lost = sum(network.counted())
        network.heal()
        contenders.stop()
        await contenders.ended(within=PATIENCE)
        await all_up(a)
        async with a.lock("own", blocking_timeout=1.0):
            pass
    print(f"{lost} packets lost; {len(claims)} turns; {told(recorder.events)}")
    print(f"{contenders.number} claims, {contenders.handovers} handovers; {contenders.counts}")
    check_claims(claims)
    assert lost > 100
    assert claims
    assert contenders.handovers > 0
    await no_key_left(nodes.urls)
