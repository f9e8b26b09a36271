"""Applications on real sockets, and a client that sees the bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from aioredlock_ng.contrib.aiohttp import setup
from aioredlock_ng.testing import MemoryNode
from tests.contrib.stay import Stay

NODES = web.AppKey("NODES", list[Any])


def app_with(*routes: web.RouteDef, nodes: Sequence[Any] = (), **options: Any) -> web.Application:
    """Make an application over nodes, by default three masters in memory; it knows them as `NODES`."""
    app = web.Application()
    app[NODES] = [*nodes] or [MemoryNode() for _ in range(3)]
    setup(app, app[NODES], **options)
    app.add_routes(routes)
    return app


@dataclass
class Site:
    """A running application and a client of it."""

    port: int
    client: aiohttp.ClientSession
    runner: web.AppRunner

    async def get(self, path: str, **options: Any) -> tuple[int, Any, str | None]:
        """Ask, and return the status, the body as JSON or text, and Retry-After."""
        async with self.client.get(path, **options) as response:
            json = response.content_type == "application/json"
            body = await response.json() if json else await response.text()
            return response.status, body, response.headers.get("Retry-After")


@contextlib.asynccontextmanager
async def serve(app: web.Application, **options: Any) -> AsyncIterator[Site]:
    """Run an application on a free port, as `web.run_app` does."""
    runner = web.AppRunner(app, access_log=None, **options)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            yield Site(port, client, runner)
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a bare connection to an application."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def disconnect(writer: asyncio.StreamWriter) -> None:
    """Vanish like a client that is killed."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


class Handler(Stay):
    """A handler that says when it is inside, and stays until it may leave."""

    async def __call__(self, request: web.Request) -> web.StreamResponse:  # type: ignore[override]
        """Handle a request."""
        await super().__call__()
        return web.Response(text="done")
