"""Counts the commands that clients send, by MONITOR: INFO's counters also count what scripts call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Final, final
from urllib.parse import urlsplit

from aioredlock_ng import _scripts

NOT_COUNTED: Final = (
    b'"PING"',
    b'"ECHO"',
    b'"HELLO"',
    b'"CLIENT"',
    b'"INFO"',
    b'"MONITOR"',
    b'"SCRIPT"',
    b'"EVALSHA" "%s"' % _scripts.GREET.digest,  # our heartbeat
)
"""What is sent however many locks there are: connecting and heartbeats."""


def counts(line: bytes) -> bool:
    """Return whether a line of MONITOR is a command that a client sent for a lock."""
    address, _, command = line.partition(b"] ")
    if b" [" not in address or address.endswith(b" lua"):
        return False
    return not command.upper().startswith(tuple(each.upper() for each in NOT_COUNTED))


@final
class Monitor(asyncio.Protocol):
    """One node's."""

    def __init__(self) -> None:
        self.commands = 0
        self._rest = b""
        self.ready = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for it."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(b"MONITOR\r\n")

    def data_received(self, data: bytes) -> None:
        """Count the lines."""
        *lines, self._rest = (self._rest + data).split(b"\r\n")
        self.commands += sum(map(counts, lines))
        if not self.ready.done():
            self.ready.set_result(None)


@contextlib.asynccontextmanager
async def monitors(urls: Sequence[str]) -> AsyncIterator[list[Monitor]]:
    """Count what the nodes are sent; those that cannot keep up are slowed down, so measure no time here."""
    loop = asyncio.get_running_loop()
    made: list[Monitor] = []
    try:
        for url in map(urlsplit, urls):
            _, monitor = await loop.create_connection(Monitor, url.hostname, url.port)
            made.append(monitor)
            await monitor.ready
        yield made
        await asyncio.sleep(0.05)  # the last lines are under way
    finally:
        for monitor in made:
            monitor.transport.close()
