"""A master: one multiplexed connection, kept up in the background (R5, R15)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol, final, runtime_checkable

from .._clock import Clock
from .._core.command import Command, Proof, Purpose, Receiver, Reply, Silence
from .._core.keyspace import hash_tag, no_tag
from .._core.policy import RetryPolicy
from .._core.quarantine import Eligibility
from .._core.quorum_view import HEARTBEAT, QuorumView
from .._core.rights import NOTICE_RIGHTS, channel_rule
from .._log import Once, report
from . import Greeted, NodeState, NodeStatistics
from .channels import Channels, is_refusal
from .connection import Endpoint
from .failures import CLUSTERDOWN, MOVED, notes_of, refusal, why
from .greeting import Greeting
from .handshake import Identity
from .ledger import Ledger
from .link import Link, heartbeat, unverified
from .pipe import Parcel, Question, limit_for, pack_precondition, takes_none
from .probe import NO_ROOM, Probe, write_probe

RECONNECT: Final = RetryPolicy(base=0.05, cap=0.5)
"""Seconds between attempts to reach a node that is down: jittered, so that clients do not march in step."""

GIVE_UP_AFTER: Final = 5
"""Heartbeats without any answer after which a connection is given up and made again."""

LOOK_AGAIN: Final = 0.001
"""Seconds, at least, until a node whose wait is nearly over is greeted again."""

RESP3_LOOK: Final = 60.0
"""Seconds, give or take a half, between checks whether a peer that hung up at ``HELLO 3`` speaks RESP3 by
now."""

MAX_LOGGED_REASONS: Final = 8
"""The different reasons that are logged for one node while it is down, at most."""

_LIFE, _WRITES = 0, 1  # which of a node's own questions an answer is to: for a sign of life, or a write probe

STALE_ROLE: Final = "READONLY"
"""In the error of a master that has become a replica; older servers put their own words before it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnv:
    """The parts of a manager that its nodes use."""

    clock: Clock
    random: Random
    node_timeout: float
    connect_timeout: float
    on_change: Callable[[Node], None]
    """Called when a node's state changes."""
    quorum_view: QuorumView | None = None
    """The quorum as the manager sees it; None when it uses no incarnation records."""
    prefix: bytes = b""
    """The beginning of all keys and channels (R16)."""
    on_time: Callable[[Node, Greeted], None] = lambda _node, _sample: None
    """Called when a node has answered with its time."""
    on_greeted: Callable[[Node, Greeted | None], None] = lambda _node, _greeted: None
    """Called when a node's incarnation record differs from before, or cannot be read: then with None."""
    on_notice: Callable[[Node, bytes, object], None] = lambda _node, _channel, _message: None
    """Called with each message that is published on a channel to which the node is subscribed."""


@final
class Node:
    """One independent master.  Without an answer the reply is a `Silence` with its reason (R1)."""

    awaited = True  # as in `Receiver`, of its own questions
    env: NodeEnv
    """The argument of `bind`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.name
        """The address, without user or password."""
        self.address = endpoint.address
        """Tells two nodes apart: database numbers and credentials do not make a second server."""
        self.clustered = endpoint.clustered
        """Whether it is one slot of a Redis Cluster, which all keys have to be in."""
        self.tried = asyncio.Event()
        """Set once the first attempt to reach the node has ended, one way or the other."""
        self._ledger = Ledger()
        self._state = NodeState.CONNECTING
        self._reason = "not connected yet"
        self._run_id: str | None = None
        self._round_trip: float | None = None
        self._mismatched = 0
        self._closed = False
        self._logged = Once(MAX_LOGGED_REASONS)
        self._greeting: Greeting | None = None  # None when the manager uses no incarnation records
        self._votes_at: float | None = None
        self._next_greeting: asyncio.Handle | None = None
        self._in_conflict = False
        self._waits = False  # whether it was quarantined for a known time when its state was last reported
        self._unusable = ""
        # Why the server refuses to write, where there is no incarnation record; empty when it does not.
        self._refusal = ""
        self._endpoint = endpoint
        self._link: Link | None = None
        self._pinged_at = 0.0
        self._pinging = False
        self._heartbeat_done = asyncio.Event()
        self._heartbeat_done.set()
        self._channels = Channels(self._send_to_channel)
        self._may_not_subscribe = False  # whether this connection's server refuses subscriptions
        self._warned_of_refusal = False
        self._in_slots = False  # whether the keys are in different slots of a Redis Cluster
        self.post: Callable[[Sequence[Parcel], int, int], bool] = takes_none
        """Send the same parcels as to all nodes; False where each lock has to be sent by itself.

        The connection's `Pipe.post` while the node takes parcels, so that nothing is in between.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self._state}>"

    def bind(self, env: NodeEnv) -> None:
        """Get ready in the running loop; called once, before all other methods."""
        self.env = env
        self._endpoint.prefix = env.prefix
        if env.quorum_view is not None:
            self._greeting = Greeting(self.name, env.quorum_view)
            self._greeting.moves = self.clustered

    @property
    def unverified(self) -> str | None:
        """Why TLS does not verify the server; empty: it does, None: there is no TLS, or no connection."""
        return None if self._link is None else unverified(self._link.transport)

    # -- commands ----------------------------------------------------------------------------

    def submit(self, command: Command, receiver: Receiver, index: int) -> None:
        """Send `command`, and have ``receiver.on_reply(index, reply)`` called once, now or later.

        A release that was answered by silence is answered once more if the node acknowledges it later.
        Never blocks and never raises.  Commands of one owner take effect in the order of their submission.
        """
        link = self._link
        release = command.purpose is Purpose.RELEASE
        reason = self._reason
        # A connection with a vote; releases are sent without one, too.
        if link is not None and (release or self._state is NodeState.UP or self._takes(command)):
            put = self._put_probed if command.proof is Proof.PROBED else link.pipe.put
            if put(command, receiver, index):
                # Sent.  But an unanswered acquire of this owner may be executed after it: the ledger repeats
                # the release (R5).
                if release and command.owner in self._ledger.unresolved:
                    self._ledger.record(command, self.env.clock.now(), receiver, index)
                elif command.purpose is Purpose.REPAIR:
                    self._ledger.note_another(command.owner)
                return
            in_flight = f"more than {limit_for(command.purpose)} commands in flight"
            reason = link.lost.result() if link.lost.done() else in_flight
        # Not sent: no connection, no vote, or no room.  The ledger sends a release later.
        if release:
            self._ledger.record(command, self.env.clock.now(), receiver, index)
        receiver.on_reply(index, Silence(reason, sent=False))

    def _put_probed(self, command: Command, receiver: Receiver, index: int) -> bool:
        assert self._greeting is not None, "only where there is an incarnation record"
        assert self._link is not None, "connected"
        pipe = self._link.pipe
        probe = Probe(self._greeting.eligibility.expected, receiver)
        if not pipe.put(command, probe, index):
            return False
        # The SET has left, but without the GET behind it its answer proves nothing (R12).
        if not pipe.put(self._greeting.get_incarnation, probe, index):
            probe.on_reply(index, NO_ROOM)
        return True

    def _on_failure(self, question: Question, message: str) -> None:
        """Handle an error reply: record a release that failed, leave a master that was demoted."""
        command, receiver, index = question
        if command.purpose is Purpose.RELEASE:
            self._ledger.record(command, self.env.clock.now(), receiver, index)
        # A failover: the name, or Redis Sentinels, lead to the new master.
        if STALE_ROLE in message and self._link is not None:
            self._link.give_up("READONLY: the server is not a master any more")
        # The slot is on another server now, or this one is cut off from the others, which may know more.
        if self.clustered and message.startswith((MOVED, CLUSTERDOWN)) and self._link is not None:
            self._link.give_up(message)
        # Waiters poll on this connection.
        if is_refusal(command, message):
            self._may_not_subscribe = True
            if self._warned_of_refusal:
                return
            self._warned_of_refusal = True
            report(
                logging.WARNING,
                "node %s refuses subscriptions to releases (%s): waiters will poll; the user in its URL "
                "needs %s %s",
                self.name,
                message,
                channel_rule(self.env.prefix),
                NOTICE_RIGHTS,
                node=self.name,
            )

    def _fail_all(self, link: Link, reason: str) -> None:
        """Answer all commands in flight on a connection that has ended with silence, oldest first."""
        now = self.env.clock.now()
        silence = Silence(reason)
        for command, receiver, index in link.pipe.abandon():
            # The server may have got either of them: a key may be there, or come to be (R5).
            if command.purpose.creates:
                self._ledger.record_unresolved(command, now)
            elif command.purpose is Purpose.RELEASE:
                self._ledger.record(command, now, receiver, index)
            receiver.on_reply(index, silence)

    # -- the incarnation record --------------------------------------------------------------------------

    @property
    def without_vote(self) -> str:
        """Why the node has no vote now; empty when it has one."""
        if self._greeting is None:
            return ""
        return self._greeting.eligibility.reason

    def _takes(self, command: Command) -> bool:
        """Whether `command`, which is no release, is worth sending now."""
        # In quarantine only commands that ask for a vote are held back; a repair, say, is sent (R9).
        return self._state.votes or (self._state is NodeState.QUARANTINED and not command.purpose.needs_vote)

    def suspect(self, jumped: bool) -> None:  # noqa: FBT001 (the one thing it says)
        """Withdraw the node's vote while its clock is suspected to have jumped; else restore it (R14)."""
        if self._greeting is not None and self._greeting.distrusted is not jumped:
            self._greeting.distrusted = jumped
            self._update_state()

    def quarantine_again(self, floor: int) -> None:
        """Begin the node's quarantine again, with this floor for fences: its clock has jumped (R14)."""
        if self._greeting is not None:
            self._greeting.quarantine_again(floor)
            self._update_state()
            self._greet()

    def _greet(self) -> None:
        """Ask for a sign of life: by a greeting, or without incarnation records by a PING."""
        # One at a time: the answer to the one under way brings the next if that is due.
        if self._link is None or self._pinging:
            return
        nonce = b"%016x" % self.env.random.getrandbits(64)
        self._pinged_at = now = self.env.clock.now()
        command = heartbeat(nonce) if self._greeting is None else self._greeting.command(nonce, now)
        self._pinging = self._link.pipe.put(command, self, _LIFE)
        if self._pinging:
            self._heartbeat_done.clear()
        # A greeting asks itself whether the server refuses writes; a PING does not.
        if self._greeting is None:
            self._link.pipe.put(write_probe(self.env.prefix), self, _WRITES)

    async def greet(self) -> None:
        """Ask now, rather than at the next heartbeat, whether the node may vote; await the answer (R12)."""
        # The one under way was asked before this call, and may be outdated.
        await self._heartbeat_done.wait()
        self._greet()
        await self._heartbeat_done.wait()

    def _stamp(self) -> None:
        """Use the last greeting's precondition for votes from now on."""
        if self._greeting is not None and self._link is not None:
            # A connection cannot outlive its server's process: the scripts need not check its identity.
            pipe, eligibility = self._link.pipe, self._greeting.eligibility
            pipe.precondition = pack_precondition((eligibility.expected, b"%d" % eligibility.floor))
            pipe.expected = eligibility.expected

    def _look_again(self) -> None:
        """Greet again as soon as a wait is over, rather than at the next heartbeat."""
        # What is left may be too little for a clock to show: then each answer would bring the next greeting.
        if (wait := self._votes_in) is not None and wait < HEARTBEAT:
            asyncio.get_running_loop().call_later(max(wait, LOOK_AGAIN), self._greet, context=Context())

    def on_reply(self, node: int, reply: Reply) -> None:
        """Take the answer to a heartbeat: the first sign of life of a suspect node; or to a `write_probe`."""
        if node == _WRITES:
            # A lost connection says nothing about writes.
            if self._state.reached:
                self._refusal = refusal(reply.reason) if isinstance(reply, Silence) else ""
                self._update_state()
            return
        self._pinging = False
        if not isinstance(reply, Silence):
            self._round_trip = self.env.clock.now() - self._pinged_at
        # A greeting, on a connection that is alive: it is answered when no other one is due.
        if self._greeting is not None and self._link is not None and not self._link.lost.done():
            self._heard(reply, self._greeting)
            self._look_again()
            self._greet_again()
            return
        # A PING; or the connection is lost.
        if not isinstance(reply, Silence):
            self._update_state()
        self._heartbeat_done.set()

    def _heard(self, reply: Reply, greeting: Greeting) -> None:
        """Take the answer to a greeting: it decides the vote, and the clock watch needs its time."""
        heard_at = self.env.clock.now()
        greeted = greeting.take(reply, self._pinged_at, heard_at)
        # An answer, and no silence.
        if greeted is not None:
            self.env.on_time(self, greeted)
        wait = greeting.eligibility.wait
        self._votes_at = None if wait is None else heard_at + wait
        # A server of a Redis Cluster that does not have the keys' slot cannot be the node.
        moved = self.without_vote if isinstance(reply, Silence) and reply.reason.startswith(MOVED) else ""
        changed, self._unusable = moved != self._unusable, moved
        self._update_state()
        if changed:
            self.env.on_change(self)
        # Another record, or none that can be read: it may concern the other nodes, too (R12a).
        if greeted is None or greeted.changed:
            self.env.on_greeted(self, greeted)

    def reconsider(self) -> None:
        """Judge the node again, since another node's answer may concern the whole quorum (R12a)."""
        # Without an answer on this connection there is nothing to judge.
        if self._greeting is None or not self._greeting.heard or self._closed:
            return
        # Other nodes have said that others use another server in its place: the wait begins without a
        # greeting of its own (R12c).
        if (found := self._greeting.eligibility).replaces:
            self._votes_at = None if found.wait is None else self.env.clock.now() + found.wait
        # A suspect node stays suspect until it answers; only its precondition changes.
        if self._state is NodeState.SUSPECT:
            self._stamp()
        else:
            self._update_state()
        self._greet_again()

    def _greet_again(self) -> None:
        """Greet again, now or in a moment, if another greeting is due."""
        assert self._greeting is not None, "only a node with an incarnation record greets"
        # One that is due later than a `node_timeout` is left to the heartbeat; one that waits for the answers
        # of other nodes, to `reconsider`.
        due_in = self._greeting.due_in(self.env.clock.now())
        if due_in is not None and due_in <= self.env.node_timeout:
            if self._next_greeting is not None:
                self._next_greeting.cancel()
            loop, context = asyncio.get_running_loop(), Context()
            # Due now, which needs no timer: tests may have frozen the loop's clock.
            if due_in <= 0:
                self._next_greeting = loop.call_soon(self._greet, context=context)
            else:
                self._next_greeting = loop.call_later(due_in, self._greet, context=context)
        # None is due for now.
        elif not self.greeting_pending:
            self.tried.set()
            if not self._pinging:
                self._heartbeat_done.set()

    @property
    def greeting_pending(self) -> bool:
        """Whether another greeting follows the last one at once or soon."""
        if self._greeting is None:
            return False
        return self._greeting.is_due_soon(self.env.clock.now(), self.env.node_timeout)

    # -- the state --------------------------------------------------------------------------------------

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
    def status(self) -> NodeStatistics:
        """Its current status."""
        eligibility = Eligibility() if self._greeting is None else self._greeting.eligibility
        return NodeStatistics(
            name=self.name,
            state=self._state,
            reason=self._reason,
            round_trip=self._round_trip,
            in_flight=len(self._link.pipe) if self._link else 0,
            pending_releases=len(self._ledger),
            dropped=self._ledger.dropped,
            run_id=self._run_id,
            mismatched=self._mismatched,
            votes_in=self._votes_in,
            doubt=eligibility.doubt,
            conflict="" if self._greeting is None else self._greeting.conflict,
            lists_differ=self._greeting is not None and self._greeting.lists_differ,
            replaces=eligibility.replaces,
            unusable=self._unusable,
        )

    def _become(self, state: NodeState, reason: str) -> None:
        """Note, log and report a change of state, and every new reason why the node is down."""
        link = self._link
        # Otherwise it has no vote, so that each lock needs its own answer; or two keys cannot be in a script.
        together = state is NodeState.UP and not self._in_slots
        self.post = link.pipe.post if together and link is not None else takes_none
        conflict = self._greeting is not None and bool(self._greeting.conflict)
        changed = state is not self._state or conflict is not self._in_conflict
        self._state, self._reason, self._in_conflict = state, reason, conflict
        # `_session/quorum_log` logs quarantines, for all nodes together: here they are only for DEBUG.
        waited, waits = self._waits, self._votes_in is not None
        self._waits = waits
        if state is NodeState.UP:
            self._logged = Once(MAX_LOGGED_REASONS)
        elif state is NodeState.DOWN:
            # Another server may answer there next time.
            self._run_id = None
            if self._greeting is not None:
                self._greeting.restart(self.env.clock.now())
            # A node that stays down reports each reason once: a retry every half second fills no log.
            new = self._logged.first(reason)
            changed = changed or (new and not self._closed)
        if changed:
            level = logging.INFO if state is NodeState.UP or self._closed else logging.WARNING
            orderly = self._closed and state is NodeState.DOWN
            text = "disconnected" if orderly else f"{state}: {reason}" if reason else state
            level = logging.DEBUG if waits or (waited and state is NodeState.UP) else level
            report(level, "node %s is %s", self.name, text, node=self.name)
            self.env.on_change(self)

    # -- channels ----------------------------------------------------------------------------

    def subscribe(self, channel: bytes) -> None:
        """Have `NodeEnv.on_notice` called for each message on the channel, also after reconnects.

        Never blocks and never raises (R13).  Commands that are submitted after it are executed after it.
        """
        self._channels.add(channel)

    def unsubscribe(self, channel: bytes) -> None:
        """Undo `subscribe`."""
        self._channels.remove(channel)

    def is_subscribed(self, channel: bytes) -> bool:
        """Whether that subscription is confirmed, on the present connection."""
        link = self._link
        return link is not None and not link.pipe.closed and self._channels.stands(channel)

    @property
    def can_hear(self) -> bool:
        """Whether the node can push notifications at all, as far as is known."""
        return self._link is not None and self._link.resp3 and not self._may_not_subscribe

    def _send_to_channel(self, command: Command, receiver: Receiver) -> bool:
        link = self._link
        return link is not None and link.resp3 and link.pipe.put(command, receiver, 0)

    def _noticed(self, channel: bytes, message: object) -> None:
        """Notify the manager, unless the message was on its way when the last listener left."""
        if self._channels.wants(channel):
            self.env.on_notice(self, channel, message)

    # -- connection --------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, serve, and connect again, for as long as the task lives.

        If it ends otherwise, by an error of its own code or of a library, `fail` is called, and then this
        again (R44).
        """
        attempt = 0
        timeout = self.env.connect_timeout
        while True:
            try:
                link, identity = await self._endpoint.connect(timeout, self._on_failure)
            except TimeoutError as error:
                where = "".join(f" {note}" for note in notes_of(error))
                by_tls = self.name.startswith(("rediss:", "valkeys:"))
                hint = "; does the server use TLS on this port?" if by_tls else ""
                reason = f"no answer to connecting and login within {timeout:.3g} s{where}{hint}"
                self._become(NodeState.DOWN, reason)
            except Exception as error:  # noqa: BLE001 (a peer that is no Redis may raise anything here)
                self._become(NodeState.DOWN, why(error))
            else:
                # Connected and logged in: one of three cases, of which the second is the usual one.
                self._run_id = identity.run_id
                if self._greeting is not None:
                    self._greeting.tell_eviction(identity.eviction)
                self._unusable = self._why_unfit(identity)
                if self._unusable:
                    link.give_up("its keys would be on several servers")
                    self._become(NodeState.DOWN, self._unusable)
                elif identity.role in (None, "master"):
                    began = self.env.clock.now()
                    await self._serve(link)
                    # A connection that ends at once does not reset the back-off.
                    if self.env.clock.now() - began >= HEARTBEAT:
                        attempt = 0
                else:
                    link.give_up("a replica has no vote")
                    self._become(NodeState.DOWN, f"the server is a {identity.role}, not a master")
            self.tried.set()
            if self._closed:
                return
            await asyncio.sleep(RECONNECT.backoff(attempt, self.env.random.random(), least=0.5))
            attempt += 1

    async def further_run_ids(self, count: int) -> frozenset[str]:
        """Connect `count` times, to other addresses of the name if it has some; return the masters' run ids.

        The server may refuse further connections: then fewer are found.
        """
        found: set[str] = set()
        with suppress(Exception):
            for _ in range(count):
                self._endpoint.look_elsewhere()
                link, identity = await self._endpoint.connect(self.env.connect_timeout, lambda *_: None)
                link.give_up("it was only to tell its run_id")
                if identity.run_id is not None and identity.role in (None, "master"):
                    found.add(identity.run_id)
        return frozenset(found)

    def _why_unfit(self, identity: Identity) -> str:
        # Without a hash tag a Redis Cluster spreads our keys: then each lock has to be sent by itself, and no
        # script can read the incarnation record beside it.
        prefix = self.env.prefix
        self._in_slots = identity.clustered and hash_tag(prefix) is None
        return no_tag(prefix) if self._in_slots and self._greeting is not None else ""

    async def _serve(self, link: Link) -> None:
        """Use one connection until it is lost."""
        self._link, self._may_not_subscribe = link, False
        link.pipe.on_notice, link.pipe.unresolved = self._noticed, self._ledger.unresolved
        # Before any acquire: what the old connection left open is settled first (R5).
        self._ledger.reconnected(self.env.clock.now())
        self._repeat_releases(link)
        self._channels.send_unsent()
        self._greet()
        # Without incarnation records it may vote at once.
        if self._greeting is None:
            self._refusal = ""  # the old connection's; the probe that has just left asks again
            self._update_state()
            self.tried.set()
        try:
            await self._watch(link)
        finally:
            # Else the task was cancelled: the connection stays for the releases of the shutdown (`aclose`).
            if link.lost.done():
                self._disconnected(link)

    def _disconnected(self, link: Link) -> None:
        """Note that the connection has ended."""
        self._link = None
        reason = link.lost.result()
        self._mismatched += link.mismatched
        self._channels.disconnected()
        self._become(NodeState.DOWN, reason)
        self._fail_all(link, reason)

    def fail(self, reason: str) -> None:
        """End the connection, and answer what is in flight by silence: `run` has ended for this reason."""
        # It failed while it served; else while it connected, or when the connection had ended.
        if (link := self._link) is not None:
            link.give_up(reason)
            self._disconnected(link)
        self._become(NodeState.DOWN, reason)
        self.tried.set()

    async def _watch(self, link: Link) -> None:
        """Check the connection from time to time, until it is lost or given up."""
        mute = 0
        pause = max(HEARTBEAT, self.env.node_timeout)  # a node that is far away is not mute
        answered = link.pipe.answered
        # The peer may only have been away at that moment: so the first look comes at the first check.
        resp3_look_at = -math.inf if link.resp3_in_doubt else math.inf
        while True:
            looked_at = self.env.clock.now()
            await asyncio.wait((link.lost,), timeout=pause)
            # This process stood still for so long that a silence would have ended the connection (R15).
            away = self.env.clock.now() - looked_at
            if away >= GIVE_UP_AFTER * pause:
                await self._try_after_pause(link, away)
            if link.lost.done():
                return
            if link.pipe.answered != answered or not len(link.pipe):
                # It has answered, or owes no answer.
                mute = 0
                self._update_state()
            else:
                # Commands have waited for a whole pause, the last greeting at least.
                mute += 1
                self._become(NodeState.SUSPECT, f"no answer for {mute * pause:.3g} s")
            if mute >= GIVE_UP_AFTER:
                link.give_up(f"no answer for {mute * pause:.3g} s")
                return
            answered = link.pipe.answered
            self._repeat_releases(link)
            self._channels.send_unsent()
            self._greet()
            if self.env.clock.now() >= resp3_look_at:
                await self._try_resp3(link)
                resp3_look_at = self.env.clock.now() + RESP3_LOOK * (0.5 + self.env.random.random())

    async def _try_resp3(self, link: Link) -> None:
        """Leave a connection without RESP3, which cannot push notifications, if another one has it."""
        # A failure changes nothing: the connection of now works.
        with suppress(Exception):
            other, _ = await self._endpoint.connect(self.env.connect_timeout, lambda *_: None)
            other.give_up("it was only to try RESP3")
            if other.resp3:
                link.give_up("RESP3 works now: release notifications need it")

    async def _try_after_pause(self, link: Link, away: float) -> None:
        """Ask for a sign of life at once, after this process stood still for `away` seconds.

        The peer, or a NAT on the way, may have dropped the connection silently, and calls that were made
        since then have no time for all the heartbeats of an ordinary silence.
        """
        answered = link.pipe.answered
        self._greet()
        await asyncio.wait((link.lost,), timeout=self.env.node_timeout)
        if link.pipe.answered == answered:
            link.give_up(f"no answer after this process stood still for {away:.3g} s")

    def _repeat_releases(self, link: Link) -> None:
        for release in self._ledger.due(self.env.clock.now()):
            release.sent = link.pipe.put(release.command, release, 0)

    async def aclose(self) -> None:
        """Repeat the recorded releases once more, send what is queued, and close the connection."""
        self._closed = True
        link, self._link = self._link, None
        self._become(NodeState.DOWN, "closed")
        if link is not None:
            self._repeat_releases(link)
            await link.aclose(self.env.node_timeout)
            self._fail_all(link, "the manager is closed")


@runtime_checkable
class NodeSource(Protocol):
    """A source that gives each manager a node of its own, such as `testing.MemoryNode`."""

    def link(self) -> Node:
        """Return a new node for one manager."""
