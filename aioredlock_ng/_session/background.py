"""A manager's background tasks: connections, watchdog, start and shutdown (rule R18)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context
from typing import Final, final

import anyio
from anyio.abc import TaskGroup

from .._core.command import milliseconds
from .._core.fencing import floor_at
from .._core.members import COMPARE, Membership, not_in_list, server_of
from .._core.quorum import majority
from .._core.quorum_view import HEARTBEAT, QuorumView
from .._lock.body import current_runners
from .._lock.holding import Holding
from .._lock.session import Session
from .._lock.watchdog import Watchdog
from .._log import CONTAINED, Once, report
from .._node import Greeted, NodeState
from .._node.failures import why
from .._node.redis_node import RECONNECT, Node, NodeEnv
from ..errors import LossReason
from ..events import ClockStepped, Misconfigured, NodeChanged
from .quorum_log import QuorumLog

MAX_STRANGERS: Final = 32
"""Servers of other clients' lists that are named at a time, and reported, each once."""


@final
class Background:
    """The nodes and the watchdog of one manager, under one supervisor."""

    def __init__(self, session: Session, *, read_only: bool) -> None:
        self._session = session
        self._view = quorum_view_of(session, read_only=read_only)
        self._nodes = session.nodes
        self._quarantined: set[Node] = set()
        self._strangers = Once()  # the servers of other lists that were reported
        self._quorum_log = QuorumLog(session)
        self._takes_part = not read_only
        self._joining = anyio.Lock()
        self._news = asyncio.Event()  # set when a node's incarnation record was answered
        self.started = asyncio.Event()
        """Set when the manager has started: see `LockManager.start`."""
        self.usable = asyncio.Event()
        """Set when calls may ask the nodes (`_judge_start`); at the latest with `started`."""
        env = NodeEnv(
            clock=session.clock,
            random=session.random,
            node_timeout=session.node_timeout,
            connect_timeout=session.options.connect_timeout,
            on_change=self._node_changed,
            quorum_view=self._view,
            prefix=session.options.prefix,
            on_time=self._take_sample,
            on_greeted=self._greeted,
            on_notice=session.notifications.on_notice,
        )
        for node in self._nodes:
            node.bind(env)
        # In a context of its own, which everything below inherits: it outlives the call that starts it.
        self._supervisor = Context().run(
            session.loop.create_task, self._supervise(), name="aioredlock_ng supervisor"
        )

    async def _supervise(self) -> None:
        """Keep everything alive, until `aclose` or the loop's own end (R44)."""
        try:
            async with anyio.create_task_group() as tasks:
                for node in self._nodes:
                    self._begin(node, tasks)
                self._begin(self._session.watchdog, tasks)
                tasks.start_soon(self._start, tasks, name="aioredlock_ng start")
        except asyncio.CancelledError as error:
            # By other code, or at the end of the loop; else `aclose` has ended all leases already.
            if not self._session.availability.closing:
                self._session.availability.failure = error
            raise
        except BaseException as error:
            # The process is about to exit, or this is a bug of ours.
            self._session.availability.failure = error
            if not self._session.inherited:  # else a forked child unwinds its parent's tasks
                report(
                    logging.CRITICAL, "the lock manager has failed; every lease is given up", exc_info=error
                )
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        finally:
            # Callers wait for the start, which may have been cancelled before its first step.
            self.usable.set()
            self.started.set()
            # Bodies that are being cancelled queue their releases, and those still leave (R6).
            with anyio.CancelScope(shield=True):
                await self._shut_down(LossReason.CANCELLED)

    def _begin(self, part: Node | Watchdog, tasks: TaskGroup, failures: int = 0) -> None:
        tasks.start_soon(self._keep, part, tasks, failures, name=f"aioredlock_ng {part.name}")

    async def _keep(self, part: Node | Watchdog, tasks: TaskGroup, failures: int) -> None:
        """Run a part of the manager that has failed so often in a row, and again whenever it fails (R44).

        Its code is not ours alone: it calls redis-py, anyio, the event loop and credential providers, and any
        of these may raise any error, or a `CancelledError` that no code here has asked for.
        """
        began = self._session.clock.now()
        try:
            # Twice in a row, or more often.  The wait is no part of the time for which it has run.
            if failures > 1:
                await asyncio.sleep(RECONNECT.backoff(failures - 2, self._session.random.random(), least=0.5))
                began = self._session.clock.now()
            await part.run()
            failure: BaseException = RuntimeError("its code has returned")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # This coroutine is collected, after the end of its loop.
            if isinstance(error, GeneratorExit) and not self._session.loop.is_running():
                raise
            failure = error
        if self._ends(tasks):
            return
        if self._session.clock.now() - began >= HEARTBEAT:
            failures = 0
        reason = f"its task was ended by {why(failure)}"
        # Once until it has run for a while: `fail` logs further reasons of a node.
        if not failures:
            report(logging.CRITICAL, "%s: %s; it is started again", part.name, reason, exc_info=failure)
        part.fail(reason)
        # In a new task: this one may have been cancelled, and counts that.
        self._begin(part, tasks, failures + 1)

    def _ends(self, tasks: TaskGroup) -> bool:
        """Whether the manager ends: by `aclose`, or other code, or the loop's end, cancels all of it."""
        closing = self._session.availability.closing
        return closing or bool(self._supervisor.cancelling()) or tasks.cancel_scope.cancel_called

    async def _start(self, tasks: TaskGroup) -> None:
        try:
            await self._await_start()
        except CONTAINED as error:
            # It has started all the same: calls find out themselves what the nodes say.
            if not self._ends(tasks):
                report(logging.CRITICAL, "the start of the lock manager was cut short", exc_info=error)

    async def _await_start(self) -> None:
        """Decide when the manager has started."""
        try:
            with anyio.move_on_after(self._session.options.connect_timeout):
                # Until each node is connected or has failed; `_wait_for` shortens that once a majority is up.
                async with anyio.create_task_group() as tasks:
                    for node in self._nodes:
                        tasks.start_soon(self._wait_for, node, tasks.cancel_scope)
                # One greeting may follow another: one that reads, then one that writes (R12a).
                with anyio.move_on_after(self._session.node_timeout):
                    while any(node.greeting_pending for node in self._nodes):
                        self._news.clear()
                        await self._news.wait()
        finally:
            # Started, whether or not a majority was reached: acquires find out themselves.
            self.usable.set()
            self.started.set()
            # The nodes that have not answered by now are not waited for to judge those that have.
            if self._view is not None:
                self._view.starting = False
                self._reconsider()
        self._quorum_log.started()

    async def _wait_for(self, node: Node, others: anyio.CancelScope) -> None:
        await node.tried.wait()
        if self._judge_start():
            deadline = anyio.current_time() + self._session.node_timeout
            others.deadline = min(others.deadline, deadline)

    def _judge_start(self) -> bool:
        """Let calls ask the nodes as soon as a majority is up, or cannot be; return whether it is up."""
        nodes, size, quorum = self._nodes, len(self._nodes), majority(len(self._nodes))
        # A greeting that is due may change the record on which a node's votes rest; calls leave behind it.
        pending = [node.greeting_pending for node in nodes]
        states = [node.status.state for node in nodes]
        up = sum(state is NodeState.UP and not due for state, due in zip(states, pending, strict=True))
        if up >= quorum:
            # The other nodes are likely to follow in a moment; a call does not wait for them all.
            moment = self._session.node_timeout / 4 if up < size else 0.0
            self._session.loop.call_later(moment, self.usable.set, context=Context())
            return True
        untried = sum(due or not node.tried.is_set() for node, due in zip(nodes, pending, strict=True))
        # All have answered or failed.  At a first use those that have answered wait for the others (R12b);
        # a call does not.
        view = self._view
        if view is not None and view.undecided and view.reached + states.count(NodeState.DOWN) >= size:
            untried = 0
        if up + untried < quorum:
            self.usable.set()
        return False

    def _take_sample(self, node: Node, sample: Greeted) -> None:
        """Watch the clocks (R14): a node whose clock jumps ahead has ended keys before their time."""
        clocks, number = self._session.clocks, self._nodes.index(node)
        # Another server answers there, with another clock: what was known of it is void.
        if not sample.same_server:
            clocks.forget(number)
        concluded = clocks.sample(number, sample.asked_at, sample.heard_at, sample.time)
        for step in (*concluded.steps, *concluded.back):
            self._report_step(self._nodes[step.node], step.seconds)
        # Most nodes shifted by the same amount: the jump was our own clock's, and costs no node its vote.
        if concluded.own:
            self._report_step(None, concluded.own)
        # Before any suspicion is lifted below, or the vote would be back for a moment.
        for step in concluded.steps:
            time = self._session.clock.now() + step.before  # the node's time, had its clock not jumped
            self._nodes[step.node].quarantine_again(floor_at(int(time * 1_000_000)))
        # While it is open which clock jumped, the nodes in question have no vote.
        for i, other in enumerate(self._nodes):
            other.suspect(not clocks.trusted(i))

    def _report_step(self, node: Node | None, seconds: float) -> None:
        """Report that the clock of a node has jumped, or, without one, this machine's."""
        if node is None:
            report(
                logging.WARNING,
                "this machine's clock seems to have jumped by %.3f s (half of the nodes or more shifted by "
                "the same amount)",
                seconds,
            )
        else:
            self._session.counters.steps += 1
            level, effect = logging.WARNING, "back by %.3f s or more; keys there live that much longer"
            if seconds > 0:
                level = logging.ERROR
                effect = (
                    "ahead by %.3f s or more, so locks there expired too early: slew this clock instead of "
                    "setting it"
                )
            message = f"node %s: its clock jumped {effect}"
            report(level, message, node.name, abs(seconds), node=node.name)
        self._session.hooks.tell(ClockStepped(node=None if node is None else node.name, seconds=seconds))

    async def take_part(self) -> None:
        """Use the nodes for locks from now on: write incarnation records where there are none (R12)."""
        # No incarnation records, or the manager takes part already.
        if self._view is None or self._takes_part:
            return
        # A call that comes meanwhile waits, too, and takes over if the first one is cancelled.
        async with self._joining:
            if not self._takes_part:
                self._view.take_part()
                self._reconsider()
                await self._session.greet()
                self._takes_part = True

    def _note_strangers(self, members: Membership, *, quiet: bool) -> None:
        """Note the servers of other clients' lists; report each once, if those clients are refused."""
        strangers = sorted(members.strangers)[:MAX_STRANGERS]
        availability = self._session.availability
        availability.disputed, availability.strangers = members.disputed, tuple(map(server_of, strangers))
        # If this client is refused, it has said so.
        for stranger in () if quiet or members.disputed else strangers:
            if self._strangers.first(stranger.identity):
                reason = not_in_list(server_of(stranger))
                report(logging.ERROR, "%s; %s", reason, COMPARE)
                self._session.hooks.tell(Misconfigured(reason=reason))

    def _greeted(self, node: Node, greeted: Greeted | None) -> None:
        if greeted is not None and greeted.taken_from:
            reason = (
                f"node {node.name} was in use by clients with another number of nodes; reclaimed: "
                f"{greeted.taken_from}"
            )
            report(logging.ERROR, "%s; %s", reason, COMPARE)
            self._session.hooks.tell(Misconfigured(reason=reason))
        self._reconsider()
        self._news.set()
        # A turn after the greetings that this has made due.
        if not self.usable.is_set():
            loop = self._session.loop
            loop.call_later(0, loop.call_soon, self._judge_start, context=Context())

    def _reconsider(self) -> None:
        """Judge all nodes again: the answer of one may concern the whole quorum (R12a)."""
        for node in self._nodes:
            node.reconsider()
        self._look_over()

    def _look_over(self) -> None:
        """Find out whether these nodes cannot be one quorum, and why (A4); log what has changed."""
        availability = self._session.availability
        # Nodes go down one by one while the manager closes: findings mean nothing any more.
        if availability.closing:
            return
        conflict = same_server(self._nodes)
        # A manager that only reads grants nothing: what the nodes' records say is no conflict for it.
        if self._view is not None and not self._view.read_only:
            conflict = conflict or _misfit(self._nodes)
        if conflict != availability.conflict and conflict is not None:
            report(logging.ERROR, "%s", conflict)
            self._session.hooks.tell(Misconfigured(reason=conflict))
        availability.conflict = conflict
        if self._view is not None:
            self._note_strangers(self._view.members, quiet=self._view.read_only)
        self._quorum_log.check()

    def _node_changed(self, node: Node) -> None:
        # A node that goes down takes its record with it: the others are judged without it.
        if node.status.state is NodeState.DOWN and not self._session.availability.closing:
            self._reconsider()
        else:
            self._look_over()
        # Quarantines are counted as they begin.
        status = node.status
        quarantined = status.state is NodeState.QUARANTINED
        self._session.counters.quarantined += quarantined and node not in self._quarantined
        (self._quarantined.add if quarantined else self._quarantined.discard)(node)
        self._session.hooks.tell(NodeChanged(node=node.name, state=status.state, reason=status.reason))
        if not self.usable.is_set():
            self._judge_start()

    @property
    def ended(self) -> bool:
        """Whether all of it has ended."""
        return self._supervisor.done()

    @property
    def running(self) -> bool:
        """Whether any of it still runs, in this process."""
        return not (self.ended or self._session.loop.is_closed() or self._session.inherited)

    async def aclose(self) -> None:
        """End it all; idempotent."""
        try:
            await self._shut_down(LossReason.MANAGER_CLOSED)
        finally:
            self._supervisor.cancel()
            await asyncio.wait((self._supervisor,))

    async def _shut_down(self, reason: LossReason) -> None:
        """Shut the manager down, in this order (R18).

        1. New acquires are refused, attempts in flight are undone, and waiting acquires end.
        2. Leases are lost for this reason, and their bodies are waited for until their deadline.
        3. All leases are released, and the answers are waited for, at most a `node_timeout`.
        4. The nodes send what is queued, and their connections close.

        Runs twice when a manager is closed, by `aclose` and at the supervisor's end: each step is idempotent.
        """
        session = self._session
        # A forked child that ends: the leases and the sockets are its parent's.
        if session.inherited:
            return
        session.close()
        self._quorum_log.close()
        try:
            await self._end_bodies(reason)
        finally:
            # Also when this is cancelled while it waits for bodies: the releases still leave.
            for holding in list(session.watchdog.leases):
                self._end_lease(holding, reason)
            # After the leases, which may have handed off to waiters just now.
            session.succession.end(session.queue.inside())
            try:
                await session.releases.answered()
            finally:
                ends = await asyncio.gather(*(node.aclose() for node in self._nodes), return_exceptions=True)
                for node, error in zip(self._nodes, ends, strict=True):
                    if isinstance(error, CONTAINED):
                        report(logging.ERROR, "node %s was not closed", node.name, exc_info=error)

    async def _end_bodies(self, reason: LossReason) -> None:
        """Wait until the bodies under our leases have ended, or their deadlines have; cancel them.

        There is no wait for leases that no code will leave, nor for blocks of a thread that the closing code
        is inside of.
        """
        own = current_runners()
        others = [holding for holding in self._session.watchdog.leases if not self._is_own(holding)]
        for holding in others:
            # All tasks are cancelled, this body with them: it is about to end, and to release its lock.
            ends = reason is LossReason.CANCELLED and holding.body is not None and holding.body.is_cancelled
            if not ends:
                holding.lose(reason)
            if holding.deserted or holding.task in own:
                self._end_lease(holding, reason)
        # One after the other: the deadlines run at the same time.
        for holding in others:
            await self._end_of(holding, holding.deadline)
            # It has swallowed its cancellation: mark it as lost now, while the lock is still ours.
            if not holding.done:
                holding.lose(reason)
                await self._end_of(holding, holding.valid_until)

    async def _end_of(self, holding: Holding, until: float) -> None:
        with anyio.move_on_after(max(0.0, until - self._session.clock.now())):
            await holding.ended()

    def _is_own(self, holding: Holding) -> bool:
        """Whether the closing task is the lease's body, which must not cancel itself, nor wait for itself."""
        return holding.body is not None and holding.body.task is asyncio.current_task()

    def _end_lease(self, holding: Holding, reason: LossReason) -> None:
        """Release a lease whose holder did not ask for that: to the holder it is a loss."""
        # Unless it is the closing task's, as if that task had called `release`.
        if not self._is_own(holding):
            holding.lose(reason)
        holding.release()


def same_server(nodes: Sequence[Node]) -> str | None:
    """Return a message if two nodes are one server, which would vote twice (A4)."""
    seen: dict[str, str] = {}
    for node in nodes:
        run_id = node.status.run_id
        # Not connected, or INFO is denied: it cannot be compared.
        if run_id is None:
            continue
        if run_id in seen:
            return (
                f"nodes {seen[run_id]} and {node.name} are the same server: a quorum needs N different "
                "servers"
            )
        seen[run_id] = node.name
    return None


def _misfit(nodes: Sequence[Node]) -> str | None:
    """Return a message about servers that cannot be nodes, if the others are no majority (R17).

    Else about a node that belongs to another quorum (A4, R12a, R12c).
    """
    unfit = [f"node {node.name}: {node.status.unusable}" for node in nodes if node.status.unusable]
    if len(nodes) - len(unfit) < majority(len(nodes)):
        return "; ".join(unfit)
    stray = (f"node {node.name}: {node.status.conflict}; {COMPARE}" for node in nodes if node.status.conflict)
    return next(stray, None)


def quorum_view_of(session: Session, *, read_only: bool) -> QuorumView | None:
    """Return a manager's view of its quorum; None when it uses no incarnation records."""
    options = session.options
    if options.incarnation is None:
        return None
    return QuorumView(
        options.incarnation,
        len(session.nodes),
        milliseconds(options.restart_quarantine) if options.restart_quarantine else 0,
        prefix=options.prefix,
        label=session.holder.encode(),
        read_only=read_only,
        heartbeat=max(HEARTBEAT, session.node_timeout),
    )
