"""Many readers and a few writers of one file, each a process that comes again at once, over five servers.

A file is never read half-written, none starves, and fences tell which writes a reader has seen: while a node
is frozen, another is killed and comes back empty, and a reader is killed inside.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, PATIENCE, boot_time
from tests.faults.claims import Claim
from tests.faults.contender import DIGITS
from tests.faults.contention import contention
from tests.servers import eventually

READERS: Final = 20
WRITERS: Final = 4
SECONDS: Final = 6.0  # for so long they are at it, at least
SOME: Final = 15  # writes after which a fault has had its effect

# Seconds; of the reader that is killed.  The others live long, so that a busy machine loses no lease.
VICTIM_TTL: Final = 1.0

# Writes of others for which a reader, and a writer, waits at most.  Without turns it would be all of them.
# Where a write takes 40 ms, a reader that waits for a second would wait for 25, a writer that waits for three
# seconds for 75; of four writers that draw for each turn one waits for 75 in one of 10**9 cases.
MOST_WAITED: Final = {"read": 60, "write": 150}


def check_fences(turns: Sequence[Claim]) -> None:
    """Fail unless a fence says which writes came before: in the order of writers', and for each reader's."""
    written = sorted((turn.fence, turn.number) for turn in turns if turn.mode == "write")
    assert [number for _, number in written] == list(range(1, len(written) + 1)), "one write is one more"
    fences = [fence for fence, _ in written]
    for turn in turns:
        if turn.mode == "read":
            assert bisect.bisect(fences, turn.fence) == turn.number, turn
            assert turn.fence not in fences


def waited(turns: Sequence[Claim], mode: str) -> int:
    """Return for how many writers a turn of a mode has waited at most that came after it had asked."""
    starts = sorted(turn.start for turn in turns if turn.mode == "write")
    return max(
        bisect.bisect_left(starts, turn.start) - bisect.bisect_right(starts, turn.asked)
        for turn in turns
        if turn.mode == mode
    )


@pytest.mark.timeout(300)
async def test_readers_and_writers_of_a_file(nodes5: LocalNodes, tmp_path: Path) -> None:
    """Twenty readers and four writers share it while nodes fail one after the other, and a reader dies."""
    urls, path = nodes5.urls, tmp_path / "catalogue"
    path.write_text("0" * DIGITS * 2, encoding="ascii")

    def written() -> int:
        return int(path.read_text(encoding="ascii")[DIGITS:])

    async def writes(number: int) -> None:
        goal = written() + number
        await eventually(lambda: written() >= goal, within=PATIENCE, what=f"{number} more writes")

    kinds = ["read"] * READERS + ["write"] * WRITERS
    options = {"names": ["file"], "inside": 0.006, "idle": 0.003}
    began = time.monotonic()
    async with contention(urls, kinds=kinds, path=path, ttl=10.0, **options) as contenders:
        await writes(SOME)
        nodes5.pause(0)
        await writes(SOME)
        nodes5.resume(0)

        async with contention(urls, kinds=["read"], stays=True, ttl=VICTIM_TTL, **options) as dying:
            (victim,) = dying.workers
            await victim.said("inside")
            victim.process.kill()
            killed = boot_time()
            await writes(SOME)

        nodes5.kill(1)
        await writes(SOME)
        await nodes5.restart(1)
        await writes(SOME)
        await eventually(lambda: time.monotonic() - began > SECONDS, what="they have been at it for long")
        contenders.stop()
        await contenders.ended()
        assert {number for number, *_ in contenders.turns} == set(range(len(kinds))), "each has had a turn"

    turns = contenders.claims["file"]
    check_fences(turns)
    longest = {mode: waited(turns, mode) for mode in MOST_WAITED}
    print(f"{len(turns)} turns, the longest wait was for {longest} writes")
    assert all(longest[mode] <= most for mode, most in MOST_WAITED.items())
    next_write = min(turn.start for turn in turns if turn.mode == "write" and turn.start > killed)
    assert next_write - killed <= VICTIM_TTL + ALLOWANCE
