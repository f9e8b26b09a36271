"""When to try again and when to extend: two small policies (rules R8 and R13)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

MAX_BACKOFF_DOUBLINGS: Final = 32
"""Past this many attempts the back-off has long reached any sensible cap; keeps the power finite."""


def number(name: str, value: object) -> float:
    """Return `value` as a float, or fail with the parameter's name and the value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise ValueError(f"{name} must be finite, got {_beginning(value)}")
    return result


def _beginning(value: float) -> str:
    try:
        return f"{value!s:.40}"
    except ValueError:  # Python refuses to write down more than some thousand digits
        return f"an integer of {int(value).bit_length()} bits"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The waits of a refused acquire before it asks again (R13).

    Where a majority of the nodes notifies waiters of releases, it waits for a notification.  In case one is
    lost, it also asks again after half of `cap` to all of it; in a large crowd later, so that one of the
    waiters asks every 10 to 20 ms.  Elsewhere, and while another program holds the lock, it polls: a wait is
    drawn evenly between zero and ``min(cap, base * 2 ** attempt)`` seconds.  This full jitter keeps
    contenders apart that started in the same moment; see "Exponential Backoff And Jitter" (AWS Architecture
    Blog).
    """

    base: float = 0.01
    """Seconds: the longest first wait of a polling waiter, and the longest after a notice.  Positive."""
    cap: float = 0.5
    """Seconds: no wait is longer but in a crowd, so a notice that is lost costs no more.  At least `base`."""

    def __post_init__(self) -> None:
        if number("RetryPolicy.base", self.base) <= 0:
            raise ValueError(f"RetryPolicy.base must be positive seconds, got {self.base!r}")
        if number("RetryPolicy.cap", self.cap) < self.base:
            raise ValueError(f"RetryPolicy.cap must be at least base ({self.base!r} s), got {self.cap!r}")

    def backoff(self, attempt: int, chance: float, *, least: float = 0.0) -> float:
        """Return the seconds to wait after try number `attempt` (0 is the first).

        `chance` is an even random number in [0, 1).  `least` is the share of the longest wait that is
        waited in any case, where there is no crowd to keep apart but a peer to be spared.
        """
        share = least + (1 - least) * chance
        return share * min(self.cap, self.base * 2.0 ** min(attempt, MAX_BACKOFF_DOUBLINGS))


LEAST_REMINDER: Final = 0.5
"""Share of `RetryPolicy.cap` that is waited in any case where releases are published."""

FOLLOWERS: Final = 3
"""The members of a crowd that ask after a release, in the mean (R33)."""

REMINDED_APART: Final = 0.02
"""Seconds between two reminders in a large crowd, at most; half of it at least."""

MAX_CROWD: Final = 10_000
"""Processes that a crowd is taken to have at most, whatever a node says."""


def should_retry_now(listeners: int, chance: float) -> bool:
    """Whether a waiter among `listeners` retries at a notification, or waits for the next one (R33).

    A crowd of 0 is one of unknown size: all its members do.
    """
    return chance * min(listeners, MAX_CROWD) < FOLLOWERS


def reminder(policy: RetryPolicy, chance: float, *, listeners: int = 0) -> float:
    """Return the seconds after which a waiter that is notified of releases asks all the same (R13).

    Together, a crowd that is large asks 50 to 100 times a second (R33).
    """
    longest = max(policy.cap, min(listeners, MAX_CROWD) * REMINDED_APART)
    return longest * (LEAST_REMINDER + (1 - LEAST_REMINDER) * chance)


def fallback_retry(chance: float, listeners: int) -> float:
    """Return the seconds after which a waiter that let a notice pass asks, as all may have done (R33)."""
    return chance * min(listeners, MAX_CROWD) * REMINDED_APART


def poll(policy: RetryPolicy, attempt: int, chance: float, *, listeners: int) -> float:
    """Return the seconds after which a waiter asks again that no release of the holder will wake.

    A crowd polls as often as the few of it that would follow a notice (R33).
    """
    wait = policy.backoff(attempt, chance) * max(1.0, min(listeners, MAX_CROWD) / FOLLOWERS)
    return min(wait, reminder(policy, chance, listeners=listeners))


def notice_jitter(
    policy: RetryPolicy, chance: float, *, round_trip: float, splits: int, listeners: int
) -> float:
    """Return the seconds to wait after a notice, since others have heard of it at the same time (R13).

    They come apart by a round trip; by more after `splits` tries in a row without a winner, for then that
    was not enough.  A waiter that alone was notified need not wait (R33).
    """
    if listeners == 1 and not splits:
        return 0.0
    return chance * min(round_trip * 2.0 ** min(splits, MAX_BACKOFF_DOUBLINGS), policy.base)


def after_expiry(policy: RetryPolicy, chance: float, *, round_trip: float, listeners: int) -> float:
    """Return the seconds to wait when a key has expired: all waiters read the same moment off the nodes."""
    return chance * max(policy.base, min(listeners, MAX_CROWD) * round_trip)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionPolicy:
    """When a held lock is extended, how often, and when its body is stopped (R7, R8)."""

    every: float = 1 / 3
    """Share of the ttl after which the lock is extended again.  From 0.01 to below 1."""
    max_extensions: int | None = 1000
    """Extensions before the lock is left to run out (`extensions_exhausted`); None: no bound.  A third of the
    ttl each, that is 333 ttls.  A warning comes when half of them are used, and when nine tenths are."""
    grace: float = 0.05
    """Share of the ttl: the body is cancelled this long before validity ends, so that its clean-up
    still runs inside the lock.  At least 0, and with `every` below 0.9."""

    def __post_init__(self) -> None:
        if not MIN_EVERY <= number("ExtensionPolicy.every", self.every) < 1:
            raise ValueError(
                f"ExtensionPolicy.every is a share of the ttl from {MIN_EVERY} to below 1, got {self.every!r}"
            )
        if not 0 <= number("ExtensionPolicy.grace", self.grace) <= MAX_GRACE:
            raise ValueError(
                f"ExtensionPolicy.grace is a share of the ttl from 0 to {MAX_GRACE}, got {self.grace!r}"
            )
        if self.every + self.grace >= MAX_EVERY_AND_GRACE and self.max_extensions != 0:
            raise ValueError(
                f"ExtensionPolicy.every + grace must stay below {MAX_EVERY_AND_GRACE} of the ttl, or the "
                f"lock is lost before it is extended, got {self.every!r} + {self.grace!r}"
            )
        if self.max_extensions is None:
            return
        if isinstance(self.max_extensions, bool) or not isinstance(self.max_extensions, int):
            raise TypeError(
                f"ExtensionPolicy.max_extensions must be an int or None, got {self.max_extensions!r}"
            )
        if self.max_extensions < 0:
            raise ValueError(
                f"ExtensionPolicy.max_extensions must not be negative, got {self.max_extensions!r}"
            )

    @classmethod
    def off(cls) -> ExtensionPolicy:
        """Return the policy of a plain lease: never extended, lost when its ttl has run out."""
        return cls(max_extensions=0)

    @property
    def enabled(self) -> bool:
        """Whether leases are extended in the background at all."""
        return self.max_extensions != 0

    def exhausted(self, extensions: int) -> bool:
        """Whether a lease that was extended `extensions` times must be left to run out."""
        return self.max_extensions is not None and extensions >= self.max_extensions

    def runs_low(self, extensions: int) -> bool:
        """Whether the extension number `extensions` is one that the holder is warned at."""
        limit = self.max_extensions
        if not limit:
            return False
        return any(extensions == -(-part * limit // whole) for part, whole in LOW_AT)  # rounded up

    def time_left(self, extensions: int, *, deadline: float, ttl: float) -> float:
        """Return the seconds until a lock is lost for want of extensions.

        It has been extended `extensions` times, and would be lost in `deadline` seconds if never again.
        """
        if self.max_extensions is None:
            return math.inf
        return deadline + (self.max_extensions - extensions) * self.every * ttl


LOW_AT: Final = ((1, 2), (9, 10))
"""Shares of `ExtensionPolicy.max_extensions`, rounded up, at which the holder is warned."""

MIN_EVERY: Final = 0.01
"""Share of the ttl: more than a hundred extensions per ttl would only load the nodes."""

MAX_GRACE: Final = 0.45
"""Share of the ttl: more grace than this leaves the body less than half of its lock."""

MAX_EVERY_AND_GRACE: Final = 0.9
"""Share of the ttl: room for one extension round and the drift has to remain."""

EXTENSION_RETRY: Final = RetryPolicy(base=0.05, cap=0.5)
"""The retries of an extension round that ended unknown, until the deadline decides (R8)."""
