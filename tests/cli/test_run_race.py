"""``aioredlock-ng run`` by several at once: one command at a time, and the others say why they do not run."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aioredlock_ng.testing import LocalNodes
from aioredlock_ng.testing._fresh import initialise
from tests.cli.runs import PATIENCE, Run, Runs, open_runs, until

CONTENDERS = 5


@pytest.fixture
def dead_runs(tmp_path: Path, make_nodes: Callable[..., Any]) -> Iterator[Runs]:
    """Start runs over three nodes, of which two are dead."""
    nodes: LocalNodes = make_nodes(3)
    nodes.kill(0)
    nodes.kill(1)
    with open_runs(tmp_path, nodes) as runs:
        yield runs


@pytest.mark.parametrize("impatient", [["-n"], ["-w", "0"]], ids=" ".join)
def test_of_five_at_once_one_runs(impatient: list[str], runs: Runs) -> None:
    """Cron on five hosts: one command runs, and four runs end with the code that was asked for."""
    command = [
        "sh",
        "-c",
        f'echo x >>"{runs.directory}/count"; while [ -e "{runs.directory}/go" ]; do sleep 0.02; done',
    ]
    (runs.directory / "go").touch()
    started = [runs.start(*impatient, "-E", "7", "nightly", "--", *command) for _ in range(CONTENDERS)]

    def over() -> list[Run]:
        return [run for run in started if run.process.poll() is not None]

    until(lambda: len(over()) == CONTENDERS - 1, "all but one have ended")
    assert {run.wait() for run in over()} == {7}
    assert {run.err.count("\n") for run in over()} == {1}
    (runs.directory / "go").unlink()
    assert sorted(run.wait() for run in started) == [0, 7, 7, 7, 7]
    assert (runs.directory / "count").read_text() == "x\n"


def test_five_that_wait_run_one_after_another(runs: Runs) -> None:
    """Each gets its turn, and no two commands are alive at once."""
    started = [runs.start("nightly", "--", *runs.stamper("stamps", 0.05)) for _ in range(CONTENDERS)]
    assert [run.wait() for run in started] == [0] * CONTENDERS
    assert {run.err for run in started} == {""}
    words = [(stamp.word, stamp.pid) for stamp in runs.stamps("stamps") if stamp.word != "beat"]
    assert [word for word, _ in words] == ["start", "stop"] * CONTENDERS
    assert [pid for _, pid in words[::2]] == [pid for _, pid in words[1::2]]
    assert len({pid for _, pid in words}) == CONTENDERS


def holding(runs: Runs) -> Run:
    """Start a run that holds the lock until it is told to end."""
    run = runs.start("job", "--", *runs.stamper("holder"))
    until(lambda: runs.words("holder"), "the holder's command runs")
    return run


def test_a_taken_lock_is_said_to_be_whose(runs: Runs) -> None:
    """One line names the holder, and for how long; nothing is started.  The code is 1 unless told."""
    holder = holding(runs)
    code, out, err = runs.finish("-n", "job", "--", "echo", "started")
    assert (code, out) == (1, "")
    assert re.fullmatch(
        rf"aioredlock-ng run: lock 'job' is held by \S+:{holder.process.pid}, and free in \d\.\d s "
        r"unless that extends it; the command was not started\n",
        err,
    )


@pytest.mark.parametrize(
    ("patience", "code", "says"), [(["-n", "-E", "0"], 0, ""), (["-w", "0.5", "-E", "9"], 9, "held by")]
)
def test_a_wait_ends_in_time(patience: list[str], code: int, says: str, runs: Runs) -> None:
    """``-w`` is a limit: then it is as with a taken lock; with code 0 cron gets no mail."""
    holding(runs)
    done, out, err = runs.finish(*patience, "job", "--", "echo", "started")
    assert (done, out, bool(err)) == (code, "", bool(says))
    assert says in err


def test_a_wait_is_rewarded(runs: Runs) -> None:
    """Within ``-w`` the lock is got as soon as its holder ends."""
    holder = holding(runs)
    waiting = runs.start("-w", str(PATIENCE), "job", "--", "echo", "started")
    holder.send(signal.SIGTERM)
    assert (holder.wait(), waiting.wait(), waiting.out) == (7, 0, "started\n")


@pytest.mark.parametrize("impatient", [["-n"], ["-w", "0.3"]], ids=" ".join)
def test_without_quorum_it_is_69(impatient: list[str], dead_runs: Runs) -> None:
    """Two of three nodes are dead: that is not a taken lock, and what each node said is told."""
    code, out, err = dead_runs.finish(*impatient, "-E", "0", "job", "--", "echo", "started")
    assert (code, out) == (69, "")
    assert "cannot connect to 127.0.0.1" in err
    assert "Traceback" not in err
    assert {line.partition(":")[0] for line in err.splitlines()} == {"aioredlock-ng run"}


async def test_without_quorum_it_waits_and_says_why(dead_runs: Runs) -> None:
    """Asked to wait for ever it does, says once what is missing, and goes on when enough nodes may vote."""
    run = dead_runs.start("job", "--", "echo", "started")
    until(lambda: "too few nodes answer; still trying" in run.err, "it complains")
    await dead_runs.nodes.restart(0)
    until(lambda: "`aioredlock-ng init` ends the wait" in run.err, "it says what it waits for")
    assert run.process.poll() is None
    initialise(dead_runs.nodes.urls)
    assert run.wait() == 0
    assert run.out == "started\n"
    assert run.err.count("still trying") == 1
