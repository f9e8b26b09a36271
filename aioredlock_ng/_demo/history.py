"""Who was inside a critical section when, and what follows from it.  Pure: no clock, no I/O."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One pass through the critical section.

    Moments are seconds on ``time.monotonic()``, which all processes of one machine share.
    """

    worker: str
    entered: float
    left: float
    """After the write, before the release; without a write, when the body ended."""
    valid_until: float
    """When the lease ended unless extended, as known when the section was left."""
    wrote: bool
    waited: float
    """Seconds from asking for the lock to getting it."""
    extensions: int
    lost: str = ""
    """Why the lease was lost; empty when it was not."""

    @property
    def ended(self) -> float:
        """When the section stopped mattering to others.

        A holder that wrote nothing claims the counter no longer than its lease was valid: it may have
        been asleep since.  One that wrote claims it until it had written, valid or not.
        """
        return self.left if self.wrote else min(self.left, self.valid_until)


def overlaps(sections: Iterable[Section]) -> int:
    """Count the sections that began before an earlier one had ended."""
    count, busy_until = 0, float("-inf")
    for section in sorted(sections, key=lambda s: (s.entered, s.ended)):
        count += section.entered < busy_until
        busy_until = max(busy_until, section.ended)
    return count


def hand_overs(sections: Sequence[Section]) -> int:
    """Count how often the lock went from one process to another."""
    order = sorted(sections, key=lambda s: s.entered)
    return sum(before.worker != after.worker for before, after in itertools.pairwise(order))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run came to."""

    expected: int
    """Increments that the workers say they made."""
    seen: int
    """What the counter says."""
    overlaps: int
    longest_wait: float
    """Seconds."""
    extensions: int
    lost: tuple[str, ...]
    """Whose lease was lost, once for each loss."""
    frozen: tuple[str, ...]
    """Whose lease had to be lost."""

    @property
    def holds(self) -> bool:
        """Whether the lock did what it promises: nothing lost but what had to be, and nobody overlapped."""
        counted = self.expected > 0 and self.expected == self.seen
        return counted and self.overlaps == 0 and Counter(self.lost) == Counter(self.frozen)

    def lines(self) -> list[str]:
        """Return the verdict for people."""
        if self.holds:
            headline = "The lock held: nobody wrote without it, whatever happened to nodes and processes."
        elif self.overlaps or self.expected != self.seen:
            headline = "THE LOCK DID NOT HOLD."
        else:
            headline = "Not as planned, although no write was lost: is this machine too busy for this ttl?"
        who = ", ".join(self.lost) or "nobody"
        return [
            headline,
            f"  increments:          expected {self.expected}, seen {self.seen}",
            f"  overlapping holders: {self.overlaps}",
            f"  longest wait:        {self.longest_wait:.2f} s",
            f"  extensions:          {self.extensions}",
            f"  lost leases:         {len(self.lost)} (expected {len(self.frozen)}): {who}",
        ]


def judge(sections: Sequence[Section], *, seen: int, frozen: Iterable[str]) -> Verdict:
    """Judge a run.

    Args:
        sections: everything that was inside.
        seen: the counter at the end.
        frozen: the workers that were frozen past their validity, each of which must have lost one lease.
    """
    return Verdict(
        expected=sum(section.wrote for section in sections),
        seen=seen,
        overlaps=overlaps(sections),
        longest_wait=max((section.waited for section in sections), default=0.0),
        extensions=sum(section.extensions for section in sections),
        lost=tuple(section.worker for section in sections if section.lost),
        frozen=tuple(frozen),
    )
