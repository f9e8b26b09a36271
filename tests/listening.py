"""A connection by hand that listens to channels, to masters in memory and to real servers."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import urlsplit

import hiredis

from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_connection import MemoryConnection
from tests.simulation.wires import Wire, WireConnection, WiredNode

_NOTHING: Final = object()


class Listener(asyncio.Protocol):
    """Writes down all that comes, and when."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.told: list[Any] = []  # replies and pushes, in order
        self.times: list[float] = []  # when each of them came, on the loop's clock
        self.lost = False
        self._came = asyncio.Event()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)

    def data_received(self, data: bytes) -> None:
        """Take it apart."""
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not _NOTHING:
            self.told.append(reply)
            self.times.append(asyncio.get_running_loop().time())
        self._came.set()

    def connection_lost(self, _: Exception | None) -> None:
        """Note that nothing more comes."""
        self.lost = True

    def send(self, *words: bytes) -> None:
        """Send a command."""
        self.transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]  # the stub says a tuple of one

    async def until(self, count: int) -> list[Any]:
        """Wait until that number of things has come; return them all."""
        async with asyncio.timeout(5.0):
            while len(self.told) < count:
                self._came.clear()
                await self._came.wait()
        return self.told

    async def subscribe(self, *channels: bytes) -> None:
        """Listen to channels, and forget what has come so far."""
        count = len(self.told) + len(channels)
        self.send(b"SUBSCRIBE", *channels)
        told = await self.until(count)
        assert [push[:2] for push in told[-len(channels) :]] == [[b"subscribe", name] for name in channels]
        del self.told[:], self.times[:]


def listen_in_memory(node: MemoryNode, wire: Wire | None = None) -> Listener:
    """Connect to a master in memory, by the first of its ways, or by another one."""
    listener = Listener()
    if wire is None and isinstance(node, WiredNode):
        wire = node.wires[0]
    connection = MemoryConnection(node) if wire is None else WireConnection(wire)
    listener.transport = connection
    node._connections.append(connection)
    connection.set_protocol(listener)
    return listener


async def listen(spec: Any) -> Listener:
    """Connect to whatever a manager takes as a node, and speak RESP3 there."""
    if isinstance(spec, MemoryNode):
        return listen_in_memory(spec)
    url = urlsplit(spec)
    loop = asyncio.get_running_loop()
    transport, listener = await loop.create_connection(Listener, url.hostname, url.port)
    listener.transport = transport
    listener.send(b"HELLO", b"3")
    await listener.until(1)
    del listener.told[:], listener.times[:]
    return listener
