"""The commands of a master in memory, as far as this package's scripts and clients send them.

Each is a function of the process and of the command's words, and replies as a server does: None is nil, str a
status, bytes a string, int a number, list an array.  The conformance tests compare them with real servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from ._memory_data import CommandError, Hash, MemoryProcess

_TYPES: Final[dict[object, str]] = {bytes: "string", dict: "zset", Hash: "hash"}


_WHOLE: Final = re.compile(rb"-?[0-9]{1,19}")


def _whole(word: bytes) -> int:
    """Read a number where a server takes no fraction: what a script has divided is none by mistake."""
    if not _WHOLE.fullmatch(word):
        raise CommandError("ERR value is not an integer or out of range")
    return int(word)


def _score(word: bytes) -> int:
    """Read the score of a member: no script of this package has fractions in them."""
    try:
        score = float(word)
    except ValueError:
        raise CommandError("ERR value is not a valid float") from None
    if not score.is_integer():
        raise CommandError("ERR a master in memory keeps whole scores only")
    return int(score)


# -- strings and expiry ------------------------------------------------------------------------------


def _set(process: MemoryProcess, key: bytes, value: bytes, *options: bytes) -> str | bytes | None:
    ttl_ms = _whole(options[options.index(b"PX") + 1]) if b"PX" in options else None
    if ttl_ms is not None and ttl_ms <= 0:
        raise CommandError("ERR invalid expire time in 'set' command")
    before = process.get(key) if b"GET" in options else None
    refused = (b"NX" in options and process.exists(key)) or (b"XX" in options and not process.exists(key))
    if not refused:
        process.set(key, value, ttl_ms)
    if b"GET" in options:
        return before
    return None if refused else "OK"


def _pexpire(process: MemoryProcess, key: bytes, word: bytes) -> int:
    ttl_ms = _whole(word)
    if not process.exists(key):
        return 0
    if ttl_ms <= 0:
        process.delete(key)
    else:
        process.pexpire(key, ttl_ms)
    return 1


def _type(process: MemoryProcess, key: bytes) -> str:
    return _TYPES.get(type(process.data[key][0]), "list") if process.exists(key) else "none"


def _scan(process: MemoryProcess, _cursor: bytes, *options: bytes) -> list[Any]:
    """Return all keys at once: a server may find more than the COUNT that it is asked for."""
    pattern = options[options.index(b"MATCH") + 1] if b"MATCH" in options else b"*"
    return [b"0", process.matching(pattern)]


# -- sorted sets -------------------------------------------------------------------------------------


def _ordered(process: MemoryProcess, key: bytes) -> list[tuple[bytes, int]]:
    """Return the members with their scores: the least first, and of equal ones by their names."""
    return sorted(process.scores(key).items(), key=lambda item: (item[1], item[0]))


def _range(ordered: list[tuple[bytes, int]], first: bytes, last: bytes, *options: bytes) -> list[bytes]:
    start, stop = (place if place >= 0 else place + len(ordered) for place in map(int, (first, last)))
    found = ordered[max(0, start) : max(0, stop + 1)]
    if options == (b"WITHSCORES",):
        return [word for member, score in found for word in (member, b"%d" % score)]
    return [member for member, _ in found]


def _zrange(process: MemoryProcess, key: bytes, *words: bytes) -> list[bytes]:
    return _range(_ordered(process, key), *words)


def _zrevrange(process: MemoryProcess, key: bytes, *words: bytes) -> list[bytes]:
    return _range(_ordered(process, key)[::-1], *words)


def _zadd(process: MemoryProcess, key: bytes, *words: bytes) -> int:
    *options, word, member = words
    score = _score(word)
    is_new = member not in process.scores(key)
    if (b"XX" in options and is_new) or (b"NX" in options and not is_new):
        return 0
    process.zadd(key, member, score)
    return int(is_new)


def _zrem(process: MemoryProcess, key: bytes, *members: bytes) -> int:
    return sum(process.remove(key, dict, member) for member in members)


def _zscore(process: MemoryProcess, key: bytes, member: bytes) -> bytes | None:
    score = process.scores(key).get(member)
    return None if score is None else b"%d" % score


def _zrank(process: MemoryProcess, key: bytes, member: bytes) -> int | None:
    members = [each for each, _ in _ordered(process, key)]
    return members.index(member) if member in members else None


def _zremrangebyscore(process: MemoryProcess, key: bytes, least: bytes, greatest: bytes) -> int:
    low, high = float(least), float(greatest)
    return sum(
        process.remove(key, dict, member)
        for member, score in list(process.scores(key).items())
        if low <= score <= high
    )


# -- hashes ------------------------------------------------------------------------------------------


def _hset(process: MemoryProcess, key: bytes, field: bytes, value: bytes) -> int:
    is_new = field not in process.fields(key)
    process.hset(key, field, value)
    return int(is_new)


def _hdel(process: MemoryProcess, key: bytes, *fields: bytes) -> int:
    return sum(process.remove(key, Hash, field) for field in fields)


def _hgetall(process: MemoryProcess, key: bytes) -> list[bytes]:
    return [word for pair in process.fields(key).items() for word in pair]


COMMANDS: Final[dict[bytes, Callable[..., Any]]] = {
    b"SET": _set,
    b"GET": lambda process, key: process.get(key),
    b"DEL": lambda process, *keys: sum(map(process.delete, keys)),
    b"PTTL": lambda process, key: process.pttl(key),
    b"PEXPIRE": _pexpire,
    b"SCAN": _scan,
    b"TYPE": _type,
    b"ZADD": _zadd,
    b"ZREM": _zrem,
    b"ZSCORE": _zscore,
    b"ZRANK": _zrank,
    b"ZRANGE": _zrange,
    b"ZREVRANGE": _zrevrange,
    b"ZREMRANGEBYSCORE": _zremrangebyscore,
    b"HGET": lambda process, key, field: process.fields(key).get(field),
    b"HSET": _hset,
    b"HDEL": _hdel,
    b"HGETALL": _hgetall,
    b"TIME": lambda process: [b"%d" % part for part in divmod(process.time_us(), 1_000_000)],
    b"INFO": lambda process, *_sections: process.info(),
    b"PUBLISH": lambda process, channel, message: process.publish(channel, message),
    b"PUBSUB": lambda process, _numsub, *channels: process.listeners(list(channels)),  # only PUBSUB NUMSUB
}
