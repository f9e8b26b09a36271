"""A server process in memory: its clock, its keys, its replies, and the listeners to its channels."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, final

from ._memory_connection import MemoryConnection
from .sim_loop import EPOCH

_EPOCH_US: Final = round(EPOCH * 1_000_000)


@final
class Hash(dict[bytes, bytes]):
    """A hash: fields with their values."""


Value: TypeAlias = "bytes | dict[bytes, int] | Hash | None"
"""The value of a key: a string, a sorted set of members with their scores, a hash, or (None) a list."""

Entry: TypeAlias = tuple[Value, float | None]
"""A value and its expiry, by the node's clock; None: for ever."""

_V = TypeVar("_V")


class CommandError(Exception):
    """An error reply."""


@final
class NodeClock:
    """A node's wall clock: the true time, until it is set or goes wrong.

    Args:
        true: tells the true time.
        offset: seconds that it is ahead.
    """

    _moment: float | None

    def __init__(self, true: Callable[[], float], offset: float = 0.0) -> None:
        self._true = true
        self._set_at, self._shown, self.rate = 0.0, 0.0, 1.0
        self._stands, self._moment = False, None
        self.step(offset)

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[None]:
        """Let no time pass within the block: to a command, and all of a script, it is the same time."""
        self._stands = True
        try:
            yield
        finally:
            self._stands, self._moment = False, None

    def now(self) -> float:
        """Return the node's time of day, in seconds since `EPOCH`: a small number, so an exact one."""
        if self._moment is not None:
            return self._moment
        now = self._shown + (self._true() - self._set_at) * self.rate
        if self._stands:
            self._moment = now
        return now

    def step(self, seconds: float) -> None:
        """Set the clock forward, or back by negative seconds."""
        if not math.isfinite(seconds):
            raise ValueError(f"a clock is set by a number of seconds, not by {seconds!r}")
        self._shown += seconds

    def set_rate(self, rate: float) -> None:
        """Go at this rate from now on; 1.0 is right, 0.0 stands still."""
        if not 0 <= rate < math.inf:
            raise ValueError(f"a clock's rate is a number from 0 on, not {rate!r}")
        self._shown, self._set_at = self.now(), self._true()
        self.rate = rate


@final
@dataclass(frozen=True, slots=True, repr=False)
class Snapshot:
    """The data of a master at one moment; `MemoryNode.restart` takes it back."""

    data: dict[bytes, Entry]


@final
class Push(tuple[Any, ...]):
    """A push of RESP3, sent beside the replies."""

    __slots__ = ()


def encode(reply: Any) -> bytes:
    """Encode a reply: str is a status, bytes a bulk string."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, str):
        return b"+%b\r\n" % reply.encode()
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    kind = b">" if isinstance(reply, Push) else b"*"
    return b"%b%d\r\n" % (kind, len(reply)) + b"".join(map(encode, reply))


_INFO: Final = b"""\
redis_version:7.0.0
redis_mode:standalone
uptime_in_seconds:%d
maxmemory:0
maxmemory_policy:noeviction
aof_enabled:0
maxclients:10000
connected_slaves:0
connected_clients:%d
run_id:%b
role:master
master_replid:%b
master_replid2:0000000000000000000000000000000000000000
second_repl_offset:-1
evicted_keys:0
cmdstat_info:calls=1
cmdstat_flushall:calls=%d
""".replace(b"\n", b"\r\n")


class MemoryProcess:
    """A server process and its data: all that scripts reach by Lua's `redis.call`.

    Keys expire by the node's own wall clock.

    Args:
        clients: returns how many are connected.
        clock: its wall clock.
        new_identity: draws a name for each process.
    """

    def __init__(
        self, clients: Callable[[], int], *, clock: NodeClock, new_identity: Callable[[], str]
    ) -> None:
        self.clock: Final = clock
        self.data: dict[bytes, Entry] = {}
        """Those that are expired may still be there."""
        self.pristine = True
        """Whether the data has never been lost or replaced."""
        self._clients = clients
        self._new_identity = new_identity
        self._channels: dict[bytes, dict[MemoryConnection, None]] = {}
        """The listeners of a channel: the first to come is the first to hear."""
        self._listening: dict[MemoryConnection, dict[bytes, None]] = {}
        self.new_process()

    def snapshot(self) -> Snapshot:
        """Return the data as it is now."""
        return Snapshot(_copied(self.data))

    def restore(self, snapshot: Snapshot) -> None:
        """Have the data of then; what has expired meanwhile is gone."""
        self.pristine = False
        self.data = _copied(snapshot.data)

    def time_us(self) -> int:
        """Return the node's time of day in microseconds since 1970."""
        return _EPOCH_US + round(self.clock.now() * 1_000_000)

    def live_keys(self) -> list[bytes]:
        """Return the keys that are there, sorted."""
        for key in list(self.data):
            self._expire(key)
        return sorted(self.data)

    def matching(self, pattern: bytes) -> list[bytes]:
        """Return the keys that are there and match a pattern."""
        matches = re.compile(_regex_of(pattern), re.DOTALL).fullmatch
        return [key for key in self.live_keys() if matches(key)]

    def exists(self, key: bytes) -> bool:
        """Say whether there is anything under `key`, of whatever type."""
        self._expire(key)
        return key in self.data

    def get(self, key: bytes) -> bytes | None:
        """Return the value under `key`, if any; raises `CommandError` when it is of the wrong type."""
        return self._typed(key, bytes)

    def scores(self, key: bytes) -> dict[bytes, int]:
        """Return the sorted set under `key`, empty if there is none; raises as `get` does."""
        return self._typed(key, dict) or {}

    def fields(self, key: bytes) -> Hash:
        """Return the hash under `key`, empty if there is none; raises as `get` does."""
        return self._typed(key, Hash) or Hash()

    def _typed(self, key: bytes, kind: type[_V]) -> _V | None:
        if not self.exists(key):
            return None
        value = self.data[key][0]
        if type(value) is not kind:
            raise CommandError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def keep(self, key: bytes, value: dict[bytes, int] | Hash) -> None:
        """Put back a sorted set or a hash with other members; it ends with the last of them."""
        if value:
            self.data[key] = (value, self.data[key][1] if key in self.data else None)
        else:
            self.data.pop(key, None)

    def zadd(self, key: bytes, member: bytes, score: int) -> None:
        """Put a member into a sorted set."""
        scores = self.scores(key)
        scores[member] = score
        self.keep(key, scores)

    def hset(self, key: bytes, field: bytes, value: bytes) -> None:
        """Put a field into a hash."""
        fields = self.fields(key)
        fields[field] = value
        self.keep(key, fields)

    def remove(self, key: bytes, kind: type[dict[bytes, Any]], member: bytes) -> bool:
        """Take a member out of a sorted set, or a field out of a hash; False when it was not in."""
        members = self._typed(key, kind) or kind()
        removed = members.pop(member, None) is not None
        self.keep(key, members)
        return removed

    def pexpire(self, key: bytes, ttl_ms: float) -> None:
        """Let what is under `key` live for `ttl_ms` milliseconds."""
        self.data[key] = (self.data[key][0], self.clock.now() + ttl_ms / 1000)

    def set(self, key: bytes, value: Value, ttl_ms: float | None = None) -> None:
        """Put `value` under `key` for `ttl_ms` milliseconds, or for ever; None is of the wrong type."""
        self.data[key] = (value, None if ttl_ms is None else self.clock.now() + ttl_ms / 1000)

    def pttl(self, key: bytes) -> int:
        """Return the milliseconds that `key` has left: -1 means for ever, -2 that it is not there."""
        if not self.exists(key):
            return -2
        expiry = self.data[key][1]
        return -1 if expiry is None else round((expiry - self.clock.now()) * 1000)

    def delete(self, key: bytes) -> bool:
        """Delete `key`; False when it was not there."""
        self._expire(key)
        return self.data.pop(key, None) is not None

    def flush_all(self) -> None:
        """Lose all data; scripts and process stay."""
        self.data.clear()
        self.pristine = False

    def _expire(self, key: bytes) -> None:
        expiry = self.data[key][1] if key in self.data else None
        if expiry is not None and expiry <= self.clock.now():
            del self.data[key]

    def new_process(self) -> None:
        """Have another identity, and no past: what a restart changes besides the data."""
        self.run_id, self.replid = self._new_identity(), self._new_identity()
        self._flushes = 0
        self._started: float | None = None
        with contextlib.suppress(RuntimeError):  # no loop runs: it is started when it is first asked
            self._started = self.clock.now()

    def flush(self) -> None:
        """Do ``FLUSHALL``."""
        self.flush_all()
        self._flushes += 1

    def info(self) -> bytes:
        """Return the text of ``INFO``."""
        now = self.clock.now()
        self._started = now if self._started is None else self._started
        identity = self.run_id.encode(), self.replid.encode()
        return _INFO % (int(now) - int(self._started), self._clients(), *identity, self._flushes)

    # -- channels ------------------------------------------------------------------------------

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send all listeners of a channel a message; return their number.

        A client that publishes and listens gets the message before the reply, as from Redis 7.0; later
        servers send it behind the reply.
        """
        clients = self._channels.get(channel, {})
        for client in clients:
            client.push(encode(Push((b"message", channel, message))))
        return len(clients)

    def subscribe(self, client: MemoryConnection, channel: bytes) -> Push:
        """Send a client what is published on a channel; return the confirmation."""
        self._channels.setdefault(channel, {})[client] = None
        listening = self._listening.setdefault(client, {})
        listening[channel] = None
        return Push((b"subscribe", channel, len(listening)))

    def unsubscribe(self, client: MemoryConnection, channel: bytes) -> Push:
        """Take that back, if it was so."""
        listening = self._listening.get(client, {})
        if channel in listening:
            del listening[channel], self._channels[channel][client]
            if not self._channels[channel]:
                del self._channels[channel]
        return Push((b"unsubscribe", channel, len(listening)))

    def hang_up(self, client: MemoryConnection) -> None:
        """Forget a client whose connection has ended."""
        for channel in list(self._listening.get(client, ())):
            self.unsubscribe(client, channel)
        self._listening.pop(client, None)

    def listening(self, channel: bytes) -> int:
        """Return how many listen to a channel."""
        return len(self._channels.get(channel, ()))

    def listeners(self, channels: list[bytes]) -> list[bytes | int]:
        """Do ``PUBSUB NUMSUB``."""
        counts = [(channel, self.listening(channel)) for channel in channels]
        return [part for pair in counts for part in pair]


def _copied(data: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """Return the same data, of which no part is shared."""
    return {key: (copy(value), expiry) for key, (value, expiry) in data.items()}


def _regex_of(pattern: bytes) -> bytes:
    """Translate a glob-style pattern; sets in brackets are not understood here."""
    parts = re.findall(rb"\\.|.", pattern, re.DOTALL)
    wild = {b"*": b".*", b"?": b"."}
    return b"".join(wild.get(part) or re.escape(part[-1:]) for part in parts)
