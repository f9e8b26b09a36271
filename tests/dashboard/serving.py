"""The page in an application of each framework, on a real socket."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from fastapi import FastAPI

from aioredlock_ng import LockManager
from aioredlock_ng.contrib.aiohttp import add_locks_page, setup
from aioredlock_ng.contrib.fastapi import locks_router
from tests.contrib.web import in_process

TOKEN: Final = "correct horse battery staple"
HOSTS: Final = frozenset({"127.0.0.1", "locks.example"})


@contextlib.asynccontextmanager
async def by_aiohttp(manager: LockManager, **options: Any) -> AsyncIterator[str]:
    """Serve the page at /locks/ of an aiohttp application; gives the URL of the server."""
    app = web.Application()
    setup(app, manager)
    add_locks_page(app, **options)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=20)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def by_fastapi(manager: LockManager, **options: Any) -> AsyncIterator[str]:
    """Serve it at /locks/ of a FastAPI application."""
    app = FastAPI()
    app.state.lock_manager = manager
    app.include_router(locks_router(**options), prefix="/locks")
    async with in_process(app) as port:
        yield f"http://127.0.0.1:{port}"


FRAMEWORKS: Final[dict[str, Callable[..., contextlib.AbstractAsyncContextManager[str]]]] = {
    "aiohttp": by_aiohttp,
    "fastapi": by_fastapi,
}

EACH: Final = ("aiohttp", pytest.param("fastapi", marks=pytest.mark.process))
"""For ``parametrize`` and fixtures: in the quick tier, that of the command line."""


async def sign_in(client: aiohttp.ClientSession, token: str = TOKEN) -> int:
    """Sign in as the page does; the client keeps the cookie."""
    async with client.post("/locks/sign-in", json={"token": token}) as response:
        return response.status


def jar() -> aiohttp.CookieJar:
    """Make a jar that keeps cookies of an address, as browsers do."""
    return aiohttp.CookieJar(unsafe=True)
