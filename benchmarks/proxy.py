"""A node that is far away: a TCP proxy that delays every byte, and throttles nothing.

``python -m benchmarks.proxy DELAY PORT``, in a process of its own, prints the port it listens on.  What
arrives leaves `DELAY` seconds later, in its order and however much of it is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final, final
from urllib.parse import urlsplit

from benchmarks.environments import ROOT

LOCALHOST: Final = "127.0.0.1"


@final
class Way(asyncio.Protocol):
    """One end of a connection: what it reads, the `other` end writes later."""

    def __init__(self, delay: float, other: Way | None = None) -> None:
        self.other = other
        """None while the node is being connected to; what comes meanwhile waits."""
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._under_way: deque[tuple[float, bytes]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what to write to."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Note when it is due at the other end."""
        self._under_way.append((self._loop.time() + self._delay, data))
        if len(self._under_way) == 1:
            self._loop.call_later(self._delay, self._arrive)

    def eof_received(self) -> None:
        """Let the end arrive behind all the rest."""
        self.data_received(b"")

    def connection_lost(self, _: Exception | None) -> None:
        """Do the same for what ended otherwise."""
        self.data_received(b"")

    def _arrive(self) -> None:
        while self._under_way and (self._under_way[0][0] <= self._loop.time()):
            if self.other is None:
                self._loop.call_later(self._delay, self._arrive)
                return
            _, data = self._under_way.popleft()
            if data:
                self.other.write(data)
            else:
                self.other.hang_up()
        if self._under_way:
            self._loop.call_at(self._under_way[0][0], self._arrive)

    def write(self, data: bytes) -> None:
        """Send what has arrived."""
        if self._transport is not None:
            self._transport.write(data)

    def hang_up(self) -> None:
        """Close this end."""
        if self._transport is not None:
            self._transport.close()


async def forward(delay: float, port: int) -> None:
    """Take connections to a port until the input ends."""
    loop = asyncio.get_running_loop()

    connecting: set[asyncio.Task[None]] = set()

    async def connect(client: Way) -> None:
        try:
            _, client.other = await loop.create_connection(lambda: Way(delay, client), LOCALHOST, port)
        except OSError:
            client.hang_up()

    def accepted() -> Way:
        client = Way(delay)
        task = loop.create_task(connect(client))
        connecting.add(task)
        task.add_done_callback(connecting.discard)
        return client

    server = await loop.create_server(accepted, LOCALHOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)


@contextlib.asynccontextmanager
async def proxies(urls: Sequence[str], trip: float) -> AsyncIterator[list[str]]:
    """Give URLs of the same nodes, a round trip further away."""
    pipe = asyncio.subprocess.PIPE
    processes, moved = [], []
    try:
        for url in urls:
            command = (sys.executable, "-m", "benchmarks.proxy", str(trip / 2), str(urlsplit(url).port))
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=ROOT)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            moved.append(f"redis://{LOCALHOST}:{int(await process.stdout.readline())}")
        yield moved
    finally:
        for process in processes:
            process.kill()
            await process.wait()


def main() -> None:
    delay, port = sys.argv[1:]
    # Of all selectors this one alone can wait for less than a millisecond.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(forward(float(delay), int(port)))


if __name__ == "__main__":
    main()
