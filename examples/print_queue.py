"""Offices share one printer: a fair lock serves them first come, first served, and the line can be seen.

Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over five local ones of its own:

    python examples/print_queue.py
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from aioredlock_ng import LockManager, QueueInspection
from aioredlock_ng.testing import local_nodes

OFFICES = ("north", "east", "south", "west")
PAGES = 3  # of each office


async def print_pages(urls: list[str], printer: Path, office: str) -> None:
    """Be an office, a process of its own: print some pages, each as soon as it is this office's turn."""
    async with LockManager(urls, holder=office) as manager:
        for page in range(PAGES):
            async with manager.lock("printer", fair=True) as lease:
                await asyncio.sleep(0.02)  # the printer works
                lease.check()
                with printer.open("a") as out:
                    out.write(f"{office} {page}\n")


async def line_of(manager: LockManager, length: int) -> QueueInspection:
    """Wait until so many stand in line."""
    while True:
        queue = await manager.queue("printer")
        if len(queue.waiters) >= length:
            return queue
        await asyncio.sleep(0.02)


async def serve(urls: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        printer = Path(name) / "printer"
        async with LockManager(urls, holder="the caretaker") as manager:
            processes = []
            async with manager.lock("printer", fair=True):  # while the toner is changed
                for length, office in enumerate(OFFICES, 1):
                    command = (sys.executable, __file__, str(printer), office, *urls)
                    processes.append(await asyncio.create_subprocess_exec(*command))
                    queue = await line_of(manager, length)
                print("in line:", ", ".join(f"{each.holder} at {each.place}" for each in queue.waiters))
            codes = [await process.wait() for process in processes]
        if any(codes):
            sys.exit(f"offices failed: {codes}")
        pages = [line.split() for line in printer.read_text().splitlines()]
    print(f"{len(pages)} pages printed, in this order:", " ".join(office for office, _ in pages))


async def main() -> None:
    if urls := os.environ.get("REDLOCK_URLS"):
        await serve(urls.split(","))
    else:
        async with local_nodes(5) as nodes:
            await serve(nodes.urls)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(print_pages(sys.argv[3:], Path(sys.argv[1]), sys.argv[2]))
    else:
        asyncio.run(main())
