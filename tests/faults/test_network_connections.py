"""Connections that die, hang, or cannot be made (N8, N9, N10)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from aioredlock_ng import ExtensionPolicy, LockManager, NodeState, QuorumUnavailableError, Vote
from aioredlock_ng.events import NodeChanged
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE, Recorder, all_up, no_key_left
from tests.faults.chaos_proxy import ChaosProxy, proxied
from tests.faults.namespaces import NEW, Network, reached_at, requests
from tests.faults.two_turns import Two, two_apart, two_managers
from tests.servers import Nodes, eventually

BY_A, BY_B = "127.0.0.2", "127.0.0.3"

BAD: Final = (1, 3)
MAJORITY: Final = (0, 2, 4)

TTL: Final = 1.5
LONG: Final = 60.0  # seconds of a ttl that no test waits for: a key that is gone was released

SHORTEST_PAUSE: Final = 0.25  # seconds between two attempts to reach a node that stays down

FIRST_ATTEMPTS: Final = 6  # before the pauses are that long, and one to spare


# -- nodes that cannot be reached ------------------------------------------------------------------


async def vanish(proxy: ChaosProxy) -> None:
    """Be half-open: the server has forgotten its clients, and nothing answers any more."""
    proxy.half_open()
    proxy.stall()


async def refuse(proxy: ChaosProxy) -> None:
    """Close the port."""
    proxy.refuse()
    proxy.reset()


async def reject(proxy: ChaosProxy) -> None:
    """Take connections and reset them."""
    proxy.rejects = True
    proxy.reset()


async def heal(proxy: ChaosProxy) -> None:
    """End the fault, whichever it is."""
    proxy.rejects = False
    proxy.flow()
    await proxy.open()


async def others_go_on(two: Two, recorder: Recorder, bad: list[str], *, down: Callable[[], bool]) -> float:
    """See the holder extended and taking other locks, until the bad nodes are down; return for how long."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await eventually(down, within=PATIENCE, what="the bad nodes are found to be down")
    for number in range(20):
        async with two.a.manager.lock(f"own:{number}", blocking_timeout=1.0):
            pass
    await two.a.outlives(TTL)
    took = loop.time() - began
    assert not two.b.inside.is_set()
    changed = {event.node for event in recorder.events if isinstance(event, NodeChanged)}
    assert changed == set(bad), "no other node has been anything but up"
    return took


@pytest.mark.parametrize("fault", [vanish, refuse, reject])
async def test_two_nodes_of_five_cannot_be_reached(
    fault: Callable[[ChaosProxy], Awaitable[None]], shared_nodes: Nodes
) -> None:
    """Each is tried again with a back-off and no storm; the holder goes on, the waiter has its turn later."""
    urls = shared_nodes.urls
    recorder = Recorder()
    async with (
        proxied(urls) as proxies,
        two_apart([p.url for p in proxies], urls, urls, ttl=TTL, hooks=[recorder]) as two,
    ):
        nodes = two.a.manager.statistics
        recorder.events.clear()
        for i in BAD:
            await fault(proxies[i])

        took = await others_go_on(
            two,
            recorder,
            [proxies[i].url for i in BAD],
            down=lambda: all(nodes().nodes[i].state is NodeState.DOWN for i in BAD),
        )

        for i, proxy in enumerate(proxies):
            attempts = proxy.accepted - 1
            # A server that hangs up before anything is said is asked twice, by RESP3 and by RESP2.
            assert attempts <= (2 * (took / SHORTEST_PAUSE + FIRST_ATTEMPTS) if i in BAD else 0)
            assert attempts > 0 or i not in BAD or fault is refuse  # a closed port does not count
        for i in BAD:
            await heal(proxies[i])
        await two.recovered()


async def test_resets_at_the_beginning_are_not_left_to_the_loop(
    shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of a connection's objects the collector finalizes first, the loop's handler is not called."""
    monkeypatch.delattr(asyncio.StreamReaderProtocol, "__del__")  # which is silent if it comes first
    stray = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(repr(context)))
    async with proxied(shared_nodes.urls) as proxies:
        for i in BAD:
            await reject(proxies[i])
        async with LockManager([proxy.url for proxy in proxies]) as manager, manager.lock("one"):
            await eventually(lambda: all(proxies[i].accepted > FIRST_ATTEMPTS for i in BAD), what="resets")
    gc.collect()
    assert stray == []


@pytest.mark.parametrize("fate", ["drop", "reject with tcp reset"])
async def test_packets_to_two_nodes_of_five_go_nowhere(
    fate: str, nodes: LocalNodes, network: Network
) -> None:
    """A black hole, or a firewall that says so: each attempt is counted where its first packet is lost."""
    by_a = reached_at(nodes, BY_A)
    recorder = Recorder()
    async with two_apart(
        by_a, reached_at(nodes, BY_B), nodes.urls, ttl=TTL, hooks=[recorder], connect_timeout=0.5
    ) as two:
        statistics = two.a.manager.statistics
        recorder.events.clear()
        from_a = f"ip daddr {BY_A} {requests([nodes.ports[i] for i in BAD])}"
        network.have(f"{from_a} {NEW} counter {fate}", f"{from_a} {fate}")

        took = await others_go_on(
            two,
            recorder,
            [by_a[i] for i in BAD],
            down=lambda: all(statistics().nodes[i].state is NodeState.DOWN for i in BAD),
        )

        (attempts,) = network.counted()
        assert 0 < attempts <= len(BAD) * (took / SHORTEST_PAUSE + FIRST_ATTEMPTS)
        network.heal()
        await two.recovered()


# -- connections that are killed -------------------------------------------------------------------


# -- connections that die between request and reply ------------------------------------------------


def in_the_request(proxy: ChaosProxy) -> None:
    """Reset the connection when the server has a part of the next request."""
    proxy.requests.reset_after(20)


def before_the_reply(proxy: ChaosProxy) -> None:
    """Reset the connection when the server has done what was asked, and says so."""
    proxy.replies.reset_after(0)


Death = Callable[[ChaosProxy], None]
DEATHS: Final = (in_the_request, before_the_reply)


@pytest.mark.full
@pytest.mark.parametrize("die", DEATHS)
async def test_connections_that_die_while_a_lock_is_asked_for(
    die: Death, proxies: list[ChaosProxy], shared_nodes: Nodes
) -> None:
    """Three votes of an acquire are unknown, so it fails; an extension is unknown, and the lock still held.

    A release raises nothing; its report says unknown.  Nothing is left, long before the ttl has passed.
    """
    urls = shared_nodes.urls
    options = {"ttl": LONG, "extension": ExtensionPolicy.off()}  # the test's are the only ones
    async with two_managers([proxy.url for proxy in proxies], urls, **options) as (a, b):
        for i in MAJORITY:
            die(proxies[i])
        with pytest.raises(QuorumUnavailableError) as caught:
            await a.lock("held", blocking=False).acquire()
        votes = [vote.vote for vote in caught.value.votes]
        assert votes == [Vote.SILENT if i in MAJORITY else Vote.GRANTED for i in range(5)]
        await no_key_left(urls)
        await all_up(a)
        assert [proxy.accepted for proxy in proxies] == [2, 1, 2, 1, 2]

        lease = await a.lock("held", blocking=False).acquire()
        waiting = asyncio.create_task(b.lock("held", blocking_timeout=PATIENCE).acquire())
        await eventually(lambda: b.statistics().waiting == 1, what="B waits")
        for proxy in proxies:
            die(proxy)
        with pytest.raises(QuorumUnavailableError):
            await lease.extend()
        lease.check()
        await all_up(a)
        until = lease.valid_until
        await lease.extend()
        assert lease.valid_until > until
        assert not waiting.done()

        for proxy in proxies:
            die(proxy)
        report = await lease.release()
        assert [node.outcome for node in report.nodes] == ["unknown"] * 5
        await (await waiting).release()
        await no_key_left(urls)
        await all_up(a)
        async with a.lock("held", blocking=False):
            pass
