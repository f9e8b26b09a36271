"""Which tests a plain ``pytest`` leaves to CI: the tiers, by folder and file.

A test is in the quick tier unless this table or a mark of its own says otherwise. The table is for what a
folder or a file is about; a single function that costs too much carries ``@pytest.mark.heavy`` itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Final, NamedTuple

QUICK: Final = "quick"  # says that a test belongs to the quick tier although its file does not

# Files, as patterns below ``tests/``, of every tier but the quick one.
TIERS: Final[Mapping[str, tuple[str, ...]]] = {
    "campaign": (
        "faults/test_fences_grow.py",
        "simulation/test_fence_search.py",
        "simulation/test_judgement.py",
    ),
    "mutation": (),
    "process": (
        "benchmarks/test_runner.py",
        "cli/test_demo.py",
        "cli/test_run*.py",
        "cli/test_watch.py",
        "contrib/fastapi/test_server.py",
        "contrib/test_two_servers.py",
        "dashboard/test_browser.py",
        "environments/test_pythons.py",
        "faults/test_clients.py",
        "faults/test_fair.py",
        "faults/test_frozen_holder.py",
        "faults/test_leaders.py",
        "faults/test_network_*.py",
        "faults/test_node_clocks.py",
        "faults/test_permits.py",
        "faults/test_processes.py",
        "faults/test_read_write.py",
        "nodes/test_cluster.py",
        "plugin/test_lock_manager.py",
        "plugin/test_other_fixtures.py",
    ),
    "heavy": (
        "faults/test_empty_restart.py",
        "faults/test_eviction.py",
        "faults/test_server_states.py",
        "security/test_amounts.py",
        "unit/test_read_write_cancellation.py",
    ),
}


# The tiers of which CI runs a share only: it has 25 minutes. It runs each heavy test: what it tests, no other
# does.
SHARED: Final = frozenset(TIERS) - {"heavy"}


class Share(NamedTuple):
    """One of so many parts of the tiers in `SHARED`; together they are all of them."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share that ``K/N`` names, K from 1 on."""
        number, _, of = text.partition("/")
        share = cls(int(number), int(of))
        if not 1 <= share.number <= share.of:
            raise ValueError(f"a share is K/N with 1 <= K <= N, got {text!r}")
        return share

    def has(self, test: str, tier: str) -> bool:
        """Whether a test of that tier is to run."""
        return tier not in SHARED or zlib.crc32(test.encode()) % self.of == self.number - 1


def tier_of(file: str, marks: Iterable[str]) -> str:
    """Return the tier of a test in ``file``, a path below ``tests/``, that has ``marks``."""
    marks = set(marks)
    if own := next((tier for tier in TIERS if tier in marks), None):
        return own
    if QUICK in marks:
        return QUICK
    return _tier_of_file(file)


@cache
def _tier_of_file(file: str) -> str:
    return next(
        (tier for tier, patterns in TIERS.items() if any(fnmatchcase(file, each) for each in patterns)), QUICK
    )
