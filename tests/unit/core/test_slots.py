"""Slots of a semaphore: which one most nodes granted, and where to look for one (R24)."""

from __future__ import annotations

import itertools
from collections import Counter

from aioredlock_ng._core.slots import ANY, find_slot, most_granted


def test_the_slot_that_most_nodes_granted_is_found() -> None:
    """Among all answers of five nodes for three slots; of several the least."""
    for slots in itertools.product(range(3), repeat=5):
        counted = Counter(slots)
        slot, most = most_granted(slots)
        assert counted[slot] == most == max(counted.values())
        assert slot == min(each for each in counted if counted[each] == most)
    assert most_granted([]) == (ANY, 0)


def test_a_first_try_looks_at_all_slots() -> None:
    """From a random one on, each as likely as any other."""
    starts = Counter(find_slot(4, number / 1000) for number in range(1000))
    assert starts == {(start, 4): 250 for start in range(4)}


def test_a_later_try_looks_at_one_slot() -> None:
    """At that which is said to be free, or at any one; also where others know of more slots than we do."""
    assert find_slot(4, 0.9, 2) == (2, 1)
    assert {find_slot(4, number / 1000, ANY) for number in range(1000)} == {(start, 1) for start in range(4)}
    assert find_slot(4, 0.3, 4) == (1, 1)
