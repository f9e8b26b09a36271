"""An endpoint runs under its lock, and only then."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, get_args

import httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Body, Depends, FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware

from aioredlock_ng import ConfigurationError, ExtensionPolicy, Lease, LockManager, Mode, WouldDeadlockError
from aioredlock_ng.contrib.fastapi import (
    LOCK_RESPONSES,
    ManagerDep,
    add_exception_handlers,
    get_lock_manager,
    locked,
)
from tests.contrib.fastapi.tools import Site, new_app, real_site, site, websocket
from tests.contrib.stay import Stay
from tests.unit.worlds import opened, virtual

PATH = "/orders/{order_id}"
TEMPLATE = "order:{order_id}"


# -- mutual exclusion ----------------------------------------------------------------------------------


@virtual
async def test_the_second_request_is_told_when_to_come_back() -> None:
    """While one request is inside, another of the same key gets 409, one of another key gets in."""
    app, stay = new_app(), Stay()

    @app.post(PATH)
    async def pay(order_id: int, lease: Annotated[Lease, locked(TEMPLATE, ttl=15, blocking=False)]) -> str:
        if order_id == 42:
            await stay()
        lease.check()
        return lease.name

    async with site(app) as here:
        first = here.posting("/orders/42")
        await stay.entered.wait()
        assert here.locks == ["order:42"]
        await asyncio.sleep(1.5)
        second, other = await here.post("/orders/042"), await here.post("/orders/7")
        stay.leave.set()

        assert (second.status_code, second.json()) == (409, {"detail": "locked by another request"})
        assert second.headers["Retry-After"] == "14"  # 15 s less 1.5 s, rounded up
        assert other.json() == "order:7"
        assert (await first).json() == "order:42"
        assert (await here.post("/orders/42")).status_code == 200


@virtual
async def test_requests_wait_their_turn() -> None:
    """With a `blocking_timeout`, a request waits for the lock, and no longer."""
    app, stay = new_app(), Stay()

    @app.post(PATH, dependencies=[locked(TEMPLATE, blocking_timeout=timedelta(seconds=2))])
    async def pay(order_id: int) -> None:
        await stay()

    async with site(app) as here:
        first = here.posting("/orders/1")
        await stay.entered.wait()
        began = asyncio.get_running_loop().time()
        assert (await here.post("/orders/1")).status_code == 409
        assert 2.0 <= asyncio.get_running_loop().time() - began <= 2.1
        second = here.posting("/orders/1")
        await asyncio.sleep(1)
        stay.leave.set()
        assert [(await request).status_code for request in (first, second)] == [200, 200]


@virtual
async def test_another_status_code() -> None:
    """`status_code=423` is for this lock's own errors: another one in the same endpoint remains 409."""
    app = new_app()

    @app.post(PATH)
    async def pay(
        order_id: int,
        manager: ManagerDep,
        lease: Annotated[Lease, locked(TEMPLATE, blocking=False, status_code=423)],
    ) -> None:
        async with manager.lock("another", blocking=False):
            pass

    async with site(app) as here:
        here.world.occupy("order:1", 10)
        here.world.occupy("another", 3)
        assert (await here.post("/orders/1")).status_code == 423
        answer = await here.post("/orders/2")
        assert (answer.status_code, answer.headers["Retry-After"]) == (409, "3")
        here.world.vacate("order:1")
        here.world.vacate("another")


@virtual
async def test_errors_of_the_endpoint_pass() -> None:
    """Whatever the endpoint raises is answered as ever, and the lock is free."""
    app = new_app()

    @app.post(PATH, dependencies=[locked(TEMPLATE)])
    async def pay(order_id: int) -> None:
        if order_id == 1:
            raise HTTPException(404, "no such order")
        raise ZeroDivisionError

    async with site(app) as here:
        assert (await here.post("/orders/1")).status_code == 404
        with pytest.raises(ZeroDivisionError):
            await here.post("/orders/2")
        await asyncio.sleep(0.01)
        assert here.locks == []


@virtual
async def test_a_bad_body_leaves_no_key() -> None:
    """The body of the endpoint itself is validated after its dependencies ran: the lock is given back."""
    app = new_app()

    @app.post(PATH, dependencies=[locked(TEMPLATE)])
    async def pay(order_id: int, amount: Annotated[int, Body(embed=True)]) -> None: ...

    async with site(app) as here:
        assert (await here.post("/orders/1", json={"amount": "much"})).status_code == 422
        await asyncio.sleep(0.01)
        assert here.locks == []


@virtual
async def test_one_lease_for_all_that_ask() -> None:
    """An alias that several dependencies of a request use is one lock, as FastAPI caches dependencies."""
    OrderLock = Annotated[Lease, locked(TEMPLATE)]  # noqa: N806 (a type)
    app = new_app()

    async def service(lease: OrderLock) -> Lease:
        return lease

    @app.post(PATH)
    async def pay(order_id: int, lease: OrderLock, same: Annotated[Lease, Depends(service)]) -> bool:
        return lease is same

    async with site(app) as here:
        assert (await here.post("/orders/1")).json() is True


# -- how long ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "held"), [("function", False), ("request", True)])
@virtual
async def test_when_the_lock_is_released(scope: Any, held: bool) -> None:
    """By default before the response is sent and background tasks run; with "request" after them."""
    app = new_app()
    seen = {}

    @app.post(PATH, dependencies=[locked(TEMPLATE, scope=scope)])
    async def pay(order_id: int, tasks: BackgroundTasks) -> StreamingResponse:
        seen["endpoint"] = here.locks

        async def body() -> AsyncIterator[str]:
            seen["body"] = here.locks
            yield "done"

        async def afterwards() -> None:
            seen["background"] = here.locks

        tasks.add_task(afterwards)
        return StreamingResponse(body())

    async with site(app) as here:
        assert (await here.post("/orders/1")).text == "done"

    names = ["order:1"]
    assert seen == {"endpoint": names, "body": names * held, "background": names * held}


def numbers() -> Iterator[str]:
    """Stream from a thread."""
    yield "a"


async def async_numbers() -> AsyncIterator[str]:
    """Stream from the loop."""
    yield "a"


@pytest.mark.parametrize("endpoint", [numbers, async_numbers], ids=["sync", "async"])
@virtual
async def test_an_endpoint_that_yields_needs_the_long_scope(endpoint: Any) -> None:
    """FastAPI runs it while it sends the response, when a lock of the short scope was released."""
    app = new_app()
    app.post("/", dependencies=[locked("stream")], response_model=None)(endpoint)

    async with site(app) as here:
        with pytest.raises(RuntimeError, match=r"streams.*scope='request'"):
            await here.post("/")


# -- where it works ------------------------------------------------------------------------------------


def the_endpoint(app: FastAPI | APIRouter, path: str = PATH) -> None:
    """Give an application or a router an endpoint under a lock."""

    @app.post(path)
    async def pay(order_id: int, lease: Annotated[Lease, locked(TEMPLATE, blocking=False)]) -> str:
        return lease.name


async def both_answers(here: Site, path: str) -> None:
    """Expect that the lock works: a request gets in, and one that comes at the wrong time does not."""
    assert (await here.post(path + "/042")).json() == "order:42"
    here.world.occupy("order:42", 10)
    assert (await here.post(path + "/42")).status_code == 409
    here.world.vacate("order:42")


@virtual
async def test_under_a_middleware() -> None:
    """`BaseHTTPMiddleware` runs the endpoint in another task: it makes no difference."""
    app = new_app()
    the_endpoint(app)

    async def dispatch(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    async with site(app) as here:
        await both_answers(here, "/orders")


@virtual
async def test_in_a_router() -> None:
    """Routers know nothing of locks, and need not."""
    router, app = APIRouter(), new_app()
    the_endpoint(router, "/{order_id}")
    app.include_router(router, prefix="/orders")
    async with site(app) as here:
        await both_answers(here, "/orders")


@virtual
async def test_a_lock_for_a_whole_router() -> None:
    """All routes of a router, under a lock that the prefix names."""
    router, app = APIRouter(dependencies=[locked("shop:{shop_id}", blocking=False)]), new_app()

    @router.post("/close")
    async def close(shop_id: int) -> None: ...

    app.include_router(router, prefix="/shops/{shop_id}")
    async with site(app) as here:
        here.world.occupy("shop:42", 10)
        assert (await here.post("/shops/042/close")).status_code == 409
        assert (await here.post("/shops/43/close")).status_code == 200
        here.world.vacate("shop:42")


@virtual
async def test_a_mounted_application_uses_the_state_of_its_parent() -> None:
    """What the parent's lifespan yields is there for mounted applications as well."""
    app, mounted = FastAPI(), new_app()
    the_endpoint(mounted)
    app.mount("/api", mounted)

    async with site(app) as here:
        manager = app.state.lock_manager
        del app.state.lock_manager

        async def with_lifespan_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": {"lock_manager": manager}}, receive, send)

        transport = httpx.ASGITransport(app=with_lifespan_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await both_answers(Site(here.world, client), "/api/orders")


@virtual
async def test_a_mounted_application_may_have_a_manager_of_its_own() -> None:
    """`app.state.lock_manager` is the application's own, not its parent's."""
    app, mounted = FastAPI(), new_app()
    the_endpoint(mounted)
    app.mount("/api", mounted)

    async with site(app) as here:
        with pytest.raises(RuntimeError, match="has no lock manager"):
            await here.post("/api/orders/1")
        mounted.state.lock_manager = here.manager
        await both_answers(here, "/api/orders")


async def test_the_lifespan_provides_the_manager() -> None:
    """The way of the documentation: a manager lives with the application."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, LockManager]]:
        from aioredlock_ng.testing import MemoryNode

        async with LockManager([MemoryNode()]) as manager:
            yield {"lock_manager": manager}

    app = FastAPI(lifespan=lifespan)
    the_endpoint(app)
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        transport = httpx.ASGITransport(app=with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.post("/orders/042")).json() == "order:42"


@virtual
async def test_tests_override_the_manager() -> None:
    """`app.dependency_overrides[get_lock_manager]` replaces the manager everywhere."""
    app = new_app()
    the_endpoint(app)

    @app.post("/plain")
    async def plain(manager: ManagerDep) -> str:
        return repr(manager.lock("a"))

    @app.websocket("/ws/{order_id}")
    async def socket(socket: WebSocket, order_id: int, lease: Annotated[Lease, locked(TEMPLATE)]) -> None:
        await socket.accept()
        await socket.send_text(lease.name)
        await socket.close()

    async with site(app) as here, opened(here.world.nodes, seed=2, prefix="test:") as other:
        del app.state.lock_manager

        async def overriding() -> LockManager:
            return other

        app.dependency_overrides[get_lock_manager] = overriding
        here.world.occupy("order:1", 10)  # with the other prefix
        assert (await here.post("/orders/1")).json() == "order:1"
        assert (await here.post("/plain")).status_code == 200
        assert [message.get("text") for message in await websocket(app, "/ws/042")][1] == "order:42"
        here.world.vacate("order:1")


@virtual
async def test_without_a_manager() -> None:
    """The error says what to write."""
    app = new_app()
    the_endpoint(app)
    async with site(app) as here:
        del app.state.lock_manager
        with pytest.raises(
            RuntimeError, match=r'yield \{"lock_manager": manager\}.*app\.state\.lock_manager'
        ):
            await here.post("/orders/1")
        app.state.lock_manager = ["redis://10.0.0.1"]
        with pytest.raises(RuntimeError, match="must be a LockManager, got "):
            await here.post("/orders/1")


@virtual
async def test_a_plain_lock_in_an_endpoint() -> None:
    """`ManagerDep` is the manager; errors of its locks are answered alike."""
    app = new_app()

    @app.post("/")
    async def endpoint(manager: ManagerDep) -> None:
        async with manager.lock("plain", blocking_timeout=0.5):
            pass

    async with site(app) as here:
        assert (await here.post("/")).status_code == 200
        here.world.occupy("plain", 10)
        answer = await here.post("/")
        assert (answer.status_code, answer.headers["Retry-After"]) == (409, "10")
        here.world.vacate("plain")


@virtual
async def test_an_endpoint_goes_in_again() -> None:
    """With ``reentrant=True``: two dependencies and a block of the endpoint's own have one lease (R27)."""
    app = new_app()
    Mine = Annotated[Lease, locked("mine:{order_id}", reentrant=True)]  # noqa: N806 (a type)

    @app.post("/{order_id}", dependencies=[locked("mine:{order_id}", reentrant=True)])
    async def endpoint(order_id: int, lease: Mine, manager: ManagerDep) -> bool:
        async with manager.lock(f"mine:{order_id}", reentrant=True) as inner:
            return inner.fence == lease.fence and manager.statistics().acquired == 1

    async with site(app) as here:
        answer = await here.post("/7")
        assert (answer.status_code, answer.json()) == (200, True)
        assert here.world.keys == [()] * 3


@virtual
async def test_a_self_made_deadlock_is_a_bug() -> None:
    """An endpoint that waits for its own lock is told so, and its client gets a 500."""
    app = new_app()

    @app.post("/", dependencies=[locked("mine")])
    async def endpoint(manager: ManagerDep) -> None:
        async with manager.lock("mine"):
            pass

    async with site(app) as here:
        with pytest.raises(WouldDeadlockError):
            await here.post("/")


async def test_sync_endpoints() -> None:
    """They run in a thread, under the lock as any other."""
    app, entered, leave = new_app(), threading.Event(), threading.Event()

    @app.post(PATH)
    def pay(order_id: int, lease: Annotated[Lease, locked(TEMPLATE, blocking=False)]) -> bool:
        entered.set()
        assert leave.wait(10)
        return lease.held

    async with real_site(app) as here:
        first = here.posting("/orders/042")
        assert await asyncio.to_thread(entered.wait, 10)
        assert here.locks == ["order:42"]
        assert (await here.post("/orders/42")).status_code == 409
        leave.set()
        assert (await first).json() is True


# -- the label -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("label", "expected"), [(None, TEMPLATE), ("pay", "pay")])
@virtual
async def test_the_label(label: str | None, expected: str) -> None:
    """Metrics are labelled by the template, never by the filled name, unless told otherwise."""
    labels = []

    class Hooks:
        def on_acquired(self, event: Any) -> None:
            labels.append(event.label)

    app = new_app()

    @app.post(PATH, dependencies=[locked(TEMPLATE, label=label)])
    async def pay(order_id: int) -> None: ...

    async with site(app, hooks=[Hooks()]) as here:
        await here.post("/orders/1")

    assert labels == [expected]


# -- what cannot work ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "match"),
    [
        (("order:{order_id",), {}, ValueError, "expected '}'"),
        (("order:}",), {}, ValueError, "Single '}'"),
        (("order:{}",), {}, ValueError, "needs the name of a parameter"),
        (("order:{0}",), {}, ValueError, "needs the name of a parameter"),
        (("",), {}, ValueError, "must not be empty"),
        (("fence:{{{order_id}",), {}, ValueError, "reserved"),
        (("x" * 1025,), {}, ValueError, "1024 bytes"),
        ((3,), {}, TypeError, "got 3"),
        ((None,), {}, TypeError, "got None"),
        (("a",), {"scope": "x"}, ValueError, "scope must be one of .*, got 'x'"),
        (("a",), {"scope": None}, ValueError, "scope must be one of .*, got None"),
        (("a",), {"status_code": 200}, ValueError, "got 200"),
        (("a",), {"ttl": -1}, ValueError, "ttl must be positive seconds, got -1"),
        (("a",), {"ttl": "1"}, TypeError, "'1'"),
        (("a",), {"blocking": False, "blocking_timeout": 1}, ValueError, "blocking=False"),
        (("a",), {"on_lost": "x"}, ValueError, "on_lost must be"),
        (("a",), {"extension": 1}, TypeError, "ExtensionPolicy"),
        (("a",), {"mode": "both"}, ValueError, "mode must be 'read', 'write' or None, got 'both'"),
        ((new_app,), {"mode": "read", "at_least": 1}, ValueError, "has no at_least"),
        (("a",), {"timeout": 1}, TypeError, "timeout"),
        ((new_app,), {"ttl": -1}, ValueError, "ttl must be positive seconds, got -1"),
    ],
)
def test_bad_input_fails_where_it_is_written(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], match: str
) -> None:
    """At import, not at the first request; with the value."""
    with pytest.raises(error, match=match):
        locked(*arguments, **options)


@virtual
async def test_options_that_do_not_fit_the_manager() -> None:
    """A ttl shorter than the manager's `node_timeout` is the application's fault, no client's."""
    app = new_app()

    @app.post("/", dependencies=[locked("a", ttl=0.05)])
    async def endpoint() -> None: ...

    async with site(app) as here:
        with pytest.raises(ValueError, match="node_timeout must be shorter than the ttl"):
            await here.post("/")


def test_options_that_can_work() -> None:
    """All that a lock can be asked for."""
    locked("a", ttl=1, blocking=True, blocking_timeout=None, extension=ExtensionPolicy.off(), on_lost="raise")
    locked("a", scope="request", status_code=503)
    assert issubclass(ConfigurationError, ValueError)


@virtual
async def test_a_lock_that_stays_taken_for_a_while() -> None:
    """The same request is not served twice within it, and told when to come back (R34)."""
    app = new_app()

    @app.post(PATH, dependencies=[locked(TEMPLATE, at_least=30, blocking=False)])
    async def pay(order_id: int) -> int:
        return order_id

    async with site(app) as here:
        assert (await here.post("/orders/42")).status_code == 200
        await asyncio.sleep(10)
        again = await here.post("/orders/42")
        assert (again.status_code, again.headers["Retry-After"]) == (409, "20")
        assert (await here.post("/orders/7")).status_code == 200
        await asyncio.sleep(20)
        assert (await here.post("/orders/42")).status_code == 200
        await asyncio.sleep(30.1)  # until it is free again


@virtual
async def test_endpoints_in_a_mode() -> None:
    """Those that read run together; one that writes waits for them, and they for it."""
    app, stay = new_app(), Stay()
    locks = {mode: locked(TEMPLATE, mode=mode, blocking=False) for mode in get_args(Mode)}

    @app.post(PATH + "/look")
    async def look(order_id: int, lease: Annotated[Lease, locks["read"]]) -> str | None:
        return lease.mode

    @app.post(PATH)
    async def change(order_id: int, lease: Annotated[Lease, locks["write"]]) -> str | None:
        await stay()
        return lease.mode

    async with site(app) as here:
        async with here.manager.rwlock("order:1").read():
            assert (await here.post("/orders/1/look")).json() == "read"
            assert (await here.post("/orders/1")).status_code == 409
        writing = here.posting("/orders/1")
        await stay.entered.wait()
        assert (await here.post("/orders/1/look")).status_code == 409
        stay.leave.set()
        assert (await writing).json() == "write"


@virtual
async def test_endpoints_with_permits() -> None:
    """So many at once; the next one gets the status that was asked for, and when to come back."""
    app = new_app()
    permit = locked(TEMPLATE, permits=2, blocking=False, status_code=429)

    @app.post(PATH)
    async def work(order_id: int, lease: Annotated[Lease, permit]) -> int | None:
        return lease.slot

    @app.post("/slow/{order_id}", dependencies=[locked(TEMPLATE, permits=2, blocking=False, retry_after=7.5)])
    async def slow(order_id: int) -> None: ...

    async with site(app) as here:
        pool = here.manager.semaphore("order:1", permits=2)
        async with pool as one:
            assert (await here.post("/orders/1")).json() == 1 - (one.slot or 0)
            async with pool:
                answer = await here.post("/orders/1")
                assert (answer.status_code, answer.json()) == (429, {"detail": "all permits are taken"})
                assert answer.headers["Retry-After"] == "1", "not the end of a lease"
                assert (await here.post("/slow/1")).headers["Retry-After"] == "8"


@pytest.mark.parametrize("retry_after", [0, -1, float("inf"), float("nan")])
def test_a_retry_interval_is_a_number_of_seconds(retry_after: float) -> None:
    """What no client could wait for is refused where it is written."""
    with pytest.raises(ValueError, match="retry_after must be a number of seconds above 0"):
        locked("a", retry_after=retry_after)


@virtual
async def test_a_fair_lock_of_an_endpoint() -> None:
    """The option goes through to the lock, whose kind the nodes tell."""
    app = new_app()

    @app.post(PATH, dependencies=[locked(TEMPLATE, fair=True)])
    async def work(order_id: int) -> str | None:
        return (await here.manager.inspect(f"order:{order_id}"))[0].kind

    async with site(app) as here:
        assert (await here.post("/orders/1")).json() == "fair"


# -- OpenAPI -------------------------------------------------------------------------------------------


def test_the_schema_has_what_the_endpoint_has() -> None:
    """A lock adds no parameter; a key's own parameters are there, as of any dependency."""

    async def key(token: int) -> str:
        raise AssertionError("not called")

    app, plain = new_app(), new_app()
    for one, dependencies in ((app, [locked(TEMPLATE), locked(key)]), (plain, [])):

        @one.post(PATH, dependencies=dependencies)
        async def pay(order_id: int) -> None: ...

    schema, without = app.openapi()["paths"][PATH]["post"], plain.openapi()["paths"][PATH]["post"]
    token = schema["parameters"].pop()
    assert (token["name"], token["in"]) == ("token", "query")
    assert {"409", "503"} < set(schema["responses"])
    del schema["responses"], without["responses"]
    assert schema == without


def test_the_documented_responses() -> None:
    """409 and 503 with their header and body, as they are answered; for many routes and schemas."""
    app = new_app()
    for path in ("/a", "/b"):

        @app.post(path, dependencies=[locked("a")], responses=LOCK_RESPONSES)
        async def endpoint() -> None: ...

    before = repr(LOCK_RESPONSES)
    for path in ("/a", "/b"):
        responses = app.openapi()["paths"][path]["post"]["responses"]
        assert set(responses) == {"200", "409", "503"}
        for status in ("409", "503"):
            assert responses[status]["headers"]["Retry-After"]["schema"] == {"type": "integer"}
            schema = responses[status]["content"]["application/json"]["schema"]
            assert schema["properties"] == {"detail": {"type": "string"}}
    add_exception_handlers(app)
    assert repr(LOCK_RESPONSES) == before


def test_the_documented_responses_are_those_of_each_routes_locks() -> None:
    """With the status that is used, at routes that have a lock, wherever it stands, and at no other."""
    app, router = new_app(), APIRouter(dependencies=[locked("all", status_code=429, permits=3)])
    add_exception_handlers(app)

    async def inner(lease: Annotated[Lease, locked("a:{n}", status_code=423)]) -> Lease:
        return lease

    @app.get("/free")
    async def free() -> None: ...

    @app.get("/one/{n}", dependencies=[locked("a:{n}")])
    @app.put("/one/{n}", dependencies=[locked("a:{n}")])
    async def one(n: int) -> None: ...

    @app.get("/deep/{n}")
    async def deep(n: int, lease: Annotated[Lease, Depends(inner)]) -> None: ...

    @router.get("/router")
    async def routed() -> None: ...

    @app.websocket("/socket")
    async def socket(websocket: WebSocket, lease: Annotated[Lease, locked("s")]) -> None: ...

    app.include_router(router, prefix="/v1")
    paths = app.openapi()["paths"]
    told = {path: set(operations["get"]["responses"]) - {"200", "422"} for path, operations in paths.items()}
    assert told == {
        "/free": set(),
        "/one/{n}": {"409", "503"},
        "/deep/{n}": {"423", "503"},
        "/v1/router": {"429", "503"},
    }
    assert paths["/one/{n}"]["put"]["responses"]["409"]["description"] == "Locked by another request."
    assert paths["/v1/router"]["get"]["responses"]["429"]["description"] == "All permits are taken."
    assert app.openapi() is app.openapi(), "made once"


def test_a_document_of_the_applications_own_gets_what_it_has() -> None:
    """Some routes may be left out of it, and it need not be kept."""
    app = new_app()

    @app.get("/told", dependencies=[locked("a", status_code=423)])
    async def told() -> None: ...

    @app.get("/untold", dependencies=[locked("a")])
    async def untold() -> None: ...

    app.openapi = lambda: {"paths": {"/told": {"get": {}}}}  # type: ignore[method-assign]
    add_exception_handlers(app)
    assert set(app.openapi()["paths"]["/told"]["get"]["responses"]) == {"423", "503"}
    assert set(app.openapi()["paths"]) == {"/told"}
