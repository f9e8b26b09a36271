"""Masters in memory and real ones behind one small interface, so that both take the same test bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeGuard

import hiredis
import redis

from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_data import Hash
from tests.servers import Nodes

WRONG: Final = "a value of the wrong type"
"""Stands for a list, where a string should be."""

Value = bytes | str | dict[bytes, int] | dict[bytes, bytes] | None
"""Bytes, WRONG, a sorted set (members with their scores), a hash (fields with their values), or None for
nothing at all."""
Entry = tuple[bytes, Value, float | None]
"""A key, what is under it, and its seconds to live (None: no expiry)."""


def is_hash(value: Value) -> TypeGuard[dict[bytes, bytes]]:
    """Say whether a value is a hash, and no sorted set."""
    return isinstance(value, dict) and any(isinstance(each, bytes) for each in value.values())


class MemoryMaster:
    """A master in memory."""

    def __init__(self) -> None:
        self.spec: Any = MemoryNode()
        """The node, as a manager takes it."""

    def put(self, entries: Sequence[Entry]) -> None:
        """Set keys, or delete them where the value is None or a set of nothing."""
        for key, value, ttl in entries:
            if not value and value != b"":
                self.spec.delete(key)
                continue
            held: Any = Hash(dict(value)) if is_hash(value) else value
            held = (
                None if value == WRONG else dict(value) if held is value and isinstance(value, dict) else held
            )
            self.spec._server.set(key, held, None if ttl is None else ttl * 1000)

    def look(self, keys: Sequence[bytes]) -> list[tuple[Value, float | None]]:
        """Return what is under keys, and their seconds to live (None: no expiry, or nothing there)."""
        there = set(self.spec.keys)
        return [(self._value(key) if key in there else None, self.spec.ttl(key)) for key in keys]

    def _value(self, key: bytes) -> Value:
        value, _ = self.spec._server.data[key]
        if isinstance(value, Hash):
            return dict(value)
        return WRONG if value is None else dict(value) if isinstance(value, dict) else value

    def all_keys(self) -> list[bytes]:
        """Return every key, sorted."""
        return list(self.spec.keys)

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
        """Stand still."""
        self.spec.freeze()

    def resume(self) -> None:
        """Go on."""
        self.spec.thaw()


class RealMaster:
    """A real server."""

    def __init__(self, nodes: Nodes, i: int) -> None:
        self.spec: Any = nodes.urls[i]
        self._nodes, self._i = nodes, i
        self.client = redis.Redis.from_url(self.spec, socket_timeout=5.0)
        self.flush, self.forget_scripts = self.client.flushall, self.client.script_flush
        self.close = self.client.close

    def put(self, entries: Sequence[Entry]) -> None:
        """Set keys in one go."""
        pipeline = self.client.pipeline(transaction=False)
        for key, value, ttl in entries:
            pipeline.delete(key)
            if isinstance(value, bytes):
                pipeline.set(key, value)
            elif is_hash(value):
                pipeline.hset(key, mapping=value)
            elif value:
                pipeline.zadd(key, value) if isinstance(value, dict) else pipeline.rpush(key, b"x")
            if ttl is not None:
                pipeline.pexpire(key, round(ttl * 1000))
        pipeline.execute()

    def look(self, keys: Sequence[bytes]) -> list[tuple[Value, float | None]]:
        """Look at keys in one go."""
        pipeline = self.client.pipeline(transaction=False)
        for key in keys:
            pipeline.type(key).get(key).zrange(key, 0, -1, withscores=True).hgetall(key).pttl(key)
        answers = iter(pipeline.execute(raise_on_error=False))
        found = []
        for kind, value, members, fields, left_ms in zip(*[answers] * 5, strict=True):
            seen = {b"hash": fields, b"list": WRONG}.get(kind, value)
            if kind == b"zset":
                seen = {member: int(score) for member, score in members}
            found.append((seen, None if left_ms < 0 else left_ms / 1000))
        return found

    def all_keys(self) -> list[bytes]:
        """Return every key."""
        return sorted(self.client.keys("*"))

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


Master = MemoryMaster | RealMaster
Masters = Sequence[Master]


def lock_keys(master: Master) -> list[bytes]:
    """Return a master's locks: neither hints nor what outlives locks, under whatever prefix."""
    marks = (b"fence:{", b"slots:{", b"queue:{", b"leader:{")
    keys = [key for key in master.all_keys() if not key.endswith(b"{meta}")]
    return [key for key in keys if not any(mark in key for mark in marks)]
