"""The thread with an event loop of its own, in which everything runs that other threads ask for.

A signal handler may raise at any moment in the threads that ask (a soft time limit, say).  It may
also wait for the loop, which `close` does, while the code that it interrupts goes no further.  So the loop
shares nothing with them that an interrupt could leave locked, or that they hold while they run: no `Lock`,
`Condition`, `Event` or `Future`, but queues and dicts, whose operations are atomic, and `LossEvent`.
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import functools
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeVar, final
from weakref import ref

import anyio

from .. import ConfigurationError, Leadership, Lease, ManagerClosedError, QuorumUnavailableError
from .._log import log_by
from ..errors import printable
from ..events import Hooks, Lost
from ._courier import Courier
from ._entries import Entries
from ._events import LossEvent

R = TypeVar("R")

NAME: Final = "aioredlock_ng"
"""What the thread is called."""

STANDSTILL: Final = 3.0
"""Seconds without a turn of the loop, or for the thread's last steps, after which closing waits no longer."""

SILENCE: Final = 0.5
"""Seconds without a turn of the loop, or a `node_timeout` if that is longer, after which a call whose time is
over waits no longer; at the first use a `connect_timeout` more."""

LOOKS: Final = 5
"""Looks at the loop within that time: a process that stood still as a whole has missed but one of them."""

MAX_CALLS: Final = 10_000
"""Calls that wait for a loop that stands still; further ones fail at once."""

LAST_WORDS: Final = 1.0
"""Seconds for which closing waits for log handlers and hooks."""


@final
class Losses(Hooks):
    """Wakes the threads that wait for the loss of something they hold."""

    def __init__(self) -> None:
        self._watched: dict[ref[object], tuple[LossEvent, Callable[[], bool]]] = {}

    def watch(self, held: object, lease: Lease) -> threading.Event:
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

    __slots__ = ("_context", "_error", "_function", "_given_up", "_over", "_result", "_task", "_wake")

    _result: Any
    _task: asyncio.Task[None]

    def __init__(self, wake: Callable[[Callable[[], object]], None], function: Callable[[], Any]) -> None:
        self._wake, self._function, self._context = wake, function, contextvars.copy_context()
        self._given_up = False
        self._error: BaseException | None = None
        self._over = LossEvent()

    def begin(self, tasks: set[asyncio.Task[None]]) -> None:
        """Run it; called in the loop."""
        if self._given_up:
            return
        self._task = self._context.run(asyncio.get_running_loop().create_task, self._run())
        tasks.add(self._task)
        self._task.add_done_callback(tasks.discard)

    def refuse(self) -> None:
        """Have it fail: the loop has ended before it began."""
        self._error = ManagerClosedError("the lock manager is closed")
        self._over.set()

    async def _run(self) -> None:
        try:
            result = self._function()
            self._result = await result if isinstance(result, Awaitable) else result
        except BaseException as error:
            self._error = error
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            if self._given_up:
                self._undo()
        finally:
            self._over.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, at most so long; return whether it has."""
        return self._over.wait(seconds)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for what it returns or raises; raises `TimeoutError` after `timeout` seconds."""
        if not self.wait(timeout):
            raise TimeoutError
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # the traceback refers to this frame
        return self._result

    def give_up(self) -> None:
        """End it, or undo what it has come to: its thread waits no longer.  Waits for nothing."""
        self._given_up = True
        self._wake(self._give_up)

    def _give_up(self) -> None:
        task = getattr(self, "_task", None)  # none: it has not begun, and will not
        if task is not None and not task.cancel():
            self._undo()

    def _undo(self) -> None:
        result = getattr(self, "_result", None)
        lease = result._lease if isinstance(result, Leadership) else result  # noqa: SLF001
        if isinstance(lease, Lease):
            lease._holding.release()  # noqa: SLF001


_STANDS_STILL: Final = (
    "thread of the SyncLockManager, which stands still: users' code blocks it, such as a client or a "
    "provider of credentials"
)


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

    node_timeout = connect_timeout = 0.0  # the manager's

    def __init__(self) -> None:
        self.losses, self.entries, self.courier = Losses(), Entries(), Courier(f"{NAME} hooks")
        self._started_in: int | None = None  # the process that the thread runs in
        self._started = False
        self._claim = _thread.allocate_lock()  # for the loop: two callers may start a thread each
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # once it runs
        self._stop: asyncio.Event | None = None
        self._stopped = False
        self._calls: deque[Call] = deque()  # which the loop has not begun
        self._refuses = False  # it begins none any more
        self._answered = False  # whether any call has ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = LossEvent()

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child and the thread is its parent's."""
        return self._started_in not in (None, os.getpid())

    @property
    def runs(self) -> bool:
        """Whether it was used and has not ended."""
        return self._loop is not None and not self._refuses and not self.inherited

    def _start(self) -> None:
        refuse_green_threads()
        self._started_in = os.getpid()
        threading.Thread(target=contextvars.Context().run, args=(self._main,), name=NAME, daemon=True).start()
        self._started = True  # not so after an interrupt: the next call starts another one

    def _main(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        self._started, self._thread = True, threading.current_thread()
        log_by(self.courier.deliver)
        try:
            anyio.run(self._run)
        finally:
            self._refuse_calls()  # also when it could not begin
            self.courier.end()
            self._over.set()

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            if not self._stopped:  # looked at after `_loop` was set: `stop` looks in the other order
                self._take_calls()
                await self._wait_for_stop(self._stop)
        finally:
            self._refuse_calls()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _wait_for_stop(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is called, also where other code cancels all tasks of this loop (R44)."""
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None, "a task runs this"
                task.uncancel()

    def _take_calls(self) -> None:
        """Begin what threads ask for, or refuse it; called in the loop, and by threads once it ends."""
        with suppress(IndexError):  # from an empty deque
            while True:
                call = self._calls.popleft()
                if self._refuses:
                    call.refuse()
                else:
                    call.begin(self._tasks)

    def _refuse_calls(self) -> None:
        self._refuses = True
        self._take_calls()

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
        return self._submit(function, *args)

    def begin(self, function: Callable[..., Any]) -> None:
        """Make a function the thread's first use, without waiting for it; nothing if there was a use."""
        if not (self._started or self._stopped or self.ended):
            with suppress(ConfigurationError):  # green threads: the next call says so
                self._submit(function)

    def _submit(self, function: Callable[..., Any], *args: object) -> Call:
        if not self._started:
            if self._stopped:
                raise ManagerClosedError("the lock manager is closed")
            self._start()
        if len(self._calls) >= MAX_CALLS:
            raise QuorumUnavailableError(f"{MAX_CALLS} calls wait for the {_STANDS_STILL}")
        call = Call(self._wake, functools.partial(function, *args))
        self._calls.append(call)
        if self._refuses:  # looked at after that: a loop that ends later finds the call
            self._take_calls()
        else:
            self._wake(self._take_calls)
        return call

    def _wake(self, function: Callable[[], object]) -> None:
        """Have the loop call this, if it runs; one that begins sees by itself what is to be done."""
        if (loop := self._loop) is not None:
            try:
                loop.call_soon_threadsafe(function, context=contextvars.Context())
            except RuntimeError:  # a handler may raise it, too
                if not loop.is_closed():
                    raise

    def call(
        self, function: Callable[..., Coroutine[Any, Any, R]], *args: object, goes_on: bool = False
    ) -> R:
        """Run a coroutine function there, and wait for what it returns; raises as `result`."""
        result: R = self.result(self.submit(function, *args), goes_on=goes_on)
        return result

    def result(
        self,
        call: Call,
        limit: float | None = 0.0,
        *,
        names: tuple[str, ...] = (),
        goes_on: bool = False,
    ) -> Any:
        """Wait for a call, which ends by itself `limit` seconds after it has begun, if the loop turns.

        One that is not waited for any more is given up, unless it `goes_on`.

        Raises:
            QuorumUnavailableError: the loop stands still.
        """
        silence = max(SILENCE, self.node_timeout) + (0.0 if self._answered else self.connect_timeout)
        look = silence / LOOKS
        if not (call.wait(None if limit is None else limit + look) or self._hears(call, look)):
            if not goes_on:
                call.give_up()
            lock = f"lock {printable(names)}: " if names else ""
            raise QuorumUnavailableError(f"{lock}no answer from the {_STANDS_STILL}", names=names)
        self._answered = True
        return call.result()

    def _hears(self, call: Call, look: float) -> bool:
        """Wait for a call as long as the loop turns; return whether it has ended."""
        while True:
            turn = LossEvent()
            self._wake(turn.set)
            for _ in range(LOOKS - 1):
                if call.wait(look):
                    return True
                if turn.is_set():
                    break
            else:
                return False

    def leave(self, block: Lease | Leadership, *exc_info: Any) -> None:
        """Leave the block of a lease there; a loop that stands still does so when it goes on."""
        held = block.held
        try:
            self.call(block.__aexit__, *exc_info, goes_on=True)
        except QuorumUnavailableError:
            if not held and exc_info[1] is None:
                block._check_end()  # noqa: SLF001

    def stop(self, close: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run `close` there, end the thread, and wait for its end."""
        self._stopped = True
        # Not begun: it ends as soon as it does.  A handler that interrupts the start cannot wait for that.
        if self._loop is None or self._over.is_set():
            return
        with suppress(ManagerClosedError):  # by another thread
            call = self.submit(self._close, close, *args)
            if self._wait_for_end() and self._thread is not None:
                self._thread.join(STANDSTILL)  # its last steps take a lock of `threading`
                self.courier.wait(LAST_WORDS)
                call.result()

    def _wait_for_end(self) -> bool:
        """Wait until the loop has ended, but only as long as it turns; return whether it has.

        One that stands still may wait for the code that a handler has interrupted: for the lock of `logging`,
        say.  It goes on when the handler has returned.
        """
        while True:
            turn = LossEvent()
            self._wake(turn.set)
            if self._over.wait(STANDSTILL):
                return True
            if not turn.is_set():
                return False

    async def _close(self, close: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        assert self._stop is not None, "the loop runs"
        try:
            await close(*args)
        finally:
            self._stop.set()
