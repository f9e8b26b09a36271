"""SimLoop: virtual time, the same order every time, a hang is an error."""

from __future__ import annotations

import asyncio
import contextlib
import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioredlock_ng.testing import sim_loop
from aioredlock_ng.testing.sim_loop import DeadlockError, SimLoop
from tests.unit.tasks import sim


@pytest.fixture(params=[False, True], ids=["plain", "debug"])
def debug(request: pytest.FixtureRequest) -> bool:
    """Whether asyncio's debug mode is on."""
    return bool(request.param)


def loop_now() -> float:
    """Return the running loop's time."""
    return asyncio.get_running_loop().time()


def test_a_day_of_sleep_takes_no_time(debug: bool) -> None:
    """Time jumps to the next timer when nothing is ready, and lands exactly on it; turns take none.

    The body's own exception leaves run() unchanged, and a runner may run again on one time line.
    """

    async def main(seconds: float, turns: int) -> float:
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.sleep(seconds)
        if not turns:
            raise LookupError("mine")
        return loop_now()

    with asyncio.Runner(loop_factory=SimLoop, debug=debug) as runner:
        assert runner.run(main(86_400, 1000)) == sim_loop.START + 86_400 == 87_400.0
        with pytest.raises(LookupError, match="mine"):
            runner.run(main(1, 0))
        assert runner.run(main(0, 1)) == 87_401.0


def test_equal_deadlines_run_in_the_order_they_were_made(debug: bool) -> None:
    """A thousand timers for one instant are first come, first served, cancelled ones left out."""

    async def main() -> list[int]:
        order: list[int] = []
        timers = [SimLoop.running().call_at(1001.0, order.append, number) for number in range(1000)]
        for timer in timers[::3]:
            timer.cancel()
        await asyncio.sleep(2)
        return order

    assert SimLoop.run(main(), debug=debug) == [number for number in range(1000) if number % 3]


async def test_a_stalled_loop_runs_its_timers_late_and_in_order() -> None:
    """advance() makes time pass inside a callback, as blocking code does."""
    seen: list[tuple[str, float]] = []
    sim().call_later(2, lambda: seen.append(("second", loop_now())))
    sim().call_later(1, lambda: seen.append(("first", loop_now())))
    sim().advance(3)
    await asyncio.sleep(1)
    assert seen == [("first", 1003.0), ("second", 1003.0)]


async def test_suspend_passes_on_the_clock_but_not_for_timers() -> None:
    """A suspended machine: the suspend-safe clock goes on, the loop's timers stand still (R2)."""
    assert sim().clock.now() == loop_now()
    sim().suspend(60)
    assert (loop_now(), sim().clock.now()) == (1000.0, 1060.0)
    await asyncio.sleep(1)
    assert (loop_now(), sim().clock.now()) == (1001.0, 1061.0)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_time_passes_forwards(seconds: float) -> None:
    """A step back, for ever or by no number is refused, with the value in the message."""
    with contextlib.closing(SimLoop()) as loop:
        for use in (loop.advance, loop.suspend):
            with pytest.raises(ValueError, match=repr(seconds)):
                use(seconds)


def test_a_deadlock_names_the_waiting_tasks(debug: bool) -> None:
    """Two tasks that wait for each other end the run at once, both named."""

    async def main() -> None:
        never = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(never.wait(), name="left")
            group.create_task(never.wait(), name="right")

    with pytest.raises(DeadlockError, match=r"3 pending tasks:(?s:.*)'left'(?s:.*)'right'"):
        SimLoop.run(main(), debug=debug)


async def test_what_runs_on_real_time_is_refused() -> None:
    """Threads, connections, and a call from another thread, which would bring its own timing; finalisers make
    such calls in the loop's thread.
    """
    with pytest.raises(RuntimeError, match="SimLoop has no threads"):
        await asyncio.to_thread(print)
    with pytest.raises(RuntimeError, match="SimLoop has no network"):
        await asyncio.open_connection("127.0.0.1", 6379)
    called, loop = asyncio.Event(), sim()
    loop.call_soon_threadsafe(called.set)
    await called.wait()
    with ThreadPoolExecutor(1) as thread:
        error = thread.submit(loop.call_soon_threadsafe, called.set).exception()
    assert isinstance(error, RuntimeError)
    assert "one thread" in str(error)


def test_the_running_loop_can_be_asked_for() -> None:
    """In coroutines and callbacks; where none runs, or one on real time, the error says what to do."""

    async def main() -> SimLoop:
        called = SimLoop.running().create_future()
        SimLoop.running().call_later(1, lambda: called.set_result(SimLoop.running()))
        assert await called is SimLoop.running()
        return SimLoop.running()

    async def on_real_time() -> None:
        SimLoop.running()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(main()) is runner.get_loop()
    with pytest.raises(RuntimeError, match=r"no SimLoop runs here, but <.*: .*SimLoop\.run"):
        asyncio.run(on_real_time())
    with pytest.raises(RuntimeError, match=r"no SimLoop runs here, but no loop: .*SimLoop\.run"):
        SimLoop.running()
