"""A lock that is lost when the response has begun: no client takes what it got for the whole."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from aioredlock_ng.contrib.aiohttp import LEASE, MANAGER, locked
from tests.contrib.aiohttp.tools import NODES, app_with, connection, serve
from tests.servers import eventually


@locked("x", ttl=1)
async def stream(request: web.Request) -> web.StreamResponse:
    """Begin a body, and lose the lock."""
    response = web.StreamResponse()
    if "length" in request.query:
        response.content_length = int(request.query["length"])
    await response.prepare(request)
    if "silent" not in request.query:
        await response.write(b"begun")
    for node in request.config_dict[NODES]:
        node.delete(b"redlock:x")
    await asyncio.sleep(3600)
    return response


@pytest.mark.parametrize("query", ["", "?silent", "?length=5", "?length=500"])
async def test_a_stream_is_cut_off(query: str) -> None:
    """The client's read of the body fails, whether it is chunked, empty so far, or of known length."""
    async with serve(app_with(web.get("/", stream))) as site, site.client.get(f"/{query}") as response:
        assert response.status == 200
        if query == "?length=5":
            assert await response.read() == b"begun"  # all that was promised has been sent
        else:
            with pytest.raises(aiohttp.ClientError):
                await response.read()


@pytest.mark.parametrize("protocol", [b"HTTP/1.0", b"HTTP/1.1"])
async def test_a_connection_is_reset(protocol: bytes) -> None:
    """With HTTP/1.0 only that tells a cut body from a whole one; nothing of a 503 is in the body."""
    async with serve(app_with(web.get("/", stream))) as site, connection(site.port) as (reader, writer):
        writer.write(b"GET / %b\r\nHost: x\r\n\r\n" % protocol)
        got = b""
        with pytest.raises(ConnectionResetError):  # noqa: PT012 (what came before counts)
            while byte := await reader.read(1):
                got += byte
    assert got.removesuffix(b"\r\n").endswith(b"begun")
    assert got.count(b"HTTP/1.") == 1


async def test_a_stream_is_under_the_lock_to_its_end() -> None:
    """The lock is held until the handler has written the last byte, and the whole body arrives."""

    @locked("x")
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(3):
            request[LEASE].check()
            await response.write(b"part ")
        await response.write_eof()
        assert request[LEASE].held
        return response

    app = app_with(web.get("/", handle))
    async with serve(app) as site:
        assert (await site.get("/"))[:2] == (200, "part part part ")
        assert app[MANAGER].statistics().held == 0


# -- WebSockets ----------------------------------------------------------------------------------------


@locked("socket", blocking=False, ttl=1)
async def echo(request: web.Request) -> web.WebSocketResponse:
    """Send back what comes."""
    websocket = web.WebSocketResponse()
    await websocket.prepare(request)
    async for message in websocket:
        await websocket.send_str(f"{message.data} {request[LEASE].held}")
    return websocket


async def test_a_websocket_holds_the_lock() -> None:
    """The lock is held while the handler runs; a second client gets 409 before any handshake."""
    app = app_with(web.get("/", echo))
    async with serve(app) as site:
        async with site.client.ws_connect("/") as websocket:
            await websocket.send_str("hello")
            assert (await websocket.receive()).data == "hello True"
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await site.client.ws_connect("/")
            assert refused.value.status == 409
            await eventually(lambda: app[MANAGER].statistics().extended > 0, what="an extension")
            await websocket.send_str("again")
            assert (await websocket.receive()).data == "again True"
        await eventually(lambda: app[MANAGER].statistics().held == 0, what="the lock is free")
        async with site.client.ws_connect("/"):
            pass


@pytest.mark.parametrize("where", ["app", "both apps"])
async def test_a_websocket_is_closed_when_the_lock_is_lost(where: str) -> None:
    """The client gets a close frame that says to try again later, and no reason but the loss."""
    app = inner = app_with(web.get("/", echo))
    if where == "both apps":
        app = app_with(web.get("/", stream))
        app.add_subapp("/inner", inner)
    async with (
        serve(app) as site,
        site.client.ws_connect("/inner/" if where == "both apps" else "/") as websocket,
    ):
        await websocket.send_str("hello")
        assert (await websocket.receive()).data == "hello True"
        for node in inner[NODES]:
            node.delete(b"redlock:socket")
        message = await websocket.receive()
        assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 1013, "the lock was lost")
