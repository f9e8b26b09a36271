"""The loop, and futures: True when what a task waits for has come, False when the waiting is over."""

from __future__ import annotations

import asyncio


def ring(future: asyncio.Future[bool]) -> None:
    """Tell who waits, unless that is over, that it has come."""
    if not future.done():
        future.set_result(True)


def give_up(future: asyncio.Future[bool]) -> None:
    """End the waiting, unless it is over."""
    if not future.done():
        future.set_result(False)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs here, or say that there has to be one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "a LockManager works on asyncio only, and no asyncio event loop runs here; trio's is none"
        ) from None
