"""Many readers and a few writers of one file, each a process that comes again at once, over five servers.

A file is never read half-written, none starves, and fences tell which writes a reader has seen: while a node
is frozen, another is killed and comes back empty, and a reader is killed inside.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE, PATIENCE, Worker, boot_time, python
from tests.faults.sharer import Turn, fill, read
from tests.servers import eventually

SHARER: Final = Path(__file__).with_name("sharer.py")

READERS: Final = 20
WRITERS: Final = 4
SECONDS: Final = 6.0  # for so long they are at it, at least

# Seconds; of the reader that is killed. The others live long, so that a busy machine loses no lease.
VICTIM_TTL: Final = 1.0

SOME: Final = 15  # writes after which a fault has had its effect

READER_WAITS: Final = 60
# Writes of others for which a reader, and a writer, waits at most. Without turns it would be all of them.
# Where a write takes 40 ms, a reader that waits for a second would wait for 25, a writer that waits for three
# seconds for 75; of four writers that draw for each turn one waits for 75 in one of 10**9 cases.
WRITER_WAITS: Final = 150


@contextlib.asynccontextmanager
async def sharers(
    urls: Sequence[str], path: Path, *modes: str, stays: bool = False, **options: float
) -> AsyncIterator[list[Worker]]:
    """Start a process for each mode; none has begun yet."""
    orders = {"urls": list(urls), "path": str(path), "stays": stays, "options": options}
    async with contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                python(str(SHARER), json.dumps(orders | {"mode": mode}), development=False)
            )
            for mode in modes
        ]
        for worker in workers:
            await worker.said("ready")
        yield workers


async def turns_of(workers: Sequence[Worker]) -> list[list[Turn]]:
    """Tell processes to end, and return what each has recorded."""
    for worker in workers:
        worker.process.terminate()
    found = []
    for worker in workers:
        out, errors = await worker.ended()
        assert worker.process.returncode == 0, errors
        found.append([Turn(*turn) for turn in json.loads(out)])
    return found


# -- what must be true of the turns --------------------------------------------------------------------


def check_exclusion(turns: Sequence[Turn]) -> None:
    """Fail if anything is inside together with a writer."""
    left = {"read": 0.0, "write": 0.0}  # when the last one of each has left
    for turn in sorted(turns, key=lambda turn: turn.start):
        assert turn.start >= left["write"], turn
        assert turn.mode == "read" or turn.start >= left["read"], turn
        left[turn.mode] = max(left[turn.mode], turn.end)


def check_fences(turns: Sequence[Turn]) -> None:
    """Fail unless a fence says which writes came before: in the order of writers', and for each reader's."""
    written = sorted((turn.fence, turn.number) for turn in turns if turn.mode == "write")
    assert [number for _, number in written] == list(range(1, len(written) + 1)), "one write is one more"
    fences = [fence for fence, _ in written]
    assert len(set(fences)) == len(fences)
    for turn in turns:
        if turn.mode == "read":
            assert bisect.bisect(fences, turn.fence) == turn.number, turn
            assert turn.fence not in fences


def waited(turns: Sequence[Turn], mode: str) -> list[int]:
    """Return for how many writers each turn of a mode has waited that came after it had asked."""
    starts = sorted(turn.start for turn in turns if turn.mode == "write")
    return [
        bisect.bisect_left(starts, turn.start) - bisect.bisect_right(starts, turn.asked)
        for turn in turns
        if turn.mode == mode
    ]


# -- the story -----------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
async def test_readers_and_writers_of_a_file(nodes5: LocalNodes, tmp_path: Path) -> None:
    """Twenty readers and four writers share it while nodes fail one after the other, and a reader dies."""
    path = tmp_path / "catalogue"
    fill(str(path))

    async def writes(number: int) -> None:
        goal = read(str(path))[1] + number
        await eventually(lambda: read(str(path))[1] >= goal, within=PATIENCE, what=f"{number} more writes")

    modes = ["read"] * READERS + ["write"] * WRITERS
    async with (
        sharers(nodes5.urls, path, *modes, ttl=10.0) as workers,
        sharers(nodes5.urls, path, "read", stays=True, ttl=VICTIM_TTL) as (victim,),
    ):
        began = time.monotonic()
        for worker in workers:
            worker.go()
        await writes(SOME)

        nodes5.pause(0)
        await writes(SOME)
        nodes5.resume(0)

        victim.go()
        await victim.said("inside")
        victim.process.kill()
        killed = boot_time()
        await writes(SOME)

        nodes5.kill(1)
        await writes(SOME)
        await nodes5.restart(1)
        await writes(SOME)
        await eventually(lambda: time.monotonic() - began > SECONDS, what="they have been at it for long")
        of_each = await turns_of(workers)

    assert all(of_each), "each has had a turn"
    turns = [turn for each in of_each for turn in each]
    check_exclusion(turns)
    check_fences(turns)
    reads, writes_ = waited(turns, "read"), waited(turns, "write")
    longest = {mode: max(turn.start - turn.asked for turn in turns if turn.mode == mode) for mode in modes}
    print(
        f"{len(reads)} reads, longest wait {longest['read']:.3f} s or {max(reads)} writes; "
        f"{len(writes_)} writes, longest wait {longest['write']:.3f} s or {max(writes_)} writes of others"
    )
    assert max(reads) <= READER_WAITS
    assert max(writes_) <= WRITER_WAITS
    next_write = min(turn.start for turn in turns if turn.mode == "write" and turn.start > killed)
    assert next_write - killed <= VICTIM_TTL + ALLOWANCE
