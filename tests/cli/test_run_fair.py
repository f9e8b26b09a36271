"""``aioredlock-ng run --fair``: commands stand in line, and ``status NAME`` shows the line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.runs import PATIENCE, Runs, open_runs, until
from tests.environments.interpreters import ROOT
from tests.servers import Nodes

STATUS = (sys.executable, "-m", "aioredlock_ng", "status", "--node-timeout", "0.5")


@pytest.fixture
def runs(tmp_path: Path, shared_nodes: Nodes) -> Iterator[Runs]:
    """Start runs over the shared nodes."""
    with open_runs(tmp_path, shared_nodes) as runs:
        yield runs


def status(nodes: Nodes, *arguments: str) -> str:
    """Return what the command prints."""
    environment = os.environ | {"REDLOCK_URLS": ",".join(nodes.urls), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        (*STATUS, *arguments), env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout


def test_commands_run_in_the_order_in_which_they_came(runs: Runs) -> None:
    """The line is seen while one runs; one that does not wait finds it taken, and says by which holder."""
    here, log = runs.directory, runs.directory / "log"
    script = f'echo "$0" >>"{log}"; while [ ! -e "{here}/end" ]; do sleep 0.02; done'

    def waiting() -> list[int]:
        (lock,) = json.loads(status(runs.nodes, "printer", "--json"))["locks"]
        return [each["known_to"] for each in lock["queue"]["waiters"]]

    started = []
    for number in range(3):
        started.append(runs.start("--fair", "printer", "--", "sh", "-c", script, str(number)))
        until(lambda: log.exists() and (number == 0 or waiting() == [5] * number))  # noqa: B023 (called now)
    shown = status(runs.nodes, "printer").splitlines()
    assert "  fair  " in shown[-3]
    assert ["place 0" in shown[-2], "place 1" in shown[-1]] == [True, True]
    code, out, err = runs.finish("-n", "--fair", "printer", "--", "true")
    assert (code, out) == (1, "")
    assert "lock 'printer' is held by" in err
    (here / "end").touch()
    assert [run.wait() for run in started] == [0, 0, 0]
    assert log.read_text().split() == ["0", "1", "2"]
    assert waiting() == []


@pytest.mark.parametrize(
    "arguments",
    [("-s",), ("--exclusive",), ("--permits", "2"), ("--at-least", "5")],
    ids=lambda each: each[0],
)
def test_what_cannot_be_fair_is_wrong_usage(arguments: tuple[str, ...], runs: Runs) -> None:
    """Exit code 2, and nothing is run; the message names what --fair does not go with."""
    code, out, err = runs.finish("--fair", *arguments, "printer", "--", "echo", "started")
    assert (code, out) == (2, "")
    assert "--fair" in err
    assert "goes with none of --shared, --exclusive, --permits and --at-least" in err
