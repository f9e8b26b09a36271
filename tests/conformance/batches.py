"""Random batches, run in one script and lock by lock: the two ways are to agree in answers and keys (R42)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from aioredlock_ng import _scripts
from tests.conformance.rules import some_fence
from tests.conformance.stage import EXPECTED, SENTINEL, counters, locks
from tests.conformance.tools import FOREIGN, OTHERS, OURS, WRONG, Entry, Value

NAMES: Final = "abcdefgh"
KEYS: Final = [*locks(NAMES), *counters(NAMES), SENTINEL]
LABELLED: Final = b"0" * 40 + b":1763640000000:host:1"
TTLS: Final = (60, 120, 300)
"""Seconds: longer than a test takes, and further apart."""

Run = Callable[..., Any]
"""Runs a script with keys and arguments; returns its answer behind the tag, of an error its kind."""


@dataclass(frozen=True)
class Batch:
    """Some locks, and what is asked of all of them in one script."""

    what: str
    asked: Sequence[tuple[bytes, bytes, bytes, int]]
    """Of each its key, its counter, the owner, and the fence that is to be extended."""
    ttl_ms: int
    keep_ms: int
    ballot: int
    block: int
    fenced: bool
    loud: bytes
    stamp: tuple[bytes | int, ...]

    def at_once(self, run: Run) -> list[Any]:
        """Run one script; returns an answer for each lock."""
        owners = [owner for _, _, owner, _ in self.asked]
        pairs = [key for lock, counter, *_ in self.asked for key in (lock, counter)]
        if self.what == "acquire":
            head = (self.ttl_ms, self.ballot, self.block, self.keep_ms)
            answer = run(_scripts.ACQUIRE_MANY, [*pairs, SENTINEL], *head, *owners, *self.stamp)
            if isinstance(answer, int):
                return ["no vote"] * len(owners)
            return self._each(answer if isinstance(answer, str) else answer[1:])
        if self.what == "release":
            return self._each(run(_scripts.RELEASE_MANY, pairs[::2], self.loud, *owners))
        of_locks = [word for _, _, owner, fence in self.asked for word in (owner, fence)]
        if not self.fenced:
            pairs, of_locks = pairs[::2], of_locks[::2]
        keys = [*pairs, SENTINEL] if self.stamp else pairs
        head = (self.ttl_ms, self.keep_ms if self.fenced else b"")
        answer = run(_scripts.EXTEND_MANY, keys, *head, *of_locks, *self.stamp)
        return self._each([answer] if len(self.asked) == 1 else answer)

    def _each(self, answer: Any) -> list[Any]:
        if isinstance(answer, str):  # the error of all
            return [answer] * len(self.asked)
        if self.what == "release" and len(self.asked) == 1:
            answer = [answer]
        return [one.split()[0].decode() if isinstance(one, bytes) else one for one in answer]

    def one_by_one(self, run: Run) -> list[Any]:
        """Run a script for each lock; returns what the batch says of such answers."""
        return [self._alone(run, *lock) for lock in self.asked]

    def _alone(self, run: Run, lock: bytes, counter: bytes, owner: bytes, fence: int) -> Any:
        if self.what == "acquire":
            args = (owner, self.ttl_ms, self.ballot, self.block, self.keep_ms, *self.stamp)
            answer = run(_scripts.ACQUIRE, [lock, counter, SENTINEL], *args)
            if isinstance(answer, str):
                return answer
            code, value, _ = answer
            return {1: value, 0: -max(value, 0), -1: "no vote"}[code]
        if self.what == "release":
            answer = run(_scripts.RELEASE, [lock], owner, 0, self.keep_ms, self.loud)
            return 1 if answer == [1, 0, 0] else answer
        keys = [lock, *[counter] * self.fenced, *[SENTINEL] * bool(self.stamp)]
        return run(_scripts.EXTEND, keys, owner, self.ttl_ms, fence * self.fenced, self.keep_ms, *self.stamp)


def some_batch(random: Random, now_us: int) -> tuple[list[Entry], Batch]:
    """Return what is under the keys before, and a batch; a name may be in it twice."""
    fence = some_fence(random, now_us)
    entries = [
        (key, some_value(random, key, now_us, fence), random.choice((*TTLS, None))) for key in KEYS[:-1]
    ]
    sentinel = random.choice((*[EXPECTED] * 12, EXPECTED + b"0", None, WRONG))
    what = random.choice(("acquire", "acquire", "extend", "release"))
    stamp = (random.choice((*[EXPECTED] * 12, b"")), some_fence(random, now_us), b"")
    names = random.choices(NAMES, k=random.randint(1, len(NAMES)))
    asked = [
        (
            lock,
            counter,
            random.choice((OURS, OURS, OTHERS)),
            random.choice((fence, some_fence(random, now_us))),
        )
        for lock, counter in zip(locks("".join(names)), counters("".join(names)), strict=True)
    ]
    batch = Batch(
        what=what,
        asked=[(lock, counter, owner, max(1, fence)) for lock, counter, owner, fence in asked],
        ttl_ms=random.choice(TTLS) * 1000,
        keep_ms=random.choice(TTLS) * 1000,
        ballot=random.choice((fence, some_fence(random, now_us))),
        block=random.choice((1, 1, 2, 32)),
        fenced=random.random() < 0.7,
        loud=random.choice((b"", b"1")),
        stamp=stamp if what == "acquire" or random.random() < 0.7 else (),
    )
    return [*entries, (SENTINEL, sentinel, None)], batch


def some_value(random: Random, key: bytes, now_us: int, fence: int) -> Value:
    """Return what may be under a lock or a counter: most often what a batch is for."""
    if random.random() < 0.1:
        return WRONG
    if key in locks(NAMES):
        return random.choice((None, None, None, OURS, OURS, OTHERS, FOREIGN, LABELLED))
    return random.choice((None, b"%d" % fence, b"%d" % some_fence(random, now_us)))
