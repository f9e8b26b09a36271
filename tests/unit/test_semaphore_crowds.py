"""Many processes that want one semaphore without a pause: what a permit costs (R24)."""

from __future__ import annotations

import pytest

from tests.unit.crowds import crowd


@pytest.mark.parametrize(("processes", "tries"), [(9, 1.2), (20, 3.2)])
@pytest.mark.heavy
def test_a_permit_costs_a_few_tries(processes: int, tries: float) -> None:
    """With one more permit than processes hardly more than one; with half as many, some three."""
    figures = crowd(processes, permits=10, seconds=0.5)
    assert figures.tries_each <= tries, figures
    assert figures.rate > 1000, figures
    assert min(figures.wins) > 0, figures


@pytest.mark.campaign
def test_fifty_processes() -> None:
    """With a fifth as many permits six at most, and all have their turn."""
    figures = crowd(50, permits=10, seconds=0.25)
    assert figures.tries_each <= 6, figures
    assert figures.rate > 1000, figures
    assert min(figures.wins) > 0, figures
