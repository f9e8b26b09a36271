"""Programs that tests run in child processes: ``python worker.py ENDING URL,URL,… NAME TTL``."""

from __future__ import annotations

import asyncio
import sys

from aioredlock_ng import LockManager

_KEPT: list[object] = []


async def hold(manager: LockManager, name: str, ttl: float) -> list[object]:
    """Hold locks in every way there is, in several tasks."""
    inside = asyncio.Semaphore(0)

    async def body(first: str, *others: str) -> None:
        async with manager.lock(f"{name}:{first}", ttl=ttl):
            if others:
                await body(*others)
            inside.release()
            await asyncio.sleep(3600)

    tasks = [asyncio.create_task(body(*names)) for names in (*"01234", ("outer", "inner"))]
    lease = await manager.lock(f"{name}:plain", ttl=ttl).acquire()
    for _ in tasks:
        await inside.acquire()
    waiting = asyncio.create_task(manager.lock(f"{name}:0", ttl=ttl).acquire())  # for a lock that is held
    return [*tasks, waiting, lease]


async def end(ending: str, urls: str, name: str, ttl: str) -> None:
    """Hold locks until the process is ended, return from the main coroutine, or have a callback exit."""
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = 3600.0  # a busy machine is no complaint
    _KEPT.append(await hold(LockManager(urls.split(",")), name, float(ttl)))
    print("held", flush=True)
    if ending == "leave":
        return
    if ending == "exit":
        loop.call_soon(sys.exit, 3)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(end(*sys.argv[1:]))
