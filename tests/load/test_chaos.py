"""A few seconds of the long run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load import chaos
from tests.load.chaos_report import judge, markdown


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
