"""What scripts for many single locks answer, read: each lock as if it had been asked for alone (R42)."""

from __future__ import annotations

from typing import Any

import pytest

from aioredlock_ng._core.command import Answer
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._kinds.answers import (
    read_batched_grant,
    read_batched_release,
    read_grant,
    read_release,
)


@pytest.mark.parametrize(
    ("batched", "alone"),
    [
        (77, [1, 77, 2_500_000]),
        (-1500, [0, 1500, 2_500_000]),
        (0, [0, -1, 2_500_000]),
    ],
)
def test_an_acquire_is_read_as_one_alone(batched: Any, alone: Any) -> None:
    """Granted with fence and time, refused with what is left."""
    assert read_batched_grant(batched, 2.5) == read_grant(alone)


def test_grants_and_refusals_of_a_batch() -> None:
    """The fence is where the counter stands, a wait is in seconds, and None where there is no expiry."""
    assert read_batched_grant(77, 2.5) == Answer(Vote.GRANTED, fence=77, time=2.5)
    assert read_batched_grant(-1500, 2.5) == Answer(Vote.REFUSED, wait=1.5)
    assert read_batched_grant(0, 2.5) == Answer(Vote.REFUSED, wait=None)


@pytest.mark.parametrize(
    ("batched", "alone"),
    [
        (1, [1, 0, 0]),
        ([1, 0, 3], [1, 0, 3]),
        ([0, 0, 0], [0, 0, 0]),
        ([0, -1, 0, 1], [0, -1, 0, 1]),
        ([0, 5, 2, 0, b"label"], [0, 5, 2, 0, b"label"]),
    ],
)
def test_a_release_is_read_as_one_alone(batched: Any, alone: Any) -> None:
    """A number where nothing more is to be said, else what a single release says."""
    assert read_batched_release(batched) == read_release(alone)
