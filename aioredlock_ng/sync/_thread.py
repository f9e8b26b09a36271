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
from weakref import WeakKeyDictionary

from .. import ConfigurationError, Leadership, Lease, ManagerClosedError, QuorumUnavailableError
from .._log import log_by
from ..errors import printable
from ..events import Hooks, Lost
from ._courier import Courier
from ._events import LossEvent

R = TypeVar("R")

NAME: Final = "aioredlock_ng"  # of the thread

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
        self._watched: WeakKeyDictionary[LossEvent, Any] = WeakKeyDictionary()

    def watch(self, lease: Lease) -> threading.Event:
        """Return an event that is set when `lease` is lost, and now if it was."""
        event, holding = LossEvent(), lease._holding  # noqa: SLF001
        self._watched[event] = holding
        if holding.loss is not None:  # looked at last: a loss that comes later finds the event
            event.set()
        return event

    def on_lost(self, event: Lost) -> None:
        """Take note of a loss; called in the loop."""
        for each in self._watched.keyrefs():
            if (watching := each()) is not None and self._watched[watching].loss is not None:
                watching.set()


@final
class Call:
    """A coroutine function that a thread has the loop run, and its result.

    No `concurrent.futures.Future`: its lock is held for a moment by the thread that waits.  A signal handler
    that raised there would keep the lock, and the loop would wait for it for ever.  Nor a blocking portal of
    anyio, which waits without a limit for the loop to take a call.
    """

    __slots__ = ("_context", "_error", "_function", "_result", "_task", "given_up", "over")

    def __init__(self, function: Callable[[], Awaitable[Any]]) -> None:
        self._function, self._context = function, contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self.given_up = False
        self.over = LossEvent()

    def begin(self, tasks: set[asyncio.Task[None]]) -> None:
        """Run it; called in the loop."""
        if not self.given_up:
            self._task = asyncio.get_running_loop().create_task(self._run(), context=self._context)
            tasks.add(self._task)
            self._task.add_done_callback(tasks.discard)

    def refuse(self) -> None:
        """Have it fail: the loop has ended before it began."""
        self._error = ManagerClosedError("the lock manager is closed")
        self.over.set()

    async def _run(self) -> None:
        try:
            self._result = await self._function()
        except BaseException as error:
            self._error = error
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        finally:
            self.over.set()

    def result(self) -> Any:
        """Return or raise its result, once it is over."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # the traceback refers to this frame
        return self._result

    def end(self) -> None:
        """Cancel it, and release a lease that it has won, or wins all the same; called in the loop."""
        if self._task is not None:  # else it never begins
            self._task.cancel()
            self._task.add_done_callback(self._undo)

    def _undo(self, _: object) -> None:
        lease = self._result._lease if isinstance(self._result, Leadership) else self._result  # noqa: SLF001
        if isinstance(lease, Lease):
            lease._holding.release()  # noqa: SLF001


_STANDS_STILL: Final = (
    "thread of the SyncLockManager, which stands still: users' code blocks it, such as a client or a "
    "provider of credentials"
)


def refuse_green_threads() -> None:
    """Raise if gevent or eventlet has patched the standard library: the loop would block its own callers.

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


def runs_cells(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a loop is that of a Jupyter kernel: it calls the cells, which may block it."""
    ipython = sys.modules.get("IPython")
    kernel = None if ipython is None else getattr(ipython.get_ipython(), "kernel", None)
    return getattr(getattr(kernel, "io_loop", None), "asyncio_loop", None) is loop


@final
class LoopThread:
    """The thread; it starts at the first use."""

    ended: ClassVar[bool] = False
    """Whether the interpreter ends: nothing is begun any more, since nothing would end it."""

    node_timeout = connect_timeout = 0.0  # the manager's

    def __init__(self) -> None:
        self.losses, self.courier = Losses(), Courier(f"{NAME} hooks")
        self._started_in: int | None = None  # the process that the thread runs in
        self._started = False
        self._claim = _thread.allocate_lock()  # for the loop: two callers may start a thread each
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # once it runs
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
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                self._wake(self._take_calls)  # those that came before
                if not self._stopped:  # looked at after `_loop` was set: `stop` looks in the other order
                    self._loop.run_forever()  # no task, which other code could cancel (R44)
                self._refuse_calls()
                if self._tasks:
                    self._loop.run_until_complete(asyncio.wait({*self._tasks}))
        finally:
            self._refuse_calls()  # also when it could not begin
            self.courier.end()
            self._over.set()

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

    def submit(self, function: Callable[..., Awaitable[Any]], *args: object) -> Call:
        """Have a function run there, without waiting for it; raises when that cannot be."""
        self._check()
        self._post(call := Call(functools.partial(function, *args)))
        return call

    def _check(self) -> None:
        if self.inherited:
            raise RuntimeError("this SyncLockManager was used before a fork: make one per process, after it")
        if self.ended:
            raise ManagerClosedError("the lock manager is closed: the interpreter ends")
        loop = asyncio._get_running_loop()  # noqa: SLF001 (asyncio exports it)
        if loop is not None and not runs_cells(loop):
            raise RuntimeError(
                "a SyncLockManager would block this event loop: use a LockManager here, and `await "
                "asyncio.to_thread(…)` for code that blocks"
            )

    def begin(self, function: Callable[[], Awaitable[Any]]) -> None:
        """Make a function the thread's first use, without waiting for it; nothing if there was a use."""
        if not (self._started or self._stopped or self.ended):
            with suppress(ConfigurationError):  # green threads: the next call says so
                self._post(Call(function))

    def _post(self, call: Call) -> None:
        if not self._started:
            if self._stopped:
                raise ManagerClosedError("the lock manager is closed")
            self._start()
        if len(self._calls) >= MAX_CALLS:
            raise QuorumUnavailableError(f"{MAX_CALLS} calls wait for the {_STANDS_STILL}")
        self._calls.append(call)
        if self._refuses:  # looked at after that: a loop that ends later finds the call
            self._take_calls()
        else:
            self._wake(self._take_calls)

    def _wake(self, function: Callable[[], object]) -> None:
        """Have the loop call this, if it runs; one that begins sees by itself what is to be done."""
        if (loop := self._loop) is not None:
            try:
                loop.call_soon_threadsafe(function, context=contextvars.Context())
            except RuntimeError:  # a handler may raise it, too
                if not loop.is_closed():
                    raise

    def call(
        self,
        function: Callable[..., Awaitable[R]],
        *args: object,
        limit: float | None = 0.0,
        names: tuple[str, ...] = (),
        goes_on: bool = False,
    ) -> R:
        """Run a function there, and return its result.

        It ends by itself `limit` seconds after it has begun, if the loop turns.  One that is not waited for
        any more is cancelled and undone, unless it `goes_on`.

        Raises:
            QuorumUnavailableError: the loop stands still.
        """
        self._check()
        call = Call(functools.partial(function, *args))
        try:
            self._post(call)
            self._wait_for(call, limit, names)
            self._answered = True
            result: R = call.result()
        except BaseException:  # such as a KeyboardInterrupt, at any moment
            if not goes_on:
                call.given_up = True
                self._wake(call.end)
            raise
        return result

    def _wait_for(self, call: Call, limit: float | None, names: tuple[str, ...]) -> None:
        silence = max(SILENCE, self.node_timeout) + (0.0 if self._answered else self.connect_timeout)
        if not (call.over.wait(limit) or self._turns_until(call.over, silence)):
            lock = f"lock {printable(names)}: " if names else ""
            raise QuorumUnavailableError(f"{lock}no answer from the {_STANDS_STILL}", names=names)

    def _turns_until(self, over: LossEvent, silence: float) -> bool:
        """Wait until `over` is set; return False after `silence` seconds without a turn of the loop."""
        look = silence / LOOKS
        while not over.wait(look):
            turn = LossEvent()
            self._wake(turn.set)
            for _ in range(LOOKS - 1):
                if over.wait(look):
                    return True
                if turn.is_set():
                    break
            else:
                return False
        return True

    def leave(self, block: Lease | Leadership, *exc_info: Any) -> None:
        """Leave the block of a lease there; a loop that stands still does so when it goes on."""
        if self.inherited:  # a forked child leaves its parent's block
            return
        held = block.held
        try:
            self.call(block.__aexit__, *exc_info, goes_on=True)
        except (QuorumUnavailableError, ManagerClosedError) as error:
            closed = isinstance(error, ManagerClosedError)  # then the lock was released with the manager
            if (closed or not held) and exc_info[1] is None:
                block._check_end()  # noqa: SLF001

    def give_back(self, block: Lease | Leadership) -> None:
        """Leave a block that an interrupt has ended, without waiting."""
        with suppress(ManagerClosedError, RuntimeError):  # a forked child, or a thread with a loop
            self.submit(block.__aexit__, None, None, None)

    def stop(self, close: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run `close` there, end the thread, and wait for its end."""
        self._stopped = True
        # Not begun: it ends as soon as it does.  A handler that interrupts the start cannot wait for that.
        if self._loop is None or self._over.is_set():
            return
        with suppress(ManagerClosedError):  # by another thread
            call = self.submit(self._close, close, *args)
            # A loop that stands still may wait for the code that a handler has interrupted.
            if self._turns_until(self._over, STANDSTILL) and self._thread is not None:
                self._thread.join(STANDSTILL)  # its last steps take a lock of `threading`
                self.courier.wait(LAST_WORDS)
                call.result()

    async def _close(self, close: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        try:
            await close(*args)
        finally:
            # A second call of `stop` may end when the loop only waits for the tasks that are left.
            if not self._refuses:
                asyncio.get_running_loop().stop()
