"""A FastAPI application for the test of two servers."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI

from aioredlock_ng import Lease, LockManager
from aioredlock_ng.contrib.fastapi import add_exception_handlers, locked
from tests.contrib.two_servers.inside import be_inside

TTL = float(os.environ["TTL"])


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Run the manager with the application."""
    async with LockManager.from_env(ttl=TTL, node_timeout=float(os.environ["NODE_TIMEOUT"])) as manager:
        yield {"lock_manager": manager}


app = FastAPI(lifespan=lifespan)
add_exception_handlers(app)

Tried = Annotated[Lease, locked("item:{key}", ttl=TTL, blocking=False)]
Waited = Annotated[Lease, locked("item:{key}", ttl=TTL, blocking_timeout=20)]


@app.post("/try/{key}")
async def try_it(key: str, seconds: float, lease: Tried) -> dict[str, str]:
    """Be inside for the key of the path, or answer 409."""
    await be_inside(key, seconds)
    return {"name": lease.name}


@app.post("/wait/{key}")
async def wait_for_it(key: str, seconds: float, lease: Waited) -> dict[str, str]:
    """Be inside for the key of the path, sooner or later."""
    await be_inside(key, seconds)
    return {"name": lease.name}
