"""Masters in memory and real ones behind one small interface, so that both take the same test bodies."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import hiredis
import pytest
import redis

from aioredlock_ng import LockManager
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._fresh import initialise
from aioredlock_ng.testing._memory_data import Hash
from tests.conformance.tools import WRONG, Entry, Master, Value, is_hash
from tests.servers import EACH_ARM, Nodes, make_fresh


def _locks(keys: Sequence[bytes]) -> list[bytes]:
    """Leave out hints, and what outlives locks, under whatever prefix."""
    marks = (b"fence:{", b"slots:{", b"queue:{", b"leader:{")
    return [key for key in keys if not any(mark in key for mark in marks) and not key.endswith(b"{meta}")]


class MemoryMaster:
    """A master in memory."""

    def __init__(self) -> None:
        self.spec = MemoryNode()

    def put(self, entries: Sequence[Entry]) -> None:
        """Set keys."""
        for key, value, ttl in entries:
            if not value and value != b"":
                self.spec.delete(key)
            elif isinstance(value, dict):
                held = Hash(dict(value)) if is_hash(value) else dict(value)
                self.spec._server.set(key, held, None if ttl is None else ttl * 1000)
            else:
                self.spec.set(key, None if isinstance(value, str) else value, ttl)

    def look(self, keys: Sequence[bytes]) -> list[tuple[Value, float | None]]:
        """Look at keys as the server itself sees them."""
        there = set(self.spec.keys)
        return [(self._value(key) if key in there else None, self.spec.ttl(key)) for key in keys]

    def _value(self, key: bytes) -> Value:
        value, _ = self.spec._server.data[key]
        if isinstance(value, Hash):
            return dict(value.fields)
        return WRONG if value is None else dict(value) if isinstance(value, dict) else value

    def keys(self) -> list[bytes]:
        """Return every key."""
        return list(self.spec.keys)

    def locks(self) -> list[bytes]:
        """Return the locks' keys."""
        return _locks(self.keys())

    def flush(self) -> None:
        """Lose everything."""
        self.spec.flush()

    def forget_scripts(self) -> None:
        """Forget all scripts."""
        self.spec.flush_scripts()

    def raw(self, *words: bytes) -> Any:
        """Send a command; return its answer as it comes."""
        reader = hiredis.Reader(replyError=redis.ResponseError)
        reader.feed(self.spec.execute(list(words)))
        reply = reader.gets()
        if isinstance(reply, redis.ResponseError):
            raise reply
        return reply

    def pause(self) -> None:
        """Freeze it."""
        self.spec.freeze()

    def resume(self) -> None:
        """Thaw it."""
        self.spec.thaw()


def _seen(
    kind: bytes, value: bytes | None, members: list[tuple[bytes, float]], fields: dict[bytes, bytes]
) -> Value:
    """Return what is under a key of a real server."""
    if kind == b"hash":
        return fields
    if kind == b"zset":
        return {member: int(score) for member, score in members}
    return WRONG if kind == b"list" else value


class RealMaster:
    """A real server."""

    def __init__(self, nodes: Nodes, i: int) -> None:
        self.spec = nodes.urls[i]
        self._nodes, self._i = nodes, i
        self.client = redis.Redis.from_url(self.spec, socket_timeout=5.0)

    def put(self, entries: Sequence[Entry]) -> None:
        """Set keys in one go."""
        pipeline = self.client.pipeline(transaction=False)
        for key, value, ttl in entries:
            pipeline.delete(key)
            if isinstance(value, bytes):
                pipeline.set(key, value, px=None if ttl is None else round(ttl * 1000))
            elif value:
                if is_hash(value):
                    pipeline.hset(key, mapping=value)
                elif isinstance(value, dict):
                    pipeline.zadd(key, value)
                else:
                    pipeline.rpush(key, b"x")
                if ttl is not None:
                    pipeline.pexpire(key, round(ttl * 1000))
        pipeline.execute()

    def look(self, keys: Sequence[bytes]) -> list[tuple[Value, float | None]]:
        """Look at keys in one go."""
        pipeline = self.client.pipeline(transaction=False)
        for key in keys:
            pipeline.type(key)
            pipeline.get(key)
            pipeline.zrange(key, 0, -1, withscores=True)
            pipeline.hgetall(key)
            pipeline.pttl(key)
        answers = iter(pipeline.execute(raise_on_error=False))
        return [
            (_seen(kind, value, members, fields), None if left_ms < 0 else left_ms / 1000)
            for kind, value, members, fields, left_ms in zip(*[answers] * 5, strict=True)
        ]

    def keys(self) -> list[bytes]:
        """Return every key."""
        return sorted(self.client.keys("*"))

    def locks(self) -> list[bytes]:
        """Return the locks' keys."""
        return _locks(self.keys())

    def flush(self) -> None:
        """Lose everything."""
        self.client.flushall()

    def forget_scripts(self) -> None:
        """Forget all scripts."""
        self.client.script_flush()

    def pause(self) -> None:
        """Freeze the process."""
        self._nodes.pause(self._i)

    def resume(self) -> None:
        """Let the process go on."""
        self._nodes.resume(self._i)

    def raw(self, *words: bytes) -> Any:
        """Send a command; return its answer as it comes."""
        connection = self.client.connection_pool.get_connection()
        try:
            connection.send_command(*words)
            return connection.read_response()
        finally:
            self.client.connection_pool.release(connection)

    def close(self) -> None:
        """Close the connection past the package."""
        self.client.close()


@pytest.fixture(params=("memory", *EACH_ARM))
def masters(
    request: pytest.FixtureRequest, shared_sets: Callable[[str], Nodes]
) -> Iterator[Sequence[Master]]:
    """Give 5 empty masters, once in memory and once per arm of real servers."""
    if request.param == "memory":
        yield [MemoryMaster() for _ in range(5)]
        return
    nodes = shared_sets(request.param)
    make_fresh(nodes)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(RealMaster(nodes, i))) for i in range(5)]


@pytest.fixture
def master(masters: Sequence[Master]) -> Master:
    """Give one empty master, once in memory and once per arm of real servers."""
    return masters[0]


@pytest.fixture
async def make_manager(masters: Sequence[Master]) -> AsyncIterator[Callable[..., Any]]:
    """Give a function that makes a running manager over the masters, closed at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(**options: Any) -> LockManager:
            options.setdefault("node_timeout", 0.5)  # generous: no test here wants a node to be too slow
            specs = [master.spec for master in masters]
            urls = [spec for spec in specs if isinstance(spec, str)]
            if urls and "prefix" in options:  # else fresh nodes need two seconds to agree
                initialise(urls, options["prefix"])
            return await stack.enter_async_context(LockManager(specs, **options))

        yield make


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Return where the masters of this test come from."""
    return str(request.node.callspec.params["masters"])
