"""The manager: its settings, its locks, and what can be seen from it."""

from __future__ import annotations

import functools
import os
import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from random import Random
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, Unpack, final, get_args, overload

from ._admin import initialise as _initialise
from ._admin import survey as _admin
from ._admin.doctor.findings import Finding
from ._admin.initialise import NodeInitialisation
from ._admin.inspection import NodeInspection
from ._admin.survey import QueueInspection, Survey
from ._clock import Clock
from ._core.policy import ExtensionPolicy, RetryPolicy
from ._kinds.fair import FAIR
from ._kinds.kind import Mode
from ._kinds.mutex import LEADER, MUTEX
from ._kinds.primitive import Primitive
from ._kinds.read_write import READ, WRITE
from ._kinds.semaphore import semaphore
from ._lock.body import act_for
from ._lock.hooks import HookList
from ._lock.session import statistics_of
from ._locks import WITH, Uncopied, instead
from ._locks.decorator import AsyncFunction, lock_maker, locked
from ._locks.election import Election, subject_of, unbounded
from ._locks.lease import Lease
from ._locks.lock import Lock
from ._locks.permits import collected
from ._locks.rwlock import ReadWriteLock
from ._session import lifecycle
from ._session.lifecycle import Lifecycle
from ._settings import options as settings
from ._settings.options import (
    DEFAULT_PREFIX,
    ElectionOptions,
    LockedOptions,
    LockOptions,
    ManagerOptions,
    OnLost,
    Options,
    ReadWriteLockOptions,
    Renamed,
    Request,
    Seconds,
    SemaphoreOptions,
    shows,
)
from ._settings.specs import NodeSpec, Primitives, listed, make_nodes, refuse_untagged, split_urls
from ._statistics import ManagerStatistics
from .errors import ConfigurationError, LockTakenError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

URLS_VARIABLE: Final = "REDLOCK_URLS"
"""Environment variable read by `LockManager.from_env`: node URLs, separated by commas."""

MAX_REQUESTS: Final = 256
"""Sets of options of `LockManager.lock` that are kept checked: a program has a handful of them."""


_NOT_OF_ALL_KINDS: Final = ("at_least", "reentrant", "fair")  # off by default


@final
@instead("`async with LockManager(…) as manager:`; without asyncio use a `SyncLockManager`", *WITH)
class LockManager(Renamed, Uncopied):
    """A Redlock over N independent Redis or Valkey masters.

    It may be made anywhere, also at module level: it binds to the running loop, and connects, at its
    first use.  When that loop is closed, or the manager was, its next use in another loop starts it again;
    leases that were not released before their loop was closed are lost, and their keys end with their ttl.
    Use it as ``async with LockManager(...) as manager:``, or call `start` and `aclose`.  It may be entered
    again, also by several tasks: the block that is left last closes it.

    Args:
        nodes: URLs (``redis://``, ``rediss://``, ``unix://``, ``valkey://``, ``valkeys://``, with user,
            password and database; ``redis+sentinel://host:26379,host:26379/service`` for a master that
            Redis Sentinels know), `redis.asyncio.Redis` clients (read, never used), `RedisCluster` clients
            under a prefix with a hash tag, or objects such as `testing.MemoryNode`.  An odd number: an even
            one tolerates no more failures than the odd number below it.
        ttl: seconds a lock lives unless it is extended; 5 ms to 24 hours.
        node_timeout: seconds one node's answer is waited for.  It only costs time when a majority is
            silent; raise it when nodes are far away.  Shorter than the ttl.
        connect_timeout: seconds one attempt to connect and log in may take, and for which the first call
            waits for a majority, whatever its own limits are.
        prefix: begins every key; the lock ``name`` lives under ``prefix + name``.  On a Redis Cluster it
            needs a hash tag, as in ``"{locks}:"``.
        fencing: whether leases carry a fence (`Lease.fence`).  False sends the plain ``SET NX PX`` of the
            Redlock page.
        fence_ttl: seconds that a fence's counter lives on a node after the last acquire or extension that
            used it; 300 at least.
        restart_quarantine: seconds that a node has no vote after it has lost its memory; at least the
            longest ttl, and the same for all clients.  0: none.  Default: the value of
            ``REDLOCK_RESTART_QUARANTINE`` (seconds, or such as ``5m``); else 60 or the ttl, if longer, with
            three nodes or more, and 0 with fewer.  The first use of a prefix waits, too, unless all
            servers show that they have forgotten nothing for so long, or `init` says that no lock can be
            alive.
        retry: how a refused acquire waits before it asks again: see `RetryPolicy`.
        extension: when and how often held locks are extended, and when their body is stopped.
        on_lost: ``"cancel"``: a lost lease cancels the body of its ``async with``; ``"raise"``: it only
            raises at the end of the body.
        holder: what this process calls itself, for all that can read the keys; default ``host:pid``.
        hooks: objects with methods of `events.Hooks`.
        clock: default that of a `testing.SimLoop`, if it runs in one, else the machine's.
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
        prefix: str = DEFAULT_PREFIX,
        fencing: bool = True,
        fence_ttl: Seconds = 600.0,
        restart_quarantine: Seconds | None = None,
        retry: RetryPolicy = RetryPolicy(),
        extension: ExtensionPolicy = ExtensionPolicy(),
        on_lost: OnLost = "cancel",
        holder: str | None = None,
        hooks: Iterable[object] = (),
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        specs = listed(nodes)
        made = make_nodes(specs)
        timeout = settings.positive("node_timeout", node_timeout)
        default_ttl = settings.checked_ttl(ttl, timeout)
        options = Options(
            ttl=default_ttl,
            node_timeout=timeout,
            connect_timeout=settings.positive("connect_timeout", connect_timeout),
            prefix=settings.checked_prefix(prefix),
            fencing=settings.typed("fencing", fencing, bool),
            fence_ttl=settings.checked_fence_ttl(fence_ttl),
            restart_quarantine=settings.checked_quarantine(restart_quarantine, default_ttl, len(made)),
            retry=settings.typed("retry", retry, RetryPolicy),
            extension=settings.typed("extension", extension, ExtensionPolicy),
            on_lost=settings.checked_on_lost(on_lost),
            holder=None if holder is None else settings.checked_holder(holder),
        )
        refuse_untagged(made, options.prefix)
        self._options = options
        self._primitives = Primitives(options)
        # Of each type apart: True is not 1 here.
        self._requests = functools.lru_cache(MAX_REQUESTS, typed=True)(options.request_of)
        listeners = HookList(hooks)
        self._life = Lifecycle(
            made,
            options,
            make_nodes=functools.partial(make_nodes, specs),
            clock=clock,
            random=secrets.SystemRandom() if random is None else random,
            hooks=listeners,
        )

        this = weakref.ref(self)  # a hook may live for longer
        listeners.attach(lambda: None if (manager := this()) is None else manager.statistics())

    @classmethod
    @shows(ManagerOptions, __init__)
    def from_env(cls, **options: Unpack[ManagerOptions]) -> LockManager:
        """Make a manager over the nodes that `REDLOCK_URLS` lists, separated by commas.

        Of a Redis Sentinel URL's several hosts the commas belong to it, up to the name of the service.

        Raises:
            ConfigurationError: when the variable is missing, empty, or no such list.
        """
        urls = split_urls(os.environ.get(URLS_VARIABLE, ""))
        if not urls:
            raise ConfigurationError(
                f"{URLS_VARIABLE} must list node URLs, such as redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"
            )
        return cls(urls, **options)

    def __class_getitem__(cls, _: object) -> type[LockManager]:
        """Accept an annotation such as `LockManager[int]`; the type of its fences is always an int."""
        return cls

    def __repr__(self) -> str:
        return repr(self._life) if hasattr(self, "_life") else "<LockManager not made>"

    # -- its life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind to the running loop and connect; no node needs to be up.

        Returns when every node has been tried once, or a majority is connected and the others have
        had a `node_timeout` more, or after `connect_timeout`.

        Raises:
            ConfigurationError: two nodes turned out to be one server; one belongs to a quorum of another
                size; or other clients, which came first, use another server in place of one (R12c).
            ManagerClosedError: the manager was closed in this loop.
            RuntimeError: the manager belongs to another event loop, which is not closed, or another process.
        """
        await self._life.start()

    async def aclose(self) -> None:
        """Release every lease, end all tasks, close the connections (R18).  Idempotent.

        In this loop it stays closed; used in another one, it starts again.

        Bodies under a lease are cancelled (reason ``manager_closed``) and waited for, at most until
        their deadline.  Nodes that do not answer take two `node_timeout`s at most: one for the releases, one
        for the connection, as long as a server has not read all that it was sent.
        """
        await self._life.aclose()

    async def _aclose_for(self, inside: tuple[object, ...]) -> None:
        """Close it for a thread's code `inside` of these blocks, which wait for it; see `sync`."""
        act_for(inside)
        await self._life.aclose()

    async def __aenter__(self) -> Self:
        self._life.enter()
        try:
            await self.start()
        except BaseException:
            await self._life.leave()  # without an enter there is no exit that would do it
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._life.leave()

    @property
    def available(self) -> bool:
        """Whether a majority of the nodes may vote now, as far as is known without asking them.

        It starts the manager, as `unavailable_for` does.
        """
        return self.unavailable_for == 0

    @property
    def unavailable_for(self) -> float:
        """Seconds until a majority of the nodes may vote, as far as is known without asking them.

        0 when it may now; more than 0 during a restart quarantine; `math.inf` when no moment is known: the
        manager is not started or is closed, too few nodes are up, or they cannot be one quorum.

        Asked in a running loop, of a manager that was neither used nor closed, it starts it in the
        background: a readiness probe needs no other code that does.  Without I/O.
        """
        self._life.probed()
        return self._life.unavailable_for

    @property
    def clock(self) -> Clock:
        """The clock that `Lease.valid_until` is read on."""
        return self._life.clock

    # -- locks ---------------------------------------------------------------------------------

    @shows(LockOptions, Options.request)
    def lock(self, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """Describe a lock over `names`; nothing is sent before it is entered.

        Args:
            names: one name, or several that are locked all or nothing.  Each 1 to 1024 bytes of UTF-8.

        Keyword Args:
            ttl: seconds; default the manager's.
            blocking: False is ``blocking_timeout=0``.
            blocking_timeout: seconds to wait for the lock; None waits for ever, 0 tries exactly once.  Where
                more than 128 tries are under way, or 16 if a node is a client, a call waits its turn within
                that time; a single try waits for those single tries that came before it, as long as the nodes
                answer to them.
            quorum_timeout: seconds to go on while too few nodes answer, may vote, or agree on a fence: since
                the call began, or since a majority last answered that the lock is taken.  Then the call ends
                in `QuorumUnavailableError`, at most a `node_timeout` later.  None: no sooner than by the
                `blocking_timeout`, which ends it in any case.
            extension: default the manager's; `ExtensionPolicy.off` for a lease that just runs out.
            on_lost: default the manager's.
            label: a name of low cardinality for metrics and traces; default the kind, such as ``"mutex"``; of
                a fair lock its name.
            at_least: seconds for which the names stay taken since the lock was asked for, also when the
                block ends sooner; default 0.  For work that must not run twice in a while, such as cron jobs
                of hosts whose clocks differ.  Where it is longer than the ttl it takes its place.  The names
                then stay taken beyond `Lease.release` and `aclose`, for all; only `force_release` frees
                them.  No longer than the restart quarantine; without one (fewer than three nodes) it rests
                on the nodes not losing their memory.
            reentrant: True: a task that is inside an ``async with`` of these names, or of more, goes on under
                the lease that it has, without I/O, up to 100 deep.  What it gets is one more lease of the
                same lock, with the same fence and validity; the last one that is released releases the lock.
                False: it gets `WouldDeadlockError`.
            fair: True: processes have the lock in the order in which they asked for it, and each for one task
                at a time; the nodes keep their queue, as well as they can.  A hand-off takes a round trip,
                and 50 ms more for each dead process at the head of the queue.  For a single name, without
                `at_least`; all clients of the name must say so, since one that does not comes in between.

        Raises:
            ValueError, TypeError: a bad value, with the value in the message.
        """
        kind = FAIR if options.get("fair") else MUTEX
        primitive = self._primitives.for_names(kind, names)
        if kind is FAIR:
            if len(primitive.names) > 1:
                raise ValueError(f"a fair lock has one name, got {names!r}")
            _label(options, primitive)
        return Lock(self._life, primitive, self._request("lock", options))

    def _request(self, method: str, options: Mapping[str, Any]) -> Request:
        """Check the options of a method, or return what was found of the same before."""
        request = None
        try:  # noqa: SIM105 (a context manager costs more than the look)
            request = self._requests(method, **options)
        except TypeError:  # something that cannot be hashed has not come as far as the check
            pass
        return request or self._options.request_of(method, **options)

    @shows(ReadWriteLockOptions, Options.request)
    def rwlock(self, *names: str, **options: Unpack[ReadWriteLockOptions]) -> ReadWriteLock:
        """Describe a read-write lock over `names`: readers together, a writer alone.

        The options are those of `lock` but for `at_least` and `fair`, the same for readers and writers, and
        so are the errors.  With `reentrant`, a task that is inside a write lock may go into it again to write
        or to read; inside a read lock, to read.
        """
        for_names, request = self._primitives.for_names, self._request("rwlock", options)
        return ReadWriteLock(self._life, for_names(READ, names), for_names(WRITE, names), request)

    @shows(SemaphoreOptions, Options.request)
    def semaphore(self, name: str, *, permits: int, **options: Unpack[SemaphoreOptions]) -> Lock:
        """Describe a counting semaphore: at most `permits` leases at once, each with its own slot.

        No two leases have the same `Lease.slot` at once; fences grow for each slot by itself.  A task that
        acquires twice has two permits.  A name is of one kind: a lock of the same name is in the way, and
        ends an acquire in `ConfigurationError`.

        Args:
            name: one name, as `lock` takes them.
            permits: how many may hold it, 1 to 256.  Where clients say different numbers, at most as many
                hold it as the greatest says; a smaller one takes effect as the upper slots' leases end.

        Keyword Args:
            label: a name of low cardinality for metrics and traces; default `name`.

        The other options are those of `lock` but for `at_least`, `reentrant` and `fair`.

        Raises:
            ValueError, TypeError: a bad value, with the value in the message.
        """
        primitive = self._primitives.for_names(semaphore(settings.checked_permits(permits)), (name,))
        _label(options, primitive)
        return Lock(self._life, primitive, self._request("semaphore", options))

    @shows(SemaphoreOptions, Options.request)
    def fair_semaphore(
        self, name: str, *, permits: int, weight: int = 1, **options: Unpack[SemaphoreOptions]
    ) -> AbstractAsyncContextManager[tuple[Lease, ...]]:
        """Return a block that holds `weight` permits of the `semaphore`, taken in the order of the calls.

        ``async with manager.fair_semaphore("gpu", permits=8, weight=2) as leases``.  The first call of the
        queue waits until it has all its permits, and the calls behind it wait meanwhile, so that a great
        weight is not passed over.  The queue is that of the fair lock ``name:door``.  A loss of any lease
        ends the block.  For one ``async with``: call it again for the next one.

        Args:
            name: the semaphore's.  All clients must take its permits in this way: one that calls `semaphore`
                comes in between.
            permits: as of `semaphore`.
            weight: how many permits the block holds, 1 to `permits`.

        Keyword Args:
            blocking: False tries once.  That also fails while another call collects its permits.
            blocking_timeout: seconds to wait for all permits together.

        The other options, and the errors of the block, are those of `semaphore`.

        Raises:
            ValueError, TypeError: a bad value, with the value in the message.
        """
        return collected(*self._behind_door(name, permits, weight, options), weight)

    def _behind_door(
        self, name: str, permits: int, weight: int, options: SemaphoreOptions
    ) -> tuple[Lock, Lock]:
        """Return the door of a fair semaphore, and the semaphore (R26a)."""
        semaphore = self.semaphore(name, permits=permits, **options)
        settings.checked_weight(weight, permits)
        # However long a call waits for its permits, the door is its own.
        of_door: Any = {**options, "label": None, "extension": ExtensionPolicy(max_extensions=None)}
        return self.lock(f"{name}:door", fair=True, **of_door), semaphore

    @shows(ElectionOptions, Options.request)
    def election(self, name: str, **options: Unpack[ElectionOptions]) -> Election:
        """Describe the election of a leader; nothing is sent before a candidate campaigns, or one observes.

        Args:
            name: the name of the lock that decides it; a lock of that name excludes the leader, too.

        Keyword Args:
            ttl: seconds for which a leader that has died stays the leader; default the manager's.
            blocking: False is ``blocking_timeout=0``.
            blocking_timeout: seconds that a campaign waits while another candidate leads, then it ends in
                `LockTakenError`; None waits for ever.
            quorum_timeout: seconds to go on while too few nodes answer; as of `lock`.
            extension: default the manager's.  `every` and `grace` count; a leader extends without a limit.
            on_lost: default the manager's.
            label: a name of low cardinality for metrics and traces; default `name`.
            holder: what this candidate calls itself when it leads, for observers, and for those that look at
                the lock: at most 200 printable characters.  Default: the manager's `holder`.

        Raises:
            ConfigurationError: the manager was made with ``fencing=False``: a term is a fence.
            ValueError, TypeError: a bad value, with the value in the message.
        """
        primitive = self._primitives.for_names(LEADER, (name,))
        _label(options, primitive)
        options["extension"] = unbounded(options.get("extension"), self._options.extension)
        request = self._request("election", options)
        return Election(self._life, primitive, request, subject_of(name, request.ttl, self._options))

    @shows(LockOptions, Options.request)
    def _lock_of(
        self,
        *names: str,
        mode: Mode | None = None,
        permits: int | None = None,
        **options: Unpack[LockOptions],
    ) -> Lock:
        """Describe a lock by options alone: with a `mode` a read-write lock, with `permits` a semaphore.

        Raises:
            ValueError: there is no such mode; or there are permits, too, or permits and several names.
            ValueError, TypeError: as `lock`, `rwlock` or `semaphore`.
        """
        if mode is None and permits is None:
            settings.refuse_unknown("locked()", LockOptions, options)
            return self.lock(*names, **options)
        if mode is not None and permits is not None:
            raise ValueError(f"a semaphore has no mode, got mode={mode!r} and permits={permits!r}")
        # An option that only other kinds have may be there, switched off.
        left: Any = {each: value for each, value in options.items() if value or each not in _NOT_OF_ALL_KINDS}
        if permits is not None:
            settings.refuse_unknown(f"locked(permits={permits!r})", SemaphoreOptions, left)
            if len(names) != 1:
                raise ValueError(f"a semaphore has one name, got {names!r}")
            return self.semaphore(*names, permits=permits, **left)
        if mode not in get_args(Mode):
            raise ValueError(f"mode must be 'read', 'write' or None, got {mode!r}")
        settings.refuse_unknown(f"locked(mode={mode!r})", ReadWriteLockOptions, left)
        lock = self.rwlock(*names, **left)
        return lock.read() if mode == "read" else lock.write()

    @overload
    def locked(
        self, *templates: str, **options: Unpack[LockedOptions]
    ) -> Callable[[AsyncFunction[P, R]], AsyncFunction[P, R]]: ...

    @overload
    def locked(
        self, *templates: str, otherwise: T, **options: Unpack[LockedOptions]
    ) -> Callable[[AsyncFunction[P, R]], AsyncFunction[P, R | T]]: ...

    @shows(LockedOptions, _lock_of)
    def locked(
        self, *templates: str, otherwise: Any = LockTakenError, **options: Unpack[LockedOptions]
    ) -> Callable[[AsyncFunction[P, R]], AsyncFunction[P, Any]]:
        """Run an async function under the lock that `templates` name, filled from its arguments.

        ``@manager.locked("report:{customer_id}")``; the options are those of `lock`, and the label is the
        templates unless given.  With ``mode="read"`` or ``"write"`` it is the `rwlock` of these names, with
        `permits` the `semaphore` of the single name: neither has `at_least` or `fair`.

        A call raises `TypeError` where a value is not of a type whose text is the same in each process: str,
        int, bool, float, Decimal, UUID, dates and times, bytes, Enum, None, and tuples and lists of these.

        Args:
            templates: one, or several, whose names are locked all or nothing; two may make the same name.
            otherwise: what a call returns, without running the function, where the lock is taken and
                `blocking` or `blocking_timeout` end the wait.  Default: it raises `LockTakenError`.  All
                other errors are raised in any case, such as `QuorumUnavailableError`.

        Raises:
            ValueError: at decoration, when a field of a template is no parameter of the function, there is
                no such mode, or the lock waits without a limit and there is an `otherwise`.
            TypeError: at decoration, when the function is not async, or the lock has no such option.
        """
        return locked(lock_maker(self._lock_of, templates, otherwise, options), otherwise)

    # -- looking and administering -------------------------------------------------------------

    async def inspect(self, name: str) -> tuple[NodeInspection, ...]:
        """Return what each node holds under `name`: whether, how long, by whom, and whether by us."""
        session = await self._life.start(read_only=True)
        return await _admin.inspect(session, self._key(name))

    async def queue(self, name: str) -> QueueInspection:
        """Return the processes that wait for the fair lock `name`, in their order, 100 at most.

        This is the queue at present, by the nodes that answer; it promises no turn.
        """
        session = await self._life.start(read_only=True)
        return await _admin.look_at_line(session, self._key(name), name)

    async def force_release(self, name: str) -> tuple[NodeInspection, ...]:
        """Delete the key of `name` on every node, whichever process holds it; return what was there.

        For administrators only: the holder, if alive, works on until its next extension is refused, and may
        hand it off among its tasks for 50 ms (R43).  After `at_least` the process that had it asks again in a
        minute.
        """
        session = await self._life.start(read_only=True)
        found = await _admin.force_release(session, self._key(name))
        session.queue.cooldowns.end(name)
        return found

    async def survey(self, *names: str, limit: int = 1000) -> Survey:
        """Look at the locks `names`; without any, at every lock that is found on a node under the prefix.

        For administrators: finding them walks through all keys of the nodes (SCAN), a few hundred at a
        time and for five seconds at most.

        Args:
            names: the locks to look at; free ones are in the survey, too.
            limit: how many locks to find, at most.

        Raises:
            ConfigurationError: two nodes turned out to be one server.
            ValueError, TypeError: a bad value, with the value in the message.
        """
        if not isinstance(limit, int):
            raise TypeError(f"limit must be an int, got {limit!r}")
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit!r}")
        prefix = self._options.prefix
        keys = tuple(map(self._key, dict.fromkeys(names)))
        return await _admin.survey(await self._life.start(read_only=True), prefix, keys, limit)

    async def init(self, *, force: bool = False) -> tuple[NodeInitialisation, ...]:
        """State that no lock can be alive under the prefix: nodes without memory of locks may vote at once.

        What ``aioredlock-ng init`` does: before the first use of fresh nodes, or after a change of the
        list of nodes, when every client has been stopped.  It looks for locks that are alive first, and for
        nodes that belong to a quorum of another size, and changes nothing when it finds one, unless `force`
        is given: after a change of the list, force it.

        Raises:
            LockTakenError: a lock is alive under the prefix; its name is in the message.
            QuorumUnavailableError: it cannot be seen whether one is; the message says why.  `votes` are given
                where no majority answered.
            ConfigurationError: nothing rests on records (``fencing=False`` without a quarantine), or a node
                belongs to a quorum of another size; the message says whose.
        """
        return await _initialise.initialise(await self._life.start_and_hear_all(), force=force)

    async def diagnose(self) -> tuple[Finding, ...]:
        """Check for settings that make the quorum unsafe, and say what to do: ``aioredlock-ng doctor``.

        Asks all nodes for their configuration and state, and takes, extends and releases locks of random
        names on each of them.  Takes a few seconds when nodes do not answer.  What a node does not answer,
        or the user may not ask, is a finding; so are two nodes that are one server.

        Raises:
            ManagerClosedError: the manager is closed, or was meanwhile.
        """
        from ._admin.doctor.gather import gather
        from ._admin.doctor.judge import judge  # here: a process that only locks need not import all this

        session = await self._life.start_and_hear_all()
        if lifecycle.override is not None:
            return ()  # of nodes that are not asked there is nothing to find
        facts = await gather(session)
        if session.availability.closing:
            raise session.availability.closed_error()  # what looked like dead nodes was our own end
        return judge(facts)

    def _key(self, name: str) -> bytes:
        return self._options.key(settings.checked_names((name,))[0])

    def statistics(self) -> ManagerStatistics:
        """Return nodes, held leases, waiters and counters as they are now; without I/O, from any thread."""
        return statistics_of(self._life.nodes, self._life.counters, self._life.session)


def _label(options: SemaphoreOptions, primitive: Primitive) -> None:
    """Give a kind of which there are few its name as its label, unless it has one."""
    if options.get("label") is None:
        options["label"] = primitive.names[0]
