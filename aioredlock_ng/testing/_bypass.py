"""Locks without nodes: for unit tests of code whose manager points at production.

`lifecycle.override` is the seam: inside a block, each call of a manager is handed a session of its own, over
nodes that grant everything at once, or refuse it, or say nothing.  All the rest is the shipping code.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Collection
from typing import ClassVar, Final, TypeAlias, cast, final

from .. import _scripts
from .._clock import Clock, wall_of
from .._core.command import Command, Purpose, Receiver, Reply, Silence
from .._core.fencing import at, range_end
from .._core.keyspace import lock_key
from .._kinds import KINDS
from .._kinds.kind import Kind
from .._kinds.mutex import LEADER
from .._lock.session import Session
from .._node import NodeState, NodeStatistics
from .._node.pipe import takes_none
from .._node.redis_node import Node
from .._session import lifecycle
from .._session.lifecycle import Lifecycle
from .._statistics import Counters
from ..errors import LossReason

_KINDS: Final = {kind.acquire.script: kind for kind in KINDS}

_REPLIES: Final[dict[object, Reply]] = {
    Purpose.ACQUIRE: 0,  # of several names, without a fence
    Purpose.RAISE: 1,
    Purpose.EXTEND: 1,
    Purpose.RELEASE: [1, 0, 0],
    # A look at nodes, or their administration, finds nothing, nor the mark of a call that waited.
    b"SCAN": [b"0", []],
    b"DEL": 0,
    b"TIME": [b"0", b"0"],
    b"PUBLISH": 0,
    _scripts.ANNOUNCE: 1,
    _scripts.OBSERVE: [1, 0, b""],
    _scripts.INIT: b"1:-:0:0:0:0:0:init:",
    _scripts.QUEUE: [0, [], []],
    **{kind.release.script: [0, 0, 0] for kind in KINDS},
}

RETRY_AFTER: Final = 5.0
"""Seconds until the others give back the locks that they seem to hold, when every lock is refused."""

_LEFT_MS: Final = int(RETRY_AFTER * 1000)

_SILENCE: Final = Silence("no node answers: all locks are bypassed, and refused for lack of a quorum")

Refuse: TypeAlias = bool | str | Collection[str]
"""The fate of locks: granted, taken, or not to be had since no node answers; or the names that are taken."""

QUORUM: Final = "quorum"


@final
class _Stub:
    """A node that grants everything, or nothing, or does not answer; a round needs no more of a node."""

    can_hear = False
    post = staticmethod(takes_none)

    def __init__(
        self, name: str, fence: int, before: int, *, silent: bool, taken: frozenset[bytes] | None
    ) -> None:
        self.name = name
        self.status = NodeStatistics(name=name, state=NodeState.UP)
        self._fence = fence  # an even one, for holders that are alone (R21)
        self._before = before
        self._silent = silent
        self._taken = taken
        """The keys that another client holds; None: all."""

    def submit(self, command: Command, receiver: Receiver, index: int) -> None:
        receiver.on_reply(index, self._reply(command))

    def _is_taken(self, key: bytes) -> bool:
        return self._taken is None or key in self._taken

    def _reply(self, command: Command) -> Reply:
        """Return the answer that a server would give."""
        if self._silent:
            return _SILENCE
        script, purpose = command.script, command.purpose
        if script is _scripts.INSPECT:
            found = ([None, -2, None], [b"another client", _LEFT_MS, None])
            return [each for key in command.keys[::2] for each in found[self._is_taken(key)]]
        taken = any(map(self._is_taken, command.keys))
        if (kind := _KINDS.get(script)) is not None:
            granted = kind.granted(self._fence, self._before)
            if taken:
                return [0, _LEFT_MS, *granted[2:]]
            if not kind.shares_with:
                _fences.alone_at(self._fence)
            return granted
        if command.verb == b"SET":
            return None if taken else b"OK"
        if purpose is Purpose.OTHER:
            announced: Reply = _REPLIES[script or command.verb]
            return [1, 1, b""] if taken and script is _scripts.OBSERVE else announced
        if taken and purpose is Purpose.ACQUIRE:
            return _LEFT_MS
        return [0, _LEFT_MS, 0] if taken and purpose is Purpose.RELEASE else _REPLIES[purpose]

    async def greet(self) -> None:
        """Do nothing: there is no incarnation record to look at."""

    def subscribe(self, channel: bytes) -> None:
        """Do nothing: there are no notices."""

    def unsubscribe(self, channel: bytes) -> None:
        """Do nothing."""

    def is_subscribed(self, channel: bytes) -> bool:
        """Tell nothing."""
        return False


@final
class _StandingClock:
    """A clock that stands still: a bypassed lease is not extended, so it must not run out either."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now()
        self.wall = wall_of(clock)

    def now(self) -> float:
        return self._now


@final
class _Fences:
    """The fences of all bypassed leases of this process, whatever their thread."""

    def __init__(self) -> None:
        self._last = 0
        self._alone = 0
        self._lock = threading.Lock()

    def next(self, clock: _StandingClock) -> tuple[int, int]:
        """Return one above the last one: the time of day, as with real ones, unless that is behind.

        It is even, and the one before it is free for a reader.  With it comes the greatest one so far that
        went to a holder that is alone, under whatever name (R23).
        """
        with self._lock:
            self._last = range_end(max(self._last + 2, at(int(clock.wall() * 1000))), 1)
            return self._last, self._alone

    def alone_at(self, fence: int) -> None:
        """Note that this one went to a holder that is alone: a writer, or that of a mutex."""
        with self._lock:
            self._alone = max(self._alone, fence)


_fences: Final = _Fences()


@final
class _Bypassed:
    """Hands each call of a manager a session of its own inside one block, so that no call meets another."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse

    async def ready(self, life: Lifecycle) -> Session:
        """Return a session over nodes that grant everything at once, or refuse it, or say nothing."""
        await asyncio.sleep(0)  # as a real acquire does: a loop of acquires lets other tasks run
        clock = _StandingClock(life.clock)
        numbers = _fences.next(clock)  # for all names of the call, so that each sees its counter grow
        silent, taken = self._refuse == QUORUM, self._taken(life.options.prefix)
        nodes = [cast("Node", _Stub(each.name, *numbers, silent=silent, taken=taken)) for each in life.nodes]
        session = Session(nodes, life.options, clock, life.random, life.hooks, counters=Counters())
        life.stood_in.add(session)  # for the lease may outlive the block that it began in
        return session

    def _taken(self, prefix: bytes) -> frozenset[bytes] | None:
        """Return the keys of the locks that are refused; None: all are."""
        if self._refuse is True or self._refuse == QUORUM:
            return None
        names = (self._refuse,) if isinstance(self._refuse, str) else self._refuse or ()
        return frozenset(lock_key(prefix, name) for name in names)

    def blocking_timeout(self, asked: float | None, kind: Kind) -> float | None:
        """Where locks are refused, the first try is as good as the last; candidates wait: others lead."""
        waits = kind is LEADER and asked is None and self._refuse != QUORUM
        return 0.0 if self._refuse and not waits else asked

    def unavailable_for(self) -> float:
        return math.inf if self._refuse == QUORUM else 0.0

    def end(self, life: Lifecycle) -> None:
        """Release what `life` holds, and end what observes.

        The bodies learn of it, but for the one that closes the manager.
        """
        for session in bypassed(life):
            session.close()
            for holding in list(session.watchdog.leases):
                if holding.body is None or holding.body.task is not asyncio.current_task():
                    holding.lose(LossReason.MANAGER_CLOSED)
                holding.release()


def bypassed(life: Lifecycle) -> list[Session]:
    """Return the sessions of the bypassed leases that a manager has in the running loop."""
    loop = asyncio.get_running_loop()
    return [session for session in life.stood_in if session.loop is loop]


@final
class bypass:  # noqa: N801 (a context manager that reads like `contextlib.suppress`)
    """Grant every lock of every manager of this process at once, for the length of a ``with`` block; or none.

    Nothing is sent, no task waits, nothing runs in the background, and no manager is bound to a loop: a
    module-level manager over production nodes needs no server, and no closing.  *No task is excluded*,
    not even by a lock of the same name around this one.  Leases, decorators, hooks, options and
    `lose` work as without it, and fences grow from one lease to the next; but a bypassed lease does not run
    out, `LockManager.statistics` does not count it, and a look at the nodes finds nothing.  For
    tests only; it can be nested, and the block that was entered last counts.

    Args:
        refuse: True: every lock is held by another client for five seconds more: `try_acquire`
            returns None, `acquire` and ``async with`` raise `LockTakenError`.  ``"quorum"``: no node answers,
            so they raise `QuorumUnavailableError`.  A name, or a collection of names: these locks are held by
            another client, and all others granted.  At once, whatever their `blocking_timeout`, as if it had
            passed; but a campaign without one waits, since another candidate leads.  Leases that were granted
            before stay as they are.

    Raises:
        ValueError: `refuse` is anything else.
    """

    _active: ClassVar[list[_Bypassed]] = []  # of the blocks that were entered and not left

    def __init__(self, *, refuse: Refuse = False) -> None:
        names = () if isinstance(refuse, bool) else (refuse,) if isinstance(refuse, str) else refuse
        if not isinstance(names, Collection) or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"refuse must be True, False, 'quorum' or names of locks, got {refuse!r}")
        self._override: Final = _Bypassed(refuse)

    def __enter__(self) -> None:
        self._active.append(self._override)
        lifecycle.override = self._override

    def __exit__(self, *_: object) -> None:
        self._active.remove(self._override)
        lifecycle.override = self._active[-1] if self._active else None
