"""Several worker processes share a list of items; a lock per item keeps two of them off the same one.

Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over five local ones of its own:

    python examples/worker_pool.py
"""

import asyncio
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from aioredlock_ng import LockLostError, LockManager
from aioredlock_ng.testing import local_nodes

ITEMS = [f"item-{number:02}" for number in range(40)]
WORKERS = 3
TASKS = 4  # of one worker
LOOK_AGAIN = 0.05  # seconds; another worker's item may be free again, when that one has died


async def handle(item: str, done: Path) -> None:
    await asyncio.sleep(0.01)  # the work
    with (done / item).open("x") as mark:  # fails if the item was handled before
        mark.write(str(os.getpid()))


async def take(manager: LockManager, done: Path) -> None:
    while open_items := [item for item in ITEMS if not (done / item).exists()]:
        random.shuffle(
            open_items
        )  # workers that go through the same list in step only get in each other's way
        for item in open_items:
            # The label is one for all items: metrics by item would be as many as there are items.
            lease = await manager.lock(f"pool:{item}", ttl=5, label="pool:{item}").try_acquire()
            if lease is None:
                continue  # another worker is at it
            try:
                async with lease:
                    if not (
                        done / item
                    ).exists():  # look again: it may have been done before the lock was ours
                        await handle(item, done)
            except LockLostError as error:
                print(f"{item} is given up: {error}", file=sys.stderr)  # the next worker begins anew
        await asyncio.sleep(LOOK_AGAIN)


async def work(urls: list[str], done: Path) -> None:
    async with LockManager(urls) as manager, asyncio.TaskGroup() as tasks:
        for _ in range(TASKS):
            tasks.create_task(take(manager, done))


def shares(done: Path) -> list[int]:
    """Return how many items each process has done."""
    return sorted(Counter(mark.read_text() for mark in done.iterdir()).values())


async def run_workers(urls: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            await asyncio.create_subprocess_exec(sys.executable, __file__, folder, *urls)
            for _ in range(WORKERS)
        ]
        codes = [await worker.wait() for worker in workers]
        done = shares(Path(folder))
    if any(codes):
        sys.exit(f"workers failed: {codes}")
    print(f"{sum(done)} items done once each, by {len(done)} processes: {done}")


async def main() -> None:
    if urls := os.environ.get("REDLOCK_URLS"):
        await run_workers(urls.split(","))
    else:
        async with local_nodes(5) as nodes:
            await run_workers(nodes.urls)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(sys.argv[2:], Path(sys.argv[1])))
    else:
        asyncio.run(main())
