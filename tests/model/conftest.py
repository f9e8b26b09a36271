"""The fixture of tests that run TLC."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.tlc import missing
from tests.servers import required


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder for TLC; skips where it cannot run, and fails if ``REDLOCK_REQUIRE`` names ``tlc``."""
    if why := missing():
        give_up = pytest.fail if "tlc" in required() else pytest.skip
        give_up(why)
    return tmp_path
