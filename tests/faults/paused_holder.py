"""A process that is paused while it holds a lock: ``python paused_holder.py HOW TTL PATH URL,URL,…``.

It prints ``inside`` when it has the lock, and what it saw, as JSON, at its end.  With the fence of its lease
it writes to the account in the SQLite file ``PATH``, and writes again when a line orders it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

from fenced_sqlite import Account

from aioredlock_ng import ExtensionPolicy, Lease, LockLostError, LockManager
from aioredlock_ng.events import LoopStalled

OBJECTS: Final = 1_000_000  # how many the collector has to look at


class SuspendedLoop(asyncio.SelectorEventLoop):
    """A loop whose timers stand still during suspend, as they do on a machine that sleeps."""

    asleep = 0.0

    def time(self) -> float:
        """Return the time that timers go by."""
        return super().time() - self.asleep


@dataclass
class Stalls:
    """A hook that remembers them."""

    events: list[LoopStalled] = field(default_factory=list)

    def on_loop_stalled(self, event: LoopStalled) -> None:
        """Note it."""
        self.events.append(event)


async def freeze(_lease: Lease) -> float:
    """Stop until SIGCONT comes; return for how long."""
    began = time.monotonic()
    os.kill(os.getpid(), signal.SIGSTOP)
    return time.monotonic() - began


async def suspend(lease: Lease) -> float:
    """Stop, as a part of a machine that stops."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SuspendedLoop)
    stopped = await freeze(lease)
    loop.asleep += stopped
    return stopped


async def block(lease: Lease) -> float:
    """Keep the loop busy until the lease has ended."""
    began = time.monotonic()
    while lease.held:
        time.sleep(0.05)
    return time.monotonic() - began


async def collect(lease: Lease) -> float:
    """Have the collector look at everything: once, which is survived, and until the lease has ended."""
    gc.collect()
    extensions = lease.extensions
    while lease.extensions == extensions:
        await asyncio.sleep(0.01)
    lease.check()
    began = time.monotonic()
    while lease.held:
        gc.collect()
    return time.monotonic() - began


PAUSES: Final = {"freeze": freeze, "suspend": suspend, "block": block, "collect": collect}

# Seldom enough that it is not the next extension that finds the lease ended.
EVERY: Final = {"freeze": 0.7, "suspend": 0.7, "block": 0.7}


async def hold(how: str, ttl: float, path: str, urls: list[str]) -> dict[str, Any]:
    """Take the lock, be paused, and tell what was seen."""
    account, stalls, saw = Account(path), Stalls(), dict[str, Any]()
    objects = [[number] for number in range(OBJECTS)] if how == "collect" else []
    policy = ExtensionPolicy(every=EVERY.get(how, 1 / 3))
    async with LockManager(urls, ttl=ttl, extension=policy, hooks=[stalls]) as manager:
        with contextlib.suppress(LockLostError):
            async with manager.lock("account") as lease:
                saw["fence"], saw["wrote"] = lease.fence, await account.write(101, lease.fence)
                print("inside", flush=True)
                await asyncio.sleep(0.05)  # or the watchdog would be about to look at the new lease anyway
                saw["paused"] = await PAUSES[how](lease)
                saw["held"], began = lease.held, time.monotonic()
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    saw["cancelled_after"] = time.monotonic() - began
                    raise
            saw["left"] = "without an error"
        await asyncio.to_thread(sys.stdin.readline)
        saw["wrote_again"] = await account.write(102, lease.fence)
        stall = max(stalls.events, key=lambda event: event.seconds)
        objects.clear()
        saw["stall"], saw["suspended"] = stall.seconds, stall.suspended
    return saw


if __name__ == "__main__":
    _, how, ttl, path, urls = sys.argv
    with asyncio.Runner(loop_factory=SuspendedLoop) as runner:
        print(json.dumps(runner.run(hold(how, float(ttl), path, urls.split(",")))))
