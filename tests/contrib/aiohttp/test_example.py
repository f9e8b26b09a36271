"""The example runs as its own text says, over nodes that it is given and over nodes of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiohttp
import pytest

from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from tests.behaviour.tools import no_key_left
from tests.contrib.web import web_server
from tests.servers import Nodes

COMMAND = (sys.executable, "-W", "error", "examples/aiohttp_app.py", "{port}")


async def post(client: aiohttp.ClientSession, url: str) -> tuple[int, Any, str | None]:
    """Return the status, the body and Retry-After of an answer."""
    async with client.post(url) as response:
        return response.status, await response.text(), response.headers.get("Retry-After")


@pytest.mark.process
@pytest.mark.parametrize("given", [True, False], ids=["REDLOCK_URLS", "own nodes"])
async def test_the_example(given: bool, shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two requests for one order one is paid and one refused; another order does not care."""
    monkeypatch.delenv(QUARANTINE_VARIABLE)  # as users have it
    urls = ",".join(shared_nodes.urls) if given else ""
    with web_server(*COMMAND, env={"REDLOCK_URLS": urls}) as server:
        async with aiohttp.ClientSession(server.url) as client:
            paths = ("/orders/42/pay", "/orders/42/pay", "/orders/43/pay")
            *same, other = await asyncio.gather(*(post(client, path) for path in paths))
            (_, body, nothing), (refused, why, retry_after) = sorted(same)
            assert [status for status, _, _ in sorted(same)] == [200, 409]
            assert (json.loads(body), nothing) == ({"paid": "42"}, None)
            assert (refused, json.loads(why)) == (409, {"detail": "locked by another request"})
            assert retry_after is not None
            assert 1 <= int(retry_after) <= 15
            assert other == (200, '{"paid": "43"}', None)
            assert (await post(client, "/orders/042/pay"))[0] == 404
            assert (await post(client, "/report"))[:2] == (200, '{"report": "done"}')
        if given:
            await no_key_left(shared_nodes.urls)
        server.stop()
        assert server.process.returncode == 0, server.output
        assert "Traceback" not in server.output
