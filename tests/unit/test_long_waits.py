"""A call that waits says once, after two seconds, why; many of them do not flood the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aioredlock_ng import LockTakenError
from aioredlock_ng._acquire.long_waits import LINES_WITHIN, LONG, MAX_LINES
from tests.unit.worlds import PLAIN, World, in_task, make, opened, sim, virtual, world

EPSILON = 0.05


class Waits(logging.Handler):
    """Keeps what is logged about waiting, with the moment by the virtual clock."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[float, logging.LogRecord]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        if "waiting for" in record.getMessage() or "acquires wait" in record.getMessage():
            self.said.append((sim().time(), record))

    @property
    def lines(self) -> list[str]:
        """What was said."""
        return [record.getMessage() for _, record in self.said]


@contextmanager
def waits() -> Iterator[Waits]:
    """Keep what is logged about waiting, from INFO on."""
    logger, handler = logging.getLogger("aioredlock_ng"), Waits()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


async def wait_in_vain(w: World, name: str = "a", *, seconds: float) -> None:
    """Wait for a lock that cannot be had."""
    end = await in_task(w.manager.lock(name, blocking_timeout=seconds).acquire)
    assert end.error is not None


def test_a_lock_of_another_process():
    """It is taken, and for how long unless it is extended, and once."""

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=2) as other, other.lock("a", extension=PLAIN, ttl=60):
            began = sim().time()
            await wait_in_vain(w, seconds=20)
            ((when, record),) = log.said
            assert when - began == pytest.approx(LONG, abs=EPSILON)
            assert record.levelno == logging.INFO
            assert record.__dict__["lock"] == "a"
            line = record.getMessage()
            assert line.startswith("still waiting for lock 'a' after 2.0 s: lock 'a' is held by ")
            assert line.endswith(" s unless it is extended")
            assert ", for 5" in line

    with waits() as log:
        virtual(main)()


def test_a_lock_of_this_process():
    """The task that waits behind others of its process is told of, the tasks behind it are not."""

    async def main() -> None:
        async with world() as w, w.manager.lock("a"):
            await asyncio.gather(*(wait_in_vain(w, seconds=10) for _ in range(50)))

    with waits() as log:
        virtual(main)()
    (line,) = log.lines
    assert "held by this process, for " in line


def test_no_quorum():
    """Too few nodes: which, and why; as a warning."""

    async def main() -> None:
        async with world() as w:
            for node in w.nodes[1:]:
                node.crash()
            await wait_in_vain(w, seconds=10)

    with waits() as log:
        virtual(main)()
    ((_, record),) = log.said
    assert record.levelno == logging.WARNING
    assert "1 of 3 nodes voted, 2 are needed [" in record.getMessage()
    assert record.getMessage().count("connection") >= 2
    assert "may vote in" not in record.getMessage()


def test_a_quarantine():
    """A restart quarantine: for how long yet, on each node and until a majority may vote."""

    async def main() -> None:
        async with world(restart_quarantine=60) as w:
            for node in w.nodes[1:]:
                node.crash()
                node.restart()
            await asyncio.sleep(5)
            left.append(w.manager.unavailable_for - LONG)
            await wait_in_vain(w, seconds=10)

    left: list[float] = []
    with waits() as log:
        virtual(main)()
    (line,) = log.lines
    assert line.count("restart quarantine: no vote for another") == 2
    said = float(line.rpartition("; a majority may vote in ")[2].removesuffix(" s"))
    assert said == pytest.approx(left[0], abs=0.2)


def test_short_waits_are_not_worth_a_line():
    """A call that ends within two seconds, won or not, is not told of; each longer wait is told anew."""

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=2) as other:
            for seconds in (1.5, 3, 1.5, 3):
                held = await other.lock("a").acquire()
                waiter = asyncio.create_task(w.manager.lock("a").acquire())
                await asyncio.sleep(seconds)
                await held.release()
                await (await waiter).release()
            held = await other.lock("a").acquire()
            await wait_in_vain(w, seconds=1.5)
            await held.release()

    with waits() as log:
        virtual(main)()
    assert len(log.lines) == 2


def test_the_line_of_one_lock_does_not_hide_another():
    """Locks that are waited for at the same time have a line each."""

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=2) as other, other.lock("a"), other.lock("b"):
            later = asyncio.create_task(wait_in_vain(w, "a", seconds=5))
            await asyncio.sleep(1)
            await wait_in_vain(w, "b", seconds=5)
            await later

    with waits() as log:
        virtual(main)()
    assert [line.split("'")[1] for line in log.lines] == ["a", "b"]
    assert log.said[1][0] - log.said[0][0] == pytest.approx(1, abs=EPSILON)


@pytest.mark.heavy
def test_a_flood_of_waiting_calls_is_no_flood_of_lines():
    """Of many locks that are waited for so many lines are logged in a minute, the last one with the count."""

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=2) as other:
            names = [str(number) for number in range(3 * MAX_LINES)]
            held = [await other.lock(name, ttl=60).acquire() for name in names]
            await asyncio.gather(*(wait_in_vain(w, name, seconds=5) for name in names))
            seen.append(len(log.lines))
            await asyncio.sleep(LINES_WITHIN)
            await wait_in_vain(w, "0", seconds=5)
            for lease in held:
                await lease.release()

    seen: list[int] = []
    with waits() as log:
        virtual(main)()
    assert seen == [MAX_LINES]
    assert f"{3 * MAX_LINES} acquires wait by now" in log.lines[MAX_LINES - 1]
    assert "'0'" in log.lines[MAX_LINES]
    assert len(log.lines) == MAX_LINES + 1


def test_all_calls_count_that_wait_then():
    """Those, too, that wait for a lock of which another call was told."""

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=2) as other:
            names = [str(number) for number in range(MAX_LINES + 4)]
            held = [await other.lock(name, ttl=60).acquire() for name in names]
            calls = [wait_in_vain(w, name, seconds=9) for name in names[:-8] for _ in range(2)]
            first = asyncio.gather(*calls)
            await asyncio.sleep(4)
            await asyncio.gather(*(wait_in_vain(w, name, seconds=4) for name in names[-8:]))
            await first
            for lease in held:
                await lease.release()

    with waits() as log:
        virtual(main)()
    assert f"{2 * (MAX_LINES - 4) + 8} acquires wait by now" in log.lines[MAX_LINES - 1]


@virtual
async def test_nothing_is_left_behind():
    """Whatever ends a wait, the manager forgets it; closing ends the timer."""
    async with world() as w:
        other = make(w.nodes, seed=2)
        async with other, other.lock("a"):
            long_waits = w.manager._life.session.long_waits
            cancelled = asyncio.create_task(w.manager.lock("a").acquire())
            behind = asyncio.create_task(w.manager.lock("a").acquire())
            won = asyncio.create_task(w.manager.lock("a", blocking_timeout=4).acquire())
            await asyncio.sleep(3)
            assert long_waits._told
            cancelled.cancel()
            behind.cancel()
            with pytest.raises(LockTakenError):
                await won
            assert not long_waits._waiting
            assert not long_waits._told
            late = in_task(w.manager.lock("a").acquire)
            await asyncio.sleep(0.1)
            assert long_waits._timer is not None
            await w.manager.aclose()
            await late
            assert long_waits._timer.cancelled()
            assert not long_waits._waiting
