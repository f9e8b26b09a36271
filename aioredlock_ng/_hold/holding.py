"""One holding of a lock, as a state machine without tasks: validity, extension, loss, release.

    held ──extended──▶ held            a won round moves `valid_until` (R8)
      ├──deadline, Q refusals──▶ lost  `grace` before validity ends, or at once (R7)
      └──release()──▶ released         from held or lost; nothing but the release follows (R6)

`Lease` is what users see of it.  Whatever changes its state is synchronous: nothing can strike
between reading and writing it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, final

from .._acquire.attempt import unsent_in
from .._acquire.telling import tell_extended, tell_extensions_low, tell_lost, tell_released
from .._core.command import Answer, Reply
from .._core.policy import EXTENSION_RETRY, ExtensionPolicy
from .._core.quorum import Extension, Tally, extension_verdict
from .._core.validity import valid_until
from .._kinds.primitive import Primitive
from .._log import report
from .._round.round import Round
from ..errors import LockLostError, LossReason, NodeVote, printable

if TYPE_CHECKING:
    from .._local.handoff import Turn
    from .._local.local_queue import Pass
    from .._session.runtime import Runtime
    from .body import Body


def extension_decided(tally: Tally) -> bool:
    """Wait until an extension round is certain."""
    return extension_verdict(tally) is not Extension.PENDING


@final
class Holding:
    """A won lock, from the win to its release."""

    def __init__(
        self,
        runtime: Runtime,
        primitive: Primitive,
        *,
        owner: bytes,
        fence: int,
        ttl: float,
        asked_at: float,
        won: Round,
        extension: ExtensionPolicy,
        label: str,
        way: Pass,
        at_least: float = 0.0,
    ) -> None:
        self._runtime = runtime
        self._primitive = primitive
        self.owner = owner
        self.fence = fence  # 0: without
        self._ttl = ttl  # the longest that was won: the grace is a share of it
        self.wanted = ttl  # the longest that was asked: a key may live as long, the watchdog goes on with it
        self._since = asked_at
        self._extension = extension
        self.label = label
        self._way = way
        self.taken_until = asked_at + at_least
        """Until when the names stay taken, released or not (R34)."""
        self._round = won  # the last round that was won, for `votes`
        self._unsent = unsent_in(won)
        if fence:
            won.thin_out()  # a lease may live for long
        self._extending: Round | None = None
        self._retries = 0
        self._extend_at = asked_at + extension.every * ttl
        self._release: Round | None = None
        self._by_watchdog = 0
        self.extensions = 0
        self.valid_until = valid_until(asked_at, ttl)
        self.loss: LossReason | None = None
        self._blame: Round | None = None  # the last round that failed since the last that was won
        self._lost: asyncio.Event | None = None
        self._ended: asyncio.Future[None] | None = None
        self.stays = 0.0
        """Seconds, at the release, for which the names stayed taken; 0: they were free (R34)."""
        self.handed_on = False
        """Whether another task of this process asks next, in the same write as the release."""
        self.body: Body | None = None
        """The task that runs under the lease, while an ``async with`` binds one."""

    # -- what it is ----------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock."""
        return self._primitive.names

    @property
    def released(self) -> bool:
        """Whether the releases have been queued."""
        return self._release is not None

    @property
    def held(self) -> bool:
        """Whether the lock is ours, by what is known and by the clock; no I/O."""
        return self._release is None and not self._refused and self._runtime.clock.now() < self.valid_until

    @property
    def age(self) -> float:
        """Seconds since the lock was asked for."""
        return self._runtime.clock.now() - self._since

    @property
    def _refused(self) -> bool:
        """A majority said that the lock is not ours: then the clock has no say any more."""
        return self.loss is LossReason.REFUSED

    @property
    def deadline(self) -> float:
        """When the body is told to stop: `grace` before the end of validity (R7)."""
        return self.valid_until - self._extension.grace * self._ttl

    @property
    def due(self) -> float:
        """When the watchdog has to look at it next."""
        if self._extending is not None or not self._extends:
            return self.deadline
        return min(self._extend_at, self.deadline)

    @property
    def _extends(self) -> bool:
        return not self._extension.exhausted(self._by_watchdog)

    async def ended(self, timeout: float) -> None:
        """Wait for the release, at most `timeout` seconds."""
        if self._release is None and timeout > 0:
            self._ended = self._ended or asyncio.get_running_loop().create_future()
            await asyncio.wait((self._ended,), timeout=timeout)

    def votes(self) -> tuple[NodeVote, ...]:
        """Return what the nodes said in the last round that was won."""
        return self._round.votes()

    def error(self) -> LockLostError:
        """Return the error for a lease that is not held."""
        if self.loss is None and self._release is not None:
            reason, why = LossReason.RELEASED, "was released"
        else:
            reason = self.loss or LossReason.EXPIRED
            why = {
                LossReason.EXPIRED: "was lost: its validity ended before a majority extended it",
                LossReason.REFUSED: "was lost: a majority of the nodes does not hold it any more",
                LossReason.EXTENSIONS_EXHAUSTED: (
                    f"was lost after {self._by_watchdog} extensions, which is ExtensionPolicy.max_extensions"
                ),
                LossReason.MANAGER_CLOSED: "was given up: its manager was closed",
                LossReason.LOOP_CLOSED: "was lost: its event loop was closed before it was released",
            }.get(reason, "was lost")
        return LockLostError(
            f"lock {printable(self.names)} {why}", reason=reason, names=self.names, votes=self._why()
        )

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is lost before its release."""
        if self._lost is None:
            self._lost = asyncio.Event()
            if self.loss is not None:
                self._lost.set()
        return self._lost

    def _why(self) -> tuple[NodeVote, ...]:
        """Return what the nodes said in the round that explains a loss, late answers included."""
        return () if self._blame is None else self._blame.votes()

    # -- what happens to it --------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Do what is due: end it at its deadline, else extend it.  Called by the watchdog."""
        if now >= self.deadline:
            self.expire()
        elif self._extends and self._extending is None and now >= self._extend_at:
            self.extend(self.wanted, by_watchdog=True)

    def expire(self) -> None:
        """Give it up because its time is over."""
        exhausted = self._extension.enabled and not self._extends
        self._blame = self._blame or self._extending
        self.lose(LossReason.EXTENSIONS_EXHAUSTED if exhausted else LossReason.EXPIRED)

    def judge(self) -> None:
        """Notice an end by the clock that the watchdog has not come round to."""
        if self._release is None and self.loss is None and self._runtime.clock.now() >= self.valid_until:
            self.expire()

    def extend(self, ttl: float, *, by_watchdog: bool = False) -> Round:
        """Ask all nodes to let the lock live `ttl` seconds from now (R8); one round at a time."""
        assert self._extending is None, "one extension round per lease"
        assert self._release is None, "nothing is sent after the release (R6)"
        runtime = self._runtime
        self.wanted = max(self.wanted, ttl)
        asked_at = runtime.clock.now()

        def heed(node: int, answer: Answer) -> None:
            if answer.missing and extension_verdict(round_.tally) is Extension.EXTENDED:
                self._top_up([node], ttl)

        round_ = self._extending = Round(runtime.nodes, runtime.deadlines, self._primitive.read_extend, heed)
        round_.ask(self._primitive.extend(self.owner, ttl, self.fence), runtime.node_timeout)
        round_.then(extension_decided, lambda: self._extended(round_, asked_at, ttl, by_watchdog))
        return round_

    @property
    def extending(self) -> Round | None:
        """The extension round in flight."""
        return self._extending

    def _extended(self, round_: Round, asked_at: float, ttl: float, by_watchdog: bool) -> None:  # noqa: FBT001
        """Take the outcome of an extension round."""
        self._extending = None
        if self._release is not None or self.loss is not None:
            return  # whatever it says, it comes too late
        now = self._runtime.clock.now()
        outcome = extension_verdict(round_.tally)
        if now >= self.deadline:
            self._blame = round_
            self.expire()  # never extended back to life, not even by an answer that waited for us
            return
        if outcome is Extension.LOST:
            self._blame = round_
            self.lose(LossReason.REFUSED)
            return
        if outcome is Extension.EXTENDED:
            self._by_watchdog += by_watchdog
            self._won(round_, asked_at, ttl)
            if by_watchdog and self._extension.runs_low(self._by_watchdog):
                self._warn_of_the_end(now)
        else:
            self._blame = round_  # should the deadline decide, this is why
            chance = self._runtime.random.random()
            self._extend_at = now + EXTENSION_RETRY.backoff(self._retries, chance, least=0.5)
            self._retries += 1
        self._runtime.watchdog.watch(self)

    def _won(self, round_: Round, asked_at: float, ttl: float) -> None:
        if (gained := valid_until(asked_at, ttl)) > self.valid_until:
            self.valid_until = gained
            self._extend_at = asked_at + self._extension.every * ttl
        self._ttl = max(self._ttl, ttl)
        self.extensions += 1
        self._blame = None
        self._round = round_
        self._retries = 0
        missing = [
            node for node, answer in enumerate(round_.answers) if answer is not None and answer.missing
        ]
        self._top_up(missing, ttl)  # those that answer later are heeded then
        self._runtime.counters.extended += 1
        tell_extended(self._runtime, self, topped_up=len(missing))

    def _warn_of_the_end(self, now: float) -> None:
        """Say for how long the extensions that are left can hold the lock."""
        limit, used = self._extension.max_extensions, self._by_watchdog
        assert limit is not None, "what has no limit does not run low"
        left = self._extension.time_left(used, deadline=self.deadline - now, ttl=self.wanted)
        tell_extensions_low(self._runtime, self, used=used, limit=limit, left=left)

    def _top_up(self, missing: list[int], ttl: float) -> None:
        """Give the keys back to nodes that lost them, in a round whose win is proven (R9)."""
        if not missing or self.loss is not None or not self.held:
            return
        command = self._primitive.top_up(self.owner, ttl, self.fence)
        self._runtime.counters.topped_up += len(missing)
        for node in missing:
            name = self._runtime.nodes[node].name
            report(
                logging.INFO,
                "node %s had lost lock %s and is given it back",
                name,
                printable(self.names),
                lock=self.names,
                node=name,
                fence=self.fence,
            )
            self._runtime.nodes[node].submit(command, _TopUp(self), node)
        self._unsent = [node for node in self._unsent if node not in missing]

    def lose(self, reason: LossReason) -> None:
        """Note that the lease is lost and tell its body.

        Nothing is released here: the keys still protect the body's clean-up.
        """
        if self.loss is not None or self._release is not None:
            return
        self.loss = reason
        runtime = self._runtime
        runtime.watchdog.forget(self)
        for name in self._way.names:
            runtime.turns.lose(name)
        self._way.open()
        if self._lost is not None:
            self._lost.set()
        if self.body is not None:
            self.body.stop()
        self._tell_lost()  # last: this runs code of users

    def abandon(self) -> None:
        """Note that its loop was closed under it: nothing can be sent or woken any more, only told."""
        if self.loss is not None or self._release is not None:
            return
        self.loss = LossReason.LOOP_CLOSED
        if self._lost is not None:
            with suppress(RuntimeError):  # it is set, but nothing in a closed loop can be woken
                self._lost.set()
        self._tell_lost()

    def _tell_lost(self) -> None:
        runtime = self._runtime
        runtime.counters.lost += 1
        tell_lost(runtime, self, self.error(), held_for=runtime.clock.now() - self._since)

    def release(self) -> Round:
        """Queue the releases on all nodes, now (R6); the round that it returns knows their answers."""
        if self._release is not None:
            return self._release
        self.judge()
        runtime = self._runtime
        now = runtime.clock.now()
        self.stays = max(0.0, self.taken_until - now)
        over = self._give_back(now)
        self._way.open()  # first: then the next acquire leaves in the same write, behind these releases (R15)
        round_ = self._release = runtime.release(
            self._primitive,
            self.owner,
            keeps=self.wanted,
            fence=self.fence,
            unsent=self._unsent,
            timeout=runtime.node_timeout,
            quiet=self.handed_on,
            stays=self.stays,
        )
        for turn in over:
            turn.release, turn.listened = round_, any(map(runtime.wakeups.listening, self._primitive.keys))
        runtime.watchdog.forget(self)
        runtime.holdings.pop(self, None)
        runtime.counters.released += 1
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        tell_released(runtime, self, held_for=now - self._since)
        return round_

    def _give_back(self, now: float) -> list[Turn]:
        """Note that this process gives the names back; returns the turns that end with this release (R13)."""
        runtime, way = self._runtime, self._way
        if not self.stays:
            over = [turn for name in way.names if (turn := runtime.turns.give_back(name, now)) is not None]
            self.handed_on = not over and way.hand_on()
            return over
        for name in way.names:
            runtime.turns.lose(name)
        # After a loss the way has no names any more: then the nodes alone tell who may have them next.
        runtime.cooldowns.begin(way.names, self.taken_until, now)
        return []


@final
class _TopUp:
    """The sink of a top-up: its answer is of no consequence, the next extension asks again."""

    __slots__ = ("_holding",)

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    @property
    def pending(self) -> bool:
        """A top-up goes out again only while the lease is held."""
        return self._holding.held

    def on_reply(self, node: int, reply: Reply) -> None:
        """Nothing to do."""
