"""The base of all nodes: state, ledger, vote, and reports to the manager."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from contextvars import Context
from typing import Final

from .._core.command import Command, Reply, Silence
from .._core.quarantine import Eligibility
from .._log import report
from . import Node, NodeEnv, NodeState, NodeStatus, TimeSample
from .failures import MOVED, refusal
from .greeting import Greeting
from .ledger import Ledger

MAX_LOGGED_REASONS: Final = 8
"""How many different reasons are logged for one node while it is down."""


class BaseNode(Node):
    """The common part of our nodes: a state, a ledger, an incarnation record.  Subclasses send commands."""

    def __init__(self, name: str, address: tuple[object, ...]) -> None:
        self.name = name
        self.address = address
        """Tells two nodes apart: database numbers and credentials do not make a second server."""
        self.settled = asyncio.Event()
        self._ledger = Ledger()
        self._state = NodeState.CONNECTING
        self._reason = "not connected yet"
        self._run_id: str | None = None
        self._round_trip: float | None = None
        self._mismatched = 0
        self._closed = False
        self._logged: set[str] = set()
        self._env: NodeEnv | None = None
        self._greeting: Greeting | None = None
        """None when the manager uses no incarnation records."""
        self._votes_at: float | None = None
        self._next_greeting: asyncio.TimerHandle | None = None
        self._conflict = False
        self._waits = False
        """Whether it was quarantined for a known time when its state was last reported."""
        self._unusable = ""
        self._refusal = ""
        """Why the server refuses to write, where there is no incarnation record; empty when it does not."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self._state}>"

    def bind(self, env: NodeEnv) -> None:
        """Take over the manager's clock, random source and limits."""
        self._env = env
        if env.quorum_view is not None:
            self._greeting = Greeting(self.name, env.quorum_view)

    def fail(self, reason: str) -> None:
        """As in `Node`."""
        self._become(NodeState.DOWN, reason)
        self.settled.set()

    @property
    def env(self) -> NodeEnv:
        """What `bind` was given."""
        assert self._env is not None, "bind() comes first"
        return self._env

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Commands that were sent and are not answered."""

    # -- the incarnation record --------------------------------------------------------------------------

    @property
    def without_vote(self) -> str:
        """Why the node has no vote now; empty when it has one."""
        if self._greeting is None:
            return ""
        return self._greeting.eligibility.reason

    @property
    def _belongs_elsewhere(self) -> bool:
        return self._greeting is not None and self._greeting.belongs_elsewhere

    def _why_not(self, command: Command) -> str:
        """Return why `command`, which is no release, need not be sent now; empty: it is sent."""
        if self._state.votes:
            return ""
        # In quarantine: only commands that ask for a vote are held back; a repair, say, is sent (R9).
        without_vote = self._state is NodeState.QUARANTINED and not command.purpose.needs_vote
        return "" if without_vote else self._reason

    def suspect(self, jumped: bool) -> None:  # noqa: FBT001 (the one thing it says)
        """As in `Node`."""
        if self._greeting is not None and self._greeting.distrusted is not jumped:
            self._greeting.distrusted = jumped
            self._update_state()

    def quarantine_again(self, floor: int) -> None:
        """As in `Node`."""
        if self._greeting is not None:
            self._greeting.quarantine_again(floor)
            self._update_state()
            self._greet()

    @abstractmethod
    def _greet(self) -> None:
        """Send a greeting now, unless one is under way."""

    @abstractmethod
    def _stamp(self) -> None:
        """Use the last greeting's precondition for votes from now on."""

    def _heard(self, reply: Reply, asked_at: float) -> None:
        """Take the answer to a greeting: it decides the vote, and the clock watch needs its time."""
        assert self._greeting is not None, "only a node with an incarnation record greets"
        heard_at = self.env.clock.now()
        greeted = self._greeting.take(reply, asked_at, heard_at)
        # An answer, and no silence.
        if greeted is not None:
            if greeted.taken_from:
                self.env.on_taken_back(self, greeted.taken_from)
            self.env.on_time(
                self,
                TimeSample(
                    asked_at=asked_at, heard_at=heard_at, time=greeted.time, same_server=greeted.same_server
                ),
            )
        wait = self._greeting.eligibility.wait
        self._votes_at = None if wait is None else heard_at + wait
        # A server of a Redis Cluster that does not have the keys' slot cannot be the node.
        moved = self.without_vote if isinstance(reply, Silence) and reply.reason.startswith(MOVED) else ""
        changed, self._unusable = moved != self._unusable, moved
        self._update_state()
        if changed:
            self.env.on_change(self)
        # Another record, or none that can be read: it may concern the other nodes, too (R12a).
        if greeted is None or greeted.changed:
            self.env.on_greeted(self)

    def reconsider(self) -> None:
        """As in `Node`."""
        # Without an answer on this connection there is nothing to judge.
        if self._greeting is None or not self._greeting.heard or self._closed:
            return
        # A suspect node stays suspect until it answers; only its precondition changes.
        if self._state is NodeState.SUSPECT:
            self._stamp()
        else:
            self._update_state()
        self._greet_again()

    def _heard_of_writes(self, reply: Reply) -> None:
        """Take the answer to a `write_probe`."""
        # The connection was lost: that says nothing about writes.
        if not self._state.reached:
            return
        self._refusal = refusal(reply.reason) if isinstance(reply, Silence) else ""
        self._update_state()

    def _greet_again(self) -> None:
        """Greet again, now or in a moment, if another greeting is due."""
        assert self._greeting is not None, "only a node with an incarnation record greets"
        # One that is due later than a `node_timeout` is left to the heartbeat; one that waits for the answers
        # of other nodes, to `reconsider`.
        due_in = self._greeting.due_in(self.env.clock.now())
        if due_in is not None and due_in <= self.env.node_timeout:
            if self._next_greeting is not None:
                self._next_greeting.cancel()
            self._next_greeting = asyncio.get_running_loop().call_later(
                due_in, self._greet, context=Context()
            )
        elif not self.greeting_pending:
            self._greeting_done()

    @property
    def greeting_pending(self) -> bool:
        """As in `Node`."""
        if self._greeting is None:
            return False
        return self._greeting.is_due_soon(self.env.clock.now(), self.env.node_timeout)

    def _greeting_done(self) -> None:
        """Note that no greeting is due for now."""
        self.settled.set()

    def _update_state(self) -> None:
        """Derive the state from the greeting: up, read-only or without a vote; call it on any change."""
        self._stamp()
        if not self._closed and (self._greeting is None or self._greeting.heard):
            reason = self.without_vote
            # Just connected, and the next greeting may give it a vote: no quarantine is reported so far.
            if reason and self._state in (NodeState.CONNECTING, NodeState.DOWN) and self.greeting_pending:
                self._reason = reason
                return
            refused = self._refusal if self._greeting is None else self._greeting.refusal
            state = NodeState.QUARANTINED if reason else NodeState.READ_ONLY if refused else NodeState.UP
            self._become(state, reason or refused)

    @property
    def _votes_in(self) -> float | None:
        """Seconds until it may vote; None when waiting does not help, or is not needed."""
        if self._state is not NodeState.QUARANTINED or self._greeting is None:
            return None
        # It waits for something else than time.
        if self._votes_at is None or self._greeting.eligibility.wait is None:
            return None
        return max(0.0, self._votes_at - self.env.clock.now())

    @property
    def status(self) -> NodeStatus:
        """Its current status."""
        eligibility = Eligibility() if self._greeting is None else self._greeting.eligibility
        return NodeStatus(
            state=self._state,
            reason=self._reason,
            round_trip=self._round_trip,
            in_flight=self.in_flight,
            pending_releases=len(self._ledger),
            dropped=self._ledger.dropped,
            run_id=self._run_id,
            mismatched=self._mismatched,
            votes_in=self._votes_in,
            doubt=eligibility.doubt,
            conflict="" if self._greeting is None else self._greeting.conflict,
            belongs_elsewhere=self._belongs_elsewhere,
            replaces=eligibility.replaces,
            unusable=self._unusable,
        )

    def _become(self, state: NodeState, reason: str) -> None:
        """Note, log and report a change of state, and every new reason why the node is down."""
        conflict = self._greeting is not None and bool(self._greeting.conflict)
        changed = state is not self._state or conflict is not self._conflict
        self._state, self._reason, self._conflict = state, reason, conflict
        # `_session/quarantine_log` logs quarantines, for all nodes together: here they are only for DEBUG.
        waited, waits = self._waits, self._votes_in is not None
        self._waits = waits
        if state is NodeState.UP:
            self._logged.clear()
        elif state is NodeState.DOWN:
            # Another server may answer there next time.
            self._run_id = None
            if self._greeting is not None:
                self._greeting.restart(self.env.clock.now())
            # A node that stays down reports each reason once: a retry every half second fills no log.
            new = reason not in self._logged and len(self._logged) < MAX_LOGGED_REASONS
            changed = changed or (new and not self._closed)
            if new:
                self._logged.add(reason)
        if changed:
            level = logging.INFO if state is NodeState.UP or self._closed else logging.WARNING
            orderly = self._closed and state is NodeState.DOWN
            told = "disconnected" if orderly else f"{state}: {reason}" if reason else state
            level = logging.DEBUG if waits or (waited and state is NodeState.UP) else level
            report(level, "node %s is %s", self.name, told, node=self.name)
            self.env.on_change(self)
