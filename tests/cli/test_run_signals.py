"""Signals to ``aioredlock-ng run``: they end the waiting, or reach the command; none is lost."""

from __future__ import annotations

import signal
import time

import pytest

from tests.cli.runs import Runs, until
from tests.servers import ask

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
    """What the command has started hears of them, too."""
    shell = 'trap : TERM; "$@" & wait; wait; exit 3'
    run = runs.start("job", "--", "sh", "-c", shell, "sh", *runs.stamper("stamps"))
    until(lambda: runs.words("stamps"), "the command's child runs")
    run.send(signal.SIGTERM)
    assert run.wait() == 3
    assert "SIGTERM" in runs.words("stamps")
    assert "left" not in run.err


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"])
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


@pytest.mark.parametrize("moment", [0, 0.01, 0.02, 0.04, 0.08])
def test_no_signal_is_lost_at_the_start(moment: float, runs: Runs) -> None:
    """It comes at about the moment of the win: the command does not start, or gets it; it never just runs."""
    run = runs.start("job", "--", *runs.stamper("stamps"))
    until(lambda: runs.holders(KEY), "the first node has granted the lock")
    time.sleep(moment)  # any moment will do: they are spread over the start
    run.send(signal.SIGTERM)
    assert run.wait() in (7, 128 + signal.SIGTERM)
    assert "stop" not in runs.words("stamps")
    assert runs.holders(KEY) == 0
    assert runs.processes() == {}
