"""Clocks of real servers that jump (A1, R14).

A server ends keys by its time of day: set ahead, it frees a lock that is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from aioredlock_ng import LockManager, NodeState
from aioredlock_ng.events import ClockStepped
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, PATIENCE, Recorder, all_up, extended
from tests.faults.claims import Claim, check_claims
from tests.faults.clock_shim.node_clocks import ClockedNodes, compiled
from tests.faults.contention import contention, may_vote
from tests.faults.on_three import HOLDING, KEY, NAME, held_on_three
from tests.servers import ask, eventually

HOUR: Final = 3600.0

AT_ONCE: Final = 1.5  # seconds within which a step is noticed: two heartbeats, and the greeting that follows


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the shim, once."""
    return compiled(tmp_path_factory.mktemp("clock_shim"))


@pytest.fixture
def nodes(make_nodes: Callable[..., LocalNodes], shim: Path, tmp_path: Path) -> ClockedNodes:
    """Give five servers with clocks of their own."""
    return ClockedNodes(make_nodes, 5, shim, tmp_path)


def steps(recorder: Recorder) -> list[ClockStepped]:
    """Return the steps that were reported."""
    return [event for event in recorder.events if isinstance(event, ClockStepped)]


def states(manager: LockManager) -> list[NodeState]:
    """Return where each node stands."""
    return [node.state for node in manager.statistics().nodes]


async def reported(recorder: Recorder, number: int) -> list[ClockStepped]:
    """Wait until `number` steps have been reported."""
    await eventually(
        lambda: len(steps(recorder)) >= number, within=AT_ONCE + ALLOWANCE, what="the step is reported"
    )
    return steps(recorder)


async def test_a_step_ahead_under_a_held_lock(nodes: ClockedNodes, caplog: pytest.LogCaptureFixture) -> None:
    """It is reported, its vote is dropped, the lease lives on, and no other client is let in."""
    stepped, seconds, recorder = (0, 3), 30.0, Recorder()
    options: dict[str, Any] = {"ttl": 2.0, "restart_quarantine": 2.0}
    async with LockManager(nodes.urls, hooks=[recorder], **options) as a:
        await all_up(a)
        asked = time.monotonic()
        async with (
            contention(nodes.urls, apart=(0.0, 0.0), names=[NAME], idle=0.01, **options) as others,
            a.lock(NAME) as lease,
        ):
            held = Claim(time.monotonic(), 0.0, lease.fence, asked)
            # A contender may have had a node; then it takes an extension to top that up.
            await eventually(lambda: len({ask(url, "GET", KEY) for url in nodes.urls}) == 1, what="A has all")
            for i in stepped:
                nodes.step(i, seconds)
            events = await reported(recorder, len(stepped))

            quarantined = {i for i, state in enumerate(states(a)) if state is NodeState.QUARANTINED}
            assert quarantined == set(stepped)
            assert {event.node for event in events} == {a.statistics().nodes[i].name for i in stepped}
            assert all(seconds - ALLOWANCE < event.seconds < seconds + 0.01 for event in events)
            assert a.statistics().steps == len(stepped)
            assert sum("jumped ahead" in record.message for record in caplog.records) == len(stepped)
            await eventually(lambda: not any(may_vote(nodes.urls[i]) for i in stepped), what="they wait")

            await all_up(a)  # the quarantine is over
            await extended(lease, lease.extensions + 2)
            lease.check()
            held = held._replace(end=time.monotonic())
            await lease.release()
            others.stop()  # each of them has been waiting for the lock, and still takes it
            await others.ended(within=PATIENCE)

    assert any(claim.start > held.end for claim in others.claims[NAME])
    check_claims([*others.claims[NAME], held])


async def test_a_client_that_did_not_see_the_step_is_let_in_and_the_fence_knows(nodes: ClockedNodes) -> None:
    """The watch detects, it does not prevent: a client that is new has nothing to compare a clock with."""
    async with held_on_three(nodes.servers, ttl=12.0, restart_quarantine=0.0) as (by_a, _):
        nodes.step(HOLDING[0], 30.0)

        async with LockManager(nodes.urls, ttl=12.0, restart_quarantine=0.0) as c:
            by_c = await c.lock(NAME, blocking_timeout=PATIENCE).acquire()

            by_a.check()
            assert by_a.fence < by_c.fence


async def test_a_step_back(nodes: ClockedNodes, caplog: pytest.LogCaptureFixture) -> None:
    """It is reported and nothing else: keys there live longer, which cannot let another client in."""
    recorder = Recorder()
    async with LockManager(nodes.urls, ttl=2.0, restart_quarantine=2.0, hooks=[recorder]) as manager:
        await all_up(manager)
        async with manager.lock(NAME) as lease:
            nodes.step(1, -HOUR)
            (event,) = await reported(recorder, 1)
            await extended(lease, 2)

        assert -HOUR - 0.01 < event.seconds < -HOUR + ALLOWANCE
        assert event.node == manager.statistics().nodes[1].name
        assert manager.statistics().steps == 1
        assert manager.statistics().quarantined == 0
        assert states(manager) == [NodeState.UP] * 5
        assert "jumped back" in caplog.text
        async with manager.lock(NAME, blocking_timeout=PATIENCE) as later:
            assert lease.fence < later.fence
