"""Several worker processes share four devices: a semaphore says who may work, and on which device.

Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over five local ones of its own:

    python examples/gpu_pool.py
"""

import asyncio
import os
import random
import sys
import tempfile
from pathlib import Path

from aioredlock_ng import Lease, LockManager
from aioredlock_ng.testing import local_nodes

DEVICES = 4
WORKERS = 3
JOBS = 8  # of each worker, all at once: more than there are devices


async def train(lease: Lease, folder: Path, job: str) -> None:
    """Work on the device that is ours; a real program would set CUDA_VISIBLE_DEVICES to the slot."""
    with (folder / f"device-{lease.slot}").open("x"):  # fails if another job is on that device
        await asyncio.sleep(random.uniform(0.01, 0.03))  # the work
        lease.check()
    (folder / f"device-{lease.slot}").unlink()
    (folder / f"done-{job}").write_text(f"{lease.slot} {os.getpid()}")


async def run_job(manager: LockManager, folder: Path, job: str) -> None:
    async with manager.semaphore("gpu", permits=DEVICES, ttl=5) as lease:
        await train(lease, folder, job)


async def work(urls: list[str], folder: Path) -> None:
    async with LockManager(urls) as manager, asyncio.TaskGroup() as tasks:
        for number in range(JOBS):
            tasks.create_task(run_job(manager, folder, f"{os.getpid()}-{number}"))


def marks(folder: Path) -> list[list[str]]:
    """Return the device and the process of each job that was done."""
    return [mark.read_text().split() for mark in folder.glob("done-*")]


async def run_workers(urls: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        workers = [
            await asyncio.create_subprocess_exec(sys.executable, __file__, name, *urls)
            for _ in range(WORKERS)
        ]
        codes = [await worker.wait() for worker in workers]
        done = marks(Path(name))
    if any(codes):
        sys.exit(f"workers failed: {codes}")
    devices, processes = {slot for slot, _ in done}, {process for _, process in done}
    print(
        f"{len(done)} jobs done on {len(devices)} devices, one at a time on each, "
        f"by {len(processes)} processes"
    )


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
