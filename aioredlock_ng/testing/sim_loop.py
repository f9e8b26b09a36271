"""An asyncio event loop on virtual time.

``SimLoop`` runs ordinary asyncio code, timers included, without ever waiting: when no callback is
ready, the time jumps to the next timer. An hour of retries takes as long as its callbacks take.

What it gives a test:

- *Virtual time.* ``loop.time()`` starts at 1000.0 and moves only when nothing is ready, or by
  ``advance`` and ``suspend``.
- *The same order every time.* Timers with equal deadlines run in the order they were made (asyncio's
  own heap does not promise that), a timer never runs before its deadline, and sets of tasks, which
  task groups iterate when they cancel, have the same order in every run.
- *A hang is an error.* Tasks that wait for nothing that could ever happen end in ``DeadlockError``.

There is no real I/O, no thread, no signal and no child process here. Sets of strings iterate by
``PYTHONHASHSEED``: a program that depends on them is not made deterministic by this loop.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar, TypeVarTuple, final

if TYPE_CHECKING:
    from contextvars import Context

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

START: Final = 1000.0
"""Where virtual time starts, in seconds: not 0, so that a forgotten "no deadline" is not "now"."""

EPOCH: Final = 1_700_000_000.0
"""The time of day, in Unix seconds, when virtual time is 0."""

MAX_TURNS_AT_ONE_INSTANT: Final = 1_000_000
"""Turns of the loop without time passing, after which a busy wait is assumed."""

_TASKS_SHOWN: Final = 20
_COMPACT_ABOVE: Final = 256


@final
class DeadlockError(RuntimeError):
    """Nothing on the loop can ever happen again, or time stands still for ever.

    The message names the pending tasks and where each of them waits.
    """


@final
class SimClock:
    """The clock of a ``SimLoop``: its time plus the time spent suspended."""

    __slots__ = ("_loop",)

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Return the time in seconds, time spent suspended included."""
        return self._loop.time() + self._loop.suspended

    def wall(self) -> float:
        """Return the time of day in Unix seconds: the same in every run."""
        return EPOCH + self.now()

    def __repr__(self) -> str:
        return f"<SimClock {self.now():.6f}s>"


class _VirtualTime:
    """A stand-in for the selector, which is asked when the loop has nothing to do, and moves time."""

    def __init__(self, start: float) -> None:
        self.now = start
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()  # breaks ties: first made, first run
        self._compact_at = _COMPACT_ABOVE
        self._turns = 0

    def add(self, timer: asyncio.TimerHandle) -> None:
        """Queue a timer; cancelled ones are thrown out whenever the heap has doubled."""
        if len(self._timers) >= self._compact_at:
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._compact_at = max(_COMPACT_ABOVE, 2 * len(self._timers))
        heapq.heappush(self._timers, (timer.when(), next(self._numbers), timer))

    def clear(self) -> None:
        self._timers.clear()

    def select(self, timeout: float | None) -> list[asyncio.TimerHandle]:
        """Return the timers that are due.

        Args:
            timeout: 0 when callbacks are ready, so that time must not move; None otherwise.

        Raises:
            DeadlockError: No callback and no timer is left, or time has not moved for too long.
        """
        self._drop_cancelled()
        if timeout is None:
            self._jump()
        else:
            self._turns += 1
            if self._turns > MAX_TURNS_AT_ONE_INSTANT:
                self._turns = 0
                raise _deadlock(f"no time passed in {MAX_TURNS_AT_ONE_INSTANT} turns of the loop")
        due = []
        while self._timers and self._timers[0][0] <= self.now:
            due.append(heapq.heappop(self._timers)[2])
        return due

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)

    def _jump(self) -> None:
        """Move time to the next timer; one at infinity never comes."""
        if not self._timers or self._timers[0][0] == math.inf:
            raise _deadlock("nothing is left that could wake a task")
        self._turns = 0
        self.now = max(self.now, self._timers[0][0])


class _SimTask(asyncio.Task[_T]):
    """A task whose hash is its number, so that sets of tasks have the same order in every run."""

    def __init__(self, coro: Coroutine[Any, Any, _T], *, loop: SimLoop, **options: Any) -> None:
        self._number = next(loop.task_numbers)  # first of all: the task enters a set as it is made
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number

    def set_name(self, value: object) -> None:
        """Name the task; some Python 3.13 name a nameless one "None" when it comes from a factory."""
        if value is not None:
            super().set_name(value)


class SimLoop(asyncio.BaseEventLoop):
    """An event loop on virtual time; for ``asyncio.Runner(loop_factory=SimLoop)`` or ``SimLoop.run``.

    A `LockManager` goes by ``clock`` here, unless it is given another one.

    Example:
        >>> async def nap() -> float:
        ...     await asyncio.sleep(3600)
        ...     return SimLoop.running().time()
        >>> SimLoop.run(nap())
        4600.0
    """

    _ready: deque[asyncio.Handle]  # of BaseEventLoop: the callbacks of the next turn

    def __init__(self, *, start: float = START) -> None:
        """Make a loop whose time starts at ``start`` seconds."""
        super().__init__()
        self._virtual = self._selector = _VirtualTime(start)
        self._thread = threading.get_ident()
        self.suspended = 0.0
        self.clock: Final = SimClock(self)
        self.task_numbers: Final = itertools.count(1)
        # The options are those of `asyncio.Task`, which differ between Python versions.
        self.set_task_factory(lambda _, coro, **options: _SimTask(coro, loop=self, **options))

    @classmethod
    def run(cls, main: Coroutine[Any, Any, _T], *, debug: bool | None = None) -> _T:
        """Run a coroutine on a new loop, as ``asyncio.run`` does.

        Raises:
            DeadlockError: The program waits for something that cannot happen.
        """
        with asyncio.Runner(loop_factory=cls, debug=debug) as runner:
            return runner.run(main)

    @classmethod
    def running(cls) -> SimLoop:
        """Return the loop that the calling coroutine or callback runs on.

        Raises:
            RuntimeError: None runs, or one on real time.
        """
        loop = asyncio._get_running_loop()  # noqa: SLF001 (made for those who write event loops)
        if isinstance(loop, SimLoop):
            return loop
        found = "no loop" if loop is None else repr(loop)
        raise RuntimeError(f"no SimLoop runs here, but {found}: start the coroutine by SimLoop.run(...)")

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual.now

    def advance(self, seconds: float) -> None:
        """Let time pass while no callback runs: what code that blocks the loop looks like."""
        self._virtual.now += _passed(seconds)

    def suspend(self, seconds: float) -> None:
        """Let time pass on ``clock`` only: what a suspended machine looks like from inside.

        The loop's own time, and with it every timer, stands still during suspend.
        """
        self.suspended += _passed(seconds)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call ``callback`` at the virtual time ``when``, never before it."""
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._virtual.add(timer)
        return timer

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call ``callback`` in the next turn; from this loop's own thread only.

        Raises:
            RuntimeError: Called from another thread, whose timing cannot be controlled.
        """
        if threading.get_ident() != self._thread:
            raise RuntimeError("SimLoop runs in one thread: call_soon_threadsafe from another one is refused")
        return self.call_soon(callback, *args, context=context)

    async def create_connection(self, *args: Any, **options: Any) -> Never:
        """Refuse: a network runs on real time."""
        raise RuntimeError("SimLoop has no network: create_connection is refused")

    def run_in_executor(self, executor: object, func: Callable[[*_Ts], object], *args: *_Ts) -> Never:
        """Refuse: a thread runs on real time."""
        raise RuntimeError(f"SimLoop has no threads: run_in_executor({func!r}) is refused")

    def close(self) -> None:
        """Close the loop and forget its timers."""
        super().close()
        self._virtual.clear()

    def _process_events(self, event_list: list[asyncio.TimerHandle]) -> None:
        self._ready.extend(event_list)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed() else "running" if self.is_running() else "idle"
        return f"<SimLoop {state} at {self.time():.6f}s>"


def _passed(seconds: float) -> float:
    if not 0 <= seconds < math.inf:
        raise ValueError(f"seconds must be finite and not negative, got {seconds!r}")
    return seconds


def _deadlock(why: str) -> DeadlockError:
    tasks = sorted(asyncio.all_tasks(), key=hash)
    shown = "".join(f"\n  {task!r}" for task in tasks[:_TASKS_SHOWN])
    more = f"\n  and {len(tasks) - _TASKS_SHOWN} more" if len(tasks) > _TASKS_SHOWN else ""
    return DeadlockError(f"{why}; {len(tasks)} pending tasks:{shown}{more}")
