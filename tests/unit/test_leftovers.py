"""What a failed test leaves is gone before the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUITE = Path(__file__).with_name("leaving.py")


def test_the_next_test_finds_nothing_of_a_failed_one() -> None:
    """No manager, thread, server or process, and no shared server that the failed test has used."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", SUITE]
    done = subprocess.run(command, env=ours, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout.splitlines()[-1], done.stdout
