"""What a client gets when its request cannot have the lock, or loses it, before the response has begun."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from aioredlock_ng import ExtensionPolicy, LockLostError, LockManager, NodeState
from aioredlock_ng.contrib.aiohttp import LEASE, MANAGER, locked, setup
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import all_up, keys
from tests.contrib.aiohttp.tools import Handler, Site, connection, serve
from tests.servers import Nodes, ask, eventually

TAKEN = {"detail": "locked by another request"}
UNAVAILABLE = {"detail": "locking is unavailable"}
MISCONFIGURED = {"detail": "locking is unavailable: its nodes or names are misconfigured"}
LOST = {"detail": "the lock was lost"}


async def ok(request: web.Request) -> web.Response:
    """Answer."""
    return web.Response(text="done")


async def own_lock(request: web.Request) -> web.Response:
    """Take the lock without the decorator."""
    async with request.config_dict[MANAGER].lock("x", blocking=False):
        return web.Response(text="done")


DECORATED = locked("x", blocking=False)(ok)
BOTH = pytest.mark.parametrize("handler", [DECORATED, own_lock], ids=["locked", "async with"])
Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def site_with(
    urls: list[str], handler: Handle, **options: Any
) -> AsyncIterator[tuple[Site, web.Application]]:
    """Run a handler at ``/`` over real nodes."""
    app = web.Application()
    setup(app, urls, **options)
    app.router.add_get("/", handler)
    async with serve(app) as site:
        await all_up(app[MANAGER])
        yield site, app


@BOTH
async def test_taken(handler: Handle, shared_nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """409 while another request holds the lock, with the seconds until its keys expire; nothing is logged."""
    async with (
        LockManager(shared_nodes.urls) as other,
        site_with(shared_nodes.urls, handler) as (site, _),
        other.lock("x", ttl=7.9, extension=ExtensionPolicy.off()),
    ):
        status, body, retry_after = await site.get("/")
    assert (status, body) == (409, TAKEN)
    assert retry_after in ("8", "7"), "rounded up; some time has passed"
    assert not caplog.records


async def test_another_status(shared_nodes: Nodes) -> None:
    """`status_code` is what the client gets while that lock is taken; the handler's own locks say 409."""
    inside = locked("other", status_code=423, blocking=False)(own_lock)
    async with LockManager(shared_nodes.urls) as other, site_with(shared_nodes.urls, inside) as (site, _):
        assert (await site.get("/"))[0] == 200
        async with other.lock("other"):
            assert (await site.get("/"))[:2] == (423, TAKEN)
        async with other.lock("x"):
            assert (await site.get("/"))[:2] == (409, TAKEN)


async def test_waiting_ends(shared_nodes: Nodes) -> None:
    """409 when the lock is still taken after `blocking_timeout`; 200 when it was freed in time."""
    waiting = locked("x", blocking_timeout=0.3)(ok)
    async with LockManager(shared_nodes.urls) as other, site_with(shared_nodes.urls, waiting) as (site, _):
        async with other.lock("x"):
            assert (await site.get("/"))[:2] == (409, TAKEN)
        assert (await site.get("/"))[0] == 200


@BOTH
async def test_no_quorum(handler: Handle, nodes3: LocalNodes, caplog: pytest.LogCaptureFixture) -> None:
    """503 with Retry-After without a quorum; one warning has the route, the nodes and their reasons."""
    async with site_with(nodes3.urls, handler) as (site, _):
        nodes3.kill(0)
        nodes3.pause(1)
        caplog.clear()
        assert await site.get("/") == (503, UNAVAILABLE, "1")
        nodes3.resume(1)
    (record,) = [record for record in caplog.records if "GET /" in record.message]
    assert (record.name, record.levelno) == ("aioredlock_ng", logging.WARNING)
    assert str(nodes3.ports[0]) in record.message
    assert record.__dict__["lock"] == "x"


@BOTH
async def test_quarantined(handler: Handle, nodes3: LocalNodes, caplog: pytest.LogCaptureFixture) -> None:
    """503, too, while a majority has no vote because it has lost its memory; the warning says so."""
    async with site_with(nodes3.urls, handler, restart_quarantine=60) as (site, app):
        for url in nodes3.urls[:2]:
            ask(url, "FLUSHALL")

        def states() -> list[NodeState]:
            return [node.state for node in app[MANAGER].statistics().nodes]

        await eventually(lambda: states().count(NodeState.QUARANTINED) == 2, what="the loss is noticed")
        status, body, retry_after = await site.get("/")
        assert (status, retry_after is not None and 1 < int(retry_after) <= 61) == (503, True)
        why = "nodes may have forgotten locks (restart quarantine)"
        assert body == {"detail": f"locking is unavailable for another {retry_after} s: {why}"}
    (record,) = [record for record in caplog.records if "GET /" in record.message]
    assert record.message.count("restart quarantine") == 2


@BOTH
async def test_misconfigured(handler: Handle, nodes3: LocalNodes, caplog: pytest.LogCaptureFixture) -> None:
    """503 when a node belongs to another quorum: the reason for the client, the whole of it in the log."""
    async with site_with(nodes3.urls, handler) as (site, app):
        other = LockManager(nodes3.urls[:1], holder="an operator")
        async with contextlib.aclosing(other):
            await other.init(force=True)
        await eventually(lambda: app[MANAGER].statistics().conflict is not None, what="it is noticed")
        caplog.clear()
        assert await site.get("/") == (503, MISCONFIGURED, None)
    (record,) = [record for record in caplog.records if "GET /" in record.message]
    assert f"node {nodes3.urls[0]}: it belongs to a quorum of 1 node, here are 3 configured" in record.message
    assert "stated by `init` of an operator at 20" in record.message


@BOTH
async def test_something_else(handler: Handle, nodes3: LocalNodes, caplog: pytest.LogCaptureFixture) -> None:
    """503 where another program has the name, too; what it is stands in the log alone."""
    async with site_with(nodes3.urls, handler) as (site, _):
        for url in nodes3.urls[:2]:
            ask(url, "HSET", "redlock:x", "field", "value")
        assert await site.get("/") == (503, MISCONFIGURED, None)
    (record,) = [record for record in caplog.records if "GET /" in record.message]
    assert "holds a hash, of a semaphore or of another program" in record.message


async def test_nothing_but_the_detail_is_told(nodes3: LocalNodes) -> None:
    """Neither nodes nor holders nor names are in an answer, wherever one looks."""
    async with (
        LockManager(nodes3.urls, holder="the-other-one") as other,
        site_with(nodes3.urls, DECORATED) as (site, _),
        connection(site.port) as (reader, writer),
        other.lock("x"),
    ):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 409 Conflict\r\n")
    assert body == b'{"detail": "locked by another request"}'
    names = {line.partition(b":")[0] for line in head.split(b"\r\n")[1:]}
    assert names == {b"Content-Type", b"Content-Length", b"Retry-After", b"Date", b"Server", b"Connection"}
    assert b"the-other-one" not in answer
    assert not any(str(port).encode() in answer for port in nodes3.ports)


async def test_after_100_continue(shared_nodes: Nodes) -> None:
    """A request that was told to go on with its body still gets a whole answer."""
    app = web.Application()
    setup(app, shared_nodes.urls)
    app.router.add_post("/", DECORATED)
    async with serve(app) as site, LockManager(shared_nodes.urls) as other, other.lock("x"):
        response = await site.client.post("/", data=b"body", expect100=True)
        assert (response.status, await response.json()) == (409, TAKEN)


@pytest.mark.parametrize("how", ["locked", "async with"])
async def test_lost(how: str, shared_nodes: Nodes) -> None:
    """A loss cancels the handler, and the client gets 503."""
    handler = Handler()

    async def own(request: web.Request) -> web.StreamResponse:
        async with request.config_dict[MANAGER].lock("x"):
            return await handler(request)

    under_lock = locked("x")(handler.__call__) if how == "locked" else own
    async with site_with(shared_nodes.urls, under_lock, ttl=1.0) as (site, _):
        answer = asyncio.create_task(site.get("/"))
        await handler.entered.wait()
        for url in shared_nodes.urls[:3]:
            ask(url, "DEL", "redlock:x")
        assert await answer == (503, LOST, "1")
    assert [type(error) for error in handler.ended_by] == [asyncio.CancelledError]
    assert keys(shared_nodes.urls) == {}


async def test_lost_without_cancelling(shared_nodes: Nodes) -> None:
    """With ``on_lost="raise"`` the handler goes on, and its answer is not the one that the client gets."""
    handler = Handler()
    under_lock = locked("x", on_lost="raise")(handler.__call__)
    async with site_with(shared_nodes.urls, under_lock, ttl=0.5) as (site, app):
        answer = asyncio.create_task(site.get("/"))
        await handler.entered.wait()
        for url in shared_nodes.urls:
            ask(url, "DEL", "redlock:x")
        await eventually(lambda: app[MANAGER].statistics().lost == 1)
        handler.leave.set()
        assert await answer == (503, LOST, "1")
    assert handler.ended_by == [None]


async def test_a_lost_lock_that_the_handler_notices(shared_nodes: Nodes) -> None:
    """`lease.check()` in a handler ends in the same 503."""

    @locked("x", extension=ExtensionPolicy.off(), on_lost="raise", ttl=0.3)
    async def handle(request: web.Request) -> web.Response:
        lease = request[LEASE]
        await eventually(lambda: not lease.held)
        with pytest.raises(LockLostError):
            lease.check()
        lease.check()
        raise AssertionError("goes on without the lock")

    async with site_with(shared_nodes.urls, handle) as (site, _):
        assert await site.get("/") == (503, LOST, "1")


@BOTH
async def test_closed_manager(handler: Handle, shared_nodes: Nodes) -> None:
    """503 once the manager is closed."""
    async with site_with(shared_nodes.urls, handler) as (site, app):
        await app[MANAGER].aclose()
        assert await site.get("/") == (503, UNAVAILABLE, "1")


async def test_a_deadlock_is_a_bug(shared_nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """A handler that waits for its own lock is no client's fault: 500, and a traceback in the log."""

    @locked("x")
    async def handle(request: web.Request) -> web.Response:
        async with request.config_dict[MANAGER].lock("x"):
            raise AssertionError("locks are not reentrant")

    async with site_with(shared_nodes.urls, handle) as (site, _):
        assert (await site.get("/"))[0] == 500
    assert "WouldDeadlockError" in caplog.text


async def test_errors_of_the_handler(shared_nodes: Nodes) -> None:
    """What a handler raises is not touched: its own answers and its bugs."""

    @locked("x")
    async def handle(request: web.Request) -> web.Response:
        raise web.HTTPNotFound if "missing" in request.query else ZeroDivisionError

    async with site_with(shared_nodes.urls, handle) as (site, _):
        assert (await site.get("/?missing"))[0] == 404
        assert (await site.get("/"))[0] == 500
    assert keys(shared_nodes.urls) == {}


async def test_middlewares_see_an_exception(shared_nodes: Nodes) -> None:
    """A middleware that rolls back on exceptions does, and sees which answer it is and why."""
    seen: list[Any] = []

    @web.middleware
    async def transaction(request: web.Request, handler: Handle) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            seen.append((error.status, type(error.__cause__).__name__))
            raise
        seen.append("commit")
        return response

    app = web.Application(middlewares=[transaction])
    setup(app, shared_nodes.urls)
    app.router.add_get("/", DECORATED)
    async with serve(app) as site:
        assert (await site.get("/"))[0] == 200
        async with app[MANAGER].lock("x"):
            assert (await site.get("/"))[0] == 409
    assert seen == ["commit", (409, "LockTakenError")]
