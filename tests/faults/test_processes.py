"""Nodes that are frozen, restarted, flushed or stalled under a held lock with a waiter.

On processes and, where Docker is there, on containers.  ``test_empty_restart.py`` tells what becomes of a
lock when each of its votes counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import pytest

from aioredlock_ng import LossReason, QuorumUnavailableError
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, boot_time, only_these_silent
from tests.faults.contention import votes_again
from tests.faults.two_turns import Two, two_turns
from tests.servers import Nodes, ask, eventually, kill_connections

TTL: Final = 1.0
QUARANTINE: Final = 1.5  # seconds; longer than it takes to restart three servers, containers included

PAUSE: Final = 60.0  # seconds; the test ends it earlier

# Seconds that a server sleeps and cannot be woken: A has lost its lock by then, and B has asked.
SLEEP: Final = 2 * TTL

Meanwhile = Callable[[], Awaitable[None]]
Fault = Callable[[Nodes, Sequence[int], Meanwhile], Awaitable[None]]


# -- faults: each strikes some of the nodes, lasts for a while, and heals --------------------------


async def freeze(nodes: Nodes, which: Sequence[int], meanwhile: Meanwhile) -> None:
    """Freeze the processes: what is sent to them meanwhile is executed when they go on."""
    for i in which:
        nodes.pause(i)
    await meanwhile()
    for i in which:
        nodes.resume(i)


async def stall(nodes: Nodes, which: Sequence[int], meanwhile: Meanwhile) -> None:
    """Have the servers execute no scripts and writes (CLIENT PAUSE): they live, and these wait."""
    for i in which:
        ask(nodes.urls[i], "CLIENT PAUSE", int(PAUSE * 1000), "WRITE")
    try:
        await meanwhile()
    finally:
        for i in which:
            ask(nodes.urls[i], "CLIENT UNPAUSE")


async def sleep(nodes: Nodes, which: Sequence[int], meanwhile: Meanwhile) -> None:
    """Have the servers do nothing at all for a while (DEBUG SLEEP)."""
    async with asyncio.TaskGroup() as asleep:
        for i in which:
            asleep.create_task(asyncio.to_thread(ask, nodes.urls[i], "DEBUG SLEEP", SLEEP))
        await meanwhile()


async def restart_empty(nodes: Nodes, which: Sequence[int], meanwhile: Meanwhile) -> None:
    """Kill the servers and start them again, without data."""
    await asyncio.gather(*(nodes.restart(i) for i in which))
    await meanwhile()
    for i in which:
        await votes_again(nodes.urls[i])


async def flush(nodes: Nodes, which: Sequence[int], meanwhile: Meanwhile) -> None:
    """Flush the servers; their connections stay."""
    for i in which:
        ask(nodes.urls[i], "FLUSHALL")
    await meanwhile()
    for i in which:
        await votes_again(nodes.urls[i])


async def forget_scripts(nodes: Nodes, which: Sequence[int], meanwhile: Meanwhile) -> None:
    """Have all servers forget their scripts, again and again."""
    for _ in range(2):
        for url in nodes.urls:
            ask(url, "SCRIPT FLUSH")
        await meanwhile()


async def disconnect(nodes: Nodes, which: Sequence[int], meanwhile: Meanwhile) -> None:
    """Have all servers close all connections, again and again."""
    for _ in range(2):
        for url in nodes.urls:
            kill_connections(url)
        await meanwhile()


# -- what becomes of the lock ----------------------------------------------------------------------


# Seconds of a held lease that these last; others strike in a moment, perhaps again and again.
LASTING: Final = {freeze: TTL, stall: TTL / 3}

# The nodes that a fault strikes where a majority fails.
MAJORITY: Final = (0, 2, 4)

# Ttl and quarantine where their end is not waited for: a busy machine needs time to connect to all nodes.
LONGER: Final = {disconnect: (3 * TTL, 3 * TTL)}


@pytest.mark.parametrize("fault", [freeze, stall, restart_empty, flush, forget_scripts, disconnect])
async def test_a_holder_does_without_a_minority(fault: Fault, any_nodes: Nodes) -> None:
    """Its lease is extended all the time, no other client gets in, and healed nodes have its key again."""
    ttl, quarantine = LONGER.get(fault, (TTL, QUARANTINE))
    async with two_turns(any_nodes.urls, ttl=ttl, restart_quarantine=quarantine) as two:

        async def meanwhile() -> None:
            await two.a.outlives(LASTING.get(fault, 0.1))

        await fault(any_nodes, (1, 3), meanwhile)

        await two.all_up()
        await eventually(lambda: two.complete, what="A has its key on every node again")
        two.a.lease.check()
        assert not two.b.inside.is_set()
        await two.recovered()
        assert two.a.lost is None


async def without_a_majority(fault: Fault, nodes: Nodes) -> Two:
    """Let a fault strike three of five nodes, see that A learns of it in time and B not let in, and heal."""
    async with two_turns(nodes.urls, ttl=TTL, restart_quarantine=QUARANTINE) as two:

        async def meanwhile() -> None:
            struck = boot_time()
            await two.a.over()
            assert boot_time() - struck < TTL + ALLOWANCE
            assert two.a.lost is not None
            assert two.a.claim.end < two.a.lease.valid_until
            with pytest.raises(QuorumUnavailableError) as caught:
                await two.b.manager.lock("another", blocking=False).acquire()
            only_these_silent(caught.value.votes, MAJORITY)
            await eventually(lambda: boot_time() > two.a.lease.valid_until, what="its keys have ended")
            assert not two.b.inside.is_set()

        await fault(nodes, MAJORITY, meanwhile)
        await two.recovered()
    return two


@pytest.mark.parametrize("fault", [freeze, stall, sleep])
async def test_a_lease_ends_in_time_when_a_majority_stands_still(
    fault: Fault, make_nodes: Callable[..., LocalNodes]
) -> None:
    """A learns of it before its validity has ended; B is kept out meanwhile, and has the lock afterwards."""
    two = await without_a_majority(fault, make_nodes(5, options={"enable-debug-command": "yes"}))

    assert two.a.lost.reason is LossReason.EXPIRED
    only_these_silent(two.a.lost.votes, MAJORITY)


@pytest.mark.parametrize("fault", [restart_empty, flush])
async def test_a_lease_ends_when_a_majority_forgets_it(fault: Fault, any_nodes: Nodes) -> None:
    """Its validity runs out, for nodes without a vote do not even refuse; B is let in a quarantine later."""
    began = boot_time()
    two = await without_a_majority(fault, any_nodes)

    assert two.a.lost.reason is LossReason.EXPIRED
    assert two.b.claim.start - began > QUARANTINE
