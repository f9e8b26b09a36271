"""How a call of `acquire` that was refused waits for its next try, within the time it was given (R13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from .._core.policy import after_expiry, follows, notice_jitter, poll, reminder, unfollowed
from .._core.quorum import Verdict
from .._local.handoff import GLIMPSE, YIELD, Turn
from .._round.round import majority_answered
from ..errors import LockNotAcquiredError, LockTakenError, QuorumUnavailableError

if TYPE_CHECKING:
    from .._clock import Clock
    from .._session.runtime import Runtime
    from .attempt import Attempt
    from .notices import Ear

SPLIT_WITHIN: Final = 4
"""Round trips after a try in which the notices of those who lost it, too, are expected."""


SAME_EXPIRY: Final = 0.005
"""Seconds by which two looks at one key may differ in when it expires."""


@final
class Patience:
    """The time that a caller gives one call of `acquire`, in seconds; None for no end, 0 for a single try.

    While tries end without a quorum it may be shorter: `for_quorum` seconds since `answered_at`.
    """

    __slots__ = (
        "_began",
        "_clock",
        "_in_line",
        "_node_timeout",
        "_quorum_missing",
        "_seconds",
        "answered_at",
        "for_quorum",
    )

    def __init__(
        self,
        clock: Clock,
        began: float,
        seconds: float | None,
        node_timeout: float,
        for_quorum: float | None = None,
    ) -> None:
        self._clock = clock
        self._began = began
        self._seconds = seconds
        self._node_timeout = node_timeout
        self._quorum_missing = False
        self.for_quorum = for_quorum
        """Seconds that a quorum may be missing; None: as long as all may take."""
        self.answered_at = began
        """When a quorum last answered that the lock is taken; before that, when the call began."""
        self._in_line = 0.0

    @property
    def single_try(self) -> bool:
        """Whether there is nothing to wait for."""
        return self._seconds == 0

    @property
    def used(self) -> float:
        """The seconds that have passed."""
        return self._clock.now() - self._began

    def left(self) -> float | None:
        """Return the seconds that may still be waited; None when there is no end."""
        seconds, began = self._seconds, self._began
        if self._quorum_missing and self.for_quorum is not None:
            ends = self.answered_at + self.for_quorum
            return (ends if seconds is None else min(ends, began + seconds)) - self._clock.now()
        return None if seconds is None else began + seconds - self._clock.now()

    def judged(self, error: LockNotAcquiredError) -> None:
        """Take note of what a try, or a task of this process, was told."""
        self._quorum_missing = not isinstance(error, LockTakenError)
        if not self._quorum_missing:
            self.answered_at = self._clock.now()

    def quorum_left(self, answered_at: float) -> float:
        """Return the seconds that a quorum may still be missing that last answered at `answered_at`."""
        assert self.for_quorum is not None, "only asked where there is a limit"
        return max(answered_at, self._began) + self.for_quorum - self._clock.now()

    def goes_on_from(self, refusal: LockNotAcquiredError | None, answered_at: float) -> None:
        """Begin to ask after a task of this process that was told `refusal` last; None: it had the lock."""
        missing = isinstance(refusal, QuorumUnavailableError)
        self.answered_at = max(self._began, answered_at) if missing else self._clock.now()

    def within(self, wait: float) -> float:
        """Return how much of `wait`, in seconds, there is room for."""
        left = self.left()
        return wait if left is None else max(0.0, min(wait, left))

    def for_answers(self) -> float:
        """Return how long the nodes' answers may be waited for now.

        A `node_timeout`, but never further than one past the time that the caller gave (R13).
        """
        left, timeout = self.left(), self._node_timeout
        return timeout if left is None else min(timeout, max(0.0, left + timeout + self._in_line))

    def stood_in_line(self, seconds: float) -> None:
        """Leave out of account what a single try waited for its place: it is asked once, and heard out."""
        if self.single_try:
            self._in_line += seconds


@final
class Waiting:
    """One call of `acquire` between its tries, since it was first kept from the lock."""

    __slots__ = (
        "_asked_at",
        "_crowd",
        "_ear",
        "_expires",
        "_foreign",
        "_in_vain",
        "_keys",
        "_patience",
        "_polls",
        "_refused",
        "_round_trip",
        "_runtime",
        "_splits",
    )

    def __init__(self, runtime: Runtime, keys: tuple[bytes, ...], patience: Patience) -> None:
        self._runtime = runtime
        self._keys = keys
        self._patience = patience
        self._ear: Ear | None = None  # since there is something to be told of
        self._asked_at = 0.0  # of the last try
        self._round_trip = 0.0  # of the last try
        self._refused = 0  # tries
        self._splits = 0  # tries in a row that nobody seems to have won
        self._crowd = 0  # processes that listen, 0 while unknown
        self._foreign: frozenset[int] = frozenset()  # nodes where another program's key is in the way
        self._expires = 0.0  # when such a key expires, as was said when it was first seen
        self._polls = 0  # tries since then
        self._in_vain = 0  # tries in a row that failed though nobody else seems to hold or want the lock

    def _listen(self) -> Ear:
        """Be told of releases from now on."""
        if self._ear is None:
            self._ear = self._runtime.wakeups.listen(self._keys)
        return self._ear

    def over(self) -> None:
        """Listen no more: the call has come to its end."""
        if self._ear is not None:
            self._runtime.wakeups.rest(self._keys)

    # -- the tries -----------------------------------------------------------------------------

    def asks(self) -> None:
        """Forget what was heard: the nodes are being asked now."""
        if self._ear is not None:
            self._ear.clear()

    def lost(self, attempt: Attempt) -> None:
        """Take note of a try that is about to be undone.

        The subscription is queued before the release, which tells how long the lock will stay.
        """
        self._asked_at, self._round_trip = attempt.asked_at, self._runtime.clock.now() - attempt.asked_at
        self._refused += 1
        self._listen()

    def undone(self, attempt: Attempt) -> None:
        """Take note of what its releases have told."""
        self._listen().free(attempt.free)
        tally = attempt.asked.tally  # whoever was refused nowhere waits for nobody
        self._crowd, self._foreign = attempt.crowd or self._crowd, attempt.foreign
        in_vain = tally.verdict is Verdict.WON or not tally.refused
        self._in_vain = self._in_vain + 1 if in_vain else 0

    # -- the waits between them ----------------------------------------------------------------

    async def let_others_ask(self, turn: Turn) -> None:
        """Keep still for a moment when this process has had its turn (see `_local/handoff`)."""
        runtime, release = self._runtime, turn.release
        assert release is not None, "a turn ends with a release"
        left = self._patience.left()
        if left is not None and left <= 0:
            return
        await release.wait(majority_answered, within=left)
        reached = [answer.reached for answer in release.answers if answer is not None]
        others = any(count > turn.listened for count in reached)
        # Where nobody can be told of the release, those who want it poll, and cannot be counted.
        untold = sum(count < 0 for count in reached) >= release.tally.quorum or runtime.wakeups.deaf
        if others or untold:
            await runtime.pause(self._listen().enough(), self._patience.within(YIELD))
        else:
            await runtime.sleep(self._patience.within(GLIMPSE))

    async def cool_down(self, names: tuple[str, ...]) -> None:
        """Wait while names stay taken that this process has released, or until the time is up (R34).

        In short steps: the loop's timers stand still while the machine is suspended, and the lock may be
        deleted by force.
        """
        runtime, policy = self._runtime, self._runtime.options.retry
        while (left := runtime.cooldowns.left(names, runtime.clock.now())) > 0:
            # All waiters, in other processes, too, know the same moment: come apart a little.
            wait = self._patience.within(min(policy.cap, left + policy.backoff(0, runtime.random.random())))
            if wait <= 0:
                return
            await runtime.sleep(wait)

    async def for_next_try(self, error: LockNotAcquiredError) -> None:
        """Wait for the earliest of: a release, the moment the keys expire, a back-off (R13).

        The last try comes when the time is up, and there is no wait after it.
        """
        runtime, within = self._runtime, self._patience.within
        if self._in_vain:  # that it is free is no news then: our own releases tell us so
            pause = runtime.options.retry.backoff(self._in_vain - 1, runtime.random.random())
            await runtime.sleep(within(pause))
            return
        ear, now, chance = self._listen(), runtime.clock.now, runtime.random.random()
        until = now() + within(self._before_asking_again(error, chance))
        while await runtime.pause(ear.enough(), max(0.0, until - now())):
            crowd = ear.crowd or self._crowd
            if follows(crowd, runtime.random.random()):
                await runtime.sleep(within(self._aside(crowd)))
                return
            ear.pass_by()
            until = min(until, now() + unfollowed(chance, crowd))

    def _before_asking_again(self, error: LockNotAcquiredError, chance: float) -> float:
        """Return the seconds to the earlier of the back-off and the moment the keys expire (R13)."""
        runtime, crowd = self._runtime, self._crowd
        policy = runtime.options.retry
        expiry = error.retry_after if isinstance(error, LockTakenError) else None
        if runtime.wakeups.hears(self._keys, self._foreign):
            wait = reminder(policy, chance, crowd=crowd)
        elif self._foreign:
            wait = poll(policy, self._seen_before(expiry), chance, crowd=crowd)
        else:
            wait = policy.backoff(self._refused - 1, chance)
        if expiry:
            random, round_trip = runtime.random.random(), self._round_trip
            wait = min(wait, expiry + after_expiry(policy, random, round_trip=round_trip, crowd=crowd))
        return wait

    def _seen_before(self, expiry: float | None) -> int:
        """Return how many tries met the other program's key that is in the way now.

        One that expires later has been taken anew, or extended: a client must not poll a lock that changes
        hands all the time ever more rarely, or the others have it among themselves.
        """
        expires = self._runtime.clock.now() + (expiry or 0.0)
        if expiry and expires > self._expires + max(SAME_EXPIRY, SPLIT_WITHIN * self._round_trip):
            self._expires, self._polls = expires, 0
        else:
            self._polls += 1
        return self._polls

    def _aside(self, crowd: int) -> float:
        """Return the `notice_jitter` to wait after a notice; one right after the last try is a split."""
        runtime = self._runtime
        split = runtime.clock.now() - self._asked_at < SPLIT_WITHIN * self._round_trip
        self._splits = self._splits + 1 if split else 0
        chance, round_trip = runtime.random.random(), self._round_trip
        splits, policy = self._splits, runtime.options.retry
        return notice_jitter(policy, chance, round_trip=round_trip, splits=splits, crowd=crowd)
