"""The life of a manager: its start, its event loop, and its end (R18)."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import warnings
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import import_module
from random import Random
from typing import Protocol, final
from weakref import WeakKeyDictionary, WeakSet

from .._clock import Clock, clock_of
from .._kinds.kind import Kind
from .._lock.hooks import HookList
from .._lock.session import Session
from .._node.fork import close_in_children
from .._node.redis_node import Node
from .._round.deadlines import move_on_after, running_loop
from .._settings.options import Options
from .._statistics import Counters
from ..errors import ConfigurationError, ManagerClosedError
from .background import Background

# anyio imports its backend at the first use of it: in an event loop, which stands still meanwhile.
with suppress(ImportError):
    import_module("anyio._backends._asyncio")


class Override(Protocol):
    """Takes the calls of all managers of this process, instead of the managers' own sessions."""

    def ready(self, life: Lifecycle) -> Awaitable[Session]:
        """Return the session that one call works with; `life` stays as it is."""

    def blocking_timeout(self, asked: float | None, kind: Kind) -> float | None:
        """Return the seconds for which an acquire of a kind waits that was called with `asked`."""

    def unavailable_for(self) -> float:
        """Return what `LockManager.unavailable_for` says."""

    def end(self, life: Lifecycle) -> None:
        """Release what calls of `life` hold in the running loop."""


override: Override | None = None
"""The seam for users' tests; only `testing` sets it.  Managers read it once for each call, since another
thread may set or reset it meanwhile."""


@final
class Lifecycle:
    """Whether a manager is not started, running, or closed.

    At its first use it binds to the running loop and connects.  When that loop is closed, or the manager was,
    it binds to the next loop at the next use there.  When other code has cancelled its tasks, the next use
    starts it again in the same loop (R44).
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        options: Options,
        *,
        make_nodes: Callable[[], Sequence[Node]],
        clock: Clock | None,
        random: Random,
        hooks: HookList,
    ) -> None:
        self.nodes = nodes
        self.options = options
        self._clock = clock
        self.random = random
        self.hooks = hooks
        self.counters = Counters()
        self.session: Session | None = None
        """None before the first use."""
        self.stood_in: WeakSet[Session] = WeakSet()
        """The sessions that an `Override` gave to calls of this manager."""
        self._make_nodes = make_nodes
        self._background: Background | None = None
        self._earlier: list[Background] = []  # in this loop, those that other code has cancelled
        self._ready_session: Session | None = None  # the session whose nodes are ready for locks
        self._closed_in: asyncio.AbstractEventLoop | None = None  # in that loop it stays closed
        self._blocks: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._binding = threading.Lock()  # loops of several threads may use it first at the same moment
        close_in_children(self)  # so that `at_hand` need not ask, which every acquire does

    def __repr__(self) -> str:
        states = ", ".join(f"{node.name} {node.status.state}" for node in self.nodes)
        session = self.session
        held = session.watchdog.held if session else 0
        over = self._closed_in is not None or (session is not None and session.availability.closing)
        state = "closed" if over else "running" if session else "not started"
        return f"<LockManager {state}, {held} held: {states}>"

    # -- the start -----------------------------------------------------------------------------

    @property
    def at_hand(self) -> Session | None:
        """The session, if locks can be asked for here and now; None: `ready` waits for it, or raises."""
        # Not started; or users' tests have taken the calls over.
        session = self._ready_session
        if session is None or override is not None:
            return None
        # In another loop than the session's.
        if session.loop is not _get_running_loop():  # None in a forked child, too
            return None
        availability = session.availability
        return None if availability.closing or availability.conflict is not None else session

    async def start(self, *, read_only: bool = False) -> Session:
        """Start; a caller that is `read_only` leaves the nodes' incarnation records as they are."""
        await self.ready(read_only=read_only)
        if self._background is not None:
            await self._background.started.wait()
        return await self.ready(read_only=read_only)

    async def start_and_hear_all(self) -> Session:
        """Start, and return the session even if the nodes cannot be a quorum: for callers that repair that.

        Then wait for all nodes, for at most a `connect_timeout`.
        """
        if (instead := override) is not None:
            return await instead.ready(self)
        # The nodes' conflict is what the caller wants to see, and may end.
        with suppress(ConfigurationError):
            await self.start(read_only=True)
        session, background = self.session, self._background
        assert session is not None, "start() made it, or has raised something else"
        assert background is not None, "likewise"
        await background.started.wait()  # of a start that has raised, too
        with move_on_after(self.options.connect_timeout):
            for node in session.nodes:
                await node.tried.wait()
        return session

    async def ready(self, *, read_only: bool = False) -> Session:
        """Return the session of a manager that can be used here and now; start it if need be.

        Waits until a majority is connected, or too many nodes have failed to connect for that; not longer
        than `start`.  `read_only` as in `start`.
        """
        if (instead := override) is not None:
            return await instead.ready(self)
        self._forget_what_ended()
        session = self.session or self._first_session()
        session.check_here()
        availability = session.availability
        if availability.closing:
            raise availability.closed_error()
        background = self._begin(session, read_only=read_only)
        # The first caller that locks writes the records that callers before it only read.
        if not read_only:
            await background.take_part()
        # Still connecting: the manager may be closed meanwhile.
        await background.usable.wait()
        # A conflict that the first nodes show may not be all that there is to say.
        if availability.conflict is not None:
            await background.started.wait()
        if availability.closing:
            raise availability.closed_error()
        availability.check()
        # From now on calls take the short way (`at_hand`).
        if not read_only:
            self._ready_session = session
        return session

    def _begin(self, session: Session, *, read_only: bool) -> Background:
        """Start in this loop, unless that was done."""
        if self._background is None:
            self._background = Background(session, read_only=read_only)
        return self._background

    @property
    def unused(self) -> bool:
        """Whether no call has started it, nor closed it; and its calls are its own."""
        return self.session is None and self._closed_in is None and override is None

    def probed(self) -> None:
        """Start in the running loop, if there is one and the manager was neither used there nor closed.

        A service without traffic uses no lock, and may get no traffic before its readiness probe succeeds.
        Nothing is sent before the loop's next turn.
        """
        if _get_running_loop() is None:
            return
        self._forget_what_ended()
        if self.unused:
            self._begin(self._first_session(), read_only=False)

    def _first_session(self) -> Session:
        """Bind to this loop, or return the session of a thread whose loop was first at the same moment."""
        # A manager that was closed here stays closed here.
        if self._closed_in is running_loop():
            raise ManagerClosedError("the lock manager is closed")
        while (session := self.session) is None:
            ours = Session(
                self.nodes, self.options, self.clock, self.random, self.hooks, counters=self.counters
            )
            with self._binding:
                if self.session is None and self.nodes is ours.nodes:
                    self.session, self._closed_in = ours, None
        return session

    def _forget_what_ended(self) -> None:
        """Forget the session of a loop that has ended, or whose background tasks others have ended."""
        session, background = self.session, self._background
        here = _get_running_loop()  # None in a forked child
        # Not started, or in a forked child, whose parent has the loop.
        if session is None or session.inherited:
            return
        # In its own loop: it goes on there, or it was closed.
        if session.loop is here and session.availability.failure is None:
            return
        # The other loop goes on, and the manager in it: `check_here` refuses this one.
        if not (session.loop is here or session.loop.is_closed() or background is None or background.ended):
            return
        nodes = self._make_nodes()  # those of a session are bound to it
        with self._binding:
            # A thread with a loop of its own was first.
            if self.session is not session:
                return
            self.session = self._background = self._ready_session = None
            self.nodes = nodes
            ending = (*self._earlier, background) if session.loop is here else ()
            self._earlier = [each for each in ending if each is not None and each.running]
        # Nothing can be sent in a closed loop.  In this one the old session ends its leases by itself.
        for holding in list(session.watchdog.leases) if session.loop is not here else ():
            holding.abandon()

    # -- its state -----------------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """The clock that it was given, or that the running loop has; outside of a loop, its last one."""
        last = None if self.session is None else self.session.loop
        return self._clock or clock_of(_get_running_loop() or last)

    @property
    def unavailable_for(self) -> float:
        """See `LockManager.unavailable_for`."""
        if (instead := override) is not None:
            return instead.unavailable_for()
        return math.inf if self.session is None else self.session.availability.seconds()

    @property
    def sessions_here(self) -> list[Session]:
        """The sessions in which tasks of the running loop may hold locks of this manager."""
        known = [*(() if self.session is None else (self.session,)), *self.stood_in]
        here = running_loop()
        return [each for each in known if each.loop is here and not each.inherited]

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child and the manager was started by its parent."""
        return self.session is not None and self.session.inherited

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Forget the ready session in a forked child, though that may go on with its parent's loop."""
        self._ready_session = None
        self._binding = threading.Lock()  # another thread of the parent may have held the one before

    def __del__(self) -> None:
        """Warn of a manager that no code can close any more, while its connections and tasks go on."""
        background = self._background
        if background is None or not background.running or sys.is_finalizing():
            return
        warnings.warn(
            f"{self!r} was dropped without aclose(): its connections stay open; make one manager and "
            "share it",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )

    def enter(self) -> None:
        """Count a block of this loop that begins, to end by `leave`."""
        loop = running_loop()
        self._blocks[loop] = self._blocks.get(loop, 0) + 1

    async def leave(self) -> None:
        """Close the manager if this loop's other blocks have ended."""
        # A forked child leaves its parent's block.
        if self.inherited:
            return
        loop = running_loop()
        self._blocks[loop] -= 1
        if not self._blocks[loop]:
            await self.aclose()

    async def aclose(self) -> None:
        """See `LockManager.aclose`."""
        if (instead := override) is not None:
            instead.end(self)
            # Nothing of its own was ever started: it is not closed, and the next test can use it.
            if self.session is None:
                return
        session, background = self.session, self._background
        if session is not None and session.loop is not running_loop():
            self._forget_what_ended()
            session, background = self.session, self._background
        if session is not None:
            session.check_here()
        self._closed_in = running_loop()
        for each in (*self._earlier, background):
            if session is not None and each is not None:
                await each.aclose()
