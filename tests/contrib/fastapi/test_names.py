"""The name of the lock is made from what the endpoint works on."""

import functools
from collections.abc import AsyncIterator
from enum import StrEnum
from inspect import Parameter, Signature
from typing import Annotated, Any
from uuid import UUID

import pytest
from fastapi import APIRouter, Body, Depends, Header, Path, Query, WebSocket
from pydantic import BaseModel

from aioredlock_ng import Lease
from aioredlock_ng.contrib.fastapi import locked
from aioredlock_ng.events import Acquired
from tests.behaviour.tools import Recorder
from tests.contrib.fastapi.tools import new_app, real_site, site, websocket
from tests.unit.tasks import virtual
from tests.unit.traces import count


class Size(StrEnum):
    SMALL = "small"


class Cart(BaseModel):
    user_id: int


class Filters(BaseModel):
    shop: int = 7
    page: int = 1


async def int_order(order_id: int) -> int:
    """Declare a parameter on behalf of an endpoint."""
    return order_id


def taking(name: str = "", annotation: Any = None, default: Any = Parameter.empty) -> Any:
    """Make an endpoint with one parameter, or none."""

    async def endpoint(**_: Any) -> None: ...

    one = Parameter(name or "none", Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
    endpoint.__signature__ = Signature([one] if name else [])  # type: ignore[attr-defined]
    return endpoint


BY_INT = taking("order_id", int)
BY_TEXT = taking("order_id", str)
BY_CONSTRAINED = taking("order_id", Annotated[int, Path(ge=1)])
BY_ALIAS = taking("number", Annotated[int, Path(alias="order_id")])
BY_DEPENDENCY = taking("order", Annotated[int, Depends(int_order)])
BY_NOTHING = taking()
BY_QUERY = taking("page", Annotated[int, Query(ge=1)], 3)
ORDER, ANY_ORDER = "order:{order_id}", "/{order_id}"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("endpoint", "template", "path", "asked", "name"),
    [
        pytest.param(BY_INT, ORDER, ANY_ORDER, "/042", "order:42", id="number"),
        pytest.param(BY_INT, "{order_id:05d}", ANY_ORDER, "/42", "00042", id="formatted"),
        pytest.param(BY_ALIAS, "order:{number}", ANY_ORDER, "/042", "order:42", id="alias, by name"),
        pytest.param(
            taking("order_id", UUID), ORDER, ANY_ORDER, f"/{'AB' * 16}", f"order:{UUID('ab' * 16)}", id="UUID"
        ),
        pytest.param(taking("order_id", Size), "{order_id.value}", ANY_ORDER, "/small", "small", id="enum"),
        pytest.param(BY_TEXT, ORDER, "/{order_id:path}", "/a/b", "order:a/b", id="whole path"),
        pytest.param(BY_DEPENDENCY, ORDER, ANY_ORDER, "/042", "order:42", id="declared by a dependency"),
        pytest.param(BY_NOTHING, ORDER, ANY_ORDER, "/042", "order:042", id="not declared"),
        pytest.param(BY_NOTHING, ORDER, "/{order_id:int}", "/042", "order:42", id="converted by the route"),
        pytest.param(BY_QUERY, "page:{page}", "/", "/?page=05", "page:5", id="query"),
        pytest.param(
            taking("filters", Annotated[Filters, Query()]),
            *("{filters.shop}:{filters.page}", "/", "/?page=05", "7:5"),
            id="model",
        ),
        pytest.param(
            taking("tag", Annotated[list[int], Query()]),
            *("{tag[0]}:{tag[1]}", "/", "/?tag=05&tag=6", "5:6"),
            id="list",
        ),
    ],
)
@virtual
async def test_a_template_gets_what_the_endpoint_gets(
    endpoint: Any, template: str, path: str, asked: str, name: str
) -> None:
    """The name comes from validated values, not from the text of the URL: /042 and /42 are one order."""
    app, names = new_app(), []
    app.post(path, dependencies=[noting(template, names)])(endpoint)
    async with site(app) as here:
        assert (await here.post(asked)).status_code == 200
    assert names == [name]


def noting(key: Any, names: list[str]) -> Any:
    """Depend on a lock, and note its name."""

    async def note(lease: Annotated[Lease, locked(key)]) -> None:
        names.append(lease.name)

    return Depends(note)


@pytest.mark.parametrize(
    ("endpoint", "path", "asked"),
    [
        pytest.param(BY_INT, ANY_ORDER, "/x", id="no number"),
        pytest.param(BY_CONSTRAINED, ANY_ORDER, "/0", id="too small"),
        pytest.param(BY_ALIAS, ANY_ORDER, "/x", id="under an alias"),
        pytest.param(BY_DEPENDENCY, ANY_ORDER, "/x", id="in a dependency"),
        pytest.param(BY_INT, "/", "/", id="missing"),
    ],
)
@virtual
async def test_a_value_that_does_not_validate_locks_nothing(endpoint: Any, path: str, asked: str) -> None:
    """The answer is the one that FastAPI gives without any lock, and no node hears of it."""
    app = new_app()
    app.post(path, dependencies=[locked("order:{order_id}")])(endpoint)
    app.post("/plain" + path)(endpoint)
    async with site(app) as here:
        answer = await here.post(asked)
        plain = await here.post("/plain" + asked)
        assert answer.status_code == plain.status_code == 422
        assert answer.json()["detail"] == plain.json()["detail"]
        assert count(here.world.nodes[0], "acquire") == 0


@virtual
async def test_routers_and_their_prefixes() -> None:
    """Prefixes, and dependencies given to a router or to its inclusion, are part of the route."""
    names: list[str] = []

    async def shop_number(shop_id: int) -> None: ...

    inner = APIRouter(prefix="/orders")
    inner.post("/{order_id}", dependencies=[Depends(int_order)])(taking("page", int, 1))
    outer = APIRouter(prefix="/{shop_id}", dependencies=[noting("{shop_id}:{order_id}:{page}", names)])
    outer.include_router(inner)
    app = new_app()
    app.include_router(outer, prefix="/shops", dependencies=[Depends(shop_number)])
    async with site(app) as here:
        assert (await here.post("/shops/07/orders/042?page=02")).status_code == 200
    assert names == ["7:42:2"]


@virtual
async def test_one_endpoint_in_two_routes() -> None:
    """The same function may take its parameter from the path in one route and from the query in another."""
    app, names = new_app(), []

    @app.post("/path/{order_id}")
    @app.post("/query")
    async def endpoint(order_id: int, lease: Annotated[Lease, locked("order:{order_id}")]) -> None:
        names.append(lease.name)

    async with site(app) as here:
        await here.post("/path/01?order_id=9")
        await here.post("/query?order_id=02")
    assert names == ["order:1", "order:2"]


@virtual
async def test_websockets_name_their_locks() -> None:
    """A WebSocket's parameters are validated, too; a bad one, or a bad name, closes it as FastAPI does."""
    app, names = new_app(), []

    async def endpoint(
        socket: WebSocket, order_id: int, lease: Annotated[Lease, locked("order:{order_id}")]
    ) -> None:
        names.append(lease.name)
        await socket.accept()
        await socket.close()

    @app.websocket("/empty/name/of/a/lock")
    async def nameless(socket: WebSocket, lease: Annotated[Lease, locked("{name}")], name: str = "") -> None:
        raise AssertionError("not reached")

    app.websocket("/{order_id}")(endpoint)
    router = APIRouter(prefix="/{shop_id}")
    router.websocket("/{order_id}")(endpoint)
    app.include_router(router)
    async with site(app):
        await websocket(app, "/042")
        await websocket(app, "/shop/043")
        for path in ("/x", "/empty/name/of/a/lock"):
            (close,) = await websocket(app, path)
            assert (close["type"], close["code"]) == ("websocket.close", 1008)
    assert names == ["order:42", "order:43"]


@pytest.mark.parametrize(
    "endpoint",
    [
        BY_NOTHING,
        BY_QUERY,
        taking("order_id", Annotated[str, Header()]),
        taking("order_id", Annotated[str, Body(embed=True)]),
    ],
    ids=["nowhere", "other query", "header", "body"],
)
@virtual
async def test_a_field_that_is_no_parameter(endpoint: Any) -> None:
    """A template reads path and query; the error names the template, the field and the route.

    Text that a client adds does not help.
    """
    app = new_app()
    router = APIRouter(prefix="/shops")
    router.post("/{shop}", dependencies=[locked("order:{order_id}")])(endpoint)
    app.include_router(router)
    async with site(app) as here:
        with pytest.raises(
            RuntimeError,
            match=r"'order:\{order_id\}': 'order_id' is not a path or query .* '/shops/\{shop\}'",
        ):
            await here.post("/shops/1?order_id=1", json={"order_id": "a"}, headers={"order_id": "a"})


# -- keys that are dependencies ------------------------------------------------------------------------


async def user() -> str:
    """Know the user."""
    return "ada"


async def async_key(cart: Cart, who: Annotated[str, Depends(user)]) -> str:
    """Need a body and another dependency."""
    return f"cart:{cart.user_id}:{who}"


async def yielding_key(cart: Cart) -> AsyncIterator[str]:
    """Need cleaning up."""
    yield f"yielded:{cart.user_id}"


class KeyMaker:
    """Make keys with a prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    async def __call__(self, cart: Cart) -> str:
        """Make one."""
        return f"{self.prefix}:{cart.user_id}"


def plain_key(cart: Cart, extra: str = "") -> str:
    """Need no loop."""
    return f"cart:{cart.user_id}{extra}"


@pytest.mark.parametrize(
    ("key", "name", "label"),
    [
        (async_key, "cart:7:ada", "async_key"),
        (yielding_key, "yielded:7", "yielding_key"),
        (KeyMaker("made"), "made:7", "KeyMaker"),
        (plain_key, "cart:7", "plain_key"),
        (functools.partial(plain_key, extra="!"), "cart:7!", "plain_key"),
    ],
    ids=["async", "yielding", "object", "in a thread", "partial"],
)
async def test_a_key_may_be_a_dependency(key: Any, name: str, label: str) -> None:
    """Body, user, whatever FastAPI can inject; its label is its name, not the filled one."""
    app, recorder = new_app(), Recorder()

    @app.post("/checkout", dependencies=[locked(key)])
    async def checkout(cart: Cart) -> dict[str, int]:
        return {"user": cart.user_id}

    async with real_site(app, hooks=[recorder]) as here:
        answer = await here.post("/checkout", json={"user_id": "7"})
        assert answer.json() == {"user": 7}
        assert (await here.post("/checkout", json={})).status_code == 422
    (acquired,) = [event for event in recorder.events if isinstance(event, Acquired)]
    assert (acquired.names, acquired.label) == ((name,), label)


@virtual
async def test_a_key_may_be_overridden() -> None:
    """Like every dependency, in the tests of an application."""

    async def key() -> str:
        raise AssertionError("overridden")

    async def fixed() -> str:
        return "fixed"

    app = new_app()

    @app.post("/")
    async def endpoint(lease: Annotated[Lease, locked(key)]) -> str:
        return lease.name

    app.dependency_overrides[key] = fixed
    async with site(app) as here:
        assert (await here.post("/")).json() == "fixed"


@virtual
async def test_names_in_the_path_do_not_disturb_the_dependency() -> None:
    """The lock has no parameters of its own, whatever the path calls its parts."""

    async def key() -> str:
        return "key"

    app = new_app()

    @app.post("/{connection}/{manager}/{name}", dependencies=[locked("{connection}{manager}{name}")])
    @app.post("/key/{connection}/{manager}/{name}", dependencies=[locked(key)])
    async def endpoint(connection: str) -> str:
        return connection

    async with site(app) as here:
        assert (await here.post("/a/b/c")).json() == "a"
        assert (await here.post("/key/a/b/c")).json() == "a"


@virtual
async def test_a_lock_that_an_override_brings_in() -> None:
    """It is not among what the route declares, and a name from half of the parameters would be wrong."""

    async def nothing() -> None: ...

    async def locking(lease: Annotated[Lease, locked("order:{order_id}")]) -> None: ...

    app = new_app()

    @app.post("/{order_id}", dependencies=[Depends(nothing)])
    async def endpoint(order_id: int) -> None: ...

    app.dependency_overrides[nothing] = locking
    async with site(app) as here:
        with pytest.raises(RuntimeError, match="must be a dependency of the route"):
            await here.post("/1")
