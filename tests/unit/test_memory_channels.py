"""Channels of a master in memory: which client hears what, and when.  On virtual time."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng.testing import MemoryNode
from tests.listening import Listener, listen_in_memory
from tests.unit.tasks import turns

CHANNEL = b"redlock:a"
NOTICE = [b"message", CHANNEL, b""]


def publish(node: MemoryNode, message: bytes = b"") -> int:
    """Publish past every connection; return the number of receivers."""
    reply = node.execute([b"PUBLISH", CHANNEL, message])
    return int(reply[1:])


async def subscribed(node: MemoryNode) -> Listener:
    """Connect and listen."""
    listener = listen_in_memory(node)
    await listener.subscribe(CHANNEL)
    return listener


async def test_a_frozen_master_tells_nothing_until_it_goes_on() -> None:
    """A published message waits at a frozen master; one that had left arrives."""
    node = MemoryNode(latency=0.1)
    listener, other = await subscribed(node), listen_in_memory(node)
    publish(node, b"left")
    node.freeze()
    other.send(b"PUBLISH", CHANNEL, b"waits")
    await asyncio.sleep(10)
    assert [push[2] for push in listener.told] == [b"left"]
    assert other.told == []
    node.thaw()
    await listener.until(2)
    assert [push[2] for push in listener.told] == [b"left", b"waits"]
    await turns(3)
    assert other.told == [1]


@pytest.mark.parametrize("end", ["close", "abort", "disconnect", "crash", "restart"])
async def test_a_subscription_ends_with_its_connection(end: str) -> None:
    """No listener is left to be counted; what was on its way finds none, or comes before the reset."""
    node = MemoryNode(latency=0.1)
    listener, other = await subscribed(node), await subscribed(node)
    assert publish(node) == 2
    by_client = end in ("close", "abort")
    getattr(listener.transport if by_client else node, end)()
    await asyncio.sleep(1)
    assert listener.lost
    assert listener.told == ([] if by_client else [NOTICE])
    assert publish(node) == by_client, "another connection hears on"
    assert await other.until(1 + by_client) == [NOTICE] * (1 + by_client)
