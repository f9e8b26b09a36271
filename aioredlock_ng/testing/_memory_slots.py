"""What the Lua files of a semaphore do, for a master in memory (R24, R25)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self, final

from .. import _scripts
from .._core.fencing import granted, kept_ms, raised, reading
from ._memory_data import CommandError
from ._memory_parts import sentinel_matches
from ._memory_process import MemoryProcess

_ENTRY: Final = re.compile(rb"(?P<till>[0-9]{13}):(?P<owner>.*)", re.DOTALL)
"""What is in a slot."""


@final
@dataclass(slots=True)
class Slots:
    """The slots under a key that are held, as ``parts/slots.lua`` reads them."""

    server: MemoryProcess
    key: bytes
    held: dict[int, tuple[int, bytes]]
    """Of each slot until which millisecond, and the owner."""

    @classmethod
    def at(cls, server: MemoryProcess, key: bytes) -> Self | None:
        """Return what is under a key; None where that is another program's hash."""
        fields, held = server.fields(key), {}
        for field, value in fields.items():
            entry = _ENTRY.fullmatch(value)
            if entry is None or not field.isdigit():
                return None
            if int(entry["till"]) >= server.time_us() // 1000:
                held[int(field)] = int(entry["till"]), entry["owner"]
        return cls(server, key, held)

    def owner(self, slot: int) -> bytes | None:
        """Return the owner of a slot, if it is held."""
        return self.held[slot][1] if slot in self.held else None

    def slots_of(self, owner: bytes) -> list[int]:
        """Return the slots that an owner has, the least first."""
        return sorted(slot for slot, (_, holder) in self.held.items() if holder == owner)

    def taken(self, permits: int) -> int:
        """For how many ms all slots are taken yet; 0: one is free."""
        first = min(self.held.get(slot, (-math.inf, b""))[0] for slot in range(permits))
        return 0 if first == -math.inf else int(first) - self.server.time_us() // 1000 + 1

    def prune(self) -> None:
        """Drop what has ended, and what was taken out."""
        for field in list(self.server.fields(self.key)):
            if int(field) not in self.held:
                self.server.hdel(self.key, field)

    def drop_all_of(self, owner: bytes, *, but: int | None = None) -> list[int]:
        """Take the owner's slots away; return which they were."""
        dropped = [slot for slot in self.slots_of(owner) if slot != but]
        for slot in dropped:
            del self.held[slot]
        self.prune()
        return dropped

    def take(self, slot: int, owner: bytes, ttl: int) -> None:
        """Let the owner have a slot for at least so long from now."""
        till = max(self.server.time_us() // 1000 + ttl, self.held.get(slot, (0, b""))[0])
        self.held[slot] = till, owner
        self.server.hset(self.key, b"%d" % slot, b"%d:%b" % (till, owner))
        _keep_on(self.server, self.key, ttl)


def _keep_on(server: MemoryProcess, key: bytes, keep_ms: int) -> None:
    if server.exists(key) and server.pttl(key) < keep_ms:
        server.pexpire(key, keep_ms)


@final
@dataclass(frozen=True, slots=True)
class Counter:
    """One slot's counter, as ``parts/slot_counter.lua`` has it."""

    server: MemoryProcess
    key: bytes
    slot: int
    floor: int
    keep_ms: bytes

    def reading(self) -> int:
        """Return it as it counts."""
        stored = self.server.fields(self.key).get(b"%d" % self.slot)
        now_ms = self.server.time_us() // 1000
        return reading(None if stored is None else int(stored), floor=self.floor, now_ms=now_ms)

    def stand(self, value: int) -> None:
        """Have it stand at a value."""
        self.server.hset(self.key, b"%d" % self.slot, b"%d" % value)
        self._keep_for(value)

    def raise_to(self, fence: int) -> bool:
        """Lift it to a fence, as far as that is allowed; False when it does not stand there then."""
        before, now_ms = self.reading(), self.server.time_us() // 1000
        after = raised(before, fence, now_ms) if before < fence else before
        if after is None:
            self._keep_for(before)
        else:
            self.stand(after)
        return after == fence

    def _keep_for(self, value: int) -> None:
        _keep_on(self.server, self.key, kept_ms(value, self.server.time_us() // 1000, int(self.keep_ms)))


def _acquire(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[int]:
    owner, ttl, ballot, _, keep_ms, permits, start, span, *stamp = argv
    time_us, floor = server.time_us(), 0
    if stamp:
        if not sentinel_matches(server, keys[-1], stamp):
            return [-1, 0, time_us, -1]
        floor = int(stamp[1])
    if (slots := Slots.at(server, keys[0])) is None:
        return [0, server.pttl(keys[0]), time_us, -1]
    mine = slots.slots_of(owner)  # of a repeated command
    from_start = ((int(start) + i) % int(permits) for i in range(int(span)))
    slot = next(iter(mine or (slot for slot in from_start if slot not in slots.held)), None)
    if slot is None:
        return [0, slots.taken(int(permits)), time_us, -1]
    fenced = int(ballot) > 0
    counter = Counter(server, keys[1] if fenced else b"", slot, floor, keep_ms)
    fence = counter.reading() if fenced else 0
    if not mine:
        slots.prune()
        slots.take(slot, owner, int(ttl))
        if fenced:
            fence = granted(fence, int(ballot), time_us // 1000)
            counter.stand(fence)
    return [1, fence, time_us, slot]


def _raise(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    owner, fence, keep_ms, slot, *stamp = argv
    if not sentinel_matches(server, keys[2], stamp):
        return -1
    slots = Slots.at(server, keys[0])
    if slots is None or slots.owner(int(slot)) != owner:
        return 0
    if raised(0, int(fence), server.time_us() // 1000) is None:
        return -2
    return 1 if Counter(server, keys[1], int(slot), int(stamp[1]), keep_ms).raise_to(int(fence)) else -3


def _extend(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    owner, ttl, fence, keep_ms, number, *stamp = argv
    without_vote, floor, slot = 0, 0, int(number)
    if stamp:
        if sentinel_matches(server, keys[-1], stamp):
            floor = int(stamp[1])
        else:
            without_vote = 10
    if (slots := Slots.at(server, keys[0])) is None:
        return without_vote - 1
    slots.drop_all_of(owner, but=slot)
    if (holder := slots.owner(slot)) != owner:
        return without_vote if holder is None else without_vote - 1
    slots.take(slot, owner, int(ttl))
    if int(fence):
        Counter(server, keys[1], slot, floor, keep_ms).raise_to(int(fence))
    return without_vote + 1


def _top_up(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    owner, ttl, fence, keep_ms, slot = argv
    if (slots := Slots.at(server, keys[0])) is None:
        return -1
    slots.drop_all_of(owner, but=int(slot))
    if slots.owner(int(slot)) not in (None, owner):
        return -1
    slots.take(int(slot), owner, int(ttl))
    if int(fence):
        Counter(server, keys[1], int(slot), 0, keep_ms).raise_to(int(fence))
    return 0


def _release(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[int]:
    owner, fence, keep_ms, loud, permits, slot = argv
    key, told = keys[0], server.listening(keys[0]) if loud else 0
    if (slots := Slots.at(server, key)) is None:
        return [0, server.pttl(key), told, 1]
    mine, dropped = slots.owner(int(slot)) == owner, slots.drop_all_of(owner)
    if dropped and loud:
        told = server.publish(key, b"%d:%d" % (told, dropped[-1]))
    if mine and int(fence):
        with suppress(CommandError):
            Counter(server, keys[1], int(slot), 0, keep_ms).raise_to(int(fence))
    return [len(dropped), slots.taken(int(permits)), told]


def slots_under(server: MemoryProcess, key: bytes, most: int) -> list[int | bytes] | None:
    """Return what an inspection tells of the slots under a key; None where there are none."""
    with suppress(CommandError):
        slots, now = Slots.at(server, key), server.time_us() // 1000
        if slots is not None:
            held = sorted(slots.held.items())
            return [part for slot, (till, owner) in held for part in (slot, owner[:most], till - now + 1)]
    return None


SLOTS: Final[dict[bytes, Callable[[MemoryProcess, list[bytes], list[bytes]], Any]]] = {
    _scripts.SLOTS_ACQUIRE.digest: _acquire,
    _scripts.SLOTS_RAISE.digest: _raise,
    _scripts.SLOTS_EXTEND.digest: _extend,
    _scripts.SLOTS_TOP_UP.digest: _top_up,
    _scripts.SLOTS_RELEASE.digest: _release,
}
