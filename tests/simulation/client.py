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
)
from tests.simulation.bodies import Bodies, BodyError
from tests.simulation.history import Mode, Operation, Outcome
from tests.simulation.orphans import SETTLING
from tests.simulation.plan import POOL, ClientPlan
from tests.simulation.processes import Process
from tests.simulation.record import Record
from tests.simulation.wires import Wire
from tests.simulation.work import STEP, Hooks, Thrown, Work, draw_work, with_mode
from tests.unit.tasks import Tripwire

if TYPE_CHECKING:
    from tests.simulation.world import World

QUOTA: Final = 12
"""Operations of one task, at most."""

LOOK: Final = 0.1
"""Seconds between looks how the nodes stand."""


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
        self._bodies = Bodies(world, plan.number, self.record, nap=self._nap, in_step=self._in_step)
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
            operation.cancel()

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
        session = self._manager._life.session
        handed_off = (each.held for each in session.queue.inside() if each.held is not None)
        under_way = (*session.watchdog.leases, *session.in_flight, *handed_off)
        return self.record.owners() | {one.owner for one in under_way}

    @property
    def extends(self) -> bool:
        """Whether its watchdog extends leases."""
        return self._plan.extends

    def seats_in_use(self) -> set[bytes]:
        """Return what marks its calls at the nodes, of those that wait or hold a lock (R22)."""
        if self._manager is None:
            return set()
        entries = self._manager._life.session.queue.entries.values()
        tickets = [ticket for entry in entries for ticket in entry.inside]
        tickets += [place.contender for entry in entries for place in entry.queue or ()]
        return {ticket.seat.name for ticket in tickets}

    def contends(self, name: str) -> bool:
        """Whether a task of its has a lock, or asks for one (R28)."""
        if self._manager is None:
            return False
        entry = self._manager._life.session.queue.entries.get(name)
        return entry is not None and bool(entry.inside)

    def state_of(self, node: int) -> NodeState:
        """Return how one of its nodes stands for it; none does while it opens or closes."""
        if self._manager is None or self._manager._life.session.availability.closing:
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
            tasks = [asyncio.create_task(self._task(manager, i)) for i in range(self._plan.tasks)]
            await asyncio.gather(*tasks)
            await self._evening.wait()
            last = random.Random(f"{plan.seed} last modes {self.number}")
            for name in plan.names:  # is there life after all that?
                await self._operate(manager, 0, (name,), last.choice(plan.modes))
            self.served = True
            await self._settle(manager)
            self.statistics = manager.statistics()
            await self._keep_one(manager, last.choice(plan.modes))

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
        while any(node.pending_releases for node in manager.statistics().nodes):
            await asyncio.sleep(LOOK)  # an acquire without an answer is unresolved until its ttl is over

    async def _keep_one(self, manager: LockManager, mode: Mode) -> None:
        """Leave it to the manager to release a lease (R18)."""
        lock = self._described(manager, mode, self._world.plan.names[:1], blocking_timeout=0.0, label="0")
        asking, outcome = self.record.ask("try", 0, lock.names, mode), Outcome.FAIL
        with contextlib.suppress(LockNotAcquiredError):
            self._kept = await lock.acquire()  # kept, or it would be released as one that was dropped
            outcome = Outcome.OK
            self.record.believe(self._kept, asking, bound=False)
        self.record.answered(0, outcome)
        self.record.claim(0)

    async def _task(self, manager: LockManager, task: int) -> None:
        plan = self._world.plan
        rng = random.Random(f"{plan.seed} work {self.number} {task}")
        modes = random.Random(f"{plan.seed} modes {self.number} {task}")
        for _ in range(QUOTA):
            work = with_mode(modes, plan, draw_work(rng, plan))
            if self._evening.is_set():
                return
            if work.asks_in_step:
                await self._in_step()
            run = self._operate(manager, task, work.names, work.mode, work)
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

    async def _operate(
        self,
        manager: LockManager,
        task: int,
        names: tuple[str, ...],
        mode: Mode,
        work: Work | None = None,
    ) -> None:
        """Acquire, work, release; write down the outcome."""
        since = None
        if work is not None and work.follows and self._world.plan.fencing:
            since = self.record.last_read.get(task)
        names = names if since is None else since.names
        patience = None if work is None else work.patience
        lock = self._described(manager, mode, names, since=since, blocking_timeout=patience, label=str(task))
        if self._stops_for:  # what it asks now still leaves: it is stopped after this turn
            self.process.stop(self._world.now + self._stops_for)
            self._stops_for = 0.0
        asking = self.record.ask("acquire" if patience is None else "try", task, lock.names, mode)
        note = ""
        try:
            if work is not None and work.by_hand:
                lease = await lock.acquire()
                try:
                    await self._hold(lease, asking, work, since)
                finally:
                    await self._bodies.release(lease, task)
            else:
                async with lock as lease:
                    await self._hold(lease, asking, work, since)
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

    async def _hold(self, lease: Lease, asking: Operation, work: Work | None, since: Lease | None) -> None:
        """Do what is done under a lease, and write the claim down."""
        task = asking.task
        self.record.answered(task, Outcome.OK)
        bound = (work is None or not work.by_hand) and not self._world.plan.stubborn
        self.record.believe(lease, asking, bound=bound, since=since)
        try:
            await self._bodies.run(lease, task, work)
        finally:
            self.record.claim(task)

    def _described(
        self,
        manager: LockManager,
        mode: Mode,
        names: tuple[str, ...],
        *,
        since: Lease | None = None,
        **options: Any,
    ) -> Lock:
        """Describe the lock that is wanted; permits are those of a name of their own (R19)."""
        if mode == "permit":
            return manager.semaphore(POOL, permits=self._plan.permits, **options)
        if mode == "fair":
            return manager.lock(names[0], fair=True, **options)
        if mode == "lock":
            return manager.lock(*names, **options)
        both = manager.rwlock(*names, **options)
        return both.read() if mode == "read" else both.write(since=since)
