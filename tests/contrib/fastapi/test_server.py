"""A real server over real nodes: connections that break, bodies that stop, threads, WebSockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from tests.contrib.aiohttp.tools import connection, disconnect
from tests.contrib.web import WebServer, uvicorn
from tests.servers import Nodes, ask, eventually, fastest_arm, open_nodes


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Give 5 servers that are not emptied between tests: the application would have to notice first."""
    with open_nodes(fastest_arm(), 5) as five:
        yield five


@pytest.fixture(scope="module", params=["app", "with_middleware"])
def server(request: pytest.FixtureRequest, nodes: Nodes) -> Iterator[WebServer]:
    """Run the application, plain and under `BaseHTTPMiddleware`."""
    service = f"tests.contrib.fastapi.service:{request.param}"
    with uvicorn(service, env={"REDLOCK_URLS": ",".join(nodes.urls)}) as running:
        yield running


@pytest.fixture
async def client(server: WebServer) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of the application."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as one:
        yield one


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Give a lock name of the test's own."""
    return "".join(letter for letter in request.node.name if letter.isalnum())


def held(nodes: Nodes, name: str) -> int:
    """Say on how many nodes a lock is held."""
    return sum(ask(url, "EXISTS", f"redlock:{name}") for url in nodes.urls)


async def inside(nodes: Nodes, name: str) -> None:
    """Wait until the lock is held on every node."""
    await eventually(lambda: held(nodes, name) == 5, what="the lock is held")


async def free(nodes: Nodes, name: str) -> None:
    """Wait until no node has a key, for less time than the ttl would take."""
    await eventually(lambda: held(nodes, name) == 0, within=0.9, what="the lock is free")


def lose(nodes: Nodes, name: str) -> None:
    """Take the lock away."""
    for url in nodes.urls:
        ask(url, "DEL", f"redlock:{name}")


@contextlib.asynccontextmanager
async def leaving(server: WebServer, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """Send a request, and vanish at the end of the block as a client that is killed."""
    async with connection(server.port) as (reader, writer):
        writer.write(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())
        try:
            yield reader
        finally:
            await disconnect(writer)


@pytest.mark.parametrize(
    ("path", "whole"),
    [("wait", True), ("thread", True), ("stream", False), ("stream_thread", False)],
)
async def test_a_client_that_disconnects(
    *, path: str, whole: bool, server: WebServer, nodes: Nodes, client: httpx.AsyncClient, name: str
) -> None:
    """The endpoint ends, at the latest when it is done, and a body is not made to its end; no key stays."""
    query = "seconds=0.5" if whole else "parts=100&pause=0.1"
    async with leaving(server, f"/{path}/{name}?{query}") as reader:
        await inside(nodes, name)
        if not whole:
            await reader.readuntil(b"0\n")
    if whole:
        await eventually(lambda: held(nodes, name) == 0, what="the lock is free")
        assert (await client.post(f"/{path}/{name}")).status_code == 200
    else:
        await free(nodes, name)
        assert name not in (await client.get("/done")).json()


async def test_a_stream_that_loses_its_lock(
    server: WebServer, client: httpx.AsyncClient, nodes: Nodes, name: str
) -> None:
    """The connection is aborted: no client takes what it got for the whole body.

    But newer Starlette ends the body that failed under `BaseHTTPMiddleware`: there it is only cut short.
    """
    received = ""
    with contextlib.suppress(httpx.RemoteProtocolError):  # peer closed connection without a complete body
        async with client.stream("POST", f"/stream/{name}?parts=100&pause=0.1") as response:
            async for text in response.aiter_text():
                received += text
                lose(nodes, name)
        assert "with_middleware" in " ".join(map(str, server.process.args)), "the body looked complete"

    assert 0 < received.count("\n") < 50
    assert name not in httpx.get(f"{server.url}/done").json()
    assert "aioredlock_ng.errors.LockLostError" in server.output


async def test_a_websocket(server: WebServer, nodes: Nodes, name: str) -> None:
    """A second one is denied with an HTTP answer while the first is open; its end frees the lock."""
    url = f"{server.url.replace('http', 'ws')}/socket/{name}"
    async with connect(url) as first:
        await first.send("hello")
        assert await first.recv() == "hello"
        with pytest.raises(InvalidStatus) as denied:
            await connect(url)
        assert denied.value.response.status_code == 409
        assert denied.value.response.headers["Retry-After"] == "1"
        assert denied.value.response.body == b'{"detail":"locked by another request"}'
    await free(nodes, name)
    async with connect(url):
        pass


@pytest.mark.parametrize("how", ["vanishes", "loses"])
async def test_how_a_websocket_ends(how: str, server: WebServer, nodes: Nodes, name: str) -> None:
    """No key is left of a client that vanishes; when the lock is lost it is closed with "try again later"."""
    async with connect(f"{server.url.replace('http', 'ws')}/socket/{name}") as first:
        await first.send("hello")
        await first.recv()
        if how == "vanishes":
            first.transport.abort()
        else:
            lose(nodes, name)
            with pytest.raises(ConnectionClosedError) as closed:
                await first.recv()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1013, "the lock was lost")
    await free(nodes, name)


async def test_a_server_that_ends_lets_go(nodes3: Nodes) -> None:
    """SIGTERM: requests that are inside are waited for, and no key is left."""
    env = {"REDLOCK_URLS": ",".join(nodes3.urls)}
    with uvicorn("tests.contrib.fastapi.service:app", env=env) as one:
        async with httpx.AsyncClient(base_url=one.url) as client:
            request = asyncio.create_task(client.post("/wait/a?seconds=0.5"))
            await eventually(lambda: held(nodes3, "a") == 3)
            one.process.terminate()
            assert (await request).status_code == 200
        one.stop()
        assert held(nodes3, "a") == 0
        assert "Traceback" not in one.output
