"""The subjects of a manager's commands, as a node gets them."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from aioredlock_ng._core.keyspace import QUEUE, SEATS, TICKETS
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_data import Hash
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.batches import singles
from tests.unit.traces import PREFIX, SCRIPTS, SOURCES, is_ours_to_stay

_MARKS: Final = PREFIX + QUEUE.encode() + b":{"
_TICKETS: Final = PREFIX + TICKETS.encode() + b":{"
_SEATS: Final = PREFIX + SEATS.encode() + b":{"
_EPOCH_MS: Final = round(EPOCH * 1000)


@functools.cache
def is_lock(key: bytes) -> bool:
    """Whether a key is that of a lock; asked for every command, of few keys."""
    return not (is_ours_to_stay(key) or key.startswith((_MARKS, _TICKETS, _SEATS)))


def single_about(words: list[bytes], key: bytes, owners: Collection[bytes]) -> list[bytes]:
    """Return what a command is to one key, of a batch the single command that it stands for (R42).

    Where a batch has several about that key, it is the one that was sent for one of `owners`, if any.
    """
    about = [list(single) for single in singles(words) if key in lock_keys(list(single))]
    return next((single for single in about if owner_of(single) in owners), about[0])


def lock_keys(words: list[bytes]) -> list[bytes]:
    """Return the keys of locks that a command is about."""
    if words[0] in (b"EVALSHA", b"EVAL"):
        return [key for key in words[3 : 3 + int(words[2])] if is_lock(key)]
    return [words[1]] if words[0] in (b"SET", b"DEL") and is_lock(words[1]) else []


def command(words: list[bytes]) -> str:
    """Return what a command is for."""
    if words[0] in (b"EVALSHA", b"EVAL"):
        return SCRIPTS.get(words[1]) or SOURCES[words[1]]
    return "acquire" if words[0] == b"SET" else words[0].decode()


def owner_of(words: list[bytes]) -> bytes:
    """Return the owner that a command is sent for."""
    if words[0] in (b"EVALSHA", b"EVAL"):
        first = 3 + int(words[2])
        return words[first] if len(words) > first + 1 else b""  # the last one is the tag
    return words[2] if words[0] == b"SET" else b""


def client_of(owner: bytes) -> int:
    """Return the client that made an owner value: its holder's label says it."""
    return int(owner.rpartition(b":c")[2])


class Seat(NamedTuple):
    """One holder under the key of a lock."""

    owner: bytes
    slot: int | None = None
    """Of a semaphore."""


@dataclass(frozen=True, slots=True)
class Held:
    """The entry that a node has for one holder of a lock."""

    ends: float | None
    """When it ends by the node's clock; None: never."""
    shares: bool
    """Whether others may be under the key, too."""


def holders(node: MemoryNode, key: bytes) -> dict[Seat, Held]:
    """Return what a node has under the key of a lock: one owner, or several that read or have slots.

    Looking must not drop what has expired, as the node itself does: its clock may be set back yet.
    """
    value, expiry = node._server.data.get(key, (b"", 0.0))
    now = node._server.clock.now()
    if expiry is not None and expiry <= now:
        return {}
    if isinstance(value, Hash):
        slots = {slot: entry.split(b":", 1) for slot, entry in value.items()}
        ends = {Seat(owner, int(slot)): int(last_ms) for slot, (last_ms, owner) in slots.items()}
    elif isinstance(value, dict):
        ends = {Seat(owner): last_ms for owner, last_ms in value.items()}
    else:
        return {Seat(value or b""): Held(expiry, shares=False)}
    found = {seat: (last_ms + 1 - _EPOCH_MS) / 1000 for seat, last_ms in ends.items()}
    return {seat: Held(end, shares=True) for seat, end in found.items() if end > now}


def keys_and_owners(node: MemoryNode) -> list[tuple[bytes, bytes]]:
    """Return the keys of locks on a node, and their owners; nothing is dropped, as above."""
    return [(key, seat.owner) for key, seat in keys_and_seats(node)]


def keys_and_seats(node: MemoryNode) -> list[tuple[bytes, Seat]]:
    """Return the keys of locks on a node, and the owners with their slots; nothing is dropped, as above."""
    return [(key, seat) for key in node._server.data if is_lock(key) for seat in holders(node, key)]


def marks(node: MemoryNode) -> list[tuple[bytes, bytes]]:
    """Return the keys of hints on a node, and the marks that stand (R22); nothing is dropped, as above."""
    now_ms = node._server.time_us() // 1000
    kept = [(key, value) for key, (value, _) in node._server.data.items() if key.startswith(_MARKS)]
    return [(key, what) for key, value in kept for what, last in dict(value or ()).items() if last >= now_ms]


def line(node: MemoryNode) -> list[tuple[str, int]]:
    """Return who stands in line at a node, each name and the client (R28); nothing is dropped, as above."""
    now = node._server.clock.now()
    return [
        (key[len(_TICKETS + PREFIX) : -1].decode(), client_of(seat[:-1]))
        for key, (value, expiry) in node._server.data.items()
        if key.startswith(_TICKETS) and (expiry is None or expiry > now)
        for seat in dict(value or ())
    ]
