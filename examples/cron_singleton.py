"""A job that cron starts on every host at the same time, and that one of them does.

Needs the nodes in `REDLOCK_URLS` (separated by commas); in the crontab of each host:

    REDLOCK_URLS=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
    0 3 * * *  python examples/cron_singleton.py

Any other command becomes such a job without Python, by the command line:

    0 3 * * *  aioredlock-ng run -n -E 0 --at-least 30 nightly -- /usr/local/bin/nightly
"""

import asyncio
import os
import socket

from aioredlock_ng import ExtensionPolicy, LockManager

SPREAD = 30.0
"""Seconds by which the hosts' clocks may differ: without it a late host would do a faster job again."""

UNBOUNDED = ExtensionPolicy(max_extensions=None)  # the job takes the time it takes


async def report() -> None:
    print(f"the nightly report, by {socket.gethostname()}:{os.getpid()}")


async def main() -> None:
    async with LockManager.from_env() as manager:
        lease = await manager.lock("nightly", at_least=SPREAD, extension=UNBOUNDED).try_acquire()
        if lease is None:
            return  # another host does it
        async with lease:  # from here on a loss cancels the job
            await report()


if __name__ == "__main__":
    asyncio.run(main())
