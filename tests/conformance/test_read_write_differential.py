"""Random scripts of readers, writers and mutexes: memory and real servers stay alike after each (R19 to R23).

As in `test_differential`, with sorted sets under locks and beside them.  Their members end by the time that
both are told, keys by the servers' own clocks: all spans are a hundred seconds at least, and steps of time
two hundred, so that it does not matter how long a run takes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Script
from aioredlock_ng.testing import _memory_read_write, _memory_readers
from tests.conformance.conftest import MemoryMaster, RealMaster
from tests.conformance.stage import EXPECTED, SENTINEL, locks, queues
from tests.conformance.test_differential import KEYS, NAMES, Choice, Pair, Player
from tests.conformance.tools import OTHERS, OURS, WRONG, Value
from tests.servers import EACH_ARM, Nodes, make_fresh

STEPS: Final = 2500
QUEUES: Final = queues(NAMES)
SPANS: Final = (500, 700, 1300)
"""Seconds: odd hundreds, while time goes by even ones, so that nothing ends as it is looked at."""
MARK_MS: Final = 500_000
AWAITED_MS: Final = 700_000
TURN_MS: Final = 300_000
"""Longer than in the scripts, for the same reason."""
STEPS_OF_TIME_US: Final = (0, 1, 1000, 200_000_000, 200_000_000, 400_000_000, -200_000_000)


class ReadWritePlayer(Player):
    """Chooses what happens next among readers, writers and mutexes."""

    ttls = SPANS

    def ends(self) -> int:
        """Return when a member of a set ends: what may have been so already."""
        return self.pair.now_us // 1000 + self.random.choice((-300_000, -100_000, *(s * 1000 for s in SPANS)))

    def value(self, key: bytes) -> Value:
        """Return something that may come to be under a key."""
        random = self.random
        if key in QUEUES:
            marks = [mark for mark in (b"w1", b"w2", b"r", b"turn") if random.random() < 0.4]
            return random.choice((WRONG, *[{mark: self.ends() for mark in marks}] * 9))
        if key in locks(NAMES) and random.random() < 0.6:
            return {owner: self.ends() for owner in (OURS, OTHERS, b"third") if random.random() < 0.5}
        return super().value(key)

    def scripts(self) -> list[Choice]:
        """Return what may be run."""
        names = self.names()
        owner, ttl, keep, fence = self.owner(), self.span(), self.span(), max(1, self.number())
        ballot, seat = max(1, self.number()), self.random.choice((b"", b"1", b"2"))
        loud, mode = self.random.choice((b"", b"1")), self.random.choice((b"read", b"write"))
        plain, fenced = [*locks(names), *queues(names)], self.keys(names, *queues(names))
        voting = [*fenced, SENTINEL]

        def asked(script: Script) -> list[Choice]:
            asks: Choice = lambda s: (script, voting, owner, ttl, ballot, 1, keep, seat, *self.stamp(s))  # noqa: E731
            return [
                *[asks] * 4,
                lambda s: (script, [*plain, SENTINEL], owner, ttl, 0, 1, keep, seat, *self.stamp(s)),
                lambda _: (script, plain, owner, ttl, 0, 1, keep, seat),
            ]

        raises: Choice = lambda s: (_scripts.RW_RAISE, voting, owner, fence, keep, mode, *self.stamp(s))  # noqa: E731
        extends: Choice = lambda s: (  # noqa: E731
            _scripts.RW_EXTEND, voting, owner, ttl, fence, keep, mode, *self.stamp(s),
        )  # fmt: skip
        return [
            *self.of_mutexes(),
            *asked(_scripts.READ),
            *asked(_scripts.WRITE),
            *[raises] * 8,
            *[extends] * 4,
            lambda s: (_scripts.RW_EXTEND, [*plain, SENTINEL], owner, ttl, 0, keep, mode, *self.stamp(s)),
            lambda _: (_scripts.RW_EXTEND, plain, owner, ttl, 0, keep, mode),
            lambda _: (_scripts.RW_TOP_UP, fenced, owner, ttl, fence, keep, mode),
            lambda _: (_scripts.RW_TOP_UP, plain, owner, ttl, 0, keep, mode),
            lambda _: (_scripts.RW_RELEASE, fenced, owner, fence, keep, loud, mode),
            lambda _: (_scripts.RW_RELEASE, plain, owner, 0, keep, loud, mode),
            lambda _: (_scripts.RW_RELEASE, plain, owner, 0, keep, loud, mode, seat or b"3"),
        ]


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("arm", EACH_ARM)
def test_both_stay_alike(
    arm: str, seed: int, shared_sets: Callable[[str], Nodes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every step the answers and all keys are the same."""
    make_fresh(nodes := shared_sets(arm))
    monkeypatch.setattr(_memory_read_write, "MARK_MS", MARK_MS)
    monkeypatch.setattr(_memory_readers, "AWAITED_MS", AWAITED_MS)
    monkeypatch.setattr(_memory_readers, "TURN_MS", TURN_MS)
    with contextlib.closing(RealMaster(nodes, 0)) as real:
        asyncio.run(stay_alike(MemoryMaster(), real, Random(seed)))


async def stay_alike(memory: MemoryMaster, real: RealMaster, random: Random) -> None:
    """Play; the master in memory lives by the clock of a loop."""
    pair = Pair(memory, real, [*KEYS, *QUEUES], (MARK_MS, AWAITED_MS, TURN_MS))
    pair.put((SENTINEL, EXPECTED, None))
    player = ReadWritePlayer(random, pair)
    answers = set()
    for number in range(STEPS):
        what, answer = player.play()
        assert pair.differences() == [], f"step {number}: {what}"
        answers.add(answer)
        pair.now_us += random.choice(STEPS_OF_TIME_US)
    codes = {
        "read": "1 0 -1",
        "write": "1 0 -1",
        "rw_raise": "1 0 -1 -2 -3",
        "rw_extend": "1 0 -1 11 10 9",
        "rw_top_up": "0 -1",
        "rw_release": "0 1",
    }
    assert answers > {f"{script} {code}" for script, every in codes.items() for code in every.split()}
