"""Claims on one lock, as its holders recorded them, and what must be true of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from tests.simulation import history
from tests.simulation.checks import Rule, check

OF_FENCES: Final = (Rule.UNIQUE, Rule.ORDER)  # what holds where exclusion is lost, too

RULES: Final = (Rule.EXCLUSION, *OF_FENCES, Rule.SUCCESSION)


class Claim(NamedTuple):
    """One turn of a holder; all times are of `CLOCK_MONOTONIC`, which the processes of a machine share."""

    start: float  # when its `acquire` had returned
    end: float  # when it had done its work, or when its lease ended, if that was earlier
    fence: int  # 0 without fencing
    asked: float  # before it called `acquire`
    mode: history.Mode = "lock"
    slot: int | None = None
    number: int = 0  # what a reader or writer of a file has read or written


def check_claims(claims: Iterable[Claim], *, rules: Collection[Rule] = RULES) -> None:
    """Fail unless fences are unique and grow with time, and no two claims were inside at once.

    Readers are together, and the holders of other slots; readers between two writers share a fence.
    """
    known = [_known(number, claim) for number, claim in enumerate(claims)]
    assert not check(history.History(nodes=0, clients=0, claims=known), rules=rules, bound=0.0)


def _known(number: int, claim: Claim) -> history.Claim:
    return history.Claim(
        client=0,
        task=0,
        names=("",),
        owner=b"%d" % number,
        fence=claim.fence or None,
        asked=claim.asked,
        since=claim.start,
        until=claim.end,
        stopped=claim.end,
        mode=claim.mode,
        slot=claim.slot,
    )
