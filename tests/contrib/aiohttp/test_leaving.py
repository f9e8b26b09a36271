"""Clients that vanish and applications that end leave no key on any node."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiohttp import web

from aioredlock_ng import LockManager
from aioredlock_ng.contrib.aiohttp import MANAGER, locked
from tests.behaviour.tools import keys, no_key_left, quiet
from tests.contrib.aiohttp.tools import Handler, app_with, connection, disconnect, serve
from tests.servers import Nodes, eventually


def app_for(handler: Handler, name: str, nodes: Nodes) -> web.Application:
    """Make an application with one handler under a lock."""
    return app_with(web.get("/{n}", locked(name)(handler.__call__)), nodes=nodes.urls, ttl=60)


REQUEST = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_client_that_vanishes_cancels_its_handler(shared_nodes: Nodes) -> None:
    """With `handler_cancellation` the handler ends with its client, and no node keeps the key."""
    handler = Handler()
    app = app_for(handler, "x:{n}", shared_nodes)
    async with quiet(), serve(app, handler_cancellation=True) as site:
        async with connection(site.port) as (_, writer):
            writer.write(REQUEST % 1)
            await handler.entered.wait()
            await eventually(lambda: len(keys(shared_nodes.urls)) == 5, what="the key is everywhere")
            await disconnect(writer)
            await no_key_left(shared_nodes.urls)
        assert [type(error) for error in handler.ended_by] == [asyncio.CancelledError]


@pytest.mark.parametrize("cancels", [True, False])
async def test_clients_that_vanish_while_they_wait(cancels: bool, shared_nodes: Nodes) -> None:
    """A request that waits for a lock and vanishes leaves nothing; those behind it get their turn."""
    handler = Handler()
    handler.leave.set()
    app = app_for(handler, "x", shared_nodes)
    async with (
        quiet(),
        serve(app, handler_cancellation=cancels) as site,
        LockManager(shared_nodes.urls) as other,
    ):
        async with other.lock("x"), contextlib.AsyncExitStack() as stack:
            writers = [(await stack.enter_async_context(connection(site.port)))[1] for _ in range(10)]
            for number, writer in enumerate(writers):
                writer.write(REQUEST % number)
            await eventually(lambda: app[MANAGER].statistics().waiting >= 10, what="all wait")
            for writer in writers:
                await disconnect(writer)
            if cancels:
                await eventually(lambda: app[MANAGER].statistics().waiting == 0, what="no request waits")
        assert (await site.get("/99"))[0] == 200
        if cancels:
            assert handler.ended_by == [None], "only the last client was served"
        else:
            await eventually(lambda: len(handler.ended_by) == 11, what="every handler has ended")
        await no_key_left(shared_nodes.urls)


@pytest.mark.parametrize("cancels", [True, False])
async def test_an_application_that_ends_with_stuck_handlers(cancels: bool, shared_nodes: Nodes) -> None:
    """Handlers that do not end in time are cancelled, and their locks go with the application."""
    handler = Handler()
    app = app_for(handler, "x:{n}", shared_nodes)
    async with quiet():
        async with contextlib.AsyncExitStack() as stack:
            site = await stack.enter_async_context(
                serve(app, shutdown_timeout=0.1, handler_cancellation=cancels)
            )
            for number in (1, 2, 2):  # two inside, and one that waits
                _, writer = await stack.enter_async_context(connection(site.port))
                writer.write(REQUEST % number)
            await eventually(lambda: app[MANAGER].statistics().held == 2, what="two are inside")
            await eventually(lambda: app[MANAGER].statistics().waiting == 1, what="one waits")
            await site.runner.cleanup()
            assert keys(shared_nodes.urls) == {}
        assert [type(error) for error in handler.ended_by] == [asyncio.CancelledError] * 2
