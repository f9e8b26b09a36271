"""A user's own client as a node: calls overtake each other, but not those of one owner (R17)."""

from __future__ import annotations

import asyncio
from typing import Any

import fakeredis
import pytest

from aioredlock_ng import LockManager, QuorumUnavailableError
from tests.servers import eventually

ON_REAL_TIME = True


class SlowToSend(fakeredis.FakeAsyncRedis):
    """A client that keeps acquires back until `sends` is set; everything else passes them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sends = asyncio.Event()
        self.kept_back = 0
        self.sent = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute a command, an acquire only later."""
        if args[0] == "SET":
            self.kept_back += 1
            await self.sends.wait()
            self.sent += 1
        return await super().execute_command(*args, **options)


@pytest.mark.parametrize("ends", ["times out", "is cancelled"])
async def test_a_release_never_overtakes_its_acquire(ends):
    """An acquire that is given up before the client has sent it leaves no key: its release comes after it."""
    client = SlowToSend(server=fakeredis.FakeServer())
    timeout = 0.02 if ends == "times out" else 5.0
    async with LockManager([client], fencing=False, node_timeout=timeout) as manager:
        acquiring = asyncio.create_task(manager.lock("a", ttl=60, blocking_timeout=0).acquire())
        await eventually(lambda: client.kept_back == 1)
        if ends == "is cancelled":
            acquiring.cancel()
        with pytest.raises((QuorumUnavailableError, asyncio.CancelledError)):
            await acquiring
        if ends == "times out":
            await asyncio.sleep(timeout)  # that of the call began before: it is over
        client.sends.set()
        await eventually(lambda: not manager.statistics().nodes[0].in_flight)
        assert client.sent == 1  # its caller is gone, and it goes on
        assert await client.keys("*") == []
    await client.aclose()
