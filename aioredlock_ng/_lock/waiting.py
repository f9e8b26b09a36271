"""The waits of a call of `acquire`: for how long, for what, and for how long it keeps others out (R13, R22).

A waiting call asks again at the earliest of three moments: when enough nodes notify it of a release, when the
keys in its way expire, and after a back-off.  The back-off is long where a notification can be expected, and
short where the call has to poll.

A waiting writer keeps new readers from a name that readers hold.  A call for several names keeps others from
those that are free.  Both do so by their entries in the local queue and by their marks at the nodes.  The
holder that the call waits for may itself wait for one of the calls that are kept out: then both would wait
for ever, though neither needs what the other holds.  So a call keeps others out for a limited time, and then
lets them in.  Each time it keeps them out for twice as long, up to a minute, so that it gets the lock even
where the others hold theirs for longer.

Example: a reader R holds "x", and will release it after its subtask has read "x", too.  A writer W waits for
R, and the subtask waits behind W.  After `KEEPS_OUT` seconds W lets the subtask in, and all three go on.
"""

from __future__ import annotations

import asyncio
import math
from contextvars import Context
from typing import TYPE_CHECKING, Final, final

from .._core.policy import (
    after_expiry,
    fallback_retry,
    notice_jitter,
    poll,
    reminder,
    should_retry_now,
)
from .._core.quorum import WON
from .._core.seats import HEAD_START, MOST_AHEAD
from .._core.slots import ANY
from .._round.availability import Availability
from .._round.deadlines import give_up, wait_for
from .._round.round import majority_answered
from ..errors import LockNotAcquiredError, LockTakenError
from .attempt import Attempt
from .handoff import YIELD, YIELD_WITHOUT_LISTENERS, HandoffWindow
from .local_queue import Contender, QueueEntry
from .notifications import ReleaseListener

if TYPE_CHECKING:
    from .acquisition import Deadline
    from .session import Session

SPLIT_WITHIN: Final = 4
"""Round trips after an attempt within which the other losers of a split vote undo their attempts, too."""

SAME_EXPIRY: Final = 0.005
"""Seconds by which the expiry of one key, read at two moments, may differ."""

KEEPS_OUT: Final = 5.0
"""Seconds that a call keeps others out the first time."""

KEEPS_OUT_LONGEST: Final = 60.0
"""Most seconds that it keeps others out, however often it has let them in."""

LETS_IN: Final = 0.25
"""Seconds that it then waits before it asks: the round trip of the calls that are let in may be long."""


@final
class Sleeps:
    """The waits of all calls of one manager: each for a limited time, and none beyond the manager's end."""

    def __init__(self, availability: Availability) -> None:
        self._availability = availability
        self._futures: set[asyncio.Future[bool]] = set()

    def __len__(self) -> int:
        """Number of acquires that wait in a queue or for their next attempt."""
        return len(self._futures)

    async def wait(self, future: asyncio.Future[bool], seconds: float | None) -> bool:
        """Wait for `future`, at most `seconds`, and return its result; False when the time is up.

        Raises:
            ManagerClosedError: when the manager is closed meanwhile.
        """
        self._futures.add(future)
        try:
            done = await wait_for(future, seconds)
        finally:
            self._futures.discard(future)
        # `end` has woken this wait; or the future was set in the turn in which the manager was closed.
        if self._availability.closing:
            raise self._availability.closed_error()
        return done

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds; raises as `wait` does."""
        await self.wait(asyncio.get_running_loop().create_future(), seconds)

    def end(self) -> None:
        """End all waits: the manager is being closed."""
        for future in self._futures:
            give_up(future)


@final
class Retries:
    """One call of `acquire` between its attempts, since it was first kept from the lock."""

    def __init__(self, session: Session, contender: Contender, deadline: Deadline) -> None:
        self._session = session
        self._contender = contender
        self._channels = contender.primitive.channels
        kind = contender.primitive.kind
        self._seat = kind.channel_of(contender.seat)
        self._together = kind.together
        self._deadline = deadline
        self._listener: ReleaseListener | None = None  # from the first moment at which a release matters
        self._asked_at = 0.0  # of the last attempt
        self._round_trip = 0.0  # of the last attempt
        self._refused = 0  # attempts
        self._splits = 0  # attempts in a row that no contender seems to have won
        self._ahead = 0  # calls before this one in a fair lock's queue (R28)
        self._listeners = 0  # processes that listen, 0 while unknown
        self._foreign: frozenset[int] = frozenset()  # nodes where another program's key is in the way
        self._expires = 0.0  # when such a key expires, as read at the first attempt that met it
        self._polls = 0  # attempts since then
        # Attempts in a row that failed although no other client seems to hold or want the lock.
        self._failed_uncontended = 0

    def _listen(self) -> ReleaseListener:
        """Subscribe to releases, unless this call has done so."""
        if self._listener is None:
            self._listener = self._session.notifications.listen(self._channels, self._seat)
            self._contender.listens()
        return self._listener

    def stop(self) -> None:
        """Stop listening: the call has ended, or does not wait at the nodes for now."""
        if self._listener is not None:
            self._session.notifications.rest(self._channels, self._listener)
            self._listener = None

    # -- the attempts --------------------------------------------------------------------------

    def asks(self) -> int | None:
        """Forget the notifications so far, because the nodes are being asked now.

        Returns the slot of a semaphore that is said to be free, or `ANY`; None before the first attempt.
        """
        slot = None if not self._refused else ANY
        if (listener := self._listener) is not None:
            # A notification has named a free slot.  Before the first attempt none counts, even if this call
            # has listened while others asked first: a first attempt inspects all slots.
            if self._refused:
                slot = listener.slot
            listener.clear()
        return slot

    def lost(self, attempt: Attempt) -> None:
        """Take note of a lost attempt before it is undone.

        The subscription is queued before the release of the attempt, whose reply says how long the lock will
        stay taken.  So no release can happen unnoticed between the two.
        """
        self._asked_at, self._round_trip = attempt.asked_at, self._session.clock.now() - attempt.asked_at
        self._refused += 1
        self._listen()

    def undone(self, attempt: Attempt) -> None:
        """Take note of the replies to the releases of the attempt."""
        # As if these nodes had notified us: the lock became free there while the attempt was on its way.
        self._listen().free(attempt.free)
        round_ = attempt.round
        # Without a number of listeners in the replies the last known one is the best guess.
        self._listeners, self._foreign = attempt.listeners or self._listeners, attempt.foreign
        self._ahead = min(attempt.ahead, MOST_AHEAD)
        # No holder to wait for: won too late or without a fence, or refused by no node.  A majority of grants
        # that is no win is one of several slots, which other calls have got, too.
        split = round_.granted >= round_.quorum
        failed_uncontended = round_.verdict is WON or not (round_.refused or split)
        self._failed_uncontended = self._failed_uncontended + 1 if failed_uncontended else 0

    # -- the waits between them ----------------------------------------------------------------

    async def let_others_ask(self, window: HandoffWindow) -> None:
        """Wait a moment before asking, after this process has had the name for long (`_lock/handoff`)."""
        session, release = self._session, window.release
        # The release failed before it was sent: no process was notified of it.
        if release is None:
            return
        left = self._deadline.left()
        # No time left to wait: the one attempt that remains is made at once.
        if left is not None and left <= 0:
            return
        # How many processes the release has notified is in its replies.
        await release.wait(majority_answered, within=left)
        reached = [answer.reached for answer in release.answers if answer is not None]
        # `listened` is True if one of the listeners is this process: then at least two are needed.
        others = any(count > window.listened for count in reached)
        # Where no process can be notified of the release, those that want the lock poll, and cannot be
        # counted.
        untold = sum(count < 0 for count in reached) >= release.quorum or session.notifications.deaf
        # Others want the lock, or may want it: they get `YIELD` seconds to take it.  If one of them releases
        # it before, this call goes on.
        if others or untold:
            await session.sleeps.wait(self._listen().enough(), self._deadline.within(YIELD))
        # No other process seems to want the lock: a short pause, in case that one polls.
        else:
            await session.sleeps.sleep(self._deadline.within(YIELD_WITHOUT_LISTENERS))

    async def for_next_try(self, error: LockNotAcquiredError) -> None:
        """Wait for the earliest of a release, the expiry of the keys, and a back-off (R13).

        The last attempt is made when the time is up, with no wait after it.
        """
        session, within = self._session, self._deadline.within
        # No other client was in the way: too few nodes answered, or the grants came too late.  Notifications
        # say nothing then, because the releases of this call's own attempts cause them: only back off.
        if self._failed_uncontended:
            pause = session.retry.backoff(self._failed_uncontended - 1, session.random.random())
            await session.sleeps.sleep(within(pause))
            return
        listener, now, chance = self._listen(), session.clock.now, session.random.random()
        until = now() + within(self._before_asking_again(error, chance))
        # Each turn of this loop is a release.  The loop ends, and the call asks, when `until` has come.
        while await session.sleeps.wait(listener.enough(), max(0.0, until - now())):
            # A fair lock is free, and `ahead` calls are queued before this one.  They may be gone, so each of
            # them gets a head start and no more (R29).  Example: a call with two others before it asks after
            # 2 x `HEAD_START`, unless a further notification comes first.
            if self._seat and (ahead := listener.slot) > 0:
                listener.pass_by()
                until = min(until, now() + ahead * HEAD_START)
                continue
            listeners = listener.listeners or self._listeners
            # Ask now: it is a lock that all waiters can share (readers), or the draw says that this process
            # is among the about three of the crowd that retry after this release (R33).
            if self._together or should_retry_now(listeners, session.random.random()):
                await session.sleeps.sleep(within(self._after_notice(listeners)))
                return
            # Others of the crowd retry after this release: wait for the next one.  In case that none of them
            # does, ask at a random moment soon.
            listener.pass_by()
            until = min(until, now() + fallback_retry(chance, listeners))

    def _before_asking_again(self, error: LockNotAcquiredError, chance: float) -> float:
        """Return the seconds to the earlier of the back-off and the expiry of the keys (R13)."""
        session, listeners = self._session, self._listeners
        policy = session.retry
        expiry = error.retry_after if isinstance(error, LockTakenError) else None
        # A majority notifies this process of the release: ask rarely, in case a notification is lost.
        if session.notifications.is_subscribed(self._channels, self._foreign, self._seat):
            wait = reminder(policy, chance, listeners=listeners + self._ahead)
        # Another program holds the lock, and its release notifies no process: poll, in a crowd rarely.
        elif self._foreign:
            wait = poll(policy, self._seen_before(expiry), chance, listeners=listeners)
        # The subscriptions are not in place: the nodes have just reconnected, or do not allow them.
        else:
            wait = policy.backoff(self._refused - 1, chance)
        # The holder may have died: then its keys expire, and no notification comes.
        if expiry:
            random, round_trip = session.random.random(), self._round_trip
            wait = min(
                wait, expiry + after_expiry(policy, random, round_trip=round_trip, listeners=listeners)
            )
        return wait

    def _seen_before(self, expiry: float | None) -> int:
        """Return how many attempts have met the other program's key that is in the way now.

        A key that expires later than the last one was set again or extended, and counts as a new one.  If it
        did not, a client would poll a lock that often changes hands more and more rarely, and the other
        program's clients would have it among themselves.
        """
        expires = self._session.clock.now() + (expiry or 0.0)
        # Another holder, or the same one has extended: poll as often as at first.  The margin is for what
        # reading the expiry over the network may be wrong by.
        if expiry and expires > self._expires + max(SAME_EXPIRY, SPLIT_WITHIN * self._round_trip):
            self._expires, self._polls = expires, 0
        # The same key.
        else:
            self._polls += 1
        return self._polls

    def _after_notice(self, listeners: int) -> float:
        """Return the seconds to wait after a notification of a release, before the call asks again."""
        session = self._session
        # A split vote.  Example: three clients ask at once, and the five nodes grant 2, 2 and 1 of them.
        # All undo their attempts, and each is notified of the others' releases right after its own attempt.
        # They have to spread more with each such attempt.
        split = session.clock.now() - self._asked_at < SPLIT_WITHIN * self._round_trip
        self._splits = self._splits + 1 if split else 0
        chance, round_trip = session.random.random(), self._round_trip
        return notice_jitter(
            session.retry, chance, round_trip=round_trip, splits=self._splits, listeners=listeners
        )


@final
class Patience:
    """The time that one call keeps others out, while it is refused by the nodes."""

    __slots__ = ("_until", "span")

    def __init__(self) -> None:
        self.span = KEEPS_OUT
        """Seconds that the call keeps others out without a pause."""
        # The end of the current span; infinite while none has begun.
        self._until = math.inf

    def is_over(self, now: float, *, taken: bool) -> bool:
        """Whether the call, after a refusal by the nodes, lets others in now; a new span begins then.

        A new span begins also when the lock is not `taken`: no majority answers, and there is no holder to
        wait for.
        """
        # No quorum: the call waits for nodes, and keeps others from nothing that they could get.
        if not taken:
            self._until = math.inf
            return False
        # The first refusal by a holder: the span begins.
        if self._until == math.inf:
            self._until = now + self.span
        # Still within it.
        if now < self._until:
            return False
        # Over: let others in, and be more patient next time.
        self.grow()
        self._until = math.inf
        return True

    def grow(self) -> None:
        """Keep others out for longer the next time."""
        self.span = min(2 * self.span, KEEPS_OUT_LONGEST)


@final
class PatienceInLine:
    """The same for a call that waits in the queue of `name`; runs until it is cancelled."""

    __slots__ = ("_name", "_patience", "_timer", "_waiter")

    def __init__(self, patience: Patience, name: str, waiter: QueueEntry) -> None:
        self._patience = patience
        self._name = name
        self._waiter = waiter
        self._begin()

    def _begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._patience.span, self._let_pass, context=Context()
        )

    def cancel(self) -> None:
        """Stop letting others pass: the call has been let in, or has stopped waiting."""
        self._timer.cancel()

    def _let_pass(self) -> None:
        # It was let in, or its time was up, in this turn of the event loop.
        if self._waiter.future.done():
            return
        contender = self._waiter.contender
        # Give up the names before this one.  Example: a call for a, b and c is inside of a, and queued for
        # b: others may have a meanwhile.  It enters a again when it has been let into b.
        has_kept = bool(contender.names)
        contender.leave()
        # It has kept a name, or another call in this queue, from what they could have had.  Otherwise it was
        # in no call's way, and there is no reason to be more patient.
        if contender.queue.let_pass(self._name) or has_kept:
            self._patience.grow()
        self._begin()
