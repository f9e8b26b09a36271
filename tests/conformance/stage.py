"""The fenced scripts by hand: one node, its locks, counters and sentinel, and every argument in the open."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from aioredlock_ng import _scripts
from aioredlock_ng._core.claims import Claim
from aioredlock_ng._core.command import Command, Purpose
from aioredlock_ng._core.fencing import at
from aioredlock_ng._core.keyspace import MARKS, marks_begin
from tests.conformance.tools import OURS, Asked, Master, Value, connected
from tests.lua_edits import lua_number

SENTINEL: Final = b"redlock:{meta}"
EXPECTED: Final = b"1:somebody:0:0:5:0:0:0:use:us"
CLAIM: Final = Claim(born_ms=5, label=b"us: 1")
TTL: Final = 60.0
KEEP: Final = 600.0
"""Seconds that a lock and a counter live."""
UNDER: Final = (b"redlock:*", *(marks_begin(b"redlock:", mark) for mark in MARKS))
"""What is under the prefix, and what of it is no lock."""
AWAITED_MS: Final = lua_number("parts/queue.lua", "AWAITED")
TURN_MS: Final = lua_number("parts/queue.lua", "TURN")
TTL_MS: Final = 60_000
KEEP_MS: Final = 600_000


def locks(names: str) -> list[bytes]:
    """Return the locks' keys: one per letter."""
    return [b"redlock:" + name.encode() for name in names]


def counters(names: str) -> list[bytes]:
    """Return the counters' keys."""
    return [b"redlock:fence:{" + key + b"}" for key in locks(names)]


def slot_counters(names: str) -> list[bytes]:
    """Return the keys of semaphores' counters."""
    return [b"redlock:slots:{" + key + b"}" for key in locks(names)]


def announcements(names: str) -> list[bytes]:
    """Return the keys of what leaders announce."""
    return [b"redlock:leader:{" + key + b"}" for key in locks(names)]


def queues(names: str) -> list[bytes]:
    """Return the keys of the hints of those that wait."""
    return [b"redlock:queue:{" + key + b"}" for key in locks(names)]


def pairs(names: str) -> list[bytes]:
    """Return each lock's key and its counter's."""
    return [key for pair in zip(locks(names), counters(names), strict=True) for key in pair]


class Stage:
    """One node, whose sentinel is `EXPECTED` unless a test changes it."""

    def __init__(self, master: Master, node: Asked) -> None:
        self.master = master
        self.node = node

    async def now_ms(self) -> int:
        """Return the node's time."""
        command = Command(Purpose.OTHER, owner=b"", fits=lambda _: True, keys=(), verb=b"TIME")
        seconds, microseconds = map(int, await self.node.ask(command))
        return seconds * 1000 + microseconds // 1000

    async def fence(self, seconds: float) -> int:
        """Return the fence of a moment, counted from the node's time."""
        return at(await self.now_ms() + round(seconds * 1000))

    def put(self, key: bytes, value: Value, ttl: float | None = None) -> None:
        """Set one key."""
        self.master.put([(key, value, ttl)])

    def stored(self, names: str = "a") -> list[Value]:
        """Return what is under the locks and then under the counters."""
        return [value for value, _ in self.master.look([*locks(names), *counters(names)])]

    def lives(self, names: str = "a") -> list[float | None]:
        """Return how long the locks and then the counters will be there."""
        return [ttl for _, ttl in self.master.look([*locks(names), *counters(names)])]

    async def identity(self) -> bytes:
        """Return the server's identity; the sentinel is `EXPECTED` again then."""
        _, _, identity, _ = await self.greet()
        self.put(SENTINEL, EXPECTED)
        return identity

    async def acquire(
        self,
        names: str = "a",
        *,
        ballot: int = 0,
        block: int = 1,
        floor: int = 0,
        stamp: Sequence[bytes] = (),
    ) -> Any:
        """Run `acquire.lua`."""
        keys = [*locks(names), *counters(names), SENTINEL]
        expected, identity = stamp or (EXPECTED, b"")
        return await self.node.run(
            _scripts.ACQUIRE, keys, OURS, TTL_MS, ballot, block, KEEP_MS, expected, floor, identity
        )

    async def acquire_many(
        self,
        names: str = "a",
        *,
        ballot: int = 0,
        block: int = 1,
        floor: int = 0,
        stamp: Sequence[bytes] = (),
        owner: bytes = OURS,
    ) -> Any:
        """Run `acquire_many.lua` for one owner; returns the time (µs) and the answers, or the time alone."""
        keys = [*pairs(names), SENTINEL]
        expected, identity = stamp or (EXPECTED, b"")
        owners = [owner] * len(names)
        return await self.node.run(
            _scripts.ACQUIRE_MANY, keys, TTL_MS, ballot, block, KEEP_MS, *owners, expected, floor, identity
        )

    async def extend_many(
        self, fence: int, names: str = "a", *, floor: int = 0, stamp: Sequence[bytes] | None = ()
    ) -> Any:
        """Run `extend_many.lua`; a fence of 0 is none, a stamp of None as well."""
        keys = [*(pairs(names) if fence else locks(names)), *(() if stamp is None else (SENTINEL,))]
        expected, identity = stamp or (EXPECTED, b"")
        of_locks = [OURS, fence] * len(names) if fence else [OURS] * len(names)
        behind = () if stamp is None else (expected, floor, identity)
        keep_ms = KEEP_MS if fence else b""
        return await self.node.run(_scripts.EXTEND_MANY, keys, TTL_MS, keep_ms, *of_locks, *behind)

    async def release_many(self, names: str = "a", *, loud: bytes = b"") -> Any:
        """Run `release_many.lua` for one owner."""
        return await self.node.run(_scripts.RELEASE_MANY, locks(names), loud, *[OURS] * len(names))

    async def raise_(
        self, fence: int, names: str = "a", *, floor: int = 0, stamp: Sequence[bytes] = ()
    ) -> Any:
        """Run `raise.lua`."""
        keys = [*locks(names), *counters(names), SENTINEL]
        expected, identity = stamp or (EXPECTED, b"")
        return await self.node.run(_scripts.RAISE, keys, OURS, fence, KEEP_MS, expected, floor, identity)

    async def extend(
        self, fence: int, names: str = "a", *, floor: int = 0, stamp: Sequence[bytes] = ()
    ) -> Any:
        """Run `extend.lua` with a fence."""
        keys = [*locks(names), *counters(names), SENTINEL]
        expected, identity = stamp or (EXPECTED, b"")
        return await self.node.run(
            _scripts.EXTEND, keys, OURS, TTL_MS, fence, KEEP_MS, expected, floor, identity
        )

    async def top_up(self, fence: int, names: str = "a") -> Any:
        """Run `top_up.lua` with a fence."""
        keys = [*locks(names), *counters(names)]
        return await self.node.run(_scripts.TOP_UP, keys, OURS, TTL_MS, fence, KEEP_MS)

    async def release(self, fence: int, names: str = "a", *, loud: bytes = b"") -> Any:
        """Run `release.lua`; a fence of 0 is none, and has no counters."""
        keys = [*locks(names), *(counters(names) if fence else ())]
        return await self.node.run(_scripts.RELEASE, keys, OURS, fence, KEEP_MS, loud)

    async def announce(self, term: int, label: bytes = b"us", name: str = "a") -> Any:
        """Run `announce.lua`."""
        return await self.node.run(_scripts.ANNOUNCE, announcements(name), term, label, KEEP_MS)

    async def observe(self, name: str = "a", *, stamp: Sequence[bytes] = ()) -> Any:
        """Run `observe.lua`."""
        keys = [*locks(name), *announcements(name), SENTINEL]
        expected, identity = stamp or (EXPECTED, b"")
        return await self.node.run(_scripts.OBSERVE, keys, expected, 0, identity)

    async def greet(
        self,
        size: int = 5,
        quarantine_ms: int = 0,
        restart: bytes = b"",
        restart_floor: int = 0,
        *,
        claim: Claim = CLAIM,
        lift: int = 0,
    ) -> tuple[bytes, int, bytes, bytes]:
        """Run `greet.lua`; returns the sentinel, the time (µs), the identity and the role."""
        args = (size, quarantine_ms, restart, restart_floor, bytes(claim), lift)
        return self._greeted(await self.node.run(_scripts.GREET, [SENTINEL], b"nonce", *args))

    async def take_back(
        self, seen: bytes, *, size: int = 5, quarantine_ms: int = 0, claim: Claim = CLAIM
    ) -> tuple[bytes, int, bytes, bytes]:
        """Run `take_back.lua`; returns the same."""
        args = (size, quarantine_ms, seen, bytes(claim), *UNDER)
        return self._greeted(await self.node.run(_scripts.TAKE_BACK, [SENTINEL], b"nonce", *args))

    def _greeted(self, reply: Any) -> tuple[bytes, int, bytes, bytes]:
        assert isinstance(reply, list), reply
        nonce, *rest = reply
        assert nonce == b"nonce"
        sentinel, time_us, identity, role, refused = rest
        assert refused == b""
        return sentinel, time_us, identity, role

    async def init(
        self, size: int = 5, quarantine_ms: int = 0, floor: int = 0, *, label: bytes = b"us"
    ) -> Any:
        """Run `init.lua`."""
        return await self.node.run(_scripts.INIT, [SENTINEL], size, quarantine_ms, floor, label)


@contextlib.asynccontextmanager
async def staged(master: Master) -> AsyncIterator[Stage]:
    """Give an empty node with the sentinel that all requests expect."""
    master.flush()
    master.put([(SENTINEL, EXPECTED, None)])
    async with connected(master) as node:
        yield Stage(master, node)
