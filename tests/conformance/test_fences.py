"""The scripts' arithmetic of fences, in a second and plain version: exact to the last digit, until 2248."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Script
from aioredlock_ng._core.fencing import MAX_BLOCK, RAISE_AHEAD_MS, START_LAG_MS, at, range_end
from tests.conformance.masters import Master
from tests.conformance.rules import one_of, run_at, some_fence, some_time
from tests.conformance.stage import EXPECTED, KEEP_MS, SENTINEL, TTL, TTL_MS, counters, locks, queues
from tests.conformance.tools import OURS, lives
from tests.servers import EACH_ARM
from tests.unit.tasks import virtual

TRIES: Final = 400
LINE: Final = [b"redlock:tickets:{redlock:a}", b"redlock:seats:{redlock:a}"]
NO_SEAT: Final = (b"", 0, 100_000)

SCRIPTS: Final = {
    "acquire": {"read": _scripts.READ, "write": _scripts.WRITE, "fair": _scripts.FAIR_ACQUIRE},
    "raise": dict.fromkeys(("read", "write"), _scripts.RW_RAISE),
    "extend": dict.fromkeys(("read", "write"), _scripts.RW_EXTEND),
    "top up": dict.fromkeys(("read", "write"), _scripts.RW_REPAIR),
    "release": {**dict.fromkeys(("read", "write"), _scripts.RW_RELEASE), "fair": _scripts.FAIR_RELEASE},
}
PLAIN: Final = {
    "acquire": _scripts.ACQUIRE,
    "raise": _scripts.RAISE,
    "extend": _scripts.EXTEND,
    "top up": _scripts.REPAIR,
    "release": _scripts.RELEASE,
}
"""Those of a mutex, and of whatever has none of its own."""


class Case:
    """Some names of one kind, each with a counter or none, at some time; and numbers to ask for."""

    def __init__(self, master: Master, random: Random) -> None:
        self.master = master
        self.now_us = some_time(random)
        self.now_ms = self.now_us // 1000
        self.kind = random.choice(("mutex", "read", "write", "fair"))
        self.names = "abc"[: 1 if self.kind == "fair" else random.choice((1, 1, 2, 3))]
        self.block = 1
        if self.kind == "mutex":
            self.block = random.choice((1, 1, 2, random.randint(1, MAX_BLOCK), MAX_BLOCK))
        numbers = [some_fence(random, self.now_us) for _ in range(6)]
        self.floor, self.ballot, self.fence = (max(1, number) for number in numbers[:3])
        self.stored = [random.choice((None, number)) for number in numbers[3 : 3 + len(self.names)]]

    def counted(self, floor: int) -> list[int]:
        """Return what each counter counts as: where it is missing, it starts behind the node's time (R11)."""
        start = at(self.now_ms - START_LAG_MS)
        return [max(start if stored is None else stored, floor) for stored in self.stored]

    def put(self, *, mine: bool) -> None:
        """Have the locks, or not, and the counters."""
        ours = {OURS: self.now_ms + 30_000} if self.kind == "read" else OURS
        held = [(key, ours if mine else None, 30.0) for key in locks(self.names)]
        stored = [None if each is None else b"%d" % each for each in self.stored]
        self.master.put(
            [*held, *((key, value, 30.0) for key, value in zip(counters(self.names), stored, strict=True))]
        )

    def run(self, what: str, *args: bytes | int, voting: bool = True) -> Any:
        """Run the kind's script."""
        script: Script = SCRIPTS[what].get(self.kind, PLAIN[what])
        beside = queues(self.names) if self.kind in ("read", "write") else []
        more: tuple[bytes | int, ...] = (self.kind.encode(),) if beside else ()
        if what == "acquire":
            more = (b"",) if beside else more
        if script in (_scripts.FAIR_ACQUIRE, _scripts.FAIR_RELEASE):
            beside, more = LINE, NO_SEAT
        stamp = (EXPECTED, self.floor) if voting else ()
        keys = [*locks(self.names), *counters(self.names), *beside, *[SENTINEL] * voting]
        return run_at(self.master, self.now_us, script, keys, OURS, *args, *more, *stamp)

    def check(self, wanted: list[int | None], said: Any) -> None:
        """Compare counters, and how long each lives: until a missing one would start above it (R11)."""
        for (value, ttl), number in zip(self.master.look(counters(self.names)), wanted, strict=True):
            assert value == (None if number is None else b"%d" % number), (vars(self), said)
            kept_ms = 0 if number is None else max(KEEP_MS, number // 1024 - self.now_ms + 300_000)
            assert lives(ttl, None if number is None else kept_ms / 1000), (vars(self), said)


def an_acquire(case: Case, _: Random) -> None:
    """All names have one fence, above all before, and the ballot where that is possible.

    It is the next even number; that of readers is odd, and stays as it is between two writers (R21).
    """
    case.put(mine=False)
    said = case.run("acquire", TTL_MS, case.ballot, case.block, KEEP_MS)
    known, proposed = max(case.counted(case.floor)), min(case.ballot, at(case.now_ms))
    fence = range_end(max(known + 1, proposed), case.block)
    if case.kind == "read":
        fence = (max(known, proposed) if None in case.stored else known) | 1
    behind = {"write": [known], "fair": [0, 0]}.get(case.kind, [])
    assert said == [1, fence, case.now_us, *behind], vars(case)
    case.check([fence] * len(case.names), said)
    assert all(lives(ttl, TTL) for _, ttl in case.master.look(locks(case.names)))


def a_raise(case: Case, _: Random) -> None:
    """It is done, refused as too far ahead of the node's clock, or finds a greater counter; never down."""
    case.put(mine=True)
    said = case.run("raise", case.fence, KEEP_MS)
    known = case.counted(case.floor)
    if case.fence > at(case.now_ms + RAISE_AHEAD_MS):
        assert said == -2, vars(case)
        assert [value for value, _ in case.master.look(counters(case.names))] == [
            None if each is None else b"%d" % each for each in case.stored
        ]
        return
    assert said == (1 if max(known) <= case.fence or case.kind == "read" else -3), vars(case)
    case.check([max(case.fence, each) for each in known], said)


def a_passing_raise(case: Case, random: Random) -> None:
    """Whatever a lease does lifts counters that are behind its fence, as far as the node's clock allows."""
    case.put(mine=True)
    what = random.choice(("extend", "top up", "release"))
    head = (case.fence, KEEP_MS, b"") if what == "release" else (TTL_MS, case.fence, KEEP_MS)
    said = case.run(what, *head, voting=what == "extend")
    assert said == {"extend": 1, "top up": 0, "release": [len(case.names), 0, 0]}[what], vars(case)
    known = case.counted(case.floor if what == "extend" else 0)
    too_far = case.fence > at(case.now_ms + RAISE_AHEAD_MS)
    behind = [too_far and each < case.fence for each in known]
    for key, stored, before, left in zip(counters(case.names), case.stored, known, behind, strict=True):
        value, _ = case.master.look([key])[0]
        number = stored if left else max(before, case.fence)
        assert value == (None if number is None else b"%d" % number), (vars(case), what)


@pytest.mark.parametrize("tried", [an_acquire, a_raise, a_passing_raise])
@pytest.mark.parametrize("arm", ["memory", *EACH_ARM])
def test_fences_are_exact(arm, tried, shared_sets):
    """For random counters, floors, ballots, blocks and times, many of them next to a limit."""

    @virtual
    async def tries():
        with one_of(arm, shared_sets) as master:
            master.put([(SENTINEL, EXPECTED, None)])
            random = Random(1)
            for _ in range(TRIES):
                tried(Case(master, random), random)

    tries()
