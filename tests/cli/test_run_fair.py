"""``aioredlock-ng run --fair``: commands stand in line, and ``status NAME`` shows the line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioredlock_ng.__main__ import main
from aioredlock_ng._core.keyspace import SEATS, TICKETS, mark_key
from aioredlock_ng.sync import SyncLockManager
from tests.cli.runs import PATIENCE, Runs, open_runs, until
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask

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
    with SyncLockManager(runs.nodes.urls) as manager:

        def begun(number: int) -> bool:
            """The first one runs, each other one waits behind those before it."""
            waiters = manager.queue("printer").waiters
            return log.exists() and [each.known_to for each in waiters] == [5] * number

        started = []
        for number in range(3):
            started.append(runs.start("--fair", "printer", "--", "sh", "-c", script, str(number)))
            until(lambda: begun(number))  # noqa: B023 (called now)
        text, document = status(runs.nodes, "printer"), status(runs.nodes, "printer", "--json")
        code, out, err = runs.finish("-n", "--fair", "printer", "--", "true")
        assert (code, out) == (1, "")
        assert "lock 'printer' is held by" in err
        (here / "end").touch()
        assert [run.wait() for run in started] == [0, 0, 0]
        assert log.read_text().split() == ["0", "1", "2"]
        assert manager.queue("printer").waiters == ()
    lock, *waiting = text.splitlines()[-3:]
    assert "  fair  " in lock
    assert [line.split()[:2] for line in waiting] == [["place", "0"], ["place", "1"]]
    (shown,) = json.loads(document)["locks"]
    assert (shown["kind"], [each["place"] for each in shown["queue"]["waiters"]]) == ("fair", [0, 1])


def test_one_that_does_not_wait_leaves_a_free_lock_to_the_line(runs: Runs) -> None:
    """It says so: no holder is in its way."""
    seats = """
    local now = redis.call('TIME')
    for i = 1, 400 do
      redis.call('ZADD', KEYS[1], i, i)
      redis.call('ZADD', KEYS[2], now[1] * 1000 + 600000, i)
    end
    redis.call('PEXPIRE', KEYS[1], 600000)
    redis.call('PEXPIRE', KEYS[2], 600000)
    """
    keys = [mark_key(b"redlock:", mark, b"redlock:printer") for mark in (TICKETS, SEATS)]
    for url in runs.nodes.urls:
        ask(url, "EVAL", seats, 2, *keys)
    code, out, err = runs.finish("-n", "--fair", "printer", "--", "echo", "started")
    assert (code, out) == (1, "")
    assert "lock 'printer' is left to those that wait in line; the command was not started" in err


@pytest.mark.parametrize(
    "arguments",
    [("-s",), ("--exclusive",), ("--permits", "2"), ("--at-least", "5")],
    ids=lambda each: each[0],
)
def test_what_cannot_be_fair_is_wrong_usage(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and nothing is run; the message names what --fair does not go with."""
    assert main(["run", "--fair", *arguments, "printer", "--", "true"]) == 2
    assert "--fair is for a lock that one has at a time: it goes with none of" in capsys.readouterr().err
