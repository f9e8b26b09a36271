"""One holding of a lock, as a state machine without tasks: validity, extension, loss, release.

    held ──extended──▶ held            a won round moves `valid_until` (R8)
      ├──deadline, Q refusals──▶ lost  `grace` before validity ends, or at once (R7)
      └──release()──▶ released         from held or lost; nothing but the release follows (R6)

`Lease` is what users see of it.  Everything that changes its state is synchronous, so that no other task
runs between reading and writing it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, final

from .._core.command import Answer, Reply
from .._core.policy import EXTENSION_RETRY
from .._core.quorum import Extension, Tally, Vote, extension_verdict, majority
from .._core.seats import NO_SEAT
from .._core.validity import valid_until
from .._kinds.kind import Kind
from .._log import debugging, report
from .._round.batch import Asked, Extensions
from .._round.round import Round
from .._settings.options import Request
from ..errors import LockLostError, LossReason, NodeVote, printable
from ..events import Downgraded, Extended, ExtensionsLow, Lost, NotExtended, Released
from .body import Body, runner_of
from .handoff import Grant, HandoffWindow
from .hooks import About
from .local_queue import Contender

if TYPE_CHECKING:
    from .session import Session

_WHY: Final = {
    LossReason.RELEASED: "was released",
    LossReason.EXPIRED: "was lost: its validity ended before a majority extended it",
    LossReason.REFUSED: "was lost: a majority of the nodes does not hold it any more",
    LossReason.EXTENSIONS_EXHAUSTED: (
        "was lost after {extensions} extensions, the limit set by ExtensionPolicy.max_extensions"
    ),
    LossReason.MANAGER_CLOSED: "was given up: its manager was closed",
    LossReason.CANCELLED: "was lost: other code, or the end of the event loop, cancelled its manager's tasks",
    LossReason.LOOP_CLOSED: "was lost: its event loop was closed before it was released",
}

MAX_DEPTH: Final = 100
"""Leases of one lock that its task may have at once: more would be an endless recursion."""


@final
@dataclass(slots=True)
class Count:
    """The leases that a task has of one reentrant lock, and the blocks that it is inside of (R27)."""

    asked: list[Kind]
    """The kind that each lease was asked for as; released leases are removed."""
    blocks: int = 0
    """Number of blocks that are open under them."""

    def weaken(self, asked: Kind, weaker: Kind) -> None:
        """Note that a lease that was asked for as `asked` is content with `weaker` from now on.

        Raises:
            RuntimeError: another lease is not.
        """
        # All other leases must be content with it already: the lock is one for all of them.
        others = self.asked.copy()
        others.remove(asked)
        if any(kind is not weaker for kind in others):
            raise RuntimeError(
                "a write lease cannot be downgraded while its task has another lease of the lock that "
                "was requested for writing: release that one first"
            )
        self.asked = [*others, weaker]


@final
class Repair:
    """Ignores the answer to a repair (R9): the next extension checks the node again."""

    __slots__ = ("_holding",)

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    @property
    def awaited(self) -> bool:
        """A repair goes out again only while the lock is held."""
        return self._holding.held

    def on_reply(self, node: int, reply: Reply) -> None:
        """Do nothing."""


def lost_error(
    names: tuple[str, ...], reason: LossReason, votes: tuple[NodeVote, ...], *, extensions: int
) -> LockLostError:
    """Return the error; `votes` are what the nodes said in the round that explains it."""
    why = _WHY.get(reason, "was lost").format(extensions=extensions)
    granted = sum(vote.vote is Vote.GRANTED for vote in votes)
    # Lost by the clock although a majority agreed: this process took up their answers too late.
    if reason is LossReason.EXPIRED and votes and granted >= majority(len(votes)):
        why = "was lost: its validity had ended when a majority extended it; these votes came too late"
    return LockLostError(f"lock {printable(names)} {why}", reason=reason, names=names, votes=votes)


def extension_decided(tally: Tally) -> bool:
    """Whether the outcome of an extension round is certain; for `Round.wait`."""
    return extension_verdict(tally) is not Extension.PENDING


_NUMBERS: Final = itertools.count(1)


@final
class Holding:
    """A won lock, from the win to its release."""

    # Defaults on the class: most holdings never change them, and need no entry of their own for them.
    extending: Round | None = None
    """The extension round in flight."""
    _retries = 0
    _by_watchdog = 0
    _release: Round | None = None
    _blame: Round | None = None  # the latest round that failed after the latest that was won
    _lost: asyncio.Event | None = None
    _ended: asyncio.Event | None = None
    extensions = 0
    loss: LossReason | None = None
    stays = 0.0
    """Seconds for which the names stay taken after the release, by `at_least`; 0: they are free (R34)."""
    _too_short = False
    """Whether the keys may end before `taken_until`: an inner acquire asked for it (R27)."""
    quiet = False
    """Whether the release notifies no process: the next acquire of this one leaves in the same write."""
    released = False
    """Whether the releases have been queued."""
    handed_off = False
    """Whether another task of this process has the lock now, without a release (R43)."""
    _number = 0
    unchanged: bool | None = None
    """Whether no writer came after the read lease that `since` named; None: it named none (R23)."""
    on_extended: Callable[[], None] | None = None
    """Called after each extension that was won (R31)."""
    body: Body | None = None
    """The task that runs under the lease, while an ``async with`` binds one."""
    new_body: ClassVar[type[Body]] = Body
    """The class that binds a task to it."""
    count: Count | None = None
    """The leases that its task has of it; None until there may be several (R27)."""
    still_held: ClassVar[bool] = False
    """Whether the lock stays held after this lease is released: only a `View` is one of several (R27)."""

    def __init__(self, session: Session, grant: Grant, request: Request, contender: Contender) -> None:
        self._session = session
        self._grant = grant  # as the lock was won, or extended since
        self._request = request
        self._contender = contender
        # The fence of this lease comes before those of the range that are left for other tasks.
        self.fence = grant.fence - grant.fences_left
        self.wanted = request.ttl
        """The longest ttl that was asked for: a key may live as long, and the watchdog extends by it."""
        self.cancels = request.on_lost == "cancel"
        """Whether its loss cancels the body."""
        self.taken_until = grant.since + request.at_least
        """Until when the names stay taken, released or not (R34)."""
        # When it was asked for, or was extended before it was handed off to this task.
        began = grant.valid_until - request.validity
        self._extend_at = began + request.extended_after
        # Most leases are released before the watchdog checks any: they enter its heap only if they last.
        watchdog = session.watchdog
        watchdog.leases[self] = watchdog.fresh[self] = None
        # A lease so short that the watchdog would wake too late for it.
        if began + request.due_after < watchdog.wakes_at:
            watchdog.wake()

    # -- what it is ----------------------------------------------------------------------------

    @property
    def owner(self) -> bytes:
        """The value under its keys."""
        return self._grant.owner

    @property
    def valid_until(self) -> float:
        """The end of its validity."""
        return self._grant.valid_until

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock."""
        return self._grant.primitive.names

    @property
    def kind(self) -> Kind:
        """The kind of the lock."""
        return self._grant.primitive.kind

    @property
    def slot(self) -> int | None:
        """Its slot of a semaphore; None for any other kind."""
        return self._grant.primitive.slot

    @property
    def label(self) -> str:
        """Its name in metrics."""
        return self._request.label or self.kind.name

    @property
    def about(self) -> About:
        """Its description for hooks and the log."""
        return About(self.names, self.label, self.kind.name, self.number, self.fence)

    @property
    def number(self) -> int:
        """Its number among the leases of the process, given when an event first needs it."""
        if not self._number:
            self._number = next(_NUMBERS)
        return self._number

    @property
    def task(self) -> object | None:
        """The task of the body, or the thread of a block of `sync`; None while no block is open."""
        return None if self.body is None else runner_of(self.body.task)

    @property
    def done(self) -> bool:
        """Whether it was lost or released."""
        return self._release is not None or self.loss is not None

    @property
    def held(self) -> bool:
        """Whether the lock is ours, as far as is known and by the clock; no I/O.

        Still true in the grace: when it is lost by the clock, and its validity has not ended.
        """
        # Released; or a majority said that it is not ours, and the validity that is left means nothing.
        if self._release is not None or self.loss is LossReason.REFUSED:
            return False
        return self._session.clock.now() < self._grant.valid_until

    @property
    def age(self) -> float:
        """Seconds since the lock was asked for, or handed off."""
        return self._session.clock.now() - self._grant.since

    @property
    def deadline(self) -> float:
        """When the lease is lost and the body has to stop: `grace` before validity ends (R7)."""
        return self._grant.valid_until - self._request.extension.grace * self._grant.ttl

    @property
    def due(self) -> float:
        """When the watchdog has to check it next."""
        # An extension in flight plans the next one when it ends: until then only the deadline counts.
        return self.deadline if self.extending is not None else min(self._extend_at, self.deadline)

    @property
    def deserted(self) -> bool:
        """Whether no code will leave its block: there is none, or the task that entered it has ended."""
        # The block of a thread was entered by a task that acted for it, and has ended since.
        return self.body is None or (self.task is self.body.task and self.body.task.done())

    async def ended(self) -> None:
        """Wait for the release, or until no code is left to do it."""
        if self._release is None and self.body is not None:
            ended = self._ended = self._ended or asyncio.Event()
            if self.task is self.body.task:
                self.body.task.add_done_callback(lambda _: ended.set())
            await ended.wait()

    def votes(self) -> tuple[NodeVote, ...]:
        """Return what the nodes said in the last round that was won."""
        return self._grant.round.votes()

    def error(self) -> LockLostError:
        """Return the error for a lease that is not held, with the votes that explain it, late ones too."""
        # A lease that was lost first, and released after that, still reports its loss.
        released = self.loss is None and self._release is not None
        reason = LossReason.RELEASED if released else self.loss or LossReason.EXPIRED
        votes = () if self._blame is None else self._blame.votes()
        return lost_error(self.names, reason, votes, extensions=self._by_watchdog)

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is lost before its release."""
        if self._lost is None:
            self._lost = asyncio.Event()
            if self.loss is not None:
                self._lost.set()
        return self._lost

    # -- further leases of its task (R27) ------------------------------------------------------

    def also(self, request: Request) -> None:
        """Adopt the ttl of an inner acquire from the next extension on, and its `at_least`; never shorten."""
        now = self._session.clock.now()
        self.wanted = max(self.wanted, request.ttl)
        if request.at_least and now + request.at_least > self.taken_until and not self.done:
            self.taken_until = now + request.at_least
            # The keys, too, must live until then: extend at once, or with the release if that comes first.
            if self.taken_until > self.valid_until:
                self._too_short = True
                self._plan_extension(now)
                self._session.watchdog.watch(self)

    # -- extension -----------------------------------------------------------------------------

    def thin_out(self) -> None:
        """Drop from the votes what has been used already.  Called by the watchdog: the lease lives on."""
        self._grant.round.thin_out(self._grant.fence)

    def check_due(self, now: float) -> None:
        """Do what is due: end it at its deadline, else extend it.  Called by the watchdog."""
        if now >= self.deadline:
            self.expire()
        elif self.extending is None and now >= self._extend_at:
            self.extend(self.wanted, by_watchdog=True)

    def extend(self, ttl: float, *, by_watchdog: bool = False) -> Round:
        """Ask all nodes to let the lock live `ttl` seconds from now (R8); one round at a time."""
        assert self.extending is None, "one extension round per lease"
        assert self._release is None, "nothing is sent after the release (R6)"
        session = self._session
        self.wanted = max(self.wanted, ttl)
        asked_at = session.clock.now()

        def on_answer(node: int, answer: Answer) -> None:
            # An answer that comes after the win; those that came before it are repaired by `_won`.
            if answer.missing and extension_verdict(round_) is Extension.EXTENDED:
                self._repair([node], ttl)

        round_ = self.extending = self._ask_to_extend(ttl, on_answer)
        round_.then(extension_decided, lambda: self._extended(round_, asked_at, ttl, by_watchdog))
        return round_

    def _ask_to_extend(self, ttl: float, on_answer: Callable[[int, Answer], None]) -> Round:
        outbox, grant = self._session.outbox, self._grant
        primitive = grant.primitive
        # A single name: it leaves in one command with the extensions of other locks (R42).
        if primitive.batchable:
            asked = Asked(outbox, Extensions, primitive, grant.owner, ttl, grant.fence, on_answer=on_answer)
            outbox.ask(asked, outbox.node_timeout, waits=True)
            return asked
        # Several names, or a kind without scripts for batches.
        round_ = Round(outbox, primitive.kind.extend.read, on_answer)
        round_.ask(primitive.extend(grant.owner, ttl, grant.fence), outbox.node_timeout)
        return round_

    def _extended(self, round_: Round, asked_at: float, ttl: float, by_watchdog: bool) -> None:  # noqa: FBT001
        """Apply the outcome of an extension round."""
        self.extending = None
        # Lost or released meanwhile: the outcome changes nothing.
        if self.done:
            return
        now, hooks = self._session.clock.now(), self._session.hooks
        left = self.valid_until - now
        outcome = extension_verdict(round_)
        if now >= self.deadline:
            # Too late: never extended back to life, not even by an answer that waited for this loop.
            self._blame = round_
            self.expire()
            return
        if outcome is Extension.LOST:
            # A majority does not hold it: lost at once, whatever the clock says.  There is no head start
            # here: the key may be another's already.
            self._blame = round_
            self.lose(LossReason.REFUSED)
            hooks.emit(NotExtended, self, refused=True, remaining=left, votes=round_.votes)
            return
        if outcome is Extension.EXTENDED:
            # Won in time.  Only extensions by the watchdog count against `max_extensions`.
            self._by_watchdog += by_watchdog
            self._won(round_, asked_at, ttl)
            if by_watchdog and self._request.extension.runs_low(self._by_watchdog):
                self._warn_of_the_end(now)
        else:
            # No majority answered: ask again soon, and let the deadline decide.  If it passes, this round
            # explains the loss.
            self._blame = round_
            chance = self._session.random.random()
            self._plan_extension(now + EXTENSION_RETRY.backoff(self._retries, chance, least=0.5))
            self._retries += 1
        self._session.watchdog.watch(self)
        if outcome is not Extension.EXTENDED:
            hooks.emit(NotExtended, self, refused=False, remaining=left, votes=round_.votes)

    def _won(self, round_: Round, asked_at: float, ttl: float) -> None:
        """Apply a won extension: its validity, its votes, and repairs of the nodes that lost keys (R9)."""
        # Keys never get shorter (R8): an `extend` by a short ttl may gain nothing, and the plan stays.
        until, when = self.valid_until, self._extend_at
        if (gained := valid_until(asked_at, ttl)) > until:
            until, when = gained, asked_at + self._request.extension.every * ttl
        self._grant = self._grant._replace(ttl=max(self._grant.ttl, ttl), valid_until=until, round=round_)
        self._plan_extension(when)
        if asked_at + ttl >= self.taken_until:
            self._too_short = False
        self.extensions += 1
        self._blame = None
        self._retries = 0
        # The nodes that have answered; `on_answer` of `extend` repairs those that answer later.
        missing = [
            node for node, answer in enumerate(round_.answers) if answer is not None and answer.missing
        ]
        self._repair(missing, ttl)
        self._session.counters.extended += 1
        if self.on_extended is not None:
            self.on_extended()
        remaining = self.valid_until - self._session.clock.now()
        extensions, topped_up = self.extensions, len(missing)
        self._session.hooks.emit(
            Extended, self, extensions=extensions, remaining=remaining, topped_up=topped_up
        )

    def _plan_extension(self, when: float) -> None:
        """Have the watchdog extend it at `when`, unless its extensions are used up."""
        self._extend_at = math.inf if self._request.extension.exhausted(self._by_watchdog) else when

    def _warn_of_the_end(self, now: float) -> None:
        """Report for how long the remaining extensions can hold the lock."""
        limit, used = self._request.extension.max_extensions, self._by_watchdog
        assert limit is not None, "what has no limit does not run low"
        left = self._request.extension.time_left(used, deadline=self.deadline - now, ttl=self.wanted)
        self._session.hooks.emit(ExtensionsLow, self, extensions=used, max_extensions=limit, remaining=left)

    def downgrade(self, ttl: float, asked: Kind | None = None) -> Round:
        """Become the weaker kind at once in this process, and on the nodes by an extension (R23).

        A node that is not reached keeps more out than it has to, not less.  Of several leases of the lock,
        one that was asked for as `asked` is content with the weaker kind (R27).
        """
        # Other tasks of this process may come in from here on, as far as the weaker kind lets them.
        if (weaker := self._grant.primitive.weaker) is not None:
            if self.count is not None:
                self.count.weaken(asked or self.kind, weaker.kind)
            self._grant = self._grant._replace(primitive=weaker)
            self._contender.becomes(weaker)
        round_ = self.extend(ttl)
        if weaker is not None:
            self._session.hooks.emit(Downgraded, self, held_for=self.age)
        return round_

    def _repair(self, missing: list[int], ttl: float) -> None:
        """Set the keys again on nodes that lost them, after a round that was won (R9)."""
        if self.give(missing, ttl):
            self._session.counters.topped_up += len(missing)
            for index in missing:
                node = self._session.outbox.nodes[index].name
                report(
                    logging.INFO,
                    "node %s had lost lock %s; restoring it there",
                    node,
                    printable(self.names),
                    lock=self.names,
                    node=node,
                    fence=self.fence,
                    kind=self.kind.name,
                )

    def give(self, nodes: list[int], ttl: float | None = None) -> bool:
        """Have nodes hold what a majority does, where it is free, and drop other slots of ours (R9, R25).

        False when nothing was sent: there are no such nodes, or the lease is not held any more.
        """
        if not nodes or self.loss is not None or not self.held:
            return False
        grant = self._grant
        command = grant.primitive.repair(grant.owner, self.wanted if ttl is None else ttl, grant.fence)
        for index in nodes:
            self._session.outbox.nodes[index].submit(command, Repair(self), index)
        # The release must reach them now, too.
        if grant.unsent:
            self._grant = grant._replace(unsent=[node for node in grant.unsent if node not in nodes])
        return True

    # -- loss ----------------------------------------------------------------------------------

    def expire(self) -> None:
        """Lose the lease because its time is over."""
        extension = self._request.extension
        exhausted = extension.enabled and extension.exhausted(self._by_watchdog)
        # If no round failed, the one in flight, which is too slow, explains the loss.
        self._blame = self._blame or self.extending
        self.lose(LossReason.EXTENSIONS_EXHAUSTED if exhausted else LossReason.EXPIRED)

    def notice_expiry(self) -> None:
        """Lose the lease if its validity has ended, and the watchdog has not run since."""
        if not self.done and self._session.clock.now() >= self.valid_until:
            self.expire()

    def lose(self, reason: LossReason) -> None:
        """Mark the lease as lost, and stop its body.

        Nothing is released here: the keys still protect the body's clean-up.
        """
        if self.done:
            return
        self.loss = reason
        self._session.watchdog.lost.add(self)
        self._session.watchdog.forget(self)
        # The names are not this process's any more: its window ends (R13), and its next task may ask.
        for name in self._contender.names:
            self._contender.queue.handoff.end(name)
        self._contender.leave()
        if self._lost is not None:
            self._lost.set()
        if self.body is not None:
            self.body.stop()
        # A seat that outlives a refused attempt is left before the process's next call asks, and sits there.
        # A writer's waiting flag does not outlive one: it goes with the release.
        seat = self._grant.primitive.kind.seat_of_try(self._contender.seat)
        if seat.name:
            self._session.releases.leave_queue(self._grant.primitive, seat)
            self._contender.seat = NO_SEAT
        # Last, since hooks are code of users: the state is consistent by now.
        self._emit_lost()

    def abandon(self) -> None:
        """Mark the lease as lost by the close of its loop: nothing can be sent or woken, only reported.

        The close itself goes unseen.  This is called at the manager's next use in another loop, or at the end
        of the lease's block.  Until then it counts as held by the clock.
        """
        if self.done:
            return
        self.loss = LossReason.LOOP_CLOSED
        if self._lost is not None:
            with suppress(RuntimeError):  # it is set, but nothing in a closed loop can be woken
                self._lost.set()
        self._emit_lost()

    def _emit_lost(self) -> None:
        self._session.counters.lost += 1
        error = self.error()
        self._session.hooks.emit(
            Lost, self, error=error, reason=error.reason, held_for=self.age, votes=error.votes
        )

    # -- release -------------------------------------------------------------------------------

    def release(self) -> Round:
        """Queue the releases for all nodes, and return the round that takes their answers (R6).

        Or hand the lock off to another task of this process, as it is (R43).
        """
        # Called again: the first round has learned more by now.
        if self._release is not None:
            return self._release
        session, now = self._session, self._session.clock.now()
        if now >= self._grant.valid_until:
            self.notice_expiry()
        if now < self.taken_until:
            self.stays = self.taken_until - now
            if self._too_short and self.loss is not LossReason.REFUSED:
                # It leaves before the release, which lengthens no key: that may be repeated later.
                self._ask_to_extend(self.stays, lambda _node, _answer: None)
        contender, ended = self._contender, self._count_release(now)
        names, queue = contender.names, contender.queue
        # A window that ends lets other processes ask first (R13).  Else a task of this process that waits is
        # next: it gets the lock as it is, or asks in one write with a release that notifies no process.
        if not ended and len(names) == 1 and queue.entries[names[0]].queue:
            self.handed_off = self._hand_off(now)
            self.quiet = not (self.handed_off or self.stays) and contender.keep_quiet()
        if self.handed_off:
            round_ = self._release = session.releases.handed_off
        else:
            # First let the next one in: its acquire leaves in the same write, behind the releases (R15).
            contender.leave()
            round_ = self._release = self._ask_to_release()
        # The replies say how many processes were notified, and so whether the next one here lets others ask.
        for window in ended:
            window.release, window.listened = round_, queue.listened(names)
        self.released = True
        session.watchdog.forget(self)
        session.watchdog.leases.pop(self, None)
        session.counters.released += 1
        if self._ended is not None:
            self._ended.set()
        # Checked here as well: this is the hot path, on which mostly no event is wanted.
        if Released in session.hooks.wanted or debugging():
            session.hooks.emit(
                Released,
                self,
                held_for=now - self._grant.since,
                stays_taken=self.stays,
                handed_off=self.handed_off,
                lost=self.loss is not None,
            )
        return round_

    def _ask_to_release(self) -> Round:
        grant = self._grant
        return self._session.releases.release(
            grant.primitive,
            grant.owner,
            keeps=self.wanted,
            fence=grant.fence if grant.fence and grant.round.differs_from(grant.fence) else 0,
            unsent=grant.unsent,
            quiet=self.quiet,
            stays=self.stays,
            seat=self._contender.seat,
        )

    def _hand_off(self, now: float) -> bool:
        """Hand the lock off to the next waiter, if that may have it as it is (R43)."""
        # The most frequent case: no task of this process waits.
        waiter = self._contender.next_waiter()
        if waiter is None:
            return False
        # The lease is lost; or the nodes may be about to say so.
        if self.loss is not None or self.extending is not None:
            return False
        # Its keys may live for longer than its validity says, or have to stay for its `at_least`.
        if self.wanted != self._grant.ttl or self.taken_until > self._grant.since:
            return False
        grant = self._grant._replace(since=now)
        return self._session.succession.hand_off(grant, self._contender, waiter, now)

    def _count_release(self, now: float) -> list[HandoffWindow]:
        """Count the release in the windows of the names; return those that end with it (R13)."""
        contender, grant = self._contender, self._grant
        queue, names = contender.queue, contender.names
        # A kind for which the nodes see to it that other processes have their turn (R22).
        if not grant.primitive.kind.windows:
            return []
        # The names are free now.
        if not self.stays:
            ended = [queue.handoff.count_release(name, grant.since, now, grant.fence) for name in names]
            return [window for window in ended if window is not None]
        # The names stay taken for their `at_least`: until then tasks of this process do not ask.
        for name in names:
            queue.handoff.end(name)
        # After a loss the contender has no names any more: only the nodes know when the names are free.
        queue.cooldowns.begin(names, self.taken_until, now)
        return []
