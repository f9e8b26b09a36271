"""`@locked` on aiohttp handlers: which lock, which lease, what is refused and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from aioredlock_ng import LockManager
from aioredlock_ng.contrib.aiohttp import LEASE, MANAGER, locked, setup
from aioredlock_ng.events import Acquired
from aioredlock_ng.testing import MemoryNode
from tests.contrib.aiohttp.tools import serve
from tests.unit.worlds import locks


async def show(request: web.Request) -> web.Response:
    """Tell which lock the request is under."""
    lease = request[LEASE]
    lease.check()
    return web.json_response({"names": lease.names, "held": lease.held})


def app_with(*routes: web.RouteDef, **options: Any) -> tuple[web.Application, list[MemoryNode]]:
    """Make an application over three masters in memory."""
    app = web.Application()
    nodes = [MemoryNode() for _ in range(3)]
    setup(app, nodes, **options)
    app.add_routes(routes)
    return app, nodes


async def test_your_own_tests_need_no_server() -> None:
    """An application runs over masters in memory, with aiohttp's own test client."""
    app = web.Application()
    nodes = [MemoryNode() for _ in range(3)]
    setup(app, nodes)
    app.router.add_get("/orders/{order_id}", locked("order:{order_id}", blocking=False)(show))

    async with TestClient(TestServer(app)) as client:
        response = await client.get("/orders/42")
        assert response.status == 200
        assert await response.json() == {"names": ["order:42"], "held": True}

        async with app[MANAGER].lock("order:42"):  # another request has it
            response = await client.get("/orders/42")
            assert response.status == 409
    assert not any(map(locks, nodes))


async def test_a_handler_goes_in_again() -> None:
    """With ``reentrant=True`` a block of the handler's own has the handler's lease (R27)."""

    @locked("order:{id}", reentrant=True)
    async def pay(request: web.Request) -> web.Response:
        lock = request.config_dict[MANAGER].lock(f"order:{request.match_info['id']}", reentrant=True)
        async with lock as inner:
            return web.json_response(inner.fence == request[LEASE].fence)

    app, nodes = app_with(web.get("/{id}", pay))
    async with serve(app) as site:
        assert (await site.get("/7"))[:2] == (200, True)
    assert not any(map(locks, nodes))


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

    app, _ = app_with(
        web.get("/method/{n}", Orders().show),
        web.get("/called/{n}", Orders().__call__),
        web.view("/view/{n}", View),
    )
    async with serve(app) as site:
        assert (await site.get("/method/1"))[:2] == (200, "own method:1")
        assert (await site.get("/called/1"))[:2] == (200, "called:1")
        assert (await site.get("/view/1"))[:2] == (200, "view:1")


async def test_the_key_may_be_a_function() -> None:
    """A function of the request names the lock; it may be async, and the handler reads the body again."""

    def order(request: web.Request) -> str:
        return f"order:{int(request.match_info['n'])}"

    async def cart(request: web.Request) -> str:
        return f"cart:{(await request.json())['user']}"

    async def checkout(request: web.Request) -> web.Response:
        return web.json_response([request[LEASE].name, (await request.json())["user"]])

    app, _ = app_with(web.get("/orders/{n}", locked(order)(show)), web.get("/cart", locked(cart)(checkout)))
    async with serve(app) as site:
        assert (await site.get("/orders/042"))[1]["names"] == ["order:42"]
        assert (await site.get("/cart", json={"user": "eve"}))[1] == ["cart:eve", "eve"]


async def test_a_path_is_text() -> None:
    """Two spellings of a number are two locks under a template, and percent signs are decoded."""
    app, _ = app_with(web.get("/orders/{n}", locked("order:{n}")(show)))
    async with serve(app) as site:
        names = [(await site.get(f"/orders/{n}"))[1]["names"] for n in ("42", "042", "%C3%A9")]
    assert names == [["order:42"], ["order:042"], ["order:é"]]


@pytest.mark.parametrize(
    "name", ["", "n" * 1025, "fence:{x", "{meta}x"], ids=["empty", "long", "fence", "meta"]
)
async def test_a_name_that_a_client_made_up(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A name that cannot be a lock's is the client's fault, and nothing for the log."""
    app, _ = app_with(web.get("/", locked(lambda request: request.query["name"])(show)))
    async with serve(app) as site:
        status, body, retry_after = await site.get("/", params={"name": name})
    assert (status, body, retry_after) == (422, {"detail": "no lock can have this name"}, None)
    assert not caplog.records


async def test_options_that_do_not_fit_the_manager(caplog: pytest.LogCaptureFixture) -> None:
    """A ttl that is too short for this manager is the server's fault: 500, and the log says why."""
    app, _ = app_with(web.get("/", locked("x", ttl=0.05)(show)))
    async with serve(app) as site:
        assert (await site.get("/"))[0] == 500
    assert "node_timeout must be shorter than the ttl" in caplog.text


async def test_a_lock_that_stays_taken_for_a_while() -> None:
    """The same request is not served twice within it (R34)."""
    app, nodes = app_with(web.get("/orders/{id}", locked("order:{id}", at_least=60, blocking=False)(show)))
    async with serve(app) as site:
        assert (await site.get("/orders/1"))[0] == 200
        status, _, retry_after = await site.get("/orders/1")
        assert status == 409
        assert 0 < int(retry_after) <= 60
        assert (await site.get("/orders/2"))[0] == 200
    assert [locks(node) for node in nodes] == [(b"redlock:order:1", b"redlock:order:2")] * 3


async def test_a_handler_in_a_mode() -> None:
    """Handlers that read are together, and one that writes is told to come back."""
    app, _ = app_with(
        web.get("/c/{n}", locked("c:{n}", mode="read", blocking=False)(show)),
        web.get("/write/{n}", locked("c:{n}", mode="write", blocking=False)(show)),
    )
    async with serve(app) as site:
        lock = app[MANAGER].rwlock("c:1")
        async with lock.read():
            assert (await site.get("/c/1"))[0] == 200
            assert (await site.get("/write/1"))[0] == 409
        async with lock.write():
            assert (await site.get("/c/1"))[0] == 409
        assert (await site.get("/write/1"))[0] == 200


async def test_handlers_with_permits() -> None:
    """So many at once; the next one gets the status that was asked for."""
    app, _ = app_with(
        web.get("/gpu", locked("gpu", permits=2, blocking=False, status_code=429)(show)),
        web.get("/job", locked("job", blocking=False, retry_after=30)(show)),
    )
    async with serve(app) as site:
        pool = app[MANAGER].semaphore("gpu", permits=2)
        async with pool:
            assert (await site.get("/gpu"))[0] == 200
            async with pool:
                assert await site.get("/gpu") == (429, {"detail": "all permits are taken"}, "1")
        async with app[MANAGER].lock("job"):
            assert (await site.get("/job"))[2] == "30"


async def test_a_fair_lock_of_a_handler() -> None:
    """The option goes through to the lock, whose kind the nodes tell."""

    @locked("printer", fair=True)
    async def kind(request: web.Request) -> web.Response:
        return web.Response(text=(await request.app[MANAGER].inspect("printer"))[0].kind)

    app, _ = app_with(web.get("/printer", kind))
    async with serve(app) as site:
        assert (await site.get("/printer"))[:2] == (200, "fair")


async def test_a_template_that_the_route_cannot_fill(caplog: pytest.LogCaptureFixture) -> None:
    """The error names the template, the field and the route."""
    app, _ = app_with(web.get("/orders/{id}", locked("order:{order_id}")(show)))
    async with serve(app) as site:
        assert (await site.get("/orders/1"))[0] == 500
    assert (
        "RuntimeError: template 'order:{order_id}': {order_id} is not in the route GET /orders/{id}"
        in caplog.text
    )


async def test_a_key_function_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """What a key function raises stays what it is: an answer, or a bug of the server."""

    def key(request: web.Request) -> str:
        if "user" not in request.query:
            raise web.HTTPUnauthorized
        return request.query.getone("user") if request.query["user"] else int("no number")  # type: ignore[return-value]

    def number(request: web.Request) -> str:
        return 42  # type: ignore[return-value]

    app, _ = app_with(web.get("/", locked(key)(show)), web.get("/number", locked(number)(show)))
    async with serve(app) as site:
        assert (await site.get("/"))[0] == 401
        assert (await site.get("/?user="))[0] == 500
        assert (await site.get("/number"))[0] == 500
    assert "ValueError: invalid literal" in caplog.text
    assert "a lock name must be a str, got 42" in caplog.text


def new_name(request: web.Request) -> str:
    """Name a lock."""
    return request.path


@pytest.mark.parametrize(
    ("key", "options", "error", "message"),
    [
        ("order:{id", {}, ValueError, "expected '}'"),
        ("order:{}", {}, ValueError, "needs the name of a parameter"),
        ("order:{0}", {}, ValueError, "needs the name of a parameter"),
        ("order:{id:d}", {}, ValueError, "paths have texts only: .* 'd' for object of type 'str'"),
        ("order:{id.number}", {}, ValueError, "paths have texts only"),
        ("order:{id[number]}", {}, ValueError, "paths have texts only"),
        ("", {}, ValueError, "must not be empty"),
        ("fence:{{1}}", {}, ValueError, "reserved"),
        ("n" * 1025, {}, ValueError, "1024 bytes"),
        (42, {}, TypeError, "a template or a function of the request, got 42"),
        ("x", {"ttl": -1}, ValueError, "ttl must be positive"),
        ("x", {"blocking_timeout": "soon"}, TypeError, "'soon'"),
        ("x", {"on_lost": "shrug"}, ValueError, "'shrug'"),
        ("x", {"tttl": 3}, TypeError, "tttl"),
        ("x", {"mode": "both"}, ValueError, "mode must be 'read', 'write' or None, got 'both'"),
        (new_name, {"mode": "write", "at_least": 1}, ValueError, "has no at_least"),
        ("x", {"status_code": 200}, ValueError, "400 to 599, got 200"),
        ("x", {"status_code": 399}, ValueError, "400 to 599, got 399"),
        ("x", {"status_code": 600}, ValueError, "400 to 599, got 600"),
    ],
)
def test_what_cannot_work_fails_at_decoration(key: Any, options: Any, error: Any, message: str) -> None:
    """Bad keys and options fail where they are written, with the value."""
    with pytest.raises(error, match=message):
        locked(key, **options)


def test_handlers_must_be_async() -> None:
    """A plain function or a view class cannot run under a lock."""
    with pytest.raises(TypeError, match="async handler"):
        locked("x")(lambda _: web.Response())  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="async handler"):
        locked("x")(web.View)


async def test_called_without_a_request() -> None:
    """A handler that is called with something else says so."""
    with pytest.raises(TypeError, match="without a request"):
        await locked("x")(show)(None)  # type: ignore[arg-type]


async def test_the_handler_keeps_its_name() -> None:
    """The decorated handler looks like the handler."""
    decorated = locked("x")(show)
    assert (decorated.__name__, decorated.__doc__, decorated.__wrapped__) == ("show", show.__doc__, show)  # type: ignore[attr-defined]


async def test_the_label_is_the_template() -> None:
    """Metrics see the template or the function's name, never the name that a client made."""
    labels: list[str] = []

    class Watch:
        def on_acquired(self, event: Acquired) -> None:
            labels.append(event.label)

    def key(request: web.Request) -> str:
        return "k"

    app, _ = app_with(
        web.get("/template/{n}", locked("order:{n}")(show)),
        web.get("/function", locked(key)(show)),
        web.get("/given", locked("x", label="given")(show)),
        hooks=[Watch()],
    )
    async with serve(app) as site:
        for path in ("/template/7", "/function", "/given"):
            assert (await site.get(path))[0] == 200
    assert labels == ["order:{n}", f"{key.__qualname__}", "given"]


async def test_two_locks_on_one_handler() -> None:
    """Locks nest: the lease is the inner one's, both are held, and each has its status."""

    @locked("outer", status_code=423, blocking=False)
    @locked("inner", status_code=429, blocking=False)
    async def handle(request: web.Request) -> web.Response:
        held = list(map(locks, nodes))
        return web.json_response([request[LEASE].name, held == [(b"redlock:inner", b"redlock:outer")] * 3])

    app, nodes = app_with(web.get("/", handle))
    async with serve(app) as site:
        assert (await site.get("/"))[:2] == (200, ["inner", True])
        async with app[MANAGER].lock("outer"):
            assert (await site.get("/"))[0] == 423
        async with app[MANAGER].lock("inner"):
            assert (await site.get("/"))[0] == 429
    assert not any(map(locks, nodes))


async def test_released_before_the_response_is_sent() -> None:
    """A client that has the answer can have the lock: it is free when the headers of a response leave."""
    held: list[bool] = []

    async def look(request: web.Request, response: web.StreamResponse) -> None:
        held.append(any(map(locks, nodes)))

    app, nodes = app_with(web.get("/", locked("x")(show)))
    app.on_response_prepare.append(look)
    async with serve(app) as site:
        assert (await site.get("/"))[0] == 200
    assert held == [False]


async def test_requests_take_turns() -> None:
    """Concurrent requests for one key are never inside together, and all of them get through."""
    inside = 0
    most = 0

    @locked("turn:{n}", blocking_timeout=20)
    async def handle(request: web.Request) -> web.Response:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.002)
        inside -= 1
        return web.Response()

    app, _ = app_with(web.get("/{n}", handle))
    async with serve(app) as site:
        answers = await asyncio.gather(*(site.get("/1") for _ in range(20)))
    assert {status for status, _, _ in answers} == {200}
    assert most == 1


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
    app, _ = app_with()
    app.add_subapp("/inner", inner)
    runner = web.AppRunner(app)
    with pytest.raises(RuntimeError, match=r"POST /inner/wrong runs wrong .* below the route's decorator"):
        await runner.setup()
    await runner.cleanup()


async def test_a_handler_may_be_locked_on_one_route_only() -> None:
    """One function may be a handler as it is, and under a lock elsewhere: that is no mistake."""

    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=str(LEASE in request))

    app, _ = app_with(web.get("/bare", handle), web.get("/locked", locked("x")(handle)))
    async with serve(app) as site:
        assert (await site.get("/bare"))[1] == "False"
        assert (await site.get("/locked"))[1] == "True"


RIGHT_ORDER = web.RouteTableDef()


@RIGHT_ORDER.get("/bare")
async def right(request: web.Request) -> web.Response:
    """Have no lock, and a name that another handler uses as well."""
    return web.Response(text=str(LEASE in request))


@RIGHT_ORDER.get("/right")
@locked("x", blocking=False)
async def right(request: web.Request) -> web.Response:  # noqa: F811 (as it happens in real applications)
    """Tell the lease."""
    return web.Response(text=request[LEASE].name)


async def test_the_right_order_of_decorators() -> None:
    """Below the route's decorator, the lock is taken."""
    app, _ = app_with()
    app.add_routes(RIGHT_ORDER)
    async with serve(app) as site:
        assert (await site.get("/right"))[:2] == (200, "x")
        assert (await site.get("/bare"))[:2] == (200, "False")
        assert isinstance(app[MANAGER], LockManager)
