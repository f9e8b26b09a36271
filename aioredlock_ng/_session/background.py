"""A manager's background tasks: connections, watchdog, start and shutdown (rule R18)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, final

import anyio

from .._core.command import milliseconds
from .._core.fencing import floor_at
from .._core.members import COMPARE, Membership, not_in_list, server_of
from .._core.quorum import majority
from .._core.quorum_view import HEARTBEAT, QuorumView
from .._local.runner import current_runners
from .._log import report
from .._node import Node, NodeEnv, NodeState, TimeSample
from ..errors import LossReason
from ..events import ClockStepped, Misconfigured, NodeChanged
from .quarantine_log import QuarantineLog
from .session import Session

MAX_STRANGERS: Final = 32
"""Servers of other clients' lists that are reported, each once."""


@final
class Background:
    """The nodes and the watchdog of one manager, under one supervisor."""

    def __init__(self, session: Session, *, read_only: bool) -> None:
        self._session = session
        self._view = quorum_view_of(session, read_only=read_only)
        self._nodes = session.nodes
        self._quarantined: set[Node] = set()
        self._strangers: set[bytes] = set()  # the servers of other lists that were reported
        self._quarantine_log = QuarantineLog(session.nodes, session.availability.seconds)
        self._takes_part = not read_only
        self._joining = anyio.Lock()
        self._news = asyncio.Event()  # set when a node's incarnation record was answered
        self.settled = asyncio.Event()
        """Set when the manager has started: see `LockManager.start`."""
        self.usable = asyncio.Event()
        """Set a moment after a majority is connected, or at the latest with `settled`."""
        env = NodeEnv(
            clock=session.clock,
            random=session.random,
            node_timeout=session.node_timeout,
            connect_timeout=session.options.connect_timeout,
            on_change=self._node_changed,
            quorum_view=self._view,
            prefix=session.options.prefix,
            on_time=self._told_time,
            on_greeted=self._greeted,
            on_taken_back=self._taken_back,
            on_notice=session.notifications.on_notice,
        )
        for node in self._nodes:
            node.bind(env)
        self._supervisor = session.loop.create_task(self._supervise(), name="aioredlock_ng supervisor")

    async def _supervise(self) -> None:
        """Keep everything alive, until `aclose` or the loop's own end."""
        stop_bodies = True  # without the watchdog nothing else would stop them in time
        try:
            await self._run_all()
        except asyncio.CancelledError:
            # `aclose` has stopped the bodies; or the loop is torn down, which cancels them itself.
            stop_bodies = False
            raise
        except BaseException as error:
            # A bug of ours, or an interrupt: every acquire from now on fails with it.
            self._session.availability.failure = error
            report(logging.CRITICAL, "the lock manager has failed; every lease is given up", exc_info=error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        finally:
            # Callers wait for the start, which may have been cancelled before its first step.
            self.usable.set()
            self.settled.set()
            # Bodies that are being cancelled queue their releases, and those still leave (R6).
            with anyio.CancelScope(shield=True):
                await self._shut_down(stop_bodies=stop_bodies)

    async def _run_all(self) -> None:
        """Run the background tasks; none of them ends by itself, but for the start."""
        async with anyio.create_task_group() as tasks:
            for node in self._nodes:
                tasks.start_soon(node.run, name=f"aioredlock_ng {node.name}")
            tasks.start_soon(self._session.watchdog.run, name="aioredlock_ng watchdog")
            tasks.start_soon(self._settle, name="aioredlock_ng start")
        # A task that is cancelled from outside ends the group, too, but without an error.
        if not self._session.availability.closing:
            raise RuntimeError("other code cancelled a background task of the lock manager")

    async def _settle(self) -> None:
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
            self.settled.set()
            # The nodes that have not answered by now are not waited for to judge those that have.
            if self._view is not None:
                self._view.starting = False
                self._reconsider()
        self._quarantine_log.started()

    async def _wait_for(self, node: Node, others: anyio.CancelScope) -> None:
        await node.settled.wait()
        up = sum(node.status.state is NodeState.UP for node in self._nodes)
        if up >= majority(len(self._nodes)):
            # The other nodes are likely to follow in a moment.  A single attempt does not wait for them all:
            # it needs most of its time to ask.
            self._session.loop.call_later(self._session.node_timeout / 4, self.usable.set)
            deadline = anyio.current_time() + self._session.node_timeout
            others.deadline = min(others.deadline, deadline)

    def _told_time(self, node: Node, sample: TimeSample) -> None:
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
            self._report_own_step(concluded.own)
        # Before any suspicion is lifted below, or the vote would be back for a moment.
        for step in concluded.steps:
            time = self._session.clock.now() + step.before  # the node's time, had its clock not jumped
            self._nodes[step.node].quarantine_again(floor_at(int(time * 1_000_000)))
        # While it is open which clock jumped, the nodes in question have no vote.
        for i, other in enumerate(self._nodes):
            other.suspect(not clocks.trusted(i))

    def _report_step(self, node: Node, seconds: float) -> None:
        self._session.counters.steps += 1
        if seconds > 0:
            report(
                logging.ERROR,
                "node %s: its clock jumped ahead by %.3f s or more, so locks there expired too early: "
                "slew this clock instead of setting it",
                node.name,
                seconds,
                node=node.name,
            )
        else:
            report(
                logging.WARNING,
                "node %s: its clock jumped back by %.3f s or more; keys there live that much longer",
                node.name,
                -seconds,
                node=node.name,
            )
        self._session.hooks.tell(ClockStepped(node=node.name, seconds=seconds))

    def _report_own_step(self, seconds: float) -> None:
        report(
            logging.WARNING,
            "this machine's clock seems to have jumped by %.3f s (half of the nodes or more shifted by "
            "the same amount)",
            seconds,
        )
        self._session.hooks.tell(ClockStepped(node=None, seconds=seconds))

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

    def _find_conflict(self) -> None:
        """Find out whether these nodes cannot be one quorum, and why (A4)."""
        # Nodes go down one by one while the manager closes: findings mean nothing any more.
        if self._session.availability.closing:
            return
        conflict = same_server(self._nodes)
        # A manager that only reads grants nothing: what the nodes' records say is no conflict for it.
        if self._view is not None and not self._view.read_only:
            conflict = conflict or _unfit(self._nodes) or _other_quorum(self._nodes)
        if conflict != self._session.availability.conflict and conflict is not None:
            report(logging.ERROR, "%s", conflict)
            self._session.hooks.tell(Misconfigured(reason=conflict))
        self._session.availability.conflict = conflict
        if self._view is not None:
            self._note_strangers(self._view.members, quiet=self._view.read_only)

    def _note_strangers(self, members: Membership, *, quiet: bool) -> None:
        """Note the servers of other clients' lists; report each once, if those clients are refused."""
        strangers = sorted(members.strangers)[:MAX_STRANGERS]
        availability = self._session.availability
        availability.disputed, availability.strangers = members.disputed, tuple(map(server_of, strangers))
        # If this client is refused, it has said so.
        for stranger in () if quiet or members.disputed else strangers:
            if stranger.identity not in self._strangers and len(self._strangers) < MAX_STRANGERS:
                self._strangers.add(stranger.identity)
                reason = not_in_list(server_of(stranger))
                report(logging.ERROR, "%s; %s", reason, COMPARE)
                self._session.hooks.tell(Misconfigured(reason=reason))

    def _greeted(self, _node: Node) -> None:
        self._reconsider()
        self._news.set()

    def _reconsider(self) -> None:
        """Judge all nodes again: the answer of one may concern the whole quorum (R12a)."""
        for node in self._nodes:
            node.reconsider()
        self._look_over()

    def _look_over(self) -> None:
        self._find_conflict()
        if not self._session.availability.closing:
            self._quarantine_log.check()

    def _taken_back(self, node: Node, taken_from: str) -> None:
        reason = (
            f"node {node.name} was in use by clients with another number of nodes; reclaimed: {taken_from}"
        )
        report(logging.ERROR, "%s; %s", reason, COMPARE)
        self._session.hooks.tell(Misconfigured(reason=reason))

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
            await self._shut_down(stop_bodies=True)
        finally:
            self._supervisor.cancel()
            await asyncio.wait((self._supervisor,))

    async def _shut_down(self, *, stop_bodies: bool) -> None:
        """Shut the manager down, in this order (R18).

        1. New acquires are refused, attempts in flight are undone, and waiting acquires end.
        2. Bodies under leases are cancelled, and waited for until their deadline.
        3. All leases are released, and the answers are waited for, at most a `node_timeout`.
        4. The nodes send what is queued, and their connections close.

        Runs twice when a manager is closed, by `aclose` and at the supervisor's end: each step is idempotent.
        """
        session = self._session
        # A forked child that ends: the leases and the sockets are its parent's.
        if session.inherited:
            return
        session.close()
        self._quarantine_log.close()
        try:
            await self._end_bodies(stop=stop_bodies)
        finally:
            # Also when this is cancelled while it waits for bodies: the releases still leave.
            for holding in list(session.holdings.all):
                holding.release()
            # After the leases, which may have handed off to waiters just now.
            session.succession.end()
            try:
                await session.releases.answered()
            finally:
                ends = await asyncio.gather(*(node.aclose() for node in self._nodes), return_exceptions=True)
                for error in filter(None, ends):
                    raise error

    async def _end_bodies(self, *, stop: bool) -> None:
        """Wait until the bodies under our leases have ended, or their deadlines have; cancel them if `stop`.

        The closing task's own lease is released, as if that task had called `release`.  There is no wait for
        leases that no block has entered, nor for blocks of a thread that the closing code is inside of.
        """
        # A task that closes the manager inside of its block must not cancel itself, nor wait for itself.
        current, own = asyncio.current_task(), current_runners()
        others = [h for h in self._session.holdings.all if h.body is None or h.body.task is not current]
        for holding in others if stop else ():
            holding.lose(LossReason.MANAGER_CLOSED)
        # Without a body to wait for.
        for holding in others:
            if holding.body is None or holding.task in own:
                holding.release()
        # One after the other: the deadlines run at the same time.
        for holding in others:
            if holding.body is not None and holding.task not in own:
                left = holding.deadline - self._session.clock.now()
                with anyio.move_on_after(max(0.0, left)):
                    await holding.ended()


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


def _unfit(nodes: Sequence[Node]) -> str | None:
    """Return a message about servers that cannot be nodes, if the others are no majority (R17)."""
    found = [f"node {node.name}: {node.status.unusable}" for node in nodes if node.status.unusable]
    return "; ".join(found) if len(nodes) - len(found) < majority(len(nodes)) else None


def _other_quorum(nodes: Sequence[Node]) -> str | None:
    """Return a message about a node that belongs to another quorum (A4, R12a, R12c)."""
    for node in nodes:
        if conflict := node.status.conflict:
            return f"node {node.name}: {conflict}; {COMPARE}"
    return None


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
