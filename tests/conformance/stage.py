"""Scripts by hand: one node, its locks, counters and incarnation record, and every argument in the open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Command, Purpose, Script
from aioredlock_ng._core.fencing import at
from aioredlock_ng._core.quarantine import Claim
from tests.conformance.masters import Master, Value
from tests.conformance.tools import OURS, Asked, alike
from tests.lua_edits import lua_number

SENTINEL: Final = b"redlock:{meta}"
MEMBERS: Final = b"redlock:{members}"
EXPECTED: Final = b"1:somebody:0:0:5:0:0:use:us"
CLAIM: Final = Claim(born_ms=5, label=b"us: 1")
TTL: Final = 60.0
KEEP: Final = 600.0
"""Seconds that a lock and a counter live."""
FAR: Final = 60.0
"""Seconds: beyond what a node lets itself be raised."""
AWAITED_MS: Final = lua_number("parts/queue.lua", "AWAITED")
TURN_MS: Final = lua_number("parts/queue.lua", "TURN")
TTL_MS: Final = 60_000
KEEP_MS: Final = 600_000


def locks(names: str) -> list[bytes]:
    """Return the locks' keys: one per letter."""
    return [b"redlock:" + name.encode() for name in names]


def beside(names: str, what: bytes) -> list[bytes]:
    """Return the keys beside the locks' that have something else: counters, hints, announcements."""
    return [b"redlock:" + what + b":{" + key + b"}" for key in locks(names)]


def counters(names: str) -> list[bytes]:
    """Return the counters' keys."""
    return beside(names, b"fence")


def queues(names: str) -> list[bytes]:
    """Return the keys of the hints of those that wait."""
    return beside(names, b"queue")


def announcements(names: str) -> list[bytes]:
    """Return the keys of what leaders announce."""
    return beside(names, b"leader")


def fenced(names: str) -> list[bytes]:
    """Return the locks' keys, and then the counters'."""
    return [*locks(names), *counters(names)]


def waits(seen: int, seconds: float | None) -> bool:
    """Return whether the wait of a refusal is about so long; -1 is without end."""
    return seen == -1 if seconds is None else alike(seen, round(seconds * 1000) + 1)


def refused(answer: Any, seconds: float | None) -> bool:
    """Return whether an acquire was refused, with a wait of about this time."""
    return bool(answer[0] == 0 and waits(answer[1], seconds))


def without_a_vote(stage: Stage, why: str) -> bytes:
    """Make a record unlike the expected one, and return the expected one (R12)."""
    stage.put(SENTINEL, None if why == "missing" else EXPECTED + b"0")
    return b"" if why == "missing" else EXPECTED


each_reason = ("missing", "longer")
"""For ``parametrize``: why a node has no vote."""


class Stage:
    """One node, whose incarnation record is `EXPECTED` unless a test changes it."""

    def __init__(self, master: Master, node: Asked) -> None:
        self.master = master
        self.node = node
        self.run = node.run

    def clear(self) -> None:
        """Leave nothing but the expected record."""
        self.master.flush()
        self.put(SENTINEL, EXPECTED)

    async def voted(
        self,
        script: Script,
        keys: Sequence[bytes],
        *args: Any,
        floor: int = 0,
        stamp: bytes | None = EXPECTED,
    ) -> Any:
        """Run a script that asks for the incarnation record `stamp`; None: it does not."""
        if stamp is None:
            return await self.run(script, keys, *args)
        return await self.run(script, [*keys, SENTINEL], *args, stamp, floor)

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

    def hold(self, names: str, owner: Value = OURS, ttl: float | None = 30.0) -> None:
        """Let us, or another, hold locks."""
        self.master.put([(key, owner, ttl) for key in locks(names)])

    def count(self, names: str, *stored: int | Value, ttl: float | None = 30.0) -> None:
        """Let counters stand at numbers, or something else be there."""
        values = [b"%d" % each if isinstance(each, int) else each for each in stored]
        self.master.put([(key, value, ttl) for key, value in zip(counters(names), values, strict=True)])

    def look(self, key: bytes) -> tuple[Value, float | None]:
        """Return what is under one key, and how long it will be there."""
        return self.master.look([key])[0]

    def held(self, names: str = "a") -> list[Value]:
        """Return what is under the locks."""
        return [value for value, _ in self.master.look(locks(names))]

    def counted(self, names: str = "a") -> list[Value]:
        """Return what is under the counters; of numbers as such."""
        values = [value for value, _ in self.master.look(counters(names))]
        return [int(value) if isinstance(value, bytes) else value for value in values]  # type: ignore[misc]

    def stored(self, names: str = "a") -> list[Value]:
        """Return what is under the locks and then under the counters."""
        return [*self.held(names), *self.counted(names)]

    def lives(self, names: str = "a") -> list[float | None]:
        """Return how long the locks and then the counters will be there."""
        return [ttl for _, ttl in self.master.look(fenced(names))]

    async def identity(self) -> bytes:
        """Return the server's identity; the incarnation record is `EXPECTED` again then."""
        _, _, identity, _ = await self.greet()
        self.put(SENTINEL, EXPECTED)
        return identity

    # -- scripts -----------------------------------------------------------------------------------

    async def acquire(self, names: str = "a", *, ballot: int = 0, block: int = 1, **vote: Any) -> Any:
        """Run `acquire.lua`."""
        args = (OURS, TTL_MS, ballot, block, KEEP_MS)
        return await self.voted(_scripts.ACQUIRE, fenced(names), *args, **vote)

    async def raise_(self, fence: int, names: str = "a", **vote: Any) -> Any:
        """Run `raise.lua`."""
        return await self.voted(_scripts.RAISE, fenced(names), OURS, fence, KEEP_MS, **vote)

    async def extend(self, fence: int, names: str = "a", **vote: Any) -> Any:
        """Run `extend.lua` with a fence."""
        return await self.voted(_scripts.EXTEND, fenced(names), OURS, TTL_MS, fence, KEEP_MS, **vote)

    async def repair(self, fence: int, names: str = "a") -> Any:
        """Run `repair.lua` with a fence."""
        return await self.run(_scripts.REPAIR, fenced(names), OURS, TTL_MS, fence, KEEP_MS)

    async def release(self, fence: int, names: str = "a", *, loud: bytes = b"") -> Any:
        """Run `release.lua`; a fence of 0 is none, and has no counters."""
        return await self.run(
            _scripts.RELEASE, fenced(names) if fence else locks(names), OURS, fence, KEEP_MS, loud
        )

    async def acquire_many(self, names: str = "a", *, ballot: int = 0, **vote: Any) -> Any:
        """Run `acquire_many.lua`; returns the time (µs) and the answers, or the time alone."""
        args = (TTL_MS, ballot, 1, KEEP_MS, *[OURS] * len(names))
        return await self.voted(_scripts.ACQUIRE_MANY, self._pairs(names), *args, **vote)

    async def extend_many(self, fence: int, names: str = "a", **vote: Any) -> Any:
        """Run `extend_many.lua`."""
        args = (TTL_MS, KEEP_MS, *[OURS, fence] * len(names))
        return await self.voted(_scripts.EXTEND_MANY, self._pairs(names), *args, **vote)

    async def release_many(self, names: str = "a", *, loud: bytes = b"") -> Any:
        """Run `release_many.lua`."""
        return await self.run(_scripts.RELEASE_MANY, locks(names), loud, *[OURS] * len(names))

    async def announce(self, term: int, label: bytes = b"us") -> Any:
        """Run `announce.lua`."""
        return await self.run(_scripts.ANNOUNCE, announcements("a"), term, label, KEEP_MS)

    async def observe(self, *, stamp: bytes = EXPECTED) -> Any:
        """Run `observe.lua`."""
        return await self.voted(_scripts.OBSERVE, [*locks("a"), *announcements("a")], stamp=stamp)

    async def inspect(self) -> Any:
        """Run `inspect.lua`."""
        return await self.run(_scripts.INSPECT, fenced("a"), 1)

    async def greet(
        self,
        size: int = 5,
        quarantine_ms: int = 0,
        restart: bytes = b"",
        *,
        claim: Claim = CLAIM,
        lift: int = 0,
    ) -> tuple[bytes, int, bytes, bytes]:
        """Run `greet.lua`; returns the incarnation record, the time (µs), the identity and the role."""
        return await self._greeted(
            _scripts.GREET, size, quarantine_ms, restart, 0, bytes(claim), lift, 0, b"", 0, b"us"
        )

    async def tell(self, told: bytes, at: int = 0, label: bytes = b"us") -> bytes:
        """Run `greet.lua` without writing a record, and tell of servers; returns the node's lines."""
        args = (b"nonce", 0, 60_000, b"", 0, b"", 0, 0, told, at, label)
        reply = await self.run(_scripts.GREET, [SENTINEL, MEMBERS], *args)
        assert isinstance(reply, list), reply
        return reply[-1]

    async def _greeted(self, script: Script, *args: Any) -> tuple[bytes, int, bytes, bytes]:
        reply = await self.run(script, [SENTINEL, MEMBERS], b"nonce", *args)
        assert isinstance(reply, list), reply
        nonce, incarnation, time_us, identity, role, refused, *_ = reply
        assert (nonce, refused) == (b"nonce", b"")
        return incarnation, time_us, identity, role

    async def init(self, size: int = 5, quarantine_ms: int = 0, floor: int = 0) -> Any:
        """Run `init.lua`."""
        return await self.run(_scripts.INIT, [SENTINEL, MEMBERS], size, quarantine_ms, floor, b"us")

    @staticmethod
    def _pairs(names: str) -> list[bytes]:
        return [key for pair in zip(locks(names), counters(names), strict=True) for key in pair]
