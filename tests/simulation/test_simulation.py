"""The shipping code under faults: some schedules of several processes over masters in memory.

The command line is for the great campaign: ``python -m tests.simulation --seeds 20000``.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Any, Final

import pytest

from aioredlock_ng._round import outbox
from tests.simulation.__main__ import main
from tests.simulation.campaign import campaign, judged, silence
from tests.simulation.checks import check
from tests.simulation.checks_words import Rule
from tests.simulation.plan import KINDS, UNTIMED_EVERY, draw
from tests.simulation.replay import report
from tests.simulation.world import run

BATCHES: Final = 6
BATCH: Final = 6
"""Schedules that one test runs."""

AGAIN_EVERY: Final = 3
"""One schedule in `AGAIN_EVERY` is run twice."""

SOMETIMES: Final = (
    "won at the first try", "won after refusals", "handed off", "refused: taken", "refused: no quorum",
    "acquire unknown", "granted while another owner has it elsewhere", "granted, not won, and released",
    "extended", "extend unknown", "topped_up", "certified", "raised", "uncertified", "quarantined",
    "lost: expired", "lost: refused", "release unknown", "stale write refused", "fair: acquire ok",
    "fair: try fail", "permit: acquire ok", "permit: try fail", "permits together", "a stray slot released",
    "readers together", "read: try fail", "write: acquire ok", "write: downgrade ok",
    "write: downgrade unknown", "unchanged since a read lease", "changed", "clock step seen", "node suspect",
    "node down",
)  # fmt: skip
"""Events that must have happened in a campaign, or it would not have looked into every corner."""

RARE: Final = (
    10_003, 10_006, 10_016, 10_020, 10_021, 10_029, 10_033, 10_035, 10_039, 10_040,
    10_046, 10_047, 10_056, 10_062, 10_074, 10_112, 10_185, 10_348, 20_008, 20_272,
)  # fmt: skip
"""Seeds in which all of that happened, tried first: others are searched for what these do not show any more.
"""

MORE: Final = range(20_000, 20_400)
"""Seeds among which that is searched."""

IN_LINE: Final = range(10_000, 10_003)
"""Seeds in which the same happens with fair locks."""

IN_A_CROWD: Final = (
    "handed off", "permits together",
    "readers together", "write: downgrade ok", "acquire unknown", "topped_up", "lost: expired",
)  # fmt: skip
"""Events that must have happened in a campaign of tasks that ask in step (R42)."""

CROWDS: Final = range(20_029, 20_041)
"""Seeds in which all of that happens."""

BAD: Final[dict[str, tuple[dict[str, Any], Rule]]] = {
    "nodes restart empty, and there is no quarantine": ({"quarantine": 0.0}, Rule.EXCLUSION),
    "holders go on when their lease is lost": ({"stubborn": True}, Rule.LOST_UPDATE),
}
"""Settings that break an assumption, and the rule that they break."""

SEARCHED: Final = range(150, 550)
"""Seeds among which that is found."""


@functools.cache
def first_bad(name: str) -> int:
    """Return the first seed in which a bad setting shows, over enough nodes for a quarantine."""
    options, rule = BAD[name]
    with silence():
        for seed in SEARCHED:
            plan = draw(seed, **options)
            if plan.timed and plan.nodes >= 3 and any(found.rule is rule for found in judged(run(plan))):
                return seed
    raise AssertionError(f"{name}: nothing is found in {len(SEARCHED)} seeds")


@pytest.mark.parametrize(
    "batch", [0, *(pytest.param(batch, marks=pytest.mark.campaign) for batch in range(1, BATCHES))]
)
def test_no_schedule_breaks_a_rule(batch: int) -> None:
    """Whatever goes wrong: one holder at a time, fences in order, nothing left behind, and life afterwards.

    A schedule goes exactly the same way the second time.
    """
    figures = campaign(range(batch * BATCH, (batch + 1) * BATCH), again_every=AGAIN_EVERY)
    assert not figures.failed, report(figures.failures[0])
    assert (figures.runs, figures.repeated) == (BATCH, BATCH // AGAIN_EVERY)
    assert figures.acquisitions > 20 * BATCH


def test_no_schedule_breaks_a_rule_where_rounds_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most schedules are too busy for that; here a round waits for no calm before it leaves (R42)."""
    monkeypatch.setattr(outbox, "CALM", 0)
    figures = campaign(range(BATCH), again_every=AGAIN_EVERY)
    assert not figures.failed, report(figures.failures[0])


@pytest.mark.campaign
def test_no_schedule_of_a_crowd_breaks_a_rule() -> None:
    """Nor do processes of many tasks that ask in one turn of the loop, often for one name (R42, R43)."""
    figures = campaign(CROWDS, again_every=2 * AGAIN_EVERY, crowded=True)
    assert not figures.failed, report(figures.failures[0], crowded=True)
    assert figures.repeated == len(CROWDS) // (2 * AGAIN_EVERY)
    assert [event for event in IN_A_CROWD if not figures.counts[event]] == []


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_campaign_gets_into_every_corner() -> None:
    """Whatever the rules provide for happens in it, and every kind of fault is drawn."""
    counts = campaign(RARE, again_every=0, fair=False).counts + campaign(IN_LINE, fair=True).counts
    more = iter(MORE)
    while missing := [event for event in SOMETIMES if not counts[event]]:
        seed = next(more, None)
        assert seed is not None, missing
        counts += campaign([seed], again_every=0, fair=False).counts
    kinds = {what for what in counts if what.startswith("fault ")}
    assert len(kinds) == len(KINDS) - 1, "both restarts are one class"


@pytest.mark.campaign
@pytest.mark.parametrize("name", BAD)
def test_a_broken_assumption_shows(name: str) -> None:
    """The harm that the documentation warns of does happen: the simulator would have found it."""
    seed = first_bad(name)
    _, rule = BAD[name]
    assert not any(found.rule is rule for found in judged(run(draw(seed)))), "without it, all is well"


@pytest.mark.campaign
def test_fences_protect_from_a_stubborn_holder() -> None:
    """A holder that goes on without the lock is refused where fences are compared, and no other holder is."""
    with silence():
        runs = [run(draw(seed, stubborn=True)) for seed in range(20)]
    assert sum(result.counts["stale write refused"] for result in runs) > 0
    assert not any(found.rule is Rule.RESOURCE for result in runs for found in judged(result))


@pytest.mark.campaign
def test_clocks_that_jump_cost_exclusion_but_not_the_order_of_fences() -> None:
    """Nodes whose clocks jump end locks before their time (A1): two hold one, and their fences differ."""
    with silence():
        for seed in range(240, 640, UNTIMED_EVERY):
            result = run(draw(seed))
            if check(result.history, rules={Rule.EXCLUSION}, bound=0.0):
                assert not judged(result)
                return
    raise AssertionError("exclusion is never lost: then it would be safe to promise it")


@pytest.mark.campaign
def test_a_campaign_is_one_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells its figures; when a rule is broken it shows the smallest such run, and fails."""
    monkeypatch.setattr(sys, "argv", ["simulation", "--seeds", "4", "--again-every", "2", "--jobs", "1"])
    main()
    output = capsys.readouterr().out
    assert re.search(r"^ +4 schedules; ", output, re.MULTILINE)
    assert re.search(r"^ +2 of them run a second time", output, re.MULTILINE)
    assert "0 schedules with violations" in output

    monkeypatch.setattr(sys, "argv", [*sys.argv, "--stubborn"])
    with pytest.raises(SystemExit):
        main()
    output = capsys.readouterr().out
    assert re.search(r"^again: python -m tests.simulation --replay \d+ --stubborn", output, re.MULTILINE)
    assert f"{Rule.LOST_UPDATE}: the counter" in output
    assert "\nfound as: " in output
