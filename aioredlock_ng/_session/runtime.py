"""What the parts of one manager share."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import anyio

from .._acquire.long_waits import LongWaits
from .._acquire.notices import Wakeups
from .._clock import Clock, wall_of
from .._core.clock_watch import ClockWatch
from .._core.command import Answer, Command, Purpose
from .._core.cooldown import Cooldowns
from .._core.quorum import Vote, majority
from .._core.validity import drift, free_after
from .._hold.watchdog import Watchdog
from .._hooks import Audience
from .._kinds.primitive import Primitive
from .._local.admission import Admission
from .._local.handoff import Turns
from .._local.local_queue import Gates
from .._log import report
from .._node import Node, NodeState
from .._node.client_node import ClientNode
from .._node.fork import generation
from .._options import Options
from .._round.deadlines import Deadlines
from .._round.futures import give_up, running_loop
from .._round.round import NOTHING_KNOWN, Round, all_answered
from ..errors import ConfigurationError, ManagerClosedError, printable
from ..events import LoopStalled

if TYPE_CHECKING:
    from .._acquire.attempt import Attempt
    from .._hold.holding import Holding

NOT_HELD: Final = Answer(Vote.REFUSED, "was not held", wait=0.0)
"""What a node would answer to a release whose acquire it was never sent."""

MAX_REPORTED: Final = 1000
"""Keys without expiry that are reported; beyond it they are only polled."""

OWNER_BITS: Final = 160
"""Random bits of an owner value (A5), as many as the Redlock page takes from /dev/urandom."""

OWNERS_AT_ONCE: Final = 16
"""Owner values whose random bits are drawn together."""


@final
@dataclass(slots=True)
class Counters:
    """What a manager has done since it was made."""

    acquired: int = 0
    refused: int = 0
    gave_up: int = 0
    extended: int = 0
    lost: int = 0
    released: int = 0
    certified: int = 0
    """Fences that the answers to the acquire made, in one round trip."""
    raised: int = 0
    """Fences that took a second round."""
    uncertified: int = 0
    """Tries given up because the nodes did not agree on a fence."""
    topped_up: int = 0
    """Keys given back to nodes that had lost them."""
    quarantined: int = 0
    """Times that a node was found without a vote."""
    steps: int = 0
    """Jumps of nodes' clocks that were noticed."""


@final
class Runtime:
    """Nodes, clock, randomness and the books of one manager."""

    def __init__(
        self,
        nodes: Sequence[Node],
        options: Options,
        clock: Clock,
        random: Random,
        audience: Audience,
        *,
        counters: Counters,
    ) -> None:
        self.nodes = nodes
        self.options = options
        self.node_timeout = options.node_timeout
        self.clock = clock
        self.wall = wall_of(clock)
        self.clocks = ClockWatch(len(nodes), drift(options.ttl))
        self.random = random
        self.audience = audience
        self.counters = counters
        self.deadlines = Deadlines()
        by_clients = any(isinstance(node, ClientNode) for node in nodes)
        self.admission = Admission(clock, options.node_timeout, by_clients=by_clients)
        self.gates = Gates(self.admission, self._nobody_waits, self._tell_of_release)
        self.turns = Turns()
        self.cooldowns = Cooldowns()
        self.wakeups = Wakeups(nodes)
        self.long_waits = LongWaits(self.unavailable_for)
        self.watchdog = Watchdog(clock, self._stalled)
        self.holdings: dict[Holding, None] = {}
        """Every lease that is not released, in the order of their wins."""
        self.attempts: set[Attempt] = set()
        """Every try that waits for its verdict."""
        self._releases: deque[Round] = deque()  # all that have not been answered, and some that have
        self.closing = False
        self.holder = options.holder or f"{socket.gethostname()}:{os.getpid()}"
        self._label = b":" + self.holder.encode()
        self._pauses: set[asyncio.Future[bool]] = set()
        self._random_owners: list[str] = []
        self.loop = asyncio.get_running_loop()
        self._generation = generation()
        self.conflict: str | None = None
        """Why no lock can be trusted: two nodes are one server, or one belongs to another quorum (A4)."""
        self.failure: BaseException | None = None
        """What ended the background tasks, if they did not end in order."""
        self._eternal: set[bytes] = set()

    def new_owner(self) -> bytes:
        """Make a fresh owner value: random (A5); then since when, in Unix milliseconds, and who this is.

        The last two are for people who look at a lock: no decision rests on them, and as parts of the
        value they are compared with it as a whole.
        """
        if not self._random_owners:  # asking the system for each one would take longer than all the rest
            digits = OWNER_BITS // 4
            some = f"{self.random.getrandbits(OWNER_BITS * OWNERS_AT_ONCE):0{digits * OWNERS_AT_ONCE}x}"
            self._random_owners = [some[i : i + digits] for i in range(0, len(some), digits)]
        return b"%b:%013d" % (self._random_owners.pop().encode(), self.wall() * 1000) + self._label

    def nodes_time_ms(self) -> int:
        """Return the nodes' time of day, as far as it is known: what a ballot is made of, and only a hint."""
        ahead = self.clocks.median_ahead()
        return int((self.wall() if ahead is None else self.clock.now() + ahead) * 1000)

    def clock_of(self, node: int) -> float | None:
        """Return how many seconds a node's time of day is ahead of ours; None while that is unknown."""
        offset = self.clocks.offset(node)
        return None if offset is None else sum(offset) / 2 - (self.wall() - self.clock.now())

    async def greet(self) -> None:
        """Have every node look now whether it may vote; at most one `node_timeout` (R12)."""
        with anyio.move_on_after(self.node_timeout):
            async with anyio.create_task_group() as tasks:
                for node in self.nodes:
                    tasks.start_soon(node.greet)

    async def pause(self, future: asyncio.Future[bool], timeout: float | None) -> bool:
        """Wait for `future`, at most `timeout` seconds, and return its result; False when the time is up.

        Raises:
            ManagerClosedError: when the manager is closed meanwhile.
        """
        self._pauses.add(future)
        timer = None if timeout is None else self.loop.call_later(timeout, give_up, future)
        try:
            done = await future
        finally:
            self._pauses.discard(future)
            if timer is not None:
                timer.cancel()
        if self.closing:
            raise self.closed_error()
        return done

    async def sleep(self, seconds: float) -> None:
        """Wait; raises as `pause` does."""
        await self.pause(self.loop.create_future(), seconds)

    def _nobody_waits(self, name: str) -> None:
        """Listen no more for the releases of a name that nobody of this process waits for."""
        if self.wakeups.any:
            self.wakeups.drop(self.options.key(name))

    def _tell_of_release(self, name: str) -> None:
        """Make up for a quiet release: the task of this process that was to follow does not."""
        command = Command(
            Purpose.OTHER,
            owner=b"",
            fits=lambda reply: type(reply) is int,
            keys=(self.options.key(name),),
            args=(b"",),
            verb=b"PUBLISH",
        )
        Round(self.nodes, self.deadlines, lambda _: NOT_HELD).ask(command, self.node_timeout)

    def check_here(self) -> None:
        """Refuse to be used from another process or another event loop."""
        if self.inherited:
            raise RuntimeError(
                "this LockManager was started before a fork: make one per process, after the fork"
            )
        if self.loop.is_closed():
            raise RuntimeError(
                "the event loop of this lease is closed: it can be neither extended nor released any more, "
                "and keys that it has left end with their ttl"
            )
        if self.loop is not running_loop():
            raise RuntimeError("this LockManager belongs to another event loop: make one per loop")

    def close(self) -> None:
        """Refuse new acquires, undo those under way, and wake everybody who waits for a lock."""
        self.closing = True
        self.long_waits.close()
        for attempt in list(self.attempts):
            attempt.undo(self.node_timeout)
        for future in self._pauses:
            give_up(future)

    def release(
        self,
        primitive: Primitive,
        owner: bytes,
        *,
        keeps: float,
        fence: int,
        unsent: Sequence[int],
        timeout: float,
        quiet: bool = False,
        stays: float = 0.0,
    ) -> Round:
        """Queue the release of `owner` on all nodes but those that were never sent its acquire.

        A `quiet` one is not published to other processes.  When `stays` is not 0, the keys end after so long.
        """
        round_ = Round(self.nodes, self.deadlines, primitive.read_release)
        round_.learns = True
        command = primitive.release(owner, keeps, fence, quiet=quiet, stays=stays)
        assert command.purpose is Purpose.RELEASE
        round_.ask(command, timeout, known=dict.fromkeys(unsent, NOT_HELD) if unsent else NOTHING_KNOWN)
        releases = self._releases
        releases.append(round_)
        while releases and not releases[0].tally.pending:
            releases.popleft()
        return round_

    async def released(self) -> None:
        """Wait until every node has answered to every release, at most one `node_timeout`."""
        for round_ in list(self._releases):
            await round_.wait(all_answered)

    def call_in_loop(self, function: Callable[..., object], *args: Any) -> None:
        """Have `function` called in the manager's loop, from whatever thread this is."""
        if self.inherited:
            return  # a forked child has the parent's objects, but not its loop
        with suppress(RuntimeError):  # the loop is closed: nothing can be sent any more
            self.loop.call_soon_threadsafe(function, *args)

    def do_in_loop(self, function: Callable[[], object]) -> None:
        """Call `function`: at once in the manager's loop, else in its next turn."""
        if asyncio._get_running_loop() is self.loop:  # noqa: SLF001 (asyncio exports it; no error without one)
            function()
        else:
            self.call_in_loop(function)

    def report_eternal(self, names: tuple[str, ...], keys: tuple[bytes, ...], node: str) -> None:
        """Say once that a key without expiry is in the way: no ttl will ever free it (R16)."""
        if keys[0] not in self._eternal and len(self._eternal) < MAX_REPORTED:
            self._eternal.add(keys[0])
            report(
                logging.WARNING,
                "%s: a key without expiry is in the way of lock %s (%s); force_release() deletes it, or "
                "`aioredlock-ng release`",
                node,
                printable(names),
                ", ".join(ascii(key)[1:] for key in keys),
                lock=names,
                node=node,
            )

    def closed_error(self) -> ManagerClosedError:
        """Return the error for those who come too late."""
        if self.failure is None:
            return ManagerClosedError("the lock manager is closed")
        error = ManagerClosedError(f"the lock manager has failed: {type(self.failure).__name__}")
        error.__cause__ = self.failure
        return error

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child, which has its parent's objects but not its locks."""
        return self._generation != generation()

    def check_configuration(self) -> None:
        """Refuse to lock anything over nodes that cannot be one quorum (A4).

        Raises:
            ConfigurationError: names the nodes at fault.
        """
        if self.conflict is not None:
            raise ConfigurationError(self.conflict)

    def unavailable_for(self) -> float:
        """Return what `LockManager.unavailable_for` describes."""
        if self.closing or self.conflict is not None:
            return math.inf
        standings = [node.standing for node in self.nodes]
        waits = [0.0 if s.state is NodeState.UP else s.votes_in for s in standings]
        wait = free_after(waits, majority(len(waits)))
        return math.inf if wait is None else wait

    @property
    def held(self) -> int:
        """How many leases are held, by what is known and by the clock."""
        return sum(holding.held for holding in tuple(self.holdings))  # any thread may ask

    @property
    def waiting(self) -> int:
        """How many acquires wait for their turn or for their next try."""
        return len(self._pauses)

    def _stalled(self, seconds: float, suspended: float) -> None:
        if suspended > seconds / 2:
            report(
                logging.WARNING,
                "the machine was suspended for %.2f s; no lease was extended meanwhile",
                suspended,
            )
        else:
            report(
                logging.WARNING,
                "the event loop stood still for %.2f s and extended no lease: look for blocking code",
                seconds,
            )
        self.audience.tell(LoopStalled(seconds=seconds, suspended=suspended))
