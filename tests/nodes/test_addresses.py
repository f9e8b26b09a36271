"""A name with several addresses, some of which lead nowhere: the others are found, and reasons name them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from aioredlock_ng import LockManager, NodeState
from tests.nodes.tools import NAME, Address, leads_to, up
from tests.redis_sentinels import running_sentinel, watching
from tests.servers import eventually, free_port


@contextlib.contextmanager
def black_hole() -> Iterator[Address]:
    """Give an address where connections are neither taken nor refused: its queue is full."""
    with contextlib.ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(3):
            full = stack.enter_context(socket.socket())
            full.setblocking(False)
            full.connect_ex(hole.getsockname())
        yield hole.getsockname()


@pytest.fixture
def hole():
    """Give one."""
    with black_hole() as address:
        yield address


def reason(manager: LockManager) -> str:
    """Return why the manager's only node is not up."""
    return manager.statistics().nodes[0].reason


@pytest.mark.parametrize(("what", "connect_timeout"), [("swallows packets", 10.0), ("keeps quiet", 0.3)])
async def test_an_address_that_leads_nowhere_does_not_hide_the_next(
    monkeypatch, nodes3, hole, what, connect_timeout
):
    """The second one is tried beside it, or at the next try, since only an answer to the login counts."""
    with socket.create_server(("127.0.0.1", 0)) as quiet:
        first = hole if what == "swallows packets" else quiet.getsockname()
        leads_to(monkeypatch, first, ("127.0.0.1", nodes3.ports[0]))
        urls = [f"redis://{NAME}:{nodes3.ports[0]}", *nodes3.urls[1:]]
        async with LockManager(urls, connect_timeout=connect_timeout) as manager:
            await up(manager, within=9.0)
            async with manager.lock("res") as lease:
                assert len(lease.votes) == 3


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_the_reason_names_each_address_that_failed(monkeypatch, hole, scheme):
    """Those that were refused with why, and those that gave no answer."""
    refused = ("127.0.0.1", free_port())
    leads_to(monkeypatch, refused)
    async with LockManager([f"{scheme}://{NAME}:1"]) as manager:
        assert f"{NAME}:1" in reason(manager)
        assert f"127.0.0.1:{refused[1]}: Connection refused" in reason(manager)
    leads_to(monkeypatch, hole)
    async with LockManager([f"{scheme}://{NAME}:1"], connect_timeout=0.2) as manager:
        assert manager.statistics().nodes[0].state is NodeState.DOWN
        assert f"no answer to connecting and login within 0.2 s at 127.0.0.1:{hole[1]}" in reason(manager)


async def test_redis_sentinels_are_found_by_any_of_their_addresses(monkeypatch, tmp_path, nodes3, hole):
    """A Redis Sentinel, too, is a name that may lead to several addresses, however many there are of them."""
    with running_sentinel(tmp_path / "sentinel", *watching("main", nodes3.ports[0])) as port:
        leads_to(monkeypatch, hole, ("127.0.0.1", port))
        url = f"redis+sentinel://{NAME}:1,{NAME}:2,{NAME}:3/main"
        async with LockManager([url, *nodes3.urls[1:]]) as manager:
            await up(manager)


async def test_no_socket_is_left_of_the_addresses_that_lost(monkeypatch, nodes3, hole):
    """The manager keeps one connection; what was tried beside it is closed."""
    made: list[socket.socket] = []
    real = socket.socket

    def noted(*args, **options):
        made.append(real(*args, **options))
        return made[-1]

    leads_to(monkeypatch, hole, ("127.0.0.1", nodes3.ports[0]))
    async with LockManager([f"redis://{NAME}:1", *nodes3.urls[1:]], connect_timeout=10.0) as manager:
        monkeypatch.setattr("aioredlock_ng._node.addresses.socket.socket", noted)
        await up(manager)
        monkeypatch.undo()
    await eventually(lambda: all(sock.fileno() == -1 for sock in made))
