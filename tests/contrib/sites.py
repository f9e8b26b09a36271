"""The same site in each framework: routes under locks, masters in memory, and a client that asks."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, NamedTuple

import httpx
from aiohttp import web
from fastapi import Depends, FastAPI, HTTPException

from aioredlock_ng import LockManager
from aioredlock_ng.contrib import aiohttp, fastapi
from aioredlock_ng.testing import MemoryNode
from tests.contrib.aiohttp.tools import serve
from tests.servers import eventually
from tests.unit.worlds import World

Body = Callable[[Any, LockManager], Awaitable[object]]
"""The work of a handler: it gets its lease (None on a route without a lock) and the manager."""


class Answer(NamedTuple):
    """The answer to a client."""

    status: int
    body: Any
    retry_after: str | None = None


class Site(ABC):
    """An application over three masters in memory."""

    locked: Callable[..., Any]
    missing: Exception
    """The error that a handler raises for a 404."""
    client: httpx.AsyncClient

    def __init__(self, **options: Any) -> None:
        nodes = [MemoryNode() for _ in range(3)]
        self.world = World(nodes, LockManager(nodes, **options))
        self.errors: list[Exception] = []
        """Errors of handlers that no client is to blame for."""

    @property
    def manager(self) -> LockManager:
        """The application's manager."""
        return self.world.manager

    @abstractmethod
    def route(self, path: str, body: Body, *lock: Any, **options: Any) -> None:
        """Add a route; without arguments for `locked` it has no lock."""

    @abstractmethod
    def serving(self) -> contextlib.AbstractAsyncContextManager[httpx.AsyncClient]:
        """Run the application without its manager."""

    @staticmethod
    @abstractmethod
    def by_query(name: Any) -> Any:
        """Be a key for `locked`: the query's ``name``."""

    async def ask(self, path: str) -> Answer:
        """Ask, and return the answer; it tells nothing about the inside."""
        answer = await self.client.get(path)
        sent = f"{answer.text} {answer.headers}"
        assert not [secret for secret in ("secret", "redlock", "memory-", "stranger") if secret in sent]
        json = answer.headers["Content-Type"].startswith("application/json")
        return Answer(
            answer.status_code, answer.json() if json else answer.text, answer.headers.get("Retry-After")
        )

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Site"]:
        """Run the application; at the end no lock may be left."""
        async with self.manager, self.serving() as self.client:
            yield self
            await eventually(lambda: not any(self.world.keys), what="no key is left")


class FastAPISite(Site):
    """FastAPI, asked without a server."""

    locked = staticmethod(fastapi.locked)
    missing = HTTPException(404)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.app = FastAPI()
        fastapi.add_exception_handlers(self.app)

    def route(self, path: str, body: Body, *lock: Any, **options: Any) -> None:
        """Add a route."""

        async def nothing() -> None: ...

        dependency = self.locked(*lock, **options) if lock else Depends(nothing)

        @self.app.get(path)
        async def endpoint(manager: fastapi.ManagerDep, lease: Annotated[Any, dependency]) -> Any:
            return await body(lease, manager)

    async def _noting(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self.app(scope, receive, send)
        except Exception as error:
            self.errors.append(error)
            raise

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[httpx.AsyncClient]:
        """Be asked."""
        self.app.state.lock_manager = self.manager
        transport = httpx.ASGITransport(app=self._noting, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client

    @staticmethod
    def by_query(name: str) -> str:
        """Be a key that is a dependency."""
        return name


class AiohttpSite(Site):
    """aiohttp, with its own server."""

    locked = staticmethod(aiohttp.locked)
    missing = web.HTTPNotFound()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.app = web.Application(middlewares=[self._noting])
        aiohttp.setup(self.app, self.manager)

    def route(self, path: str, body: Body, *lock: Any, **options: Any) -> None:
        """Add a route."""

        async def handle(request: web.Request) -> web.StreamResponse:
            lease = request[aiohttp.LEASE] if lock else None
            return web.json_response(await body(lease, request.config_dict[aiohttp.MANAGER]))

        self.app.router.add_get(path, self.locked(*lock, **options)(handle) if lock else handle)

    @web.middleware
    async def _noting(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as error:
            self.errors.append(error)
            raise

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[httpx.AsyncClient]:
        """Serve."""
        async with (
            serve(self.app) as site,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{site.port}") as client,
        ):
            yield client

    @staticmethod
    def by_query(request: Any) -> str:
        """Be a key that is a function of the request."""
        return request.query["name"]


SITES = {"fastapi": FastAPISite, "aiohttp": AiohttpSite}
