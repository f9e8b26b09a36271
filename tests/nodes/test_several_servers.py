"""A name that leads to different servers from one connection to the next: noticed, and told (A4)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator

import pytest

from aioredlock_ng import LockManager, NodeState
from aioredlock_ng._core.quorum_view import SEVERAL_SERVERS
from tests.nodes.tools import state
from tests.servers import eventually


class Balancer:
    """Leads each connection to the next of its servers."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = itertools.cycle(ports)
        self.url = ""
        self.accepted = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        self.accepted += 1
        there, back = await asyncio.open_connection("127.0.0.1", next(self.ports))
        self._writers |= {writer, back}
        await asyncio.gather(self._relay(reader, back), self._relay(there, writer))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    def drop(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@contextlib.asynccontextmanager
async def balanced(ports: list[int]) -> AsyncIterator[Balancer]:
    """Run one before these servers."""
    balancer = Balancer(ports)
    server = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
    balancer.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        server.close()
        balancer.drop()
        await eventually(lambda: len(asyncio.all_tasks()) == 1, what="the balancer has ended")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of it."""
    return [one.getMessage() for one in caplog.records if SEVERAL_SERVERS in one.getMessage()]


async def reconnect(manager: LockManager, balancer: Balancer) -> None:
    """Drop all connections, and wait for new ones."""
    before = balancer.accepted
    balancer.drop()
    await eventually(lambda: balancer.accepted > before and state(manager) is not NodeState.DOWN)
    await manager._life.nodes[0].greet()


async def test_a_server_that_returns_behind_a_name_is_told_once(nodes5, caplog):
    """Another server may be a failover; the first one again is none."""
    caplog.set_level(logging.WARNING)
    async with balanced(nodes5.ports[:2]) as balancer:
        manager = LockManager(
            [balancer.url, *nodes5.urls[2:4]], prefix="spread:", node_timeout=1.0, connect_timeout=10.0
        )
        async with manager:
            await reconnect(manager, balancer)
            assert told(caplog) == []
            await reconnect(manager, balancer)
            await eventually(lambda: told(caplog))
            await reconnect(manager, balancer)
            await reconnect(manager, balancer)
    (message,) = told(caplog)
    assert balancer.url in message
    assert "give each node the address of one server" in message
