"""Names of tests, and how the nodes of a manager stand."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from aioredlock_ng import LockManager, NodeState, NodeVote, QuorumUnavailableError
from aioredlock_ng._core.quorum import Vote
from tests.servers import ask, eventually

NAME = "redis-1"
Address = tuple[str, int]


def leads_to(monkeypatch: pytest.MonkeyPatch, *addresses: Address) -> None:
    """Have the resolver know one more name."""
    real = socket.getaddrinfo

    def resolve(host: Any, *args: Any, **options: Any) -> Any:
        if host != NAME:
            return real(host, *args, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def state(manager: LockManager, i: int = 0) -> NodeState:
    """Return where a manager's node stands."""
    return manager.statistics().nodes[i].state


async def up(manager: LockManager, within: float = 60.0) -> None:
    """Wait until every node is up: a second after its return, where the machine does nothing else."""
    await eventually(
        lambda: all(node.state is NodeState.UP for node in manager.statistics().nodes),
        within=within,
        what=repr(manager.statistics()),
    )


@contextlib.asynccontextmanager
async def running(nodes: Iterable[Any], **options: Any) -> AsyncIterator[LockManager]:
    """Run a manager over nodes, all of which are up."""
    async with LockManager(nodes, **options) as manager:
        await up(manager)
        yield manager


@contextlib.asynccontextmanager
async def listening(serve: Callable[[Any, Any], Any]) -> AsyncIterator[str]:
    """Run something on a port that is no Redis server; gives its URL."""
    writers = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            await serve(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def server_of(manager: LockManager) -> str | None:
    """Return what the server that a manager's first node leads to calls itself."""
    return manager._life.nodes[0].status.run_id


def run_id(url: str) -> str:
    """Return what a server calls itself."""
    return str(ask(url, "INFO", "server")["run_id"])


async def becomes(manager: LockManager, wanted: NodeState) -> None:
    """Wait until the first node is what is wanted."""
    await eventually(lambda: state(manager) is wanted, what=f"{wanted}: {manager.statistics()}")


async def denied(manager: LockManager) -> tuple[NodeVote, ...]:
    """Try a lock that no quorum can grant; returns the votes, each of which gives its reason."""
    with pytest.raises(QuorumUnavailableError) as caught:
        await manager.lock("res", blocking=False).acquire()
    votes = caught.value.votes
    assert len(votes) == len(manager.statistics().nodes)
    assert all(vote.reason for vote in votes if vote.vote is Vote.SILENT)
    return votes


async def denied_because(manager: LockManager) -> str:
    """Try a lock at a single node that cannot grant it; returns the reason."""
    (vote,) = await denied(manager)
    assert vote.vote is Vote.SILENT
    return vote.reason


async def works(manager: LockManager) -> None:
    """Go through the life of a lock: take it, extend it, look at it, release it; one name and two."""
    for names in (("works",), ("works", "works too")):
        async with manager.lock(*names, ttl=30) as lease:
            for _ in range(100):  # a slow machine may need several rounds in the time that nodes have
                with contextlib.suppress(QuorumUnavailableError):
                    await lease.extend(60)
                    break
            assert lease.remaining > 50
            seen = await manager.inspect("works")
            assert sum(entry.ours for entry in seen) > len(seen) / 2
            assert await manager.lock("works").try_acquire() is None
        assert len(await manager.force_release("works")) == len(seen)
