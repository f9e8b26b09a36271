"""The parts of a manager that runs in a loop, put together."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import asdict
from random import Random
from typing import Any, Protocol, TypeVar, final

import anyio

from .._clock import Clock, wall_of
from .._core.clock_watch import ClockWatch
from .._core.keyspace import QUEUE, TICKETS, mark_key
from .._core.validity import drift
from .._lock.attempt import Owners
from .._lock.holding import Holdings
from .._lock.hooks import HookList
from .._lock.local_queue import AttemptLimiter, LocalQueue
from .._lock.long_waits import Ancestors, LongWaits
from .._lock.notifications import Notifications
from .._lock.refusals import LocalRefusals
from .._lock.succession import Succession
from .._lock.waiting import AcquireSession, Sleeps
from .._lock.watchdog import Watchdog
from .._log import Once, report
from .._node import Node, fork
from .._round.availability import Availability
from .._round.deadlines import Deadlines, move_on_after, running_loop
from .._round.outbox import Outbox
from .._round.releases import Releases
from .._settings.options import Options
from .._statistics import MAX_LEASES, Counters, LeaseStatistics, ManagerStatistics, NodeStatistics
from ..events import LoopStalled


class Part(Protocol):
    """A part of the session that a higher layer builds; the session keeps it and ends it."""

    def close(self) -> None:
        """Wake the tasks that wait in it: the manager is being closed."""


PartT = TypeVar("PartT", bound=Part)


@final
class Session(AcquireSession):
    """The parts of a manager between its start in a loop and its end.

    Each layer below declares what it uses of it in a class of its own, which adds to the class of the layer
    below that one: `HoldSession`, `TrySession`, `AcquireSession`.
    """

    __slots__ = (
        "__weakref__",
        "_generation",
        "_parts",
        "ancestors",
        "attempt_limiter",
        "availability",
        "clock",
        "clocks",
        "counters",
        "holder",
        "holdings",
        "hooks",
        "in_flight",
        "local",
        "long_waits",
        "loop",
        "no_expiry",
        "node_timeout",
        "nodes",
        "notifications",
        "options",
        "outbox",
        "owners",
        "queue",
        "random",
        "releases",
        "retry",
        "sleeps",
        "succession",
        "wall",
        "watchdog",
    )

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
        # Asking all nodes.
        self.availability = Availability(nodes)
        self.outbox = Outbox(nodes, Deadlines(), node_timeout, self.clocks, clock.now)
        self.releases = Releases(self.outbox)
        # Which task of this process asks, and when.
        self.attempt_limiter = AttemptLimiter(clock, node_timeout)
        self.queue = LocalQueue(self.attempt_limiter, self._stop_listening, self._announce)
        self.sleeps = Sleeps(self.availability)
        # Locks that were won.
        self.watchdog = Watchdog(clock, self._stalled)
        self.succession = Succession(self.availability, self.releases)
        self.holdings = Holdings()
        # Acquiring.
        self.owners = Owners(random)
        self.in_flight = set()
        self._seat = None
        self.local = LocalRefusals(self.queue, clock, self.holder)
        self.notifications = Notifications(nodes)
        self.long_waits = LongWaits(self.availability.seconds)
        self.no_expiry = Once()
        self.ancestors = Ancestors(self.holdings)
        # What higher layers build on it.
        self._parts: dict[Callable[[Session], Part], Part] = {}

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

    # -- parts of higher layers ----------------------------------------------------------------

    def part(self, kind: Callable[[Session], PartT]) -> PartT:
        """Return a part of a higher layer, made at its first use and closed with the session."""
        found = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(self)
        return found  # type: ignore[return-value]  # it is what `kind` made

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
        self.long_waits.close()
        for attempt in list(self.in_flight):
            attempt.undo(self.node_timeout)
        self.sleeps.end()
        self.attempt_limiter.end()
        for part in self._parts.values():
            part.close()

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
            NodeStatistics.of(node.name, node.status, session.clock_of(i) if session else None)
            for i, node in enumerate(nodes)
        ),
        held=session.holdings.held if session else 0,
        leases=_leases(session) if session else (),
        waiting=len(session.sleeps) + len(session.attempt_limiter) if session else 0,
        **asdict(counters),
        conflict=session.availability.conflict if session else None,
        closed=session.availability.closing if session else False,
        strangers=session.availability.strangers if session else (),
    )


def _leases(session: Session) -> tuple[LeaseStatistics, ...]:
    """Return the leases that are held now; callable from any thread."""
    held = [holding for holding in tuple(session.holdings.all) if holding.held]
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
