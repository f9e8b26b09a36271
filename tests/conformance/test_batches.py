"""A batch is its locks one by one, in order and at one time: the same answers, the same keys then (R42)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Script
from tests.conformance.masters import WRONG, Entry, Value
from tests.conformance.rules import one_of, run_at, some_fence, some_time
from tests.conformance.stage import EXPECTED, SENTINEL, counters, locks
from tests.conformance.tools import FOREIGN, OTHERS, OURS, close
from tests.servers import EACH_ARM
from tests.unit.tasks import virtual

TRIES: Final = 400
NAMES: Final = "abcdefgh"
KEYS: Final = [*locks(NAMES), *counters(NAMES), SENTINEL]
LABELLED: Final = b"0" * 40 + b":1763640000000:host:1"
TTLS: Final = (60, 120, 300)
"""Seconds: longer than a test takes, and further apart."""
TOLERANCE_MS: Final = 20_000

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

    def near() -> int:
        return random.choice((fence, some_fence(random, now_us)))

    def value_under(key: bytes) -> Value:
        if random.random() < 0.1:
            return WRONG
        if key in locks(NAMES):
            return random.choice((None, None, None, OURS, OURS, OTHERS, FOREIGN, LABELLED, {OTHERS: 2**45}))
        return random.choice((None, b"%d" % near()))

    entries = [(key, value_under(key), random.choice((*TTLS, None))) for key in KEYS[:-1]]
    incarnation = random.choice((*[EXPECTED] * 12, EXPECTED + b"0", None, WRONG))
    what = random.choice(("acquire", "acquire", "extend", "release"))
    stamp = (random.choice((*[EXPECTED] * 12, b"")), random.choice((near(), near(), fence + 3)))
    names = "".join(random.choices(NAMES, k=random.randint(1, len(NAMES))))
    batch = Batch(
        what=what,
        asked=[
            (lock, counter, random.choice((OURS, OURS, OTHERS)), max(1, near()))
            for lock, counter in zip(locks(names), counters(names), strict=True)
        ],
        ttl_ms=random.choice(TTLS) * 1000,
        keep_ms=random.choice(TTLS) * 1000,
        ballot=near(),
        block=random.choice((1, 1, 2, 32)),
        fenced=random.random() < 0.7,
        loud=random.choice((b"", b"1")),
        stamp=stamp if what == "acquire" or random.random() < 0.7 else (),
    )
    return [*entries, (SENTINEL, incarnation, None)], batch


def without_get(script: Script) -> Script:
    """Return a script whose SET fails where it is asked for what was there, as Redis 6.0 does."""
    return Script(script.name, script.source.replace(b"keep_ms, 'GET')", b"keep_ms, 'UNKNOWN')"))


@pytest.mark.parametrize("arm", ["memory", *EACH_ARM])
def test_a_batch_is_its_locks_one_by_one(arm, shared_sets):
    """Whatever is under the keys and is asked, at times until 2248."""
    random, seen = Random(5), Counter[str]()

    @virtual
    async def tries():
        with one_of(arm, shared_sets) as master:
            for _ in range(TRIES):
                now_us = some_time(random)
                entries, batch = some_batch(random, now_us)
                old = arm != "memory" and random.random() < 0.5

                def run(script, *words, now_us=now_us, old=old):
                    return run_at(master, now_us, without_get(script) if old else script, *words)

                ends = []
                for way in (batch.at_once, batch.one_by_one):
                    master.put(entries)
                    ends.append((way(run), master.look(KEYS)))
                alike = ends[0] == ends[1] if arm == "memory" else close(*ends, TOLERANCE_MS)
                assert alike, f"{batch}\nwith {entries}:\n{ends[0]}\n{ends[1]}"
                seen.update(f"{batch.what} {answer}" for answer in ends[0][0] if not isinstance(answer, list))

    tries()
    assert {f"{what} WRONGTYPE" for what in ("acquire", "extend", "release")} <= set(seen)
    assert {f"extend {code}" for code in (1, 0, -1, 11, 10, 9)} <= set(seen)
    assert {"acquire no vote", "acquire 0", "release 1"} <= set(seen)
