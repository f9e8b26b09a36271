"""Whatever the line of a fair lock says, one client holds it at a time, and fences grow (R28)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from aioredlock_ng.testing._memory_fair import HEAD_START_MS, Call, Line
from tests.simulation.campaign import campaign
from tests.simulation.checks_words import Rule
from tests.simulation.replay import report

SCHEDULES: Final = range(40_000, 40_005)

ORDER_AND_TIME: Final = frozenset({Rule.TURNS, Rule.LEAK, Rule.LIVENESS, Rule.COMPLAINT})
"""What a line that says wrong things may cost."""


def _random_tickets(line: Line, sit: Callable[[Line, Call], int], call: Call, draw: random.Random) -> int:
    return sit(line, call._replace(ticket=draw.randrange(1, 1 << 52)))


def _seats_dropped(line: Line, sit: Callable[[Line, Call], int], call: Call, draw: random.Random) -> int:
    ticket = sit(line, call)
    for seat in line.order:
        if draw.random() < 0.3:
            line.leave(seat)
    return ticket


def _everyone_told(line: Line) -> int:
    return sum(line.server.publish(seat, b"1:0@%b" % line.tickets) for seat in line.order)


@pytest.mark.campaign
@pytest.mark.parametrize("sit", [_random_tickets, _seats_dropped])
def test_a_line_that_is_wrong_costs_no_exclusion(sit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do head starts of any length, and all who are told at once: votes and fences rest on none of it."""
    draw, original, strange = random.Random(sit.__name__), Line.sit, 0

    def head_start(line: Line, ahead: int) -> int:
        nonlocal strange
        strange += 1
        return draw.choice((0, 0, ahead, draw.randrange(4 * HEAD_START_MS)))

    monkeypatch.setattr(Line, "sit", lambda line, call: sit(line, original, call, draw))
    monkeypatch.setattr(Line, "head_start", head_start)
    monkeypatch.setattr(Line, "tell_first", _everyone_told)
    figures = campaign(SCHEDULES, again_every=0, fair=True)
    unsafe = [failure for failure in figures.failures if failure.rule not in ORDER_AND_TIME]
    assert not unsafe, report(unsafe[0], fair=True)
    assert strange > 100
    assert figures.counts["fair: acquire ok"] > 30
