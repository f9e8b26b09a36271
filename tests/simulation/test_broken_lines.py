"""Whatever the line of a fair lock says, one client holds it at a time, and fences grow (R28)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.lua_edits import LuaEdit, edited_lua
from tests.simulation.campaign import campaign
from tests.simulation.checks_words import Rule
from tests.simulation.replay import report

SCHEDULES: Final = range(41_000, 41_005)

ORDER_AND_TIME: Final = frozenset({Rule.TURNS, Rule.LEAK, Rule.LIVENESS, Rule.COMPLAINT})
"""The rules that a line with wrong entries may break."""

_SEATS: Final = "parts/seats.lua"

ALWAYS: Final = (
    LuaEdit(
        _SEATS,
        "local HEAD_START,",
        "local function drawn(ms, below) return ms * 7919 % 104729 % below end\nlocal HEAD_START,",
    ),
    LuaEdit(
        _SEATS,
        "math.max(0, since + ahead * start(seats, ms) - ms)",
        "({0, 0, ahead, drawn(ms, 4 * HEAD_START)})[1 + drawn(ms, 4)]",
    ),
    LuaEdit(_SEATS, "if reached == MOST_NOTIFIED then", "if false then"),
    LuaEdit(_SEATS, "MOST_TRIED - 1", "-1"),
    LuaEdit(_SEATS, "'1:' .. place - 1 ..", "'1:0' .."),
)
"""Head starts are of any length, drawn from the time; and all that wait hear that each is the first."""

WRONG: Final = {
    "random tickets": LuaEdit(
        _SEATS,
        "redis.call('ZADD', tickets, ticket, seat)",
        "ticket = 1 + drawn(ms, 1000) * 2 ^ 42\n  redis.call('ZADD', tickets, ticket, seat)",
    ),
    "seats dropped": LuaEdit(
        _SEATS,
        "  return ticket\n",
        """  for place, other in ipairs(redis.call('ZRANGE', tickets, 0, -1)) do
    if drawn(ms + place, 10) < 3 then
      leave(tickets, seats, other)
    end
  end
  return ticket
""",
    ),
}


@pytest.mark.campaign
@pytest.mark.parametrize("wrong", WRONG)
def test_a_line_that_is_wrong_costs_no_exclusion(wrong: str) -> None:
    """Nor do head starts of any length, and telling all at once: votes and fences rest on none of it."""
    with edited_lua(*ALWAYS, WRONG[wrong]):
        figures = campaign(SCHEDULES, again_every=0, fair=True)
    unsafe = [failure for failure in figures.failures if failure.rule not in ORDER_AND_TIME]
    assert not unsafe, report(unsafe[0], fair=True)
    assert Rule.TURNS in {failure.rule for failure in figures.failures}, "the line was wrong"
    assert figures.counts["fair: acquire ok"] > 30
