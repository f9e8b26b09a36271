"""The name of the lock is made from what the endpoint works on."""

import functools
from collections.abc import AsyncIterator
from datetime import date
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import pytest
from fastapi import APIRouter, Body, Depends, Header, Path, Query, WebSocket
from pydantic import BaseModel

from aioredlock_ng import Lease
from aioredlock_ng.contrib.fastapi import locked
from tests.contrib.fastapi.tools import new_app, real_site, site, websocket
from tests.unit.worlds import count, virtual


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


async def by_int(order_id: int) -> None:
    """Take a number from the path."""


async def by_constrained(order_id: Annotated[int, Path(ge=1)]) -> None:
    """Take a positive number."""


async def by_alias(number: Annotated[int, Path(alias="order_id")]) -> None:
    """Take a number under another name."""


async def by_uuid(order_id: UUID) -> None:
    """Take an identifier that can be written in several ways."""


async def by_date(order_id: date) -> None:
    """Take a date."""


async def by_enum(order_id: Size) -> None:
    """Take one of a few words."""


async def by_text(order_id: str) -> None:
    """Take it as it is."""


async def by_dependency(order: Annotated[int, Depends(int_order)]) -> None:
    """Have the number declared by a dependency."""


async def by_nothing() -> None:
    """Take nothing."""


async def by_query(page: Annotated[int, Query(ge=1)] = 3) -> None:
    """Take a number from the query, with a default."""


async def by_query_alias(page: Annotated[int, Query(alias="page-number")] = 3) -> None:
    """Take a number from the query under another name."""


async def by_query_model(filters: Annotated[Filters, Query()]) -> None:
    """Take the query as a model."""


async def by_list(tag: Annotated[list[int], Query()]) -> None:
    """Take a parameter that may come several times."""


ORDER, ANY_ORDER = "order:{order_id}", "/{order_id}"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("endpoint", "template", "path", "asked", "name"),
    [
        pytest.param(by_int, ORDER, ANY_ORDER, "/042", "order:42", id="number"),
        pytest.param(by_int, ORDER, ANY_ORDER, "/%34%32", "order:42", id="quoted"),
        pytest.param(by_int, ORDER, ANY_ORDER, "/+42", "order:42", id="signed"),
        pytest.param(by_int, ORDER, ANY_ORDER, "/42.0", "order:42", id="whole"),
        pytest.param(by_int, "{order_id:05d}", ANY_ORDER, "/42", "00042", id="formatted"),
        pytest.param(by_int, "{order_id:0{order_id}d}", ANY_ORDER, "/3", "003", id="nested format"),
        pytest.param(by_int, "{{{order_id!r}}}", ANY_ORDER, "/042", "{42}", id="braces"),
        pytest.param(by_constrained, ORDER, ANY_ORDER, "/042", "order:42", id="constrained"),
        pytest.param(by_alias, "order:{number}", ANY_ORDER, "/042", "order:42", id="alias, by name"),
        pytest.param(by_alias, ORDER, ANY_ORDER, "/042", "order:42", id="alias, by alias"),
        pytest.param(by_uuid, ORDER, ANY_ORDER, f"/{'AB' * 16}", f"order:{UUID('ab' * 16)}", id="UUID"),
        pytest.param(by_date, ORDER, ANY_ORDER, "/2030-01-02", "order:2030-01-02", id="date"),
        pytest.param(by_enum, "{order_id.value}", ANY_ORDER, "/small", "small", id="enum"),
        pytest.param(by_text, ORDER, ANY_ORDER, "/042", "order:042", id="text"),
        pytest.param(by_text, ORDER, "/{order_id:path}", "/a/b", "order:a/b", id="whole path"),
        pytest.param(by_text, ORDER, ANY_ORDER, "/%7Bx%7D", "order:{x}", id="braces are no template"),
        pytest.param(by_dependency, ORDER, ANY_ORDER, "/042", "order:42", id="declared by a dependency"),
        pytest.param(by_nothing, ORDER, ANY_ORDER, "/042", "order:042", id="not declared"),
        pytest.param(by_nothing, ORDER, "/{order_id:int}", "/042", "order:42", id="converted by the route"),
        pytest.param(by_query, "page:{page}", "/", "/?page=05", "page:5", id="query"),
        pytest.param(by_query, "page:{page}", "/", "/", "page:3", id="default of a query"),
        pytest.param(by_query_alias, "page:{page}", "/", "/?page-number=05", "page:5", id="query alias"),
        pytest.param(by_query_model, "{filters.shop}:{filters.page}", "/", "/?page=05", "7:5", id="model"),
        pytest.param(by_list, "{tag[0]}:{tag[1]}", "/", "/?tag=05&tag=6", "5:6", id="list"),
        pytest.param(by_nothing, "everything", "/", "/", "everything", id="constant"),
    ],
)
@virtual
async def test_a_template_gets_what_the_endpoint_gets(
    endpoint: Any, template: str, path: str, asked: str, name: str
) -> None:
    """What names the lock is validated, not the text of the URL: /042 and /42 are one order."""
    app = new_app()
    names = []

    async def note(lease: Annotated[Lease, locked(template)]) -> None:
        names.append(lease.name)

    app.post(path, dependencies=[Depends(note)])(endpoint)
    async with site(app) as here:
        assert (await here.post(asked)).status_code == 200

    assert names == [name]


@pytest.mark.parametrize(
    ("endpoint", "path", "asked"),
    [
        pytest.param(by_int, ANY_ORDER, "/x", id="no number"),
        pytest.param(by_constrained, ANY_ORDER, "/0", id="too small"),
        pytest.param(by_alias, ANY_ORDER, "/x", id="under an alias"),
        pytest.param(by_dependency, ANY_ORDER, "/x", id="in a dependency"),
        pytest.param(by_int, "/", "/", id="missing"),
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


@pytest.mark.parametrize("template", ["{number}", "{order_id}"])
@virtual
async def test_an_alias_in_the_words_of_pydantic(template: str) -> None:
    """FastAPI's versions differ in what they make of it: whatever the endpoint gets, names the lock."""
    app = new_app()
    names = []

    async def note(lease: Annotated[Lease, locked(template)]) -> None:
        names.append(lease.name)

    @app.post("/{order_id}", dependencies=[Depends(note)])
    async def endpoint(number: Annotated[int, Path(validation_alias="order_id")]) -> int:
        return number

    async with site(app) as here:
        answer = await here.post("/042")

    assert (answer.status_code, names) in [(200, ["42"]), (422, [])]
    assert answer.status_code == 422 or answer.json() == 42


@virtual
async def test_a_parameter_of_another_dependency_of_the_route_counts() -> None:
    """A number is a number, also when only a neighbour of the lock declares it."""
    app = new_app()
    names = []

    async def note(lease: Annotated[Lease, locked("order:{order_id}")]) -> None:
        names.append(lease.name)

    @app.post("/{order_id}", dependencies=[Depends(note), Depends(int_order)])
    async def endpoint() -> None: ...

    async with site(app) as here:
        assert (await here.post("/042")).status_code == 200

    assert names == ["order:42"]


@virtual
async def test_routers_and_their_prefixes() -> None:
    """Prefixes, and dependencies given to a router or to its inclusion, are part of the route."""
    names = []

    async def shop_number(shop_id: int) -> None: ...

    async def note(lease: Annotated[Lease, locked("{shop_id}:{order_id}:{page}")]) -> None:
        names.append(lease.name)

    inner = APIRouter(prefix="/orders")

    @inner.post("/{order_id}")
    async def endpoint(order_id: int, page: int = 1) -> None: ...

    outer = APIRouter(prefix="/{shop_id}", dependencies=[Depends(note)])
    outer.include_router(inner)
    app = new_app()
    app.include_router(outer, prefix="/shops", dependencies=[Depends(shop_number)])
    async with site(app) as here:
        assert (await here.post("/shops/07/orders/042?page=02")).status_code == 200

    assert names == ["7:42:2"]


@virtual
async def test_one_endpoint_in_two_routes() -> None:
    """The same function may take its parameter from the path in one route and from the query in another."""
    app = new_app()
    names = []

    @app.post("/path/{order_id}")
    @app.post("/query")
    async def endpoint(order_id: int, lease: Annotated[Lease, locked("order:{order_id}")]) -> None:
        names.append(lease.name)

    async with site(app) as here:
        await here.post("/path/01?order_id=9")
        await here.post("/query?order_id=02")

    assert names == ["order:1", "order:2"]


@virtual
async def test_websockets_name_their_locks_alike() -> None:
    """A WebSocket's parameters are validated, too; a bad one closes it as FastAPI does, with 1008."""
    app = new_app()
    names = []

    async def endpoint(
        socket: WebSocket, order_id: int, lease: Annotated[Lease, locked("order:{order_id}")]
    ) -> None:
        names.append(lease.name)
        await socket.accept()
        await socket.close()

    app.websocket("/{order_id}")(endpoint)
    router = APIRouter(prefix="/{shop_id}")
    router.websocket("/{order_id}")(endpoint)
    app.include_router(router)
    async with site(app):
        await websocket(app, "/042")
        await websocket(app, "/shop/043")
        (close,) = await websocket(app, "/x")

    assert names == ["order:42", "order:43"]
    assert (close["type"], close["code"]) == ("websocket.close", 1008)


@pytest.mark.parametrize("endpoint", [by_nothing, by_query], ids=["nowhere", "other query"])
@virtual
async def test_a_field_that_is_no_parameter(endpoint: Any) -> None:
    """The error names the template, the field and the route; text that a client adds does not help."""
    app = new_app()
    router = APIRouter(prefix="/shops")
    router.post("/{shop}", dependencies=[locked("order:{order_id}")])(endpoint)
    app.include_router(router)
    async with site(app) as here:
        with pytest.raises(RuntimeError, match=r"'order:\{order_id\}': 'order_id' .* '/shops/\{shop\}'"):
            await here.post("/shops/1?order_id=1")


@virtual
async def test_headers_and_bodies_are_no_fields() -> None:
    """A template reads path and query; for anything else a key may be a dependency."""
    app = new_app()

    @app.post("/header", dependencies=[locked("{token}")])
    async def with_header(token: Annotated[str, Header()]) -> None: ...

    @app.post("/body", dependencies=[locked("{token}")])
    async def with_body(token: Annotated[str, Body(embed=True)]) -> None: ...

    async with site(app) as here:
        for path in ("/header", "/body"):
            with pytest.raises(RuntimeError, match="'token' is no path or query parameter"):
                await here.post(path, json={"token": "a"}, headers={"token": "a"})


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("/?name=", "empty"),
        (f"/?name={'x' * 1025}", "too long"),
        (f"/?name={'ä' * 513}", "too long in UTF-8"),
        ("/?name=fence:{a}", "reserved"),
        ("/?name={meta}", "reserved"),
    ],
)
@pytest.mark.parametrize("key", ["{name}", "key"])
@virtual
async def test_a_name_that_cannot_be_is_the_clients_fault(asked: str, why: str, key: str) -> None:
    """A request cannot smuggle in a name of our own keys, nor any other that no lock may have: 422."""

    async def name_of(name: str) -> str:
        return name

    app = new_app()

    @app.post("/", dependencies=[locked(key if key == "{name}" else name_of)])
    async def endpoint(name: str) -> None: ...

    async with site(app) as here:
        answer = await here.post(asked)

        assert answer.status_code == 422, why
        (problem,) = answer.json()["detail"]
        assert problem["type"] == "lock_name"
        assert "x" * 99 not in answer.text
        assert (await here.post(f"/?name={'x' * 1024}")).status_code == 200


@virtual
async def test_a_name_that_is_no_unicode() -> None:
    """A lone surrogate cannot be sent to a node: 422, and the answer can be sent."""

    async def surrogate() -> str:
        return "\ud800"

    app = new_app()

    @app.post("/", dependencies=[locked(surrogate)])
    async def endpoint() -> None: ...

    async with site(app) as here:
        assert (await here.post("/")).status_code == 422


@virtual
async def test_a_bad_name_closes_a_websocket() -> None:
    """As any other value that does not validate."""
    app = new_app()

    @app.websocket("/")
    async def endpoint(socket: WebSocket, lease: Annotated[Lease, locked("{name}")], name: str = "") -> None:
        raise AssertionError("not reached")

    async with site(app):
        (close,) = await websocket(app, "/")
    assert (close["type"], close["code"]) == ("websocket.close", 1008)


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
    ],
    ids=["async", "yielding", "object"],
)
@virtual
async def test_a_key_may_be_a_dependency(key: Any, name: str, label: str) -> None:
    """Body, user, whatever FastAPI can inject; its label is its name, not the filled one."""
    labels = []

    class Hooks:
        def on_acquired(self, event: Any) -> None:
            labels.append((event.names, event.label))

    app = new_app()

    @app.post("/checkout", dependencies=[locked(key)])
    async def checkout(cart: Cart) -> dict[str, int]:
        return {"user": cart.user_id}

    async with site(app, hooks=[Hooks()]) as here:
        answer = await here.post("/checkout", json={"user_id": "7"})
        assert answer.json() == {"user": 7}
        assert (await here.post("/checkout", json={})).status_code == 422

    assert labels == [((name,), label)]


async def test_a_key_may_be_a_plain_function() -> None:
    """FastAPI runs it in a thread; the label of a partial is the name of its function."""
    events = []

    class Hooks:
        def on_acquired(self, event: Any) -> None:
            events.append((event.names[0], event.label))

    app = new_app()

    @app.post("/", dependencies=[locked(plain_key)])
    @app.post("/partial", dependencies=[locked(functools.partial(plain_key, extra="!"))])
    async def endpoint() -> None: ...

    async with real_site(app, hooks=[Hooks()]) as here:
        assert (await here.post("/", json={"user_id": 7})).status_code == 200
        assert (await here.post("/partial", json={"user_id": 8})).status_code == 200

    assert events == [("cart:7", "plain_key"), ("cart:8!", "plain_key")]


@virtual
async def test_a_key_that_returns_no_text() -> None:
    """That is a bug of the application's: it is told what it returned."""

    async def number() -> Any:
        return 42

    app = new_app()

    @app.post("/", dependencies=[locked(number)])
    async def endpoint() -> None: ...

    async with site(app) as here:
        with pytest.raises(TypeError, match="42"):
            await here.post("/")


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
