"""Context variables: what a request has set ends with it, whatever it has begun in a manager."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from redis.asyncio import Redis

import aioredlock_ng
from aioredlock_ng import ExtensionPolicy, LockManager, LockTakenError
from aioredlock_ng.events import Acquired, Extended, GaveUp, Lost, NodeChanged, Refused, Released, Waiting
from aioredlock_ng.testing.local_nodes import LocalNodes
from tests.servers import Nodes, eventually

REQUEST: ContextVar[Any] = ContextVar("request", default=None)
LONG = 600


class Payload:
    """The payload of a request."""


async def lock(manager: LockManager) -> None:
    """Hold a lock."""
    async with manager.lock("a", blocking_timeout=LONG):
        await asyncio.sleep(0.02)


async def fair(manager: LockManager) -> None:
    """Stand in line."""
    async with manager.lock("b", fair=True, blocking_timeout=LONG, quorum_timeout=LONG):
        pass


async def extended(manager: LockManager) -> None:
    """Have a lease extended."""
    async with manager.lock("c", ttl=LONG) as lease:
        await lease.extend()


async def refused(manager: LockManager) -> None:
    """Give up."""
    with pytest.raises(LockTakenError):
        await manager.lock("held", blocking_timeout=0.1).acquire()


async def led(manager: LockManager) -> None:
    """Lead and observe."""
    election = manager.election("d", ttl=LONG)
    async with election.campaign():
        async for leader in election.observe():
            assert leader
            return


async def surveyed(manager: LockManager) -> None:
    """Look."""
    await manager.survey()
    await manager.inspect("a")


@pytest.mark.parametrize("first", [LockManager.start, lock, led, surveyed])
@pytest.mark.parametrize("arm", ["urls", "clients"])
async def test_a_request_leaves_nothing_behind(
    shared_nodes: Nodes, arm: str, first: Callable[[LockManager], Awaitable[None]]
) -> None:
    """Its payload is freed while the manager goes on, also that of the request which has started it."""
    left: list[weakref.ref[Payload]] = []

    async def handle(use: Callable[[LockManager], Awaitable[None]]) -> None:
        REQUEST.set(Payload())
        left.append(weakref.ref(REQUEST.get()))
        await use(manager)

    def all_gone() -> bool:
        gc.collect()
        return not any(payload() for payload in left)

    clients = [Redis.from_url(url) for url in shared_nodes.urls] if arm == "clients" else []
    manager = LockManager(clients or shared_nodes.urls, node_timeout=5)
    await asyncio.create_task(handle(first))
    await eventually(all_gone, within=5, what="the first request's payload is freed")
    async with manager.lock("held", ttl=LONG):
        uses = (lock, fair, extended, refused, led, surveyed)
        await asyncio.gather(*(asyncio.create_task(handle(use)) for use in uses for _ in range(3)))
        await eventually(all_gone, within=5, what="what the others had is freed")
    await manager.aclose()
    for client in clients:
        await client.aclose()


async def test_hooks_are_called_in_the_context_of_the_call_or_in_none(
    make_nodes: Callable[..., LocalNodes],
) -> None:
    """Hooks hear of a caller's actions in that caller's context, and of the rest in an empty one."""
    told: dict[type, set[Any]] = {}

    def note(event: Any) -> None:
        told.setdefault(type(event), set()).add(REQUEST.get())

    names = ("acquired", "refused", "waiting", "gave_up", "extended", "lost", "released", "node_changed")
    hook = SimpleNamespace(**{f"on_{name}": note for name in names})

    async def handle(number: int, use: Callable[[LockManager], Awaitable[None]]) -> None:
        REQUEST.set(number)
        await use(manager)

    async def lose(manager: LockManager) -> None:
        lease = await manager.lock("e", ttl=LONG).acquire()
        await manager.force_release("e")
        with pytest.raises(aioredlock_ng.LockLostError):
            await lease.extend()
        await lease.release()
        late = await manager.lock("f", ttl=0.5, extension=ExtensionPolicy.off()).acquire()
        time.sleep(0.6)  # nothing but this task can notice
        with pytest.raises(aioredlock_ng.LockLostError):
            late.check()
        await late.release()
        nodes.kill(0)
        await eventually(lambda: NodeChanged in told, what="the node is down")

    nodes = make_nodes(3)
    manager = LockManager(nodes.urls, hooks=[hook])
    async with LockManager(nodes.urls) as other, other.lock("held", ttl=LONG):
        await asyncio.create_task(handle(1, extended))
        told.pop(NodeChanged)
        await asyncio.create_task(handle(2, refused))
        await asyncio.create_task(handle(3, lose))
        await manager.aclose()
    assert told.pop(Acquired) == {1, 3}
    assert told.pop(Released) >= {1}
    for kind in (Refused, Waiting, GaveUp):
        assert told.pop(kind) == {2}
    assert told == {kind: {None} for kind in (Extended, Lost, NodeChanged)}
