"""The event loop, and waits with a limit: a future is True when its event has come, False at the limit."""

from __future__ import annotations

import asyncio


def ring(future: asyncio.Future[bool]) -> None:
    """Wake the task that waits for `future`, unless its wait has ended: the event has come."""
    if not future.done():
        future.set_result(True)


def give_up(future: asyncio.Future[bool]) -> None:
    """Wake the task that waits for `future`, unless its wait has ended: the event will not come."""
    if not future.done():
        future.set_result(False)


async def wait_for(future: asyncio.Future[bool], seconds: float | None) -> bool:
    """Wait for `future`, at most `seconds` (None: no limit); return its result, or False at the limit."""
    timer = None if seconds is None else future.get_loop().call_later(seconds, give_up, future)
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop, or raise an error that says that one is needed."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "a LockManager works only with asyncio, and no asyncio event loop is running here (trio's "
            "does not count)"
        ) from None
