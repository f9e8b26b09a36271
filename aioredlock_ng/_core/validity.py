"""The validity of a won lock (rules R2 and R3).  Seconds everywhere; `now` is always an argument."""

from __future__ import annotations

from typing import Final

CLOCK_DRIFT_FACTOR: Final = 0.01
"""Share of the ttl by which clocks may disagree over one ttl (the Redlock page: one percent)."""

EXPIRY_PRECISION: Final = 0.002
"""Seconds: Redis expires keys to the millisecond, and one more for the floor (the Redlock page: 2 ms)."""


def drift(ttl: float) -> float:
    """Return the seconds of a `ttl` that are given up to clock drift (A1, R3)."""
    return CLOCK_DRIFT_FACTOR * ttl + EXPIRY_PRECISION


LEFT_TO_HAND_OFF: Final = 7 / 8
"""Share of its ttl that a lock must have left to go from task to task without the nodes (R43): hardly less
than a new one has, and more than `min_validity` ever asks for."""


def valid_until(asked_at: float, ttl: float) -> float:
    """Return the moment until which a round asked at `asked_at` guarantees the lock (R3).

    `asked_at` is read before the first byte is sent: no node can have started the key's life
    earlier, so no node of the granting majority lets it end before this moment.
    """
    return asked_at + ttl - drift(ttl)


def min_validity(ttl: float, node_timeout: float, grace: float) -> float:
    """Return the least validity, in seconds, with which a win is worth having (R3).

    Below it the holder would be cancelled, or could not finish one extension round, before it got
    anything done.  `grace` is in seconds here.  At most half the ttl, so that short locks stay
    possible.
    """
    return min(max(2 * node_timeout, grace), ttl / 2)


def free_after(waits: list[float | None], quorum: int) -> float | None:
    """Return the seconds after which `quorum` nodes will be free, as far as their waits tell (R12, R13).

    `waits` has one entry per node: the seconds its key or its quarantine has left (0: none), or None when
    no moment is known there.  None is returned when no moment can be named.
    """
    known = sorted(wait for wait in waits if wait is not None)
    return known[quorum - 1] if len(known) >= quorum else None


def may_be_handed_off(left: float, ttl: float) -> bool:
    """Whether a lock of `ttl` seconds with so much validity left is nearly as good as a new one (R43)."""
    return left >= LEFT_TO_HAND_OFF * ttl
