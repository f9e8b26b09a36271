"""What the Lua files `…_many.lua` do, for a master in memory: single locks, one after the other (R42).

A sentinel of another type is the error of all of them; a lock's or a counter's is the answer of that lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .. import _scripts
from .._core.fencing import granted, kept_ms
from ._memory_data import CommandError
from ._memory_parts import counted, longest_wait, owner_at, sentinel_matches
from ._memory_process import MemoryProcess
from ._memory_scripts import SCRIPTS

_STAMP: Final = 3
"""Arguments of a stamp."""

_EXTEND: Final = SCRIPTS[_scripts.EXTEND.digest]
_RELEASE: Final = SCRIPTS[_scripts.RELEASE.digest]


def _answer(script: Callable[..., Any], *args: Any) -> Any:
    """Run a script for one lock; an error is a text."""
    try:
        return script(*args)
    except CommandError as error:
        return str(error).encode()


def _acquire_many(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    *keys, sentinel = keys
    ttl_ms, ballot, block, keep_ms, *owners = argv[:-_STAMP]
    stamp, time_us = argv[-_STAMP:], server.time_us()
    if not sentinel_matches(server, sentinel, stamp):
        return [time_us]

    def acquire(lock: bytes, counter: bytes, owner: bytes) -> int:
        holder, floor, now_ms = owner_at(server, lock), int(stamp[1]), time_us // 1000
        if holder == owner:  # a repeated command
            return counted(server, counter, floor)
        if holder is not None:
            return min(0, -longest_wait(server, [lock]))
        server.set(lock, owner, int(ttl_ms))  # before the counter is looked at, which may be of another type
        fence = granted(counted(server, counter, floor), int(ballot), now_ms, int(block))
        server.set(counter, b"%d" % fence, kept_ms(fence, now_ms, int(keep_ms)))
        return fence

    locks = zip(keys[::2], keys[1::2], owners, strict=True)
    return [time_us, *(_answer(acquire, *lock) for lock in locks)]


def _extend_many(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    ttl_ms, keep_ms, *of_locks = argv
    sentinel, stamp = [], []
    if len(of_locks) > len(keys):
        keys, sentinel = keys[:-1], keys[-1:]
        of_locks, stamp = of_locks[:-_STAMP], of_locks[-_STAMP:]
        sentinel_matches(server, sentinel[0], stamp)  # of another type it is the error of all
    each = 2 if keep_ms else 1  # a lock, or lock and counter; an owner, or owner and fence
    answers = []
    for i in range(0, len(keys), each):
        owner, fence, *_ = *of_locks[i : i + each], b"0"
        argv = [owner, ttl_ms, fence, keep_ms, *stamp]
        answers.append(_answer(_EXTEND, server, [*keys[i : i + each], *sentinel], argv))
    return answers


def _release_many(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    loud, *owners = argv
    answers = (
        _answer(_RELEASE, server, [key], [owner, b"0", b"0", loud])
        for key, owner in zip(keys, owners, strict=True)
    )
    return [1 if answer == [1, 0, 0] else answer for answer in answers]


BATCHES: Final[dict[bytes, Callable[[MemoryProcess, list[bytes], list[bytes]], Any]]] = {
    _scripts.ACQUIRE_MANY.digest: _acquire_many,
    _scripts.EXTEND_MANY.digest: _extend_many,
    _scripts.RELEASE_MANY.digest: _release_many,
}
