"""Two real web servers, uvicorn with FastAPI and aiohttp's own, lock over the same five real nodes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout

from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import no_key_left
from tests.contrib.web import WebServer, uvicorn, web_server
from tests.servers import eventually

KEYS: Final = 3
TTL: Final = 2
"""Seconds: what both servers ask for."""


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """Give the folder in which a handler notes that it is inside for a key."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
def servers(nodes5: LocalNodes, marks: Path) -> Iterator[list[WebServer]]:
    """Run both servers: FastAPI's, then aiohttp's."""
    env = {"REDLOCK_URLS": ",".join(nodes5.urls), "MARKS": str(marks)}
    env |= {"TTL": str(TTL), "NODE_TIMEOUT": str(TTL / 4)}
    aiohttp = (sys.executable, "-m", "tests.contrib.two_servers.aiohttp_server", "{port}")
    with ExitStack() as stack:
        yield [
            stack.enter_context(uvicorn("tests.contrib.two_servers.fastapi_server:app", env=env)),
            stack.enter_context(web_server(*aiohttp, env=env)),
        ]


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    """Give a client that shares no connection pool limit with itself."""
    async with ClientSession(timeout=ClientTimeout(total=120)) as session:
        yield session


async def post(client: ClientSession, server: WebServer, path: str, seconds: float) -> tuple[int, Any]:
    """Send a request; return its status and its Retry-After."""
    async with client.post(f"{server.url}/{path}", params={"seconds": str(seconds)}) as response:
        await response.read()
        return response.status, response.headers.get("Retry-After")


@pytest.mark.parametrize("how", ["try", "wait"])
async def test_one_request_per_key_is_inside(
    how: str, servers: list[WebServer], client: ClientSession, nodes5: LocalNodes, marks: Path
) -> None:
    """Hammered by 24 clients, never two requests are inside for one key: the second one waits, or gets 409.

    A handler that found another one inside would fail, and its request end in a 500.
    """
    answers: Counter[tuple[str, int]] = Counter()
    retries: set[str] = set()

    async def hammer(number: int) -> None:
        for turn in range(12):
            server = servers[(number + turn) % 2]
            status, retry_after = await post(client, server, f"{how}/key{(number // 2 + turn) % KEYS}", 0.01)
            answers["FastAPI" if server is servers[0] else "aiohttp", status] += 1
            if status == 409:
                retries.add(retry_after)

    async with asyncio.TaskGroup() as tasks:
        for number in range(24):
            tasks.create_task(hammer(number))

    assert answers.total() == 24 * 12
    expected = {200, 409} if how == "try" else {200}
    assert set(answers) == {(name, status) for name in ("FastAPI", "aiohttp") for status in expected}, answers
    assert retries <= {str(seconds) for seconds in range(1, TTL + 1)}
    assert list(marks.iterdir()) == []
    await no_key_left(nodes5.urls)


@pytest.mark.parametrize("victim", [0, 1], ids=["FastAPI", "aiohttp"])
async def test_a_killed_server_keeps_its_key_for_the_ttl_only(
    victim: int, servers: list[WebServer], client: ClientSession, marks: Path
) -> None:
    """After a SIGKILL in the middle of a request the other server answers 409, and 200 after the ttl."""
    killed, other = servers[victim], servers[1 - victim]
    request = asyncio.create_task(post(client, killed, "try/key", 60))
    await eventually((marks / "key").exists)
    assert (await post(client, other, "try/key", 0))[0] == 409

    killed.kill()
    with pytest.raises(ClientError):
        await request
    (marks / "key").unlink()
    status, retry_after = await post(client, other, "try/key", 0)
    assert (status, retry_after) in [(409, str(seconds)) for seconds in range(1, TTL + 1)]

    assert (await post(client, other, "wait/key", 0))[0] == 200  # not at once, yet within its 20 s
