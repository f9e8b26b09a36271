"""Random scripts of fair locks and mutexes: memory and real servers stay alike after each (R28, R29).

As in `test_semaphore_differential`, with lines beside the locks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.fencing import at
from aioredlock_ng._core.keyspace import SEATS, TICKETS, mark_key
from tests.conformance.conftest import MemoryMaster, RealMaster
from tests.conformance.stage import EXPECTED, SENTINEL, locks
from tests.conformance.test_differential import KEYS, NAMES, Choice, Pair, Player
from tests.conformance.test_semaphore_differential import SPANS
from tests.conformance.tools import OTHERS, OURS, WRONG, Value
from tests.servers import EACH_ARM, Nodes, make_fresh

STEPS: Final = 2000
LINES: Final = {
    name: [mark_key(b"redlock:", mark, locks(name)[0]) for mark in (TICKETS, SEATS)] for name in NAMES
}
TICKET_KEYS, SEAT_KEYS = (list(keys) for keys in zip(*LINES.values(), strict=True))
STEPS_OF_TIME_US: Final = (0, 1, 30_000, 60_000, 200_000_000, 400_000_000, -200_000_000)
"""Some as long as a head start, others so that seats end; never so that one ends as it is looked at."""
SITTERS: Final = (b"1", b"2", b"3")


class FairPlayer(Player):
    """Chooses what happens next among fair locks and mutexes."""

    ttls = SPANS

    def ends(self) -> int:
        """Return when a seat ends: what may have been so already."""
        return self.pair.now_us // 1000 + self.random.choice((-300_000, -100_000, *(s * 1000 for s in SPANS)))

    def ticket(self) -> int:
        """Return a ticket of about now, or any."""
        return self.random.choice((at(self.pair.now_us // 1000) + self.random.randrange(5), self.number()))

    def value(self, key: bytes) -> Value:
        """Return something that may come to be under a key."""
        random = self.random
        sitters = [sitter for sitter in SITTERS if random.random() < 0.6]
        if key in TICKET_KEYS:
            return random.choice((WRONG, *[{sitter: self.ticket() for sitter in sitters}] * 9))
        if key in SEAT_KEYS:
            ends = {sitter: self.ends() for sitter in sitters}
            if random.random() < 0.5:
                ends[b"free"] = self.ends()
            if random.random() < 0.3:
                ends[b"late"] = self.ends()
            return random.choice((WRONG, *[ends] * 9))
        return super().value(key)

    def scripts(self) -> list[Choice]:
        """Return what may be run."""
        random, name = self.random, self.random.choice(NAMES)
        owner, ttl, keep, fence = self.owner(), self.span(), self.span(), max(1, self.number())
        owner = random.choice((owner, OURS, OTHERS, b"third"))
        seat, life, loud = random.choice((b"", *SITTERS)), self.span(), random.choice((b"", b"1"))
        ticket = self.ticket() if seat and random.random() < 0.6 else 0
        plain, fenced = [*locks(name), *LINES[name]], [*self.keys(name), *LINES[name]]
        call, voting = (seat, ticket, life), [*fenced, SENTINEL]
        asks: Choice = lambda s: (  # noqa: E731
            _scripts.FAIR_ACQUIRE, voting, owner, ttl, fence, 1, keep, *call, *self.stamp(s),
        )  # fmt: skip
        frees: Choice = lambda _: (_scripts.FAIR_RELEASE, plain, owner, 0, keep, loud, *call)  # noqa: E731
        return [
            *self.of_mutexes(),
            *[asks] * 8,
            *[lambda _: (_scripts.FAIR_ACQUIRE, plain, owner, ttl, 0, 1, keep, *call)] * 8,
            *[lambda _: (_scripts.FAIR_RELEASE, fenced, owner, fence, keep, loud, *call)] * 6,
            *[frees] * 6,
            *[lambda _: (_scripts.QUEUE, LINES[name], random.randint(1, 3))] * 2,
        ]


@pytest.mark.campaign
@pytest.mark.parametrize("arm", EACH_ARM)
def test_both_stay_alike(arm: str, shared_sets: Callable[[str], Nodes]) -> None:
    """After every step the answers and all keys are the same."""
    make_fresh(nodes := shared_sets(arm))
    with contextlib.closing(RealMaster(nodes, 0)) as real:
        asyncio.run(stay_alike(MemoryMaster(), real, Random(0)))


async def stay_alike(memory: MemoryMaster, real: RealMaster, random: Random) -> None:
    """Play; the master in memory lives by the clock of a loop."""
    pair = Pair(memory, real, [*KEYS, *TICKET_KEYS, *SEAT_KEYS])
    pair.put((SENTINEL, EXPECTED, None))
    player = FairPlayer(random, pair)
    answers = set()
    for number in range(STEPS):
        what, answer = player.play()
        assert pair.differences() == [], f"step {number}: {what}"
        answers.add(answer)
        pair.now_us += random.choice(STEPS_OF_TIME_US)
    codes = {"fair_acquire": "1 0 -1 WRONGTYPE", "fair_release": "0 1", "queue": "0 1 WRONGTYPE"}
    assert answers > {f"{script} {code}" for script, every in codes.items() for code in every.split()}
