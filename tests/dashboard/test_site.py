"""The page in users' applications, over real nodes: it shows, asks for a token, and releases."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
from collections.abc import MutableMapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from fastapi import FastAPI

from aioredlock_ng import LockManager, ReleaseOutcome
from aioredlock_ng._dashboard import feed
from aioredlock_ng._dashboard.site import PageResponse, Site
from aioredlock_ng.contrib.aiohttp import _page as aiohttp_page
from aioredlock_ng.contrib.aiohttp import add_locks_page
from aioredlock_ng.contrib.fastapi import _page as fastapi_page
from aioredlock_ng.contrib.fastapi import locks_router
from tests.dashboard.reading import Page
from tests.dashboard.serving import EACH, FRAMEWORKS, TOKEN, jar, sign_in
from tests.servers import ask, eventually

NOTHING = {"state": "held", "holder": None, "since": None, "readers": [], "permits": []}
"""Another program's key, as a dialog shows it."""


@pytest.fixture
async def manager(shared_nodes):
    """Open a manager over real nodes."""
    async with LockManager(shared_nodes.urls, holder="the shop") as manager:
        yield manager


@pytest.fixture(params=EACH)
def framework(request):
    """Give the name of each framework."""
    return str(request.param)


@pytest.fixture
def browse(manager, request):
    """Give a function that serves the page, by each framework the test asks for, and opens a browser."""
    names = request.fixturenames
    name = request.getfixturevalue("framework") if "framework" in names else "aiohttp"

    @contextlib.asynccontextmanager
    async def open_browser(*, signed_in=False, **options):
        async with (
            FRAMEWORKS[name](manager, **options) as url,
            aiohttp.ClientSession(url, cookie_jar=jar()) as client,
        ):
            if signed_in:
                assert await sign_in(client) == 204
            yield client

    return open_browser


async def send(client: aiohttp.ClientSession, what: str, body: Any = None) -> tuple[int, Any]:
    """Get a file of the page, or post to it; return the status and what JSON there is."""
    asked = client.get(f"/locks/{what}") if body is None else client.post(f"/locks/{what}", json=body)
    async with asked as response:
        is_json = response.content_type == "application/json"
        return response.status, await response.json() if is_json else None


async def listen(client: aiohttp.ClientSession, looks: int, lock: str | None = None) -> Page:
    """Open a stream and read some looks of it."""
    page = Page()
    params = {} if lock is None else {"lock": lock}
    async with client.get("/locks/events", params=params) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        assert response.headers["X-Accel-Buffering"] == "no"
        while looks:
            text = (await response.content.readuntil(b"\n\n")).decode()
            page.hear(text)
            looks -= "\nid: " in text
    return page


async def shown(client: aiohttp.ClientSession, name: str) -> dict[str, Any]:
    """Return what a dialog that shows this lock sends to have it released."""
    lock = (await listen(client, 1, f'"{name}"')).lock
    return {
        "name": name,
        **{key: lock[key] for key in ("state", "holder", "since")},
        "readers": [[each["holder"], each["since"]] for each in lock["readers"]],
        "permits": [[each["holder"], each["since"]] for each in lock["permits"]],
    }


async def test_the_page_is_there(framework, browse):
    """Its files with their types, under a path with a slash at its end; nothing else of the folder is.

    A probe may ask by HEAD: the headers of what GET would give, without a body; of a stream there is none.
    """
    async with browse() as client:
        async with client.get("/locks") as response:
            assert (response.status, response.url.path) == (200, "/locks/")
            assert response.content_type == "text/html"
            assert "<!doctype html>" in await response.text()
        for file, kind in [("app.js", "text/javascript"), ("style.css", "text/css")]:
            async with client.get(f"/locks/{file}") as response:
                assert (response.status, response.content_type) == (200, kind)
        for wrong in ("nothing.js", "%2e%2e%2f__init__.py", "..%2faccess.py", "static", "%00"):
            async with client.get(aiohttp.client.URL(f"/locks/{wrong}", encoded=True)) as response:
                assert response.status in (400, 404), wrong
        session = {"signed_in": True, "needs_token": False, "may_release": False}
        assert await send(client, "session") == (200, session)
        for file, status in [("", 200), ("app.js", 200), ("session", 200), ("gone", 404), ("events", 404)]:
            async with client.head(f"/locks/{file}") as response:
                assert response.status == status
                assert response.headers["X-Frame-Options"] == "DENY"
                assert await response.read() == b""


async def test_nodes_and_locks_are_shown_live(framework, browse, manager):
    """The locks, their holders, the counters of the process itself, and one lock as it is followed."""
    async with browse(interval=0.2) as client:
        async with manager.lock("orders"):
            page = await listen(client, 2, '"orders"')
        assert page.events[:2] == ["state", "lock"]
        assert page.locks["orders"]["holder"] == "the shop"
        assert [node["state"] for node in page.head["nodes"]] == ["up"] * len(page.head["nodes"])
        assert page.head["manager"]["held"] == 1
        assert page.lock["held_by"] >= 3  # of five: on a busy machine a node may be late
        assert page.happened[0]["what"] == "held"
        assert not (await listen(client, 3)).locks


async def test_a_token_opens_the_page(framework, browse):
    """Nothing of nodes and locks is shown before; the files of the page are no secret.

    Signing out closes what other windows of the browser see.
    """
    async with browse(token=TOKEN, interval=0.2) as client:
        assert (await send(client, ""))[0] == 200
        assert await send(client, "events") == (401, {"detail": "sign in first"})
        session = {"signed_in": False, "needs_token": True, "may_release": False}
        assert await send(client, "session") == (200, session)
        assert await sign_in(client, "wrong") == 401
        assert await sign_in(client) == 204
        assert (await listen(client, 1)).head["up"]
        async with client.get("/locks/events") as stream:
            await stream.content.readuntil(b"\n\n")
            assert (await send(client, "sign-out", {}))[0] == 204
            page = Page()
            page.hear((await stream.content.read()).decode())
        assert page.events[-1] == "signed-out"
        assert (await send(client, "events"))[0] == 401


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
async def test_the_cookie_is_for_https_alone_behind_a_proxy(framework, browse, trusts, headers, secure):
    """Where the proxy says so that is trusted; what others say of themselves counts for nothing."""
    async with browse(token=TOKEN, trust_proxy=trusts) as client:
        headers |= {"Host": "127.0.0.1"}
        async with client.post("/locks/sign-in", json={"token": TOKEN}, headers=headers) as response:
            assert response.status == 204
            assert ("Secure" in response.headers["Set-Cookie"]) is secure


async def test_a_lock_is_released_as_it_was_shown(framework, browse, manager, caplog):
    """On all nodes, and the log says from where; a lock that is free, or another's now, is left alone.

    So are permits that were not shown, as by ``aioredlock-ng release``.
    """
    async with browse(signed_in=True, token=TOKEN, allow_release=True) as client:
        lease = await manager.lock("stuck", ttl=30).acquire()
        request = await shown(client, "stuck")
        status, answer = await send(client, "release", {**request, "holder": "another"})
        assert (status, answer["lock"]["holder"]) == (409, "the shop")
        with caplog.at_level(logging.WARNING, "aioredlock_ng"):
            status, answer = await send(client, "release", request)
            assert (status, answer) == (
                200,
                {"deleted": answer["nodes"], "nodes": answer["nodes"], "left": []},
            )
        (record,) = [each for each in caplog.records if "dashboard" in each.message]
        assert "'stuck', held by 'the shop', was released from the dashboard by 127.0.0.1" in record.message
        assert record.lock == "stuck"
        status, answer = await send(client, "release", request)
        assert (status, answer["detail"]) == (409, "the lock is free: nothing was changed")
        report = await lease.release()
        assert report.count(ReleaseOutcome.NOT_HELD) == len(report.nodes)
        pool = manager.semaphore("gpu", permits=3)
        async with pool:
            request = await shown(client, "gpu")
            assert len(request["permits"]) == 1
            async with pool:
                assert (await send(client, "release", request))[0] == 409
            assert (await send(client, "release", request))[0] == 200


async def test_releasing_must_be_allowed(framework, browse):
    """Being signed in is not enough; and without signing in nothing is."""
    async with browse(token=TOKEN) as client:
        assert (await send(client, "release", {"name": "a", **NOTHING}))[0] == 401
        await sign_in(client)
        status, answer = await send(client, "release", {"name": "a", **NOTHING})
        assert status == 403
        assert "--allow-release" in answer["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b"null", b"{}", b'{"name": 1}', b"[" * 60_000, b"x" * 600_000,
        *(
            json.dumps({"name": "a", **NOTHING, key: value}).encode()
            for key, value in [("holder", 3), ("readers", [3]), ("permits", [[0]]), ("readers", None)]
        ),
    ],
    ids=lambda body: repr(body[:40]) + str(len(body)),
)  # fmt: skip
async def test_a_release_that_says_nothing_is_refused(body, browse):
    """Whatever is sent, and however much: the answer says what was expected."""
    async with browse(signed_in=True, token=TOKEN, allow_release=True) as client:
        headers = {"Content-Type": "application/json"}
        async with client.post("/locks/release", data=body, headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["detail"]


async def test_a_name_of_another_program_is_no_lock(browse, shared_nodes):
    """Its key is shown, and not deleted: no lock of this library can have such a name."""
    for url in shared_nodes.urls:
        ask(url, "SET", b"redlock:\xff", "x")  # type: ignore[arg-type]
    async with browse(signed_in=True, token=TOKEN, allow_release=True) as client:
        page = await listen(client, 1, '"\\udcff"')
        assert list(page.locks) == ["\udcff"]
        assert (await send(client, "release", {"name": "\udcff", **NOTHING}))[0] == 422
    assert all(ask(url, "EXISTS", b"redlock:\xff") for url in shared_nodes.urls)  # type: ignore[arg-type]


async def test_a_server_that_stops_does_not_wait_for_pages(framework, manager, monkeypatch):
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


async def test_a_page_too_many_is_refused(framework, browse, monkeypatch):
    """And leaves nothing behind that would complain later."""
    monkeypatch.setattr(feed, "MAX_STREAMS", 1)
    async with browse() as client:
        async with client.get("/locks/events"):
            assert await send(client, "events") == (503, {"detail": "1 pages are open: close one"})
        gc.collect()


async def test_a_browser_that_takes_nothing_is_cut_off(manager, monkeypatch):
    """With what it does not take, which would else stay in the server for as long as it likes."""
    much = ": nothing\n" * 3_000_000
    sent: list[str] = []
    monkeypatch.setattr(aiohttp_page, "WRITE_TIME", 0.2)
    monkeypatch.setattr(Site, "_events", lambda *_: PageResponse(events=Endless(sent, much)))  # type: ignore[arg-type]
    async with FRAMEWORKS["aiohttp"](manager) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /locks/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await eventually(lambda: sent == ["closed"], what="the stream is closed")
        assert len(await reader.read()) < len(much)
        writer.close()


class Endless:
    """A stream that always has more, or never anything."""

    def __init__(self, sent: list[str], text: str | None = "much") -> None:
        self.sent, self.text = sent, text

    async def next(self) -> str:
        """Return what comes next; None: nothing ever does."""
        if self.text is None:
            await asyncio.Event().wait()
        return self.text or ""

    def close(self) -> None:
        """Note that."""
        self.sent.append("closed")


async def never() -> MutableMapping[str, Any]:
    """Receive nothing."""
    await asyncio.Event().wait()
    raise AssertionError


async def disconnected() -> MutableMapping[str, Any]:
    """Receive that the browser has gone."""
    return {"type": "http.disconnect"}


async def test_a_stream_ends_when_it_is_not_read_or_its_browser_has_gone(monkeypatch):
    """ASGI servers have no end of an answer sent before the browser has taken the rest: not for ever.

    When it has gone they take what is sent, and say nothing: that is heard from what they receive.
    """
    monkeypatch.setattr(fastapi_page, "STREAM_TIME", 0.1)
    monkeypatch.setattr(fastapi_page, "WRITE_TIME", 0.1)
    sent: list[str] = []

    async def take(message):
        pass

    async def send(message):
        sent.append("body" if "body" in message else "start")
        if "body" in message:
            await asyncio.Event().wait()

    async with asyncio.timeout(5):
        await fastapi_page._StreamResponse({}, Endless(sent))({}, never, send)  # type: ignore[arg-type]
        assert sorted(sent) == ["body", "body", "closed", "start"]
        sent.clear()
        await fastapi_page._StreamResponse({}, Endless(sent, None))({}, disconnected, take)  # type: ignore[arg-type]
    assert sent == ["closed"]


async def test_a_fastapi_application_that_runs_again_shows_what_its_manager_sees(shared_nodes):
    """That of the run before is closed."""
    app, sent = FastAPI(), bytearray()
    app.include_router(locks_router(), prefix="/locks")

    async def send(message):
        sent.extend(message.get("body", b""))
        if b"\nid: " in sent:
            raise ConnectionResetError

    scope = {"type": "http", "method": "GET", "path": "/locks/events", "query_string": b"", "headers": []}
    for holder in ("first", "second"):
        page = Page()
        sent.clear()
        async with LockManager(shared_nodes.urls, holder=holder) as manager, manager.lock("a"):
            app.state.lock_manager = manager
            await asyncio.wait_for(app(scope, never, send), 10)
        page.hear(sent.decode())
        assert (page.locks["a"]["holder"], page.problem) == (holder, None)


async def test_a_request_that_breaks_off_is_no_error(manager, caplog):
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
def test_bad_options_fail_where_they_are_written(options, error):
    """Before anything is served."""
    with pytest.raises((TypeError, ValueError), match=error):
        add_locks_page(web.Application(), **options)
    with pytest.raises((TypeError, ValueError), match=error):
        locks_router(**options)


async def test_an_application_without_a_manager_does_not_start():
    """The error says what is missing."""
    app = web.Application()
    add_locks_page(app)
    runner = web.AppRunner(app)
    with pytest.raises(RuntimeError, match=r"call setup\(app, nodes\)"):
        await runner.setup()
    with pytest.raises(ValueError, match="path must begin with a slash, got 'locks'"):
        add_locks_page(app, "locks")
