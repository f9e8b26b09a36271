"""Several processes serve prices from a cache of two files; the one that finds it stale rebuilds it, once.

The files belong together: an index, which says on which line of the other file a price stands.  Readers share
the read lock, and never see one of them without the other.  The rebuilder writes under the write lock.

Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over five local ones of its own:

    python examples/catalogue_cache.py
"""

import asyncio
import json
import os
import random
import sys
import tempfile
from pathlib import Path

from aioredlock_ng import Lease, LockManager
from aioredlock_ng.testing import local_nodes

ITEMS = [f"item-{number}" for number in range(50)]
EDITIONS = 5  # of the catalogue
PROCESSES = 3
VISITORS = 10  # of each process, each of which looks one price up after the other


class Catalogue:
    """The source, `edition`, and the cache that was made of it: `index` and `prices`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def edition(self) -> int:
        """Return which one is valid now."""
        return int((self.folder / "edition").read_text())

    def publish(self, edition: int) -> None:
        """Let a new one be valid, whatever the cache has."""
        (self.folder / "new").write_text(str(edition))
        (self.folder / "new").replace(self.folder / "edition")  # one file can be replaced at once; two cannot

    def is_stale(self) -> bool:
        """Say whether the cache is of an earlier one; needs a lock, as all below."""
        index = self.folder / "index"
        return not index.exists() or json.loads(index.read_text())["edition"] < self.edition()

    async def look_up(self, item: str) -> int:
        """Return a price, which is the number of its edition."""
        line = json.loads((self.folder / "index").read_text())["lines"][item]
        await asyncio.sleep(0.002)  # time for a rebuilder to get in between, were it not for the lock
        name, price = (self.folder / "prices").read_text().splitlines()[line].split()
        if name != item:
            raise LookupError(f"{item} was looked up, and {name} found")
        return int(price)

    async def rebuild(self, lease: Lease) -> None:
        """Write both files; needs the write lock."""
        edition, shuffled = self.edition(), random.sample(ITEMS, len(ITEMS))
        lines = {item: line for line, item in enumerate(shuffled)}
        (self.folder / "prices").write_text("".join(f"{item} {edition}\n" for item in shuffled))
        await asyncio.sleep(0.02)  # the work
        lease.check()  # right before the write: is it still ours?
        # Last what says of which edition it is: a rebuilder that dies before leaves a cache that is stale.
        (self.folder / "index").write_text(json.dumps({"edition": edition, "lines": lines}))
        with (self.folder / "log").open("a") as log:
            log.write(f"{edition} {lease.fence}\n")

    def built(self) -> list[tuple[int, int]]:
        """Return which editions were built, with the fences of their builders; needs no lock."""
        log = (self.folder / "log").read_text().splitlines() if (self.folder / "log").exists() else []
        return [(int(edition), int(fence)) for edition, fence in map(str.split, log)]


async def price(manager: LockManager, catalogue: Catalogue, item: str) -> int:
    """Look a price up, in a cache that is not older than this call."""
    lock = manager.rwlock("catalogue", ttl=10, blocking_timeout=30)
    async with lock.read() as lease:  # beside all other readers
        if not catalogue.is_stale():
            return await catalogue.look_up(item)
    # A read lock never becomes a write lock: two readers that tried would wait for each other.  So let go,
    # and ask for the write lock, which tells whether another writer was faster.
    async with lock.write(since=lease) as lease:  # alone
        if lease.unchanged or catalogue.is_stale():
            await catalogue.rebuild(lease)
        await lease.downgrade()  # from here on others read, too, and no writer comes in between
        return await catalogue.look_up(item)


async def serve(urls: list[str], catalogue: Catalogue) -> None:
    async with LockManager(urls) as manager, asyncio.TaskGroup() as tasks:
        for _ in range(VISITORS):
            tasks.create_task(visit(manager, catalogue))


async def visit(manager: LockManager, catalogue: Catalogue) -> None:
    seen = 0
    while seen < EDITIONS:
        newest = catalogue.edition()
        found = await price(manager, catalogue, random.choice(ITEMS))
        if found < max(seen, newest):
            raise LookupError(f"edition {found} after {max(seen, newest)}")
        seen = found


async def run_servers(urls: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        catalogue = Catalogue(Path(folder))
        catalogue.publish(1)
        servers = [
            await asyncio.create_subprocess_exec(sys.executable, __file__, folder, *urls)
            for _ in range(PROCESSES)
        ]
        while (done := len(catalogue.built())) < EDITIONS:
            catalogue.publish(done + 1)
            await asyncio.sleep(0.02)
            if any(server.returncode for server in servers):
                break
        codes = [await server.wait() for server in servers]
        built = catalogue.built()
    if any(codes):
        sys.exit(f"servers failed: {codes}")
    fences = [fence for _, fence in built]
    if [edition for edition, _ in built] != list(range(1, EDITIONS + 1)) or fences != sorted(set(fences)):
        sys.exit(f"not once each, or with fences that do not grow: {built}")
    print(f"{len(built)} editions, each built once by one of {PROCESSES} processes, and read as a whole")


async def main() -> None:
    if urls := os.environ.get("REDLOCK_URLS"):
        await run_servers(urls.split(","))
    else:
        async with local_nodes(5) as nodes:
            await run_servers(nodes.urls)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(serve(sys.argv[2:], Catalogue(Path(sys.argv[1]))))
    else:
        asyncio.run(main())
