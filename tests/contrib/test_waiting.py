"""Requests that wait for their lock: for how long, and what happens when the client leaves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import websockets
from aiohttp import web
from fastapi import FastAPI, Request, WebSocket

from aioredlock_ng import LockManager
from aioredlock_ng.contrib import _http, aiohttp, fastapi
from aioredlock_ng.contrib.fastapi._requests import READ_AHEAD
from aioredlock_ng.testing import MemoryNode
from tests.contrib.aiohttp.tools import app_with, connection, serve
from tests.contrib.fastapi.tools import new_app, scope_of, site
from tests.contrib.web import in_process
from tests.servers import eventually
from tests.unit.tasks import sim, virtual

WAIT = _http.LOOK_AFTER + 0.3
"""Seconds after which a server has noticed that a client left, and reads ahead."""


@contextlib.asynccontextmanager
async def on_fastapi(runs: list[bytes]) -> AsyncIterator[tuple[int, LockManager]]:
    """Serve an endpoint that reads its body itself, under a lock, by uvicorn."""
    app = new_app()

    @app.post("/", dependencies=[fastapi.locked("a")])
    async def endpoint(request: Request) -> int:
        runs.append(await request.body())
        return len(runs[-1])

    async with (
        LockManager([MemoryNode() for _ in range(3)]) as app.state.lock_manager,
        in_process(app) as port,
    ):
        yield port, app.state.lock_manager


@contextlib.asynccontextmanager
async def on_aiohttp(runs: list[bytes]) -> AsyncIterator[tuple[int, LockManager]]:
    """Serve the same by aiohttp."""

    @aiohttp.locked("a")
    async def handle(request: web.Request) -> web.Response:
        runs.append(await request.read())
        return web.Response(text=f"{len(runs[-1])}")

    app = app_with(web.post("/", handle))
    async with serve(app) as here:
        yield here.port, app[aiohttp.MANAGER]


@pytest.mark.parametrize("serving", [on_fastapi, on_aiohttp])
async def test_a_client_that_leaves_while_it_waits(serving: Any) -> None:
    """Its request gives up, before or after its body has come: the handler runs for the one that stayed."""
    runs: list[bytes] = []
    async with serving(runs) as (port, manager):
        async with manager.lock("a"):
            async with contextlib.AsyncExitStack() as leave:
                for body in (b"", b"half"):
                    _, writer = await leave.enter_async_context(connection(port))
                    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n" + 2 * body)
                    await writer.drain()
                await eventually(lambda: manager.statistics().waiting == 2, what="both wait")
            await eventually(lambda: manager.statistics().waiting == 0, what="both have given up")
        async with connection(port) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nstay")
            assert b" 200 " in await reader.readline()
    assert runs == [b"stay"]


@pytest.mark.parametrize("size", [10, READ_AHEAD * 4], ids=["small", "more than is read ahead"])
@pytest.mark.parametrize("serving", [on_fastapi, on_aiohttp])
async def test_the_body_of_a_request_that_has_waited(serving: Any, size: int) -> None:
    """The handler gets all of it, in order, though parts of it came before the lock was free."""
    runs: list[bytes] = []
    body = bytes(range(256)) * (size // 256) or bytes(size)
    async with serving(runs) as (port, manager), connection(port) as (reader, writer):
        async with manager.lock("a"):
            writer.write(
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + body[: size // 2]
            )
            await asyncio.sleep(WAIT)
            writer.write(body[size // 2 : -1])
            await asyncio.sleep(0.05)
        writer.write(body[-1:])
        assert b" 200 " in await reader.readline()
    assert runs == [body]


async def test_a_websocket_whose_client_leaves_while_it_waits() -> None:
    """It gives up, too; one that stays is accepted, and gets what its client sent meanwhile."""
    app, heard = new_app(), []

    @app.websocket("/", dependencies=[fastapi.locked("a")])
    async def endpoint(socket: WebSocket) -> None:
        await socket.accept()
        heard.append(await socket.receive_text())

    async with LockManager([MemoryNode() for _ in range(3)]) as manager, in_process(app) as port:
        app.state.lock_manager = manager
        async with manager.lock("a"):
            with pytest.raises(TimeoutError):
                await websockets.connect(f"ws://127.0.0.1:{port}/", open_timeout=0.1)
            staying = asyncio.ensure_future(websockets.connect(f"ws://127.0.0.1:{port}/"))
            await eventually(lambda: manager.statistics().waiting == 2, what="both wait")
            await eventually(lambda: manager.statistics().waiting == 1, what="one has given up")
            await asyncio.sleep(WAIT)
        socket = await staying
        await socket.send("hello")
        await eventually(lambda: heard == ["hello"], what="it is heard")
        await socket.close()


@virtual
async def test_what_is_read_ahead() -> None:
    """No more than is kept; never by two at once, which servers do not expect; and no part is lost."""
    app = new_app()

    @app.post("/", dependencies=[fastapi.locked("a")])
    async def endpoint(request: Request) -> None:
        inside.set()
        while (await request.receive())["more_body"]:
            read.append(parts)

    async def receive() -> dict[str, Any]:
        nonlocal reading, parts
        assert not reading
        reading, parts = True, parts + 1
        if parts == pause:  # as in a middleware that has taken a part: cancelled here, it would lose it
            await inside.wait()
        reading = False
        return {"type": "http.request", "body": bytes(size), "more_body": parts < 200}

    async def send(_: object) -> None: ...

    async with site(app) as here:
        for size, pause in ((10, 3), (READ_AHEAD // 8, 0)):
            inside, reading, parts, read = asyncio.Event(), False, 0, list[int]()
            here.world.occupy("a", 2)
            request = asyncio.create_task(app(scope_of("http", "/"), receive, send))
            await asyncio.sleep(1.5)
            assert parts == (pause or READ_AHEAD // size)
            await request
            assert len(read) == 199


@virtual
async def test_an_endpoint_that_does_not_read_its_body() -> None:
    """Nothing reads from its request when it has ended."""
    app, ended = new_app(), []

    @app.post("/", dependencies=[fastapi.locked("a")])
    async def endpoint() -> None: ...

    async def receive() -> None:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            ended.append(True)
            raise

    async def send(_: object) -> None: ...

    async with site(app) as here:
        here.world.occupy("a", 2)
        await app(scope_of("http", "/"), receive, send)
        await asyncio.sleep(0.01)
    assert ended


@virtual
async def test_an_error_while_the_body_is_read_ahead_is_the_endpoints() -> None:
    """Such as that of a middleware that limits bodies: the endpoint gets it where it reads."""
    app = new_app()

    @app.post("/", dependencies=[fastapi.locked("a")])
    async def endpoint(request: Request) -> str:
        with pytest.raises(ArithmeticError):
            await request.body()
        return "done"

    async def body() -> AsyncIterator[bytes]:
        yield b"begun"
        raise ArithmeticError

    async with site(app) as here:
        here.world.occupy("a", 2)
        assert (await here.post("/", content=body())).json() == "done"


@pytest.mark.parametrize("options", [{}, {"blocking_timeout": None}], ids=["by default", "without a limit"])
@virtual
async def test_how_long_a_request_waits(options: Any) -> None:
    """By default 20 s, so that a server that stops can end in time; None: until it has the lock."""
    app: FastAPI = new_app()

    @app.post("/", dependencies=[fastapi.locked("a", **options)])
    async def endpoint() -> None: ...

    async with site(app) as here:
        here.world.occupy("a", 60)
        began = sim().time()
        status = (await here.post("/")).status_code
        waited = sim().time() - began
        here.world.vacate("a")
    assert (status, round(waited)) == ((200, 60) if options else (409, 20))
