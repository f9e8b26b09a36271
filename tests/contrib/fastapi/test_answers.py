"""Lock errors as answers: what is FastAPI's own, WebSockets above all; the rest is in ``../test_both.py``."""

from typing import Annotated, Any

import pytest
from fastapi import WebSocket
from starlette.responses import JSONResponse

from aioredlock_ng import Lease, LockManager, LockTakenError
from aioredlock_ng.contrib.fastapi import ManagerDep, locked
from tests.contrib.fastapi.tools import new_app, site, websocket
from tests.contrib.test_both import quarantined, something_else, taken
from tests.unit.tasks import virtual

DENIAL = {"websocket.http.response": {}}


def the_app() -> Any:
    """Make an application with a lock as a dependency, also of a WebSocket, and one inside a WebSocket."""
    app = new_app()

    @app.post("/locked/{name}", dependencies=[locked("secret-{name}", blocking=False)])
    async def endpoint(name: str) -> None: ...

    @app.websocket("/locked/{name}")
    async def socket(
        socket: WebSocket, name: str, lease: Annotated[Lease, locked("secret-{name}", blocking=False)]
    ) -> None:
        await socket.accept()
        await socket.close()

    @app.websocket("/accepted/{name}")
    async def accepted(socket: WebSocket, name: str, manager: ManagerDep) -> None:
        await socket.accept()
        async with manager.lock(f"secret-{name}", blocking=False):
            await socket.close()

    return app


@virtual
async def test_an_application_may_answer_otherwise() -> None:
    """A handler of its own, added later, is used instead; the error has what it needs."""
    app = the_app()

    @app.exception_handler(LockTakenError)
    async def answer(request: Any, error: LockTakenError) -> JSONResponse:
        return JSONResponse({"wait": error.retry_after}, 429)

    async with site(app) as here:
        await taken(here)
        response = await here.post("/locked/1")
        here.world.vacate("secret-1")
    assert response.status_code == 429
    assert response.json()["wait"] == pytest.approx(60.0, abs=0.1)


# -- WebSockets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("break_it", "status", "detail", "retry_after"),
    [
        (taken, 409, "locked by another request", "60"),
        (quarantined, 503, "locking is unavailable for another 61 s: nodes may have lost locks", "61"),
        (something_else, 503, "locking is unavailable: its nodes or names are misconfigured", ""),
    ],
)
@virtual
async def test_a_websocket_is_denied_or_closed(
    break_it: Any, status: int, detail: str, retry_after: str
) -> None:
    """Before it was accepted it is an HTTP answer, where the server can; else it is closed with 1013."""
    app = the_app()
    async with site(app) as here:
        await break_it(here)
        start, body = await websocket(app, "/locked/1", extensions=DENIAL)
        (early,) = await websocket(app, "/locked/1")
        accepted, late = await websocket(app, "/accepted/1", extensions=DENIAL)
        here.world.vacate("secret-1")
    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert dict(start["headers"]).get(b"retry-after", b"").decode() == retry_after
    assert detail.encode() in body["body"]
    assert early["reason"].startswith(detail)
    assert early == late == {"type": "websocket.close", "code": 1013, "reason": early["reason"]}
    assert accepted["type"] == "websocket.accept"
    assert not [word for word in ("secret", "redlock", "memory-", "stranger") if word in f"{start} {late}"]


@pytest.mark.parametrize("ended_by", ["application", "client", "client, unnoticed"])
@virtual
async def test_a_websocket_that_has_ended_is_not_closed_again(ended_by: str) -> None:
    """However it ended, an error after that has no recipient, and is none of the application's."""
    app, left = new_app(), []

    @app.websocket("/")
    async def endpoint(socket: WebSocket, manager: ManagerDep) -> None:
        await socket.accept()
        if ended_by == "application":
            await socket.close()
        elif ended_by == "client":
            assert (await socket.receive())["type"] == "websocket.disconnect"
        else:
            left.append(True)  # the server finds out when it sends the close
        await fail(manager)

    async def fail(manager: LockManager) -> None:
        await manager.lock("secret-1", blocking=False).acquire()

    async with site(app) as here:
        await taken(here)
        sent = await websocket(app, "/", leaves=ended_by == "client", gone=lambda: bool(left))
        here.world.vacate("secret-1")
    closes = ["websocket.close"] * (ended_by == "application")
    assert [message["type"] for message in sent] == ["websocket.accept", *closes]
