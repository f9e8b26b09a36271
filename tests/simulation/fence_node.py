"""A model master: what the scripts do in memory, at a time that the run sets, with an eye on the counters."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aioredlock_ng import _scripts
from aioredlock_ng._core import fencing
from aioredlock_ng._core.command import Script
from aioredlock_ng._core.quarantine import ExpectedSentinel
from aioredlock_ng.testing import Snapshot
from aioredlock_ng.testing._memory_data import NodeClock
from aioredlock_ng.testing._memory_process import MemoryProcess
from aioredlock_ng.testing._memory_scripts import SCRIPTS
from aioredlock_ng.testing.sim_loop import EPOCH

from .fence_rules import Rules

EPOCH_US: Final = round(EPOCH * 1_000_000)

NO_VOTE: Final = -1
"""The answer of an acquire or a raise, as in ``acquire.lua`` and ``raise.lua``."""

WITHOUT_VOTE: Final = 10
"""Added to an answer of an extension, as in ``extend.lua``."""

FOREIGN: Final = -1
"""The answer of an extension where something is another owner's."""

SENTINEL: Final = b"sentinel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an owner's commands carry: names, how long locks and counters live, how many fences it wants."""

    owner: int
    names: tuple[str, ...]
    ttl_ms: int
    keep_ms: int
    block: int = 1

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
        self._process = MemoryProcess(clock, lambda: f"run{next(numbers)}")
        self.flush()
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

    def greet(self, quarantine_ms: int, restart: bytes, restart_floor: int) -> tuple[bytes, int, bytes]:
        """Return the sentinel, the node's time and its identity."""
        words = (b"", self._size, quarantine_ms, restart, restart_floor, b"", 0)
        _, sentinel, now_us, identity, _ = self._run(_scripts.GREET, [SENTINEL], *words)
        return sentinel, now_us, identity

    def initialise(self, quarantine_ms: int, floor: int) -> bytes:
        """Return the sentinel."""
        sentinel: bytes = self._run(_scripts.INIT, [SENTINEL], self._size, quarantine_ms, floor, b"")
        return sentinel

    def acquire(self, claim: Claim, ballot: int, expected: ExpectedSentinel) -> tuple[int, int]:
        """Return the counter, or 0 when taken, or `NO_VOTE`; and the node's time in milliseconds."""
        block = self._rules.block_of(self._number, claim.block)
        repeated = self._holders(claim) == {b"%d" % claim.owner}
        before = [self.counter(name) for name in claim.names]
        words = (claim.owner, claim.ttl_ms, ballot, block, claim.keep_ms, *_stamp(expected, expected.floor))
        code, fence, now_us = self._run(_scripts.ACQUIRE, [*claim.locks, *claim.counters, SENTINEL], *words)
        self._note(code, before, expected.floor)
        if code == 1 and not repeated:
            for name in claim.names:
                if fence - claim.block < self._greatest.get(name, 0):
                    self.broken_law = f"an acquire sets F of {name} to {fence}, after {self._greatest[name]}"
        self._note_greatest(claim)
        return (fence if code == 1 else code), now_us // 1000

    def raise_(self, claim: Claim, fence: int, expected: ExpectedSentinel) -> int:
        """Return the answer of ``raise.lua``."""
        floor = self._rules.raise_floor(expected.floor)
        before = [self.counter(name) for name in claim.names]
        words = (claim.owner, fence, claim.keep_ms, *_stamp(expected, floor))
        code: int = self._run(_scripts.RAISE, [*claim.locks, *claim.counters, SENTINEL], *words)
        self._note(code, before, floor)
        self._note_greatest(claim)
        return code

    def extend(self, claim: Claim, fence: int, expected: ExpectedSentinel) -> int:
        """Return the answer of ``extend.lua``."""
        words = (claim.owner, claim.ttl_ms, fence, claim.keep_ms, *_stamp(expected, expected.floor))
        code: int = self._run(_scripts.EXTEND, [*claim.locks, *claim.counters, SENTINEL], *words)
        self._note_greatest(claim)
        return code

    def top_up(self, claim: Claim, fence: int) -> int:
        """Return the answer of ``top_up.lua``."""
        missing = None in self._holders(claim)
        words = (claim.owner, claim.ttl_ms, fence, claim.keep_ms)
        code: int = self._run(_scripts.TOP_UP, [*claim.locks, *claim.counters], *words)
        self._counts["topped up"] += code == 0 and missing
        self._note_greatest(claim)
        return code

    def release(self, claim: Claim, fence: int) -> int:
        """Return how many were the owner's; `fence` is 0 for an attempt without a certificate."""
        keys = [*claim.locks, *(claim.counters if fence else ())]
        deleted: int = self._run(_scripts.RELEASE, keys, claim.owner, fence, claim.keep_ms, b"")[0]
        self._note_greatest(claim)
        return deleted

    def _run(self, script: Script, keys: list[bytes], *words: bytes | int) -> Any:
        argv = [word if isinstance(word, bytes) else b"%d" % word for word in words]
        return SCRIPTS[script.digest](self._process, keys, argv)

    # -- what a run wants to know --------------------------------------------------------------

    def counter(self, name: str) -> int:
        """Return the counter of a name; 0 when there is none."""
        return int(self._process.get(_counter(name)) or 0)

    def _holders(self, claim: Claim) -> set[bytes | None]:
        return set(map(self._process.get, claim.locks))

    def _note(self, code: int, before: Sequence[int], floor: int) -> None:
        """Count what an acquire or a raise has met: whether it was a vote, and what the counters count as."""
        self._counts["quarantine refused a vote"] += code == NO_VOTE
        start = fencing.at(self.now_us // 1000 - fencing.START_LAG_MS)
        for stored in before if code == 1 else ():
            self._counts["a missing counter started"] += not stored and start > floor
            self._counts["a floor was in effect"] += floor > (stored or start)

    def _note_greatest(self, claim: Claim) -> None:
        for name in claim.names:
            self._greatest[name] = max(self._greatest.get(name, 0), self.counter(name))

    # -- what befalls it -----------------------------------------------------------------------

    def expire(self, *names: str) -> None:
        """Let locks end, which their ttl would do sooner or later."""
        for name in names:
            self._process.delete(name.encode())

    def snapshot(self) -> Snapshot:
        """Return the data as it is now."""
        return self._process.snapshot()

    def keep(self) -> None:
        """Write a snapshot: one of three that it can come back with."""
        self.kept = [*self.kept[-2:], self.snapshot()]

    def flush(self) -> None:
        """Lose everything, as by ``FLUSHALL``."""
        self._process.flush_all()

    def restart(self, data: Snapshot | None = None) -> None:
        """Come back as a new process, empty or with an older state."""
        self._process.new_process()
        if data is None:
            self.flush()
        else:
            self._process.restore(data)


def knows(data: Snapshot, owners: Sequence[int], names: Sequence[str]) -> bool:
    """Say whether one of these owners has a lock in that state."""
    holders = [data.data[name.encode()][0] for name in names if name.encode() in data.data]
    return any(b"%d" % owner in holders for owner in owners)


def _counter(name: str) -> bytes:
    return b"fence:" + name.encode()


def _stamp(expected: ExpectedSentinel, floor: int) -> tuple[bytes, int, bytes]:
    return expected.sentinel, floor, b""
