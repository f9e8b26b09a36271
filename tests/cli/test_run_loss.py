"""``aioredlock-ng run`` when the lock cannot be kept: the command is gone before the lock is."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runs import CLOCK, Run, Runs, Stamp, open_runs
from tests.servers import ask, until

pytestmark = pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="finds processes through /proc")

KEY = "redlock:job"
TTL = 4.0
KILL_AFTER = TTL / 4
MARGIN = TTL / 20
SHORT_TTL = 1.0
"""Where only the end of the lock is waited for, and what happens before may take its time."""


@pytest.fixture
def runs(tmp_path: Path, make_nodes: Callable[..., Any]) -> Iterator[Runs]:
    """Start runs over three nodes that are there for this test alone."""
    with open_runs(tmp_path, make_nodes(3)) as runs:
        yield runs


def holding(runs: Runs, *command: str, ttl: float = TTL, **options: Any) -> Run:
    """Start a run, and wait until its command runs."""
    run = runs.start("--ttl", str(ttl), "job", "--", *command, process_group=0, **options)
    until(lambda: runs.words("first") or run.process.poll() is not None, "the command runs")
    assert runs.words("first"), run.err
    return run


def last(runs: Runs, name: str) -> Stamp:
    """Return the last sign of life of a command."""
    return runs.stamps(name)[-1]


def stamp(runs: Runs, name: str, word: str) -> Stamp:
    """Return the only stamp with this word."""
    (found,) = [stamp for stamp in runs.stamps(name) if stamp.word == word]
    return found


def gone(runs: Runs) -> bool:
    """Whether no process of the runs is left."""
    return not runs.processes()


def test_a_frozen_holders_command_is_gone_before_the_next(runs: Runs) -> None:
    """The run's process group is stopped past its ttl while another one waits: its command gets SIGTERM,
    and SIGKILL if need be, and is dead before the other's starts.  Woken, the run ends with 75 and says so.
    """
    first = holding(runs, *runs.stamper("first", manners="stubborn"))
    second = runs.start("job", "--", *runs.stamper("second", 0.1))
    os.killpg(first.process.pid, signal.SIGSTOP)  # as far as a person or a shell reaches
    key_ends = runs.key_ends(KEY)
    until(lambda: runs.words("second"), "the other gets the lock")
    assert last(runs, "first").at < stamp(runs, "second", "start").at
    assert last(runs, "first").at < key_ends
    assert stamp(runs, "first", "SIGTERM").at <= key_ends - KILL_AFTER
    assert last(runs, "first").word == "beat"
    assert last(runs, "first").at > stamp(runs, "first", "SIGTERM").at + KILL_AFTER / 2
    assert second.wait() == 0
    assert first.process.poll() is None
    os.killpg(first.process.pid, signal.SIGCONT)
    assert first.wait() == 75
    assert re.search(r"lock 'job' was lost; the command ended [\d.]+ s before its validity did", first.err)
    assert "outlived" not in first.err
    assert "does not answer" not in first.err


@pytest.mark.parametrize("read", [True, False])
def test_a_killed_holders_command_is_gone_in_time(read: bool, runs: Runs) -> None:
    """The run is killed: its command gets SIGTERM at once, SIGKILL before the validity ends.

    So it does where standard error is a full pipe: a message that is not read holds nothing up.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write_end, b".")
    os.set_blocking(write_end, True)
    try:
        options = {} if read else {"stderr": write_end}
        run = holding(runs, *runs.stamper("first", manners="stubborn"), **options)
        killed_at = time.clock_gettime(CLOCK)
        run.send(signal.SIGKILL)
        run.wait()
        key_ends = runs.key_ends(KEY)
        until(lambda: last(runs, "first").pid not in runs.processes(), "the command has ended")
        assert killed_at <= stamp(runs, "first", "SIGTERM").at < key_ends - KILL_AFTER - MARGIN
        assert last(runs, "first").at < key_ends - MARGIN / 2
        said = "aioredlock-ng run: the process that held the lock is gone, so the command was ended\n"
        until(lambda: run.err == (said if read else ""), "it is said")
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_killed_guards_command_is_gone_at_once(runs: Runs) -> None:
    """The guard is killed: the run kills the command's whole group, says so, and releases the lock."""
    shell = '"$@" & child=$!; wait $child'
    run = holding(runs, "sh", "-c", shell, "sh", *runs.stamper("first", manners="stubborn"))
    os.kill(runs.guard(), signal.SIGKILL)
    assert run.wait() == 128 + signal.SIGKILL
    assert gone(runs)
    assert run.err == "aioredlock-ng run: the guard process was killed, so the command was killed, too\n"
    assert runs.holders(KEY) == 0


def test_both_killed_the_command_dies_with_them(runs: Runs) -> None:
    """Guard and run are killed together, as by one careless command: the kernel kills the command (Linux)."""
    run = holding(runs, *runs.stamper("first", manners="stubborn"))
    guard = runs.guard()
    run.send(signal.SIGSTOP)  # so that it is not this one that kills the command
    os.kill(guard, signal.SIGKILL)
    until(lambda: set(runs.processes()) == {run.process.pid}, "the command is gone")
    run.send(signal.SIGKILL)


@pytest.mark.parametrize(("manners", "harm"), [("meek", "kill"), ("stubborn", "pause")])
def test_a_lost_majority_ends_the_command(harm: str, manners: str, runs: Runs) -> None:
    """Two of three nodes die or freeze: SIGTERM, SIGKILL, all before the validity ends; exit code 75."""
    run = holding(runs, *runs.stamper("first", manners=manners))
    getattr(runs.nodes, harm)(0)
    getattr(runs.nodes, harm)(1)
    until(lambda: "SIGTERM" in runs.words("first"), "the command is asked to end")
    assert run.wait() == 75
    assert gone(runs)
    assert re.search(r"lock 'job' was lost; the command ended [\d.]+ s before its validity did", run.err)
    assert re.search("(before a|no) majority .*extended it", run.err)
    assert "outlived" not in run.err
    if manners == "stubborn":
        lived = last(runs, "first").at - stamp(runs, "first", "SIGTERM").at
        assert KILL_AFTER / 2 < lived < 2 * KILL_AFTER
    for i in range(3):
        runs.nodes.resume(i)
    assert ask(runs.nodes.urls[2], "EXISTS", KEY) == 0


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_refused_lock_ends_the_command(by_itself: bool, runs: Runs) -> None:
    """The keys were deleted: at the next extension the command is ended, and the code is 75.

    So it is of a command that ended by itself before the guard heard of it: it ran unprotected.
    """
    run = holding(runs, *runs.stamper("first"), ttl=2 * TTL if by_itself else TTL)
    guard = runs.guard()
    if by_itself:
        os.kill(guard, signal.SIGSTOP)
    for url in runs.nodes.urls:
        ask(url, "DEL", KEY)
    if by_itself:
        until(lambda: "does not hold it any more" in run.err, "the loss is noticed")
        os.kill(runs.stamps("first")[0].pid, signal.SIGTERM)
        until(lambda: runs.stamps("first")[0].pid not in runs.processes(), "the command has ended")
        os.kill(guard, signal.SIGCONT)
    assert run.wait() == 75
    assert runs.words("first")[:2] == ["start", "SIGTERM"]
    assert "a majority of the nodes does not hold it any more" in run.err
    assert "lock 'job' was gone while the command ran: another holder may have run meanwhile" in run.err
    assert "before its validity" not in run.err


def test_a_guard_that_stands_still_is_replaced(runs: Runs) -> None:
    """The guard was stopped, and then the lock is lost: the run itself kills the command in time."""
    run = holding(runs, *runs.stamper("first", manners="stubborn"), ttl=SHORT_TTL)
    os.kill(runs.guard(), signal.SIGSTOP)
    key_ends = runs.key_ends(KEY)
    for url in runs.nodes.urls:
        ask(url, "DEL", KEY)
    assert run.wait() == 75
    assert gone(runs)
    assert "the guard process does not answer" in run.err
    assert last(runs, "first").at < key_ends + SHORT_TTL  # extended at most once after the look at the keys


@pytest.mark.parametrize("seconds", [60, SHORT_TTL + 0.6], ids=["killed", "by itself"])
def test_a_command_that_outlived_the_lock_is_reported(seconds: float, runs: Runs) -> None:
    """Run and guard were both stopped, which nothing can survive in time: it says by how much; however the
    command ended then, the lock was lost before.
    """
    run = holding(runs, *runs.stamper("first", seconds), ttl=SHORT_TTL)
    guard = runs.guard()
    os.kill(guard, signal.SIGSTOP)
    run.send(signal.SIGSTOP)
    until(lambda: runs.holders(KEY) == 0, "the lock has run out")
    beats = len(runs.stamps("first"))
    until(lambda: len(runs.stamps("first")) > beats, "the command outlives it")
    if seconds < 60:
        until(lambda: "stop" in runs.words("first"), "it ends by itself")
    os.kill(guard, signal.SIGCONT)
    run.send(signal.SIGCONT)
    assert run.wait() == 75
    assert gone(runs)
    assert "after the validity of lock 'job' had ended: " in run.err
    assert "another holder may have run meanwhile" in run.err


def test_a_command_that_ended_before_the_loss_keeps_its_code(runs: Runs) -> None:
    """The run is stopped, its command ends in time, and the lock runs out later: nothing was unprotected."""
    run = holding(runs, *runs.stamper("first", 0.3))
    run.send(signal.SIGSTOP)
    until(lambda: runs.holders(KEY) == 0, "the lock has run out")
    run.send(signal.SIGCONT)
    assert run.wait() == 0
    assert runs.words("first") == ["start", "stop"]


def test_a_stopped_command_is_woken_to_end(runs: Runs) -> None:
    """It gets its chance to end well although it had been stopped."""
    run = holding(runs, *runs.stamper("first"))
    os.kill(runs.stamps("first")[0].pid, signal.SIGSTOP)
    run.send(signal.SIGKILL)
    until(lambda: gone(runs), "command and guard have ended")
    assert "SIGTERM" in runs.words("first")
