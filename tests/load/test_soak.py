"""The soak's own test: a few seconds of it in CI, and that its judge finds what leaks."""

from __future__ import annotations

import asyncio
import os

import pytest

from aioredlock_ng._lock.local_queue import NameQueue
from tests.load.claims import Claims
from tests.load.soak import FEWEST, LONG, SHORT, Tolerance, growing, soak
from tests.load.work import TTL, Mill

SECONDS = 8.0
QUEUES = f"object {NameQueue.__name__}"
assert TTL < SECONDS, "leases run out and are extended within the short soak"


@pytest.mark.campaign
async def test_a_short_soak_is_clean() -> None:
    """Under mixed load and real faults no name has two holders, fences grow, and tasks, descriptors and what
    managers keep neither grow nor are left behind.
    """
    outcome = await soak(SECONDS, every=SECONDS / 20, tolerances=SHORT)
    assert outcome.ok, outcome
    assert outcome.counts["grants"] > 500, outcome.counts
    assert outcome.counts["cancelled"], outcome.counts
    assert outcome.counts["lost: refused"], outcome.counts
    assert any(name.startswith("faults: ") for name in outcome.counts), outcome.counts


async def leak(mill: Mill) -> None:
    """Leave tasks behind, descriptors open, names in a manager's local queue, and memory in use."""
    mill.kept += [asyncio.create_task(asyncio.Event().wait()) for _ in range(8)]
    mill.kept += [os.fdopen(os.dup(0), closefd=True) for _ in range(4)]
    queue = mill.managers[0]._life.session.queue
    for _ in range(40):
        queue.entries[f"forgotten:{next(mill.numbers)}"] = forgotten = NameQueue()
        forgotten.inside = []
    mill.kept.append(b"x" * 14_000_000)


@pytest.mark.campaign
async def test_a_load_that_leaks_is_found() -> None:
    """Each deliberate leak makes its own series grow, within seconds."""
    for seconds in (4.0, 16.0):  # beside other work little is done in the first
        outcome = await soak(seconds, every=0.2, tolerances=SHORT, leak=leak)
        if outcome.growing.keys() >= {"tasks", "fds", QUEUES, "rss"}:
            return
    raise AssertionError(outcome.growing)


@pytest.mark.parametrize("tolerances", [LONG, SHORT], ids=["long", "short"])
def test_the_judge_compares_the_second_quarter_with_the_last(tolerances: dict[str, Tolerance]) -> None:
    """Single peaks are ignored, late beginnings are not overlooked, and steady growth is found."""
    flat = [1.0, 5.0, 9.0, 9.0, *[20.0, 20.0, 90.0, 20.0], *[20.0] * 4, *[21.0, 22.0, 20.0, 500.0]]
    assert growing([{"tasks": one} for one in flat], tolerances) == {}
    late = [{"old": 1.0}] * FEWEST + [{"old": 1.0, "new": 1000.0}] * FEWEST
    assert growing(late, tolerances).keys() == {"new"}
    with pytest.raises(AssertionError, match="too few"):
        growing(late[: FEWEST - 1], tolerances)
    steady = [{"tasks": 60.0 + i, "fds": 40.0 + i, QUEUES: 40.0 + 2 * i} for i in range(200)]
    assert growing(steady, tolerances).keys() == {"tasks", "fds", QUEUES}


class Holder:
    """As much of a lease as a claim looks at."""

    def __init__(self, name: str, fence: int | None, *, held: bool = True) -> None:
        self.names, self.fence, self.held = (name,), fence, held


def test_two_holders_and_a_fence_that_does_not_grow_are_violations() -> None:
    """What the run checks at every grant would be seen."""
    claims = Claims()
    with claims.claim(Holder("a", 5)), claims.claim(Holder("b", 5)):
        assert claims.violations == []
        with claims.claim(Holder("a", 6)):
            assert len(claims.violations) == 1
            assert "two hold 'a'" in claims.violations[0]
    with claims.claim(Holder("a", 6)):
        assert "fence 6 after 6" in claims.violations[1]
    with claims.claim(Holder("c", 1, held=False)), claims.claim(Holder("c", 2)):
        assert len(claims.violations) == 2  # a client that lost its lease is no holder any more
    with claims.claim(Holder("d", None)):
        assert len(claims.violations) == 3
