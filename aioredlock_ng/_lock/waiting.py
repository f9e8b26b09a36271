"""How a refused call of `acquire` waits before its next attempt, within the time it was given (R13).

A waiting call asks again at the earliest of three moments: when enough nodes notify it of a release, when the
keys in its way expire, and after a back-off.  The back-off is long where a notification can be expected, and
short where the call has to poll.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from .._core.policy import (
    RetryPolicy,
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
from .._lock.handoff import YIELD, YIELD_WITHOUT_LISTENERS, HandoffWindow
from .._lock.local_queue import Contender
from .._log import Once
from .._round.availability import Availability
from .._round.deadlines import give_up, wait_for
from .._round.round import majority_answered
from ..errors import LockNotAcquiredError, LockTakenError
from .attempt import Attempt, TrySession
from .deadline import Deadline
from .long_waits import Ancestors, LongWaits
from .notifications import Notifications, ReleaseListener
from .refusals import LocalRefusals

SPLIT_WITHIN: Final = 4
"""Round trips after an attempt within which the other losers of a split vote undo their attempts, too."""

SAME_EXPIRY: Final = 0.005
"""Seconds by which the expiry of one key, read at two moments, may differ."""


@final
class Sleeps:
    """The waits of all calls of one manager: each for a limited time, and none beyond the manager's end."""

    __slots__ = ("_availability", "_futures")

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


class AcquireSession(TrySession):
    """The parts of a session that its calls of `acquire` share."""

    __slots__ = ()

    node_timeout: float
    retry: RetryPolicy
    local: LocalRefusals
    notifications: Notifications
    sleeps: Sleeps
    long_waits: LongWaits
    no_expiry: Once
    """Keys without expiry that have been reported."""
    ancestors: Ancestors


@final
class Waiting:
    """One call of `acquire` between its attempts, since it was first kept from the lock."""

    __slots__ = (
        "_ahead",
        "_asked_at",
        "_channels",
        "_contender",
        "_deadline",
        "_expires",
        "_failed_uncontended",
        "_foreign",
        "_listener",
        "_listeners",
        "_polls",
        "_refused",
        "_round_trip",
        "_seat",
        "_session",
        "_splits",
        "_together",
    )

    def __init__(self, session: AcquireSession, contender: Contender, deadline: Deadline) -> None:
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
        if (waiter := self._listener) is not None:
            # A notification has named a free slot.  Before the first attempt none counts, even if this call
            # has listened while others asked first: a first attempt inspects all slots.
            if self._refused:
                slot = waiter.slot
            waiter.clear()
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
        tally = attempt.round
        # Without a number of listeners in the replies the last known one is the best guess.
        self._listeners, self._foreign = attempt.listeners or self._listeners, attempt.foreign
        self._ahead = min(attempt.ahead, MOST_AHEAD)
        # No holder to wait for: won too late or without a fence, or refused by no node.
        failed_uncontended = tally.verdict is WON or not tally.refused
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

    async def cool_down(self, names: tuple[str, ...]) -> None:
        """Wait while names that this process has released stay taken, or until the time is up (R34).

        It waits in short steps: the event loop's timers stand still while the machine is suspended, and the
        lock may be deleted by force.
        """
        session, policy, cooldowns = self._session, self._session.retry, self._session.queue.cooldowns
        while (left := cooldowns.left(names, session.clock.now())) > 0:
            # All waiters know the same moment, those of other processes, too: a random delay spreads them.
            wait = self._deadline.within(min(policy.cap, left + policy.backoff(0, session.random.random())))
            # The caller's time is up before the names are free.
            if wait <= 0:
                return
            await session.sleeps.sleep(wait)

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
        waiter, now, chance = self._listen(), session.clock.now, session.random.random()
        until = now() + within(self._before_asking_again(error, chance))
        # Each turn of this loop is a release.  The loop ends, and the call asks, when `until` has come.
        while await session.sleeps.wait(waiter.enough(), max(0.0, until - now())):
            # A fair lock is free, and `place` calls are queued before this one.  They may be gone, so each of
            # them gets a head start and no more (R29).  Example: a call with two others before it asks after
            # 2 x `HEAD_START`, unless a further notification comes first.
            if self._seat and (place := waiter.slot) > 0:
                waiter.pass_by()
                until = min(until, now() + place * HEAD_START)
                continue
            listeners = waiter.listeners or self._listeners
            # Ask now: it is a lock that all waiters can share (readers), or the draw says that this process
            # is among the about three of the crowd that retry after this release (R33).
            if self._together or should_retry_now(listeners, session.random.random()):
                await session.sleeps.sleep(within(self._after_notice(listeners)))
                return
            # Others of the crowd retry after this release: wait for the next one.  In case that none of them
            # does, ask at a random moment soon.
            waiter.pass_by()
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
