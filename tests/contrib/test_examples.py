"""The example applications do what they say, in the ways that they say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from tests.behaviour.tools import no_key_left
from tests.contrib.test_probes import EXAMPLES
from tests.contrib.web import WebServer, uvicorn, web_server
from tests.servers import Nodes


@pytest.fixture(params=["uvicorn", "fastapi", "fastapi, own nodes", "aiohttp", "aiohttp, own nodes"])
def started(
    request: pytest.FixtureRequest, shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, WebServer]]:
    """Run an example in one of its ways, with nodes that it is given or has itself."""
    monkeypatch.delenv("REDLOCK_URLS", raising=False)
    monkeypatch.delenv(QUARANTINE_VARIABLE)  # as users have it
    way, _, own = request.param.partition(", ")
    env = {} if own else {"REDLOCK_URLS": ",".join(shared_nodes.urls)}
    uvicorns = way == "uvicorn"
    server = uvicorn("examples.fastapi_app:app", env=env) if uvicorns else web_server(*EXAMPLES[way], env=env)
    with server as running:
        yield way, running
        running.stop()
        assert "Traceback" not in running.output


@pytest.mark.process
async def test_the_example(started: tuple[str, WebServer], shared_nodes: Nodes) -> None:
    """Of two payments of one order at once, one is done; the other learns when to come back."""
    way, server = started
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        same, other = "42" if way == "aiohttp" else 42, "7" if way == "aiohttp" else 7
        first, second, third = await asyncio.gather(
            *(client.post(f"/orders/{order}/pay") for order in ("42", "42", "7"))
        )
        refused, paid = sorted((first, second), key=lambda answer: answer.status_code == 200)
        assert (paid.status_code, paid.json(), third.json()) == (200, {"paid": same}, {"paid": other})
        assert (refused.status_code, refused.json()) == (409, {"detail": "locked by another request"})
        assert 1 <= int(refused.headers["Retry-After"]) <= 15
        if way == "aiohttp":
            assert (await client.post("/orders/042/pay")).status_code == 404
            assert (await client.post("/report")).json() == {"report": "done"}
        else:
            assert (await client.post("/orders/042/pay")).json() == {"paid": 42}
            assert (await client.post("/checkout", json={"user_id": "x"})).status_code == 422
            bought = await client.post("/checkout", json={"user_id": 1, "items": ["a", "b"]})
            assert bought.json() == {"bought": 2}
            assert 0 < (await client.post("/stock/count")).json()["seconds_left"] < 10
            schema = (await client.get("/openapi.json")).json()
            assert {"409", "503"} <= set(schema["paths"]["/checkout"]["post"]["responses"])
    await no_key_left(shared_nodes.urls)
