"""The clock watch: honest clocks never alarm it, steps above the limit do, and it blames the right clock."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.clock_watch import (
    NOTHING,
    PATIENCE,
    PRECISION,
    ClockWatch,
    Conclusion,
    Step,
)
from aioredlock_ng._core.validity import CLOCK_DRIFT_FACTOR

UNIX = 1_700_000_000.0
"""Node time minus own time, before anything steps."""

LIMIT = 0.1
SLACK = CLOCK_DRIFT_FACTOR * 1.0
TRIP = 0.002
"""Seconds from asking to hearing; the node reads its clock half-way."""


def answer(watch: ClockWatch, node: int, now: float, stepped: float = 0.0, trip: float = TRIP) -> Conclusion:
    """Take a sample of a node whose clock has stepped by `stepped` seconds, heard at `now`."""
    return watch.sample(node, now - trip, now, UNIX + now - trip / 2 + stepped)


def watching(size: int, sampled: Iterable[int] | None = None) -> ClockWatch:
    """Return a watch over `size` nodes that knows all of them, or those `sampled`, since the moment 0."""
    watch = ClockWatch(size, LIMIT)
    for node in range(size) if sampled is None else sampled:
        assert answer(watch, node, 0.0) == NOTHING
    return watch


def steps(*expected: tuple[int, float], ahead: float = 0.0) -> tuple[Step, ...]:
    """Return the steps, to the hundredth, of clocks that had been ahead by so much until then."""
    before = pytest.approx(UNIX + ahead, abs=0.02)
    return tuple(
        Step(node=node, seconds=pytest.approx(seconds, abs=0.02), before=before) for node, seconds in expected
    )


# -- one sample, two samples -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        # The node read its clock between the question and the answer, cut to the millisecond.
        ([(10.0, 10.5, 1000.0)], (989.5, 990.0 + PRECISION)),
        # One sample bounds the offset from below and another from above; the drift counts in between.
        ([(10.0, 10.5, 1010.4), (10.5, 11.0, 1010.6)], (999.9 - SLACK, 1000.1 + PRECISION)),
        # A slow answer does not blur what is known: the interval has grown by the drift only.
        (
            [(10.0, 10.1, 1010.05), (10.1, 11.1, 1010.6)],
            (999.95 - SLACK * 1.1, 1000.05 + PRECISION + SLACK * 1.1),
        ),
    ],
)
def test_what_samples_tell_of_an_offset(
    samples: list[tuple[float, float, float]], expected: tuple[float, float]
) -> None:
    """An interval as wide as the round trip, and the intersection of several."""
    watch = ClockWatch(3, LIMIT)
    assert watch.offset(0) is None
    for sample in samples:
        assert watch.sample(0, *sample) == NOTHING
    assert watch.offset(0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("stepped", "suspected", "reported"),
    [(0.0, False, 0), (0.09, False, 0), (0.12, True, 1), (3600.0, True, 1), (-0.09, False, 0),
     (-0.12, False, 1), (-3600.0, False, 1)],
)  # fmt: skip
def test_a_step_ahead_above_the_limit_is_suspected(stepped: float, suspected: bool, reported: int) -> None:
    """A node is distrusted at once for a step ahead of more than the limit, and for nothing else; what the
    drift pays for is not worth a word in either direction.
    """
    watch = watching(3)
    assert watch.believes(0, 0.1, UNIX + 0.1 - TRIP / 2 + stepped) is not suspected
    assert answer(watch, 0, 0.1, stepped) == NOTHING
    assert [watch.trusted(node) for node in (0, 1)] == [not suspected, True]
    answer(watch, 1, 0.2)
    conclusion = answer(watch, 2, 0.2)
    assert len(conclusion.steps + conclusion.back) == reported


@pytest.mark.parametrize(
    ("answers", "trusted"),
    [
        # Two steps within the limit are one above it, unless the drift has paid for the first meanwhile.
        ([(0.1, 0.08), (0.5, 0.08), (0.6, 0.16)], False),
        ([(0.1, 0.08), (20.0, 0.08), (20.1, 0.16)], True),
        # A gap back starts the interval again at once, so it hides nothing.
        ([(0.1, -0.08), (0.2, 0.05)], False),
    ],
)
def test_small_steps_add_up(answers: list[tuple[float, float]], trusted: bool) -> None:
    """Only the last of them makes the node a suspect."""
    watch = watching(3)
    for now, stepped in answers:
        assert watch.trusted(0)
        assert answer(watch, 0, now, stepped) == NOTHING
    assert watch.trusted(0) is trusted


# -- honest clocks ---------------------------------------------------------------------------------

trips = st.floats(0, 0.5)
histories = st.lists(
    st.tuples(st.one_of(st.floats(0, 0.1), st.floats(0, 5), st.floats(0, 36_000)), trips, trips),
    min_size=2,
    max_size=30,
)
clocks = st.tuples(
    st.floats(-1e5, 2e9), st.floats(-0.005, 0.005), st.floats(-0.00499, 0.00499), st.floats(0, 1e5)
)


def node_time(clock: tuple[float, float, float, float], now: float) -> float:
    """Read a clock that runs at most one percent wrong, and changes its rate once; cut to the millisecond."""
    offset, rate, bend, turn = clock
    return math.floor((now + offset + rate * now + bend * abs(now - turn)) * 1000) / 1000


def samples(
    clock: tuple[float, float, float, float], history: list[tuple[float, float, float]]
) -> list[tuple[float, float, float]]:
    """Return asked, heard and node time, in the order of hearing; answers may overtake one another."""
    moments, now = [], 5.0
    for pause, there, back in history:
        now += pause
        moments.append((now - there, now + back, node_time(clock, now)))
    return sorted(moments, key=lambda moment: moment[1])


@given(st.lists(st.tuples(clocks, histories), min_size=1, max_size=3), st.floats(0, 100))
def test_honest_clocks_never_alarm(
    nodes: list[tuple[tuple[float, float, float, float], list[tuple[float, float, float]]]], late: float
) -> None:
    """Whatever the rates up to one percent, the round trips, the pauses, and the order of the answers."""
    watch = ClockWatch(5, limit=0.002)
    told = sorted(
        (heard, node, asked, seen)
        for node, (clock, history) in enumerate(nodes)
        for asked, heard, seen in samples(clock, history)
    )
    for heard, node, asked, seen in told:
        assert watch.believes(node, heard, seen)
        assert watch.believes(node, heard + late, seen)
        assert watch.sample(node, asked, heard, seen) == NOTHING
        assert watch.trusted(node)


# -- whose clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stepped", [5.0, -5.0])
def test_one_of_five_is_to_blame_once_the_others_were_asked(stepped: float) -> None:
    """Four nodes, asked since, saw nothing: the fifth has stepped."""
    watch = watching(5)
    assert answer(watch, 2, 1.0, stepped) == NOTHING
    for node in (0, 1, 3):
        assert answer(watch, node, 1.1) == NOTHING
        assert watch.trusted(2) is (stepped < 0)
    conclusion = answer(watch, 4, 1.2)
    expected = steps((2, stepped))
    assert conclusion == (Conclusion(steps=expected) if stepped > 0 else Conclusion(back=expected))
    assert abs((conclusion.steps + conclusion.back)[0].seconds) <= 5.0
    assert watch.trusted(2)
    assert answer(watch, 2, 1.3, stepped) == NOTHING


@pytest.mark.parametrize("stepped", [5.0, -5.0])
@pytest.mark.parametrize(("size", "needed"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)])
def test_half_of_the_nodes_alike_is_our_own_step(size: int, needed: int, stepped: float) -> None:
    """With half of the configured nodes we blame ourselves and forget everything; one fewer is not enough."""
    watch = watching(size)
    for node in range(needed - 1):
        assert answer(watch, node, 1.0, stepped) == NOTHING
    conclusion = answer(watch, needed - 1, 1.0, stepped)
    assert conclusion == Conclusion(own=pytest.approx(-stepped, abs=0.02))
    assert all(watch.trusted(node) for node in range(size))
    assert [watch.offset(node) for node in range(size)] == [None] * size
    assert watch.median_ahead is None
    for node in range(size):
        assert answer(watch, node, 1.1, stepped) == NOTHING


@pytest.mark.parametrize(
    ("size", "sampled", "story"),
    [
        # Two equal steps of five nodes are two nodes' steps, though only three have samples.
        (5, [0, 1, 2], [(0, 1.0, 5.0, None), (1, 1.1, 5.0, None), (2, 1.2, 0.0, (0, 5.0)),
                        (0, 1.3, 5.0, (1, 5.0))]),
        # A node without samples is not waited for: of five, two were never heard.
        (5, [0, 1, 2], [(0, 1.0, 5.0, None), (1, 1.1, 0.0, None), (2, 1.1, 0.0, (0, 5.0))]),
        # A gap that is not paid yet does not keep its node's answers from acquitting it.
        (3, None, [(1, 0.5, 0.05, None), (0, 1.0, 5.0, None), (2, 1.1, 0.0, None), (1, 1.1, 0.05, (0, 5.0))]),
        # A mute node holds the judgement up no longer than patience: the suspect's next answer settles it.
        (5, None, [(0, 1.0, 5.0, None), (1, 1.1, 0.0, None), (2, 1.1, 0.0, None), (3, 1.1, 0.0, None),
                   (0, 0.99 + PATIENCE, 5.0, None), (0, 1.0 + PATIENCE, 5.0, (0, 5.0))]),
        # A node that keeps stepping is judged all the same: 20 round trips, 20 drifts.
        (5, None, [*((0, 1.0 + tenths / 10, 5.0 * (1 + tenths), None) for tenths in range(20)),
                   (0, 3.0, 100.0, (0, 99.9))]),
    ],
)  # fmt: skip
def test_when_a_node_is_judged(
    size: int, sampled: list[int] | None, story: list[tuple[int, float, float, tuple[int, float] | None]]
) -> None:
    """Answers, each with its node, its moment, what that clock has stepped by, and the step it settles."""
    watch = watching(size, sampled)
    for node, now, stepped, settled in story:
        expected = NOTHING if settled is None else Conclusion(steps=steps(settled))
        assert answer(watch, node, now, stepped) == expected, (node, now)
        assert settled is None or watch.trusted(settled[0])


def test_an_answer_from_before_the_pause_acquits_no_node() -> None:
    """Questions asked before the suspicion say nothing, as their answers may have lain in a buffer."""
    watch = watching(3)
    asked = 1.0
    watch.sample(0, asked, 1.004, UNIX + 1.003 + 60)
    for node in (1, 2):
        assert watch.sample(node, asked, 1.005, UNIX + 1.001) == NOTHING
    assert not watch.trusted(0)
    assert answer(watch, 1, 1.1, 60.0) == Conclusion(own=pytest.approx(-60.0, abs=0.02))


def test_a_question_from_before_our_own_step_is_no_sample_after_it() -> None:
    """Its answer is from the other side: kept, it would make its node look stepped later."""
    watch = watching(3)
    answer(watch, 0, 1.0, 60.0)
    assert answer(watch, 1, 1.0, 60.0).own
    assert watch.sample(2, 0.999, 1.001, UNIX + 1.0) == NOTHING
    assert watch.offset(2) is None
    assert answer(watch, 2, 1.1, 60.0) == NOTHING
    assert watch.trusted(2)
