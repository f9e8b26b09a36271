"""One process of a run: a shipping `LockManager`, and tasks that lock, work, fail and are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng import (
    ExtensionPolicy,
    Lease,
    Lock,
    LockLostError,
    LockManager,
    LockNotAcquiredError,
    LossReason,
    NodeState,
    QuorumUnavailableError,
    ReleaseOutcome,
    Vote,
)
from aioredlock_ng.testing._memory_wire import Wire
from tests.simulation.history import Claim, Operation, Outcome
from tests.simulation.plan import ClientPlan
from tests.simulation.processes import Process
from tests.simulation.work import Hooks, Work, draw_work
from tests.unit.worlds import Tripwire

if TYPE_CHECKING:
    from tests.simulation.world import World

QUOTA: Final = 12
"""Operations of one task, at most."""

LOOK: Final = 0.1
"""Seconds between looks how the nodes stand."""

NODE_TIMEOUT: Final = 0.1
"""Seconds, the default: what a refusal may come late by."""

LATENESS: Final = 0.03
"""Seconds beyond that: two slow messages, and clocks that go wrong."""

REACTION: Final = 0.3
"""Seconds after standing still in which a process notices what has ended: a tick of the watchdog (R2)."""

ROUNDING: Final = 1e-6

SETTLING: Final = 1.2
"""Seconds in which a node that is reached again has been sent what it is owed: two heartbeats."""


class BodyError(Exception):
    """What a body raises that fails for reasons of its own."""


@dataclass(slots=True)
class Belief:
    """A lease as its holder sees it: what becomes a claim."""

    task: int
    lease: Lease
    asked: float
    since: float
    bound: bool
    """Whether its task is cancelled when the lease is lost."""
    ended_at: float | None = None
    """When it was told that the lock is not its own any more."""


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
        self.served = False
        """Whether it has had its last locks."""
        self.done = False
        self.statistics: Any = None
        self._world = world
        self._plan = plan
        self._wires = wires
        self._operations: dict[int, asyncio.Task[None]] = {}
        self._beliefs: dict[int, Belief] = {}
        self._asking: dict[int, Operation] = {}  # what waits for a lock
        self._cancelled: set[int] = set()  # whose operation somebody has cancelled
        self._evening = asyncio.Event()
        self._stops_for = 0.0
        self._kept: Lease | None = None
        self.process.loop.set_exception_handler(self._stray)
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

    def lost(self, label: str, reason: LossReason) -> None:
        """Note that a task's lease is lost."""
        belief = self._beliefs.get(int(label))
        if belief is not None and reason is not LossReason.EXPIRED:  # that comes before the end of validity
            belief.ended_at = self._world.now
            if reason is LossReason.REFUSED and belief.lease.held:
                self._wrong(belief.task, "holds what was refused (R8)")
        closed = reason is LossReason.MANAGER_CLOSED
        if self._plan.extends and self._world.plan.undisturbed and not closed:
            self._wrong(int(label), f"lost its lock ({reason}) although nothing went wrong (R8)")

    def _wrong(self, task: int, what: str) -> None:
        self._world.leak(f"client {self.number}, task {task} {what}")

    def _stray(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._world.leak(f"client {self.number}: {context.get('message')}: {context.get('exception')!r}")

    def close_books(self) -> None:
        """Write down what a killed process was doing, and as claims what it held: until validity ends."""
        for task in list(self._beliefs):
            self._claim(task)
        for operation in self._asking.values():
            killed = self.process.killed_at
            self._world.record(replace(operation, ended=killed, note="" if killed is None else "killed"))

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
            self.served = True
            await self._settle(manager)
            self.statistics = manager.statistics()
            await self._keep_one(manager)
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

    async def _keep_one(self, manager: LockManager) -> None:
        """Leave it to the manager to release a lease (R18)."""
        began = self._world.now
        with contextlib.suppress(LockNotAcquiredError):
            lease = await manager.lock(self._world.plan.names[0], blocking=False, label="0").acquire()
            self._beliefs[0] = Belief(0, lease, began, self._world.now, bound=False)
            self._claim(0)
            self._kept = lease  # else it would be released as one that was dropped

    async def _task(self, manager: LockManager, task: int) -> None:
        plan = self._world.plan
        rng = random.Random(f"{plan.seed} work {self.number} {task}")
        for _ in range(QUOTA):
            work = draw_work(rng, plan)
            if self._evening.is_set():
                return
            lock = manager.lock(
                *work.names,
                blocking_timeout=work.patience,
                label=str(task),
            )
            run = self._operate(lock, task, work)
            self._cancelled.discard(task)
            if work.stumbles_at is not None:
                self._cancelled.add(task)
                run = self._stumble(run, work.stumbles_at)
            operation = self._operations[task] = asyncio.create_task(run)
            await asyncio.wait((operation,))
            self._operations.pop(task)
            if operation.cancelled():
                if task not in self._cancelled:
                    self._wrong(task, "was cancelled by nobody (R7)")
            elif (error := operation.exception()) is not None:
                self._wrong(task, f"failed: {error!r}")
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
                    await self._release(lease, task)
            else:
                async with lock as lease:
                    await self._hold(lease, asking, work)
        except LockNotAcquiredError as error:
            note = type(error).__name__
            self._check_refusal(error, asking, work)
        except (LockLostError, BodyError):
            pass
        except asyncio.CancelledError:
            note = "cancelled"
            raise
        finally:
            failed = Outcome.UNKNOWN if note == "cancelled" else Outcome.FAIL
            self._answered(task, failed, note)

    def _check_refusal(self, error: LockNotAcquiredError, asking: Operation, work: Work | None) -> None:
        """See that it comes in time, and says why (R13)."""
        if work is None or work.patience is None:
            self._wrong(asking.task, f"was to wait as long as it takes: {error!r}")
        elif self._world.plan.undisturbed:
            over = self._world.now - asking.began - work.patience
            if over > NODE_TIMEOUT + LATENESS:
                self._wrong(asking.task, f"was refused {over:.6f} s after its time (R13)")
        if isinstance(error, QuorumUnavailableError) and not all(
            vote.vote is not Vote.SILENT or vote.reason for vote in error.votes
        ):
            self._wrong(asking.task, f"was not told why: {error.votes!r}")

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
            self._wrong(task, "was given a lease that had ended (R3)")
        bound = (work is None or not work.by_hand) and not self._world.plan.stubborn
        self._beliefs[task] = Belief(task, lease, asking.began, self._world.now, bound=bound)
        try:
            await self._body(lease, task, work)
        finally:
            self._claim(task)

    def _claim(self, task: int) -> None:
        """Turn a belief into a claim: as long as its holder believed in it, by what it had been told."""
        belief = self._beliefs.pop(task, None)
        if belief is None:
            return
        lease, now = belief.lease, self._world.now
        valid_until = self.process.true_of(lease.valid_until)
        until = min(valid_until, now if belief.ended_at is None else belief.ended_at)
        if not self.process.alive:
            until = valid_until  # what it has begun may go on
        elif lease.held:
            until = now
        if self.process.alive:
            self._check_end(belief, valid_until)
        self._world.claim(
            Claim(
                client=self.number,
                task=task,
                names=lease.names,
                owner=lease._holding.owner,
                fence=lease.fence,
                asked=belief.asked,
                since=belief.since,
                until=until,
                stopped=now,
            )
        )

    def _check_end(self, belief: Belief, valid_until: float) -> None:
        """See that a body has been stopped in time, if it could be (R7)."""
        now, went_on = self._world.now, self.process.went_on_at
        if belief.lease.held and self.process.now() >= belief.lease.valid_until:
            self._wrong(belief.task, "held its lock beyond its validity (R2)")
        if belief.bound and now > max(valid_until, went_on + REACTION) + ROUNDING:
            self._wrong(belief.task, f"was stopped {now - valid_until:.6f} s after the end of validity (R7)")

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
                accepted = world.resources.write(world.now, self.number, name, lease.fence)
                if not accepted and world.plan.timed and not world.plan.stubborn:
                    self._wrong(task, "held a lock whose resource had seen a greater fence")
            world.resources.update(world.now, self.number, name, read[name])

    async def _work(self, lease: Lease, work: Work) -> None:
        try:
            await self._nap(work.inside)
        except asyncio.CancelledError:
            while work.lingers and lease.lost.is_set() and lease.remaining > 0:
                await asyncio.sleep(lease.remaining)  # its clean-up takes as long as it may
            raise

    async def _extend(self, lease: Lease, task: int) -> None:
        began, outcome = self._world.now, Outcome.UNKNOWN
        try:
            await lease.extend()
            outcome = Outcome.OK
        except QuorumUnavailableError:
            pass
        finally:
            self._record("extend", lease, task, began, outcome)

    async def _release(self, lease: Lease, task: int) -> None:
        began, outcome = self._world.now, Outcome.UNKNOWN
        try:
            report = await lease.release()
            if all(node.outcome is not ReleaseOutcome.UNKNOWN for node in report.nodes):
                outcome = Outcome.OK
        finally:
            self._record("release", lease, task, began, outcome)

    def _record(self, kind: str, lease: Lease, task: int, began: float, outcome: Outcome) -> None:
        self._world.record(
            Operation(
                client=self.number,
                task=task,
                kind=kind,
                names=lease.names,
                began=began,
                ended=self._world.now,
                outcome=outcome,
            )
        )
