"""How a call of `acquire` that was refused waits for its next try, within the time it was given (R13)."""

from __future__ import annotations

from typing import Final, final

from .._core.policy import after_expiry, fallback_retry, notice_jitter, poll, reminder, should_retry_now
from .._core.quorum import Verdict
from .._core.seats import HEAD_START, MOST_AHEAD
from .._core.slots import ANY
from .._local.handoff import YIELD, YIELD_WITHOUT_LISTENERS, HandoffWindow
from .._local.local_queue import Contender
from .._round.round import majority_answered
from ..errors import LockNotAcquiredError, LockTakenError
from .attempt import Attempt
from .deadline import Deadline
from .notifications import ReleaseListener
from .session import AcquireSession

SPLIT_WITHIN: Final = 4
"""Round trips after a try in which the notices of those that lost it, too, are expected."""


SAME_EXPIRY: Final = 0.005
"""Seconds by which two looks at one key may differ in when it expires."""


@final
class Waiting:
    """One call of `acquire` between its tries, since it was first kept from the lock."""

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
        self._listener: ReleaseListener | None = None  # since there is something to be told of
        self._asked_at = 0.0  # of the last try
        self._round_trip = 0.0  # of the last try
        self._refused = 0  # tries
        self._splits = 0  # tries in a row that no contender seems to have won
        self._ahead = 0  # seats in line before this call's (R28)
        self._listeners = 0  # processes that listen, 0 while unknown
        self._foreign: frozenset[int] = frozenset()  # nodes where another program's key is in the way
        self._expires = 0.0  # when such a key expires, as was said when it was first seen
        self._polls = 0  # tries since then
        self._failed_uncontended = (
            0  # tries in a row that failed though no other client seems to hold or want the lock
        )

    def _listen(self) -> ReleaseListener:
        """Be told of releases from now on."""
        if self._listener is None:
            self._listener = self._session.notifications.listen(self._channels, self._seat)
            self._contender.listens()
        return self._listener

    def stop(self) -> None:
        """Listen no more: the call has come to its end."""
        if self._listener is not None:
            self._session.notifications.rest(self._channels, self._listener)
            self._listener = None

    # -- the tries -----------------------------------------------------------------------------

    def asks(self) -> int | None:
        """Forget what was heard: the nodes are being asked now.

        Returns which slot of a semaphore is to be free, or `ANY`; None before the first try.
        """
        slot = None if not self._refused else ANY
        if (waiter := self._listener) is not None:
            if self._refused:
                slot = waiter.slot
            waiter.clear()
        return slot

    def lost(self, attempt: Attempt) -> None:
        """Take note of a try that is about to be undone.

        The subscription is queued before the release, which tells how long the lock will stay.
        """
        self._asked_at, self._round_trip = attempt.asked_at, self._session.clock.now() - attempt.asked_at
        self._refused += 1
        self._listen()

    def undone(self, attempt: Attempt) -> None:
        """Take note of what its releases have told."""
        self._listen().free(attempt.free)
        tally = attempt.acquire_round  # refused by no node: there is no holder to wait for
        self._listeners, self._foreign = attempt.listeners or self._listeners, attempt.foreign
        self._ahead = min(attempt.ahead, MOST_AHEAD)
        failed_uncontended = tally.verdict is Verdict.WON or not tally.refused
        self._failed_uncontended = self._failed_uncontended + 1 if failed_uncontended else 0

    # -- the waits between them ----------------------------------------------------------------

    async def let_others_ask(self, window: HandoffWindow) -> None:
        """Keep still for a moment when this process has had the name for long (see `_local/handoff`)."""
        session, release = self._session, window.release
        assert release is not None, "a window ends with a release"
        left = self._deadline.left()
        if left is not None and left <= 0:
            return
        await release.wait(majority_answered, within=left)
        reached = [answer.reached for answer in release.answers if answer is not None]
        others = any(count > window.listened for count in reached)
        # Where no process can be told of the release, those that want it poll, and cannot be counted.
        untold = sum(count < 0 for count in reached) >= release.quorum or session.notifications.deaf
        if others or untold:
            await session.sleeps.wait(self._listen().enough(), self._deadline.within(YIELD))
        else:
            await session.sleeps.sleep(self._deadline.within(YIELD_WITHOUT_LISTENERS))

    async def cool_down(self, names: tuple[str, ...]) -> None:
        """Wait while names stay taken that this process has released, or until the time is up (R34).

        In short steps: the loop's timers stand still while the machine is suspended, and the lock may be
        deleted by force.
        """
        session, policy, cooldowns = self._session, self._session.retry, self._session.queue.cooldowns
        while (left := cooldowns.left(names, session.clock.now())) > 0:
            # All waiters, in other processes, too, know the same moment: come apart a little.
            wait = self._deadline.within(min(policy.cap, left + policy.backoff(0, session.random.random())))
            if wait <= 0:
                return
            await session.sleeps.sleep(wait)

    async def for_next_try(self, error: LockNotAcquiredError) -> None:
        """Wait for the earliest of: a release, the moment the keys expire, a back-off (R13).

        The last try comes when the time is up, and there is no wait after it.
        """
        session, within = self._session, self._deadline.within
        if self._failed_uncontended:  # that it is free is no news then: our own releases tell us so
            pause = session.retry.backoff(self._failed_uncontended - 1, session.random.random())
            await session.sleeps.sleep(within(pause))
            return
        waiter, now, chance = self._listen(), session.clock.now, session.random.random()
        until = now() + within(self._before_asking_again(error, chance))
        while await session.sleeps.wait(waiter.enough(), max(0.0, until - now())):
            if self._seat and (place := waiter.slot) > 0:  # others come first, who may be gone (R29)
                waiter.pass_by()
                until = min(until, now() + place * HEAD_START)
                continue
            listeners = waiter.listeners or self._listeners
            if self._together or should_retry_now(listeners, session.random.random()):
                await session.sleeps.sleep(within(self._after_notice(listeners)))
                return
            waiter.pass_by()
            until = min(until, now() + fallback_retry(chance, listeners))

    def _before_asking_again(self, error: LockNotAcquiredError, chance: float) -> float:
        """Return the seconds to the earlier of the back-off and the moment the keys expire (R13)."""
        session, listeners = self._session, self._listeners
        policy = session.retry
        expiry = error.retry_after if isinstance(error, LockTakenError) else None
        if session.notifications.is_subscribed(self._channels, self._foreign, self._seat):
            wait = reminder(policy, chance, listeners=listeners + self._ahead)
        elif self._foreign:
            wait = poll(policy, self._seen_before(expiry), chance, listeners=listeners)
        else:
            wait = policy.backoff(self._refused - 1, chance)
        if expiry:
            random, round_trip = session.random.random(), self._round_trip
            wait = min(
                wait, expiry + after_expiry(policy, random, round_trip=round_trip, listeners=listeners)
            )
        return wait

    def _seen_before(self, expiry: float | None) -> int:
        """Return how many tries met the other program's key that is in the way now.

        One that expires later has been taken anew, or extended: a client must not poll a lock that changes
        hands all the time ever more rarely, or the others have it among themselves.
        """
        expires = self._session.clock.now() + (expiry or 0.0)
        if expiry and expires > self._expires + max(SAME_EXPIRY, SPLIT_WITHIN * self._round_trip):
            self._expires, self._polls = expires, 0
        else:
            self._polls += 1
        return self._polls

    def _after_notice(self, listeners: int) -> float:
        """Return the seconds to wait after a notice; one right after the last try tells of a split."""
        session = self._session
        split = session.clock.now() - self._asked_at < SPLIT_WITHIN * self._round_trip
        self._splits = self._splits + 1 if split else 0
        chance, round_trip = session.random.random(), self._round_trip
        return notice_jitter(
            session.retry, chance, round_trip=round_trip, splits=self._splits, listeners=listeners
        )
