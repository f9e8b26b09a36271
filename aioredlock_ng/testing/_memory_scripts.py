"""What the Lua files of `_scripts` do, for a master in memory: with the rules of the core, as functions.

All but the tag, which `MemoryServer.run_script` takes from the arguments and puts before the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from .. import _scripts
from .._core.claims import read_claim
from .._core.fencing import granted, kept_ms, raised
from .._core.quarantine import NO_CLAIM, Sentinel, greeted, initialised, taken_back
from ._memory_data import CommandError
from ._memory_parts import (
    counted,
    foreign_and_label,
    identity,
    longest_wait,
    owner_at,
    prolong,
    raise_all,
    sentinel_matches,
)
from ._memory_process import MemoryProcess
from ._memory_slots import slots_under

_INSPECTED_BYTES: Final = 1024
"""How much of a value `inspect.lua` returns."""

_INSPECTED_READERS: Final = 101
"""How many readers it returns."""

_COUNTER_BYTES: Final = 16
"""How long what it returns of a counter is, at most."""

_ENTRY_BYTES: Final = 16
"""How much room it reckons with for each lock and holder, beside a holder's value."""


def _set_all(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    owner, ttl_ms, _, _, _, *stamp = argv
    if stamp:
        *keys, sentinel = keys
        if not sentinel_matches(server, sentinel, stamp):
            return -2
    wait = longest_wait(server, keys)
    if wait == 0:
        for key in keys:
            server.set(key, owner, int(ttl_ms))
    return wait


def _acquire(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[int]:
    *keys, sentinel = keys
    owner, ttl_ms, proposed, block, keep_ms, *stamp = argv
    time_us = server.time_us()
    if not sentinel_matches(server, sentinel, stamp):
        return [-1, 0, time_us]
    locks, counters = keys[: len(keys) // 2], keys[len(keys) // 2 :]
    mine = [key for key in locks if owner_at(server, key) == owner]
    wait = longest_wait(server, [key for key in locks if key not in mine])
    if wait:
        return [0, wait, time_us]
    if len(locks) == 1 and not mine:  # set before the counter is looked at, which may be of another type
        server.set(locks[0], owner, int(ttl_ms))
    fence = max(counted(server, counter, int(stamp[1])) for counter in counters)
    if mine != locks:
        fence = granted(fence, int(proposed), time_us // 1000, int(block))
        for key, counter in zip(locks, counters, strict=True):
            server.set(key, owner, int(ttl_ms))
            server.set(counter, b"%d" % fence, kept_ms(fence, time_us // 1000, int(keep_ms)))
    return [1, fence, time_us]


def _raise(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    *keys, sentinel = keys
    owner, fence, keep_ms, *stamp = argv
    if not sentinel_matches(server, sentinel, stamp):
        return -1
    locks, counters = keys[: len(keys) // 2], keys[len(keys) // 2 :]
    if any(owner_at(server, key) != owner for key in locks):
        return 0
    if raised(0, int(fence), server.time_us() // 1000) is None:
        return -2
    return 1 if raise_all(server, counters, int(fence), int(stamp[1]), keep_ms) else -3


def _extend(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    owner, _, fence, keep_ms, *stamp = argv
    without_vote, floor = 0, 0
    if stamp:
        *keys, sentinel = keys
        if sentinel_matches(server, sentinel, stamp):
            floor = int(stamp[1])
        else:
            without_vote = 10
    locks, counters = (keys[: len(keys) // 2], keys[len(keys) // 2 :]) if int(fence) else (keys, [])
    missing = False
    for key in locks:
        holder = owner_at(server, key)
        if holder is not None and holder != owner:
            return without_vote - 1
        missing = missing or holder is None
    if missing:
        return without_vote
    prolong(server, locks, argv)
    raise_all(server, counters, int(fence), floor, keep_ms)
    return without_vote + 1


def _top_up(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    owner, _, fence, keep_ms = argv
    locks, counters = (keys[: len(keys) // 2], keys[len(keys) // 2 :]) if int(fence) else (keys, [])
    if any(owner_at(server, key) not in (None, owner) for key in locks):
        return -1
    prolong(server, locks, argv)
    raise_all(server, counters, int(fence), 0, keep_ms)
    return 0


def _release(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[int | bytes]:
    owner, fence, keep_ms, loud, *stays_ms = argv
    locks, counters = (keys[: len(keys) // 2], keys[len(keys) // 2 :]) if int(fence) else (keys, [])
    deleted, others, told, failure = 0, [], 0, None
    for i, key in enumerate(locks):
        try:
            if owner_at(server, key) == owner:
                deleted += 1
                if not stays_ms:
                    server.delete(key)
                elif not 0 <= server.pttl(key) <= int(stays_ms[0]):
                    server.set(key, owner, int(stays_ms[0]))
                if loud:
                    told = max(told, server.publish(key, b"%d" % server.listening(key)))
                with suppress(CommandError):
                    raise_all(server, counters[i : i + 1], int(fence), 0, keep_ms)
            else:
                others.append(key)
                if loud:
                    told = max(told, server.listening(key))
        except CommandError as error:
            failure = error
    if failure is not None:
        raise failure
    values = [value for key in others if (value := owner_at(server, key)) is not None]
    return [deleted, longest_wait(server, others), told, *foreign_and_label(values)]


def _greet(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    nonce, size, quarantine_ms, restart, restart_floor, claim, lift = argv
    stored, me, time_us = server.get(keys[0]), identity(server), server.time_us()
    if not int(size):
        return [nonce, stored or b"", time_us, me, b"master", b""]
    if stored is None and server.pristine:  # its maker knows that there was never a lock, nor a fence
        sentinel = bytes(
            Sentinel(
                identity=me,
                floor=0,
                ready_ms=0,
                size=int(size),
                quarantine_ms=int(quarantine_ms),
                claim=read_claim(claim) or NO_CLAIM,
            )
        )
    else:
        sentinel = greeted(
            stored,
            identity=me,
            now_us=time_us,
            size=int(size),
            quarantine_ms=int(quarantine_ms),
            restart=restart,
            restart_floor=int(restart_floor),
            claim=read_claim(claim) or NO_CLAIM,
            lift=int(lift),
        )
    if sentinel != stored:
        server.set(keys[0], sentinel)
    return [nonce, sentinel, time_us, me, b"master", b""]


def _take_back(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    nonce, size, quarantine_ms, seen, claim, pattern, *no_locks = argv
    stored, me, time_us = server.get(keys[0]), identity(server), server.time_us()
    under = [key for key in server.matching(pattern) if not key.startswith(tuple(no_locks))]
    sentinel = taken_back(
        stored,
        seen=seen,
        left_ms=max(map(server.pttl, under), default=0),
        identity=me,
        now_us=time_us,
        size=int(size),
        quarantine_ms=int(quarantine_ms),
        claim=read_claim(claim) or NO_CLAIM,
    )
    if sentinel and sentinel != stored:
        server.set(keys[0], sentinel)
    return [nonce, sentinel, time_us, me, b"master", b""]


def _init(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> bytes:
    *numbers, label = argv
    size, quarantine_ms, floor = map(int, numbers)
    sentinel = initialised(
        server.get(keys[0]),
        identity=identity(server),
        now_us=server.time_us(),
        size=size,
        quarantine_ms=quarantine_ms,
        floor=floor,
        label=label,
    )
    if sentinel:
        server.set(keys[0], sentinel)
    return sentinel


def _inspect(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    answer: list[Any] = []
    room = int(argv[0])
    for key, counter in zip(keys[::2], keys[1::2], strict=True):
        value, holders, counts = _under(server, key)
        answer += [value, server.pttl(key), _count_of(server, counter) if counts else None]
        room -= sum(len(holder) + _ENTRY_BYTES for holder in holders) + _ENTRY_BYTES
        if room <= 0:
            break
    return answer


def _under(server: MemoryProcess, key: bytes) -> tuple[Any, list[Any], bool]:
    """Return what is under a key, as `inspect.lua` tells it, its holders, and if it tells their counter."""
    try:
        value = server.get(key)
    except CommandError:
        if (slots := slots_under(server, key, _INSPECTED_BYTES)) is not None:
            return slots, slots[1::3], False
        try:
            readers = _readers_under(server, key)
        except CommandError as error:
            return [str(error).encode()], [], False
        return readers, readers[::2], True
    cut = None if value is None else value[:_INSPECTED_BYTES]
    return cut, [] if cut is None else [cut], cut is not None


def _count_of(server: MemoryProcess, counter: bytes) -> bytes | None:
    with suppress(CommandError):
        stored = server.get(counter)
        return stored if stored is not None and len(stored) <= _COUNTER_BYTES else None
    return None


def _readers_under(server: MemoryProcess, key: bytes) -> list[Any]:
    now = server.time_us() // 1000
    last = sorted(server.scores(key).items(), key=lambda item: (item[1], item[0]), reverse=True)
    live = [(owner, ends) for owner, ends in last[:_INSPECTED_READERS] if ends >= now]
    return [part for owner, ends in live for part in (owner[:_INSPECTED_BYTES], ends - now + 1)]


SCRIPTS: Final[dict[bytes, Callable[[MemoryProcess, list[bytes], list[bytes]], Any]]] = {
    _scripts.ACQUIRE.digest: _acquire,
    _scripts.RAISE.digest: _raise,
    _scripts.SET_ALL.digest: _set_all,
    _scripts.EXTEND.digest: _extend,
    _scripts.TOP_UP.digest: _top_up,
    _scripts.RELEASE.digest: _release,
    _scripts.GREET.digest: _greet,
    _scripts.TAKE_BACK.digest: _take_back,
    _scripts.INIT.digest: _init,
    _scripts.INSPECT.digest: _inspect,
}
