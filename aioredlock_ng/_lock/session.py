"""The session: the mutable state of a manager between its start in a loop and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import asdict, replace
from random import Random
from typing import Any, final

import anyio

from .._clock import Clock, wall_of
from .._core.clock_watch import ClockWatch
from .._core.keyspace import QUEUE, SEATS, TICKETS, mark_key
from .._core.seats import Seat, seat_life
from .._core.validity import drift
from .._log import Once, report
from .._node import fork
from .._node.redis_node import Node
from .._round.availability import Availability
from .._round.deadlines import Deadlines, move_on_after, running_loop
from .._round.outbox import Outbox
from .._round.releases import Releases
from .._settings.options import Options
from .._statistics import MAX_LEASES, Counters, LeaseStatistics, ManagerStatistics
from ..events import LoopStalled
from .attempt import Attempt, OwnerValues
from .election import Observation
from .handoff import Succession
from .hooks import HookList
from .local_queue import AttemptLimiter, LocalQueue
from .long_waits import LongWaits
from .notifications import Notifications
from .waiting import Sleeps
from .watchdog import Watchdog


@final
class Session:
    """The parts of a manager between its start in a loop and its end."""

    def __init__(
        self,
        nodes: Sequence[Node],
        options: Options,
        clock: Clock,
        random: Random,
        hooks: HookList,
        *,
        counters: Counters,
    ) -> None:
        self.nodes = nodes
        self.options = options
        self.node_timeout = node_timeout = options.node_timeout
        self.retry = options.retry
        self.clock = clock
        self.wall = wall_of(clock)
        self.random = random
        self.hooks = hooks
        self.counters = counters
        self.loop = asyncio.get_running_loop()
        self._generation = fork.generation
        self.holder = options.holder or f"{socket.gethostname()}:{os.getpid()}"
        self.clocks = ClockWatch(len(nodes), drift(options.ttl))
        # The mutable state of a manager is what follows.  Which nodes can be asked, and what they were sent:
        self.availability = Availability(nodes)
        self.outbox = Outbox(nodes, Deadlines(), node_timeout)
        self.releases = Releases(self.outbox)
        # The tasks of this process that want a lock, in the order in which they ask, and their waits:
        self.attempt_limiter = AttemptLimiter(clock, node_timeout)
        self.queue = LocalQueue(self.attempt_limiter, self._stop_listening, self._announce)
        self.sleeps = Sleeps(self.availability)
        # The locks that were won, until they are released or handed off:
        self.watchdog = Watchdog(clock, self._stalled)
        self.succession = Succession(self.availability, self.releases)
        # The attempts in flight, and what calls learn while they wait:
        self.owners = OwnerValues(random)
        self.in_flight: set[Attempt] = set()
        """The attempts that wait for their verdict."""
        self._seat: Seat | None = None
        self.notifications = Notifications(nodes)
        self.long_waits = LongWaits(self)
        self.no_expiry = Once()
        # The elections that are observed, by the keys of their locks:
        self.observed: dict[bytes, Observation] = {}

    # -- where it belongs ----------------------------------------------------------------------

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child, which has its parent's objects but not its locks."""
        return self._generation != fork.generation

    def check_process(self) -> None:
        """Refuse to be used in a forked child."""
        if self.inherited:
            raise RuntimeError(
                "this LockManager was started before a fork: make one per process, after the fork"
            )

    def check_here(self) -> None:
        """Refuse to be used from another process or another event loop."""
        self.check_process()
        if self.loop.is_closed():
            raise RuntimeError(
                "the event loop of this lease is closed: it can no longer be extended or released, and "
                "its keys on the nodes end with their ttl"
            )
        if self.loop is not running_loop():
            raise RuntimeError("this LockManager belongs to another event loop: make one per loop")

    def call_in_loop(self, function: Callable[..., object], *args: Any) -> None:
        """Call `function` soon in the manager's loop; from any thread."""
        # A forked child has the parent's objects, but not its loop.
        if self.inherited:
            return
        with suppress(RuntimeError):  # the loop is closed: nothing can be sent any more
            self.loop.call_soon_threadsafe(function, *args, context=Context())

    def do_in_loop(self, function: Callable[[], object]) -> None:
        """Call `function`: at once if this is the manager's loop, else in its next turn."""
        if asyncio._get_running_loop() is self.loop:  # noqa: SLF001 (asyncio exports it; no error without one)
            function()
        else:
            self.call_in_loop(function)

    # -- read by attempts ----------------------------------------------------------------------

    @property
    def seat(self) -> Seat:
        """This process's id in the queues of fair locks: one task waits there on behalf of all (R30)."""
        # Made when the first fair lock is wanted: most processes never need it.
        if self._seat is None:
            self._seat = self.new_seat()
        return self._seat

    def new_seat(self) -> Seat:
        """Make a new id; it is also the channel on which the process is notified (R30)."""
        return Seat(mark_key(self.options.prefix, SEATS, self.new_name()), life=seat_life(self.retry.cap))

    def new_name(self) -> bytes:
        """Make a name for one that waits: a secret, and the holder's label for people."""
        return b"%b:%b" % (next(self.owners), self.holder.encode())

    # -- the nodes -----------------------------------------------------------------------------

    async def greet(self) -> None:
        """Ask all nodes now whether they may vote; for at most one `node_timeout` (R12)."""
        with move_on_after(self.node_timeout):
            async with anyio.create_task_group() as tasks:
                for node in self.nodes:
                    tasks.start_soon(node.greet)

    def clock_of(self, node: int) -> float | None:
        """Return by how many seconds a node's time of day is ahead of ours; None while that is unknown."""
        offset = self.clocks.offset(node)
        return None if offset is None else sum(offset) / 2 - (self.wall() - self.clock.now())

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse new acquires, undo those under way, and wake the tasks that wait for a lock."""
        self.availability.closing = True
        for attempt in list(self.in_flight):
            attempt.undo(self.node_timeout)
        self.sleeps.end()
        self.attempt_limiter.end()
        for observation in self.observed.values():
            observation.wake()

    # -- callbacks of the parts ----------------------------------------------------------------

    def _stop_listening(self, name: str) -> None:
        """No task of this process waits for `name` any more."""
        key = self.options.key(name)
        self.notifications.drop(key)
        for mark in (QUEUE, TICKETS):
            self.notifications.drop(mark_key(self.options.prefix, mark, key))

    def _announce(self, name: str) -> None:
        """A quiet release freed `name`, and the task of this process that was to follow does not."""
        self.releases.announce(self.options.key(name))

    def _stalled(self, seconds: float, suspended: float) -> None:
        # A suspend explains most of it; else code of the user's has blocked the loop.
        if suspended > seconds / 2:
            report(
                logging.WARNING,
                "the machine was suspended for %.2f s; no lease was extended meanwhile",
                suspended,
            )
        else:
            report(
                logging.WARNING,
                "the event loop stood still for %.2f s and extended no lease: look for code that blocks it",
                seconds,
            )
        self.hooks.tell(LoopStalled(seconds=seconds, suspended=suspended))


def statistics_of(nodes: Sequence[Node], counters: Counters, session: Session | None) -> ManagerStatistics:
    """Return the statistics of a manager over `nodes`; it has no session before its first use."""
    return ManagerStatistics(
        nodes=tuple(
            replace(node.status, clock=session.clock_of(i) if session else None)
            for i, node in enumerate(nodes)
        ),
        held=session.watchdog.held if session else 0,
        leases=_leases(session) if session else (),
        waiting=len(session.sleeps) + len(session.attempt_limiter) if session else 0,
        **asdict(counters),
        conflict=session.availability.conflict if session else None,
        closed=session.availability.closing if session else False,
        strangers=session.availability.strangers if session else (),
    )


def _leases(session: Session) -> tuple[LeaseStatistics, ...]:
    """Return the leases that are held now; callable from any thread."""
    held = [holding for holding in tuple(session.watchdog.leases) if holding.held]
    return tuple(
        LeaseStatistics(
            names=holding.names,
            label=holding.label,
            fence=holding.fence or None,
            age=holding.age,
            kind=holding.kind.name,
        )
        for holding in held[-MAX_LEASES:]
    )
