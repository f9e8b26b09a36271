"""What scripts for many single locks answer, read: each lock as if it had been asked for alone (R42)."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from aioredlock_ng._core.command import Answer, Silence
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._kinds.answers import (
    each,
    fits_extensions,
    fits_grants,
    fits_releases,
    read_batched_extend,
    read_batched_grant,
    read_batched_release,
    read_extend,
    read_grant,
    read_release,
)

ERROR = b"WRONGTYPE Operation against a key"
PUSH = hiredis.PushNotification


@pytest.mark.parametrize(
    ("reply", "locks"),
    [
        pytest.param([9, 1], 1, id="one lock"),
        pytest.param([9, 1, 0, -5, ERROR], 4, id="every answer"),
        pytest.param(9, 1, id="no vote"),
        pytest.param(9, 4, id="no vote for many"),
    ],
)
def test_answers_to_acquires_fit(reply: object, locks: int) -> None:
    """The time and an answer for each, or the time alone."""
    assert fits_grants(locks)(reply)


@pytest.mark.parametrize(
    "reply", [[9, 1], [9, 1, 1, 1], [ERROR, 1, 1], [9, None, 1], [9, [1], 1], None, ERROR]
)
def test_other_answers_are_not_of_two_acquires(reply: object) -> None:
    """Another number of answers, or of another type."""
    assert not fits_grants(2)(reply)
    assert not fits_grants(2)(PUSH([9, 1, 1]))


@pytest.mark.parametrize(
    ("reply", "locks"), [([1, 0], 2), ([-1, ERROR], 2), ([11, 10, 9], 3), (1, 1), (ERROR, 1)]
)
def test_answers_to_extensions_fit(reply: object, locks: int) -> None:
    """One for each; of a single lock it comes alone."""
    assert fits_extensions(locks)(reply)
    assert not fits_extensions(locks + 1)(reply)


@pytest.mark.parametrize("reply", [[1, None], [1, [1]], None, 1, PUSH([1, 1])])
def test_other_answers_are_not_of_two_extensions(reply: object) -> None:
    """Another number of answers, or of another type."""
    assert not fits_extensions(2)(reply)


@pytest.mark.parametrize(
    ("reply", "locks"),
    [
        (1, 1),
        (ERROR, 1),
        ([0, 0, 0], 1),
        ([0, 5, 0, 0, b"label"], 1),
        ([1, ERROR], 2),
        ([1, [0, 5, 0, 1], [1, 0, 3]], 3),
    ],
)
def test_answers_to_releases_fit(reply: object, locks: int) -> None:
    """One for each; of a single lock it comes alone, and may be a list itself."""
    assert fits_releases(locks)(reply)
    assert not fits_releases(locks + 1)(reply)


@pytest.mark.parametrize("reply", [[1, 0], [1, None], [1, [0, 0]], [1, [0, 0, 0, 2]], None, 1, PUSH([1, 1])])
def test_other_answers_are_not_of_two_releases(reply: object) -> None:
    """Another number of answers, or of another shape."""
    assert not fits_releases(2)(reply)


@pytest.mark.parametrize(
    ("batched", "alone"),
    [
        (77, [1, 77, 2_500_000]),
        (-1500, [0, 1500, 2_500_000]),
        (0, [0, -1, 2_500_000]),
        (ERROR, Silence(ERROR.decode())),
    ],
)
def test_an_acquire_is_read_as_one_alone(batched: object, alone: Any) -> None:
    """Granted with fence and time, refused with what is left, or an error."""
    assert read_batched_grant(batched, 2.5) == read_grant(alone)


def test_grants_and_refusals_of_a_batch() -> None:
    """The fence is where the counter stands, a wait is in seconds, and None where there is no expiry."""
    assert read_batched_grant(77, 2.5) == Answer(Vote.GRANTED, fence=77, time=2.5)
    assert read_batched_grant(-1500, 2.5) == Answer(Vote.REFUSED, wait=1.5)
    assert read_batched_grant(0, 2.5) == Answer(Vote.REFUSED, wait=None)
    assert read_batched_grant(ERROR, 2.5) == Answer(Vote.SILENT, ERROR.decode())


@pytest.mark.parametrize("answer", [1, 0, -1, 11, 10, 9])
def test_an_extension_is_read_as_one_alone(answer: int) -> None:
    """The numbers are the same; an error is silence."""
    assert read_batched_extend(answer) == read_extend(answer)
    assert read_batched_extend(ERROR) == Answer(Vote.SILENT, ERROR.decode())


@pytest.mark.parametrize(
    ("batched", "alone"),
    [
        (1, [1, 0, 0]),
        ([1, 0, 3], [1, 0, 3]),
        ([0, 0, 0], [0, 0, 0]),
        ([0, -1, 0, 1], [0, -1, 0, 1]),
        ([0, 5, 2, 0, b"label"], [0, 5, 2, 0, b"label"]),
        (ERROR, Silence(ERROR.decode())),
    ],
)
def test_a_release_is_read_as_one_alone(batched: object, alone: Any) -> None:
    """A number where nothing more is to be said, else what a single release says, or an error."""
    assert read_batched_release(batched) == read_release(alone)


def test_each_lock_finds_its_answer() -> None:
    """A batch of one lock has its answer without a list around it, also where that is a list."""
    assert each([1, [0, 0, 0]], 2) == [1, [0, 0, 0]]
    assert each([0, 0, 0], 1) == [[0, 0, 0]]
    assert each(1, 1) == [1]
