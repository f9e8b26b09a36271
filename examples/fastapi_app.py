"""A shop that takes no order twice: FastAPI with locks over Redis.

Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over five local ones of its own:

    REDLOCK_URLS=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 uvicorn examples.fastapi_app:app
    python examples/fastapi_app.py

and then, in two terminals at once:

    curl -i -X POST http://127.0.0.1:8000/orders/42/pay

`/livez` and `/readyz` are for probes, as Kubernetes has them; compose.yaml starts it all in containers.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from aioredlock_ng import Lease, LockManager
from aioredlock_ng.contrib.fastapi import ManagerDep, add_exception_handlers, locked
from aioredlock_ng.testing import local_nodes


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, LockManager]]:
    async with LockManager.from_env() as manager:  # one per process
        yield {"lock_manager": manager}


app = FastAPI(lifespan=lifespan)
add_exception_handlers(
    app
)  # 409 while another request holds the lock, 503 when it cannot be acquired or was lost

UNKNOWN_WAIT = 5
"""Seconds after which a client may ask again when no moment is known: nodes are down."""

OrderLock = Annotated[Lease, locked("order:{order_id}", ttl=15, blocking_timeout=2)]


@app.post("/orders/{order_id}/pay")
async def pay(order_id: int, lease: OrderLock) -> dict[str, int]:
    await asyncio.sleep(3)  # the bank is slow; another request for this order gives up after 2 s
    lease.check()  # right before the write: is it still ours?
    return {"paid": order_id}


class Cart(BaseModel):
    """What a user is about to buy."""

    user_id: int
    items: list[str]


def cart_key(cart: Cart) -> str:
    return f"cart:{cart.user_id}"


@app.post("/checkout", dependencies=[locked(cart_key, blocking_timeout=2)])
async def checkout(cart: Cart) -> dict[str, int]:
    await asyncio.sleep(0.5)
    return {"bought": len(cart.items)}


@app.post("/stock/count")
async def count_stock(manager: ManagerDep) -> dict[str, float]:
    async with manager.lock(
        "stock", blocking=False
    ) as lease:  # where it is needed, not for the whole request
        await asyncio.sleep(0.5)
        return {"seconds_left": lease.remaining}


@app.get("/livez")
async def live() -> dict[str, str]:
    return {"status": "alive"}  # whatever the nodes do: no restart of this process would mend them


@app.get("/readyz")
async def ready(manager: ManagerDep) -> dict[str, str]:
    if manager.available:  # no I/O: ask as often as you like
        return {"status": "ready"}
    wait, statistics = manager.unavailable_for, manager.statistics()
    reasons = [
        f"{node.name} is {node.state}: {node.reason}" for node in statistics.nodes if node.state != "up"
    ]
    raise HTTPException(
        503,
        statistics.conflict or "; ".join(reasons),
        {"Retry-After": str(math.ceil(wait) if math.isfinite(wait) else UNKNOWN_WAIT)},
    )


async def serve() -> None:
    server = uvicorn.Server(uvicorn.Config(app, port=int(os.environ.get("PORT", "8000"))))
    if os.environ.get("REDLOCK_URLS"):
        await server.serve()
    else:
        async with local_nodes(5) as nodes:
            os.environ["REDLOCK_URLS"] = ",".join(nodes.urls)
            await server.serve()


if __name__ == "__main__":
    asyncio.run(serve())
