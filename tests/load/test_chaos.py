"""The long run's own tests: a few seconds of it, and that its checker finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load import chaos
from tests.load.chaos_report import Checker, claim_of, judge, markdown


def claim(who: int, since: float, until: float, fence: int | None, *, name="a", kind="mutex"):
    """Return a claim that was asked for when it began."""
    return claim_of(who, [kind, since, until, since, [name], fence, None, who])


def found(*claims: object) -> list[str]:
    """Return what the checker finds in these, which ended in this order."""
    checker = Checker()
    for one in claims:
        checker.add(one)
    checker.check()
    return list(checker.violations)


def test_claims_that_overlap_are_found_minutes_apart_too() -> None:
    """Within a window and across its end, of whatever clients; readers share a name."""
    fine = [claim(i % 4, 10.0 * i, 10.0 * i + 5, i + 1) for i in range(100)]
    assert found(*fine) == []
    for late in (31, 61, 97):
        broken = [*fine[:late], claim(9, 10.0 * late - 7, 10.0 * late - 3, None), *fine[late:]]
        (violation,) = found(*broken)
        assert "two held 'a'" in violation
    assert found(claim(0, 0, 9, 1), claim(1, 5, 9, 1, name="b")) == []
    assert found(claim(0, 0, 9, 1, kind="read"), claim(1, 5, 9, 1, kind="read")) == []


def test_a_fence_that_does_not_grow_is_found_an_hour_later() -> None:
    """The greatest fence of a name is remembered for as long as the run lasts."""
    fine = [claim(i % 4, 10.0 * i, 10.0 * i + 5, i + 10) for i in range(360)]
    violations = found(*fine, claim(0, 3700.0, 3701.0, 42))
    assert len(violations) >= 1
    assert all("fence" in violation for violation in violations)


def test_a_claim_that_comes_too_late_is_no_silence() -> None:
    """A claim whose window has been checked already is reported."""
    assert (
        "too late"
        in found(claim(0, 1000.0, 1001.0, 1), claim(0, 2000.0, 2001.0, 2), claim(1, 1.0, 2.0, 3))[0]
    )


@pytest.mark.campaign
@pytest.mark.timeout(240)
async def test_seconds_of_chaos_are_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds are held, by all processes and another library, and nothing is wrong."""
    pytest.importorskip("pottery")
    monkeypatch.setattr(chaos, "GUESTS", ("pottery",))  # the other one needs an environment of its own
    record = tmp_path / "record"
    record.touch()
    await chaos.run(15.0, record)
    result = judge(record)
    assert result["ok"], markdown(result)
    assert len(result["leases"]) == 12, result["leases"]
    assert result["faults"]
