"""Processes that share a semaphore over five servers, while nodes fail and a holder dies (R24 to R26)."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Final

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, PATIENCE, boot_time, python
from tests.faults.permit_holder import NAME
from tests.servers import eventually

HOLDER: Final = str(Path(__file__).with_name("permit_holder.py"))
PROCESSES: Final = 4
TASKS: Final = 3
PERMITS: Final = 3
SOME: Final = 100  # turns after which a fault has had its effect
# Seconds; of the holder that is killed. The others live long, so that a busy machine loses no lease.
VICTIM_TTL: Final = 1.0


@pytest.mark.timeout(120)
async def test_never_more_hold_it_than_may(nodes5: LocalNodes, tmp_path: Path) -> None:
    """Twelve tasks of four processes, three permits: slots are never shared, and fences grow in each."""
    orders: dict[str, Any] = {
        "urls": nodes5.urls, "folder": str(tmp_path), "permits": PERMITS, "tasks": TASKS, "stays": False,
        "ttl": 10.0,
    }  # fmt: skip
    (record := tmp_path / "turns").touch()

    async def more() -> None:
        goal = record.stat().st_size + SOME
        await eventually(lambda: record.stat().st_size >= goal, within=PATIENCE, what=f"{SOME} more turns")

    async with contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(python(HOLDER, json.dumps(orders), development=False))
            for _ in range(PROCESSES)
        ]
        await more()
        nodes5.pause(0)
        await more()
        nodes5.resume(0)
        nodes5.kill(1)
        await more()
        await nodes5.restart(1)
        await more()
        for worker in workers:
            worker.process.terminate()
        of_each = []
        for worker in workers:
            out, errors = await worker.ended()
            assert worker.process.returncode == 0, errors
            of_each.append([tuple(turn) for turn in json.loads(out)])
    assert all(of_each), "each has had a turn"
    turns = sorted((turn for each in of_each for turn in each), key=lambda turn: turn[2])
    assert {slot for slot, *_ in turns} == set(range(PERMITS))
    left: dict[int, tuple[float, int]] = {}
    for slot, fence, start, end in turns:
        before, earlier = left.get(slot, (0.0, 0))
        assert start >= before, "two in one slot"
        assert fence > earlier
        left[slot] = end, fence


@pytest.mark.timeout(60)
async def test_a_holder_that_is_killed_leaves_its_permit(nodes5: LocalNodes, tmp_path: Path) -> None:
    """When its ttl has passed, and no other one is missing (R26)."""
    orders = {
        "urls": nodes5.urls, "folder": str(tmp_path), "permits": 2, "tasks": 1, "stays": True,
        "ttl": VICTIM_TTL,
    }  # fmt: skip
    async with LockManager(nodes5.urls) as manager, python(HOLDER, json.dumps(orders)) as victim:
        await victim.said("inside")
        pool = manager.semaphore(NAME, permits=2)
        async with pool:
            assert await pool.try_acquire() is None
            victim.process.kill()
            killed = boot_time()
            async with pool as lease:
                assert boot_time() - killed <= VICTIM_TTL + ALLOWANCE
                assert lease.slot in (0, 1)
        assert not any(node.held for node in await manager.inspect(NAME))
