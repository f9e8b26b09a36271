"""The page in users' applications, over real nodes: it shows, asks for a token, and releases."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import aiohttp
import pytest
import starlette.requests
from aiohttp import web
from fastapi import FastAPI

from aioredlock_ng import LockManager, ReleaseOutcome
from aioredlock_ng._dashboard import feed
from aioredlock_ng._dashboard.access import MAX_WRONG, Access
from aioredlock_ng._dashboard.feed import Feed
from aioredlock_ng._dashboard.site import Answer, Request, Site
from aioredlock_ng.contrib.aiohttp import _page as aiohttp_page
from aioredlock_ng.contrib.aiohttp import add_locks_page
from aioredlock_ng.contrib.fastapi import _page as fastapi_page
from aioredlock_ng.contrib.fastapi import locks_router
from tests.dashboard.reading import Page
from tests.dashboard.serving import EACH, FRAMEWORKS, TOKEN, jar, sign_in
from tests.servers import Nodes, ask

each_framework = pytest.mark.parametrize("framework", EACH)


@pytest.fixture
async def manager(shared_nodes: Nodes) -> AsyncIterator[LockManager]:
    """Open a manager over three real nodes."""
    async with LockManager(shared_nodes.urls, holder="the shop") as manager:
        yield manager


async def listen(client: aiohttp.ClientSession, looks: int, lock: str | None = None) -> Page:
    """Open a stream and read so many looks of it."""
    page = Page()
    params = {} if lock is None else {"lock": lock}
    async with client.get("/locks/events", params=params) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        while looks:
            text = (await response.content.readuntil(b"\n\n")).decode()
            page.hear(text)
            looks -= "\nid: " in text
    return page


def shown(page: Page, name: str) -> dict[str, Any]:
    """Return what a dialog that shows this lock sends to have it released."""
    lock = page.lock
    return {
        "name": name,
        "state": lock["state"],
        "holder": lock["holder"],
        "since": lock["since"],
        "readers": [[each["holder"], each["since"]] for each in lock["readers"]],
        "permits": [[each["slot"], each["holder"], each["since"]] for each in lock["permits"]],
    }


@each_framework
async def test_the_page_is_there(framework: str, manager: LockManager) -> None:
    """Its files with their types, under a path with a slash at its end; nothing else of the folder is."""
    async with FRAMEWORKS[framework](manager) as url, aiohttp.ClientSession(url) as client:
        async with client.get("/locks") as response:
            assert response.status == 200
            assert response.url.path == "/locks/"
            assert response.content_type == "text/html"
            assert "<!doctype html>" in await response.text()
        for file, kind in [("app.js", "text/javascript"), ("style.css", "text/css")]:
            async with client.get(f"/locks/{file}") as response:
                assert (response.status, response.content_type) == (200, kind)
        for wrong in ("nothing.js", "%2e%2e%2f__init__.py", "..%2faccess.py", "static", "%00"):
            async with client.get(aiohttp.client.URL(f"{url}/locks/{wrong}", encoded=True)) as response:
                assert response.status in (400, 404), wrong
        async with client.get("/locks/session") as response:
            assert await response.json() == {"signed_in": True, "needs_token": False, "may_release": False}


@each_framework
async def test_nodes_and_locks_are_shown_live(framework: str, manager: LockManager) -> None:
    """What is held, by whom, what the process itself has counted, and one lock as it is followed."""
    async with FRAMEWORKS[framework](manager, interval=0.2) as url, aiohttp.ClientSession(url) as client:
        async with manager.lock("orders"):
            page = await listen(client, 2, '"orders"')
        assert page.events[:2] == ["state", "lock"]
        assert page.locks["orders"]["holder"] == "the shop"
        assert [node["state"] for node in page.head["nodes"]] == ["up"] * len(page.head["nodes"])
        assert page.head["manager"]["held"] == 1
        assert page.lock["held_by"] == len(page.lock["by_node"])
        assert page.happened[0]["what"] == "held"
        assert not (await listen(client, 3)).locks


@each_framework
async def test_a_token_opens_the_page(framework: str, manager: LockManager) -> None:
    """Nothing of nodes and locks is told before; the files of the page are no secret."""
    async with (
        FRAMEWORKS[framework](manager, token=TOKEN) as url,
        aiohttp.ClientSession(url, cookie_jar=jar()) as client,
    ):
        async with client.get("/locks/") as response:
            assert response.status == 200
        async with client.get("/locks/events") as response:
            assert (response.status, await response.json()) == (401, {"detail": "sign in first"})
        async with client.get("/locks/session") as response:
            assert await response.json() == {"signed_in": False, "needs_token": True, "may_release": False}
        assert await sign_in(client, "wrong") == 401
        assert await sign_in(client) == 204
        assert (await listen(client, 1)).head["up"]
        async with client.post("/locks/sign-out", json={}) as response:
            assert response.status == 204
        async with client.get("/locks/events") as response:
            assert response.status == 401


@each_framework
async def test_any_worker_knows_a_session(framework: str, manager: LockManager) -> None:
    """Two servers with the same token, as behind a balancer: what one has let in the other shows the page."""
    async with (
        FRAMEWORKS[framework](manager, token=TOKEN) as one,
        FRAMEWORKS[framework](manager, token=TOKEN) as two,
        aiohttp.ClientSession(cookie_jar=jar()) as client,
    ):
        balancer = {"Host": "127.0.0.1"}
        async with client.post(f"{one}/locks/sign-in", json={"token": TOKEN}, headers=balancer) as response:
            assert response.status == 204
            (cookie,) = response.headers.getall("Set-Cookie")
        for url in (one, two):
            headers = {**balancer, "Cookie": cookie.partition(";")[0]}
            async with client.get(f"{url}/locks/session", headers=headers) as response:
                assert (await response.json())["signed_in"] is True


@each_framework
async def test_a_probe_may_ask_by_head(framework: str, manager: LockManager) -> None:
    """As for any page: the headers of what GET would give, without a body; of a stream there is none."""
    async with FRAMEWORKS[framework](manager) as url, aiohttp.ClientSession(url) as client:
        for file, status in [("", 200), ("app.js", 200), ("session", 200), ("gone", 404), ("events", 404)]:
            async with client.head(f"/locks/{file}") as response:
                assert response.status == status
                assert response.headers["X-Frame-Options"] == "DENY"
                assert await response.read() == b""


@pytest.mark.parametrize(
    ("trusts", "headers", "secure"),
    [
        (True, {"X-Forwarded-Proto": "https"}, True),
        (True, {"X-Forwarded-Proto": "http, https"}, True),
        (True, {"X-Forwarded-Proto": "https, http"}, False),
        (True, {}, False),
        (False, {"X-Forwarded-Proto": "https"}, False),
        (False, {"Origin": "https://127.0.0.1"}, True),
    ],
)
@each_framework
async def test_the_cookie_is_for_https_alone_behind_a_proxy(
    framework: str, manager: LockManager, trusts: bool, headers: dict[str, str], secure: bool
) -> None:
    """Where the proxy says so that is trusted; what others say of themselves counts for nothing."""
    async with (
        FRAMEWORKS[framework](manager, token=TOKEN, trust_proxy=trusts) as url,
        aiohttp.ClientSession(url) as client,
    ):
        headers |= {"Host": "127.0.0.1"}
        async with client.post("/locks/sign-in", json={"token": TOKEN}, headers=headers) as response:
            assert response.status == 204
            assert ("Secure" in response.headers["Set-Cookie"]) is secure


async def test_a_wait_is_kept_to_its_last_second(manager: LockManager) -> None:
    """Wrong tokens make wait for a minute: no moment before is another token looked at (H82)."""
    now = 1000.0
    access = Access(token=TOKEN, may_release=False, hosts=None, clock=lambda: now)
    site = Site(manager, Feed(manager, interval=2.0, quarantine=None, counted=False), access)

    async def sign_in(token: str) -> Answer:
        text = json.dumps({"token": token}).encode()

        async def body() -> bytes:
            return text

        headers = {"content-type": "application/json", "content-length": str(len(text))}
        request = Request(
            method="POST", path="sign-in", headers=headers, query={}, address="a", body=body, https=False
        )
        return await site.answer(request)

    for _ in range(MAX_WRONG):
        assert (await sign_in("a wrong token, a long one")).status == 401
    for passed, wait in [(0.0, "60"), (58.5, "2"), (59.01, "1"), (59.99, "1")]:
        now = 1000.0 + passed
        answer = await sign_in(TOKEN)
        assert (answer.status, answer.headers["Retry-After"]) == (429, wait)
    now = 1060.0
    assert (await sign_in(TOKEN)).status == 204


@each_framework
async def test_a_stream_ends_with_its_session(framework: str, manager: LockManager) -> None:
    """Signing out closes what other windows of the browser see."""
    async with (
        FRAMEWORKS[framework](manager, token=TOKEN, interval=0.2) as url,
        aiohttp.ClientSession(url, cookie_jar=jar()) as client,
    ):
        await sign_in(client)
        async with client.get("/locks/events") as stream:
            await stream.content.readuntil(b"\n\n")
            async with client.post("/locks/sign-out", json={}) as response:
                assert response.status == 204
            page = Page()
            page.hear((await stream.content.read()).decode())
        assert page.events[-1] == "signed-out"


@each_framework
async def test_a_lock_is_released_as_it_was_shown(
    framework: str, manager: LockManager, caplog: pytest.LogCaptureFixture
) -> None:
    """On all nodes, and the log says from where; a lock that is free, or another's now, is left alone."""
    async with (
        FRAMEWORKS[framework](manager, token=TOKEN, allow_release=True) as url,
        aiohttp.ClientSession(url, cookie_jar=jar()) as client,
    ):
        await sign_in(client)
        lease = await manager.lock("stuck", ttl=30).acquire()
        request = shown(await listen(client, 1, '"stuck"'), "stuck")
        async with client.post("/locks/release", json={**request, "holder": "another"}) as response:
            assert response.status == 409
            answer = await response.json()
            assert answer["lock"]["holder"] == "the shop"
        with caplog.at_level(logging.WARNING, "aioredlock_ng"):
            async with client.post("/locks/release", json=request) as response:
                assert response.status == 200
                answer = await response.json()
                assert answer == {"deleted": answer["nodes"], "nodes": answer["nodes"], "left": []}
        (record,) = [each for each in caplog.records if "dashboard" in each.message]
        assert "'stuck', held by 'the shop', was released from the dashboard by 127.0.0.1" in record.message
        assert record.lock == "stuck"
        async with client.post("/locks/release", json=request) as response:
            assert response.status == 409
            assert (await response.json())["detail"] == "it is free: nothing was changed"
        report = await lease.release()
        assert report.count(ReleaseOutcome.NOT_HELD) == len(report.nodes)


@each_framework
async def test_permits_that_were_not_shown_are_left_alone(framework: str, manager: LockManager) -> None:
    """As `aioredlock-ng release` does."""
    async with (
        FRAMEWORKS[framework](manager, token=TOKEN, allow_release=True) as url,
        aiohttp.ClientSession(url, cookie_jar=jar()) as client,
    ):
        await sign_in(client)
        pool = manager.semaphore("gpu", permits=3)
        async with pool:
            request = shown(await listen(client, 1, '"gpu"'), "gpu")
            assert len(request["permits"]) == 1
            async with pool, client.post("/locks/release", json=request) as response:
                assert response.status == 409
            async with client.post("/locks/release", json=request) as response:
                assert response.status == 200


@each_framework
async def test_releasing_must_be_allowed(framework: str, manager: LockManager) -> None:
    """Being signed in is not enough; and without signing in nothing is."""
    request = {"name": "a", "state": "held", "holder": None, "since": None, "readers": [], "permits": []}
    async with (
        FRAMEWORKS[framework](manager, token=TOKEN) as url,
        aiohttp.ClientSession(url, cookie_jar=jar()) as client,
    ):
        async with client.post("/locks/release", json=request) as response:
            assert response.status == 401
        await sign_in(client)
        async with client.post("/locks/release", json=request) as response:
            assert response.status == 403
            assert "--allow-release" in (await response.json())["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b"null", b"{}", b'{"name": 1}', b"[" * 60_000,
        b'{"name": "a", "state": "held", "holder": 3, "since": null, "readers": [], "permits": []}',
        b'{"name": "a", "state": "held", "holder": null, "since": null, "readers": [3], "permits": []}',
        b'{"name": "a", "state": "held", "holder": null, "since": null, "readers": [], "permits": [[0]]}',
        b'{"name": "a", "state": "held", "holder": null, "since": null, "permits": []}',
        b"x" * 600_000,
    ],
    ids=lambda body: repr(body[:40]) + str(len(body)),
)  # fmt: skip
async def test_a_release_that_says_nothing_is_refused(body: bytes, manager: LockManager) -> None:
    """Whatever is sent, and however much: the answer says what was expected."""
    async with (
        FRAMEWORKS["aiohttp"](manager, token=TOKEN, allow_release=True) as url,
        aiohttp.ClientSession(url, cookie_jar=jar()) as client,
    ):
        await sign_in(client)
        headers = {"Content-Type": "application/json"}
        async with client.post("/locks/release", data=body, headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["detail"]


async def test_a_name_of_another_program_is_no_lock(manager: LockManager, shared_nodes: Nodes) -> None:
    """Its key is shown, and not deleted: no lock of this library can have such a name."""
    name = "\udcff"
    for url in shared_nodes.urls:
        ask(url, "SET", b"redlock:\xff", "x")  # type: ignore[arg-type]
    async with (
        FRAMEWORKS["aiohttp"](manager, token=TOKEN, allow_release=True) as url,
        aiohttp.ClientSession(url, cookie_jar=jar()) as client,
    ):
        await sign_in(client)
        page = await listen(client, 1, '"\\udcff"')
        assert list(page.locks) == [name]
        request = {"name": name, "state": "held", "holder": None, "since": None, "readers": [], "permits": []}
        async with client.post("/locks/release", json=request) as response:
            assert response.status == 422
    assert all(ask(url, "EXISTS", b"redlock:\xff") for url in shared_nodes.urls)  # type: ignore[arg-type]


@each_framework
async def test_a_server_that_stops_does_not_wait_for_pages(
    framework: str, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open page would else hold up a restart for as long as it is open.

    uvicorn tells no application that it is going to stop: there streams end by themselves, now and then.
    """
    monkeypatch.setattr(fastapi_page, "STREAM_TIME", 0.5)
    async with aiohttp.ClientSession() as client:
        async with FRAMEWORKS[framework](manager) as url:
            stream = await client.get(f"{url}/locks/events")
            await stream.content.readuntil(b"\n\n")
        await stream.content.read()
        stream.close()


@each_framework
async def test_a_page_too_many_is_told_so(
    framework: str, manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves nothing behind that would complain later."""
    monkeypatch.setattr(feed, "MAX_STREAMS", 1)
    async with FRAMEWORKS[framework](manager) as url, aiohttp.ClientSession(url) as client:
        async with client.get("/locks/events"), client.get("/locks/events") as response:
            assert (response.status, await response.json()) == (
                503,
                {"detail": "1 pages are open: close one"},
            )
        gc.collect()


async def test_a_browser_that_takes_nothing_is_cut_off(
    manager: LockManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it does not take, which would else stay in the server for as long as it likes."""
    much = ": nothing\n" * 3_000_000
    ended = asyncio.Event()

    class Endless:
        async def next(self) -> str:
            return much

        def close(self) -> None:
            ended.set()

    monkeypatch.setattr(aiohttp_page, "WRITE_TIME", 0.2)
    monkeypatch.setattr(Site, "_events", lambda *_: Answer(events=Endless()))  # type: ignore[arg-type]
    async with FRAMEWORKS["aiohttp"](manager) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /locks/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await ended.wait()
        assert len(await reader.read()) < len(much)
        writer.close()


async def test_a_stream_that_is_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """ASGI servers have no end of an answer sent before the browser has taken the rest: not for ever."""
    monkeypatch.setattr(fastapi_page, "STREAM_TIME", 0.1)
    monkeypatch.setattr(fastapi_page, "WRITE_TIME", 0.1)
    sent: list[str] = []
    closed: list[bool] = []

    class Endless:
        async def next(self) -> str:
            return "much"

        def close(self) -> None:
            closed.append("body" in sent)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append("body" if "body" in message else "start")
        if "body" in message:
            await asyncio.Event().wait()

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(5):
        await fastapi_page._Stream({}, Endless())({}, receive, send)  # type: ignore[arg-type]
    assert sent == ["start", "body", "body"]
    assert closed == [True]


async def test_a_stream_ends_when_its_browser_has_gone() -> None:
    """ASGI servers take what is sent then, and say nothing: it is heard from what they receive."""
    closed: list[bool] = []

    class Silent:
        async def next(self) -> str:
            await asyncio.Event().wait()
            raise AssertionError

        def close(self) -> None:
            closed.append(True)

    async def send(message: MutableMapping[str, Any]) -> None:
        pass

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async with asyncio.timeout(5):
        await fastapi_page._Stream({}, Silent())({}, receive, send)  # type: ignore[arg-type]
    assert closed == [True]


async def test_an_application_that_runs_again_shows_what_its_manager_sees(shared_nodes: Nodes) -> None:
    """That of the run before is closed."""
    router = locks_router()
    for holder in ("first", "second"):
        app = FastAPI()
        app.include_router(router, prefix="/locks")
        async with LockManager(shared_nodes.urls, holder=holder) as manager, manager.lock("a"):
            app.state.lock_manager = manager
            page = await first_look(app)
        assert (page.locks["a"]["holder"], page.problem) == (holder, None)


async def first_look(app: FastAPI) -> Page:
    """Open a stream, and leave when it has told of the first look."""
    told = bytearray()

    async def send(message: MutableMapping[str, Any]) -> None:
        told.extend(message.get("body", b""))

    async def receive() -> MutableMapping[str, Any]:
        while b"\nid: " not in told:
            await asyncio.sleep(0.001)
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/locks/events", "query_string": b"", "headers": []}
    async with asyncio.timeout(10):
        await app(scope, receive, send)
    page = Page()
    page.hear(told.decode())
    return page


async def test_a_request_that_breaks_off_is_no_error(
    manager: LockManager, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the server: its browser has gone."""
    head = b"POST /locks/release HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    async with FRAMEWORKS["aiohttp"](manager, token=TOKEN) as url:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(head + b"Content-Length: 99\r\n\r\n{")
            await writer.drain()
            async with aiohttp.ClientSession(url) as client, client.get("/locks/session"):
                writer.close()  # which the server hears of behind the half request
        async with aiohttp.ClientSession(url) as client, client.get("/locks/session"):
            pass
    assert not caplog.records


async def test_what_starlette_says_of_it_is_understood() -> None:
    """It has an exception of its own."""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [],
        "query_string": b"",
        "scheme": "http",
    }
    asked = fastapi_page._request(starlette.requests.Request(scope, receive), "release")
    with pytest.raises(ConnectionResetError):
        await asked.body()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"allow_release": True}, "releasing locks needs a token"),
        ({"token": "short"}, "at least 16 characters"),
        ({"interval": 0.1}, "interval must be 0.2 to 3600 seconds, got 0.1"),
        ({"interval": "2"}, "interval must be a number of seconds, got '2'"),
        ({"hosts": "localhost"}, "several names"),
        ({"hosts": ["locks.example:8377"]}, "names without ports, got 'locks.example:8377'"),
        ({"hosts": ["[::1]"]}, r"names without ports, got '\[::1\]'"),
        ({"hosts": [""]}, "names without ports, got ''"),
        ({"hosts": [1]}, "hosts must be names, got 1"),
        ({"token": b"correct horse battery staple"}, "token must be a str, got bytes$"),
        ({"manager": "redis://x"}, "manager must be a LockManager"),
    ],
)
def test_bad_options_fail_where_they_are_written(options: dict[str, Any], error: str) -> None:
    """Before anything is served."""
    with pytest.raises((TypeError, ValueError), match=error):
        add_locks_page(web.Application(), **options)
    with pytest.raises((TypeError, ValueError), match=error):
        locks_router(**options)


async def test_an_application_without_a_manager_does_not_start() -> None:
    """What is missing is said."""
    app = web.Application()
    add_locks_page(app)
    runner = web.AppRunner(app)
    with pytest.raises(RuntimeError, match=r"call setup\(app, nodes\)"):
        await runner.setup()
    with pytest.raises(ValueError, match="path must begin with a slash, got 'locks'"):
        add_locks_page(app, "locks")
