"""An endpoint runs under its lock, and only then: what is FastAPI's own beside ``../test_both.py``."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Depends,
    FastAPI,
    HTTPException,
    Request,
    Response,
    WebSocket,
)
from fastapi.responses import StreamingResponse
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

from aioredlock_ng import Lease, LockManager, LockTakenError
from aioredlock_ng.contrib.fastapi import (
    LOCK_RESPONSES,
    ManagerDep,
    add_exception_handlers,
    get_lock_manager,
    locked,
)
from aioredlock_ng.testing import MemoryNode
from tests.contrib.fastapi.tools import Site, new_app, site, websocket
from tests.unit.tasks import virtual
from tests.unit.worlds import opened

PATH = "/orders/{order_id}"
TEMPLATE = "order:{order_id}"


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
    """An alias that several dependencies use is one lock; so are two locks where they are reentrant (R27)."""
    OrderLock = Annotated[Lease, locked(TEMPLATE, reentrant=True)]  # noqa: N806 (a type)
    app = new_app()

    async def service(lease: OrderLock) -> Lease:
        return lease

    @app.post(PATH, dependencies=[locked(TEMPLATE, reentrant=True)])
    async def pay(
        order_id: int, lease: OrderLock, same: Annotated[Lease, Depends(service)], manager: ManagerDep
    ) -> bool:
        return lease is same and manager.statistics().acquired == 1

    async with site(app) as here:
        assert (await here.post("/orders/1")).json() is True


# -- how long ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "held"), [("function", False), ("request", True)])
@virtual
async def test_when_the_lock_is_released(scope: Any, held: bool) -> None:
    """By default after the response is sent and background tasks have run; with "function" before."""
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
    app.post("/", dependencies=[locked("stream", scope="function")], response_model=None)(endpoint)
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
async def test_in_routers_under_a_middleware() -> None:
    """`BaseHTTPMiddleware` runs endpoints in another task; a router may have a lock that its prefix names."""
    router, app = APIRouter(dependencies=[locked("shop:{shop_id}", blocking=False)]), new_app()
    the_endpoint(router, "/{order_id}")
    app.include_router(router, prefix="/shops/{shop_id}")

    async def dispatch(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    async with site(app) as here:
        await both_answers(here, "/shops/7")
        here.world.occupy("shop:7", 10)
        assert (await here.post("/shops/7/1")).status_code == 409
        assert (await here.post("/shops/8/1")).status_code == 200
        here.world.vacate("shop:7")


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


@virtual
async def test_mounted_applications_answer_as_their_parent() -> None:
    """At any depth, in whichever order they are put together; but for errors that they answer themselves."""
    app, mounted, inner = FastAPI(), FastAPI(), FastAPI()

    async def answer(*_: object) -> Response:
        return Response(status_code=418)

    inner.add_exception_handler(LockTakenError, answer)
    the_endpoint(mounted)
    the_endpoint(inner)
    add_exception_handlers(app)
    behind = Mount("/behind", app=mounted, middleware=[Middleware(GZipMiddleware)])
    app.router.routes.append(Mount("/api", routes=[behind]))
    mounted.mount("/inner", inner)
    async with site(app) as here:
        mounted.state.lock_manager = inner.state.lock_manager = here.manager
        await both_answers(here, "/api/behind/orders")
        here.world.occupy("order:42", 10)
        assert (await here.post("/api/behind/inner/orders/42")).status_code == 418
        here.world.vacate("order:42")
        await here.manager.aclose()
        assert (await here.post("/api/behind/inner/orders/42")).status_code == 503


@virtual
async def test_who_may_not_call_holds_no_lock() -> None:
    """The ways of the documentation: a parameter behind the user, or a key that needs the user."""
    app = new_app()

    async def user() -> str:
        raise HTTPException(401)

    async def key(user: Annotated[str, Depends(user)]) -> str:
        raise AssertionError("not called")

    @app.post("/parameter")
    async def one(user: Annotated[str, Depends(user)], lease: Annotated[Lease, locked("a")]) -> None: ...

    @app.post("/key", dependencies=[locked(key)])
    async def other() -> None: ...

    async with site(app) as here:
        assert [(await here.post(path)).status_code for path in ("/parameter", "/key")] == [401, 401]
        assert here.manager.statistics().acquired == 0


@pytest.mark.parametrize("path", ["/orders", "/api/orders"], ids=["its own", "mounted"])
async def test_the_lifespan_provides_the_manager(path: str) -> None:
    """The way of the documentation: a manager lives with the application, for mounted ones as well."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, LockManager]]:
        async with LockManager([MemoryNode()]) as manager:
            yield {"lock_manager": manager}

    app, mounted = FastAPI(lifespan=lifespan), new_app()
    the_endpoint(app)
    the_endpoint(mounted)
    app.mount("/api", mounted)
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        transport = httpx.ASGITransport(app=with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.post(f"{path}/042")).json() == "order:42"


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


@pytest.mark.parametrize("scope", ["x", None])
def test_a_scope_is_one_of_two(scope: Any) -> None:
    """Refused where it is written, with the value."""
    with pytest.raises(ValueError, match=f"scope must be one of .*, got {scope!r}"):
        locked("a", scope=scope)


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
    del schema["responses"], without["responses"]
    assert schema == without


def test_the_documented_responses_are_those_of_each_routes_locks() -> None:
    """With the status that is used, at routes that have a lock, wherever it stands, and at no other."""
    app, router = new_app(), APIRouter(dependencies=[locked("all", status_code=429, permits=3)])
    before = repr(LOCK_RESPONSES)
    add_exception_handlers(app)

    async def inner(lease: Annotated[Lease, locked("a:{n}", status_code=423)]) -> Lease:
        return lease

    @app.get("/free")
    async def free() -> None: ...

    @app.get("/own", responses=LOCK_RESPONSES)
    @app.get("/one/{n}", dependencies=[locked("a:{n}")])
    @app.put("/one/{n}", dependencies=[locked("a:{n}")])
    async def one(n: int = 0) -> None: ...

    @app.get("/deep/{n}")
    async def deep(n: int, lease: Annotated[Lease, Depends(inner)]) -> None: ...

    @router.get("/router")
    async def routed() -> None: ...

    @app.websocket("/socket")
    async def socket(websocket: WebSocket, lease: Annotated[Lease, locked("s")]) -> None: ...

    app.include_router(router, prefix="/v1")
    paths = app.openapi()["paths"]
    documented = {
        path: set(operations["get"]["responses"]) - {"200", "422"} for path, operations in paths.items()
    }
    assert documented == {
        "/free": set(),
        "/own": {"409", "503"},
        "/one/{n}": {"409", "503"},
        "/deep/{n}": {"423", "503"},
        "/v1/router": {"429", "503"},
    }
    assert paths["/one/{n}"]["put"]["responses"]["409"]["description"] == "Locked by another request."
    assert paths["/v1/router"]["get"]["responses"]["429"]["description"] == "All permits are taken."
    for path, status in (("/own", "409"), ("/one/{n}", "503")):
        response = paths[path]["get"]["responses"][status]
        assert response["headers"]["Retry-After"]["schema"] == {"type": "integer"}
        schema = response["content"]["application/json"]["schema"]
        assert schema["properties"] == {"detail": {"type": "string"}}
    assert app.openapi() is app.openapi(), "made once"
    assert repr(LOCK_RESPONSES) == before


def test_a_document_of_the_applications_own_gets_what_it_has() -> None:
    """Some routes may be left out of it, and it need not be kept."""
    app = new_app()

    @app.get("/shown", dependencies=[locked("a", status_code=423)])
    @app.get("/hidden", dependencies=[locked("a")])
    async def endpoint() -> None: ...

    app.openapi = lambda: {"paths": {"/shown": {"get": {}}}}  # type: ignore[method-assign]
    add_exception_handlers(app)
    assert set(app.openapi()["paths"]["/shown"]["get"]["responses"]) == {"423", "503"}
    assert set(app.openapi()["paths"]) == {"/shown"}
