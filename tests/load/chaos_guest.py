"""Another library's process beside those of ``chaos.py``: takes the same plain mutexes, until its input ends.

    python chaos_guest.py pottery|redlock-ng ORDERS

It may run in an environment of its own, so it imports nothing of the project.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

TTL: Final = 2.0
TIMEOUT: Final = 1.0  # seconds that one node may take
DRIFT: Final = 0.01 * TTL + 0.002  # as both libraries reckon

Release = Callable[[], Awaitable[object]]


def pottery(urls: list[str]) -> Callable[[str], Awaitable[Release | None]]:
    """Return what tries a lock of pottery once, and returns what releases it."""
    from pottery import AIORedlock
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    masters = {
        Redis.from_url(
            url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, retry=Retry(NoBackoff(), 0)
        )
        for url in urls
    }

    async def take(key: str) -> Release | None:
        lock = AIORedlock(key=key.removeprefix("redlock:"), masters=masters, auto_release_time=TTL)
        return lock.release if await lock.acquire(blocking=False) else None

    return take


def redlock_ng(urls: list[str]) -> Callable[[str], Awaitable[Release | None]]:
    """Return the same of redlock-ng."""
    from redlock import AsyncRedlock  # type: ignore[import-not-found]  # it has an environment of its own
    from redlock.client import RedlockConfig  # type: ignore[import-not-found]

    config = RedlockConfig(masters=urls, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
    manager = AsyncRedlock(config, retry_count=0)

    async def take(key: str) -> Release | None:
        lock: Any = await manager.acquire(key, int(TTL * 1000))
        return None if lock is None else lambda: manager.release(lock)

    return take


def now() -> float:
    """Return the time of the clock that leases go by."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def contend(library: str, urls: list[str], names: list[str], record: int) -> None:
    """Take one of the names, again and again."""
    take = {"pottery": pottery, "redlock-ng": redlock_ng}[library](urls)
    rest = 0.0
    while True:
        # After a slow try it rests for as long: each try makes new connections to the nodes that were silent,
        # and on a busy machine they would be more than the proxies can carry.
        await asyncio.sleep(rest + random.uniform(0, 0.1))
        name, asked = random.choice(names), now()
        with contextlib.suppress(Exception):  # of another library; what counts is what it takes for held
            try:
                release = await take(f"redlock:{name}")
            finally:
                rest = now() - asked
            if release is None:
                continue
            since = now()
            await asyncio.sleep(random.uniform(0, 0.02))
            # Reckoned from before it asked: never longer than the library itself reckons.
            claim = (library, since, min(now(), asked + TTL - DRIFT), asked, [name], None, None, 0)
            os.write(record, json.dumps(["claim", library, *claim]).encode() + b"\n")
            await release()


async def main(library: str, urls: list[str], names: list[str], record: str) -> None:
    """Contend in two tasks until the input ends."""
    file = os.open(record, os.O_WRONLY | os.O_APPEND)
    tasks = [asyncio.create_task(contend(library, urls, names, file)) for _ in range(2)]
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main(sys.argv[1], **json.loads(sys.argv[2])))
