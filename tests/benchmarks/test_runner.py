"""The benchmarks' runner: its questions in small, with every peer that lives in this environment."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import QUESTIONS, run
from benchmarks.bench import Settings
from benchmarks.peers import PEERS
from benchmarks.questions import (
    distance,
    growth,
    held,
    hot_name,
    open_loop,
    processes,
    single,
    sizes,
    throughput,
    uncontended,
)
from benchmarks.report import Report
from tests.servers import fastest_arm

HERE = tuple(peer for peer, spec in PEERS.items() if not spec.requirements)
LOCKS = {"ours-plain", "ours-fenced", "pottery", "gather"}
RUNNING = {*LOCKS, "redis-py", "floor"}

SMALL = Settings(
    peers=HERE,
    seconds=0,
    least=1,
    cycles=5,
    slice=0.05,
    hot=0.1,
    contenders=4,
    processes=(1, 2),
    crowd=10,
    growth=(10, 20),
    single=(1, 10),
    crowds=(1, 3),
    tasks=(10,),
    rates=(400,),
    sections=(0.001,),
    held=(20,),
    window=0.2,
    settle=0,
    trips=(0.005,),
    nodes=(3,),
)
EXPECTED = {
    uncontended.TABLE: (RUNNING | ({"floor-c"} if shutil.which("cc") else set()), "cpu_us_per_cycle"),
    throughput.TABLE: (RUNNING, "cycles_per_s"),
    open_loop.TABLE: (RUNNING, "p99_us"),
    hot_name.TABLE: ({*LOCKS, "redis-py", "asyncio.Lock"}, "wait_p50_ms"),
    held.TABLE: ({"ours-plain", "ours-fenced"}, "bytes_per_lease"),
    distance.TABLE: (RUNNING, "acquire_p50_in_round_trips"),
    growth.TABLE: ({"ours-plain", "ours-fenced", "floor"}, "cpu_to_10_tasks"),
    single.LATENCY: ({"ours-plain", "ours-fenced", "redis-py", "floor"}, "to_redis-py"),
    single.THROUGHPUT: ({"ours-plain", "ours-fenced", "redis-py", "floor"}, "to_redis-py"),
    processes.TABLE: ({"ours-plain", "ours-fenced", "ours-fair", "redis-py"}, "commands_per_handoff"),
    sizes.LATENCY: ({*LOCKS, "floor"}, "p50_us"),
    sizes.THROUGHPUT: ({*LOCKS, "floor"}, "cycles_per_s"),
}
"""Which peer is asked what, and the figure that all of them must have."""


def rows_of(settings: Settings, questions: list[str], path: Path) -> list[dict[str, object]]:
    """Ask the questions and return the lines that were written."""
    settings = replace(settings, server=fastest_arm())
    asyncio.run(run(settings, questions, "asyncio", Report(path), first=True))
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.heavy
def test_every_question_has_figures_for_every_peer(tmp_path: Path):
    """A small run answers every question, for every peer that it can be asked of, with figures above 0."""
    questions = [question for question in QUESTIONS if question not in {"faults", "core", "path"}]
    lines = rows_of(SMALL, questions, tmp_path / "run.json")
    assert lines[0]["environment"]["cpus"] > 0
    for table, (peers, key) in EXPECTED.items():
        rows = [line for line in lines if line.get("question") == table]
        assert {row["peer"] for row in rows} == peers, table
        for row in rows:
            assert row["trouble"] is None, row
            assert row[key] > 0, row
    hot = [line for line in lines if line.get("question") == hot_name.TABLE]
    assert all(row["commands"] > 0 for row in hot if row["peer"] != "asyncio.Lock")
    assert {(row["peer"], row["processes"]) for row in hot} >= {("ours-plain", 1), ("ours-plain", 2)}
    assert {line["curve"] for line in lines if "curve" in line} == {uncontended.TABLE, hot_name.TABLE}
