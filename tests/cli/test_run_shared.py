"""``aioredlock-ng run --shared`` and ``--exclusive``: commands beside each other, and one alone."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.runs import Run, Runs, open_runs, until
from tests.servers import Nodes, ask

MODE = ("sh", "-c", 'echo "${REDLOCK_MODE-none}" "${REDLOCK_FENCE-none}"')


@pytest.fixture
def runs(tmp_path: Path, shared_nodes: Nodes) -> Iterator[Runs]:
    """Start runs over the shared nodes."""
    with open_runs(tmp_path, shared_nodes) as runs:
        yield runs


def lasting(runs: Runs, *arguments: str, file: str) -> Run:
    """Start a command that says that it runs, and ends when it is told to."""
    here = runs.directory
    script = f'echo "$REDLOCK_FENCE" >"{here}/{file}"; while [ ! -e "{here}/end" ]; do sleep 0.02; done'
    return runs.start(*arguments, "catalogue", "--", "sh", "-c", script)


def running(runs: Runs, *files: str) -> bool:
    """Say whether these commands have said that they run."""
    return all((runs.directory / file).exists() and (runs.directory / file).read_text() for file in files)


def end(runs: Runs) -> None:
    """Tell the commands to end."""
    (runs.directory / "end").touch()


def test_commands_that_share_run_at_the_same_time(runs: Runs) -> None:
    """With one fence for all of them; one that runs alone waits until the last has ended."""
    shared = [lasting(runs, "--shared", file=f"reader{number}") for number in range(3)]
    until(lambda: running(runs, "reader0", "reader1", "reader2"), "all three run")
    fences = {(runs.directory / f"reader{number}").read_text() for number in range(3)}
    assert len(fences) == 1
    for alone in ((), ("--exclusive",)):
        code, out, err = runs.finish("-n", "-E", "7", *alone, "catalogue", "--", *MODE)
        assert (code, out) == (7, "")
        pattern = (
            r"aioredlock-ng run: lock 'catalogue' is held by 3 readers, and free in \d+\.\d s unless that "
            r"extends it; the command was not started\n"
        )
        assert re.fullmatch(pattern, err), err
    waits = runs.start("catalogue", "--", *MODE)
    end(runs)
    assert [run.wait() for run in shared] == [0, 0, 0]
    assert (waits.wait(), waits.err) == (0, "")
    mode, fence = waits.out.split()
    assert (mode, int(fence) > int(fences.pop())) == ("none", True)
    until(lambda: not runs.holders("redlock:catalogue"), "nothing is left")


def test_a_command_that_is_exclusive_comes_before_readers_that_come_later(runs: Runs) -> None:
    """They wait behind it, and one that does not wait is told why."""
    reader = lasting(runs, "-s", file="reader")
    until(lambda: running(runs, "reader"), "it runs")
    writer = runs.start("-x", "catalogue", "--", *MODE)

    def marked() -> bool:
        return all(ask(url, "EXISTS", "redlock:queue:{redlock:catalogue}") for url in runs.nodes.urls)

    until(marked, "the writer waits")
    code, told = 0, ""
    while code == 0:  # between two tries of a writer that is slow its mark may end
        code, _, told = runs.finish("-n", "-E", "7", "-s", "catalogue", "--", *MODE)
    assert (code, "lock 'catalogue' is left to a writer that waits" in told) == (7, True)
    later = runs.start("-s", "catalogue", "--", *MODE)
    end(runs)
    assert (reader.wait(), writer.wait(), later.wait()) == (0, 0, 0)
    assert (writer.out.split()[0], later.out.split()[0]) == ("write", "read")
    first = int((runs.directory / "reader").read_text())
    assert first < int(writer.out.split()[1]) < int(later.out.split()[1])


def test_a_reader_is_told_which_command_runs_alone(runs: Runs) -> None:
    """As any other that finds the lock taken."""
    alone = lasting(runs, "-x", file="writer")
    until(lambda: running(runs, "writer"), "it runs")
    code, out, err = runs.finish("-n", "-s", "catalogue", "--", *MODE)
    assert (code, out) == (1, "")
    assert re.match(
        rf"aioredlock-ng run: lock 'catalogue' is held by \S+:{alone.process.pid}, and free in", err
    )
    end(runs)
    assert alone.wait() == 0


@pytest.mark.parametrize(("option", "mode"), [("-s", "read"), ("--exclusive", "write"), (None, "none")])
def test_the_command_knows_the_mode(option: str | None, mode: str, runs: Runs) -> None:
    """Its own, not that of a run around it."""
    options = [] if option is None else [option]
    code, out, _ = runs.finish(*options, "job", "--", *MODE, env={"REDLOCK_MODE": "another's"})
    assert (code, out.split()[0]) == (0, mode)


def test_a_shared_lock_that_is_lost_ends_its_command(runs: Runs) -> None:
    """As any: 75, and the others go on."""
    lost, kept = (
        runs.start("-s", "--ttl", "2", "catalogue", "--", *runs.stamper(file)) for file in ("lost", "kept")
    )
    until(lambda: all("start" in runs.words(file) for file in ("lost", "kept")), "both run")
    for url in runs.nodes.urls:
        owners = ask(url, "ZRANGE", "redlock:catalogue", 0, -1)
        (owner,) = [owner for owner in owners if owner.endswith(b":%d" % lost.process.pid)]
        ask(url, "ZREM", "redlock:catalogue", owner)
    assert lost.wait() == 75
    assert runs.words("lost")[-1] == "SIGTERM"
    assert "another holder may have run meanwhile" in lost.err
    assert kept.process.poll() is None
    kept.send(signal.SIGTERM)
    assert kept.wait() == 7
