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


OTHER_SITES: list[dict[str, str]] = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    *({"Origin": origin} for origin in ("http://[", "http://[::1", "://", "x", "http://")),
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": "multipart/form-data; boundary=x"},
]


async def test_another_site_cannot_release(client: aiohttp.ClientSession, prey: list[str]) -> None:
    """Even in a browser that is signed in, and that would send its cookie: cross-site request forgery.

    A link and an image are GET; other methods are none of the page's.  Nor are the nodes looked at.
    """
    assert await sign_in(client) == 204
    for headers in OTHER_SITES:
        async with client.post("/locks/release", json=RELEASE, headers=headers) as response:
            assert response.status == 403, headers
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        async with client.request(method, "/locks/release", json=RELEASE) as response:
            assert response.status in (404, 405)
    for other, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        async with client.get("/locks/events", headers={"Sec-Fetch-Site": other}) as response:
            assert response.status == status
    assert still_held(prey)
    async with client.post("/locks/release", json=RELEASE) as response:
        assert response.status == 200  # else the test would show nothing
    assert not still_held(prey)


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


SIGN_IN = b"POST /locks/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"

BODIES = {
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n2\r\n",
    "chunked, with a length": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n",
    "long": b"Content-Length: %d\r\n\r\n{" % (site.MAX_BODY + 1),
    "very long": b"Content-Length: 99999999999999999999\r\n\r\n{",
    "none": b"\r\n",
    "one that does not come": b"Content-Length: 99\r\n\r\n{",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_body_without_a_known_end_is_not_read(
    body: bytes, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None that it is sent before it is signed in fills the server's memory, or is waited for."""
    monkeypatch.setattr(site, "READ_TIME", 0.1)
    assert client._base_url is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
    try:
        writer.write(SIGN_IN + body)
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
