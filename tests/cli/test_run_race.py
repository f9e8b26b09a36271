"""``aioredlock-ng run`` by several at once: one command at a time; and what signals do to those that wait."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aioredlock_ng.testing import LocalNodes
from aioredlock_ng.testing.local_nodes import initialise
from tests.cli.runs import PATIENCE, Run, Runs, environment, open_runs
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask, until

CONTENDERS = 5


@pytest.fixture
def dead_runs(tmp_path: Path, make_nodes: Callable[..., Any]) -> Iterator[Runs]:
    """Start runs over three nodes, of which two are dead."""
    nodes: LocalNodes = make_nodes(3)
    nodes.kill(0)
    nodes.kill(1)
    with open_runs(tmp_path, nodes) as runs:
        yield runs


def test_of_five_at_once_one_runs(runs: Runs) -> None:
    """Cron on five hosts: one command runs, and four runs end with the code that was asked for."""
    script = f'echo x >>"{runs.directory}/count"; while [ -e "{runs.directory}/go" ]; do sleep 0.02; done'
    (runs.directory / "go").touch()
    started = [runs.start("-n", "-E", "7", "nightly", "--", "sh", "-c", script) for _ in range(CONTENDERS)]

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
    """Start a run that holds the lock until it is ended."""
    run = runs.start("job", "--", *runs.stamper("holder"))
    until(lambda: runs.words("holder"), "the holder's command runs")
    return run


def test_a_taken_lock(runs: Runs) -> None:
    """One line names the holder, and for how long; nothing is started; the code is 1 or that asked for.

    ``-w`` is a limit: then it is as with a taken lock.  With code 0 cron gets no mail.
    """
    holder = holding(runs)
    held = rf"aioredlock-ng run: lock 'job' is held by \S+:{holder.process.pid}, and expires in \d\.\d s "
    held += r"unless its holder extends it; the command was not started\n"
    for patience, code, says in (
        (["-n"], 1, held),
        (["-w", "0.5", "-E", "9"], 9, ".*held by.*\n"),
        (["-n", "-E", "0"], 0, ""),
    ):
        done, out, err = runs.finish(*patience, "job", "--", "echo", "started")
        assert (done, out) == (code, "")
        assert re.fullmatch(says, err)


@pytest.mark.parametrize("impatient", [["-n"], ["-w", "0.3"]], ids=" ".join)
def test_without_quorum_it_is_69(impatient: list[str], dead_runs: Runs) -> None:
    """Two of three nodes are dead: that is not a taken lock, and each node's answer is reported."""
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


# -- signals ---------------------------------------------------------------------------------------

KEY = "redlock:job"


def test_signals_reach_the_running_command(runs: Runs) -> None:
    """Each of them, once; the command decides what it does."""
    run = runs.start("job", "--", *runs.stamper("stamps"))
    until(lambda: runs.words("stamps"), "the command runs")
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM"):
        run.send(getattr(signal, name))
        until(lambda name=name: name in runs.words("stamps"), f"the command gets {name}")
    assert run.wait() == 7
    words = [word for word in runs.words("stamps") if word != "SIGCONT"]
    assert words == ["start", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM"]
    assert run.err == ""


def test_signals_reach_the_whole_group(runs: Runs) -> None:
    """Processes that the command has started hear of them, too."""
    shell = 'trap : TERM; "$@" & wait; wait; exit 3'
    run = runs.start("job", "--", "sh", "-c", shell, "sh", *runs.stamper("stamps"))
    until(lambda: runs.words("stamps"), "the command's child runs")
    run.send(signal.SIGTERM)
    assert run.wait() == 3
    assert "SIGTERM" in runs.words("stamps")
    assert "left" not in run.err


@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR2"])
def test_a_signal_ends_the_waiting(name: str, runs: Runs) -> None:
    """Exit code 128 and its number; nothing of ours is on any node, and the command never started."""
    for url in runs.nodes.urls:
        ask(url, "SET", KEY, "another")
    run = runs.start("job", "--", *runs.stamper("stamps"))
    until(lambda: "without expiry" in run.err, "it has asked for the lock")
    run.send(signal.SIGWINCH)  # says nothing about waiting
    run.send(getattr(signal, name))
    assert run.wait() == 128 + getattr(signal, name)
    assert runs.stamps("stamps") == []
    assert {ask(url, "GET", KEY) for url in runs.nodes.urls} == {b"another"}
    assert "Traceback" not in run.err


# -- the example for cron --------------------------------------------------------------------------

EXAMPLE = ROOT / "examples" / "cron_singleton.py"


@pytest.mark.parametrize("way", ["program", "crontab"])
def test_the_example_does_the_job_once(way: str, shared_nodes: Nodes) -> None:
    """Five at once: one reports, and four end without a word; so do five of the line in its docstring."""
    command, report = [sys.executable, "-W", "error", str(EXAMPLE)], r"the nightly report, by \S+:\d+\n"
    if way == "crontab":
        (words,) = re.findall(r"0 3 \* \* \*  aioredlock-ng (run .*)", EXAMPLE.read_text())
        arguments = shlex.split(words.replace("/usr/local/bin/nightly", "echo the nightly report"))
        command, report = [sys.executable, "-m", "aioredlock_ng", *arguments], r"the nightly report\n"
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen(command, env=environment(shared_nodes), **options) for _ in range(CONTENDERS)
    ]
    outputs = [process.communicate(timeout=PATIENCE) for process in processes]
    assert {(process.returncode, err) for process, (_, err) in zip(processes, outputs, strict=True)} == {
        (0, "")
    }
    (said,) = [out for out, _ in outputs if out]
    assert re.fullmatch(report, said)
