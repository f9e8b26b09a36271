"""Slots: a semaphore's permits, each of them a lock of its own under one name (R24).

A permit is Q grants of the *same* slot: two holders of one slot would share a node, which grants it to one of
them.  So at most as many hold as there are slots, whatever other slots nodes have granted to either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

MAX_PERMITS: Final = 256
"""Permits of a semaphore at most: what a script takes grows with them (R26)."""

ANY: Final = -1
"""Stands for a slot that is not known."""


def most_granted(slots: Iterable[int]) -> tuple[int, int]:
    """Return which slot most nodes granted, of several the least, and how many did; `ANY` and 0: none did."""
    counted = Counter(slots)
    if not counted:
        return ANY, 0
    most, slot = max((count, -slot) for slot, count in counted.items())
    return -slot, most


def find_slot(permits: int, chance: float, named: int | None = None) -> tuple[int, int]:
    """Return the slot that all nodes are to begin with, and at how many they are to look from there on.

    The first try of a call, for which none is `named`, looks at all of them, so that it finds the last one
    that is free.  Once a try was lost, others want permits, too: walking on, the nodes would grant each of
    them a slot of its own, and none would get a majority.  Then it is one slot: that which was named as free,
    or any.  `chance` is an even random number in [0, 1).
    """
    start = int(chance * permits)
    if named is None:
        return start, permits
    return (named if 0 <= named < permits else start), 1
