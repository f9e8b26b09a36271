"""A server that logs in like a master and then speaks garbage, beside healthy ones: locks go on (R1, R15)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import hiredis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioredlock_ng import LockManager
from tests.fuzz import resp
from tests.fuzz.profile import no_hurry, profile
from tests.servers import Nodes, eventually, fastest_arm, open_nodes

pytestmark = no_hurry

HELLO = resp.Map([(b"server", b"redis"), (b"proto", 3), (b"role", b"master")])
INFO = b"run_id:%040d\r\nrole:master\r\nmaster_replid:%040d\r\nmaxmemory_policy:noeviction\r\n" % (7, 8)
MANNERS = {b"HELLO": HELLO, b"INFO": INFO, b"CLIENT": resp.Status(b"OK"), b"SCRIPT": b"0" * 40}


class Liar:
    """Answers the handshake, and everything behind it with the next of these streams."""

    def __init__(self, streams: list[bytes]) -> None:
        self._streams = streams
        self.said = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        words = hiredis.Reader(notEnoughData=None)
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                words.feed(data)
                while (command := words.gets()) is not None:
                    writer.write(self._answer(command[0].upper()))
                await writer.drain()
        writer.close()

    def _answer(self, verb: bytes) -> bytes:
        if verb in MANNERS:
            return resp.encode(MANNERS[verb])
        self.said += 1
        return self._streams[self.said % len(self._streams)]


@contextlib.asynccontextmanager
async def listening(liar: Liar) -> AsyncIterator[str]:
    """Serve it on a port of this machine, and yield its URL."""
    server = await asyncio.start_server(liar.serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()


async def live_beside(urls: list[str], streams: list[bytes]) -> None:
    """Lock over two masters and a liar; nothing may be noticed of it."""
    stray: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
    liar = Liar(streams)
    async with (
        listening(liar) as url,
        LockManager([*urls, url], connect_timeout=1.0, node_timeout=0.5) as manager,
    ):
        last = 0
        for _ in range(6):
            async with manager.lock("res", blocking_timeout=10.0) as lease:
                assert lease.held
                assert lease.fence is not None
                assert lease.fence > last
                last = lease.fence
                await lease.extend()
        await eventually(lambda: liar.said > 0, what="it was asked")
        assert manager.statistics().lost == 0
        told = manager.statistics().nodes[2]
        assert told.mismatched <= liar.said
    await asyncio.sleep(0)
    assert not stray, stray


@pytest.fixture(scope="module")
def healthy() -> Iterator[Nodes]:
    """Give servers that belong to a quorum of three."""
    with open_nodes(fastest_arm(), 3) as nodes:
        yield nodes


streams = st.lists(st.one_of(resp.garbage, resp.values.map(resp.encode)), min_size=1, max_size=4)


@pytest.mark.campaign
@profile(12)
@given(streams)
@example([resp.POISON["a list as a key"]])
@example([b":1\r\n" * 500])
@example([b""])
def test_a_master_that_speaks_garbage_stops_no_client(healthy: Nodes, streams: list[bytes]) -> None:
    """Whatever it says, the majority locks and extends, no exception reaches the loop, and closing works."""
    with asyncio.Runner() as runner:
        runner.run(live_beside(healthy.urls[:2], streams))
