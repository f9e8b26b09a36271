"""An application for a real server, which tests run in a process of its own."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware

from aioredlock_ng import Lease, LockManager
from aioredlock_ng.contrib.fastapi import add_exception_handlers, locked

done: list[str] = []
"""The endpoints that have finished, for tests that ask for it."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, LockManager]]:
    """Let a manager live with the application."""
    async with LockManager.from_env(node_timeout=0.5) as manager:
        yield {"lock_manager": manager}


app = FastAPI(lifespan=lifespan)
add_exception_handlers(app)

Short = Annotated[Lease, locked("{name}", ttl=1, blocking=False)]
Long = Annotated[Lease, locked("{name}", ttl=1, blocking=False, scope="request")]


@app.get("/done")
async def what_is_done() -> list[str]:
    """Say what has finished."""
    return done


@app.post("/wait/{name}")
async def wait(name: str, lease: Short, seconds: float = 0) -> str:
    """Stay inside."""
    await asyncio.sleep(seconds)
    done.append(name)
    return lease.name


@app.post("/thread/{name}")
def thread(name: str, lease: Short, seconds: float = 0) -> None:
    """Stay inside, in a thread."""
    time.sleep(seconds)
    done.append(name)


@app.post("/stream/{name}")
async def stream(name: str, lease: Long, parts: int = 3, pause: float = 0) -> StreamingResponse:
    """Send a body under the lock."""

    async def body() -> AsyncIterator[str]:
        for part in range(parts):
            yield f"{part}\n"
            await asyncio.sleep(pause)
        done.append(name)

    return StreamingResponse(body())


@app.post("/stream_thread/{name}")
async def stream_thread(name: str, lease: Long, parts: int = 3, pause: float = 0) -> StreamingResponse:
    """Send a body that is made in threads."""

    def body() -> Iterator[str]:
        for part in range(parts):
            yield f"{part}\n"
            time.sleep(pause)
        done.append(name)

    return StreamingResponse(body())


@app.websocket("/socket/{name}")
async def socket(socket: WebSocket, name: str, lease: Short) -> None:
    """Echo under the lock."""
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(text)


async def dispatch(request: Request, call_next: Any) -> Any:
    """Do nothing, in another task."""
    return await call_next(request)


with_middleware = FastAPI(lifespan=lifespan)
with_middleware.router.routes.extend(app.router.routes)
add_exception_handlers(with_middleware)
with_middleware.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
