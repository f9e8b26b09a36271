"""`@locked` on aiohttp handlers: what is aiohttp's own beside ``../test_both.py``."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from aiohttp import web

from aioredlock_ng.contrib.aiohttp import LEASE, MANAGER, locked, setup
from aioredlock_ng.testing import MemoryNode
from tests.contrib.aiohttp.tools import NODES, app_with, serve
from tests.unit.traces import locks


async def show(request: web.Request) -> web.Response:
    """Tell which lock the request is under."""
    lease = request[LEASE]
    lease.check()
    return web.json_response(lease.names)


async def test_methods_and_views() -> None:
    """Methods of classes and of views are handlers, too, and each takes its own lock."""

    class Orders:
        prefix = "own"

        @locked("method:{n}")
        async def show(self, request: web.Request) -> web.Response:
            return web.Response(text=f"{self.prefix} {request[LEASE].name}")

        @locked("called:{n}")
        async def __call__(self, request: web.Request) -> web.Response:
            return web.Response(text=request[LEASE].name)

    class View(web.View):
        @locked("view:{n}")
        async def get(self) -> web.Response:
            return web.Response(text=self.request[LEASE].name)

    app = app_with(
        web.get("/method/{n}", Orders().show),
        web.get("/called/{n}", Orders().__call__),
        web.view("/view/{n}", View),
    )
    async with serve(app) as site:
        assert (await site.get("/method/1"))[:2] == (200, "own method:1")
        assert (await site.get("/called/1"))[:2] == (200, "called:1")
        assert (await site.get("/view/1"))[:2] == (200, "view:1")


async def test_the_key_may_be_a_function() -> None:
    """It may be async, and the handler reads the body again; what it raises stays an answer, or a bug."""

    def order(request: web.Request) -> str:
        if "user" not in request.query:
            raise web.HTTPUnauthorized
        return f"order:{int(request.match_info['n'])}"

    async def cart(request: web.Request) -> str:
        return f"cart:{(await request.json())['user']}"

    async def checkout(request: web.Request) -> web.Response:
        return web.json_response([request[LEASE].name, (await request.json())["user"]])

    app = app_with(web.get("/orders/{n}", locked(order)(show)), web.get("/cart", locked(cart)(checkout)))
    async with serve(app) as site:
        assert (await site.get("/orders/042?user=a"))[1] == ["order:42"]
        assert [(await site.get(path))[0] for path in ("/orders/1", "/orders/x?user=a")] == [401, 500]
        assert (await site.get("/cart", json={"user": "eve"}))[1] == ["cart:eve", "eve"]


async def test_a_path_is_text() -> None:
    """Two spellings of a number are two locks under a template, and percent signs are decoded."""
    app = app_with(web.get("/orders/{n}", locked("order:{n}")(show)))
    async with serve(app) as site:
        names = [(await site.get(f"/orders/{n}"))[1] for n in ("42", "042", "%C3%A9")]
    assert names == [["order:42"], ["order:042"], ["order:é"]]


@pytest.mark.parametrize("template", ["order:{id:d}", "order:{id.number}", "order:{id[number]}"])
def test_a_template_that_no_path_can_fill(template: str) -> None:
    """It fails at decoration."""
    with pytest.raises(ValueError, match=r"path parameters are strings"):
        locked(template)


async def test_handlers_must_be_async() -> None:
    """A plain function or a view class cannot run under a lock, and a handler not without a request."""
    for wrong in (lambda _: web.Response(), web.View):
        with pytest.raises(TypeError, match="async handler"):
            locked("x")(wrong)  # type: ignore[arg-type]
    decorated = locked("x")(show)
    with pytest.raises(TypeError, match="without a request"):
        await decorated(None)  # type: ignore[arg-type]
    assert [getattr(decorated, one) for one in functools.WRAPPER_ASSIGNMENTS[:4]] == [
        getattr(show, one) for one in functools.WRAPPER_ASSIGNMENTS[:4]
    ]


async def test_two_locks_on_one_handler() -> None:
    """Locks nest: the lease is the inner one's, both are held, and each has its status."""

    @locked("outer", status_code=423, blocking=False)
    @locked("inner", status_code=429, blocking=False)
    async def handle(request: web.Request) -> web.Response:
        held = list(map(locks, app[NODES]))
        return web.json_response([request[LEASE].name, held == [(b"redlock:inner", b"redlock:outer")] * 3])

    app = app_with(web.get("/", handle))
    async with serve(app) as site:
        assert (await site.get("/"))[:2] == (200, ["inner", True])
        for name, status in (("outer", 423), ("inner", 429)):
            async with app[MANAGER].lock(name):
                assert (await site.get("/"))[0] == status
    assert not any(map(locks, app[NODES]))


async def test_released_before_the_response_is_sent() -> None:
    """A client that has the answer can have the lock: it is free when the headers of a response leave."""
    held: list[bool] = []

    async def look(request: web.Request, response: web.StreamResponse) -> None:
        held.append(any(map(locks, app[NODES])))

    app = app_with(web.get("/", locked("x")(show)))
    app.on_response_prepare.append(look)
    async with serve(app) as site:
        assert (await site.get("/"))[0] == 200
    assert held == [False]


WRONG_ORDER = web.RouteTableDef()


@locked("x")
@WRONG_ORDER.post("/wrong")
async def wrong(request: web.Request) -> web.Response:
    """Is what its route runs, without the lock."""
    raise AssertionError


async def test_no_handler_runs_without_its_lock() -> None:
    """With the decorators in the wrong order, the route would run the bare handler: it does not start."""
    inner = web.Application()
    inner.add_routes(WRONG_ORDER)
    app = app_with()
    app.add_subapp("/inner", inner)
    runner = web.AppRunner(app)
    with pytest.raises(RuntimeError, match=r"POST /inner/wrong runs wrong .* below the route's decorator"):
        await runner.setup()
    await runner.cleanup()


RIGHT_ORDER = web.RouteTableDef()


@RIGHT_ORDER.get("/namesake")
async def right(request: web.Request) -> web.Response:
    """Have no lock, and a name that another handler uses as well."""
    return web.Response(text=str(LEASE in request))


@RIGHT_ORDER.get("/right")
@locked("x", blocking=False)
async def right(request: web.Request) -> web.Response:  # noqa: F811 (as it happens in real applications)
    """Tell the lease."""
    return web.Response(text=str(LEASE in request))


async def bare(request: web.Request) -> Any:
    """Be a handler as it is on one route, and under a lock on another."""
    return web.Response(text=str(LEASE in request))


async def test_the_right_order_of_decorators() -> None:
    """Below the route's decorator, the lock is taken; a handler without a lock is no mistake."""
    app = app_with(web.get("/bare", bare), web.get("/locked", locked("x")(bare)))
    app.add_routes(RIGHT_ORDER)
    async with serve(app) as site:
        answers = [(await site.get(f"/{path}"))[1] for path in ("right", "locked", "namesake", "bare")]
    assert answers == ["True", "True", "False", "False"]


async def test_middlewares_see_an_exception() -> None:
    """A middleware that rolls back on exceptions does, and sees which answer it is and why.

    A client that was asked to go on with its body gets the whole answer.
    """
    seen: list[Any] = []

    @web.middleware
    async def transaction(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            seen.append((error.status, type(error.__cause__).__name__))
            raise
        seen.append("commit")
        return response

    app = web.Application(middlewares=[transaction])
    setup(app, [MemoryNode() for _ in range(3)])
    app.router.add_post("/", locked("x", blocking=False)(show))
    async with serve(app) as site:
        assert (await site.client.post("/")).status == 200
        async with app[MANAGER].lock("x"):
            response = await site.client.post("/", data=b"body", expect100=True)
            assert (response.status, await response.json()) == (409, {"detail": "locked by another request"})
    assert seen == ["commit", (409, "LockTakenError")]
