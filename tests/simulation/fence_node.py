"""A model master: the scripts in memory, at a time that the run sets, with an eye on the counters."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from aioredlock_ng import _scripts
from aioredlock_ng._core import fencing
from aioredlock_ng._core.command import Script
from aioredlock_ng._core.quarantine import NO_CLAIM, ExpectedIncarnation
from aioredlock_ng.testing import Snapshot
from aioredlock_ng.testing._memory_data import Hash, NodeClock, Value
from aioredlock_ng.testing._memory_server import MemoryServer
from aioredlock_ng.testing.sim_loop import EPOCH

from .fence_rules import Rules
from .history import Mode, places

EPOCH_US: Final = round(EPOCH * 1_000_000)

NO_VOTE: Final = -1
"""The answer of an acquire or a raise, as in ``acquire.lua`` and ``raise.lua``."""

WITHOUT_VOTE: Final = 10
"""Added to an answer of an extension, as in ``extend.lua``."""

FOREIGN: Final = -1
"""The answer of an extension where something is another owner's."""

SENTINEL: Final = b"incarnation"
MEMBERS: Final = b"members"


def _scripts_of(prefix: str, **others: Script) -> dict[str, Script]:
    """Return a kind's scripts by their purposes; the names of those that are not given have a prefix."""
    purposes = {"acquire", "raise", "extend", "repair", "release"} - others.keys()
    return {purpose: getattr(_scripts, prefix + purpose.upper()) for purpose in purposes} | others


_SCRIPTS: Final[dict[Mode, dict[str, Script]]] = {
    "lock": _scripts_of(""),
    "fair": _scripts_of("", acquire=_scripts.FAIR_ACQUIRE, release=_scripts.FAIR_RELEASE),
    "read": _scripts_of("RW_", acquire=_scripts.READ),
    "write": _scripts_of("RW_", acquire=_scripts.WRITE),
    "permit": _scripts_of("SLOTS_"),
}
"""What is run for each kind of lock."""

SEATS: Final = 4
"""Seats in line for a fair lock: fewer than attempts, which take each other's, for fences rest on none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an owner's commands carry: names, how long locks and counters live, how many fences it wants."""

    owner: int
    names: tuple[str, ...]
    ttl_ms: int
    keep_ms: int
    block: int = 1
    mode: Mode = "lock"
    permits: int = 0
    look: tuple[int, int] = (0, 0)
    """Of a semaphore with which slot nodes are to begin, and at how many they are to look."""
    slot: int | None = None
    """Which one was won."""

    @property
    def places(self) -> tuple[str, ...]:
        """What the owner has for itself."""
        return places(self.names, self.slot)

    @property
    def alone(self) -> bool:
        """Whether no other may have the names at the same time."""
        return self.mode != "read"

    @property
    def terms(self) -> tuple[bytes, ...]:
        """Further arguments of scripts: how a read-write lock is wanted, or which slot of a semaphore."""
        if self.mode == "permit":
            return (b"%d" % (-1 if self.slot is None else self.slot),)
        return () if self.mode in ("lock", "fair") else (self.mode.encode(),)

    @property
    def marks(self) -> list[bytes]:
        """The keys of hints, which the scripts of a read-write lock are given."""
        alone = self.mode in ("lock", "fair", "permit")
        return [] if alone else [b"queue:" + name.encode() for name in self.names]

    @property
    def line(self) -> list[bytes]:
        """The keys of those that wait for a fair lock."""
        return [b"tickets:" + self.locks[0], b"seats:" + self.locks[0]] if self.mode == "fair" else []

    @property
    def seat(self) -> tuple[bytes | int, ...]:
        """The seat, as a fair lock's acquire and release get it: name, ticket, life."""
        return (b"%d" % (self.owner % SEATS), 0, self.ttl_ms) if self.mode == "fair" else ()

    def script(self, purpose: str) -> Script:
        """Return the script for a purpose."""
        return _SCRIPTS[self.mode][purpose]

    @property
    def locks(self) -> list[bytes]:
        """The keys of the locks."""
        return [name.encode() for name in self.names]

    @property
    def counters(self) -> list[bytes]:
        """The keys of their counters."""
        return [_counter(name) for name in self.names]


class ModelNode:
    """One master; its scripts are those of `MemoryNode`, with the rules that are in force (`Rules`).

    Args:
        rules: what is searched.
        number: which of the nodes it is.
        counts: where "sometimes" events are counted.
        size: how many nodes there are.
        offset_us: how far its clock is ahead.
    """

    def __init__(self, rules: Rules, number: int, counts: Counter[str], *, size: int, offset_us: int) -> None:
        self._rules = rules
        self._number = number
        self._counts = counts
        self._size = size
        self.offset_us = offset_us
        self.now_us = EPOCH_US
        numbers = itertools.count()
        clock = NodeClock(lambda: (self.now_us - EPOCH_US) / 1_000_000)
        self._server = MemoryServer(lambda: 0, clock=clock, new_identity=lambda: f"run{next(numbers)}")
        self._server.load_all()
        self.flush()  # it does not vote at once
        self.kept: list[Snapshot] = []
        """Older states to come back with."""
        self._greatest: dict[str, int] = {}
        """The greatest counter that each name ever had here."""
        self.broken_law = ""
        """How an acquire did not set a counter above all that it ever was; the laws of `fencing` in one."""

    def look(self, now_us: int) -> None:
        """See what time it is."""
        self.now_us = now_us + self.offset_us

    # -- commands ------------------------------------------------------------------------------

    def greet(self, quarantine_ms: int, restart: bytes, restart_floor: int) -> tuple[bytes, int]:
        """Return the incarnation record, the node's time and its identity."""
        words = (b"", self._size, quarantine_ms, restart, restart_floor, bytes(NO_CLAIM), 0, 0, b"", 0, b"")
        _, incarnation, now_us, identity, *_ = self._run(_scripts.GREET, [SENTINEL, MEMBERS], *words)
        return incarnation, now_us, identity

    def initialise(self, quarantine_ms: int, floor: int) -> bytes:
        """Return the incarnation record."""
        words = (self._size, quarantine_ms, floor, b"")
        incarnation: bytes = self._run(_scripts.INIT, [SENTINEL, MEMBERS], *words)[0]
        return incarnation

    def acquire(self, claim: Claim, ballot: int, expected: ExpectedIncarnation) -> tuple[int, int, int]:
        """Return the counter, or 0 when taken, or `NO_VOTE`; the node's time in milliseconds; and where the
        counter stood before, for writers.
        """
        block = self._rules.block_of(self._number, claim.block)
        repeated = self._has(claim)
        before = self._counters(claim)
        seat: tuple[bytes | int, ...] = (b"",) if claim.marks else claim.seat
        seat = (claim.permits, *claim.look) if claim.permits else seat
        stamp = _stamp(expected, expected.floor)
        words = (claim.owner, claim.ttl_ms, ballot, block, claim.keep_ms, *seat, *stamp)
        keys = [*claim.locks, *claim.counters, *claim.marks, *claim.line, SENTINEL]
        code, fence, now_us, *stood = self._run(claim.script("acquire"), keys, *words)
        if claim.permits and code == 1:
            before = before[stood[0] : stood[0] + 1]
            claim = replace(claim, slot=stood[0])
        self._note(code, before, expected.floor)
        if code == 1 and not repeated:
            for name in claim.places:
                # A reader's may be what another reader's is.
                if fence - (claim.block if claim.alone else 0) < self._greatest.get(name, 0):
                    self.broken_law = f"an acquire sets F of {name} to {fence}, after {self._greatest[name]}"
        self._note_greatest(claim)
        return (fence if code == 1 else code), now_us // 1000, stood[0] if stood else 0

    def raise_(self, claim: Claim, fence: int, expected: ExpectedIncarnation) -> int:
        """Return the answer of ``raise.lua``."""
        floor = self._rules.raise_floor(expected.floor)
        before = self._counters(claim)
        words = (claim.owner, fence, claim.keep_ms, *claim.terms, *_stamp(expected, floor))
        keys = [*claim.locks, *claim.counters, *claim.marks, SENTINEL]
        code: int = self._run(claim.script("raise"), keys, *words)[0]
        self._note(code, before, floor)
        self._note_greatest(claim)
        return code

    def extend(self, claim: Claim, fence: int, expected: ExpectedIncarnation) -> int:
        """Return the answer of ``extend.lua``."""
        stamp = _stamp(expected, expected.floor)
        words = (claim.owner, claim.ttl_ms, fence, claim.keep_ms, *claim.terms, *stamp)
        keys = [*claim.locks, *(claim.counters if fence else ()), *claim.marks, SENTINEL]
        code: int = self._run(claim.script("extend"), keys, *words)[0]
        self._note_greatest(claim)
        return code

    def repair(self, claim: Claim, fence: int) -> int:
        """Return the answer of ``repair.lua``."""
        missing = not all(map(self._server.exists, claim.locks))
        words = (claim.owner, claim.ttl_ms, fence, claim.keep_ms, *claim.terms)
        keys = [*claim.locks, *(claim.counters if fence else ()), *claim.marks]
        code: int = self._run(claim.script("repair"), keys, *words)[0]
        self._counts["topped up"] += code == 0 and missing
        self._note_greatest(claim)
        return code

    def release(self, claim: Claim, fence: int) -> int:
        """Return how many were the owner's; `fence` is 0 for an attempt without a certificate."""
        keys = [*claim.locks, *(claim.counters if fence else ()), *claim.marks, *claim.line]
        of: tuple[int, ...] = (claim.permits,) if claim.permits else ()
        words = (claim.owner, fence, claim.keep_ms, b"", *of, *claim.terms, *claim.seat)
        deleted: int = self._run(claim.script("release"), keys, *words)[0]
        self._note_greatest(claim)
        return deleted

    def _run(self, script: Script, keys: list[bytes], *words: bytes | int) -> list[Any]:
        """Run a script; return its answer without the tag."""
        argv = [word if isinstance(word, bytes) else b"%d" % word for word in words]
        answer: list[Any] = self._server.run_script(script.digest, b"%d" % len(keys), *keys, *argv, b"")
        return answer[1:]

    # -- what a run wants to know --------------------------------------------------------------

    def counter(self, name: str) -> int:
        """Return the counter of a name, or of a semaphore the greatest; 0 when there is none."""
        return max(self._stored(name).values(), default=0)

    def _stored(self, name: str) -> dict[int | None, int]:
        """Return the counters of a name, by their slots where it is a semaphore."""
        key = _counter(name)
        if not self._server.exists(key):
            return {}
        if isinstance(self._server.data[key][0], Hash):
            return {int(slot): int(value) for slot, value in self._server.fields(key).items()}
        return {None: int(self._server.get(key) or 0)}

    def _counters(self, claim: Claim) -> list[int]:
        """Return the counters of a claim, one for each name, or slot; 0 where there is none."""
        slots = range(claim.permits) if claim.slot is None else (claim.slot,)
        return [
            self._stored(name).get(slot, 0)
            for name in claim.names
            for slot in (slots if claim.permits else (None,))
        ]

    def _has(self, claim: Claim) -> bool:
        """Whether the owner has all names already."""
        owner, data = b"%d" % claim.owner, self._server.data
        return all(self._server.exists(key) and owner in owners(data[key][0]) for key in claim.locks)

    def _note(self, code: int, before: Sequence[int], floor: int) -> None:
        """Count what an acquire or a raise has met: whether it was a vote, and what the counters count as."""
        self._counts["quarantine refused a vote"] += code == NO_VOTE
        start = fencing.at(self.now_us // 1000 - fencing.START_LAG_MS)
        for stored in before if code == 1 else ():
            self._counts["a missing counter started"] += not stored and start > floor
            self._counts["a floor was in effect"] += floor > (stored or start)

    def _note_greatest(self, claim: Claim) -> None:
        for name in claim.names:
            for slot, value in self._stored(name).items():
                (place,) = places((name,), slot)
                self._greatest[place] = max(self._greatest.get(place, 0), value)

    # -- what befalls it -----------------------------------------------------------------------

    def expire(self, *names: str) -> None:
        """Let locks end, which their ttl would do sooner or later."""
        for name in names:
            self._server.delete(name.encode())

    def snapshot(self) -> Snapshot:
        """Return the data as it is now."""
        return self._server.snapshot()

    def keep(self) -> None:
        """Write a snapshot: one of three that it can come back with."""
        self.kept = [*self.kept[-2:], self.snapshot()]

    def flush(self) -> None:
        """Lose everything, as by ``FLUSHALL``."""
        self._server.flush_all()

    def restart(self, data: Snapshot | None = None) -> None:
        """Come back as a new process, empty or with an older state."""
        self._server.new_process()
        self._server.load_all()
        if data is None:
            self.flush()
        else:
            self._server.restore(data)


def knows(data: Snapshot, some: Sequence[int], names: Sequence[str]) -> bool:
    """Say whether one of these owners has a lock in that state."""
    values = [data.data[name.encode()][0] for name in names if name.encode() in data.data]
    return any(b"%d" % one in owners(value) for one in some for value in values)


def owners(value: Value) -> Collection[bytes]:
    """Return the owners that a lock's key names: one, or several that read or have slots."""
    if isinstance(value, Hash):
        return [entry.partition(b":")[2] for entry in value.fields.values()]
    return value if isinstance(value, dict) else (value or b"",)


def _counter(name: str) -> bytes:
    return b"fence:" + name.encode()


def _stamp(expected: ExpectedIncarnation, floor: int) -> tuple[bytes, int]:
    return expected.incarnation, floor
