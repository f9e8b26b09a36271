"""The example application does what it says, in the ways that it says."""

import asyncio
import contextlib
import os
import sys

import httpx
import pytest

from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from tests.contrib.web import uvicorn, web_server
from tests.servers import Nodes


@pytest.fixture(params=["uvicorn", "python", "python, own nodes"])
def started(request: pytest.FixtureRequest, shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> object:
    """Give the example, to be started in one of its ways."""
    monkeypatch.delenv("REDLOCK_URLS", raising=False)
    monkeypatch.delenv(QUARANTINE_VARIABLE)  # as users have it
    env = {} if "own" in request.param else {"REDLOCK_URLS": ",".join(shared_nodes.urls)}
    if request.param == "uvicorn":
        return uvicorn("examples.fastapi_app:app", env=env)
    return web_server(
        *("env", "PORT={port}", sys.executable, "-W", "error", "examples/fastapi_app.py"), env=env
    )


@pytest.mark.process
async def test_the_example(started: contextlib.AbstractContextManager[object]) -> None:
    """Of two payments of one order at once, one is done; the other is told when to come back."""
    with started as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:  # type: ignore[attr-defined]
            cart = {"user_id": 1, "items": ["a", "b"]}
            first, second, other, bought, counted, bad = await asyncio.gather(
                client.post("/orders/42/pay"),
                client.post("/orders/042/pay"),
                client.post("/orders/7/pay"),
                client.post("/checkout", json=cart),
                client.post("/stock/count"),
                client.post("/checkout", json={"user_id": "x"}),
            )
            schema = (await client.get("/openapi.json")).json()

    refused, paid = sorted((first, second), key=lambda answer: answer.status_code == 200)
    assert (paid.status_code, paid.json()) == (200, {"paid": 42})
    assert refused.status_code == 409
    assert 1 <= int(refused.headers["Retry-After"]) <= 15
    assert other.json() == {"paid": 7}
    assert bought.json() == {"bought": 2}
    assert 0 < counted.json()["seconds_left"] < 10
    assert bad.status_code == 422
    assert {"409", "503"} <= set(schema["paths"]["/checkout"]["post"]["responses"])
    assert "REDLOCK_URLS" not in os.environ
