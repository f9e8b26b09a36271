"""The thread with an event loop of its own, in which everything runs that other threads ask for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar, final
from weakref import WeakKeyDictionary

import anyio
from anyio.from_thread import BlockingPortal

from .. import ManagerClosedError
from ..events import Hooks, Lost

R = TypeVar("R")


@final
class Losses(Hooks):
    """Wakes the threads that wait for the loss of something they hold."""

    def __init__(self) -> None:
        self._watched: WeakKeyDictionary[object, tuple[threading.Event, asyncio.Event]] = WeakKeyDictionary()
        self._mutex = threading.Lock()

    def watch(self, held: object, lost: asyncio.Event) -> threading.Event:
        """Return what is set when `lost` is, and now if it was: one event, whichever thread asks."""
        with self._mutex:
            event, _ = self._watched.setdefault(held, (threading.Event(), lost))
        self._wake()
        return event

    def on_lost(self, event: Lost) -> None:
        """Take note of a loss; called in the loop."""
        self._wake()

    def _wake(self) -> None:
        with self._mutex:
            for event, lost in self._watched.values():
                if lost.is_set():
                    event.set()


@final
class Here(threading.local):
    """What stands for the calling thread: a number would be used again by a later one."""

    def __init__(self) -> None:
        self.runner = object()


@final
class LoopThread:
    """The thread; it starts at the first use."""

    def __init__(self) -> None:
        self.losses = Losses()
        self.here = Here()
        self._thread = threading.Thread(target=anyio.run, args=(self._run,), daemon=True)
        self._started_in: int | None = None  # the process that the thread runs in
        self._gate, self._started = threading.RLock(), threading.Event()

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child and the thread is its parent's."""
        return self._started_in not in (None, os.getpid())

    async def _run(self) -> None:
        async with BlockingPortal() as self._portal:
            self._started.set()
            await self._portal.sleep_until_stopped()

    def submit(self, function: Callable[..., Any], *args: object) -> Future[Any]:
        """Run a function in the thread of the loop; locks and leases do.  Raises when that cannot be."""
        if self.inherited:
            raise RuntimeError("this SyncLockManager was used before a fork: make one per process, after it")
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 (asyncio exports it)
            raise RuntimeError("a SyncLockManager would block this event loop: use a LockManager here")
        with self._gate:  # a loop that ends after it was seen to run would never answer
            if self._thread.ident is None:
                self._started_in = os.getpid()
                self._thread.start()
            self._started.wait()
            try:
                return self._portal.start_task_soon(function, *args)
            except RuntimeError as error:
                raise ManagerClosedError("the lock manager is closed") from error

    def call(self, function: Callable[..., Coroutine[Any, Any, R]], *args: object) -> R:
        """Run a coroutine function there, and wait for what it returns."""
        result: R = self.submit(function, *args).result()
        return result

    def stop(self) -> None:
        """End it, and wait for its end."""
        with self._gate, suppress(RuntimeError):  # another thread has stopped it
            self._portal.call(self._portal.stop)
        self._thread.join()
