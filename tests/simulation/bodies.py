"""The work of the tasks of a simulated process under their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aioredlock_ng import Lease, ReleaseOutcome
from tests.simulation.history import places
from tests.simulation.record import Record
from tests.simulation.work import Work

if TYPE_CHECKING:
    from tests.simulation.world import World


class BodyError(Exception):
    """Raised by a body that fails for reasons of its own."""


class Bodies:
    """The bodies of one process.

    Args:
        world: what they read and write.
        number: of the process.
        record: where it is written down.
        nap: sleeps, but not for longer than there is time.
        in_step: waits until other tasks of the process go on, too.
    """

    def __init__(
        self,
        world: World,
        number: int,
        record: Record,
        *,
        nap: Callable[[float], Awaitable[None]],
        in_step: Callable[[], Awaitable[None]],
    ) -> None:
        self._world = world
        self._number = number
        self._record = record
        self._nap = nap
        self._in_step = in_step

    async def run(self, lease: Lease, task: int, work: Work | None) -> None:
        """Work under a lease: read what it protects, and write, unless it is a reader's."""
        writes, seen = lease.mode != "read", self._read(lease)
        if not writes:
            self._put_down(lease, task)
        if work is not None:
            if work.extends_at is not None:
                await self._nap(work.extends_at)
                await self._extend(lease, task)
            if work.downgrades_at is not None:
                await self._nap(work.downgrades_at)
                seen = await self._become_a_reader(lease, task, seen)
                writes = False
            await self._work(lease, work)
            if work.fails:
                raise BodyError
        self._check(lease)  # no await between it and the writing
        if writes:
            self._write(lease, task, seen)
        else:
            self._look_again(lease, seen)

    async def release(self, lease: Lease, task: int) -> None:
        """Release it by hand."""
        with self._record.noting("release", task, lease) as doubts:
            report = await lease.release()
            doubts += [node for node in report.nodes if node.outcome is ReleaseOutcome.UNKNOWN]

    # -- what the lock protects ----------------------------------------------------------------

    def _read(self, lease: Lease) -> dict[str, int]:
        return {name: self._world.resources.read(name) for name in _places(lease)}

    def _check(self, lease: Lease) -> None:
        """See that it is still held, as a body should."""
        if not self._world.plan.stubborn:
            lease.check()

    def _write(self, lease: Lease, task: int, seen: dict[str, int]) -> None:
        """Write under its fence, and update what only the lock protects."""
        self._put_down(lease, task)
        for name in _places(lease):
            self._world.resources.update(self._world.now, self._number, name, seen[name])

    def _put_down(self, lease: Lease, task: int) -> None:
        """Show the fence to what compares fences: a writer with what it writes, a reader before it reads."""
        world = self._world
        for name in _places(lease) if lease._holding.fence else ():
            accepted = world.resources.write(
                world.now,
                self._number,
                name,
                lease._holding.owner,
                lease.fence,
                reads=lease.mode == "read",
            )
            if not accepted and world.plan.timed and not world.plan.stubborn:
                self._record.wrong(task, "held a lock whose resource had seen a greater fence")

    def _look_again(self, lease: Lease, seen: dict[str, int]) -> None:
        """Read what must not have changed while it was read."""
        for name in _places(lease):
            self._world.resources.look(self._world.now, self._number, name, seen[name])

    # -- the lease -----------------------------------------------------------------------------

    async def _work(self, lease: Lease, work: Work) -> None:
        try:
            await self._nap(work.inside)
            if work.leaves_in_step:
                await self._in_step()
        except asyncio.CancelledError:
            while work.lingers and lease.lost.is_set() and lease.remaining > 0:
                await asyncio.sleep(lease.remaining)  # its clean-up takes as long as it may
            raise

    async def _extend(self, lease: Lease, task: int) -> None:
        with self._record.noting("extend", task, lease):
            await lease.extend()

    async def _become_a_reader(self, lease: Lease, task: int, seen: dict[str, int]) -> dict[str, int]:
        """Write, and read on; returns what is read from now on (R23)."""
        self._check(lease)
        self._write(lease, task, seen)
        seen = self._read(lease)
        with self._record.noting("downgrade", task, lease):
            self._record.downgrade(task)
            await lease.downgrade()
        return seen


def _places(lease: Lease) -> tuple[str, ...]:
    """Return what a lease protects: its names, or of a semaphore what its slot stands for (R25)."""
    return places(lease.names, lease._holding.slot)
