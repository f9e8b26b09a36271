"""Which tests a plain ``pytest`` runs, and which it leaves to CI: the tiers, by folder and file.

A test is in the tier of its file in the table below, and in `FULL` if the table does not name that. A single
function that costs too much for its file's tier carries ``@pytest.mark.heavy`` or another tier's mark itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Final, NamedTuple

QUICK: Final = "quick"
FULL: Final = "full"  # as a mark: CI runs this test with each commit, although its file is of another tier

# Files, as patterns below ``tests/``, of every tier but the full one.
TIERS: Final[Mapping[str, tuple[str, ...]]] = {
    "campaign": (
        "faults/test_fences_grow.py",
        "simulation/test_judgement.py",
    ),
    "mutation": (),
    "process": (
        "benchmarks/test_runner.py",
        "cli/test_demo.py",
        "cli/test_run*.py",
        "cli/test_watch.py",
        "dashboard/test_browser.py",
        "environments/test_pythons.py",
        "faults/test_fair.py",
        "faults/test_frozen_holder.py",
        "faults/test_leaders.py",
        "faults/test_network.py",
        "faults/test_node_clocks.py",
        "faults/test_permits.py",
        "faults/test_processes.py",
        "faults/test_read_write.py",
        "nodes/test_cluster.py",
        "plugin/test_lock_manager.py",
        "plugin/test_other_fixtures.py",
    ),
    "recipes": ("recipes/test_*.py",),
    "heavy": (
        "faults/test_empty_restart.py",
        "faults/test_eviction.py",
        "faults/test_server_states.py",
        "security/test_amounts.py",
    ),
    # Whether it works here, what a newcomer wants to know: what users call, each kind of lock and each part
    # around the library once, on real servers where users have these; and the rules of the core.
    QUICK: (
        # The library over real servers, where load breaks no lease; and its own connections.
        "behaviour/test_cancellation.py",
        "behaviour/test_endings.py",
        "behaviour/test_fresh_prefix.py",
        "behaviour/test_loops.py",
        "behaviour/test_sync.py",
        "behaviour/test_sync_blocks.py",
        "behaviour/test_sync_election.py",
        "nodes/test_connection_real.py",
        # Each kind of lock: its scripts, on real servers and in memory.
        "conformance/test_election.py",
        "conformance/test_fair.py",
        "conformance/test_fenced.py",
        "conformance/test_read_write.py",
        "conformance/test_scripts.py",
        "conformance/test_semaphore.py",
        # The core's decisions.
        "unit/core/test_clock_watch.py",
        "unit/core/test_command.py",
        "unit/core/test_cooldown.py",
        "unit/core/test_election.py",
        "unit/core/test_members.py",
        "unit/core/test_policy.py",
        "unit/core/test_quorum*.py",
        "unit/core/test_slots.py",
        "unit/core/test_validity.py",
        # What users call.
        "unit/test_decorator.py",
        "unit/test_exports.py",
        "unit/test_kinds.py",
        "unit/test_lease.py",
        "unit/test_manager.py",
        "unit/test_read_write.py",
        "unit/test_wrong_use.py",
        # The parts around the library.
        "cli/test_commands.py",
        "cli/test_usage.py",
        "contrib/aiohttp/test_locked.py",
        "contrib/fastapi/test_locked.py",
        "contrib/metrics/test_*.py",
        "contrib/redis/test_*.py",
        "dashboard/test_site.py",
        "plugin/test_bypass.py",
        "unit/test_local_nodes.py",
        # What users read.
        "docs/test_*.py",
        "examples/test_*.py",
        # What the tests rest on.
        "unit/test_tiers.py",
    ),
}

# The tiers of which CI runs a share only: it has 25 minutes. It runs each heavy test and each recipe: what it
# tests, no other does.
SHARED: Final = frozenset(TIERS) - {"heavy", "recipes", QUICK}

WHOLE: Final = f"{QUICK} or {FULL}"  # for ``-m``: all that needs no long campaign, process or wait


class Share(NamedTuple):
    """One of several equal parts of the tiers in `SHARED`; together they are all of them."""

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
    return next((tier for tier in (*TIERS, FULL) if tier in marks), None) or tier_of_file(file)


@cache
def tier_of_file(file: str) -> str:
    """Return the tier of the tests in a file that have no mark of a tier."""
    return next(
        (tier for tier, patterns in TIERS.items() if any(fnmatchcase(file, each) for each in patterns)), FULL
    )
