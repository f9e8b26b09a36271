"""The manager: the nodes, the settings, and the life of everything in the background (R18)."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from random import Random
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar, final

import anyio

from . import _admin
from ._acquire import Request
from ._admin import NodeInspection
from ._clock import Clock, SystemClock
from ._core.policy import ExtensionPolicy, RetryPolicy
from ._core.quorum import majority
from ._decorator import locked
from ._kinds.mutex import Mutex
from ._lock import Lock
from ._node import Node, NodeEnv, NodeState
from ._options import (
    OnLost,
    Seconds,
    checked_blocking,
    checked_names,
    checked_on_lost,
    checked_options,
    checked_policy,
    checked_ttl,
)
from ._runtime import Counters, Runtime
from ._specs import NodeSpec, make_nodes
from ._statistics import ManagerStatistics, NodeStatistics
from .errors import ConfigurationError, LossReason
from .events import Audience, NodeChanged

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("aioredlock_ng")

URLS_VARIABLE: Final = "REDLOCK_URLS"
"""Environment variable read by `LockManager.from_env`: node URLs, separated by commas."""


@final
class LockManager:
    """A Redlock over N independent Redis or Valkey masters.

    It may be made anywhere, also at module level: it binds to the running loop, and connects, at its
    first use.  Use it as ``async with LockManager(...) as manager:``, or call `start` and `aclose`.

    Args:
        nodes: URLs (``redis://``, ``rediss://``, ``unix://``, ``valkey://``, ``valkeys://``, with user,
            password and database), `redis.asyncio.Redis` clients (never closed by us), or objects
            such as `testing.MemoryNode`.  An odd number: an even one tolerates no more failures than
            the odd number below it.
        ttl: seconds a lock lives unless it is extended; at most 24 hours.
        node_timeout: seconds one node's answer is waited for.  It only costs time when a majority is
            silent; raise it when nodes are far away.  Shorter than the ttl.
        connect_timeout: seconds one attempt to connect and log in may take.
        prefix: begins every key; the lock ``name`` lives under ``prefix + name``.
        fencing: whether leases carry a fence.  Not in this version: only False is accepted.
        restart_quarantine: seconds a restarted node has no vote.  Not in this version: only 0 is
            accepted; see the README for what that means.
        retry: how a refused acquire waits before it asks again.
        extension: when and how often held locks are extended, and when their body is stopped.
        on_lost: ``"cancel"``: a lost lease cancels the body of its ``async with``; ``"raise"``: it only
            raises at the end of the body.
        holder: who this is, readable by anybody who can read the keys; default ``host:pid``.
        hooks: objects with methods of `events.Hooks`.
        clock: for tests on virtual time.
        random: for tests; its numbers make the owner values, so it must be secure in production.

    Raises:
        ConfigurationError: a node list that cannot work; the message names the node.
        ValueError, TypeError: any other bad value.
    """

    def __init__(
        self,
        nodes: Iterable[NodeSpec],
        *,
        ttl: Seconds = 10.0,
        node_timeout: Seconds = 0.1,
        connect_timeout: Seconds = 1.0,
        prefix: str = "redlock:",
        fencing: bool = False,
        restart_quarantine: Seconds = 0.0,
        retry: RetryPolicy = RetryPolicy(),
        extension: ExtensionPolicy = ExtensionPolicy(),
        on_lost: OnLost = "cancel",
        holder: str | None = None,
        hooks: Iterable[object] = (),
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._nodes: Sequence[Node] = ()  # first: a manager that cannot be made still has a repr
        self._runtime: Runtime | None = None
        self._closed = False
        self._options = checked_options(
            ttl=ttl,
            node_timeout=node_timeout,
            connect_timeout=connect_timeout,
            prefix=prefix,
            retry=retry,
            extension=extension,
            on_lost=on_lost,
            holder=holder,
        )
        _refuse_what_is_missing(fencing=fencing, restart_quarantine=restart_quarantine)
        self._nodes = make_nodes(nodes)
        self.clock: Clock = SystemClock() if clock is None else clock
        self._random: Random = secrets.SystemRandom() if random is None else random
        self._audience = Audience(hooks)
        self._settled = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._conflict: str | None = None

    @classmethod
    def from_env(cls, **options: Any) -> LockManager:
        """Make a manager over the nodes that `REDLOCK_URLS` lists, separated by commas.

        Raises:
            ConfigurationError: when the variable is missing or empty.
        """
        urls = [url.strip() for url in os.environ.get(URLS_VARIABLE, "").split(",") if url.strip()]
        if not urls:
            raise ConfigurationError(
                f"{URLS_VARIABLE} must list node URLs, such as redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"
            )
        return cls(urls, **options)

    def __repr__(self) -> str:
        states = ", ".join(f"{node.name} {node.standing.state}" for node in self._nodes)
        held = len(self._runtime.holdings) if self._runtime else 0
        state = "closed" if self._closed else "running" if self._runtime else "not started"
        return f"<LockManager {state}, {held} held: {states}>"

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind to the running loop and connect; no node needs to be up.

        Returns when every node has been tried once, or a majority is connected and the others have
        had a `node_timeout` more, or after `connect_timeout`.

        Raises:
            ConfigurationError: two nodes turned out to be one server.
            ManagerClosedError: the manager was closed.
            RuntimeError: the manager belongs to another event loop or another process.
        """
        await self.ready()

    async def ready(self, patience: float | None = None) -> Runtime:
        """Return the runtime of a manager that can be used here and now; start it if need be.

        Waits at most a `node_timeout` longer than `patience` seconds; not longer than `start` anyway.
        """
        runtime = self._runtime
        if runtime is None:
            runtime = self._bind()
        runtime.check_here()
        if runtime.closing:
            raise runtime.closed_error()
        if not self._settled.is_set():
            with anyio.move_on_after(None if patience is None else patience + self._options.node_timeout):
                await self._settled.wait()
            if runtime.closing:
                raise runtime.closed_error()
        if self._conflict is not None:
            raise ConfigurationError(self._conflict)
        return runtime

    def _bind(self) -> Runtime:
        if self._closed:
            raise Runtime.closed_error()
        runtime = self._runtime = Runtime(
            self._nodes, self._options, self.clock, self._random, self._audience
        )
        env = NodeEnv(
            clock=self.clock,
            random=self._random,
            node_timeout=self._options.node_timeout,
            connect_timeout=self._options.connect_timeout,
            on_change=self._node_changed,
        )
        for node in self._nodes:
            node.bind(env)
        self._supervisor = runtime.loop.create_task(self._supervise(runtime), name="aioredlock_ng supervisor")
        return runtime

    async def _supervise(self, runtime: Runtime) -> None:
        """Keep everything in the background alive, until `aclose` or the loop's own end."""
        stop_bodies = True  # without the watchdog nobody would stop them in time
        try:
            async with anyio.create_task_group() as tasks:
                for node in self._nodes:
                    tasks.start_soon(node.run, name=f"aioredlock_ng {node.name}")
                tasks.start_soon(runtime.watchdog.run, name="aioredlock_ng watchdog")
                tasks.start_soon(self._settle, name="aioredlock_ng start")
        except asyncio.CancelledError:
            stop_bodies = False  # whoever tears the loop down cancels the bodies, too, and once is enough
            raise
        finally:
            # Bodies that are being cancelled queue their releases, and those still leave (R6).
            with anyio.CancelScope(shield=True):
                await self._shut_down(runtime, stop_bodies=stop_bodies)

    async def _settle(self) -> None:
        """Decide when the manager has started."""
        try:
            with anyio.move_on_after(self._options.connect_timeout):
                async with anyio.create_task_group() as tasks:
                    for node in self._nodes:
                        tasks.start_soon(self._wait_for, node, tasks.cancel_scope)
        finally:
            self._settled.set()

    async def _wait_for(self, node: Node, others: anyio.CancelScope) -> None:
        await node.settled.wait()
        up = sum(node.standing.state is NodeState.UP for node in self._nodes)
        if up >= majority(len(self._nodes)):
            deadline = anyio.current_time() + self._options.node_timeout
            others.deadline = min(others.deadline, deadline)

    def _node_changed(self, node: Node) -> None:
        standing = node.standing
        self._conflict = _same_server(self._nodes)
        if self._conflict is not None:
            log.error("%s", self._conflict)
        self._audience.tell(NodeChanged(node=node.name, state=standing.state, reason=standing.reason))

    async def aclose(self) -> None:
        """Release every lease, end all tasks, close the connections (R18).  Idempotent.

        Bodies under a lease are cancelled (reason ``manager_closed``) and waited for, at most until
        their deadline.
        """
        if self._runtime is not None:
            self._runtime.check_here()
        self._closed = True
        if self._runtime is None or self._supervisor is None:
            return
        try:
            await self._shut_down(self._runtime, stop_bodies=True)
        finally:
            self._supervisor.cancel()
            await asyncio.wait((self._supervisor,))

    async def _shut_down(self, runtime: Runtime, *, stop_bodies: bool) -> None:
        runtime.close()
        self._closed = True
        try:
            await self._end_bodies(runtime, stop=stop_bodies)
        finally:
            for holding in list(runtime.holdings):
                holding.release()
            try:
                await runtime.released()
            finally:
                for node in self._nodes:
                    node.close()

    async def _end_bodies(self, runtime: Runtime, *, stop: bool) -> None:
        """Wait until the bodies under our leases have ended, or must have; cancel them if `stop`."""
        current = asyncio.current_task()
        bound = [h for h in runtime.holdings if h.body is not None and h.body.task is not current]
        for holding in bound if stop else ():
            holding.lose(LossReason.MANAGER_CLOSED)
        for holding in bound:
            await holding.ended(holding.deadline - runtime.clock.now())

    async def __aenter__(self) -> LockManager:
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

    # -- locks ---------------------------------------------------------------------------------

    def lock(
        self,
        *names: str,
        ttl: Seconds | None = None,
        blocking: bool = True,
        blocking_timeout: Seconds | None = None,
        extension: ExtensionPolicy | None = None,
        on_lost: OnLost | None = None,
        label: str | None = None,
    ) -> Lock:
        """Describe a lock over `names`; nothing is sent before it is entered.

        Args:
            names: one name, or several that are locked all or nothing.  Each 1 to 1024 bytes of UTF-8.
            ttl: seconds; default the manager's.
            blocking: False is ``blocking_timeout=0``.
            blocking_timeout: seconds to wait for the lock; None waits for ever, 0 tries exactly once.
            extension: default the manager's; `ExtensionPolicy.off` for a lease that just runs out.
            on_lost: default the manager's.
            label: a name of low cardinality for metrics.

        Raises:
            ValueError, TypeError: a bad value, with the value in the message.
        """
        options = self._options
        names = checked_names(names)
        if extension is not None:
            checked_policy(extension)
        request = Request(
            primitive=Mutex(names, tuple(options.prefix + name.encode() for name in names)),
            ttl=options.ttl if ttl is None else checked_ttl(ttl, options.node_timeout),
            blocking_timeout=checked_blocking(blocking, blocking_timeout),
            extension=options.extension if extension is None else extension,
            on_lost=options.on_lost if on_lost is None else checked_on_lost(on_lost),
            label="" if label is None else label,
        )
        return Lock(self, request)

    def locked(
        self,
        template: str,
        *,
        ttl: Seconds | None = None,
        blocking: bool = True,
        blocking_timeout: Seconds | None = None,
        extension: ExtensionPolicy | None = None,
        on_lost: OnLost | None = None,
        label: str | None = None,
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """Run an async function under the lock that `template` names, filled from its arguments.

        ``@manager.locked("report:{customer_id}")``; the other parameters are those of `lock`.

        Raises:
            ValueError: at decoration, when a field of the template is no parameter of the function.
            TypeError: at decoration, when the function is not async.
        """

        def make(name: str) -> Lock:
            return self.lock(
                name,
                ttl=ttl,
                blocking=blocking,
                blocking_timeout=blocking_timeout,
                extension=extension,
                on_lost=on_lost,
                label=template if label is None else label,
            )

        return locked(template, make)

    # -- looking and administering -------------------------------------------------------------

    async def inspect(self, name: str) -> tuple[NodeInspection, ...]:
        """Return what each node holds under `name`: whether, how long, by whom, and whether by us."""
        runtime = await self.ready()
        return await _admin.inspect(runtime, self._key(name))

    async def force_release(self, name: str) -> tuple[NodeInspection, ...]:
        """Delete the key of `name` on every node, whoever holds it, and return what was there.

        For administrators only: the holder, if alive, works on until its next extension is refused.
        """
        runtime = await self.ready()
        return await _admin.force_release(runtime, self._key(name))

    def _key(self, name: str) -> bytes:
        return self._options.prefix + checked_names((name,))[0].encode()

    def statistics(self) -> ManagerStatistics:
        """Return nodes, held leases, waiters and counters as they are now."""
        runtime = self._runtime
        counters = runtime.counters if runtime else Counters()
        return ManagerStatistics(
            nodes=tuple(NodeStatistics.of(node.name, node.standing) for node in self._nodes),
            held=len(runtime.holdings) if runtime else 0,
            waiting=runtime.waiting if runtime else 0,
            acquired=counters.acquired,
            refused=counters.refused,
            extended=counters.extended,
            lost=counters.lost,
            released=counters.released,
        )


def _refuse_what_is_missing(*, fencing: bool, restart_quarantine: Seconds) -> None:
    """Fail rather than let somebody rely on what this version does not do."""
    if fencing:
        raise ConfigurationError("fencing=True: this version makes no fences; leave it out")
    if restart_quarantine != 0:
        raise ConfigurationError(
            f"restart_quarantine={restart_quarantine!r}: this version has no restart quarantine; leave it out"
        )


def _same_server(nodes: Sequence[Node]) -> str | None:
    """Tell of two nodes that are one server: they would vote twice (A4)."""
    seen: dict[str, str] = {}
    for node in nodes:
        run_id = node.standing.run_id
        if run_id is None:
            continue
        if run_id in seen:
            return f"nodes {seen[run_id]} and {node.name} are one server: a quorum needs N different ones"
        seen[run_id] = node.name
    return None
