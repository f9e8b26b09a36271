"""Applications over masters in memory, asked without a server; and WebSockets likewise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI

from aioredlock_ng import LockManager
from aioredlock_ng.contrib.fastapi import add_exception_handlers
from aioredlock_ng.testing import MemoryNode
from tests.servers import eventually
from tests.unit.worlds import World, world


def new_app(**options: Any) -> FastAPI:
    """Make an application that answers lock errors."""
    app = FastAPI(**options)
    add_exception_handlers(app)
    return app


@dataclass(frozen=True)
class Site:
    """An application with its manager, and a client.  What the application raises, the client raises."""

    world: World
    client: httpx.AsyncClient

    @property
    def manager(self) -> LockManager:
        """The application's manager."""
        return self.world.manager

    @property
    def locks(self) -> list[str]:
        """The names that are locked, as the first node sees it."""
        return [key.decode().removeprefix("redlock:") for key in self.world.keys[0]]

    async def post(self, path: str, **options: Any) -> httpx.Response:
        """Ask and return the answer."""
        return await self.client.post(path, **options)

    def posting(self, path: str, **options: Any) -> asyncio.Task[httpx.Response]:
        """Begin to ask."""
        return asyncio.create_task(self.client.post(path, **options))


@contextlib.asynccontextmanager
async def site(app: FastAPI, **options: Any) -> AsyncIterator[Site]:
    """Give an application a manager over three masters, and a client; at the end no lock may be left."""
    async with world(**{"restart_quarantine": 60} | options) as here:
        async with used(app, here) as site_:
            yield site_
        await asyncio.sleep(0.01)  # virtual: so long a release is under way
        assert not any(here.keys), here.keys


@contextlib.asynccontextmanager
async def real_site(app: FastAPI, **options: Any) -> AsyncIterator[Site]:
    """Do the same on real time, for what needs threads."""
    nodes = [MemoryNode() for _ in range(3)]
    async with LockManager(nodes, **options) as manager, used(app, World(nodes, manager)) as site_:
        yield site_
        await eventually(lambda: not any(site_.world.keys), what="no key is left")


@contextlib.asynccontextmanager
async def used(app: FastAPI, here: World) -> AsyncIterator[Site]:
    """Give an application the manager of a world, and a client."""
    app.state.lock_manager = here.manager
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield Site(here, client)


def scope_of(kind: str, path: str, **more: Any) -> dict[str, Any]:
    """Return what a server tells an application of a connection."""
    scope = {"type": kind, "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "POST", "path": path}
    scope |= {"raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": [], "state": {}}
    return scope | more


async def websocket(
    app: FastAPI,
    path: str,
    *,
    extensions: dict[str, Any] | None = None,
    leaves: bool = False,
    gone: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """Open a WebSocket, and return what the application has sent by its end.

    Args:
        app: The application.
        path: What is asked for.
        extensions: What the server says that it can do; None: it does not say.
        leaves: Whether the client disconnects right after it has connected.
        gone: Says from when on nothing can be sent any more.
    """
    arriving: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    arriving.put_nowait({"type": "websocket.connect"})
    if leaves:
        arriving.put_nowait({"type": "websocket.disconnect", "code": 1005})
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        if gone():
            raise OSError("the connection is closed")
        sent.append(message)

    extra = {} if extensions is None else {"extensions": extensions}
    await app(scope_of("websocket", path, subprotocols=[], **extra), arriving.get, send)
    return sent
