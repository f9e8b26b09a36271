"""A node that is the user's own client (rule R17).

Every command is a call of its own through the client's pool, waited for at most `node_timeout`.  Calls of a
pool overtake each other, so the calls of one owner are chained: a release begins when the acquire before it
has ended, in whatever way.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, cast, final

import anyio
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError, ResponseError

from .._core.command import Command, Proof, Purpose, Receiver, Reply, Silence
from .._core.quarantine import NO_INCARNATION, ExpectedIncarnation
from . import NodeEnv, NodeState, fork
from .base import BaseNode
from .callers import ClientCaller, ClusterCaller, facts_of, ping
from .calls import Calls
from .failures import refusal, why, without_secrets
from .greeting import Greeting
from .pipe import MISFIT, without_request_id, words
from .plain import plain, text
from .probe import CHANGED, write_probe

CALL_LIMIT: Final = 10.0
"""Seconds, beyond a `connect_timeout`, after which a call is cancelled: not every client has a timeout."""

LOOK_AFTER: Final = 0.5
"""Seconds between checks of the server: whether it answers, and which releases to repeat."""

STOOD_STILL: Final = 2.5
"""Seconds without a check, after which this process is taken to have been paused: peers, or a NAT on the way,
may have dropped the idle connections of the client's pool."""

_REQUEST_IDS: Final = itertools.count(1)
"""The request ids of all managers' calls: several managers may have one client, with one pool (R15)."""


@final
class ClientNode(BaseNode):
    """See `Node`.  The client stays the user's: it is never closed here."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        self._caller = ClusterCaller(client) if isinstance(client, RedisCluster) else ClientCaller(client)
        super().__init__(self._caller.name, self._caller.address)
        self._left_behind: asyncio.Task[Any] | None = None
        self._calls = Calls(self._call, at_once=self._caller.at_once)
        self._generation = -1
        self._wanted = asyncio.Event()  # set for a check at once
        self._checking = asyncio.Lock()

    def bind(self, env: NodeEnv) -> None:
        """As in `Node`; a client that was made before a fork may well be used after it."""
        super().bind(env)
        self._generation = fork.generation
        self._calls.longest = env.connect_timeout
        if isinstance(self._caller, ClusterCaller):
            self._caller.prefix = env.prefix
            if self._greeting is not None:
                self._greeting.moves = True

    @property
    def clustered(self) -> bool:
        """Whether its keys have to stand in one slot of a Redis Cluster."""
        return isinstance(self._caller, ClusterCaller)

    @property
    def in_flight(self) -> int:
        """Commands under way: each has a call, and an answer that waits for it."""
        return len(self._calls.tasks) // 2

    def submit(self, command: Command, receiver: Receiver, index: int) -> None:
        """Start the call for `command`, or answer at once why it cannot be started."""
        release = command.purpose is Purpose.RELEASE
        # A release is tried even while the node is down: the client may connect again at any call.
        if self._closed:
            receiver.on_reply(index, Silence(self._reason, sent=False))
        elif self._generation != fork.generation:
            receiver.on_reply(index, Silence("the connection belongs to another process", sent=False))
        elif not release and (reason := self._why_not(command)):
            receiver.on_reply(index, Silence(reason, sent=False))
        elif not self._calls.has_room(command.purpose):
            if release:
                self._ledger.record(command, self.env.clock.now(), receiver, index)
            receiver.on_reply(index, Silence("too many calls in flight", sent=False))
        else:
            if command.purpose is Purpose.REPAIR:
                self._ledger.note_another(command.owner)
            call = self._calls.start(command)
            self._calls.spawn(self._answer(command, receiver, index, call))

    def subscribe(self, channel: bytes) -> None:
        """As in `Node`: the client's connections are its own, and bring no notifications (R17)."""

    def unsubscribe(self, channel: bytes) -> None:
        """As in `Node`."""

    def is_subscribed(self, channel: bytes) -> bool:
        """As in `Node`."""
        return False

    @property
    def can_hear(self) -> bool:
        """As in `Node`."""
        return False

    async def _call(self, command: Command) -> Reply:
        try:
            async with asyncio.timeout(self.env.connect_timeout + CALL_LIMIT):
                greeting = self._greeting
                expected = greeting.eligibility.expected if greeting is not None else NO_INCARNATION
                reply = await self._execute(command)
                # A plain SET proves nothing of the record: it is read behind it, and must be the same (R12).
                if command.proof is Proof.PROBED and await self._has_changed(expected):
                    return CHANGED
        except Exception as error:  # noqa: BLE001 (whatever a client raises is silence, with its reason)
            return self._failed(command, why(error))
        if reply is not MISFIT and command.fits(reply):
            return cast(Reply, reply)
        what = "belongs to another call" if reply is MISFIT else f"has the wrong type {type(reply).__name__}"
        return self._failed(command, f"the reply {what}")

    def _failed(self, command: Command, reason: str) -> Silence:
        """Record in the ledger what a failed call leaves open.

        redis-py does not say whether a failed call reached the server, so that a failed acquire is
        always unresolved.
        """
        if command.purpose.creates:
            self._ledger.record_unresolved(command, self.env.clock.now())
        elif command.purpose is Purpose.RELEASE:
            self._ledger.record(command, self.env.clock.now())
        return Silence(without_secrets(reason, command))

    async def _has_changed(self, expected: ExpectedIncarnation) -> bool:
        """Whether the incarnation record is not the expected one any more.

        It asks by a greeting, since the call may have gone to another server than the calls before it.
        """
        assert self._greeting is not None, "only where there is an incarnation record"
        greeting = self._greeting.read_only(b"")
        reply = await self._execute(greeting)
        return not greeting.fits(reply) or not self._greeting.still_matches(expected, reply)

    async def _execute(self, command: Command) -> Any:
        """Call, and return the answer; `MISFIT` for a script's answer that belongs to another call."""
        raw = command.purpose is Purpose.OTHER
        if command.script is None:
            return plain(await self._caller.call(words(command), raw=raw))
        precondition: tuple[bytes, ...] = ()
        if command.proof is Proof.CONDITIONAL:
            assert self._greeting is not None, "only where there is an incarnation record"
            # The pool's connections change unseen: the script checks which server it runs on.
            precondition = self._greeting.precondition(with_identity=True)
        request_id = b"%d" % next(_REQUEST_IDS)
        try:
            reply = await self._caller.call((*words(command), *precondition, request_id), raw=raw)
        except NoScriptError:
            # What follows for this owner is chained behind this call: nothing can overtake it.
            reply = await self._caller.call((*words(command, in_full=True), *precondition, request_id))
        return without_request_id(plain(reply), request_id)

    async def _answer(
        self, command: Command, receiver: Receiver, index: int, call: asyncio.Task[Reply]
    ) -> None:
        """Give the receiver the call's reply, or silence when the time is up; the call itself goes on."""
        try:
            reply = await asyncio.wait_for(asyncio.shield(call), self.env.node_timeout)
        except TimeoutError:
            # A call that still waits for a place is withdrawn: it was not sent.  A release never is.
            release = command.purpose is Purpose.RELEASE
            cancelled = not release and self._calls.cancel_if_queued(call)
            reply = Silence(f"no answer within {self.env.node_timeout:.3g} s", sent=not cancelled)
            # A release that is answered late still counts for its report.
            if release:
                call.add_done_callback(lambda ended: self._late(command, receiver, index, ended))
        # Where an acquire of the owner may still be executed, the release is repeated (R5).  Only its own
        # round follows it: the answer that settles it is none for other rounds of the owner.
        if command.purpose is Purpose.RELEASE:
            if self._ledger.is_unresolved(command.owner):
                self._ledger.record(command, self.env.clock.now(), receiver, index)
            self._ledger.follow(command.owner, receiver, index)
        receiver.on_reply(index, reply)

    def _late(self, command: Command, receiver: Receiver, index: int, ended: asyncio.Task[Reply]) -> None:
        if not ended.cancelled():
            self._ledger.follow(command.owner, receiver, index)
            receiver.on_reply(index, ended.result())

    async def run(self) -> None:
        """Check the server from time to time until cancelled."""
        looked_at = self.env.clock.now()
        while not self._closed:
            await self._look()
            if self._greeting is None or self._state is NodeState.DOWN:
                self.settled.set()
            if self._state is not NodeState.DOWN:
                self._repeat_releases()
            with anyio.move_on_after(LOOK_AFTER):
                await self._wanted.wait()
            self._wanted.clear()
            before, looked_at = looked_at, self.env.clock.now()
            # It stood still somewhere in this turn; a slow check is taken for it, too, and does no harm.
            if looked_at - before >= STOOD_STILL:
                await self._drop_idle()

    async def _drop_idle(self) -> None:
        # Some cannot be closed: redis-py passes on the errors of their transports, such as for a closed loop.
        with suppress(Exception), anyio.move_on_after(self.env.connect_timeout):
            await self._caller.drop_idle()

    def _repeat_releases(self) -> None:
        """Repeat the recorded releases, as far as there is room for releases."""
        for release in self._ledger.due(self.env.clock.now()):
            if not self._calls.has_room(Purpose.RELEASE):
                break
            release.sent = True
            self._calls.spawn(self._answer(release.command, release, 0, self._calls.start(release.command)))

    async def _look(self) -> None:
        # One at a time: a pool of two connections has one for it.
        async with self._checking:
            await self._check()

    async def _check(self) -> None:
        before = self._state
        reason = await self._ping()
        if reason and before.reached:
            # Perhaps the server has only closed connections that lie idle in the pool.
            await self._drop_idle()
            reason = await self._ping()
        if reason:
            self._become(NodeState.DOWN, reason)
            return
        # It is back: acquires from before may be executed as late as now.
        if not before.reached:
            self._ledger.reconnected(self.env.clock.now())
        self._update_state()

    async def _ping(self) -> str:
        """Return why the server does not answer, or nothing when it does."""
        asked_at = self.env.clock.now()
        try:
            async with asyncio.timeout(self.env.connect_timeout):
                if self._greeting is None:
                    await self._outlasting(ping(self._caller))
                    self._refusal = await self._why_read_only()
                else:
                    self._heard(await self._outlasting(self._present(self._greeting)), asked_at)
                    self._greet_again()
                await self._identify()
        except TimeoutError:
            return f"no answer within {self.env.connect_timeout:.3g} s"
        except Exception as error:  # noqa: BLE001 (as in _call)
            return why(error)
        self._round_trip = self.env.clock.now() - asked_at
        return ""

    async def _why_read_only(self) -> str:
        """Return why the server refuses to write, or nothing when it does not."""
        try:
            await self._outlasting(self._execute(write_probe(self.env.prefix)))
        except ResponseError as error:
            return refusal(why(error))
        return ""

    async def _present(self, greeting: Greeting) -> Reply:
        """Greet, and return the answer."""
        nonce = b"%016x" % self.env.random.getrandbits(64)
        command = greeting.command(nonce, self.env.clock.now())
        try:
            reply = await self._execute(command)
        except ResponseError as error:  # it answers, but has no vote
            return Silence(why(error))
        fits = command.fits(reply)
        return cast(Reply, reply) if fits else Silence("the reply to its greeting is malformed")

    async def _outlasting(self, question: Coroutine[Any, Any, Reply]) -> Reply:
        """Wait for the answer; a caller that gives up leaves one call behind, for a while.

        The client of a Cluster that waits for a frozen master asks for the new one only when its own timeout
        ends, not when it is cancelled.
        """
        if not self.clustered:
            return await question
        task = self._calls.spawn(asyncio.wait_for(question, self.env.connect_timeout + CALL_LIMIT))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            return cast(Reply, await asyncio.shield(task))
        finally:
            # Given up.  One call at a time goes on until the client finds the new master.
            if not task.done():
                if self._left_behind is None or self._left_behind.done():
                    self._left_behind = task
                else:
                    task.cancel()

    async def greet(self) -> None:
        """As in `Node`."""
        # A greeting that reads, and one that writes (R12a).
        for _ in range(2):
            if not self._closed:
                await self._look()
            if not self.greeting_pending:
                return

    def _greet(self) -> None:
        """As in `BaseNode`: `run` does it, at once."""
        self._wanted.set()

    def _stamp(self) -> None:
        """As in `BaseNode`: each call gets its precondition when it is made."""

    async def _identify(self) -> None:
        """Note which server this is, and check its eviction policy, unless that is known."""
        told = self._greeting.run_id if self._greeting is not None else None
        if self._run_id is not None and told in (None, self._run_id):
            return
        facts = await facts_of(self._caller)
        if self._greeting is not None:
            self._greeting.tell_eviction(text(facts.get(b"maxmemory_policy")))
        self._run_id = told or text(facts.get(b"run_id"))

    async def aclose(self) -> None:
        """Let the calls end, in particular releases that wait for a place or for slow acquires."""
        self._closed = True
        self._become(NodeState.DOWN, "closed")
        if self._generation != fork.generation:
            return
        with anyio.CancelScope(shield=True):
            await self._calls.end(self.env.node_timeout)
