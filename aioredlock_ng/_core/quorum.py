"""Votes, the majority, and the verdict of one round (rules R1 and R4)."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Vote(Enum):
    """The vote of one node in one round."""

    GRANTED = "granted"
    REFUSED = "refused"
    SILENT = "silent"
    """No answer, an error, no connection: never counted as either of the other two (R1)."""


GRANT: Final = Vote.GRANTED
"""A name for it, since looking up a member of an enumeration takes longer."""


class Verdict(Enum):
    """The result of a round so far."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


PENDING: Final = Verdict.PENDING
WON: Final = Verdict.WON
LOST: Final = Verdict.LOST
"""Names for them, since looking up a member of an enumeration takes longer."""


class Extension(Enum):
    """The result of an extension round (R8): three ends, not two."""

    PENDING = "pending"
    EXTENDED = "extended"
    LOST = "lost"
    UNKNOWN = "unknown"


def majority(size: int) -> int:
    """Return Q, the least number of nodes of which any two sets overlap: ``size // 2 + 1``.

    `size` is the number of *configured* nodes, never of those that happen to answer (R1).
    """
    if size < 1:
        raise ValueError(f"a quorum needs at least one node, got {size!r}")
    return size // 2 + 1


class Tally:
    """The votes of one round over `size` nodes; the caller of `cast` counts each node once."""

    # Of the class, as long as they are what nearly every tally keeps: there are two in every cycle.
    granted = 0
    refused = 0
    silent = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.quorum = majority(size)
        self.pending = size
        """The number of nodes that have still to vote."""

    def cast(self, vote: Vote) -> Verdict:
        """Count the vote of a node that has not voted yet, and return the verdict so far."""
        assert self.pending > 0, "more votes than nodes"
        self.pending -= 1
        if vote is GRANT:
            self.granted += 1
        elif vote is Vote.REFUSED:
            self.refused += 1
        else:
            self.silent += 1
        return self.verdict

    @property
    def verdict(self) -> Verdict:
        """WON with the Q-th grant, LOST once Q grants are out of reach, else PENDING (R4)."""
        if self.granted >= self.quorum:
            return WON
        return LOST if self.granted + self.pending < self.quorum else PENDING

    @property
    def answered(self) -> int:
        """The number of nodes that gave an answer that counts."""
        return self.granted + self.refused

    @property
    def taken(self) -> bool | None:
        """Tell why a LOST round was lost: True if it is held by another client, False if nodes fell silent.

        It counts as held when at least Q nodes answered and still no majority granted.
        None while that depends on nodes that have not voted.
        """
        if self.answered >= self.quorum:
            return True
        if self.answered + self.pending < self.quorum:
            return False
        return None


def extension_verdict(tally: Tally) -> Extension:
    """Read a tally as an extension (R8), as early as it is certain.

    Q grants extend; Q refusals lose at once; once neither can be reached any more it is UNKNOWN.
    """
    if tally.granted >= tally.quorum:
        return Extension.EXTENDED
    if tally.refused >= tally.quorum:
        return Extension.LOST
    if max(tally.granted, tally.refused) + tally.pending < tally.quorum:
        return Extension.UNKNOWN
    return Extension.PENDING
