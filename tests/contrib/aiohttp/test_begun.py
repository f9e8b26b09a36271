"""A lock that is lost when the response has begun: no client takes what it got for the whole."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from aioredlock_ng.contrib.aiohttp import locked
from tests.contrib.aiohttp.tools import NODES, app_with, connection, serve


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


# -- WebSockets ----------------------------------------------------------------------------------------
