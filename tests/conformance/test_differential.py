"""Random scripts in random order: a master in memory and a real server stay alike, step by step.

Both are told the time, so that fences and sentinels are equal to the last digit; keys expire by the servers'
own clocks, so that what is left of them is compared with tolerance.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import hiredis
import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Script
from aioredlock_ng._core.fencing import MAX_BLOCK
from aioredlock_ng._core.quarantine import Sentinel
from aioredlock_ng._node.pipe import untagged
from tests.conformance.conftest import MemoryMaster, RealMaster
from tests.conformance.rules import TAG, run_at, some_fence
from tests.conformance.stage import EXPECTED, SENTINEL, announcements, counters, locks
from tests.conformance.tools import OTHERS, OURS, WRONG, Entry, Value, is_hash, kind_of
from tests.servers import EACH_ARM, Nodes, make_fresh

STEPS: Final = 2000
NAMES: Final = "abc"
KEYS: Final = [*locks(NAMES), *counters(NAMES), *announcements("a"), SENTINEL]
TTLS: Final = (60, 120, 300)
"""Seconds: longer than a test takes, and further apart."""
CLAIM: Final = b"5:use:us: 1"
UNDER: Final = (b"none:*", b"none:fence:{", b"none:slots:{", b"none:leader:{")
"""Where taking a node back looks for locks: here the two servers' keys have not the same time left."""
TOLERANCE_MS: Final = 20_000
Choice = Callable[[Value], tuple[Any, ...]]
"""A script with its keys and arguments, for what the sentinel is."""


class Pair:
    """A master in memory and a real server at one time of day; `spans` as in `source_at`."""

    def __init__(
        self,
        memory: MemoryMaster,
        real: RealMaster,
        keys: Sequence[bytes] = KEYS,
        spans: tuple[int, int, int] | None = None,
    ) -> None:
        self._memory, self._real, self.keys, self._spans = memory, real, keys, spans
        for master in (memory, real):
            master.flush()
        self.now_us = 1_800_000_000_000_000
        server = memory.spec._server
        server.time_us = lambda: self.now_us
        server.load_all()
        self.identity: bytes = self.run(_scripts.GREET, [b"other"], b"", 5, 0, b"", 0, b"", 0)[1][3]
        server.run_id, server.replid = self.identity[:40].decode(), self.identity[40:].decode()

    def put(self, entry: Entry) -> None:
        """Set a key on both."""
        for master in (self._memory, self._real):
            master.put([entry])

    def look(self, key: bytes) -> Value:
        """Return what is under a key."""
        return self._memory.look([key])[0][0]

    def differences(self) -> list[Any]:
        """Return the keys that are not the same on both, with what is there."""
        states = [master.look(self.keys) for master in (self._memory, self._real)]
        return [found for found in zip(self.keys, *states, strict=True) if not alike(*found[1:])]

    def run(self, script: Script, keys: Sequence[bytes], *args: bytes | int) -> tuple[Any, Any]:
        """Run a script on both; returns what they say."""
        words = [arg if isinstance(arg, bytes) else b"%d" % arg for arg in args]
        head = [b"EVALSHA", script.digest, b"%d" % len(keys)]
        reader = hiredis.Reader()
        reader.feed(self._memory.spec.execute([*head, *keys, *words, TAG]))
        said = reader.gets()
        said = kind_of(str(said)) if isinstance(said, hiredis.ReplyError) else untagged(said, TAG)
        return said, run_at(self._real.client, self.now_us, script, keys, *args, spans=self._spans)


def alike(left: tuple[Value, float | None], right: tuple[Value, float | None]) -> bool:
    """Return whether a key has the same value on both, and about as long to live: centuries, perhaps."""
    return left == right or (
        same(left[0], right[0])
        and None not in (left[1], right[1])
        and left[1] == pytest.approx(right[1], abs=TOLERANCE_MS / 1000, rel=0)
    )


def same(left: Value, right: Value) -> bool:
    """Return whether two values are equal; of sets, but for what the time to live of a key decides."""
    if not isinstance(left, dict) or not isinstance(right, dict) or is_hash(left) or is_hash(right):
        return left == right
    return left.keys() == right.keys() and all(abs(left[key] - right[key]) < TOLERANCE_MS for key in left)


def close(left: Any, right: Any) -> bool:
    """Return whether two replies are equal, but for the milliseconds that a key has left."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(close, left, right))
    if (
        isinstance(left, int)
        and isinstance(right, int)
        and min(abs(left), abs(right)) > 1000
        and max(abs(left), abs(right)) < 10**9
    ):
        return abs(left - right) < TOLERANCE_MS
    return type(left) is type(right) and left == right


class Player:
    """Chooses what happens next."""

    ttls: Sequence[int] = TTLS
    """Seconds that keys are given."""

    def __init__(self, random: Random, pair: Pair) -> None:
        self.random, self.pair = random, pair

    def names(self) -> str:
        """Return some names, sorted."""
        return "".join(sorted(self.random.sample(NAMES, self.random.choice((1, 1, 2, 3)))))

    def keys(self, names: str, *more: bytes) -> list[bytes]:
        """Return a fenced script's keys."""
        return [*locks(names), *counters(names), *more]

    def number(self) -> int:
        """Return a counter, fence, ballot or floor."""
        return some_fence(self.random, self.pair.now_us)

    def span(self) -> int:
        """Return a ttl in milliseconds."""
        return self.random.choice(self.ttls) * 1000

    def wait(self) -> int:
        """Return a quarantine in milliseconds."""
        return self.random.choice((0, self.span()))

    def owner(self) -> bytes:
        """Return one of two owners."""
        return self.random.choice((*[OURS] * 5, OTHERS))

    def expected(self, stored: Value) -> bytes:
        """Return the expected sentinel: most often the truth."""
        truth = stored if isinstance(stored, bytes) else b""
        return self.random.choice((*[truth] * 10, EXPECTED, b""))

    def stamp(self, stored: Value) -> tuple[bytes, int, bytes]:
        """Return what stands at the end of a vote."""
        identity = self.pair.identity
        return self.expected(stored), self.number(), self.random.choice((*[b"", identity] * 5, b"-"))

    def value(self, key: bytes) -> Value:
        """Return something that may come to be under a key."""
        if self.random.random() < 0.2:
            return self.random.choice((None, None, None, WRONG))
        if key in locks(NAMES):
            return self.owner()
        if key in announcements("a"):
            return self.random.choice((b"%d:them", b"%d:", b"%d", b"-%d:them")) % self.number()
        if key != SENTINEL:
            return b"%d" % self.number()
        return bytes(
            Sentinel(
                identity=self.random.choice((self.pair.identity, b"x" * 80)),
                floor=self.number(),
                ready_ms=self.random.choice((0, self.pair.now_us // 1000 + 1000)),
                size=self.random.choice((5, 5, 5, 3)),
                quarantine_ms=self.random.choice((0, 60_000)),
                closed_ms=self.random.choice((0, self.pair.now_us // 1000 + 1000)),
            )
        )

    def scripts(self) -> list[Choice]:
        """Return what may be run: script, keys, arguments, for what the sentinel is."""
        return self.of_mutexes() + self.of_nodes()

    def of_mutexes(self) -> list[Choice]:
        """Return the scripts of mutexes."""
        names = self.names()
        owner, ttl, keep, fence = self.owner(), self.span(), self.span(), self.number()
        loud = self.random.choice((b"", b"1"))
        block = self.random.choice((1, 2, MAX_BLOCK))
        voters = self.keys(names, SENTINEL)
        plain = locks(names)
        pairs = [*(key for pair in zip(plain, counters(names), strict=True) for key in pair), SENTINEL]
        owners, block = [self.owner() for _ in names], self.random.choice((1, 1, 32))
        with_fences = [word for owner in owners for word in (owner, max(1, fence))]
        return [
            *[lambda s: (_scripts.ACQUIRE, voters, owner, ttl, self.number(), block, keep, *self.stamp(s))]
            * 3,
            *[lambda s: (_scripts.RAISE, voters, owner, fence, keep, *self.stamp(s))] * 3,
            lambda s: (_scripts.EXTEND, voters, owner, ttl, max(1, fence), keep, *self.stamp(s)),
            lambda s: (_scripts.EXTEND, [*plain, SENTINEL], owner, ttl, 0, keep, *self.stamp(s)),
            lambda _: (_scripts.EXTEND, plain, owner, ttl, 0, keep),
            lambda _: (_scripts.TOP_UP, self.keys(names), owner, ttl, max(1, fence), keep),
            lambda _: (_scripts.TOP_UP, plain, owner, ttl, 0, keep),
            lambda _: (_scripts.RELEASE, self.keys(names), owner, max(1, fence), keep, loud),
            lambda _: (_scripts.RELEASE, plain, owner, 0, keep, loud),
            lambda _: (_scripts.SET_ALL, plain, owner, ttl, 0, 1, keep),
            lambda s: (_scripts.SET_ALL, [*plain, SENTINEL], owner, ttl, 0, 1, keep, *self.stamp(s)),
            *[
                lambda s: (
                    _scripts.ACQUIRE_MANY,
                    pairs,
                    ttl,
                    self.number(),
                    block,
                    keep,
                    *owners,
                    *self.stamp(s),
                )
            ]
            * 3,
            lambda s: (_scripts.EXTEND_MANY, pairs, ttl, keep, *with_fences, *self.stamp(s)),
            lambda _: (_scripts.EXTEND_MANY, pairs[:-1], ttl, keep, *with_fences),
            lambda s: (_scripts.EXTEND_MANY, [*plain, SENTINEL], ttl, b"", *owners, *self.stamp(s)),
            lambda _: (_scripts.RELEASE_MANY, plain, loud, *owners),
            lambda _: (_scripts.INSPECT, pairs[:-1], self.random.choice((1, 100, 1000))),
        ]

    def of_nodes(self) -> list[Choice]:
        """Return those of an election and of the sentinel."""
        fence, keep = self.number(), self.span()
        return [
            lambda _: (_scripts.ANNOUNCE, announcements("a"), fence, b"us", keep),
            lambda s: (_scripts.OBSERVE, [*locks("a"), *announcements("a"), SENTINEL], *self.stamp(s)),
            lambda s: (
                _scripts.GREET,
                [SENTINEL],
                b"n",
                5,
                self.wait(),
                self.expected(s),
                fence,
                CLAIM,
                fence,
            ),
            lambda s: (_scripts.TAKE_BACK, [SENTINEL], b"n", 5, self.wait(), self.expected(s), CLAIM, *UNDER),
            lambda _: (_scripts.INIT, [SENTINEL], 5, 0, self.random.choice((0, fence)), b"us"),
        ]

    def play(self) -> tuple[str, str]:
        """Do something to both; returns what, and what they answered."""
        random = self.random
        if random.random() < 0.2:
            key = random.choice(self.pair.keys)
            value, ttl = self.value(key), random.choice((*self.ttls, None))
            if key == SENTINEL or (ttl is None and isinstance(value, dict)):  # sets always have an expiry
                ttl = None if key == SENTINEL else self.ttls[0]
            entry = (key, value, ttl)
            self.pair.put(entry)
            return repr(entry), ""
        script, keys, *args = random.choice(self.scripts())(self.pair.look(SENTINEL))
        said, wanted = self.pair.run(script, keys, *args)
        what = f"{script} {keys} {args}"
        assert close(said, wanted), f"{what}: in memory {said}, really {wanted}"
        return what, f"{script.name} {said[0] if isinstance(said, list) else said}"


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("arm", EACH_ARM)
def test_both_stay_alike(arm: str, seed: int, shared_sets: Callable[[str], Nodes]) -> None:
    """After every step the answers and all keys are the same."""
    make_fresh(nodes := shared_sets(arm))
    with contextlib.closing(RealMaster(nodes, 0)) as real:
        asyncio.run(stay_alike(MemoryMaster(), real, Random(seed)))


async def stay_alike(memory: MemoryMaster, real: RealMaster, random: Random) -> None:
    """Play; the master in memory lives by the clock of a loop."""
    pair = Pair(memory, real)
    player = Player(random, pair)
    answers = set()
    for number in range(STEPS):
        what, answer = player.play()
        assert pair.differences() == [], f"step {number}: {what}"
        answers.add(answer)
        pair.now_us += random.choice((0, 1, 1000, 400_000, 20_000_000, -5_000_000))
    codes = {
        "acquire": "1 0 -1",
        "raise": "1 0 -1 -2 -3",
        "set_all": "0 -2",
        "extend": "1 0 -1 11 10 9",
        "top_up": "0 -1",
        "announce": "1 0",
        "observe": "1 0",
    }
    assert answers > {f"{script} {code}" for script, every in codes.items() for code in every.split()}
