"""The aiohttp integration as users write it.  Never run: ``mypy --strict`` reads it.

Each `assert_type` is a promise to type checkers; nothing here needs a cast or an ignore.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type

from aiohttp import web
from redis.asyncio import Redis

from aioredlock_ng import ExtensionPolicy, Lease, LockManager
from aioredlock_ng.contrib.aiohttp import LEASE, MANAGER, locked, setup
from aioredlock_ng.testing import MemoryNode

routes = web.RouteTableDef()


def set_up(app: web.Application, manager: LockManager) -> None:
    """Nodes, a manager, or the environment; and the options of a manager."""
    setup(app, ["redis://a", Redis(), MemoryNode()], ttl=5, holder="web-1")
    setup(app, manager)
    setup(app)
    assert_type(app[MANAGER], LockManager)


@routes.post("/orders/{order_id}")
@locked("order:{order_id}", ttl=15, blocking_timeout=timedelta(seconds=2), status_code=423, at_least=1)
async def plain(request: web.Request) -> web.Response:
    """A handler; the lease and the manager are typed."""
    assert_type((request[LEASE], request.config_dict[MANAGER]), tuple[Lease, LockManager])
    return web.Response()


def by_user(request: web.Request) -> str:
    """A key from the request."""
    return f"user:{request.query['user']}"


async def by_body(request: web.Request) -> str:
    """A key from the body."""
    return f"cart:{(await request.json())['user']}"


@locked(by_user, "b:{b}", by_body, extension=ExtensionPolicy.off(), on_lost="raise", label="user")
@locked(by_body, blocking=False, mode="read", reentrant=True)
@locked(lambda request: request.path, fair=True)
async def nested(request: web.Request) -> web.FileResponse:
    """Locks nest, and the kind of response stays."""
    return web.FileResponse("report.pdf")


handler: Callable[[web.Request], Coroutine[Any, Any, web.FileResponse]] = nested


async def call_them(request: web.Request) -> None:
    """A decorated handler is called like a bare one."""
    assert_type(await nested(request), web.FileResponse)
    assert_type(await nested(request=request), web.FileResponse)
    assert_type(await Orders().pay(request), web.Response)
    assert_type(await View(request).get(), web.StreamResponse)


class Orders:
    """Methods are handlers, too."""

    @locked("order:{order_id}")
    async def pay(self, request: web.Request) -> web.Response:
        """Pay."""
        return web.Response()

    def add_to(self, app: web.Application) -> None:
        """Give the application its routes."""
        app.router.add_post("/pay/{order_id}", self.pay)
        app.router.add_post("/plain/{order_id}", plain)


class View(web.View):
    """Likewise the methods of views."""

    @locked("order:{order_id}")
    async def get(self) -> web.StreamResponse:
        """Show."""
        assert_type(self.request[LEASE], Lease)
        return web.StreamResponse()
