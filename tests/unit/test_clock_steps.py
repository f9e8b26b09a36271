"""The clock watch at work: a node whose clock jumps ahead ends locks early, and loses its vote (R14, A1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

import pytest

from aioredlock_ng import LockTakenError, NodeState, QuorumUnavailableError, Vote
from aioredlock_ng._core.clock_watch import PATIENCE
from aioredlock_ng._core.quarantine import parse
from aioredlock_ng._core.quorum import Verdict
from aioredlock_ng.events import ClockStepped
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cycle, in_task, sim
from tests.unit.traces import PREFIX, Heard, count
from tests.unit.worlds import LATENCY, PLAIN, TTL, World, ago, each, put, states, world

HOUR = 3600.0
MINUTE = 60.0
"""More than a ttl, and not so much that the nodes could not agree on a fence."""
QUARANTINE = 60.0
WAIT = 60.61
HEARTBEAT = 0.5
NOTICED = 2 * HEARTBEAT + 0.1
META = PREFIX + b"{meta}"

UP, OUT = NodeState.UP, NodeState.QUARANTINED

MODES = pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])


@contextlib.asynccontextmanager
async def watched(number: int = 3, **options: Any) -> AsyncIterator[tuple[World, Heard]]:
    """Open a world whose manager has seen enough of every clock, in the middle between two heartbeats."""
    heard = Heard()
    async with world(number, hooks=[heard], **{"restart_quarantine": QUARANTINE, **options}) as w:
        await asyncio.sleep(2.5 * HEARTBEAT)
        yield w, heard


def steps(heard: Heard) -> list[tuple[str | None, int]]:
    """Return whose clock jumped, and by how many seconds."""
    return [(event.node, round(event.seconds)) for event in heard.of(ClockStepped)]


def levels(caplog: pytest.LogCaptureFixture, words: str) -> list[int]:
    """Return the levels of log lines with these words."""
    return [one.levelno for one in caplog.records if words in one.getMessage()]


def ready_in(node: MemoryNode, ahead: float) -> float:
    """Return the seconds until a node may vote by its record, given how far its clock is ahead."""
    known = parse(node.get(META) or b"")
    assert known is not None
    return known.ready_ms / 1000 - (sim().clock.wall() + ahead)


# -- a node's step ---------------------------------------------------------------------------------------


@MODES
async def test_a_node_that_jumps_ahead_loses_its_vote(
    fencing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An hour ahead under a held lease: reported by event, log and statistics, its wait restarts, it has
    no vote for one quarantine; the lease goes on with the others, which give its key back (R9, R14).
    """
    async with watched(fencing=fencing) as (w, heard), w.manager.lock("a") as lease:
        w.nodes[1].step_clock(HOUR)
        assert w.holders("a")[1] is None, "the lock has ended there"
        stepped_at = sim().time()
        await asyncio.sleep(NOTICED)
        assert steps(heard) == [(w.nodes[1].name, 3600)]
        assert states(w) == [UP, OUT, UP]
        statistics = w.manager.statistics()
        assert (statistics.steps, statistics.quarantined) == (1, 1)
        assert statistics.nodes[1].clock == pytest.approx(HOUR, abs=0.05)
        assert ready_in(w.nodes[1], HOUR) == pytest.approx(WAIT - (sim().time() - stepped_at), abs=NOTICED)
        assert levels(caplog, "jumped ahead by 3") == [logging.ERROR]
        await asyncio.sleep(TTL)
        assert lease.held
        assert None not in w.holders("a"), "topped up, vote or not"
        assert states(w) == [UP, OUT, UP]

        await asyncio.sleep(WAIT - TTL + HEARTBEAT)
        assert states(w) == [UP] * 3
        assert lease.held
        assert len(steps(heard)) == 1


@pytest.mark.parametrize(
    ("fencing", "noticed"),
    [(True, 0.0), (True, NOTICED), (False, NOTICED)],  # the plain SET answers without the node's time
    ids=["fenced, between two heartbeats", "fenced, noticed", "plain, noticed"],
)
async def test_there_is_no_second_holder_while_a_majority_is_right(fencing: bool, noticed: float) -> None:
    """A lock is held on two of three, and one of these jumps a minute ahead: a client that asks then gets
    a vote there that does not count (R14).
    """
    options = {"fencing": fencing, "restart_quarantine": QUARANTINE}
    async with watched(fencing=fencing) as (w, _), w.process(**options) as other:
        w.occupy("a", 0.01, 2)
        lease = await other.lock("a", extension=PLAIN).acquire()
        await asyncio.sleep(0.1)
        w.nodes[0].step_clock(MINUTE)
        assert [value is None for value in w.holders("a")] == [True, False, True]
        await asyncio.sleep(noticed)
        asked = [count(node, "acquire") for node in w.nodes]
        end = await in_task(w.manager.lock("a", blocking_timeout=0).acquire)
        assert type(end.error) is (LockTakenError if noticed else QuorumUnavailableError)
        assert lease.held
        asked_now = [count(node, "acquire") - before for node, before in zip(w.nodes, asked, strict=True)]
        assert asked_now == [0 if noticed else 1, 1, 1]
        await asyncio.sleep(3 * LATENCY)
        assert [value is None for value in w.holders("a")] == [True, False, True], "undone"
        await lease.release()


@pytest.mark.parametrize("step", [MINUTE, 1.0], ids=["far", "less than a ttl"])
@pytest.mark.parametrize("counters", [None, (4, 2, 3)], ids=["they agree", "they are raised"])
async def test_a_grant_with_a_time_that_is_ahead_is_no_part_of_a_certificate(
    counters: tuple[float, ...] | None, step: float
) -> None:
    """Whether the fence takes one round or two, the node that has just jumped does not count (R10, R14)."""
    async with watched() as (w, _):
        if counters is not None:
            put(w, "a", *map(ago, counters))
        await cycle(w.manager.lock("a", blocking_timeout=0))
        w.nodes[2].freeze()
        w.nodes[0].step_clock(step)
        if counters is not None:
            put(w, "a", *map(ago, counters))
        end = await in_task(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(end.error, QuorumUnavailableError)
        assert w.manager.statistics().uncertified == 1
        w.nodes[2].thaw()
        async with w.manager.lock("a", blocking_timeout=0) as lease:
            assert sum(vote.vote is Vote.GRANTED for vote in lease.votes) >= 2


class Interrupted:
    """A coroutine before each of whose steps, but the first, something else is called."""

    def __init__(self, run: Awaitable[object], call: Callable[[], None]) -> None:
        self._run = run
        self._call = call

    def __await__(self) -> Generator[Any, Any, object]:
        """Go on step by step."""
        steps = self._run.__await__()
        while True:
            try:
                pause = next(steps)
            except StopIteration as stop:
                return stop.value
            yield pause
            self._call()


async def test_a_node_that_is_suspected_after_its_grant_is_no_part_of_a_certificate():
    """It may have been ahead when it granted: what all of a batch agreed on is looked at again (R10, R14)."""
    async with watched() as (w, _):
        session = w.manager._life.session
        assert session is not None
        w.nodes[2].freeze()

        def suspect() -> None:
            now = sim().clock.now()
            if any(attempt.round.verdict is Verdict.WON for attempt in session.in_flight):
                session.clocks.sample(0, now, now, sim().clock.wall() + MINUTE)

        task = in_task(lambda: Interrupted(w.manager.lock("a", blocking_timeout=0).acquire(), suspect))
        assert isinstance((await task).error, QuorumUnavailableError)
        assert w.manager.statistics().uncertified == 1


@pytest.mark.heavy
@pytest.mark.parametrize("frozen", [(), (2,)], ids=["all answer", "one does not"])
async def test_the_vote_is_not_back_before_the_restart(frozen: tuple[int, ...]) -> None:
    """From the suspicion until the quarantine is over, the node has no vote at any moment (R14)."""
    async with watched() as (w, heard):
        for index in frozen:
            w.nodes[index].freeze()
        w.nodes[1].step_clock(HOUR)
        deadline = sim().time() + NOTICED
        while states(w)[1] is UP:
            assert sim().time() < deadline, "it is not suspected"
            await asyncio.sleep(LATENCY / 4)
        suspected_at = sim().time()
        while sim().time() < suspected_at + PATIENCE + 2 * HEARTBEAT:
            assert states(w)[1] is OUT
            await asyncio.sleep(LATENCY / 4)
        assert len(steps(heard)) == 1
        assert ready_in(w.nodes[1], HOUR) > QUARANTINE - 2 * PATIENCE
        assert w.manager.statistics().quarantined == 1
        for index in frozen:
            w.nodes[index].thaw()


# -- what is none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "jumped"), [(3, 3), (3, 2), (5, 5), (5, 3), (4, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
async def test_when_half_of_the_nodes_jump_alike_our_own_clock_did(
    number: int, jumped: int, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the client distrusts itself: no quarantine restarts, all votes count, and it is said (R14)."""
    async with watched(number) as (w, heard):
        before = [node.get(META) for node in w.nodes]
        each(w.nodes[:jumped]).step_clock(seconds)
        await asyncio.sleep(NOTICED)
        assert steps(heard) == [(None, -seconds)]
        assert [node.get(META) for node in w.nodes] == before
        assert states(w) == [UP] * number
        assert w.manager.statistics().steps == 0
        assert levels(caplog, "this machine's clock") == [logging.WARNING]
        if jumped == number:
            await cycle(w.manager.lock("a", blocking_timeout=5))
