"""Commands that go on until a signal comes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine


async def until_signal(work: Coroutine[None, None, None], seconds: float | None = None) -> int | None:
    """Run it to its end, for so many seconds at most, or until SIGINT or SIGTERM; return the signal.

    What it raises is raised.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    ended_by: list[int] = []

    def end(number: int) -> None:
        ended_by.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    await asyncio.wait((task,), timeout=seconds)
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.result()
    return ended_by[0] if ended_by else None
