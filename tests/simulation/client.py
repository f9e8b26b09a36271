"""One process of a run: a shipping `LockManager`, and tasks that lock, work, fail and are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng import (
    ExtensionPolicy,
    Lease,
    Lock,
    LockLostError,
    LockManager,
    LockNotAcquiredError,
    NodeState,
    QuorumUnavailableError,
    ReleaseOutcome,
)
from aioredlock_ng.testing._memory_wire import Wire
from tests.simulation.history import Operation, Outcome
from tests.simulation.hits import count_batches
from tests.simulation.orphans import SETTLING
from tests.simulation.plan import ClientPlan
from tests.simulation.processes import Process
from tests.simulation.record import Record
from tests.simulation.work import STEP, Hooks, Thrown, Work, draw_work
from tests.unit.worlds import Tripwire

if TYPE_CHECKING:
    from tests.simulation.world import World

QUOTA: Final = 12
"""Operations of one task, at most."""

LOOK: Final = 0.1
"""Seconds between looks how the nodes stand."""


class BodyError(Exception):
    """What a body raises that fails for reasons of its own."""


class Client:
    """A process with a manager over its own wires to the nodes.

    Args:
        world: what it lives in.
        plan: what it is like.
        wires: its ways to the nodes.
    """

    def __init__(self, world: World, plan: ClientPlan, wires: list[Wire]) -> None:
        self.number = plan.number
        self.process = Process(world.timeline, rate=plan.rate, wall_offset=plan.wall_offset)
        self.record = Record(world, plan, self.process)
        self.hooks = Hooks(self.record)
        self.served = False
        """Whether it has had its last locks."""
        self.statistics: Any = None
        self._world = world
        self._plan = plan
        self._wires = wires
        self._operations: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()  # those that were cancelled on purpose
        self._evening = asyncio.Event()
        self._stops_for = 0.0
        self._kept: Lease | None = None
        self._step: asyncio.Future[None] | None = None
        self._manager: LockManager | None = None
        self.process.loop.set_exception_handler(self.record.stray)
        self.main = self.process.spawn(self._main())

    # -- what happens to it --------------------------------------------------------------------

    def cancel(self, task: int) -> None:
        """Cancel what one of its tasks is doing."""
        if operation := self._operations.get(task):
            self._cancelled.add(task)
            if operation.cancel():
                self._world.counts[f"hit: cancelled while {self.record.doing(task)}"] += 1

    def stop_when_asking(self, seconds: float) -> None:
        """Be stopped for so long as soon as it has asked for a lock, before it can hear an answer."""
        self._stops_for = seconds

    def go_home(self) -> None:
        """End every body soon, and begin nothing new."""
        self._stops_for = 0.0
        self.process.go_on()
        self.process.loop.call_soon(self._evening.set)

    # -- how it stands -------------------------------------------------------------------------

    def owners_in_use(self) -> set[bytes]:
        """Return the owner values that it asks or holds locks with."""
        if self._manager is None:
            return set()
        runtime = self._manager._life.runtime
        untaken = runtime.holdings.succession._untaken
        under_way = (*runtime.holdings.all, *runtime.tries.in_flight, *untaken)
        return self.record.owners() | {one.owner for one in under_way}

    def state_of(self, node: int) -> NodeState:
        """Return how one of its nodes stands for it; none does while it opens or closes."""
        if self._manager is None or self._manager._life.runtime.availability.closing:
            return NodeState.DOWN
        return self._manager.statistics().nodes[node].state

    # -- its work ------------------------------------------------------------------------------

    async def _main(self) -> None:
        plan = self._world.plan
        manager = LockManager(
            self._wires,
            clock=self.process,
            random=random.Random(f"{plan.seed} manager {self.number}"),
            hooks=[self.hooks],
            holder=f"c{self.number}",
            ttl=plan.ttl,
            fencing=plan.fencing,
            restart_quarantine=plan.quarantine,
            extension=ExtensionPolicy() if self._plan.extends else ExtensionPolicy.off(),
            on_lost="raise" if plan.stubborn else "cancel",
        )
        async with manager:
            self._manager = manager
            count_batches(manager._life.runtime.tries.outbox, self._world.counts)
            tasks = [asyncio.create_task(self._task(manager, i)) for i in range(self._plan.tasks)]
            await asyncio.gather(*tasks)
            await self._evening.wait()
            for name in plan.names:  # is there life after all that?
                await self._operate(manager.lock(name, label="0"), 0, None)
            self.served = True
            await self._settle(manager)
            self.statistics = manager.statistics()
            await self._keep_one(manager)

    async def _settle(self, manager: LockManager) -> None:
        """Wait until the nodes are reached again, and see that nothing of ours is left on them (R5).

        What was lost may be sent again for seconds, while answers to what came before still trickle in: so a
        node must also have been seen without an open question.
        """
        reached_for, asked = 0.0, set(self._wires)
        while asked or reached_for < SETTLING:
            await asyncio.sleep(LOOK)
            nodes = manager.statistics().nodes
            if all(node.state is NodeState.UP for node in nodes):
                reached_for += LOOK
                asked -= {wire for wire, node in zip(self._wires, nodes, strict=True) if not node.in_flight}
            else:
                reached_for, asked = 0.0, set(self._wires)
        for what in self._world.left_of(self.number):
            self._world.leak(f"{what}, {SETTLING} s after its nodes were reached again")
        while any(node.owed for node in manager.statistics().nodes):
            await asyncio.sleep(LOOK)  # an acquire without an answer is unresolved until its ttl is over

    async def _keep_one(self, manager: LockManager) -> None:
        """Leave it to the manager to release a lease (R18)."""
        lock = manager.lock(self._world.plan.names[0], blocking=False, label="0")
        asking, outcome = self.record.ask("try", 0, lock.names), Outcome.FAIL
        with contextlib.suppress(LockNotAcquiredError):
            self._kept = await lock.acquire()  # kept, or it would be released as one that was dropped
            outcome = Outcome.OK
            self.record.believe(self._kept, asking, bound=False)
        self.record.answered(0, outcome)
        self.record.claim(0)

    async def _task(self, manager: LockManager, task: int) -> None:
        plan = self._world.plan
        rng = random.Random(f"{plan.seed} work {self.number} {task}")
        for _ in range(QUOTA):
            work = draw_work(rng, plan)
            if self._evening.is_set():
                return
            if work.asks_in_step:
                await self._in_step()
            lock = manager.lock(*work.names, blocking_timeout=work.patience, label=str(task))
            run = self._operate(lock, task, work)
            self._cancelled.discard(task)
            if work.stumbles_at is not None:
                self._cancelled.add(task)
                run = self._stumble(run, work.stumbles_at, at_once=work.stumbles_at_once)
            operation = self._operations[task] = asyncio.create_task(run)
            await asyncio.wait((operation,))
            self._operations.pop(task)
            if operation.cancelled():
                if task not in self._cancelled:
                    self.record.wrong(task, "was cancelled without a cause (R7)")
            elif (error := operation.exception()) is not None:
                self.record.wrong(task, f"failed: {error!r}")
            await self._nap(work.idle)

    @staticmethod
    async def _stumble(run: Any, step: int, *, at_once: bool) -> None:
        await (Thrown(run, step) if at_once else Tripwire(run, step, waking=step % 2 == 0))

    async def _in_step(self) -> None:
        """Wait a moment, and go on in one turn of the loop with all tasks that do so; not in the evening."""
        if self._evening.is_set():
            return
        if self._step is None or self._step.done():
            self._step = self.process.loop.create_future()
            self.process.loop.call_later(STEP, self._step.set_result, None)
        await asyncio.wait((self._step,))

    async def _nap(self, seconds: float) -> None:
        """Sleep, but not when it is time to go home."""
        waiter = asyncio.ensure_future(self._evening.wait())
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            waiter.cancel()

    async def _operate(self, lock: Lock, task: int, work: Work | None) -> None:
        """Acquire, work, release; write down what came of it."""
        if self._stops_for:  # what it asks now still leaves: it is stopped after this turn
            self.process.stop(self._world.now + self._stops_for)
            self._world.counts["hit: stopped with its question on the way"] += 1
            self._stops_for = 0.0
        patient = work is None or work.patience is None
        asking = self.record.ask("acquire" if patient else "try", task, lock.names)
        note = ""
        try:
            if work is not None and work.by_hand:
                lease = await lock.acquire()
                try:
                    await self._hold(lease, asking, work)
                finally:
                    await self._release(lease, task)
            else:
                async with lock as lease:
                    await self._hold(lease, asking, work)
        except LockNotAcquiredError as error:
            note = type(error).__name__
            self.record.refused(error, asking, work)
        except (LockLostError, BodyError):
            pass
        except asyncio.CancelledError:
            note = "cancelled"
            raise
        finally:
            failed = Outcome.UNKNOWN if note == "cancelled" else Outcome.FAIL
            self.record.answered(task, failed, note)

    async def _hold(self, lease: Lease, asking: Operation, work: Work | None) -> None:
        """Do what is done under a lease, and write the claim down."""
        task = asking.task
        self.record.answered(task, Outcome.OK)
        bound = (work is None or not work.by_hand) and not self._world.plan.stubborn
        self.record.believe(lease, asking, bound=bound)
        try:
            await self._body(lease, task, work)
        finally:
            self.record.claim(task)

    async def _body(self, lease: Lease, task: int, work: Work | None) -> None:
        """Work under a lease: write under its fence, and update what only the lock protects."""
        world = self._world
        read = {name: world.resources.read(name) for name in lease.names}
        if work is not None:
            if work.extends_at is not None:
                await self._nap(work.extends_at)
                await self._extend(lease, task)
            await self._work(lease, work)
            if work.fails:
                raise BodyError
        if not world.plan.stubborn:
            lease.check()  # no await between it and the writing
        for name in lease.names:
            if lease.fence is not None:
                accepted = world.resources.write(
                    world.now, self.number, name, lease._holding.owner, lease.fence
                )
                if not accepted and world.plan.timed and not world.plan.stubborn:
                    self.record.wrong(task, "held a lock whose resource had seen a greater fence")
            world.resources.update(world.now, self.number, name, read[name])

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
        extending, outcome = self.record.begin("extend", task, lease), Outcome.UNKNOWN
        try:
            await lease.extend()
            outcome = Outcome.OK
        except QuorumUnavailableError:
            pass
        finally:
            self.record.end(extending, outcome)

    async def _release(self, lease: Lease, task: int) -> None:
        releasing, outcome = self.record.begin("release", task, lease), Outcome.UNKNOWN
        try:
            report = await lease.release()
            if all(node.outcome is not ReleaseOutcome.UNKNOWN for node in report.nodes):
                outcome = Outcome.OK
        finally:
            self.record.end(releasing, outcome)
