"""Claims on one lock, as its holders recorded them, and what must be true of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple


class Claim(NamedTuple):
    """One turn of a holder; all times are of `CLOCK_MONOTONIC`, which the processes of a machine share."""

    start: float
    """When its `acquire` had returned."""
    end: float
    """When it had done its work, or when its lease ended, if that was earlier."""
    fence: int
    """0 without fencing."""
    asked: float
    """Before it called `acquire`."""


def duplicates(claims: Iterable[Claim]) -> list[int]:
    """Return the fences that were given more than once."""
    ordered = sorted(claim.fence for claim in claims)
    return [one for one, two in itertools.pairwise(ordered) if one == two]


def out_of_order(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims that were asked for after a greater fence had been given (R10)."""
    claims = list(claims)
    moments = [(claim.asked, 0, claim) for claim in claims] + [(claim.start, 1, claim) for claim in claims]
    greatest = 0
    late = []
    for _, given, claim in sorted(moments):
        if given:
            greatest = max(greatest, claim.fence)
        elif claim.fence <= greatest:
            late.append(claim)
    return late


def together(claims: Iterable[Claim]) -> list[tuple[Claim, Claim]]:
    """Return neighbouring claims that were inside at once."""
    return [(one, two) for one, two in itertools.pairwise(sorted(claims)) if two.start < one.end]


def check_claims(claims: Iterable[Claim]) -> None:
    """Fail unless fences are unique and grow with time, and nobody was inside with somebody else."""
    claims = sorted(claims)
    assert not together(claims)
    if any(claim.fence for claim in claims):
        assert not duplicates(claims)
        assert not out_of_order(claims)
        # Turns that exclude each other are in one order, so fences must grow from each to the next.
        assert all(one.fence < two.fence for one, two in itertools.pairwise(claims))
