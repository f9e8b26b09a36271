"""A scheduler of several processes: one of them leads and plans the jobs, the others follow and stand by.

The leader is killed; another one goes on where it stopped.  Each job is planned once: the table takes no
row of a term that is over.  Runs over the nodes in `REDLOCK_URLS` (separated by commas), else over three of
its own:

    python examples/scheduler.py
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sqlite3
import sys
import tempfile
from dataclasses import dataclass

from aioredlock_ng import Election, Leader, Leadership, LockManager
from aioredlock_ng.testing import local_nodes

SCHEDULERS = ("anna", "berta", "carla")
TTL = 1.0  # seconds until another one leads when a leader has died
JOBS = 20

TABLE = "CREATE TABLE plan (job INTEGER PRIMARY KEY, term INTEGER NOT NULL, planned_by TEXT NOT NULL)"

# The next job; no row if a later leader was here, whatever this one believes.
PLAN = """
INSERT INTO plan SELECT coalesce(max(job), 0) + 1, :term, :label FROM plan
HAVING coalesce(max(term), 0) <= :term RETURNING job
"""


@dataclass
class Scheduler:
    """One of them, in a process of its own."""

    election: Election
    label: str
    path: str

    async def run(self) -> None:
        """Follow the leader, and lead when elected; until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.follow())
            tasks.create_task(self.election.run(self.lead))

    async def lead(self, leadership: Leadership) -> None:
        """Plan one job after the other; cancelled before another one can lead."""
        accepted = True
        while accepted:
            accepted = self.plan(leadership)
            await asyncio.sleep(0.05)  # the time between two jobs

    def plan(self, leadership: Leadership) -> bool:
        """Return whether the table has taken the next job."""
        with contextlib.closing(sqlite3.connect(self.path)) as db, db:
            known = {"term": leadership.term, "label": leadership.holder}
            return db.execute(PLAN, known).fetchone() is not None

    async def follow(self) -> None:
        """Know which one leads: to send it what is to be planned, say."""
        async for leader in self.election.observe():
            if not leader:
                print(f"{self.label}: none leads, or it is cut off from the nodes", flush=True)
            elif leader.holder != self.label:
                print(f"{self.label}: follows {leader.holder}", flush=True)


async def schedule(urls: list[str], label: str, path: str) -> None:
    async with LockManager(urls) as manager:
        scheduler = Scheduler(manager.election("scheduler", ttl=TTL, holder=label), label, path)
        running = asyncio.create_task(scheduler.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await running


def process(urls: list[str], label: str, path: str) -> None:
    asyncio.run(schedule(urls, label, path))


def planned(path: str) -> list[tuple[int, int, str]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT job, term, planned_by FROM plan ORDER BY job").fetchall()


async def some_jobs(path: str) -> None:
    """Wait until half of the jobs are planned, from now on."""
    enough = len(planned(path)) + JOBS // 2
    for _ in range(600):
        await asyncio.sleep(0.05)
        if len(planned(path)) >= enough:
            return
    sys.exit(f"no jobs are planned any more: {planned(path)}")


async def present_leader(urls: list[str]) -> Leader:
    async with LockManager(urls) as manager:
        async for leader in manager.election("scheduler").observe():
            if leader:
                return leader
    raise AssertionError("the manager was open")


async def show(urls: list[str], path: str) -> None:
    """Start them all, kill the leader half-way, and look at the plan."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(TABLE)
    spawn = multiprocessing.get_context("spawn")
    schedulers = {label: spawn.Process(target=process, args=(urls, label, path)) for label in SCHEDULERS}
    try:
        for each in schedulers.values():
            each.start()
        await some_jobs(path)
        leader = await present_leader(urls)
        schedulers[leader.holder].kill()
        print(f"{leader.holder} leads, and is killed", flush=True)
        await some_jobs(path)
    finally:
        for each in schedulers.values():
            each.terminate()
            await asyncio.to_thread(each.join)

    plan = planned(path)
    jobs, terms = [job for job, _, _ in plan], [term for _, term, _ in plan]
    if jobs != list(range(1, len(plan) + 1)) or terms != sorted(terms):
        sys.exit(f"the plan is out of order: {plan}")
    leaders = list(dict.fromkeys(label for _, _, label in plan))
    print(f"each job was planned once, by {' and then '.join(leaders)}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/plan.sqlite"
        if urls := os.environ.get("REDLOCK_URLS"):
            await show(urls.split(","), path)
        else:
            async with local_nodes(3) as nodes:
                await show(nodes.urls, path)


if __name__ == "__main__":
    asyncio.run(main())
