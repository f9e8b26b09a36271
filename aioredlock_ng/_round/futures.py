"""The loop, and waiting with a limit: a future is True when what a task waits for has come, else False."""

from __future__ import annotations

import asyncio


def ring(future: asyncio.Future[bool]) -> None:
    """Tell the waiting task, unless its wait is over, that what it waits for has come."""
    if not future.done():
        future.set_result(True)


def give_up(future: asyncio.Future[bool]) -> None:
    """End the wait in vain, unless it is over."""
    if not future.done():
        future.set_result(False)


async def wait_for(future: asyncio.Future[bool], seconds: float | None) -> bool:
    """Wait for `future`, at most `seconds` (None: no limit), and return its result; False: the time is up."""
    timer = None if seconds is None else future.get_loop().call_later(seconds, give_up, future)
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs here, or say that there has to be one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "a LockManager works on asyncio only, and no asyncio event loop runs here; trio's is none"
        ) from None
