"""Both frameworks behind real servers, over masters in memory: bodies, WebSockets, clients that vanish."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from fastapi import FastAPI, WebSocket
from fastapi.responses import StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware

from aioredlock_ng import LockManager
from aioredlock_ng.contrib import aiohttp as for_aiohttp
from aioredlock_ng.contrib import fastapi as for_fastapi
from aioredlock_ng.testing import MemoryNode
from tests.contrib.aiohttp.tools import connection, disconnect, serve
from tests.contrib.web import in_process
from tests.servers import eventually
from tests.unit.traces import locks

OPTIONS: dict[str, Any] = {"ttl": 1, "blocking": False}


@dataclass
class Served:
    """An application that is served, with a path for each kind of handler, all under the same lock."""

    nodes: list[MemoryNode] = field(default_factory=lambda: [MemoryNode() for _ in range(3)])
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    done: list[str] = field(default_factory=list)
    """The handlers that have come to their end."""
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    """Its end ends the server."""
    port: int = 0
    base: str = ""
    paths: tuple[str, ...] = ("wait", "stream")

    @property
    def held(self) -> int:
        """On how many nodes the lock is held."""
        return sum(bool(locks(node)) for node in self.nodes)

    async def inside(self) -> None:
        """Wait until the lock is held."""
        await eventually(lambda: self.held == 3, what="the lock is held")

    async def free(self) -> None:
        """Wait until no node has a key, for less time than the ttl would take."""
        await eventually(lambda: self.held == 0, within=0.9, what="the lock is free")

    def lose(self) -> None:
        """Take the lock away."""
        for node in self.nodes:
            node.delete(b"redlock:x")

    async def parts(self) -> AsyncIterator[bytes]:
        """Make a body, until it may end."""
        while not self.leave.is_set():
            yield b"part\n"
            await asyncio.sleep(0.02)
        self.done.append("stream")
        yield b"end\n"

    def parts_in_a_thread(self) -> Iterator[bytes]:
        """Make a body in a thread."""
        while not self.leave.is_set():
            yield b"part\n"
            time.sleep(0.02)
        self.done.append("stream_thread")


def by_aiohttp(here: Served, manager: LockManager) -> web.Application:
    """Make the application for aiohttp."""

    async def wait(_: web.Request) -> web.Response:
        await here.leave.wait()
        here.done.append("wait")
        return web.Response()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for part in here.parts():
            await response.write(part)
        await response.write_eof()
        return response

    async def socket(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        async for message in websocket:
            await websocket.send_str(message.data)
        return websocket

    app = web.Application()
    for_aiohttp.setup(app, manager)
    for handler in (wait, stream, socket):
        app.router.add_get(f"/{handler.__name__}", for_aiohttp.locked("x", **OPTIONS)(handler))
    return app


def by_fastapi(here: Served, manager: LockManager) -> FastAPI:
    """Make the application for FastAPI."""
    app = FastAPI()
    app.state.lock_manager = manager
    for_fastapi.add_exception_handlers(app)
    short = [for_fastapi.locked("x", **OPTIONS)]
    long = [for_fastapi.locked("x", scope="request", **OPTIONS)]

    @app.get("/wait", dependencies=short)
    async def wait() -> None:
        await here.leave.wait()
        here.done.append("wait")

    @app.get("/thread", dependencies=short)
    def thread() -> None:
        while not here.leave.is_set():
            time.sleep(0.01)
        here.done.append("thread")

    @app.get("/stream", dependencies=long)
    async def stream() -> StreamingResponse:
        return StreamingResponse(here.parts())

    @app.get("/stream_thread", dependencies=long)
    async def stream_thread() -> StreamingResponse:
        return StreamingResponse(here.parts_in_a_thread())

    @app.websocket("/socket", dependencies=short)
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(text)

    return app


async def dispatch(request: Any, call_next: Callable[..., Any]) -> Any:
    """Do nothing, in another task."""
    return await call_next(request)


@pytest.fixture(params=["aiohttp", "aiohttp, a sub-app", "fastapi", "fastapi, a middleware"])
async def here(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """Serve the application."""
    served, way = Served(), str(request.param)
    async with LockManager(served.nodes) as manager, served.stack:
        if way.startswith("fastapi"):
            served.paths = ("wait", "thread", "stream", "stream_thread")
            app = by_fastapi(served, manager)
            if "middleware" in way:
                app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
            served.port = await served.stack.enter_async_context(in_process(app))
        else:
            inner = by_aiohttp(served, manager)
            if "sub-app" in way:  # of an application with a manager of its own
                served.base, outer = "/inner", web.Application()
                for_aiohttp.setup(outer, [MemoryNode()])
                outer.add_subapp("/inner", inner)
                inner = outer
            served.port = (await served.stack.enter_async_context(serve(inner))).port
        served.base = f"http://127.0.0.1:{served.port}{served.base}"
        yield served


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """Give a client."""
    async with aiohttp.ClientSession() as session:
        yield session


async def test_a_client_that_vanishes(here: Served) -> None:
    """Its handler goes on to its end under the lock; a body is not made to its end; no key stays."""
    for path in here.paths:
        target = f"{here.base}/{path}".partition(str(here.port))[2]
        async with connection(here.port) as (reader, writer):
            writer.write(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            await here.inside()
            if "stream" in path:
                await reader.readuntil(b"part\n")
            await disconnect(writer)
        if "stream" not in path:
            await asyncio.sleep(0.1)
            assert (here.held, here.done) == (3, [])
            here.leave.set()
        await here.free()
        assert here.done == ([] if "stream" in path else [path])
        here.done.clear()
        here.leave.clear()


async def test_a_body_is_made_under_the_lock(here: Served, client: aiohttp.ClientSession) -> None:
    """The lock is held until its last byte, and the whole of it arrives."""
    async with client.get(f"{here.base}/stream") as response:
        await response.content.readline()
        assert here.held == 3
        here.leave.set()
        assert (await response.read()).endswith(b"end\n")
    await here.free()


async def test_a_body_that_loses_its_lock(
    here: Served, client: aiohttp.ClientSession, request: pytest.FixtureRequest
) -> None:
    """The connection is aborted: no client takes what it got for the whole body.

    But newer Starlette ends the body that failed under `BaseHTTPMiddleware`: there it is only cut short.
    """
    async with client.get(f"{here.base}/stream") as response:
        await response.content.readline()
        here.lose()
        with contextlib.suppress(aiohttp.ClientError):
            assert not (await response.read()).endswith(b"end\n")
            assert "middleware" in request.node.name, "the body looked complete"
    assert here.done == []


async def test_a_websocket(here: Served, client: aiohttp.ClientSession) -> None:
    """A second one gets an HTTP answer while the first is open; the end of the first frees the lock."""
    async with client.ws_connect(f"{here.base}/socket") as first:
        await first.send_str("hello")
        assert (await first.receive()).data == "hello"
        with pytest.raises(aiohttp.WSServerHandshakeError) as denied:
            await client.ws_connect(f"{here.base}/socket")
        assert denied.value.status == 409
        assert denied.value.headers is not None
        assert denied.value.headers["Retry-After"] == "1"
        await asyncio.sleep(1.1)  # longer than its ttl
        assert here.held == 3
    await here.free()
    async with client.ws_connect(f"{here.base}/socket"):
        pass


@pytest.mark.parametrize("how", ["vanishes", "loses"])
async def test_a_websocket_that_ends(how: str, here: Served, client: aiohttp.ClientSession) -> None:
    """No key is left of a client that vanishes; when the lock is lost it is closed with "try again later"."""
    async with client.ws_connect(f"{here.base}/socket") as first:
        await first.send_str("hello")
        await first.receive()
        if how == "vanishes":
            first._response.connection.transport.abort()  # type: ignore[union-attr]  # as if it were killed
        else:
            here.lose()
            message = await first.receive()
            assert (message.type, message.data, message.extra) == (
                WSMsgType.CLOSE, 1013, "the lock was lost",
            )  # fmt: skip
        await here.free()


async def test_a_server_that_ends_lets_go(here: Served, client: aiohttp.ClientSession) -> None:
    """Requests that are inside are waited for, and no key is left."""
    request = asyncio.create_task(client.get(f"{here.base}/wait"))
    await here.inside()
    ending = asyncio.create_task(here.stack.aclose())
    await asyncio.sleep(0.1)
    here.leave.set()
    assert (await request).status == 200
    await ending
    assert here.held == 0
