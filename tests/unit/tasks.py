"""Tasks on virtual time: how they are run, waited for and cancelled, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from aioredlock_ng import Lease
from aioredlock_ng.testing import SimLoop


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own, on virtual time; no error may end up in the loop's handler."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            stray: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
            await test(*args, **kwargs)
            gc.collect()
            await turns(3)
            assert not stray, stray

        SimLoop.run(main())

    return run


sim = SimLoop.running


async def turns(number: int) -> None:
    """Let the loop take a number of turns, without time passing."""
    for _ in range(number):
        await asyncio.sleep(0)


async def cycle(lock: AbstractAsyncContextManager[object]) -> None:
    """Acquire a lock and release it, or open and close something else."""
    async with lock:
        pass


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Fail the test where the block takes more of the loop's time; it would else wait for ever."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            pytest.fail(f"not done in {seconds} s")
        raise


async def until(when: float) -> None:
    """Wait for an instant of the loop's time, to the last bit."""
    arrived = sim().create_future()
    sim().call_at(when, lambda: arrived.done() or arrived.set_result(None))
    await arrived


@dataclass(frozen=True, slots=True)
class End:
    """The end of a task: its error, its time, and the cancellations that it was left with."""

    error: BaseException | None
    cancelling: int
    at: float


async def ending(run: Callable[[], Awaitable[object]]) -> End:
    """Run something in the current task and return how it ended; a lease that it returns is given back."""
    error: BaseException | None = None
    result: object = None
    try:
        result = await run()
    except BaseException as raised:  # noqa: BLE001 (how it ended is the question)
        error = raised
    task = asyncio.current_task()
    assert task is not None
    end = End(error, task.cancelling(), sim().time())
    if isinstance(result, Lease):
        await result.release()
    return end


def in_task(run: Callable[[], Awaitable[object]]) -> asyncio.Task[End]:
    """Run something in a task of its own, which returns how it ended."""
    return asyncio.create_task(ending(run))


class Tripwire:
    """Runs a coroutine and cancels its task at the coroutine's pause number `at`, counted from 1.

    ``waking=False``: while it sleeps there.  ``waking=True``: when what it waits for has just
    happened, but before it hears of it.
    """

    def __init__(self, run: Awaitable[object], at: int, *, waking: bool) -> None:
        self._run = run
        self._at = at
        self._waking = waking
        self.pauses = 0
        self.tripped = False
        """Whether the task was cancelled while the coroutine ran."""
        self.end: End | None = None
        """Its end, if the test has written it down: so what the error refers to lives as long."""
        self._ended = False

    def __await__(self) -> Generator[Any, Any, object]:
        """Pass everything through, and count."""
        inner = self._run.__await__()
        raised: BaseException | None = None
        while True:
            try:
                pause = next(inner) if raised is None else inner.throw(raised)  # type: ignore[attr-defined]
            except StopIteration as stop:
                self._ended = True
                return stop.value
            except BaseException:
                self._ended = True
                raise
            self.pauses += 1
            if self.pauses == self._at:
                self._trip(pause)
            raised = None
            try:
                yield pause
            except BaseException as error:  # noqa: BLE001 (it belongs to the coroutine)
                raised = error

    def _trip(self, pause: asyncio.Future[Any] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._waking and pause is not None:
            pause.add_done_callback(lambda _: self._cancel(task))
        else:
            asyncio.get_running_loop().call_soon(self._cancel, task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        if not self._ended:
            self.tripped = True
            task.cancel()
