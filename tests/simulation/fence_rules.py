"""The rules under search: the shipping functions, each of which a broken variant may replace (R10–R12)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from aioredlock_ng._core import fencing, quarantine
from aioredlock_ng._core.fencing import MIN_FENCE_TTL

KEEP_MS: Final = round(MIN_FENCE_TTL * 1000)
"""The shortest life of an unused counter that a client may ask for."""


def _new_owner(_client: int, number: int) -> int:
    return number


def _as_it_is(value: int) -> int:
    return value


@dataclass(frozen=True)
class Rules:
    """What model nodes and model clients go by.

    The first block is the shipping code; the second says in one expression each what the scripts and the
    client do around it.
    """

    ballot: Callable[[int, int], int] = fencing.ballot
    certified: Callable[[Iterable[int], int], int | None] = fencing.certified
    agreeable: Callable[[Collection[tuple[int, int]]], int] = fencing.agreeable
    reading: Callable[..., int] = fencing.reading
    granted: Callable[[int, int, int], int] = fencing.granted
    raised: Callable[[int, int, int], int | None] = fencing.raised
    kept_ms: Callable[[int, int, int], int] = fencing.kept_ms
    greeted: Callable[..., bytes] = quarantine.greeted
    initialised: Callable[..., bytes] = quarantine.initialised
    judge: Callable[..., quarantine.Judgement] = quarantine.judge

    may_raise: Callable[[int | None, int], bool] = operator.eq
    """Whether the holder of a lock (None: none) lets an owner raise its counter."""
    raise_floor: Callable[[int], int] = _as_it_is
    """The floor that a raise reads the counter with, of the vow's."""
    new_owner: Callable[[int, int], int] = _new_owner
    """The owner of a client's attempt; the attempts of all clients are numbered."""
    quarantine: Callable[[int], int] = _as_it_is
    """The quarantine that clients ask for, of what the ttl demands; milliseconds."""
    keep_ms: tuple[int, ...] = (KEEP_MS, 2 * KEEP_MS)
    """How long the clients let their counters live, each its own."""
    forgets_vows: bool = True
    """Whether a vow ends with the connection that it was made on."""


SHIPPING: Final = Rules()


def _greatest(fences: Iterable[int], quorum: int) -> int | None:
    """Take the greatest counter of a majority for the fence, without a certificate."""
    found = list(fences)
    return max(found) if len(found) >= quorum else None


def _with_floor(sentinel: bytes, floor: int) -> bytes:
    known = quarantine.parse(sentinel)
    return sentinel if known is None else bytes(replace(known, floor=floor))


def _greeted_without_floor(*args: Any, **terms: Any) -> bytes:
    return _with_floor(quarantine.greeted(*args, **terms), 0)


def _initialised_without_floor(*args: Any, **terms: Any) -> bytes:
    return _with_floor(quarantine.initialised(*args, **terms), 0)


def _initialised_by_others(*args: Any, floor: int, **terms: Any) -> bytes:
    """Take the floor that all are to have, however far it is ahead of this node's clock."""
    done = quarantine.initialised(*args, floor=floor, **terms)
    known = quarantine.parse(done)
    return done if known is None else _with_floor(done, max(floor, known.floor))


def _from_nothing(stored: int | None, *, floor: int, now_ms: int) -> int:
    """Let a missing counter start at zero."""
    return max(stored or 0, floor)


def _from_own_ttl(stored: int | None, *, floor: int, now_ms: int) -> int:
    """Let a missing counter start as if all counters lived as long as this client's own."""
    start = fencing.at(now_ms - 2 * KEEP_MS + fencing.FLOOR_AHEAD_MS)
    return max(start if stored is None else stored, floor)


def _as_long_as_asked(_counter: int, _now_ms: int, fence_ttl_ms: int) -> int:
    return fence_ttl_ms


def _greatest_of(granted: Collection[tuple[int, int]]) -> int:
    return max(counter for counter, _ in granted)


def _without_cap(before: int, fence: int, now_ms: int) -> int:
    return max(before, fence)


BROKEN: Final[dict[str, Rules]] = {
    "the greatest counter without a certificate": Rules(certified=_greatest),
    "a raise that does not look at the owner": Rules(may_raise=lambda _holder, _owner: True),
    "one owner value for two attempts": Rules(new_owner=lambda client, _number: client),
    "no floor after a loss": Rules(greeted=_greeted_without_floor, initialised=_initialised_without_floor),
    "no start for a missing counter": Rules(reading=_from_nothing),
    "a start by the client's own fence_ttl": Rules(reading=_from_own_ttl),
    "counters that live 10 s": Rules(keep_ms=(KEEP_MS, 10_000), kept_ms=_as_long_as_asked),
    "no cap on the raise": Rules(raised=_without_cap, agreeable=_greatest_of),
    "a raise without the floor": Rules(raise_floor=lambda _floor: 0),
    "a floor by another node's clock": Rules(initialised=_initialised_by_others),
    "a vow that outlives its connection": Rules(forgets_vows=False),
}
"""Variants that break the order of the fences, or make one twice."""

UNQUARANTINED: Final = Rules(quarantine=lambda _ttl_ms: 0)
"""``restart_quarantine=0``: no exclusion after a restart, but the fences must stay in order."""
