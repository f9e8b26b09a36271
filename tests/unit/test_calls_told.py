"""Hooks, counters and the log hear of calls that wait, of their end, and of nodes and leases."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterator

import pytest

from aioredlock_ng import LockManager, LockTakenError
from aioredlock_ng.errors import ManagerClosedError, QuorumUnavailableError, WouldDeadlockError
from aioredlock_ng.events import Acquired, GaveUp, Refused, Waiting
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import End, in_task, sim, turns
from tests.unit.test_log import Lines, logged
from tests.unit.traces import PREFIX, Heard
from tests.unit.worlds import LATENCY, PLAIN, ROUND_TRIP, TIMEOUT, each, make, opened, world

LONG = 2.0
"""Seconds after which a wait is worth a line."""
MAX_LINES = 20
"""Lines in a minute."""
CALLS = (Acquired, Refused, Waiting, GaveUp)
"""The events of a call."""


def counts(manager: LockManager) -> tuple[int, int]:
    """Return how many tries were refused, and how many calls gave up."""
    return manager.statistics().refused, manager.statistics().gave_up


# -- to hooks ------------------------------------------------------------------------------------------


async def test_a_task_of_this_process_is_in_the_way():
    """No node is asked, and still the wait and its end are reported, and the refusal is counted."""
    heard = Heard()
    async with world(hooks=[heard]) as w, w.manager.lock("a"):
        assert [type(event) for event in heard.take(*CALLS)] == [Acquired], (
            "a call that is let through does not wait"
        )
        lock = w.manager.lock("a", blocking_timeout=3, label="x")
        assert isinstance((await in_task(lock.acquire)).error, LockTakenError)
        assert heard.take(*CALLS) == [
            Waiting(names=("a",), label="x", waited=0.0, taken=True, votes=()),
            GaveUp(names=("a",), label="x", waited=3.0, attempts=0, taken=True, votes=()),
        ]
        assert counts(w.manager) == (1, 1)

        assert await w.manager.lock("a").try_acquire() is None
        (gave_up,) = heard.take(*CALLS)
        assert isinstance(gave_up, GaveUp)
        assert (gave_up.waited, gave_up.taken) == (0.0, True)
        assert counts(w.manager) == (2, 2)


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "no quorum"])
async def test_nodes_are_asked_in_vain(taken):
    """Each round is reported, the wait and its end once; both say if it is taken, and what nodes said."""
    heard = Heard()
    async with world() as w, opened(w.nodes, seed=2, hooks=[heard]) as other, w.manager.lock("a"):
        if not taken:
            each(w.nodes[1:]).freeze()
        with pytest.raises(LockTakenError if taken else QuorumUnavailableError):
            await other.lock("a", blocking_timeout=3).acquire()
        events = heard.take(*CALLS)
        refused, waiting, gave_up = events[0], events[1], events[-1]
        kinds = Counter(type(event) for event in events)
        assert kinds == {Refused: gave_up.attempts, Waiting: 1, GaveUp: 1}
        assert [type(event) for event in (refused, waiting, gave_up)] == [Refused, Waiting, GaveUp]
        assert (waiting.taken, gave_up.taken) == (taken, taken)
        assert gave_up.waited == pytest.approx(3 + 2 * ROUND_TRIP, abs=EPSILON if taken else TIMEOUT)
        assert len(waiting.votes) == len(gave_up.votes) == 3
        assert counts(other) == (gave_up.attempts, 1)
        each(w.nodes).thaw()


async def test_a_call_that_is_cut_short_says_so():
    """Cancelled at the gate or between tries, closed, or refused for a deadlock: `taken` is None."""
    heard = Heard()
    async with world() as w:
        other = make(w.nodes, hooks=[heard])
        foreign = await w.manager.lock("a").acquire()
        async with other, other.lock("b"):
            heard.take(*CALLS)
            for name in "ab":
                waiter = in_task(other.lock(name).acquire)
                await asyncio.sleep(1)
                waiter.cancel()
                await waiter
            with pytest.raises(WouldDeadlockError):
                await other.lock("b").acquire()
            late = in_task(other.lock("a").acquire)
            await turns(2)
        assert isinstance((await late).error, ManagerClosedError)
        ends = [event for event in heard.take(*CALLS) if isinstance(event, GaveUp)]
        assert [(event.names[0], event.taken) for event in ends] == [(name, None) for name in "abba"]
        assert other.statistics().gave_up == 4
        await foreign.release()


# -- to the log ----------------------------------------------------------------------------------------

EPSILON = 0.05


class Waits(Lines):
    """Keeps what is logged about waiting, with the moment by the virtual clock."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        if "waiting for" in record.getMessage() or "calls of acquire are waiting" in record.getMessage():
            record.when = sim().time()
            super().emit(record)


@pytest.fixture
def log() -> Iterator[Waits]:
    """Keep what is logged about waiting, from INFO on."""
    with logged(logging.INFO, Waits()) as waits:
        yield waits


def in_vain(manager: LockManager, name: str = "a", *, seconds: float) -> asyncio.Task[End]:
    """Wait for a lock that cannot be had."""
    return in_task(manager.lock(name, blocking_timeout=seconds).acquire)


async def test_a_wait_for_another_process_is_said(log):
    """It is taken, and for how long unless it is extended, and once."""
    async with world() as w, opened(w.nodes, seed=2) as other, other.lock("a", extension=PLAIN, ttl=60):
        began = sim().time()
        await in_vain(w.manager, seconds=20)
        (record,) = log.records
        assert record.when - began == pytest.approx(LONG, abs=EPSILON)
        assert (record.levelno, record.__dict__["lock"]) == (logging.INFO, "a")
        line = record.getMessage()
        assert line.startswith("still waiting for lock 'a' after 2.0 s: lock 'a' is held by ")
        assert line.endswith(" s unless it is extended")
        assert "; it expires in 5" in line


async def test_a_wait_for_a_quorum_is_said(log):
    """Too few nodes: which, and why; as a warning."""
    async with world() as w:
        each(w.nodes[1:]).crash()
        await in_vain(w.manager, seconds=10)
    (record,) = log.records
    assert record.levelno == logging.WARNING
    assert "1 of 3 nodes voted, 2 are needed [" in record.getMessage()
    assert record.getMessage().count("connection") >= 2
    assert "may vote in" not in record.getMessage()


async def test_a_flood_of_waiting_calls_is_no_flood_of_lines(log):
    """At most `MAX_LINES` lines are logged in a minute, the last one with the count of waiting calls."""
    async with world() as w, opened(w.nodes, seed=2) as other:
        names = [str(number) for number in range(3 * MAX_LINES)]
        held = [await other.lock(name, ttl=90).acquire() for name in names]
        await in_vain(w.manager, "0", seconds=1)  # it waits no more then
        calls = [in_vain(w.manager, name, seconds=5) for name in names for _ in range(2)]
        await asyncio.gather(*calls)
        assert len(log.messages) == MAX_LINES
        assert f"{len(calls)} calls of acquire are waiting now" in log.messages[-1]
        await asyncio.sleep(60)
        await in_vain(w.manager, "0", seconds=5)
        for lease in held:
            await lease.release()
    assert "'0'" in log.messages[MAX_LINES]
    assert len(log.messages) == MAX_LINES + 1


# -- nodes -------------------------------------------------------------------------------------------


async def test_when_a_majority_may_vote() -> None:
    """`available` and `unavailable_for` tell whether, or in how many seconds, a majority may vote (R12)."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(3)]
    manager = make(nodes, restart_quarantine=60)

    def check(seconds: float, why: str = "") -> None:
        assert (manager.available, manager.unavailable_for) == (seconds == 0, seconds), why

    check(math.inf, "not started")
    await manager.start()
    check(0.0)
    nodes[0].restart()
    await asyncio.sleep(1)
    check(0.0, "two of three are enough")
    nodes[1].crash()
    await asyncio.sleep(1)
    wait = manager.statistics().nodes[0].votes_in
    assert wait is not None
    check(wait, "one votes, one will, one is down")
    assert wait == pytest.approx(60.61 - 2, abs=0.7)
    nodes[2].crash()
    await asyncio.sleep(1)
    check(math.inf, "of two nothing is known")
    each(nodes[1:]).restart()
    await asyncio.sleep(70)
    assert manager.available
    incarnation = nodes[0].get(PREFIX + b"{meta}") or b""
    nodes[0].set(PREFIX + b"{meta}", incarnation.replace(b":3:", b":5:"))
    await asyncio.sleep(1)
    assert manager.statistics().conflict, "it is another quorum's"
    check(math.inf)
    nodes[0].set(PREFIX + b"{meta}", incarnation)
    await asyncio.sleep(1)
    assert manager.available
    await manager.aclose()
    check(math.inf, "closed")
