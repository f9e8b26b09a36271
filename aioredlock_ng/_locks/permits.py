"""Several permits of a semaphore at once, in the order of the calls (R26a).

A call collects its permits one by one, inside a fair lock: the door.  So one call collects at a time, and no
two can wait for each other's permits; and the queue at the door orders the calls, whatever each wants.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from .lease import Lease
from .lock import Lock


def end_of(lock: Lock) -> float | None:
    """Return when a call that begins now has waited for long enough, by the manager's clock; None: never."""
    limit = lock._request.blocking_timeout  # noqa: SLF001
    return None if limit is None else lock._life.clock.now() + limit  # noqa: SLF001


def until(lock: Lock, end: float | None) -> Lock:
    """Return the same lock for a call that waits no longer than that."""
    if end is None:
        return lock
    left = max(0.0, end - lock._life.clock.now())  # noqa: SLF001
    return Lock(lock._life, lock._primitive, replace(lock._request, blocking_timeout=left))  # noqa: SLF001


@asynccontextmanager
async def collected(door: Lock, semaphore: Lock, weight: int) -> AsyncIterator[tuple[Lease, ...]]:
    """Hold a number of permits of `semaphore`, collected inside `door`."""
    end = end_of(semaphore)
    async with AsyncExitStack() as stack:
        async with door:
            leases = [await stack.enter_async_context(until(semaphore, end)) for _ in range(weight)]
        yield tuple(leases)
