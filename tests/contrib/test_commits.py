"""A lock that outlives the commit: whatever commits a request's session does it under the request's lock."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Annotated, Any

import httpx
import psycopg
import pytest
from aiohttp import web
from fastapi import APIRouter, Depends, FastAPI

from aioredlock_ng import Lease, LockLostError
from aioredlock_ng.contrib import aiohttp as with_aiohttp
from aioredlock_ng.contrib.fastapi import locked
from aioredlock_ng.testing import MemoryNode
from tests.contrib.aiohttp.tools import NODES, app_with, serve
from tests.contrib.fastapi.tools import new_app, real_site, site
from tests.servers import eventually
from tests.unit.tasks import virtual

DEPOSITS = 8

Work = dict[str, int]
Row = dict[str, int]
Shape = Callable[[FastAPI, Callable[..., Any], Callable[..., Awaitable[None]]], None]

SHAPES: dict[str, Shape] = {}


def shape(function: Shape) -> Shape:
    """Note a way to declare a lock and a session."""
    SHAPES[function.__name__] = function
    return function


@shape
def lock_first(app: FastAPI, session: Any, work: Any) -> None:
    """The lock is the first parameter."""

    @app.post("/")
    async def endpoint(lease: Annotated[Lease, locked("a")], rows: Annotated[Work, Depends(session)]) -> None:
        await work(rows)


@shape
def session_first(app: FastAPI, session: Any, work: Any) -> None:
    """The session is the first parameter."""

    @app.post("/")
    async def endpoint(rows: Annotated[Work, Depends(session)], lease: Annotated[Lease, locked("a")]) -> None:
        await work(rows)


@shape
def key_needs_the_session(app: FastAPI, session: Any, work: Any) -> None:
    """The lock's name comes from the database."""

    async def key(rows: Annotated[Work, Depends(session)]) -> str:
        return "a"

    @app.post("/", dependencies=[locked(key)])
    async def endpoint(rows: Annotated[Work, Depends(session)]) -> None:
        await work(rows)


@shape
def router_has_the_session(app: FastAPI, session: Any, work: Any) -> None:
    """The session comes before all of a route's own."""
    router = APIRouter(dependencies=[Depends(session)])

    @router.post("/", dependencies=[locked("a")])
    async def endpoint(rows: Annotated[Work, Depends(session)]) -> None:
        await work(rows)

    app.include_router(router)


@shape
def session_of_a_class(app: FastAPI, session: Any, work: Any) -> None:
    """The session is a dependency of a class, and there are two locks."""

    class Repository:
        def __init__(self, rows: Annotated[Work, Depends(session)]) -> None:
            self.rows = rows

    @app.post("/")
    async def endpoint(
        its: Annotated[Repository, Depends()],
        one: Annotated[Lease, locked("a")],
        two: Annotated[Lease, locked("b", mode="write")],
    ) -> None:
        await work(its.rows)


@shape
def both_end_early(app: FastAPI, session: Any, work: Any) -> None:
    """Both end before the response is sent."""

    @app.post("/")
    async def endpoint(
        rows: Annotated[Work, Depends(session, scope="function")],
        lease: Annotated[Lease, locked("a", scope="function")],
    ) -> None:
        await work(rows)


@shape
def session_ends_early(app: FastAPI, session: Any, work: Any) -> None:
    """The session ends before the response is sent, the lock after it."""

    @app.post("/")
    async def endpoint(
        lease: Annotated[Lease, locked("a")], rows: Annotated[Work, Depends(session, scope="function")]
    ) -> None:
        await work(rows)


async def deposits(post: Callable[[], Awaitable[httpx.Response]]) -> set[int]:
    """Ask for all deposits at once; return the statuses."""
    return {answer.status_code for answer in await asyncio.gather(*(post() for _ in range(DEPOSITS)))}


@pytest.mark.parametrize("declared", SHAPES.values(), ids=SHAPES)
async def test_a_session_commits_under_the_lock(declared: Shape) -> None:
    """The next request reads what this one has written, wherever the two stand in the endpoint."""
    app, rows = new_app(), {"balance": 0}

    async def session() -> AsyncIterator[Work]:
        work: Work = {}
        yield work
        await asyncio.sleep(0.01)
        rows.update(work)

    async def work(new: Work) -> None:
        balance = rows["balance"]
        await asyncio.sleep(0.002)
        new["balance"] = balance + 1

    declared(app, session, work)
    async with real_site(app) as here:
        assert await deposits(lambda: here.post("/")) == {200}
    assert rows == {"balance": DEPOSITS}


@pytest.mark.parametrize("declared", [lock_first, session_first], ids=lambda one: one.__name__)
async def test_rows_of_postgres(declared: Shape, postgres_dsn: str) -> None:
    """The same with a database, where reading before another request's commit loses its update."""
    app = new_app()

    async def session() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:  # commits at its end
            yield connection

    async def work(connection: Any) -> None:
        (balance,) = await (await connection.execute("SELECT balance FROM deposits")).fetchone()
        await connection.execute("UPDATE deposits SET balance = %s", [balance + 1])

    declared(app, session, work)
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute("CREATE TABLE deposits AS SELECT 0 AS balance")
        async with real_site(app) as here:
            assert await deposits(lambda: here.post("/")) == {200}
        assert admin.execute("SELECT balance FROM deposits").fetchone() == (DEPOSITS,)
        admin.execute("DROP TABLE deposits")


@virtual
async def test_an_error_of_the_commit_comes_before_the_release() -> None:
    """It is raised while the lock is still held, and the lock is free after it."""
    app, held = new_app(), []

    async def session() -> AsyncIterator[None]:
        yield
        held.append(here.locks)
        raise ArithmeticError

    @app.post("/", dependencies=[Depends(session, scope="function"), locked("a")])
    async def endpoint() -> None: ...

    async with site(app) as here:
        with pytest.raises(ArithmeticError):
            await here.post("/")
        await asyncio.sleep(0.01)
        assert (held, here.locks) == ([["a"]], [])


@pytest.mark.parametrize(("scope", "status"), [("function", 503), ("request", None)])
@virtual
async def test_a_lock_that_is_lost_while_a_session_commits(scope: Any, status: int | None) -> None:
    """The commit is cancelled: a 503, or a connection that breaks off where the answer was sent."""
    app, committed = new_app(), []

    async def session() -> AsyncIterator[None]:
        yield
        here.world.vacate("a")
        await asyncio.sleep(60)
        committed.append(True)

    @app.post("/", dependencies=[Depends(session, scope=scope), locked("a", scope=scope)])
    async def endpoint() -> None: ...

    async with site(app) as here:
        if status is None:
            with pytest.raises(RuntimeError, match="response already started") as raised:
                await here.post("/")
            assert isinstance(raised.value.__cause__, LockLostError)
        else:
            assert (await here.post("/")).status_code == status
    assert committed == []


@pytest.mark.parametrize("scope", ["function", "request"])
@virtual
async def test_a_loss_that_cancels_nothing_is_known_before_the_commit(scope: Any) -> None:
    """As in a `def` endpoint: sessions that are declared before the lock get the error."""
    app, committed = new_app(), []

    async def session() -> AsyncIterator[None]:
        yield
        committed.append(True)

    @app.post("/", dependencies=[Depends(session, scope=scope), locked("a", scope=scope, on_lost="raise")])
    async def endpoint() -> None:
        here.world.vacate("a")
        await asyncio.sleep(60)

    async with site(app) as here:
        assert (await here.post("/")).status_code == 503
    assert committed == []


@virtual
async def test_a_warning_names_what_ends_without_the_lock() -> None:
    """A lock of the short scope ends before a dependency of the long one, which may commit."""
    app = new_app()

    async def session() -> AsyncIterator[None]:
        yield

    @app.post("/", dependencies=[locked("a", scope="function"), Depends(session)])
    async def endpoint() -> None: ...

    async with site(app) as here:
        with pytest.raises(RuntimeWarning, match=r"endpoint.*session.*ends after the lock"):
            await here.post("/")


# -- aiohttp -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before_setup", [True, False])
@pytest.mark.parametrize("place", ["app", "sub-app", "parent", "parent, both set up"])
@pytest.mark.parametrize("redirects", [True, False])
async def test_a_middleware_commits_under_the_lock(before_setup: bool, place: str, redirects: bool) -> None:
    """Wherever it stands among the middlewares, those of a sub-app and of its parent too."""
    row, new = {"balance": 0}, ContextVar[int]("new")

    @web.middleware
    async def session(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            return await handler(request)
        finally:
            await asyncio.sleep(0.01)
            row["balance"] = new.get()

    @with_aiohttp.locked("a")
    async def deposit(request: web.Request) -> web.Response:
        new.set(row["balance"] + 1)
        if redirects:
            raise web.HTTPNoContent
        return web.Response(status=204)

    app, inner = web.Application(), web.Application()
    app[NODES] = [MemoryNode() for _ in range(3)]
    if before_setup:
        (inner if place == "sub-app" else app).middlewares.append(session)
    with_aiohttp.setup(app, app[NODES])
    if not before_setup:
        (inner if place == "sub-app" else app).middlewares.append(session)
    if place.endswith("both set up"):
        with_aiohttp.setup(inner, [MemoryNode() for _ in range(3)])
    (app if place == "app" else inner).router.add_post("/deposit", deposit)
    app.add_subapp("/inner", inner)
    path = "/deposit" if place == "app" else "/inner/deposit"
    async with serve(app) as here, httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}") as client:
        assert await deposits(lambda: client.post(path)) == {204}
    assert row == {"balance": DEPOSITS}


@pytest.mark.parametrize("when", ["handler", "handler, which goes on", "commit"])
async def test_a_middleware_whose_lock_is_lost(when: str) -> None:
    """It sees an answer where the handler was under way, and is cancelled itself where it commits: 503."""
    seen: list[Any] = []

    @web.middleware
    async def session(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response = await handler(request)
            await asyncio.sleep(30)
        except web.HTTPException as error:
            seen.append(error.status)
            raise
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return response

    @with_aiohttp.locked("a", ttl=0.3)
    async def handle(request: web.Request) -> web.Response:
        for node in app[NODES]:
            node.freeze()
        with contextlib.suppress(*[asyncio.CancelledError] * when.endswith("goes on")):
            await asyncio.sleep(30 * (when != "commit"))
        return web.Response()

    app = app_with(web.get("/", handle))
    app.middlewares.insert(1, session)
    async with serve(app) as here:
        status, body, _ = await here.get("/")
        for node in app[NODES]:
            node.thaw()
    assert (status, body) == (503, {"detail": "the lock was lost"})
    assert seen == ["cancelled" if when == "commit" else 503]


@pytest.mark.parametrize("options", [{}, {"mode": "read"}, {"fair": True}], ids=str)
async def test_a_middleware_that_tries_again(options: Any) -> None:
    """When a commit has failed, the handler runs again under the lock that the request still has."""
    tries: list[Any] = []

    @web.middleware
    async def session(request: web.Request, handler: Any) -> Any:
        for _ in range(4):
            with contextlib.suppress(ArithmeticError):
                tries.append(await handler(request))
        return tries[-1]

    @with_aiohttp.locked("a", **options)
    async def handle(request: web.Request) -> web.Response:
        if len(tries) == 1:
            tries.append(None)
            raise ArithmeticError
        return web.Response()

    app = app_with(web.get("/", handle))
    app.middlewares.insert(1, session)
    async with serve(app) as here:
        status, _, _ = await here.get("/")
        await eventually(lambda: not app[with_aiohttp.MANAGER].statistics().leases, what="all are released")
    assert status == 200
