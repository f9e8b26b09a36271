"""Several processes on one virtual time: each has an event loop and clocks of its own.

The loops take their turns side by side, in an order that is drawn.  Between them is what belongs to none:
messages on their way, and what happens at the nodes.  A process can be stopped, suspended or killed, its
clocks go at a rate of their own, and its time of day can be set.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVarTuple, final

from aioredlock_ng.testing import DeadlockError, SimLoop
from aioredlock_ng.testing._memory_connection import Network
from aioredlock_ng.testing.sim_loop import EPOCH, START

_Ts = TypeVarTuple("_Ts")

MAX_STEPS_AT_ONE_INSTANT: Final = 100_000
"""Steps without time passing, after which a busy wait is assumed."""


@final
class Timeline(Network):
    """The true time, and what is to happen outside of the processes."""

    def __init__(self) -> None:
        self.now = START
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = itertools.count()  # breaks ties: first made, first run
        self._identities = itertools.count(1)
        self.processes: dict[asyncio.AbstractEventLoop, Process] = {}
        self.touched: set[Process] = set()
        """Processes to which something has happened from outside: when they are due may have changed."""
        self._look: Callable[[], object] | None = None
        self._every = self._look_at = math.inf

    def new_identity(self) -> str:
        """Return what no server process of this run has been called yet."""
        return f"{next(self._identities):040x}"

    def time(self) -> float:
        """Return the true time."""
        return self.now

    clock = time

    def call_at(self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._events, (when, next(self._numbers), callback, args))

    def hand(self, loop: asyncio.AbstractEventLoop, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Let something happen in the next turn of a process's loop, unless that has ended."""
        if not loop.is_closed():
            loop.call_soon(callback, *args)
            self.touched.add(self.processes[loop])

    def watch(self, look: Callable[[], object], *, every: float) -> None:
        """Have an observer look on from time to time; that is no event, and changes no order."""
        self._look, self._every, self._look_at = look, every, self.now + every

    def pass_to(self, now: float) -> None:
        """Let time pass in which nothing happens."""
        while self._look_at <= now and self._look is not None:
            self.now = self._look_at
            self._look_at += self._every
            self._look()
        self.now = now

    @property
    def next(self) -> float:
        """When the next event is due."""
        return self._events[0][0] if self._events else math.inf

    def step(self) -> None:
        """Let the next event happen."""
        _, _, callback, args = heapq.heappop(self._events)
        callback(*args)


class ProcessLoop(SimLoop):
    """An event loop that runs beside others."""

    _run_once: Callable[[], None]  # of BaseEventLoop: takes one turn

    @property
    def next_turn(self) -> float:
        """When there is something to do, by the loop's time; infinity when nothing can happen by itself."""
        if self._ready:
            return self.time()
        self._virtual._drop_cancelled()
        return self._virtual._timers[0][0] if self._virtual._timers else math.inf

    def run_ready(self, now: float) -> None:
        """Run all that is due at the time `now`."""
        if now > self.time():
            self._virtual.now, self._virtual._turns = now, 0
        if self.next_turn > self.time():
            return
        asyncio._set_running_loop(self)
        try:
            self._run_once()
            while self._ready:
                self._run_once()
        finally:
            asyncio._set_running_loop(None)


@final
class Process:
    """One process: a loop that takes its turns when the machine lets it.

    Args:
        timeline: the true time.
        rate: how fast its clocks go.
        wall_offset: seconds that its time of day is ahead.
    """

    def __init__(self, timeline: Timeline, *, rate: float = 1.0, wall_offset: float = 0.0) -> None:
        self._timeline = timeline
        self.loop = ProcessLoop()
        self.rate = rate
        self.wall_offset = wall_offset
        self._lag = 0.0  # of the loop's time behind the true one, at the rate 1: time spent suspended
        self.stopped_until = self._suspended_until = -math.inf
        self.went_on_at = -math.inf
        """When it last went on, or will, after standing still."""
        self.killed_at: float | None = None
        timeline.processes[self.loop] = self
        timeline.touched.add(self)

    # -- clocks, as seen from inside -----------------------------------------------------------

    def local(self, true: float) -> float:
        """Return the loop's time at a true time."""
        return START + (true - START - self._lag) * self.rate

    def true(self, local: float) -> float:
        """Return the true time at a time of the loop."""
        return START + (local - START) / self.rate + self._lag

    def now(self) -> float:
        """Return the suspend-safe time, as `Clock` wants it."""
        return self.loop.time() + self.loop.suspended

    def wall(self) -> float:
        """Return the time of day."""
        return EPOCH + self.now() + self.wall_offset

    def true_of(self, moment: float) -> float:
        """Return the true time at which its suspend-safe clock shows, or showed, `moment`."""
        return START + (moment - START) / self.rate

    # -- what happens to it --------------------------------------------------------------------

    def stop(self, until: float) -> None:
        """Let it take no turn before a true time (SIGSTOP, SIGCONT); its clocks go on."""
        self.stopped_until = self.went_on_at = max(self.stopped_until, until)
        self._timeline.touched.add(self)

    def go_on(self) -> None:
        """Let it run again, if it is stopped; one whose machine is suspended has to wait for that."""
        if self.stopped_until > self._timeline.now:
            self.went_on_at = max(self._timeline.now, self._suspended_until)
        self.stopped_until = self._suspended_until
        self._timeline.touched.add(self)

    def suspend(self, until: float) -> None:
        """Let it stand still like a machine that is suspended: its timers, too, but not its clock."""
        seconds = until - max(self._timeline.now, self.stopped_until)
        if seconds <= 0:
            return  # it stands still anyway
        self.stop(until)
        self._suspended_until = until
        self._lag += seconds
        self.loop.suspended += seconds * self.rate

    def kill(self) -> None:
        """End it at once (SIGKILL); none of its code runs any more."""
        if self.alive:
            self.killed_at = self._timeline.now
        self._timeline.touched.add(self)

    @property
    def alive(self) -> bool:
        """Whether it has not been killed."""
        return self.killed_at is None

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task in it."""
        return self.loop.create_task(coroutine)

    @property
    def next(self) -> float:
        """When it has something to do and is let."""
        if not self.alive:
            return math.inf
        due = self.loop.next_turn
        return max(self.true(due), self.stopped_until, self._timeline.now) if due < math.inf else math.inf

    def step(self) -> None:
        """Run all that is due."""
        try:
            self.loop.run_ready(max(self.local(self._timeline.now), self.loop.next_turn))
        except DeadlockError as error:
            raise BusyWaitError(str(error)) from error


class BusyWaitError(RuntimeError):
    """Time does not pass any more."""


def run(timeline: Timeline, processes: list[Process], order: random.Random, *, until: float) -> None:
    """Let everything happen that is due before `until`; `order` draws which is first of those due at once."""
    steps = 0
    dues = {process: process.next for process in processes}
    while True:
        dues.update((process, process.next) for process in timeline.touched if process in dues)
        timeline.touched.clear()
        now = min((timeline.next, *dues.values()))
        if now >= until:
            timeline.pass_to(max(timeline.now, until))
            return
        if now > timeline.now:
            timeline.pass_to(now)
            steps = 0
        elif (steps := steps + 1) > MAX_STEPS_AT_ONE_INSTANT:
            raise BusyWaitError(f"no time passes after {now:.6f} s")
        ready = [process for process, due in dues.items() if due <= now]
        choices = len(ready) + (timeline.next <= now)
        chosen = order.randrange(choices) if choices > 1 else 0
        if chosen < len(ready):
            process = ready[chosen]
            process.step()
            dues[process] = process.next
        else:
            timeline.step()
