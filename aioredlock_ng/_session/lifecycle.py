"""The life of a manager: where it belongs, how it starts, and how it ends (R18)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Protocol, Self

import anyio

from .._clock import Clock
from .._hooks import Audience
from .._node import Node
from .._options import Options
from .._round.futures import running_loop
from ..errors import ConfigurationError, ManagerClosedError
from .background import Background
from .runtime import Counters, Runtime


class StandIn(Protocol):
    """What the calls of all managers of this process come to instead of the managers' own sessions."""

    def ready(self, life: Life) -> Awaitable[Runtime]:
        """Return the runtime that one call works with; `life` stays as it is."""

    def blocking_timeout(self, asked: float | None) -> float | None:
        """Return how many seconds an acquire waits that was given `asked`."""

    def unavailable_for(self) -> float:
        """Return what `Life.unavailable_for` says."""

    def end(self, life: Life) -> None:
        """Release what calls of `life` hold in the running loop."""


stand_in: StandIn | None = None
"""The seam for users' tests, which `testing` alone fills: managers ask at each use where to go, once, since a
thread beside theirs may fill or empty it meanwhile."""


class Life:
    """What `LockManager` is besides its locks: not started, running, or closed.

    It binds to the running loop, and connects, at its first use; and anew to the next loop when that one is
    closed, or the manager was.
    """

    _nodes: Sequence[Node] = ()  # a manager that cannot be made still has a repr
    _runtime: Runtime | None = None
    _closed_in: asyncio.AbstractEventLoop | None = None
    """The loop in which it was closed, and stays closed."""

    def __init__(
        self,
        nodes: Sequence[Node],
        options: Options,
        *,
        make_nodes: Callable[[], Sequence[Node]],
        clock: Clock,
        random: Random,
        audience: Audience,
    ) -> None:
        self._nodes = nodes
        self._make_nodes = make_nodes
        self._options = options
        self.clock = clock
        self._random = random
        self._audience = audience
        self._background: Background | None = None
        self._counters = Counters()

    def __repr__(self) -> str:
        states = ", ".join(f"{node.name} {node.standing.state}" for node in self._nodes)
        held = self._runtime.held if self._runtime else 0
        over = self._closed_in is not None or (self._runtime is not None and self._runtime.closing)
        state = "closed" if over else "running" if self._runtime else "not started"
        return f"<LockManager {state}, {held} held: {states}>"

    async def start(self) -> None:
        """Bind to the running loop and connect; no node needs to be up.

        Returns when every node has been tried once, or a majority is connected and the others have
        had a `node_timeout` more, or after `connect_timeout`.

        Raises:
            ConfigurationError: two nodes turned out to be one server, or one belongs to a quorum of another
                size.
            ManagerClosedError: the manager was closed in this loop.
            RuntimeError: the manager belongs to another event loop, which is not closed, or another process.
        """
        await self._start()

    async def _start(self, *, looking: bool = False) -> Runtime:
        """Start; who is only `looking` leaves the nodes' sentinels as they are."""
        await self.ready(looking=looking)
        if self._background is not None:
            await self._background.settled.wait()
        return await self.ready(looking=looking)  # with what has been seen by now

    async def _settled(self) -> Runtime:
        """Start, and return the runtime even if the nodes cannot be a quorum: for those who mend that.

        All nodes are heard, at most a `connect_timeout` after that.
        """
        if (instead := stand_in) is not None:
            return await instead.ready(self)
        with suppress(ConfigurationError):
            await self._start(looking=True)
        runtime, background = self._runtime, self._background
        assert runtime is not None, "start() made it, or has raised something else"
        assert background is not None, "likewise"
        await background.settled.wait()  # of a start that has raised, too
        with anyio.move_on_after(self._options.connect_timeout):
            for node in runtime.nodes:
                await node.settled.wait()
        return runtime

    async def ready(self, patience: float | None = None, *, looking: bool = False) -> Runtime:
        """Return the runtime of a manager that can be used here and now; start it if need be.

        Waits for a majority to be connected: at most a `node_timeout` longer than `patience` seconds,
        and not longer than `start` anyway.  `looking` as in `_start`.
        """
        if (instead := stand_in) is not None:
            return await instead.ready(self)
        self._let_go()
        runtime, background = self._runtime, self._background
        if runtime is None or background is None:
            if self._closed_in is running_loop():
                raise ManagerClosedError("the lock manager is closed")
            runtime = self._runtime = Runtime(
                self._nodes,
                self._options,
                self.clock,
                self._random,
                self._audience,
                counters=self._counters,
            )
            self._closed_in = None
            background = self._background = Background(runtime, looking=looking)
        runtime.check_here()
        if runtime.closing:
            raise runtime.closed_error()
        if not looking:
            await background.take_part()
        if not background.usable.is_set():
            with anyio.move_on_after(None if patience is None else patience + self._options.node_timeout):
                await background.usable.wait()
            if runtime.closing:
                raise runtime.closed_error()
        runtime.check_configuration()
        return runtime

    def _let_go(self) -> None:
        """Forget the loop before, if this is another one and nothing of ours can live on in that."""
        runtime, background = self._runtime, self._background
        here = asyncio._get_running_loop()  # noqa: SLF001 (asyncio exports it; None in a forked child)
        if runtime is None or runtime.loop is here or runtime.inherited:
            return
        if not runtime.loop.is_closed() and (background is None or not background.over):
            return
        nodes = self._make_nodes()
        if same := [node.name for node in nodes if node in self._nodes]:
            raise RuntimeError(
                f"node {same[0]} belongs to another event loop, and is an object that cannot be made anew: "
                "give its URL, or one LockManager per loop"
            )
        self._runtime = self._background = None
        self._nodes = nodes
        for holding in list(runtime.holdings):
            holding.abandon()

    @property
    def available(self) -> bool:
        """Whether a majority of the nodes may vote now, as far as is known without asking them."""
        return self.unavailable_for == 0

    @property
    def unavailable_for(self) -> float:
        """Seconds until a majority of the nodes may vote, as far as is known without asking them.

        0 when it may now; more than 0 during a restart quarantine; `math.inf` when no moment is known: the
        manager is not started or is closed, too few nodes are up, or they cannot be one quorum.
        """
        if (instead := stand_in) is not None:
            return instead.unavailable_for()
        return math.inf if self._runtime is None else self._runtime.unavailable_for()

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child and the manager was started by its parent."""
        return self._runtime is not None and self._runtime.inherited

    async def aclose(self) -> None:
        """Release every lease, end all tasks, close the connections (R18).  Idempotent.

        In this loop it stays closed; used in another one, it starts anew.

        Bodies under a lease are cancelled (reason ``manager_closed``) and waited for, at most until
        their deadline.  Nodes that do not answer take two `node_timeout`s at most: one for the releases, one
        for the connection, as long as a server has not read all that it was sent.
        """
        if (instead := stand_in) is not None:
            instead.end(self)
            if self._runtime is None:
                return  # nothing of its own was ever started, and the next test can use it
        self._let_go()
        if self._runtime is not None:
            self._runtime.check_here()
        self._closed_in = running_loop()
        if self._background is not None:
            await self._background.aclose()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.aclose()  # nobody else will: without an enter there is no exit
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()
