"""The clock and the keys of a master in memory."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from .sim_loop import EPOCH

_EPOCH_US: Final = round(EPOCH * 1_000_000)


@final
@dataclass(slots=True)
class Hash:
    """A hash: fields with their values."""

    fields: dict[bytes, bytes]


Value: TypeAlias = "bytes | dict[bytes, int] | Hash | None"
"""What is under a key: a string, a sorted set of members with their scores, a hash, or (None) a list."""

Entry: TypeAlias = tuple[Value, float | None]
"""A value and its expiry, by the node's clock; None: for ever."""

_WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"


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
        """Set the clock forward by so many seconds, or back."""
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


class MemoryData:
    """Keys that expire by the node's own wall clock, with what Lua's `redis.call` does to them."""

    def __init__(self, clock: NodeClock) -> None:
        self.clock: Final = clock
        self.data: dict[bytes, Entry] = {}
        """Those that are expired may still be there."""
        self.pristine = True
        """Whether the data has never been lost or replaced."""

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
        if not self.exists(key):
            return None
        value = self.data[key][0]
        if not isinstance(value, bytes):
            raise CommandError(_WRONG_TYPE)
        return value

    def scores(self, key: bytes) -> dict[bytes, int]:
        """Return the sorted set under `key`, empty if there is none; raises as `get` does."""
        if not self.exists(key):
            return {}
        value = self.data[key][0]
        if not isinstance(value, dict):
            raise CommandError(_WRONG_TYPE)
        return value

    def zadd(self, key: bytes, member: bytes, score: int) -> None:
        """Put a member into a sorted set."""
        scores = self.scores(key)
        scores[member] = score
        self.data[key] = (scores, self.data[key][1] if key in self.data else None)

    def zrem(self, key: bytes, member: bytes) -> bool:
        """Take a member out of a sorted set, which ends with the last of them; False when it was not in."""
        scores = self.scores(key)
        removed = scores.pop(member, None) is not None
        if not scores:
            self.data.pop(key, None)
        return removed

    def fields(self, key: bytes) -> dict[bytes, bytes]:
        """Return the hash under `key`, empty if there is none; raises as `get` does."""
        if not self.exists(key):
            return {}
        value = self.data[key][0]
        if not isinstance(value, Hash):
            raise CommandError(_WRONG_TYPE)
        return value.fields

    def hset(self, key: bytes, field: bytes, value: bytes) -> None:
        """Put a field into a hash."""
        fields = self.fields(key)
        fields[field] = value
        self.data[key] = (Hash(fields), self.data[key][1] if key in self.data else None)

    def hdel(self, key: bytes, field: bytes) -> bool:
        """Take a field out of a hash, which ends with the last of them; False when it was not in."""
        fields = self.fields(key)
        removed = fields.pop(field, None) is not None
        if not fields:
            self.data.pop(key, None)
        return removed

    def pexpire(self, key: bytes, ttl_ms: float) -> None:
        """Let what is under `key` live for so many milliseconds."""
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


def _copied(data: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """Return the same data, of which no part is shared."""
    return {key: (_copy(value), expiry) for key, (value, expiry) in data.items()}


def _copy(value: Value) -> Value:
    if isinstance(value, Hash):
        return Hash(dict(value.fields))
    return dict(value) if isinstance(value, dict) else value


def _regex_of(pattern: bytes) -> bytes:
    """Translate a glob-style pattern; sets in brackets are not understood here."""
    parts = re.findall(rb"\\.|.", pattern, re.DOTALL)
    wild = {b"*": b".*", b"?": b"."}
    return b"".join(wild.get(part) or re.escape(part[-1:]) for part in parts)
