"""Random scripts of semaphores and mutexes: memory and real servers stay alike after each (R24, R25).

As in `test_read_write_differential`, with hashes of slots and of their counters.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from aioredlock_ng import _scripts
from tests.conformance.conftest import MemoryMaster, RealMaster
from tests.conformance.stage import EXPECTED, SENTINEL, locks, slot_counters
from tests.conformance.test_differential import KEYS, NAMES, Choice, Pair, Player
from tests.conformance.tools import OTHERS, OURS, WRONG, Value, is_hash
from tests.servers import EACH_ARM, Nodes, make_fresh

STEPS: Final = 2500
COUNTERS: Final = slot_counters(NAMES)
SPANS: Final = (500, 700, 1300)
"""Seconds: odd hundreds, while time goes by even ones, so that nothing ends as it is looked at."""
STEPS_OF_TIME_US: Final = (0, 1, 1000, 200_000_000, 200_000_000, 400_000_000, -200_000_000)
PERMITS: Final = 4


class SlotsPlayer(Player):
    """Chooses what happens next among semaphores and mutexes."""

    ttls = SPANS

    def value(self, key: bytes) -> Value:
        """Return something that may come to be under a key."""
        random = self.random
        slots = [b"%d" % slot for slot in range(PERMITS) if random.random() < 0.5]
        if key in COUNTERS:
            return random.choice((WRONG, *[{slot: b"%d" % self.number() for slot in slots}] * 9))
        if key in locks(NAMES) and random.random() < 0.7:
            held = {slot: b"%d:%b" % (self.ends(), random.choice((OURS, OTHERS, b"third"))) for slot in slots}
            return random.choice(({b"field": b"another program's"}, *[held] * 9))
        return super().value(key)

    def ends(self) -> int:
        """Return when a slot ends: what may have been so already."""
        return self.pair.now_us // 1000 + self.random.choice((-300_000, -100_000, *(s * 1000 for s in SPANS)))

    def slot(self, name: str, owner: bytes) -> int:
        """Return a slot: most often one that the owner has."""
        found = self.pair.look(locks(name)[0])
        held = found if is_hash(found) else {}
        mine = [int(slot) for slot, value in held.items() if value.endswith(owner)]
        return self.random.choice([*mine * 8, self.random.randrange(PERMITS)])

    def scripts(self) -> list[Choice]:
        """Return what may be run."""
        random, name = self.random, self.random.choice(NAMES)
        owner, ttl, keep, fence = self.owner(), self.span(), self.span(), max(1, self.number())
        ballot, loud = max(1, self.number()), random.choice((b"", b"1"))
        permits, slot = random.randint(1, PERMITS), self.slot(name, owner)
        start, span = random.randrange(permits), random.choice((1, permits))
        plain, fenced = locks(name), [*locks(name), *slot_counters(name)]
        voting = [*fenced, SENTINEL]
        look = (permits, start, span)
        asks: Choice = lambda s: (  # noqa: E731
            _scripts.SLOTS_ACQUIRE, voting, owner, ttl, ballot, 1, keep, *look, *self.stamp(s),
        )  # fmt: skip
        raises: Choice = lambda s: (_scripts.SLOTS_RAISE, voting, owner, fence, keep, slot, *self.stamp(s))  # noqa: E731
        extends: Choice = lambda s: (  # noqa: E731
            _scripts.SLOTS_EXTEND, voting, owner, ttl, fence, keep, slot, *self.stamp(s),
        )  # fmt: skip
        return [
            *self.of_mutexes(),
            *[asks] * 8,
            lambda _: (_scripts.SLOTS_ACQUIRE, plain, owner, ttl, 0, 1, keep, *look),
            *[raises] * 8,
            *[extends] * 8,
            lambda _: (_scripts.SLOTS_EXTEND, plain, owner, ttl, 0, keep, slot),
            *[lambda _: (_scripts.SLOTS_TOP_UP, fenced, owner, ttl, fence, keep, slot)] * 2,
            lambda _: (_scripts.SLOTS_TOP_UP, plain, owner, ttl, 0, keep, slot),
            *[lambda _: (_scripts.SLOTS_RELEASE, fenced, owner, fence, keep, loud, permits, slot)] * 2,
            lambda _: (_scripts.SLOTS_RELEASE, plain, owner, 0, keep, loud, permits, -1),
        ]


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("arm", EACH_ARM)
def test_both_stay_alike(arm: str, seed: int, shared_sets: Callable[[str], Nodes]) -> None:
    """After every step the answers and all keys are the same."""
    make_fresh(nodes := shared_sets(arm))
    with contextlib.closing(RealMaster(nodes, 0)) as real:
        asyncio.run(stay_alike(MemoryMaster(), real, Random(seed)))


async def stay_alike(memory: MemoryMaster, real: RealMaster, random: Random) -> None:
    """Play; the master in memory lives by the clock of a loop."""
    pair = Pair(memory, real, [*KEYS, *COUNTERS])
    pair.put((SENTINEL, EXPECTED, None))
    player = SlotsPlayer(random, pair)
    answers = set()
    for number in range(STEPS):
        what, answer = player.play()
        assert pair.differences() == [], f"step {number}: {what}"
        answers.add(answer)
        pair.now_us += random.choice(STEPS_OF_TIME_US)
    codes = {
        "slots_acquire": "1 0 -1",
        "slots_raise": "1 0 -1 -2 -3",
        "slots_extend": "1 0 -1 11 10 9",
        "slots_top_up": "0 -1",
        "slots_release": "0 1",
    }
    assert answers > {f"{script} {code}" for script, every in codes.items() for code in every.split()}
