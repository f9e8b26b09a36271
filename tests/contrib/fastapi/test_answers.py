"""Lock errors as answers: the status, when to come back, and nothing about the inside."""

import asyncio
import contextlib
import logging
from typing import Annotated, Any

import pytest
from fastapi import WebSocket
from starlette.responses import JSONResponse

from aioredlock_ng import Lease, LockManager, LockTakenError, WouldDeadlockError
from aioredlock_ng.contrib.fastapi import ManagerDep, locked
from tests.contrib.fastapi.tools import Site, new_app, site, websocket
from tests.contrib.stay import Stay
from tests.unit.worlds import make, virtual

DENIAL = {"websocket.http.response": {}}


def the_app() -> Any:
    """Make an application with a lock as a dependency and one inside, each for HTTP and WebSockets."""
    app = new_app()

    @app.post("/locked/{name}", dependencies=[locked("secret-{name}", blocking=False)])
    async def endpoint(name: str) -> None: ...

    @app.post("/plain/{name}")
    async def plain(name: str, manager: ManagerDep) -> None:
        async with manager.lock(f"secret-{name}", blocking=False):
            pass

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


async def taken(here: Site) -> None:
    """Let another request hold the lock."""
    here.world.occupy("secret-1", 7.2)


async def no_quorum(here: Site) -> None:
    """Let two of three nodes be down."""
    for node in here.world.nodes[:2]:
        node.crash()
    await asyncio.sleep(0.5)


async def quarantined(here: Site) -> None:
    """Let two of three nodes come back without their memory."""
    for node in here.world.nodes[:2]:
        node.restart()
    await asyncio.sleep(2.0)
    assert [node.state for node in here.manager.statistics().nodes] == ["quarantined", "quarantined", "up"]


async def misconfigured(here: Site) -> None:
    """Let an operator claim one of the nodes for another list."""
    other = make(here.world.nodes[:1], seed=99, holder="secret-operator")
    async with contextlib.aclosing(other):
        await other.init(force=True)
    await asyncio.sleep(1.0)
    assert here.manager.statistics().conflict is not None


async def something_else(here: Site) -> None:
    """Let another program have a list under the lock's key."""
    for node in here.world.nodes[:2]:
        node.set(b"redlock:secret-1", None, 60.0)


async def closed(here: Site) -> None:
    """Let the manager be closed, as while the application shuts down."""
    await here.manager.aclose()


BREAK = pytest.mark.parametrize(
    ("break_it", "status", "detail", "retry_after"),
    [
        (taken, 409, "locked by another request", "8"),
        (no_quorum, 503, "locking is unavailable", "1"),
        (
            quarantined,
            503,
            "locking is unavailable for another 59 s: nodes may have forgotten locks (restart quarantine)",
            "59",
        ),
        (
            misconfigured,
            503,
            "locking is unavailable: its nodes or names are misconfigured",
            None,
        ),
        (something_else, 503, "locking is unavailable: its nodes or names are misconfigured", None),
        (closed, 503, "locking is unavailable", "1"),
    ],
)


@pytest.mark.parametrize("path", ["/locked/1", "/plain/1"])
@BREAK
@virtual
async def test_each_error_has_its_answer(
    path: str, break_it: Any, status: int, detail: str, retry_after: str | None
) -> None:
    """For locks of `locked` and for those inside an endpoint alike."""
    async with site(the_app()) as here:
        await break_it(here)
        answer = await here.post(path)
        here.world.vacate("secret-1")

    assert (answer.status_code, answer.json()) == (status, {"detail": detail})
    assert answer.headers.get("Retry-After") == retry_after


@virtual
async def test_without_a_known_moment_there_is_no_retry_after() -> None:
    """When a key without expiry is freed is unknown."""
    async with site(the_app()) as here:
        here.world.occupy("secret-1", None)
        answer = await here.post("/locked/1")
        here.world.vacate("secret-1")

    assert answer.status_code == 409
    assert "Retry-After" not in answer.headers


@BREAK
@virtual
async def test_the_answer_tells_nothing_about_the_inside(
    break_it: Any, status: int, detail: str, retry_after: str | None
) -> None:
    """No lock name, no node's address, no holder: neither in the body nor in a header."""
    app = the_app()
    async with site(app) as here:
        await break_it(here)
        answer = await here.post("/locked/1")
        sent = [
            *await websocket(app, "/locked/1", extensions=DENIAL),
            *await websocket(app, "/locked/1"),
            *await websocket(app, "/accepted/1"),
        ]
        here.world.vacate("secret-1")

    told = f"{answer.text} {answer.headers} {sent}"
    assert detail in told
    for secret in ("secret", "redlock", "memory-", "stranger"):
        assert secret not in told


@virtual
async def test_a_quarantine_is_over_when_the_answer_says() -> None:
    """A client that comes back after `Retry-After` seconds gets the lock."""
    async with site(the_app()) as here:
        await quarantined(here)
        await asyncio.sleep(3.3)
        wait = int((await here.post("/locked/1")).headers["Retry-After"])
        await asyncio.sleep(wait - 1.0)
        assert (await here.post("/locked/1")).headers["Retry-After"] == "1"
        await asyncio.sleep(1.0)
        assert (await here.post("/locked/1")).status_code == 200


@virtual
async def test_misconfigured_nodes_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The operator reads there which node it is, whose it is, since when, and which client claimed it."""
    async with site(the_app()) as here:
        await misconfigured(here)
        caplog.clear()
        await here.post("/plain/1")

    (record,) = [record for record in caplog.records if record.name == "aioredlock_ng"]
    line, node = record.getMessage(), here.world.nodes[0].name
    assert line.startswith(f"/plain/{{name}}: node {node}: it belongs to a quorum of 1 node, here are 3")
    assert "stated by `init` of secret-operator at " in line


@virtual
async def test_no_quorum_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Operators see which node did what, and the route; a lock that is merely taken is no news."""
    async with site(the_app()) as here:
        await taken(here)
        await here.post("/locked/1")
        assert not caplog.records
        here.world.vacate("secret-1")
        await no_quorum(here)
        caplog.clear()
        await here.post("/locked/1")

    (record,) = [record for record in caplog.records if record.name == "aioredlock_ng"]
    assert record.levelno == logging.WARNING
    assert record.__dict__["lock"] == "secret-1"
    line = record.getMessage()
    assert line.startswith("/locked/{name}: ")
    assert all(node.name in line for node in here.world.nodes)
    assert "\n" not in line


@virtual
async def test_a_deadlock_of_its_own_is_no_answer() -> None:
    """`WouldDeadlockError` is a bug: the client should not be told to try again."""
    app = new_app()

    @app.post("/")
    async def endpoint(manager: ManagerDep) -> None:
        async with manager.lock("a"), manager.lock("a"):
            pass

    async with site(app) as here:
        with pytest.raises(WouldDeadlockError):
            await here.post("/")


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
    assert response.json()["wait"] == pytest.approx(7.2, abs=0.1)


# -- WebSockets ----------------------------------------------------------------------------------------


@BREAK
@virtual
async def test_a_websocket_is_denied_with_the_same_answer(
    break_it: Any, status: int, detail: str, retry_after: str | None
) -> None:
    """Before it was accepted, where the server knows the denial response, it is an HTTP answer."""
    app = the_app()
    async with site(app) as here:
        await break_it(here)
        start, body = await websocket(app, "/locked/1", extensions=DENIAL)
        here.world.vacate("secret-1")

    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert dict(start["headers"]).get(b"retry-after", b"").decode() == (retry_after or "")
    assert detail.encode() in body["body"]


@BREAK
@pytest.mark.parametrize("accepted", [False, True])
@virtual
async def test_a_websocket_is_closed_with_try_again_later(
    accepted: bool, break_it: Any, status: int, detail: str, retry_after: str | None
) -> None:
    """Where the server does not know the denial response, and after it was accepted: 1013."""
    app = the_app()
    async with site(app) as here:
        await break_it(here)
        path, extensions = ("/accepted/1", DENIAL) if accepted else ("/locked/1", None)
        *before, close = await websocket(app, path, extensions=extensions)
        here.world.vacate("secret-1")

    assert close == {"type": "websocket.close", "code": 1013, "reason": detail}
    assert [message["type"] for message in before] == ["websocket.accept"] * accepted


@virtual
async def test_a_websocket_under_a_lock() -> None:
    """Its lock is held until it ends; the next one is turned away meanwhile."""
    app, stay = new_app(), Stay()

    @app.websocket("/{room}")
    async def chat(
        socket: WebSocket, room: str, lease: Annotated[Lease, locked("room:{room}", blocking=False)]
    ) -> None:
        await socket.accept()
        await stay()
        await socket.send_text(lease.name)
        await socket.close()

    async with site(app) as here:
        first = asyncio.create_task(websocket(app, "/1"))
        await stay.entered.wait()
        (close,) = await websocket(app, "/1")
        assert close["code"] == 1013
        stay.leave.set()
        assert (await first)[1]["text"] == "room:1"
        await asyncio.sleep(0.01)
        assert here.locks == []


@pytest.mark.parametrize("ended_by", ["application", "client"])
@virtual
async def test_a_websocket_that_has_ended_is_not_closed_again(ended_by: str) -> None:
    """However it ended, an error after that has no recipient."""
    app = new_app()

    @app.websocket("/")
    async def endpoint(socket: WebSocket, manager: ManagerDep) -> None:
        await socket.accept()
        if ended_by == "application":
            await socket.close()
        else:
            assert (await socket.receive())["type"] == "websocket.disconnect"
        await fail(manager)

    async def fail(manager: LockManager) -> None:
        await manager.lock("secret-1", blocking=False).acquire()

    async with site(app) as here:
        await taken(here)
        sent = await websocket(app, "/", leaves=ended_by == "client")
        here.world.vacate("secret-1")

    closes = ["websocket.close"] * (ended_by == "application")
    assert [message["type"] for message in sent] == ["websocket.accept", *closes]


@virtual
async def test_a_client_that_has_left_unnoticed() -> None:
    """The server finds out when it sends the close: that is no error of the application's."""
    app = new_app()
    left = []

    @app.websocket("/")
    async def endpoint(socket: WebSocket, manager: ManagerDep) -> None:
        await socket.accept()
        left.append(True)
        async with manager.lock("secret-1", blocking=False):
            pass

    async with site(app) as here:
        await taken(here)
        sent = await websocket(app, "/", gone=lambda: bool(left))
        here.world.vacate("secret-1")

    assert [message["type"] for message in sent] == ["websocket.accept"]
