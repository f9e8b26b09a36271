"""The thread with an event loop of its own, in which everything runs that other threads ask for.

A signal handler may raise at any moment in the threads that ask (a soft time limit, say).  So the loop shares
nothing with them that an interrupt could leave locked: no `Condition`, `Event` or `Future`, whose methods are
written in Python, but a queue and locks that are written in C.
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, ClassVar, Final, TypeVar, final
from weakref import ref

import anyio

from .. import ConfigurationError, Leadership, Lease, ManagerClosedError
from ..events import Hooks, Lost
from ._entries import Entries

R = TypeVar("R")

NAME: Final = "aioredlock_ng"
"""What the thread is called."""


@final
class LossEvent(threading.Event):
    """An event that a thread can be interrupted in, without keeping the loop from setting it."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: deque[_thread.LockType] = deque()  # each locked until the event is set

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'set' if self._is_set else 'unset'}>"

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it; wakes all that wait."""
        self._is_set = True
        with suppress(IndexError):  # from an empty deque
            while True:
                self._waiters.popleft().release()

    def clear(self) -> None:
        """Refuse: a loss is for good."""
        raise RuntimeError("a loss cannot be taken back")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; return whether it is."""
        waiter = _thread.allocate_lock()
        waiter.acquire()
        try:
            self._waiters.append(waiter)
            if not self._is_set:
                waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:  # in time or not: a thread may ask again and again
            with suppress(ValueError):  # `set` has taken it
                self._waiters.remove(waiter)
        return self._is_set


@final
class Losses(Hooks):
    """Wakes the threads that wait for the loss of something they hold."""

    def __init__(self) -> None:
        self._watched: dict[ref[object], tuple[LossEvent, Callable[[], bool]]] = {}

    def watch(self, held: object, lease: Lease[Any, Any]) -> threading.Event:
        """Return what is set when `lease` is lost, and now if it was: one event, whichever thread asks."""
        watched, holding = self._watched, lease._holding  # noqa: SLF001

        def is_lost() -> bool:
            return holding.loss is not None

        key = ref(held, lambda key: watched.pop(key, None))
        event, _ = watched.setdefault(key, (LossEvent(), is_lost))
        if is_lost():  # looked at last: a loss that comes later finds the event
            event.set()
        return event

    def on_lost(self, event: Lost) -> None:
        """Take note of a loss; called in the loop."""
        for noticed, is_lost in list(self._watched.values()):
            if is_lost():
                noticed.set()


@final
class Call:
    """What a thread has asked for, and waits for."""

    __slots__ = ("_given_up", "_loop", "_outcome", "_result", "_task")

    _result: Any
    _task: asyncio.Task[None]

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._given_up = False
        self._outcome: SimpleQueue[BaseException | None] = SimpleQueue()

    def begin(self, tasks: set[asyncio.Task[None]], function: Callable[..., Any], *args: object) -> None:
        """Run it; called in the loop."""
        self._task = self._loop.create_task(self._run(function, *args))
        tasks.add(self._task)
        self._task.add_done_callback(tasks.discard)

    async def _run(self, function: Callable[..., Any], *args: object) -> None:
        try:
            result = function(*args)
            self._result = await result if isinstance(result, Awaitable) else result
        except BaseException as error:
            self._outcome.put(error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            self._outcome.put(None)
            if self._given_up:
                self._undo()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for what it returns or raises; raises `queue.Empty` after `timeout` seconds."""
        error = self._outcome.get(timeout=timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # the traceback refers to this frame
        return self._result

    def give_up(self) -> None:
        """End it, or undo what it has come to: its thread was interrupted.  Waits for nothing."""
        with suppress(RuntimeError):  # the loop is closed: so is the manager, and nothing is held
            self._loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        self._given_up = True
        if self._task.done():
            self._undo()
        else:
            self._task.cancel()

    def _undo(self) -> None:
        result = getattr(self, "_result", None)
        lease = result._lease if isinstance(result, Leadership) else result  # noqa: SLF001
        if isinstance(lease, Lease):
            lease._holding.release()  # noqa: SLF001


def refuse_green_threads() -> None:
    """Fail where threads, queues or sockets are green: the loop would run among its callers, and block them.

    Raises:
        ConfigurationError: gevent or eventlet have patched the standard library.
    """
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    for library, patched in (
        ("gevent", gevent is not None and gevent.is_anything_patched()),
        ("eventlet", eventlet is not None and eventlet.already_patched),
    ):
        if patched:
            raise ConfigurationError(
                f"a SyncLockManager needs real threads and sockets, and {library} has patched them: "
                f"run it without {library}'s patches (Celery: -P prefork or -P threads)"
            )


@final
class LoopThread:
    """The thread; it starts at the first use."""

    ended: ClassVar[bool] = False
    """Whether the interpreter ends: nothing is begun any more, since nothing would end it."""

    def __init__(self) -> None:
        self.losses, self.entries = Losses(), Entries()
        self._started_in: int | None = None  # the process that the thread runs in
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._stop: asyncio.Event | None = None
        self._stopped = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._gate = threading.RLock()  # a loop that ends after it was seen to run would never answer
        self._starting = _thread.allocate_lock()  # free once the loop runs

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child and the thread is its parent's."""
        return self._started_in not in (None, os.getpid())

    @property
    def runs(self) -> bool:
        """Whether it was used and has not ended."""
        return self._loop is not None and not self.inherited

    def _start(self) -> None:
        refuse_green_threads()
        self._starting = starting = _thread.allocate_lock()
        starting.acquire()
        self._thread = threading.Thread(target=self._main, args=(starting,), name=NAME, daemon=True)
        self._started_in = os.getpid()
        try:
            self._thread.start()
        except BaseException:  # an interrupt can keep it from beginning: the next call starts another one
            self._thread = self._started_in = None
            raise

    def _main(self, starting: _thread.LockType) -> None:
        try:
            anyio.run(self._run, starting)
        finally:
            if starting.locked():  # it could not begin
                starting.release()

    async def _run(self, starting: _thread.LockType) -> None:
        with self._gate:
            if threading.current_thread() is not self._thread:
                return  # one that was given up
            self._stop = asyncio.Event()
            self._loop = asyncio.get_running_loop()
        starting.release()
        try:
            await self._stop.wait()
        finally:
            with self._gate:
                self._loop = None
            if self._tasks:
                await asyncio.wait(self._tasks)

    def submit(
        self,
        function: Callable[..., Any],
        *args: object,
    ) -> Call:
        """Run a function in the thread of the loop; locks and leases do.  Raises when that cannot be."""
        if self.inherited:
            raise RuntimeError("this SyncLockManager was used before a fork: make one per process, after it")
        if self.ended:
            raise ManagerClosedError("the lock manager is closed: the interpreter ends")
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 (asyncio exports it)
            raise RuntimeError("a SyncLockManager would block this event loop: use a LockManager here")
        with self._gate:
            if self._thread is None and self._stopped:
                raise ManagerClosedError("the lock manager is closed")
            if self._thread is None:
                self._start()
        with self._starting:
            pass
        with self._gate:
            if self._loop is None:
                raise ManagerClosedError("the lock manager is closed")
            call = Call(self._loop)
            context = contextvars.copy_context()
            self._loop.call_soon_threadsafe(call.begin, self._tasks, function, *args, context=context)
            return call

    def call(self, function: Callable[..., Coroutine[Any, Any, R]], *args: object) -> R:
        """Run a coroutine function there, and wait for what it returns."""
        result: R = self.submit(function, *args).result()
        return result

    def stop(self) -> None:
        """End it, and wait for its end."""
        with self._gate:
            self._stopped = True
            if self._loop is not None and self._stop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join()
