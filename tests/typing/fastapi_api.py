"""The FastAPI integration as users write it.  Never run: ``mypy --strict`` reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, assert_type

from fastapi import APIRouter, Depends, FastAPI, WebSocket, params
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from aioredlock_ng import ExtensionPolicy, Lease, LockManager
from aioredlock_ng.contrib.fastapi import (
    LOCK_RESPONSES,
    ManagerDep,
    add_exception_handlers,
    get_lock_manager,
    locked,
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, LockManager]]:
    """Let a manager live with the application."""
    async with LockManager.from_env() as manager:
        yield {"lock_manager": manager}


app = FastAPI(lifespan=lifespan, responses=LOCK_RESPONSES, dependencies=[locked("everything")])
add_exception_handlers(app)

OrderLock = Annotated[
    Lease, locked("order:{order_id}", ttl=15, blocking_timeout=2, at_least=1, reentrant=True)
]


@app.post("/orders/{order_id}/pay")
async def pay(order_id: int, lease: OrderLock) -> int | None:
    """Run under a lock."""
    assert_type(lease, Lease)
    return lease.fence


class Cart(BaseModel):
    """A body."""

    user_id: int


def cart_key(cart: Cart) -> str:
    """Name a lock."""
    return f"cart:{cart.user_id}"


async def async_key(cart: Cart) -> str:
    """Name a lock, on the loop."""
    return cart_key(cart)


def yielding_key(cart: Cart) -> Iterator[str]:
    """Name a lock, and clean up."""
    yield cart_key(cart)


async def async_yielding_key(cart: Annotated[Cart, Depends()]) -> AsyncIterator[str]:
    """Name a lock, and clean up on the loop."""
    yield cart_key(cart)


class KeyMaker:
    """Names locks."""

    def __call__(self, cart: Cart) -> str:
        """Name a lock."""
        return cart_key(cart)


@app.post("/checkout", dependencies=[locked(cart_key)], responses=LOCK_RESPONSES)
async def checkout(cart: Cart, manager: ManagerDep) -> None:
    """Run under a lock that it does not see."""
    assert_type(manager, LockManager)


@app.websocket("/rooms/{room}", dependencies=[locked("room:{room}", blocking=False)])
async def chat(socket: WebSocket, room: str) -> None:
    """Talk under a lock."""


def every_option() -> None:
    """Whatever a lock can be asked for, and the integration's own."""
    assert_type(locked("a"), params.Depends)
    locked("a", scope="request", status_code=423, mode="write")
    locked("a", fair=True)
    locked("a", cart_key, "b:{b}", blocking=False)
    locked(
        async_key,
        scope="function",
        ttl=timedelta(seconds=15),
        blocking=True,
        blocking_timeout=0.5,
        extension=ExtensionPolicy.off(),
        on_lost="raise",
        label="cart",
    )
    APIRouter(dependencies=[locked(yielding_key), locked(async_yielding_key), locked(KeyMaker())])


async def the_manager(connection: HTTPConnection) -> None:
    """Found by hand, and replaced in tests."""
    assert_type(await get_lock_manager(connection), LockManager)
    app.dependency_overrides[get_lock_manager] = lambda: LockManager(["redis://a"])
    documented: dict[int | str, dict[str, Any]] = {423: LOCK_RESPONSES[409], 503: LOCK_RESPONSES[503]}
    assert_type(documented[423], dict[str, Any])
