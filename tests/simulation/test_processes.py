"""Several processes on one virtual time: their clocks, what stops them, and whose turn it is."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator

import pytest

from aioredlock_ng.testing.sim_loop import EPOCH, START
from tests.simulation import processes
from tests.simulation.processes import Process, Timeline


class Machines:
    """A timeline and its processes, which write down what they do."""

    def __init__(self, seed: int = 1) -> None:
        self.timeline = Timeline()
        self.all: list[Process] = []
        self.seen: list[tuple[str, float]] = []
        """The things that were done, and their true times."""
        self._order = random.Random(seed)

    def process(self, *, rate: float = 1.0, wall_offset: float = 0.0) -> Process:
        """Start one more."""
        self.all.append(Process(self.timeline, rate=rate, wall_offset=wall_offset))
        return self.all[-1]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        processes.run(self.timeline, self.all, self._order, until=self.timeline.now + seconds)

    def at(self, seconds: float, callback: Callable[..., object], *args: object) -> None:
        """Let something happen outside, at a time since the beginning."""
        self.timeline.call_at(START + seconds, callback, *args)

    def note(self, what: str) -> None:
        """Write down."""
        self.seen.append((what, round(self.timeline.now - START, 6)))

    async def ticks(self, name: str, count: int, every: float = 1.0) -> None:
        """Note something from time to time."""
        for _ in range(count):
            await asyncio.sleep(every)
            self.note(name)

    def close(self) -> None:
        """End all loops."""
        for process in self.all:
            tasks = asyncio.all_tasks(process.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                process.loop.run_until_complete(asyncio.wait(tasks))
            process.loop.close()


@pytest.fixture
def machines() -> Iterator[Machines]:
    """Machines that are cleared away."""
    machines = Machines()
    yield machines
    machines.close()


# -- stop, suspend, kill ---------------------------------------------------------------------------


def test_timers_stand_still_while_a_machine_is_suspended(machines: Machines) -> None:
    """But not the suspend-safe clock (R2): three seconds of sleep take that much longer in true time."""
    process = machines.process(rate=2.0)
    sleeper = process.spawn(machines.ticks("tick", 2, every=4.0))
    machines.at(1.0, process.suspend, START + 11.0)
    machines.run(100)
    assert sleeper.done()
    assert machines.seen == [("tick", 12.0), ("tick", 14.0)]
    assert process.loop.time() == START + 8
    assert process.now() == START + 28
    assert process.wall() == EPOCH + START + 28
    assert process.loop.suspended == 20.0


def test_a_killed_process_does_nothing_any_more(machines: Machines) -> None:
    """No code of its runs, neither for timers nor for messages; the others go on."""
    victim, other = machines.process(), machines.process()
    victim.spawn(machines.ticks("victim", 5))
    other.spawn(machines.ticks("other", 3))
    machines.at(1.5, victim.kill)
    machines.at(2.0, machines.timeline.hand, victim.loop, machines.note, "message")
    machines.run(10)
    assert sorted(machines.seen) == [("other", 1.0), ("other", 2.0), ("other", 3.0), ("victim", 1.0)]
    assert victim.next == math.inf


# -- order -----------------------------------------------------------------------------------------


def orders(seed: int, *, with_event: bool) -> list[list[str]]:
    """Return in which order things due at once happened, for several instants of one run."""
    machines = Machines(seed)
    for name in "abc":
        machines.process().spawn(machines.ticks(name, 20))
    for second in range(1, 21):
        if with_event:
            machines.at(second, machines.note, "event")
    machines.run(30)
    machines.close()
    return [[what for what, at in machines.seen if at == second] for second in range(1, 21)]


@pytest.mark.parametrize("with_event", [False, True])
def test_the_first_of_those_due_at_once_is_drawn(with_event: bool) -> None:
    """Processes among themselves, and with what happens outside: each is first now and then, and last.

    The seed decides which.
    """
    names = {*"abc", *(["event"] if with_event else [])}
    seen = orders(1, with_event=with_event)
    assert all(sorted(one) == sorted(names) for one in seen)
    assert {one[0] for one in seen} == {one[-1] for one in seen} == names
    assert seen == orders(1, with_event=with_event) != orders(2, with_event=with_event)
