"""The clock watch at work: a node whose clock jumps ahead ends locks early, and loses its vote (R14, A1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import replace
from typing import Any

import pytest

from aioredlock_ng import LockTakenError, NodeState, QuorumUnavailableError, Vote
from aioredlock_ng._core.clock_watch import PATIENCE
from aioredlock_ng._core.quarantine import parse
from aioredlock_ng._core.quorum import Verdict
from aioredlock_ng._core.validity import drift
from aioredlock_ng.events import ClockStepped
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import (
    LATENCY,
    PLAIN,
    PREFIX,
    TTL,
    World,
    ago,
    count,
    counter,
    in_task,
    put,
    sim,
    states,
    virtual,
    world,
)

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


class Listener:
    """A hook that notes jumps of clocks."""

    def __init__(self) -> None:
        self.heard: list[ClockStepped] = []

    def on_clock_stepped(self, event: ClockStepped) -> None:
        """Note it."""
        self.heard.append(event)


@contextlib.asynccontextmanager
async def watched(number: int = 3, **options: Any) -> AsyncIterator[tuple[World, Listener]]:
    """Open a world whose manager has seen enough of every clock, in the middle between two heartbeats."""
    listener = Listener()
    options.setdefault("restart_quarantine", QUARANTINE)
    async with world(number, hooks=[listener], **options) as w:
        await asyncio.sleep(2.5 * HEARTBEAT)
        yield w, listener


def ready_in(node: MemoryNode, ahead: float) -> float:
    """Return the seconds until a node may vote by its sentinel, given how far its clock is ahead."""
    known = parse(node.get(META) or b"")
    assert known is not None
    return known.ready_ms / 1000 - (sim().clock.wall() + ahead)


# -- a node's step ---------------------------------------------------------------------------------------


@MODES
@virtual
async def test_a_node_that_jumps_ahead_loses_its_vote(
    fencing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An hour ahead under a held lease: reported by event, log and statistics, its wait restarts, it has
    no vote for one quarantine; the lease goes on with the others, which give its key back (R9, R14).
    """
    async with watched(fencing=fencing) as (w, listener), w.manager.lock("a") as lease:
        w.nodes[1].step_clock(HOUR)
        assert w.holders("a")[1] is None, "the lock has ended there"
        stepped_at = sim().time()
        await asyncio.sleep(NOTICED)
        (event,) = listener.heard
        assert event.node == w.nodes[1].name
        assert event.seconds == pytest.approx(HOUR, abs=0.05)
        assert states(w) == [UP, OUT, UP]
        statistics = w.manager.statistics()
        assert (statistics.steps, statistics.quarantined) == (1, 1)
        assert statistics.nodes[1].clock == pytest.approx(HOUR, abs=0.05)
        assert ready_in(w.nodes[1], HOUR) == pytest.approx(WAIT - (sim().time() - stepped_at), abs=NOTICED)
        (said,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
        assert w.nodes[1].name in said
        assert "jumped ahead by 3" in said
        await asyncio.sleep(TTL)
        assert lease.held
        assert None not in w.holders("a"), "topped up, vote or not"
        assert states(w) == [UP, OUT, UP]

        await asyncio.sleep(WAIT - TTL + HEARTBEAT)
        assert states(w) == [UP] * 3
        assert lease.held
        assert len(listener.heard) == 1


@pytest.mark.parametrize(
    ("fencing", "noticed"),
    [
        (True, 0.0),
        (True, NOTICED),
        (False, NOTICED),
    ],  # the plain SET answers without the node's time
    ids=["fenced, between two heartbeats", "fenced, noticed", "plain, noticed"],
)
@virtual
async def test_there_is_no_second_holder_while_a_majority_is_right(fencing: bool, noticed: float) -> None:
    """A lock is held on two of three, and one of these jumps a minute ahead: a client that asks then gets
    a vote there that does not count (R14).
    """
    async with watched(fencing=fencing) as (w, _):
        options = {"fencing": fencing, "restart_quarantine": QUARANTINE}
        async with w.process(**options) as other:
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


@pytest.mark.parametrize("counters", [None, (4, 2, 3)], ids=["they agree", "they are raised"])
@virtual
async def test_a_grant_with_a_time_that_is_ahead_is_no_part_of_a_certificate(
    counters: tuple[float, ...] | None,
) -> None:
    """Whether the fence takes one round or two, the node that has just jumped does not count (R10, R14)."""
    async with watched() as (w, _):
        if counters is not None:
            put(w, "a", *map(ago, counters))
        async with w.manager.lock("a", blocking_timeout=0):
            pass
        w.nodes[2].freeze()
        w.nodes[0].step_clock(MINUTE)
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


@virtual
async def test_a_node_that_is_suspected_after_its_grant_is_no_part_of_a_certificate():
    """It may have been ahead when it granted: what all of a batch agreed on is looked at again (R10, R14)."""
    async with watched() as (w, _):
        session = w.manager._life.session
        assert session is not None
        w.nodes[2].freeze()

        def suspect() -> None:
            now = sim().clock.now()
            if any(attempt.asked.verdict is Verdict.WON for attempt in session.in_flight):
                session.clocks.sample(0, now, now, sim().clock.wall() + MINUTE)

        task = in_task(lambda: Interrupted(w.manager.lock("a", blocking_timeout=0).acquire(), suspect))
        assert isinstance((await task).error, QuorumUnavailableError)
        assert w.manager.statistics().uncertified == 1


@pytest.mark.heavy
@pytest.mark.parametrize("frozen", [(), (2,)], ids=["all answer", "one does not"])
@virtual
async def test_the_vote_is_not_back_before_the_restart(frozen: tuple[int, ...]) -> None:
    """From the suspicion until the quarantine is over, the node has no vote at any moment (R14)."""
    async with watched() as (w, listener):
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
        assert len(listener.heard) == 1
        assert ready_in(w.nodes[1], HOUR) > QUARANTINE - 2 * PATIENCE
        assert w.manager.statistics().quarantined == 1
        for index in frozen:
            w.nodes[index].thaw()


@virtual
async def test_two_clients_restart_a_quarantine_once() -> None:
    """Both see the jump and say so once; after that the sentinel stays as it is (R14)."""
    async with watched() as (w, _), w.process(restart_quarantine=QUARANTINE) as other:
        await asyncio.sleep(0.3 * HEARTBEAT)
        w.nodes[1].step_clock(HOUR)
        await asyncio.sleep(3 * HEARTBEAT)
        restarted = w.nodes[1].get(META)
        assert WAIT - 3 * HEARTBEAT <= ready_in(w.nodes[1], HOUR) <= WAIT
        await asyncio.sleep(10 * HEARTBEAT)
        assert w.nodes[1].get(META) == restarted
        assert (w.manager.statistics().steps, other.statistics().steps) == (1, 1)
        assert {manager.statistics().nodes[1].state for manager in (w.manager, other)} == {OUT}


def test_a_restart_that_was_overtaken_is_repeated() -> None:
    """`init` wrote a sentinel by which the node may vote, between the jump and the restart: that goes by
    that one then, and the vote is not back before the quarantine is over (R14).
    """

    class Initialiser:
        """Writes the sentinel anew as soon as the jump is noticed, before the restart is on its way."""

        node: MemoryNode

        def on_clock_stepped(self, event: ClockStepped) -> None:
            known = parse(self.node.get(META) or b"")
            assert known is not None
            self.node.set(META, bytes(replace(known, floor=known.floor + 1, ready_ms=0)))

    async def main() -> None:
        hook = Initialiser()
        async with world(hooks=[hook], restart_quarantine=QUARANTINE) as w:
            hook.node = w.nodes[1]
            await asyncio.sleep(2.5 * HEARTBEAT)
            w.nodes[1].step_clock(HOUR)
            await asyncio.sleep(NOTICED + HEARTBEAT)
            assert states(w) == [UP, OUT, UP]
            assert ready_in(w.nodes[1], HOUR) > QUARANTINE - 2 * NOTICED
            assert w.manager.statistics().quarantined == 1, "without a vote all the time"

    virtual(main)()


@virtual
async def test_a_jump_of_less_than_a_second_is_one(caplog: pytest.LogCaptureFixture) -> None:
    """What is more than the drift margin pays for ends locks before their time (R3, R14)."""
    async with watched() as (w, listener):
        w.nodes[1].step_clock(0.5)
        await asyncio.sleep(NOTICED)
        assert [round(event.seconds, 1) for event in listener.heard] == [0.5]
        assert states(w) == [UP, OUT, UP]
        (said,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
        assert "jumped ahead" in said


@virtual
async def test_a_second_jump_begins_a_second_quarantine() -> None:
    """What was seen of a clock before it jumped is no measure for the time after it (R14)."""
    async with watched() as (w, listener):
        w.nodes[1].step_clock(HOUR)
        await asyncio.sleep(WAIT + 2 * HEARTBEAT)
        assert states(w) == [UP] * 3
        w.nodes[1].step_clock(120)
        await asyncio.sleep(NOTICED)
        assert states(w) == [UP, OUT, UP]
        assert [round(event.seconds) for event in listener.heard] == [3600, 120]


@virtual
async def test_an_unreachable_node_does_not_hold_up_the_judgement() -> None:
    """It cannot say whether it saw the same jump: after some patience it is not asked for (R14)."""
    async with watched() as (w, listener):
        w.nodes[2].freeze()
        w.nodes[1].step_clock(HOUR)
        await asyncio.sleep(NOTICED)
        assert states(w)[1] is OUT, "a suspicion is enough to lose the vote"
        assert listener.heard == []
        await asyncio.sleep(PATIENCE)
        assert [event.node for event in listener.heard] == [w.nodes[1].name]
        await asyncio.sleep(HEARTBEAT)
        assert ready_in(w.nodes[1], HOUR) > QUARANTINE - 2 * PATIENCE
        w.nodes[2].thaw()


@pytest.mark.parametrize("back", ["before the restart", "after it"])
def test_a_clock_that_comes_back_makes_no_fence_fall(back: str) -> None:
    """A node's counter ended while its clock was ahead; by the time it votes again, its clock is right and so
    is no measure: the floor that came with the restart is (R11, R14).
    """

    class Setter:
        def __init__(self) -> None:
            self.set_back: Callable[[], None] | None = None

        def on_clock_stepped(self, event: ClockStepped) -> None:
            if event.seconds > 0 and self.set_back is not None:
                self.set_back()

    async def main() -> None:
        setter, short = Setter(), {"ttl": 1.0, "restart_quarantine": 1.0}
        async with world(hooks=[setter], **short) as w:
            await asyncio.sleep(2.5 * HEARTBEAT)
            put(w, "a", ago(-9.9), ago(-9.9), None)
            w.nodes[2].freeze()
            async with w.process(**short) as other, other.lock("a", blocking_timeout=5) as lease:
                first = lease.fence or 0
            w.nodes[2].disconnect()
            w.nodes[2].thaw()
            await asyncio.sleep(0.9)
            stepped = w.nodes[1]
            if back == "before the restart":
                setter.set_back = lambda: stepped.step_clock(-HOUR)
            stepped.step_clock(HOUR)
            assert stepped.get(counter("a")) is None
            await asyncio.sleep(NOTICED)
            if back == "after it":
                stepped.step_clock(-HOUR)
            await asyncio.sleep(4.0)
            assert states(w) == [UP] * 3
            w.nodes[0].crash()
            async with w.manager.lock("a", blocking_timeout=10) as lease:
                assert (lease.fence or 0) > first

    virtual(main)()


# -- what is none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "alike"), [(3, 3), (3, 2), (5, 5), (5, 3), (4, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
@virtual
async def test_when_half_of_the_nodes_jump_alike_our_own_clock_did(
    number: int, alike: int, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the client distrusts itself: no quarantine restarts, all votes count, and it is said (R14)."""
    async with watched(number) as (w, listener):
        before = [node.get(META) for node in w.nodes]
        for node in w.nodes[:alike]:
            node.step_clock(seconds)
        await asyncio.sleep(NOTICED)
        assert [event.node for event in listener.heard] == [None]
        assert listener.heard[0].seconds == pytest.approx(-seconds, abs=0.05)
        assert [node.get(META) for node in w.nodes] == before
        assert states(w) == [UP] * number
        assert w.manager.statistics().steps == 0
        assert [one.levelno for one in caplog.records if "alike" in one.getMessage()] == [logging.WARNING]
        if alike == number:
            async with w.manager.lock("a", blocking_timeout=5):
                pass


@virtual
async def test_two_of_five_that_jump_alike_are_two_that_jumped() -> None:
    """Fewer than half cannot be our own clock (R14)."""
    async with watched(5) as (w, listener):
        for node in w.nodes[:2]:
            node.step_clock(HOUR)
        await asyncio.sleep(NOTICED)
        assert states(w) == [OUT, OUT, UP, UP, UP]
        assert {event.node for event in listener.heard} == {node.name for node in w.nodes[:2]}
        async with w.manager.lock("a", blocking_timeout=0):
            pass


@virtual
async def test_a_jump_back_is_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """Keys live longer there: reported, and no vote is lost (R14)."""
    async with watched() as (w, listener), w.manager.lock("a", extension=PLAIN) as lease:
        before = w.nodes[1].get(META)
        w.nodes[1].step_clock(-HOUR)
        await asyncio.sleep(NOTICED)
        assert [(event.node, round(event.seconds)) for event in listener.heard] == [(w.nodes[1].name, -3600)]
        assert states(w) == [UP] * 3
        assert w.nodes[1].get(META) == before
        assert w.manager.statistics().steps == 1
        assert [one.levelno for one in caplog.records if "jumped back" in one.getMessage()] == [
            logging.WARNING
        ]
        assert lease.held


@MODES
@pytest.mark.parametrize("seconds", [0.9 * drift(TTL), -0.9 * drift(TTL)])
@virtual
async def test_what_the_drift_margin_pays_for_is_no_jump(seconds: float, fencing: bool) -> None:
    """A step that no holder's validity depends on is not reported (R3, R14)."""
    async with watched(fencing=fencing) as (w, listener):
        w.nodes[1].step_clock(seconds)
        await asyncio.sleep(5 * HEARTBEAT)
        assert listener.heard == []
        assert states(w) == [UP] * 3


@virtual
async def test_a_suspended_client_sees_no_jump() -> None:
    """Our clock goes on during suspend, as the nodes' do (R2)."""
    async with watched() as (w, listener):
        sim().suspend(HOUR)
        await asyncio.sleep(2 * HEARTBEAT)
        assert listener.heard == []
        assert states(w) == [UP] * 3


@virtual
async def test_another_server_is_measured_anew() -> None:
    """Where another server answers, with another clock, nothing has jumped; it has no vote anyway (R12)."""
    async with watched() as (w, listener):
        w.nodes[1].restart()
        w.nodes[1].step_clock(HOUR)
        await asyncio.sleep(3 * HEARTBEAT)
        assert listener.heard == []
        assert states(w) == [UP, OUT, UP]
        assert w.manager.statistics().nodes[1].clock == pytest.approx(HOUR, abs=0.05)


@virtual
async def test_without_sentinels_no_clock_is_watched() -> None:
    """The Redlock page's commands alone do not tell the time (R14)."""
    async with watched(fencing=False, restart_quarantine=0) as (w, listener):
        w.nodes[1].step_clock(HOUR)
        await asyncio.sleep(NOTICED)
        assert listener.heard == []
        assert [node.clock for node in w.manager.statistics().nodes] == [None] * 3
