"""The life of a manager: where it belongs, how it starts, and how it ends (R18)."""

from __future__ import annotations

import asyncio
import math
import sys
import warnings
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Protocol, final
from weakref import WeakSet

import anyio

from .._clock import Clock
from .._hold.hooks import HookList
from .._kinds.kind import Kind
from .._node import Node
from .._node.fork import close_in_children
from .._round.futures import running_loop
from .._settings.options import Options
from .._statistics import Counters
from ..errors import ConfigurationError, ManagerClosedError
from .background import Background
from .crowd import count_in
from .runtime import Runtime


class StandIn(Protocol):
    """What the calls of all managers of this process come to instead of the managers' own sessions."""

    def ready(self, life: Lifecycle) -> Awaitable[Runtime]:
        """Return the runtime that one call works with; `life` stays as it is."""

    def blocking_timeout(self, asked: float | None, kind: Kind) -> float | None:
        """Return how many seconds an acquire of a kind waits that was given `asked`."""

    def unavailable_for(self) -> float:
        """Return what `LockManager.unavailable_for` says."""

    def end(self, life: Lifecycle) -> None:
        """Release what calls of `life` hold in the running loop."""


stand_in: StandIn | None = None
"""The seam for users' tests, which `testing` alone fills: managers ask at each use where to go, once, since a
thread beside theirs may fill or empty it meanwhile."""


@final
class Lifecycle:
    """Whether a manager is not started, running, or closed.

    It binds to the running loop, and connects, at its first use; and anew to the next loop when that one is
    closed, or the manager was.
    """

    __slots__ = (
        "__weakref__",
        "_background",
        "_closed_in",
        "_make_nodes",
        "_ready_runtime",
        "clock",
        "counters",
        "hooks",
        "nodes",
        "options",
        "random",
        "runtime",
        "stood_in",
    )

    def __init__(
        self,
        nodes: Sequence[Node],
        options: Options,
        *,
        make_nodes: Callable[[], Sequence[Node]],
        clock: Clock,
        random: Random,
        hooks: HookList,
    ) -> None:
        self.nodes = nodes
        self.options = options
        self.clock = clock
        self.random = random
        self.hooks = hooks
        self.counters = Counters()
        self.runtime: Runtime | None = None
        """None before the first use."""
        self.stood_in: WeakSet[Runtime] = WeakSet()
        """What calls of this manager were given by a `StandIn`."""
        self._make_nodes = make_nodes
        self._background: Background | None = None
        self._ready_runtime: Runtime | None = None  # the runtime whose nodes are ready for locks
        self._closed_in: asyncio.AbstractEventLoop | None = None  # in that loop it stays closed
        close_in_children(self)  # so that `at_hand` need not ask, which every acquire does

    def __repr__(self) -> str:
        states = ", ".join(f"{node.name} {node.standing.state}" for node in self.nodes)
        runtime = self.runtime
        held = runtime.holdings.held if runtime else 0
        over = self._closed_in is not None or (runtime is not None and runtime.availability.closing)
        state = "closed" if over else "running" if runtime else "not started"
        return f"<LockManager {state}, {held} held: {states}>"

    # -- the start -----------------------------------------------------------------------------

    @property
    def at_hand(self) -> Runtime | None:
        """The runtime, if locks can be asked for here and now; else `ready` waits for it, or says why not."""
        runtime = self._ready_runtime
        if runtime is None or stand_in is not None:
            return None
        if runtime.loop is not asyncio._get_running_loop():  # noqa: SLF001 (None in a forked child, too)
            return None
        availability = runtime.availability
        return None if availability.closing or availability.conflict is not None else runtime

    async def start(self, *, read_only: bool = False) -> Runtime:
        """Start; a caller that is `read_only` leaves the nodes' sentinels as they are."""
        await self.ready(read_only=read_only)
        if self._background is not None:
            await self._background.settled.wait()
        return await self.ready(read_only=read_only)  # with what has been seen by now

    async def start_and_hear_all(self) -> Runtime:
        """Start, and return the runtime even if the nodes cannot be a quorum: for callers that mend that.

        All nodes are heard, at most a `connect_timeout` after that.
        """
        if (instead := stand_in) is not None:
            return await instead.ready(self)
        with suppress(ConfigurationError):
            await self.start(read_only=True)
        runtime, background = self.runtime, self._background
        assert runtime is not None, "start() made it, or has raised something else"
        assert background is not None, "likewise"
        await background.settled.wait()  # of a start that has raised, too
        with anyio.move_on_after(self.options.connect_timeout):
            for node in runtime.nodes:
                await node.settled.wait()
        return runtime

    async def ready(self, within: float | None = None, *, read_only: bool = False) -> Runtime:
        """Return the runtime of a manager that can be used here and now; start it if need be.

        Waits for a majority to be connected: at most a `node_timeout` longer than `within` seconds,
        and not longer than `start` anyway.  `read_only` as in `start`.
        """
        if (instead := stand_in) is not None:
            return await instead.ready(self)
        self._forget_closed_loop()
        runtime, background = self.runtime, self._background
        if runtime is None or background is None:
            if self._closed_in is running_loop():
                raise ManagerClosedError("the lock manager is closed")
            runtime = self.runtime = Runtime(
                self.nodes, self.options, self.clock, self.random, self.hooks, counters=self.counters
            )
            self._closed_in = None
            background = self._background = Background(runtime, read_only=read_only)
            count_in(background, runtime.nodes)
        runtime.check_here()
        availability = runtime.availability
        if availability.closing:
            raise availability.closed_error()
        if not read_only:
            await background.take_part()
        if not background.usable.is_set():
            with anyio.move_on_after(None if within is None else within + self.options.node_timeout):
                await background.usable.wait()
            if availability.closing:
                raise availability.closed_error()
        availability.check()
        if not read_only and background.usable.is_set():
            self._ready_runtime = runtime
        return runtime

    def _forget_closed_loop(self) -> None:
        """Forget the loop before, if this is another one and nothing of ours can live on in that."""
        runtime, background = self.runtime, self._background
        here = asyncio._get_running_loop()  # noqa: SLF001 (asyncio exports it; None in a forked child)
        if runtime is None or runtime.loop is here or runtime.inherited:
            return
        if not runtime.loop.is_closed() and (background is None or not background.over):
            return
        nodes = self._make_nodes()
        if same := [node.name for node in nodes if node in self.nodes]:
            raise RuntimeError(
                f"node {same[0]} belongs to another event loop, and is an object that cannot be made anew: "
                "give its URL, or one LockManager per loop"
            )
        self.runtime = self._background = self._ready_runtime = None
        self.nodes = nodes
        for holding in list(runtime.holdings.all):
            holding.abandon()

    # -- what is known of it -------------------------------------------------------------------

    @property
    def unavailable_for(self) -> float:
        """See `LockManager.unavailable_for`."""
        if (instead := stand_in) is not None:
            return instead.unavailable_for()
        return math.inf if self.runtime is None else self.runtime.availability.seconds()

    @property
    def runtimes_here(self) -> list[Runtime]:
        """Those in which tasks of the running loop may hold locks of this manager."""
        known = [*(() if self.runtime is None else (self.runtime,)), *self.stood_in]
        here = running_loop()
        return [each for each in known if each.loop is here and not each.inherited]

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child and the manager was started by its parent."""
        return self.runtime is not None and self.runtime.inherited

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Have nothing at hand in a forked child, though it may go on with its parent's loop."""
        self._ready_runtime = None

    def __del__(self) -> None:
        """Tell of a manager that no code can close any more, while its connections and tasks go on."""
        background = self._background
        if background is None or not background.running or sys.is_finalizing():
            return
        warnings.warn(
            f"{self!r} was dropped without aclose(): its connections stay; make one manager and share it",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )

    async def aclose(self) -> None:
        """See `LockManager.aclose`."""
        if (instead := stand_in) is not None:
            instead.end(self)
            if self.runtime is None:
                return  # nothing of its own was ever started, and the next test can use it
        self._forget_closed_loop()
        if self.runtime is not None:
            self.runtime.check_here()
        self._closed_in = running_loop()
        if self._background is not None:
            await self._background.aclose()
