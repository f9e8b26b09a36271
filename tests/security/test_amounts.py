"""A server that sends too much, or never ends, costs its own vote: memory stays bounded and locks go on.

What comes malformed is in ``tests/unit/node``; searches that never end are in ``tests/unit/test_admin.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import python

LIAR: Final = Path(__file__).with_name("liar.py")

WORD: Final = "redlock:turn"  # what turns the server: a lock that is asked for

GROWTH: Final = 80.0  # megabytes that a process may grow by while one server sends hundreds of them

CLIENT: Final = """
import asyncio, json, resource, sys
from aioredlock_ng import LockManager

# A list of 32 gigabytes, which is announced, must fail at once, whatever the machine has.
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

async def main():
    loop = asyncio.get_running_loop()
    loop.set_debug(False)
    complaints = []
    loop.set_exception_handler(lambda _, context: complaints.append(repr(context)))
    before, cycles, reasons = peak(), 0, set()
    async with LockManager(sys.argv[1].split(","), ttl=5, node_timeout=2) as manager:
        async with manager.lock("before"):
            pass
        end = loop.time() + 1.5
        while loop.time() < end or not reasons:
            async with manager.lock("turn", blocking_timeout=20):
                cycles += 1
            reasons |= {manager.statistics().nodes[2].reason} - {""}
            await asyncio.sleep(0.005)
        print(json.dumps({"grown": peak() - before, "cycles": cycles, "reasons": sorted(reasons),
                          "complaints": complaints}), flush=True)

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def liar(url: str, word: str, head: bytes, body: bytes, *path: str) -> AsyncIterator[str]:
    """Run a server that turns, on a unix socket if there is a path; gives its URL."""
    port = url.rpartition(":")[2]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(LIAR), port, word, repr(head), repr(body), *path),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        yield line.decode().strip()
    finally:
        process.kill()
        await process.communicate()


async def client_of(nodes: LocalNodes, word: str, head: bytes, body: bytes, *path: str) -> dict[str, Any]:
    """Lock over two good servers and one that turns, in a process of its own; returns what became of it."""
    one, two, three = nodes.urls
    async with (
        liar(three, word, head, body, *path) as url,
        python("-W", "ignore", "-c", CLIENT, f"{one},{two},{url}") as client,
    ):
        out, errors = await client.ended()
    assert out, errors
    result: dict[str, Any] = json.loads(out)
    print(result)
    return result


@pytest.mark.parametrize(
    ("head", "body"),
    [
        pytest.param(b"$536870912\r\n", b"x", id="a text of 512 MB"),
        pytest.param(b"+", b"x", id="a line without end"),
        pytest.param(b"*4294967295\r\n", b"", id="a list that memory cannot hold"),
        pytest.param(b"", b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n", id="pushes without end"),
    ],
)
async def test_too_much_costs_the_servers_own_vote(nodes3: LocalNodes, head: bytes, body: bytes) -> None:
    """The other two go on granting; the node is down with a reason; nothing is left to the loop's handler."""
    result = await client_of(nodes3, WORD, head, body)
    assert result["cycles"] > 1
    assert result["reasons"]
    assert result["complaints"] == []
    assert result["grown"] < GROWTH


@pytest.mark.parametrize("socket", ["tcp", "unix"])
async def test_too_much_in_the_handshake(nodes3: LocalNodes, socket: str, tmp_path: Path) -> None:
    """A server that answers INFO with half a gigabyte, at every new connection: the same."""
    path = [str(tmp_path / "socket")] if socket == "unix" else []
    result = await client_of(nodes3, "INFO", b"$536870912\r\n", b"x", *path)
    assert result["cycles"] > 1
    assert result["complaints"] == []
    assert result["grown"] < GROWTH
