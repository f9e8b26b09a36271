"""The record of one simulated process: what it asked for and believed to hold, and what was wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng import Lease, LockNotAcquiredError, LossReason, QuorumUnavailableError, Vote
from tests.simulation.history import Claim, Mode, Operation, Outcome
from tests.simulation.plan import ClientPlan
from tests.simulation.processes import Process
from tests.simulation.work import Work

if TYPE_CHECKING:
    from tests.simulation.world import World

NODE_TIMEOUT: Final = 0.1
"""Seconds, the default: what a refusal may come late by."""

LATENESS: Final = 0.03
"""Seconds beyond that: two slow messages, and clocks that go wrong."""

REACTION: Final = 0.3
"""Seconds after standing still in which a process notices what has ended: a tick of the watchdog (R2)."""

ROUNDING: Final = 1e-6


@dataclass(slots=True)
class Belief:
    """A lease as its holder sees it: what becomes a claim."""

    task: int
    lease: Lease
    asked: float
    since: float
    bound: bool
    """Whether its task is cancelled when the lease is lost."""
    mode: Mode
    unchanged_since: int | None
    """As in `Claim`."""
    ended_at: float | None = None
    """When it learned that the lock is not its own any more."""


class Record:
    """Writes into the history, and checks what only the process itself can know.

    Args:
        world: whose history it is.
        plan: what the process is like.
        process: where it runs.
    """

    def __init__(self, world: World, plan: ClientPlan, process: Process) -> None:
        self._world = world
        self._plan = plan
        self._process = process
        self._number = plan.number
        self._beliefs: dict[int, Belief] = {}
        self._asking: dict[int, Operation] = {}  # what waits for a lock
        self._asked: dict[bytes, float] = {}  # since when the process wanted what it holds by an owner value
        self.last_read: dict[int, Lease] = {}
        """The last lease by which each task has read."""

    def close(self) -> None:
        """Write down what a killed process was doing, and as claims what it held: until validity ends."""
        for task in list(self._beliefs):
            self.claim(task)
        for operation in self._asking.values():
            killed = self._process.killed_at
            self._world.record(replace(operation, ended=killed, note="" if killed is None else "killed"))

    def wrong(self, task: int, what: str) -> None:
        """Note what a task, or its lease, should not have done."""
        self._world.complain(f"client {self._number}, task {task} {what}")

    def stray(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note what came to the loop's exception handler."""
        self._world.complain(f"client {self._number}: {context.get('message')}: {context.get('exception')!r}")

    def owners(self) -> set[bytes]:
        """Return the owner values of the leases that tasks have."""
        return {belief.lease._holding.owner for belief in self._beliefs.values()}

    def slots(self) -> dict[bytes, int]:
        """Return the slots of a semaphore that tasks have, by the owner values of their leases."""
        leases = [belief.lease for belief in self._beliefs.values()]
        return {
            lease._holding.owner: lease._holding.slot for lease in leases if lease._holding.slot is not None
        }

    # -- operations ----------------------------------------------------------------------------

    def ask(self, kind: str, task: int, names: tuple[str, ...], mode: Mode) -> Operation:
        """Note that a task wants a lock: to "acquire" it, or to "try" for some time."""
        asking = self._asking[task] = self._operation(kind, task, names, mode)
        return asking

    def _operation(self, kind: str, task: int, names: tuple[str, ...], mode: Mode) -> Operation:
        return Operation(
            client=self._number,
            task=task,
            kind=kind,
            names=names,
            began=self._world.now,
            ended=None,
            outcome=Outcome.UNKNOWN,
            mode=mode,
        )

    def answered(self, task: int, outcome: Outcome, note: str = "") -> None:
        """Note the outcome of that, unless it has been noted."""
        if asking := self._asking.pop(task, None):
            self._world.record(replace(asking, ended=self._world.now, outcome=outcome, note=note))

    @contextlib.contextmanager
    def noting(self, kind: str, task: int, lease: Lease) -> Iterator[list[object]]:
        """Note what the block does with a lease: it happened, unless it gives a doubt or has no quorum."""
        operation, outcome = self._operation(kind, task, lease.names, mode_of(lease)), Outcome.UNKNOWN
        try:
            yield (doubts := [])
            outcome = Outcome.UNKNOWN if doubts else Outcome.OK
        except QuorumUnavailableError:
            pass
        finally:
            self._world.record(replace(operation, ended=self._world.now, outcome=outcome))

    def refused(self, error: LockNotAcquiredError, asking: Operation, work: Work | None) -> None:
        """See that it comes in time, and says why (R13)."""
        if work is None or work.patience is None:
            self.wrong(asking.task, f"was to wait as long as it takes: {error!r}")
        elif self._world.plan.undisturbed:
            over = self._world.now - asking.began - work.patience
            if over > NODE_TIMEOUT + LATENESS:
                self.wrong(asking.task, f"was refused {over:.6f} s after its time (R13)")
        if isinstance(error, QuorumUnavailableError) and not all(
            vote.vote is not Vote.SILENT or vote.reason for vote in error.votes
        ):
            self.wrong(asking.task, f"had no reason: {error.votes!r}")

    # -- leases --------------------------------------------------------------------------------

    def believe(self, lease: Lease, asking: Operation, *, bound: bool, since: Lease | None = None) -> None:
        """Note that a task has a lock; `bound`: it is cancelled when the lease is lost.

        `since` is the lease since which it asked whether a writer came.
        """
        if lease.remaining <= 0:
            self.wrong(asking.task, "was given a lease that had ended (R3)")
        # A lock that is handed off has a fence of the time when its process got it (R43).
        asked = self._asked.setdefault(lease._holding.owner, asking.began)
        unchanged = None
        if since is not None:
            self._world.counts["unchanged since a read lease" if lease.unchanged else "changed"] += 1
            unchanged = since._holding.fence or None if lease.unchanged else None
        self._beliefs[asking.task] = Belief(
            asking.task, lease, asked, self._world.now, bound, asking.mode, unchanged
        )
        if mode_of(lease) != asking.mode:
            self.wrong(asking.task, f"wanted to {asking.mode}, and got a lease to {mode_of(lease)}")
        if (lease.unchanged is None) != (since is None):
            self.wrong(asking.task, f"learned that unchanged is {lease.unchanged} (R23)")

    def downgrade(self, task: int) -> None:
        """Note that a writer is a reader from now on (R23)."""
        belief, now = self._beliefs[task], self._world.now
        self._write(belief, until=now, stopped=now)
        belief.since, belief.mode, belief.unchanged_since = now, "read", None

    def lost(self, label: str, reason: LossReason) -> None:
        """Note that a task's lease is lost."""
        belief = self._beliefs.get(int(label))
        if belief is not None and reason is not LossReason.EXPIRED:  # that comes before the end of validity
            belief.ended_at = self._world.now
            if reason is LossReason.REFUSED and belief.lease.held:
                self.wrong(belief.task, "holds what was refused (R8)")
        closed = reason is LossReason.MANAGER_CLOSED
        if self._plan.extends and self._world.plan.undisturbed and not closed:
            self.wrong(int(label), f"lost its lock ({reason}) although nothing went wrong (R8)")

    def claim(self, task: int) -> None:
        """Turn a belief into a claim: as long as its holder believed in it, by what it knew."""
        belief = self._beliefs.pop(task, None)
        if belief is None:
            return
        lease, now = belief.lease, self._world.now
        valid_until = self._process.true_of(lease.valid_until)
        until = min(valid_until, now if belief.ended_at is None else belief.ended_at)
        if not self._process.alive:
            until = valid_until  # what it has begun may go on
        elif lease.held:
            until = now
        if self._process.alive:
            self._check_end(belief, valid_until)
        # A downgrade that was cancelled during an extension has changed nothing: the lease still writes.
        if belief.mode == "read" and lease.mode == "read":
            self.last_read[task] = lease
        self._write(belief, until=until, stopped=now)

    def _write(self, belief: Belief, *, until: float, stopped: float) -> None:
        lease = belief.lease
        self._world.claim(
            Claim(
                client=self._number,
                task=belief.task,
                names=lease.names,
                owner=lease._holding.owner,
                fence=lease._holding.fence or None,
                asked=belief.asked,
                since=belief.since,
                until=until,
                stopped=stopped,
                mode=belief.mode,
                unchanged_since=belief.unchanged_since,
                slot=lease._holding.slot,
                permits=0 if lease._holding.slot is None else self._plan.permits,
            )
        )

    def _check_end(self, belief: Belief, valid_until: float) -> None:
        """See that a body has been stopped in time, if it could be (R7)."""
        now, went_on = self._world.now, self._process.went_on_at
        if belief.lease.held and self._process.now() >= belief.lease.valid_until:
            self.wrong(belief.task, "held its lock beyond its validity (R2)")
        if belief.bound and now > max(valid_until, went_on + REACTION) + ROUNDING:
            self.wrong(belief.task, f"was stopped {now - valid_until:.6f} s after the end of validity (R7)")


def mode_of(lease: Lease) -> Mode:
    """Return as what a lease has its names."""
    if lease._holding.kind.name == "fair":
        return "fair"
    return (lease.mode or "lock") if lease._holding.slot is None else "permit"
