"""One process of a run: a shipping `LockManager`, and tasks that lock, work, fail and are cancelled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
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
)
from aioredlock_ng.events import Acquired, ClockStepped, Extended, Lost, NodeChanged, Refused
from aioredlock_ng.testing._memory_wire import Wire
from tests.simulation.history import Claim, Operation, Outcome
from tests.simulation.plan import ClientPlan, Plan
from tests.simulation.processes import Process
from tests.unit.worlds import Tripwire

if TYPE_CHECKING:
    from tests.simulation.world import World

QUOTA: Final = 12
"""Operations of one task, at most."""

LOOK: Final = 0.1
"""Seconds between looks how the nodes stand."""

SETTLING: Final = 1.2
"""Seconds in which a node that is reached again has been sent what it is owed: two heartbeats."""

MAX_STEPS: Final = 12
"""Pauses of an operation at one of which a stumbling task is cancelled."""


class BodyError(Exception):
    """What a body raises that fails for reasons of its own."""


@dataclass(slots=True)
class Holding:
    """A lease as its holder sees it: what becomes a claim."""

    task: int
    lease: Lease
    asked: float
    since: float
    lost_at: float | None = None


@dataclass(slots=True)
class Work:
    """One operation, as drawn."""

    names: tuple[str, ...]
    patience: float | None
    """Seconds that it waits for the lock; None: as long as it takes."""
    inside: float
    """Seconds that the body takes."""
    by_hand: bool
    """Whether it calls `acquire` and `release`, rather than using ``async with``."""
    extends_at: float | None
    fails: bool
    stumbles_at: int | None
    """At which of its pauses it is cancelled, if at any."""
    idle: float
    """Seconds until the next one."""


def draw_work(rng: random.Random, plan: Plan) -> Work:
    """Draw one operation."""
    two = len(plan.names) > 1 and rng.random() < 0.1
    long = rng.random() < 0.1
    inside = rng.uniform(0.5, 2.5) * plan.ttl if long else rng.expovariate(1 / 0.05)
    return Work(
        names=tuple(rng.sample(plan.names, 2)) if two else (rng.choice(plan.names),),
        patience=rng.choice((None, None, None, 0.0, rng.uniform(0.05, 3.0))),
        inside=inside,
        by_hand=rng.random() < 0.3,
        extends_at=rng.random() * inside if rng.random() < 0.15 else None,
        fails=rng.random() < 0.05,
        stumbles_at=rng.randint(1, MAX_STEPS) if rng.random() < 0.06 else None,
        idle=rng.expovariate(1 / 0.2),
    )


@dataclass(slots=True)
class Hooks:
    """Counts what a manager tells, and notes when a lease was lost."""

    client: Client
    counts: Counter[str] = field(default_factory=Counter)

    def on_acquired(self, event: Acquired) -> None:
        """Count a win."""
        self.counts["won at the first try" if event.attempts == 1 else "won after refusals"] += 1

    def on_refused(self, event: Refused) -> None:
        """Count a refusal."""
        self.counts["refused: taken" if event.taken else "refused: no quorum"] += 1

    def on_extended(self, event: Extended) -> None:
        """Count an extension."""
        self.counts["extended"] += 1
        self.counts["topped up in an extension"] += bool(event.topped_up)

    def on_lost(self, event: Lost) -> None:
        """Count a loss, and have it noted."""
        self.counts[f"lost: {event.reason}"] += 1
        self.client.lost(event.label)

    def on_node_changed(self, event: NodeChanged) -> None:
        """Count where a node stands."""
        self.counts[f"node {event.state}"] += 1

    def on_clock_stepped(self, _: ClockStepped) -> None:
        """Count a step of a node's clock."""
        self.counts["clock step seen"] += 1


class Client:
    """A process with a manager over its own wires to the nodes.

    Args:
        world: who asks.
        plan: what it is like.
        wires: its ways to the nodes.
    """

    def __init__(self, world: World, plan: ClientPlan, wires: list[Wire]) -> None:
        self.number = plan.number
        self.process = Process(world.timeline, rate=plan.rate, wall_offset=plan.wall_offset)
        self.hooks = Hooks(self)
        self.done = False
        self.statistics: Any = None
        self._world = world
        self._plan = plan
        self._wires = wires
        self._operations: dict[int, asyncio.Task[None]] = {}
        self._holdings: dict[int, Holding] = {}
        self._asking: dict[int, Operation] = {}  # what waits for a lock
        self._evening = asyncio.Event()
        self._stops_for = 0.0
        self.process.loop.set_exception_handler(self._stray)
        self.main = self.process.spawn(self._main())

    # -- what happens to it --------------------------------------------------------------------

    def cancel(self, task: int) -> None:
        """Cancel what one of its tasks is doing."""
        if operation := self._operations.get(task):
            operation.cancel()

    def stop_when_asking(self, seconds: float) -> None:
        """Be stopped for so long as soon as it has asked for a lock, before it can hear an answer."""
        self._stops_for = seconds

    def go_home(self) -> None:
        """End every body soon, and begin nothing new."""
        self._stops_for = 0.0
        self.process.go_on()
        self.process.loop.call_soon(self._evening.set)

    def lost(self, label: str) -> None:
        """Note that a task's lease is lost."""
        holding = self._holdings.get(int(label))
        if holding is not None and holding.lost_at is None:
            holding.lost_at = self._world.now

    def _stray(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._world.leak(f"client {self.number}: {context.get('message')}: {context.get('exception')!r}")

    def close_books(self) -> None:
        """Write down what a killed process was doing, and as claims what it held: until validity ends."""
        for task in list(self._holdings):
            self._claim(task)
        for operation in self._asking.values():
            self._world.record(replace(operation, ended=self.process.killed_at, note="killed"))

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
            tasks = [asyncio.create_task(self._task(manager, i)) for i in range(self._plan.tasks)]
            await asyncio.gather(*tasks)
            await self._evening.wait()
            for name in plan.names:  # is there life after all that?
                await self._operate(manager.lock(name, label="0"), 0, None)
            await self._settle(manager)
            self.statistics = manager.statistics()
        self.done = True

    async def _settle(self, manager: LockManager) -> None:
        """Wait until the nodes are reached again, and see that nothing of ours is left on them (R5)."""
        while any(node.state is not NodeState.UP for node in manager.statistics().nodes):
            await asyncio.sleep(LOOK)
        await asyncio.sleep(SETTLING)
        for what in self._world.left_of(self.number):
            self._world.leak(f"{what}, {SETTLING} s after its nodes were reached again")
        while any(node.owed for node in manager.statistics().nodes):
            await asyncio.sleep(LOOK)  # an acquire without an answer is doubted until its ttl is over

    async def _task(self, manager: LockManager, task: int) -> None:
        plan = self._world.plan
        rng = random.Random(f"{plan.seed} work {self.number} {task}")
        for _ in range(QUOTA):
            work = draw_work(rng, plan)
            if self._evening.is_set():
                return
            lock = manager.lock(*work.names, blocking_timeout=work.patience, label=str(task))
            run = self._operate(lock, task, work)
            if work.stumbles_at is not None:
                run = self._stumble(run, work.stumbles_at)
            operation = self._operations[task] = asyncio.create_task(run)
            await asyncio.wait((operation,))
            self._operations.pop(task)
            if not operation.cancelled() and (error := operation.exception()) is not None:
                self._world.leak(f"client {self.number}, task {task}: {error!r}")
            await self._nap(work.idle)

    @staticmethod
    async def _stumble(run: Any, step: int) -> None:
        await Tripwire(run, step, waking=step % 2 == 0)

    async def _nap(self, seconds: float) -> None:
        """Sleep, but not when it is time to go home."""
        waiter = asyncio.ensure_future(self._evening.wait())
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            waiter.cancel()

    async def _operate(self, lock: Lock, task: int, work: Work | None) -> None:
        """Acquire, work, release; write down what came of it."""
        asking = self._ask(lock, task, work)
        note = ""
        try:
            if work is not None and work.by_hand:
                lease = await lock.acquire()
                try:
                    await self._hold(lease, asking, work)
                finally:
                    await lease.release()
            else:
                async with lock as lease:
                    await self._hold(lease, asking, work)
        except LockNotAcquiredError as error:
            note = type(error).__name__
            if not error.votes and not str(error):
                self._world.leak(f"an error that says nothing: {error!r}")
        except (LockLostError, BodyError):
            pass
        except asyncio.CancelledError:
            note = "cancelled"
            raise
        finally:
            failed = Outcome.UNKNOWN if note == "cancelled" else Outcome.FAIL
            self._answered(task, failed, note)

    def _ask(self, lock: Lock, task: int, work: Work | None) -> Operation:
        """Note that a task wants a lock."""
        if self._stops_for:  # what it asks now still leaves: it is stopped after this turn
            self.process.stop(self._world.now + self._stops_for)
            self._stops_for = 0.0
        patient = work is None or work.patience is None
        asking = self._asking[task] = Operation(
            client=self.number,
            task=task,
            kind="acquire" if patient else "try",
            names=lock.names,
            began=self._world.now,
            ended=None,
            outcome=Outcome.UNKNOWN,
        )
        return asking

    def _answered(self, task: int, outcome: Outcome, note: str = "") -> None:
        """Note what became of that, unless it has been noted."""
        if asking := self._asking.pop(task, None):
            self._world.record(replace(asking, ended=self._world.now, outcome=outcome, note=note))

    async def _hold(self, lease: Lease, asking: Operation, work: Work | None) -> None:
        """Do what is done under a lease, and write the claim down."""
        task = asking.task
        self._answered(task, Outcome.OK)
        if lease.remaining <= 0:
            self._world.leak(f"client {self.number}, task {task} was given a lease that had ended (R3)")
        self._holdings[task] = Holding(task, lease, asking.began, self._world.now)
        try:
            await self._body(lease, task, work)
        finally:
            self._claim(task)

    def _claim(self, task: int) -> None:
        """Turn a holding into a claim: as long as its holder believed in it, by what it had been told."""
        holding = self._holdings.pop(task, None)
        if holding is None:
            return
        lease, now = holding.lease, self._world.now
        ends = [self.process.true_of(lease.valid_until)]
        if self.process.alive:
            ends += [now, *([] if holding.lost_at is None else [holding.lost_at])]
        self._world.claim(
            Claim(
                client=self.number,
                task=task,
                names=lease.names,
                owner=lease._holding.owner,
                fence=lease.fence,
                asked=holding.asked,
                since=holding.since,
                until=min(ends),
                stopped=now,
            )
        )

    async def _body(self, lease: Lease, task: int, work: Work | None) -> None:
        """Work under a lease: write under its fence, and update what only the lock protects."""
        world = self._world
        read = {name: world.resources.read(name) for name in lease.names}
        if work is not None:
            if work.extends_at is not None:
                await self._nap(work.extends_at)
                await self._extend(lease, task)
            await self._nap(work.inside)
            if work.fails:
                raise BodyError
        if not world.plan.stubborn:
            lease.check()  # no await between it and the writing
        for name in lease.names:
            if lease.fence is not None:
                world.resources.write(world.now, self.number, name, lease.fence)
            world.resources.update(world.now, self.number, name, read[name])

    async def _extend(self, lease: Lease, task: int) -> None:
        extending = Operation(
            client=self.number,
            task=task,
            kind="extend",
            names=lease.names,
            began=self._world.now,
            ended=None,
            outcome=Outcome.UNKNOWN,
        )
        outcome = Outcome.UNKNOWN
        try:
            await lease.extend()
            outcome = Outcome.OK
        except QuorumUnavailableError:
            pass
        finally:
            self._world.record(replace(extending, ended=self._world.now, outcome=outcome))
