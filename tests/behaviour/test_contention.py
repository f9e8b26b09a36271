"""One name that several processes want: each gets its share, and waiters are notified (rule R13)."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE, no_key_left
from tests.faults.contention import contention
from tests.servers import Nodes, ask, eventually

PROCESSES: Final = 4
TASKS: Final = 5
TURNS: Final = 60  # how often each process has the lock before all are told to end

faults = pytest.mark.parametrize("fault", ["none", "one node frozen"])


def listeners(nodes: Nodes, name: str) -> list[int]:
    """Return how many connections listen for releases of a name, on each server."""
    return [ask(url, "PUBSUB", "NUMSUB", f"redlock:{name}")[1] for url in nodes.urls]


@pytest.mark.process
@faults
async def test_processes_share_a_hot_name(nodes5: LocalNodes, fault: str) -> None:
    """Four processes of five tasks that never pause exclude each other, and each has its share."""
    options = {"names": ["hot"] * TASKS, "inside": 0.001}
    async with contention(nodes5.urls, apart=[0.0] * PROCESSES, **options) as contenders:

        def shares() -> Counter[int]:
            return Counter(number for number, *_ in contenders.turns)

        async def all_had_it(times: int) -> None:
            each = range(PROCESSES)
            await eventually(lambda: all(shares()[i] >= times for i in each), within=PATIENCE, what="turns")

        await all_had_it(TURNS // 4)
        if fault != "none":
            nodes5.pause(2)
        await all_had_it(TURNS)
        contenders.stop()
        await contenders.ended()
        numbers = shares()
    nodes5.resume(2)
    assert min(numbers.values()) >= 0.25 * numbers.total() / PROCESSES, numbers
    assert contenders.handovers >= 2 * PROCESSES, "each process had its share in one piece"
    # A release that a frozen server did not acknowledge ends with it: its keys live as long as the ttl.
    await no_key_left(nodes5.urls if fault == "none" else nodes5.urls[:2] + nodes5.urls[3:])
    await eventually(lambda: listeners(nodes5, "hot") == [0] * 5, what="no listener is left")
