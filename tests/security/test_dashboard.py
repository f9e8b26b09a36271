"""The dashboard's page against other sites, other users of the network, and guesses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from aioredlock_ng import LockManager
from aioredlock_ng._dashboard import site
from aioredlock_ng._dashboard.access import MAX_WRONG
from tests.dashboard.serving import EACH, FRAMEWORKS, HOSTS, TOKEN, jar, sign_in
from tests.servers import Nodes, ask

RELEASE = {"name": "prey", "state": "held", "holder": None, "since": None, "readers": [], "permits": []}


@pytest.fixture(params=EACH)
async def client(request: pytest.FixtureRequest, shared_nodes: Nodes) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a browser's session with a page that releases locks."""
    async with (
        LockManager(shared_nodes.urls) as manager,
        FRAMEWORKS[request.param](manager, token=TOKEN, allow_release=True, hosts=HOSTS) as url,
        aiohttp.ClientSession(url, cookie_jar=jar()) as client,
    ):
        yield client


@pytest.fixture
def prey(shared_nodes: Nodes) -> list[str]:
    """Have another program hold a lock on all nodes, and return their URLs."""
    for url in shared_nodes.urls:
        ask(url, "SET", "redlock:prey", "x")
    return shared_nodes.urls


def still_held(urls: list[str]) -> bool:
    """Whether no node has been touched."""
    return all(ask(url, "EXISTS", "redlock:prey") for url in urls)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
    ],
    ids=str,
)
async def test_another_site_cannot_release(
    headers: dict[str, str], client: aiohttp.ClientSession, prey: list[str]
) -> None:
    """Even in a browser that is signed in, and that would send its cookie: cross-site request forgery."""
    assert await sign_in(client) == 204
    async with client.post("/locks/release", json=RELEASE, headers=headers) as response:
        assert response.status == 403
    assert still_held(prey)
    async with client.post("/locks/release", json=RELEASE) as response:
        assert response.status == 200  # else the test would show nothing
    assert not still_held(prey)


async def test_nothing_is_changed_by_following_a_link(client: aiohttp.ClientSession, prey: list[str]) -> None:
    """A link and an image are GET; other methods are none of the page's."""
    await sign_in(client)
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        async with client.request(method, "/locks/release", json=RELEASE) as response:
            assert response.status in (404, 405)
    assert still_held(prey)


async def test_another_name_for_this_address_is_not_answered(client: aiohttp.ClientSession) -> None:
    """DNS rebinding: a site that has its name lead here would have its scripts read the answers."""
    for path in ("/locks/", "/locks/session", "/locks/events", "/locks/app.js"):
        async with client.get(path, headers={"Host": "evil.example"}) as response:
            assert response.status == 421, path
            assert "redis" not in await response.text()
    async with client.post(
        "/locks/sign-in", json={"token": TOKEN}, headers={"Host": "evil.example"}
    ) as response:
        assert response.status == 421
    async with client.get("/locks/session", headers={"Host": "locks.example:8377"}) as response:
        assert response.status == 200


async def test_tokens_cannot_be_guessed(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Five in a minute; then not even the right one is looked at.  The log says from where."""
    for number in range(MAX_WRONG):
        assert await sign_in(client, f"guess number {number:09}") == 401
    async with client.post("/locks/sign-in", json={"token": TOKEN}) as response:
        assert response.status == 429
        assert 1 <= int(response.headers["Retry-After"]) <= 60
    assert caplog.text.count("a wrong token from 127.0.0.1") == MAX_WRONG
    assert "guess" not in caplog.text
    assert TOKEN not in caplog.text


async def test_the_cookie_is_the_pages_alone(client: aiohttp.ClientSession) -> None:
    """No script reads it, no other site sends it, no other path gets it; and it is not the token."""
    async with client.post("/locks/sign-in", json={"token": TOKEN}) as response:
        (cookie,) = response.headers.getall("Set-Cookie")
    name, *attributes = cookie.split("; ")
    assert set(attributes) == {"HttpOnly", "SameSite=Strict"}
    (kept,) = client.cookie_jar
    assert kept["path"] == "/locks"  # what a browser takes by itself, also where a proxy has put the page
    assert TOKEN not in cookie
    assert name.startswith(f"aioredlock_ng_{client._base_url.port}=")  # cookies know no ports


async def test_the_cookie_of_an_encrypted_page_stays_encrypted(client: aiohttp.ClientSession) -> None:
    """Also where a proxy before the server has the key: browsers say how they see the page."""
    origin = str(client._base_url).rstrip("/").replace("http:", "https:")
    async with client.post("/locks/sign-in", json={"token": TOKEN}, headers={"Origin": origin}) as response:
        assert response.status == 204
        assert response.headers["Set-Cookie"].endswith("; Secure")


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "://", "x", "http://"])
async def test_an_origin_that_is_none_is_another_site(origin: str, client: aiohttp.ClientSession) -> None:
    """It is no error of the server."""
    async with client.post("/locks/sign-in", json={"token": TOKEN}, headers={"Origin": origin}) as response:
        assert response.status == 403


async def test_another_site_cannot_have_the_nodes_looked_at(client: aiohttp.ClientSession) -> None:
    """Its scripts could not read a stream, but the server would keep it, and ask the nodes."""
    await sign_in(client)
    for other in ("cross-site", "same-site"):
        async with client.get("/locks/events", headers={"Sec-Fetch-Site": other}) as response:
            assert response.status == 403
    async with client.get("/locks/events", headers={"Sec-Fetch-Site": "same-origin"}) as response:
        assert response.status == 200


SIGN_IN = b"POST /locks/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n",
        b"Content-Length: %d\r\n\r\n{" % (site.MAX_BODY + 1),
        b"Content-Length: 99999999999999999999\r\n\r\n{",
        b"\r\n",
    ],
    ids=["chunked", "chunked, with a length", "long", "very long", "none"],
)
async def test_a_body_of_unknown_length_is_not_read(body: bytes, client: aiohttp.ClientSession) -> None:
    """It might have no end; none that it is sent before it is signed in fills the server's memory."""
    assert client._base_url is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
    try:
        writer.write(SIGN_IN + body)
        async with asyncio.timeout(5):
            assert b" 400 " in await reader.readline()
    finally:
        writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(
    client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it an error of the server when the connection ends in the middle of one."""
    monkeypatch.setattr(site, "READ_TIME", 0.1)
    assert client._base_url is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
    try:
        writer.write(SIGN_IN + b"Content-Length: 99\r\n\r\n{")
        async with asyncio.timeout(5):
            assert b" 400 " in await reader.readline()
    finally:
        writer.close()


async def test_every_answer_says_what_may_run(client: aiohttp.ClientSession) -> None:
    """Nothing but the page's own files; no frame around it; nothing is kept; errors included."""
    for path in ("/locks/", "/locks/app.js", "/locks/session", "/locks/events", "/locks/nothing"):
        async with client.get(path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == "no-store"
            assert "Access-Control-Allow-Origin" not in response.headers


async def test_secrets_stay_with_the_server(client: aiohttp.ClientSession, shared_nodes: Nodes) -> None:
    """Neither owner values nor passwords are in what is streamed."""
    await sign_in(client)
    async with LockManager(shared_nodes.urls) as manager, manager.lock("guarded"):
        owners = {ask(url, "GET", "redlock:guarded") for url in shared_nodes.urls}
        async with client.get("/locks/events", params={"lock": '"guarded"'}) as stream:
            said = b""
            while b"event: lock" not in said:
                said += await stream.content.readuntil(b"\n\n")
    assert b"guarded" in said
    for owner in owners:
        assert owner[:40] not in said
