"""``aioredlock-ng run --shared``, ``--exclusive``, ``--permits`` and ``--fair``: what runs beside what."""

from __future__ import annotations

import re

from aioredlock_ng.sync import SyncLockManager
from tests.cli.runs import Run, Runs
from tests.servers import until

TELL = ("sh", "-c", 'echo "${REDLOCK_MODE-none}" "${REDLOCK_SLOT-none}" "${REDLOCK_FENCE-none}"')


def lasting(runs: Runs, *arguments: str) -> Run:
    """Start a command that shows its environment, and runs until `end`."""
    script = f'{TELL[2]}; while [ ! -e "{runs.directory}/end" ]; do sleep 0.02; done'
    around = {"REDLOCK_MODE": "another's", "REDLOCK_SLOT": "7"}  # of a run around this one
    return runs.start(*arguments, "job", "--", "sh", "-c", script, env=around)


def running(*started: Run) -> None:
    """Wait until all these commands run."""
    until(lambda: all(run.out for run in started), "all run")


def refused(runs: Runs, why: str, *arguments: str) -> None:
    """Expect that one that does not wait says why."""
    code, out, err = runs.finish("-n", "-E", "7", *arguments, "job", "--", *TELL)
    assert (code, out) == (7, "")
    assert re.fullmatch(f"aioredlock-ng run: lock 'job' is {why}; the command was not started\n", err), err


def end(runs: Runs, *started: Run) -> list[list[str]]:
    """End the commands, wait for it, and return what they have shown."""
    (runs.directory / "end").touch()
    assert [(run.wait(), run.err) for run in started] == [(0, "")] * len(started)
    return [run.out.split() for run in started]


HELD = r"and expires in \d+\.\d s unless its holder extends it"


def test_commands_that_share_run_at_the_same_time(runs: Runs) -> None:
    """With one fence for all of them; one that runs alone waits until the last has ended."""
    shared = [lasting(runs, "--shared") for _ in range(3)]
    running(*shared)
    for alone in ((), ("--exclusive",)):
        refused(runs, f"held by 3 readers, {HELD}", *alone)
    waits = runs.start("job", "--", *TELL)
    *shown, (mode, _, fence) = end(runs, *shared, waits)
    (shared_fence,) = {one[2] for one in shown}
    assert (mode, int(fence) > int(shared_fence)) == ("none", True)
    until(lambda: not runs.holders("redlock:job"), "nothing is left")


def test_commands_up_to_the_permits_run_at_the_same_time(runs: Runs) -> None:
    """One more finds none free, and runs when one has ended; each has a slot of its own."""
    both = [lasting(runs, "--permits", "2") for _ in range(2)]
    running(*both)
    refused(runs, f"held by the holders of 2 permits, {HELD}", "--permits", "2")
    code, out, err = runs.finish("--permits", "3", "job", "--", *TELL)
    assert (code, out.split()[1]) == (0, "2"), err
    shown = end(runs, *both, runs.start("--permits", "2", "job", "--", *TELL))
    slots = [slot for _, slot, _ in shown]
    assert {mode for mode, _, _ in shown} == {"none"}
    assert (sorted(slots[:2]), slots[2] in slots[:2]) == (["0", "1"], True)


def test_fair_commands_run_in_the_order_in_which_they_came(runs: Runs) -> None:
    """One that does not wait finds it taken, and says by which holder."""
    with SyncLockManager(runs.nodes.urls) as manager:
        started: list[Run] = []

        def all_in_line() -> bool:
            """The first one runs, each other one waits behind those before it."""
            waiters = manager.queue("job").waiters
            return bool(started[0].out) and [each.known_to for each in waiters] == [5] * (len(started) - 1)

        for _ in range(3):
            started.append(lasting(runs, "--fair"))
            until(all_in_line, "all stand in line")
        refused(runs, rf"held by \S+, {HELD}", "--fair")
        fences = [int(shown[2]) for shown in end(runs, *started)]
        assert fences == sorted(set(fences))
        assert manager.queue("job").waiters == ()
