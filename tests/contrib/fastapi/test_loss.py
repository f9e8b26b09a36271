"""A request whose lock is lost, and the lock of a request that is cancelled."""

import asyncio
import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import anyio
import fastapi
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware

from aioredlock_ng import ExtensionPolicy, Lease, LockLostError
from aioredlock_ng.contrib.fastapi import locked
from tests.contrib.fastapi.tools import Site, new_app, real_site, scope_of, site
from tests.contrib.stay import Stay
from tests.servers import eventually
from tests.unit.tasks import Tripwire, in_task, sim, virtual

PLAIN = ExtensionPolicy.off()
VERSION = tuple(map(int, fastapi.__version__.split(".")[:2]))
UNWRAPPING = pytest.mark.skipif(
    VERSION < (0, 124),
    reason="FastAPI before 0.124 runs such an endpoint in a thread, and does not await its result",
)
LOST = (503, {"detail": "the lock was lost"})


async def deleted(here: Site) -> None:
    """Delete the key from outside: the next extension is refused."""
    here.world.vacate("a")


async def frozen(here: Site) -> None:
    """Let no node answer: the lease is lost by the clock."""
    for node in here.world.nodes:
        node.freeze()


async def lost_inside(
    app: FastAPI, stay: Stay, lose: Any = deleted, ends: Sequence[float] = ()
) -> tuple[int, Any]:
    """Lose the lock of a request that is inside; return its answer, which comes before validity `ends`."""
    async with site(app) as here:
        request = here.posting("/")
        await stay.entered.wait()
        await lose(here)
        answer = await request
        assert (answer.headers.get("Retry-After") == "1") is (answer.status_code == 503)
        assert all(sim().time() < end for end in ends)
        for node in here.world.nodes:
            node.thaw()
        await asyncio.sleep(11)  # frozen nodes forget by themselves
    return answer.status_code, answer.json()


@pytest.mark.parametrize("scope", ["function", "request"])
@pytest.mark.parametrize("how", ["swallows", "swallows late", "blocks", "says better", "releases"])
@virtual
async def test_how_an_endpoint_may_end(how: str, scope: Any) -> None:
    """No result is sent that was not made under the lock; but an answer of the endpoint's own is.

    A loss that was not noticed, because the loop stood still, is an error as well; an early release is none.
    """
    app, stay = new_app(), Stay()

    @app.post("/")
    async def endpoint(lease: Annotated[Lease, locked("a", scope=scope)]) -> str:
        try:
            if how == "releases":
                await lease.release()
            elif how == "blocks":
                sim().advance(11)
            else:
                await stay()
        except asyncio.CancelledError as error:
            if how == "says better":
                raise HTTPException(418) from error
        return "done"

    if how in ("blocks", "releases"):
        stay.entered.set()
    status, body = await lost_inside(app, stay, frozen if how == "swallows late" else deleted)
    assert status == {"releases": 200, "says better": 418}.get(how, 503)
    assert status != 503 or body == LOST[1]


@virtual
async def test_a_dependency_that_runs_under_the_lock_is_cancelled_as_well() -> None:
    """The lock is held from its own turn on, and so is the deadline; clean-ups of others still run."""
    app, stay = new_app(), Stay()
    cleaned = []

    async def transaction() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0.001)
            cleaned.append(True)

    async def slow() -> None:
        await stay()

    @app.post("/", dependencies=[locked("a"), Depends(transaction, scope="function"), Depends(slow)])
    async def endpoint() -> None:
        raise AssertionError("not reached")

    assert await lost_inside(app, stay) == LOST
    assert cleaned == [True]


@virtual
async def test_nothing_is_left_of_our_cancellation() -> None:
    """The code around the application is not cancelled, then or later; under a middleware, too."""
    app, stay = new_app(), Stay()
    after = []

    @app.post("/", dependencies=[locked("a")])
    async def endpoint() -> None:
        await stay()

    async def dispatch(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        await asyncio.sleep(1)
        return response

    class Around:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await self.app(scope, receive, send)
            await asyncio.sleep(1)
            task = asyncio.current_task()
            assert task is not None
            after.append(task.cancelling())

    app.add_middleware(Around)
    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    app.add_middleware(Around)
    assert await lost_inside(app, stay) == LOST
    assert after == [0, 0]


# -- threads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["function", "request"])
async def test_a_sync_endpoint_is_not_left_alone(scope: Any) -> None:
    """Its thread cannot be stopped: the request waits for it, and then answers 503."""
    app, leave, done = new_app(), threading.Event(), []
    leases: list[Lease] = []

    @app.post("/")
    def endpoint(lease: Annotated[Lease, locked("a", ttl=0.6, scope=scope, on_lost="cancel")]) -> None:
        leases.append(lease)
        leave.wait(10)
        done.append(True)

    async with real_site(app) as here:
        request = here.posting("/")
        await eventually(lambda: leases, what="the endpoint runs")
        await deleted(here)
        await eventually(lambda: not leases[0].held, what="the lock is lost")
        finished, _ = await asyncio.wait([request], timeout=0.2)
        assert not finished
        assert not done
        leave.set()
        answer = await request

    assert done == [True]
    assert (answer.status_code, answer.json()) == LOST


@pytest.mark.skipif(VERSION < (0, 135), reason="this FastAPI does not stream what endpoints yield")
async def test_an_endpoint_that_yields_from_a_thread_is_stopped() -> None:
    """Between two steps it can be: it does not go on to its end without the lock."""
    app, steps = new_app(), []

    @app.post("/", dependencies=[locked("a", ttl=0.6, scope="request")], response_model=None)
    def endpoint() -> Iterator[str]:
        for step in range(200):
            steps.append(step)
            yield "text"
            time.sleep(0.02)

    async with real_site(app) as here:
        request = asyncio.create_task(call(app, "/", []))
        await eventually(lambda: steps, what="the endpoint runs")
        await deleted(here)
        with pytest.raises(RuntimeError, match="response already started") as raised:
            await request

    assert isinstance(raised.value.__cause__, LockLostError)
    assert len(steps) < 200


TheLock = Annotated[Lease, locked("a")]


def seen(lease: Any) -> list[object]:
    """Return whether an endpoint runs in a thread of its own, and what the loss of its lock would do."""
    in_thread = threading.current_thread() is not threading.main_thread()
    return [in_thread, lease._holding._request.on_lost]


def sync_function(lease: TheLock) -> list[object]:
    """Run in a thread."""
    return seen(lease)


async def async_function(lease: TheLock) -> list[object]:
    """Run on the loop."""
    return seen(lease)


class SyncObject:
    """Be called in a thread."""

    def __call__(self, lease: TheLock) -> list[object]:
        """Run."""
        return seen(lease)


class AsyncObject:
    """Be called on the loop."""

    async def __call__(self, lease: TheLock) -> list[object]:
        """Run."""
        return seen(lease)


def passing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate with a plain function that returns the coroutine."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "endpoint",
    [
        pytest.param(sync_function, id="sync"),
        pytest.param(async_function, id="async"),
        pytest.param(SyncObject(), id="sync object"),
        pytest.param(AsyncObject(), id="async object", marks=UNWRAPPING),
        pytest.param(partial(sync_function), id="partial of sync"),
        pytest.param(partial(async_function), id="partial of async", marks=UNWRAPPING),
        pytest.param(partial(passing(async_function)), id="partial of a decorated one", marks=UNWRAPPING),
    ],
)
async def test_what_runs_in_a_thread_is_not_cancelled(endpoint: Any) -> None:
    """And only that: for every kind of callable the lock decides as FastAPI does."""
    app = new_app()
    app.post("/")(endpoint)
    async with real_site(app) as here:
        in_thread, on_lost = (await here.post("/")).json()
    assert on_lost == ("raise" if in_thread else "cancel")


# -- requests that are cancelled -----------------------------------------------------------------------


async def call(app: FastAPI, path: str, sent: list[Any]) -> None:
    """Call an application as a server does."""
    body = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        return body.pop() if body else await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope_of("http", path), receive, send)


def an_app(scope: Any) -> FastAPI:
    """Make an application whose endpoint takes some turns of the loop, and streams."""
    app = new_app()

    @app.post("/", dependencies=[locked("a", scope=scope, extension=PLAIN)])
    async def endpoint() -> StreamingResponse:
        await asyncio.sleep(0.1)

        async def body() -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.sleep(0.1)
            yield b"b"

        return StreamingResponse(body())

    return app


@pytest.mark.parametrize("scope", ["function", "request"])
@pytest.mark.parametrize("waking", [False, True])
@virtual
async def test_a_request_that_is_cancelled_leaves_no_key(scope: Any, waking: bool) -> None:
    """At whatever await: a server that gives up a request, or a client that leaves one."""
    app = an_app(scope)
    async with site(app) as here:
        at, tripped = 0, True
        while tripped:
            at += 1
            wire = Tripwire(call(app, "/", []), at, waking=waking)
            outcome = (await in_task(lambda wire=wire: wire)).error
            tripped = wire.tripped
            assert isinstance(outcome, asyncio.CancelledError) or outcome is None
            await asyncio.sleep(0.01)
            assert not any(here.world.keys), at

    assert at > 5


@pytest.mark.parametrize("scope", ["function", "request"])
@virtual
async def test_a_request_in_a_scope_of_anyio_that_is_cancelled(scope: Any) -> None:
    """Such a scope cancels again at every await, also while the lock is being released."""
    app = an_app(scope)
    async with site(app) as here:
        for moment in range(60):
            with anyio.move_on_after(moment * 0.005):
                await call(app, "/", [])
            await asyncio.sleep(0.01)
            assert not any(here.world.keys), moment
