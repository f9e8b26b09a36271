"""A few seconds of processes that hold permits and are killed, and that its judge finds what is wrong."""

from __future__ import annotations

import pytest

from tests.load.deaths import _judged, deaths

SECONDS = 3.0


@pytest.mark.campaign
@pytest.mark.timeout(180)
async def test_the_permits_of_the_dead_are_free_after_a_ttl() -> None:
    """Wherever the deaths strike: no slot is shared, fences grow in each, and none is lost (R24 to R26)."""
    outcome = await deaths(SECONDS, processes=3, permits=2)
    assert outcome.violations == []
    assert outcome.killed >= 3
    assert outcome.turns > 0


def test_the_judge_finds_two_in_a_slot_and_a_fence_that_does_not_grow() -> None:
    """By the turns as they were written: one that was killed has no end."""
    fine = ["began 0 2 1.0", "began 1 2 1.5", "ended 0 2 2.0", "began 0 4 2.0", "began 0 6 3.5"]
    assert _judged(fine, 2, 0, []).violations == []
    assert (_judged(fine, 2, 0, []).turns, _judged(fine, 2, 0, []).inside) == (4, 3)
    shared = _judged(["began 0 2 1.0", "began 0 4 1.5", "ended 0 2 2.0"], 2, 0, [])
    assert shared.violations == ["two in slot 0 at 1.5: until 2.0"]
    falls = _judged(["began 0 4 1.0", "ended 0 4 1.2", "began 0 2 1.5"], 2, 0, [])
    assert falls.violations == ["slot 0 had fence 2 after 4"]
    assert _judged(["began 2 2 1.0"], 2, 0, []).violations == ["slot 2 of 2 at 1.0"]
