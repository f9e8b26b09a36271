"""What the tests run in processes of their own: ``python worker.py TASK URL,URL,… ARGUMENTS``."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path

from aioredlock_ng import LockManager, RetryPolicy


def say(word: str) -> None:
    """Tell the test."""
    print(word, flush=True)


async def count(manager: LockManager, name: str, path: str, tasks: str, rounds: str) -> None:
    """Increment a plain counter in a file under the lock, from several tasks; print the claims."""
    counter = Path(path)
    claims: list[tuple[float, float]] = []
    lock = manager.lock(name)

    async def increment() -> None:
        for _ in range(int(rounds)):
            async with lock as lease:
                began = time.clock_gettime(time.CLOCK_MONOTONIC)
                value = int(counter.read_text())
                await asyncio.sleep(random.random() * 0.002)
                counter.write_text(str(value + 1))
                lease.check()
                claims.append((began, time.clock_gettime(time.CLOCK_MONOTONIC)))
            await asyncio.sleep(random.random() * 0.05)  # so that other processes get in between

    async with manager:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)  # all processes begin together
        await asyncio.gather(*(increment() for _ in range(int(tasks))))
    say(json.dumps(claims))


async def hurry(manager: LockManager, name: str, tasks: str) -> None:
    """Take a lock again and again without a pause, from several tasks, until told; print the claims.

    Each claim is told at once by a line, too.
    """
    claims: list[tuple[float, float]] = []
    lock = manager.lock(name)
    over = False

    async def claim() -> None:
        while not over:
            async with lock as lease:
                began = time.clock_gettime(time.CLOCK_MONOTONIC)
                await asyncio.sleep(0.001)
                lease.check()
                claims.append((began, time.clock_gettime(time.CLOCK_MONOTONIC)))
            say("had it")

    async with manager:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        at_it = asyncio.gather(*(claim() for _ in range(int(tasks))))
        await asyncio.to_thread(sys.stdin.readline)
        over = True
        await at_it
    say(json.dumps(claims))


async def take(manager: LockManager, name: str) -> None:
    """Wait for a lock; print when it begins to, and the time when the lock was there."""
    async with manager:
        waiter = asyncio.create_task(manager.lock(name).acquire())
        while not manager.statistics().waiting:
            await asyncio.sleep(0.001)
        say("waits")
        lease = await waiter
        say(json.dumps(time.clock_gettime(time.CLOCK_MONOTONIC)))
        await lease.release()


async def hold(manager: LockManager, name: str, ttl: str) -> None:
    """Hold locks in every way there is, in several tasks, until the process is ended."""
    held = await _hold_everything(manager, name, float(ttl))
    say("held")
    await asyncio.sleep(3600)
    del held


async def leave(manager: LockManager, name: str, ttl: str) -> None:
    """Return from the main coroutine while other tasks hold locks."""
    _KEPT.append(await _hold_everything(manager, name, float(ttl)))
    say("held")


async def leave_by_exit(manager: LockManager, name: str, ttl: str) -> None:
    """Let something else in the loop end the program while locks are held."""
    held = await _hold_everything(manager, name, float(ttl))
    say("held")

    def end() -> None:
        raise SystemExit(3)

    asyncio.get_running_loop().call_soon(end)
    await asyncio.sleep(3600)
    del held


_KEPT: list[object] = []


async def _hold_everything(manager: LockManager, name: str, ttl: float) -> list[object]:
    inside = asyncio.Semaphore(0)

    async def body(lock_name: str) -> None:
        async with manager.lock(lock_name, ttl=ttl):
            inside.release()
            await asyncio.sleep(3600)

    async def nested() -> None:
        async with manager.lock(f"{name}:outer", ttl=ttl), manager.lock(f"{name}:inner", ttl=ttl):
            inside.release()
            await asyncio.sleep(3600)

    async def wait() -> None:
        await manager.lock(f"{name}:0", ttl=ttl).acquire()

    tasks = [asyncio.create_task(body(f"{name}:{i}")) for i in range(5)]
    tasks.append(asyncio.create_task(nested()))
    lease = await manager.lock(f"{name}:plain", ttl=ttl).acquire()
    for _ in range(6):
        await inside.acquire()
    tasks.append(asyncio.create_task(wait()))  # for a lock that is held
    return [*tasks, lease]


async def fork(manager: LockManager, name: str) -> None:
    """Fork with a started manager and a held lock; the child tries to use them, the parent goes on."""
    async with manager, manager.lock(name, ttl=5) as lease:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _use_after_fork(manager, name)
        os.waitpid(child, 0)
        extensions = lease.extensions
        await lease.extend()
        lease.check()
        assert lease.extensions > extensions
        async with manager.lock(f"{name}:parent"):
            say("the parent goes on")


def _use_after_fork(manager: LockManager, name: str) -> None:
    try:
        asyncio.run(manager.lock(f"{name}:child").acquire())  # type: ignore[arg-type]
    except BaseException as error:  # noqa: BLE001 (the test reads which one it is)
        say(f"{type(error).__name__}: {error}")
    else:
        say("no error")
    finally:
        os._exit(0)


TASKS = {
    "count": count,
    "hurry": hurry,
    "take": take,
    "hold": hold,
    "leave": leave,
    "exit": leave_by_exit,
    "fork": fork,
}

# Of their managers: a waiter does not poll as long as a test lasts, once it listens.
OPTIONS = {"take": {"retry": RetryPolicy(cap=60.0)}}


def main() -> None:
    """Run one task."""
    task, urls, *arguments = sys.argv[1:]

    async def run() -> None:
        asyncio.get_running_loop().slow_callback_duration = 3600.0  # a busy machine is no complaint
        await TASKS[task](LockManager(urls.split(","), **OPTIONS.get(task, {})), *arguments)

    asyncio.run(run())


if __name__ == "__main__":
    main()
