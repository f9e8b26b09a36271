"""What a run came to, from what its workers report.  Pure: no clock, no I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(slots=True, kw_only=True)
class Section:
    """One pass through the critical section, in seconds on the clock that all processes share."""

    worker: str
    waited: float
    """From asking for the lock to acquiring it."""
    entered: float
    until: float
    """When it stopped mattering to others: after its write, its lease valid or not.  A holder that wrote
    nothing claims the counter no longer than its lease was valid: it may have been asleep since."""
    wrote: bool = False
    extensions: int = 0
    lost: bool = False
    """Whether its lease was lost."""


def overlaps(sections: Iterable[Section]) -> int:
    """Count the sections that began before an earlier one had ended."""
    count, busy_until = 0, float("-inf")
    for section in sorted(sections, key=lambda s: (s.entered, s.until)):
        count += section.entered < busy_until
        busy_until = max(busy_until, section.until)
    return count


def hand_overs(sections: Iterable[Section]) -> int:
    """Count how often the lock went from one process to another."""
    order = sorted(sections, key=lambda s: s.entered)
    return sum(before.worker != after.worker for before, after in itertools.pairwise(order))


def judge(sections: Sequence[Section], *, seen: int, frozen: str) -> tuple[bool, list[str]]:
    """Return whether the lock did what it promises, and lines that say so.

    Args:
        sections: everything that was inside.
        seen: the counter at the end.
        frozen: the worker that was frozen past its validity, and has to lose its one lease.
    """
    expected, at_once = sum(s.wrote for s in sections), overlaps(sections)
    lost = [s.worker for s in sections if s.lost]
    exclusive = 0 < expected == seen and not at_once
    holds = exclusive and lost == [frozen]
    headline = "The lock held: no process wrote without it, whatever happened to nodes and processes."
    if not holds:
        headline = "Not as planned, although no write was lost: is this machine too busy for this ttl?"
    if not exclusive:
        headline = "THE LOCK DID NOT HOLD."
    return holds, [
        headline,
        f"  increments:          expected {expected}, seen {seen}",
        f"  overlapping holders: {at_once}",
        f"  longest wait:        {max((s.waited for s in sections), default=0.0):.2f} s",
        f"  extensions:          {sum(s.extensions for s in sections)}",
        f"  lost leases:         {len(lost)} (expected 1): {', '.join(lost) or 'none'}",
    ]
