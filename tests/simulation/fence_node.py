"""A model master: holds, counters and a sentinel; what the Lua files do, by the rules under search."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from aioredlock_ng._core.quarantine import Vow

from .fence_rules import Rules

NO_VOTE: Final = -1
CLOCK: Final = -2
ABOVE: Final = -3
"""Answers of a raise, as in ``raise.lua``."""

WITHOUT_VOTE: Final = 10
"""Added to an answer of an extension, as in ``extend.lua``."""

FOREIGN: Final = -1
"""The answer of an extension where something is another owner's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an owner's commands carry: the names, and how long locks and counters live."""

    owner: int
    names: tuple[str, ...]
    ttl_ms: int
    keep_ms: int


@dataclass(slots=True)
class Data:
    """What a master loses when it restarts empty; values come with their expiry, in node milliseconds."""

    holds: dict[str, tuple[int, int]] = field(default_factory=dict)
    counters: dict[str, tuple[int, int]] = field(default_factory=dict)
    sentinel: bytes | None = None

    def copy(self) -> Data:
        """Return a snapshot."""
        return Data(dict(self.holds), dict(self.counters), self.sentinel)


class ModelNode:
    """One master.

    Args:
        rules: what is searched.
        counts: where "sometimes" events are counted.
        offset_us: how far its clock is ahead.
    """

    def __init__(self, rules: Rules, counts: Counter[str], *, size: int, offset_us: int) -> None:
        self._rules = rules
        self._counts = counts
        self._size = size
        self.offset_us = offset_us
        self.now_us = 0
        self.now_ms = 0
        self.process = 0
        self.data = Data()
        self.kept: list[Data] = []
        """Older states to come back with."""
        self.greatest: dict[str, int] = {}
        """The greatest counter that each name ever had here."""
        self.broken_law = ""
        """How an acquire did not set a counter above all that it ever was; the laws of `fencing` in one."""

    def look(self, now_us: int) -> None:
        """See what time it is, and let expire what has expired: Redis does when the moment has *passed*."""
        self.now_us = now_us + self.offset_us
        self.now_ms = now_ms = self.now_us // 1000
        data = self.data
        for values in (data.holds, data.counters):
            gone = [name for name, (_, expiry) in values.items() if now_ms > expiry]
            for name in gone:
                del values[name]

    @property
    def identity(self) -> bytes:
        """The identity of this process."""
        return b"run%d" % self.process

    # -- what the scripts do -------------------------------------------------------------------

    def greet(self, quarantine_ms: int, push: bytes, push_floor: int) -> tuple[bytes, int, bytes]:
        """Do ``greet.lua``."""
        terms = {"identity": self.identity, "now_us": self.now_us, "size": self._size}
        self.data.sentinel = self._rules.greeted(
            self.data.sentinel, quarantine_ms=quarantine_ms, push=push, push_floor=push_floor, **terms
        )
        return self.data.sentinel, self.now_us, self.identity

    def initialise(self, quarantine_ms: int, floor: int) -> bytes | None:
        """Do ``init.lua``."""
        terms = {"identity": self.identity, "now_us": self.now_us, "size": self._size}
        done = self._rules.initialised(self.data.sentinel, quarantine_ms=quarantine_ms, floor=floor, **terms)
        self.data.sentinel = done or None
        return self.data.sentinel

    def acquire(self, claim: Claim, ballot: int, vow: Vow) -> tuple[int, int]:
        """Do ``acquire.lua``: the counter, or 0 when taken, or `NO_VOTE`; and the node's time."""
        if self.data.sentinel != vow.sentinel:
            self._counts["quarantine refused a vote"] += 1
            return NO_VOTE, self.now_ms
        holders = [self._holder(name) for name in claim.names]
        if any(holder not in (None, claim.owner) for holder in holders):
            return 0, self.now_ms
        fence = max(self._reading(name, vow.floor) for name in claim.names)
        if all(holders):
            return fence, self.now_ms  # a repeated command
        fence = self._rules.granted(fence, ballot, self.now_ms)
        for name in claim.names:
            if fence <= self.greatest.get(name, 0):
                self.broken_law = f"an acquire sets F of {name} to {fence}, after {self.greatest[name]}"
            self._hold(name, claim)
            self._store(name, fence, claim)
        return fence, self.now_ms

    def raise_(self, claim: Claim, fence: int, vow: Vow) -> int:
        """Do ``raise.lua``."""
        if self.data.sentinel != vow.sentinel:
            self._counts["quarantine refused a vote"] += 1
            return NO_VOTE
        if not all(self._rules.may_raise(self._holder(name), claim.owner) for name in claim.names):
            return 0
        floor = self._rules.raise_floor(vow.floor)
        befores = [self._reading(name, floor) for name in claim.names]
        afters = [self._rules.raised(before, fence, self.now_ms) for before in befores]
        for name, after in zip(claim.names, afters, strict=True):
            if after is None:
                return CLOCK
            self._store(name, after, claim)
        return 1 if all(after == fence for after in afters) else ABOVE

    def extend(self, claim: Claim, fence: int, vow: Vow) -> int:
        """Do ``extend.lua``."""
        vouched = self.data.sentinel == vow.sentinel
        vote, floor = (0, vow.floor) if vouched else (WITHOUT_VOTE, 0)
        holders = [self._holder(name) for name in claim.names]
        if any(holder not in (None, claim.owner) for holder in holders):
            return vote + FOREIGN
        if None in holders:
            return vote
        self._keep(claim, fence, floor)
        return vote + 1

    def top_up(self, claim: Claim, fence: int) -> int:
        """Do ``top_up.lua``."""
        holders = [self._holder(name) for name in claim.names]
        if any(holder not in (None, claim.owner) for holder in holders):
            return FOREIGN
        self._keep(claim, fence, 0)
        self._counts["topped up"] += None in holders
        return 0

    def release(self, claim: Claim, fence: int) -> int:
        """Do ``release.lua``; `fence` is 0 for an attempt without a certificate."""
        released = 0
        for name in claim.names:
            if self._holder(name) == claim.owner:
                del self.data.holds[name]
                released += 1
                if fence:
                    self._raise(name, fence, 0, claim)
        return released

    # -- parts of them -------------------------------------------------------------------------

    def _holder(self, name: str) -> int | None:
        held = self.data.holds.get(name)
        return None if held is None else held[0]

    def _hold(self, name: str, claim: Claim) -> None:
        self.data.holds[name] = (claim.owner, self.now_ms + claim.ttl_ms)

    def _keep(self, claim: Claim, fence: int, floor: int) -> None:
        """Let locks live on, create what is missing, and raise the counters (``raise`` in counter.lua)."""
        for name in claim.names:
            held = self.data.holds.get(name)
            if held is None or held[1] < self.now_ms + claim.ttl_ms:
                self._hold(name, claim)
            self._raise(name, fence, floor, claim)

    def _raise(self, name: str, fence: int, floor: int, claim: Claim) -> None:
        after = self._rules.raised(self._reading(name, floor), fence, self.now_ms)
        stored = self.data.counters.get(name)
        if after is not None:
            self._store(name, after, claim)
        elif stored is not None:
            self._store(name, stored[0], claim)

    def _reading(self, name: str, floor: int) -> int:
        found = self.data.counters.get(name)
        stored = None if found is None else found[0]
        value = self._rules.reading(stored, floor=floor, now_ms=self.now_ms)
        self._counts["a missing counter started"] += stored is None and value > floor
        self._counts["a floor was in effect"] += value == floor > (stored or 0)
        return value

    def _store(self, name: str, fence: int, claim: Claim) -> None:
        kept_ms = self._rules.kept_ms(fence, self.now_ms, claim.keep_ms)
        self.data.counters[name] = (fence, self.now_ms + kept_ms)
        if fence > self.greatest.get(name, 0):
            self.greatest[name] = fence

    # -- what befalls it -----------------------------------------------------------------------

    def keep(self) -> None:
        """Write a snapshot: one of three that it can come back with."""
        self.kept = [*self.kept[-2:], self.data.copy()]

    def flush(self) -> None:
        """Lose everything, as by ``FLUSHALL``."""
        self.data = Data()

    def restart(self, data: Data | None = None) -> None:
        """Come back as a new process, empty or with an older state."""
        self.process += 1
        self.data = Data() if data is None else data.copy()
