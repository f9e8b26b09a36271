"""``aioredlock-ng run --permits N``: so many commands beside each other, each with a slot of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.runs import Runs, open_runs, until
from tests.servers import Nodes

SLOT = ("sh", "-c", 'echo "${REDLOCK_SLOT-none}" "${REDLOCK_FENCE-none}"')


@pytest.fixture
def runs(tmp_path: Path, shared_nodes: Nodes) -> Iterator[Runs]:
    """Start runs over the shared nodes."""
    with open_runs(tmp_path, shared_nodes) as runs:
        yield runs


def test_so_many_commands_run_at_the_same_time(runs: Runs) -> None:
    """One more finds none free, and runs when one has ended."""
    here = runs.directory
    script = f'echo "$REDLOCK_SLOT" >"{here}/$REDLOCK_SLOT"; while [ ! -e "{here}/end" ]; do sleep 0.02; done'
    running = [runs.start("--permits", "2", "gpu", "--", "sh", "-c", script) for _ in range(2)]
    until(lambda: (here / "0").exists() and (here / "1").exists(), "both run")
    code, out, err = runs.finish("-n", "-E", "7", "--permits", "2", "gpu", "--", *SLOT)
    assert (code, out) == (7, "")
    assert re.match(r"aioredlock-ng run: lock 'gpu' is held by the holders of 2 permits, and free in", err), (
        err
    )
    code, out, err = runs.finish("--permits", "3", "gpu", "--", *SLOT)
    assert (code, out.split()[0]) == (0, "2"), err
    waits = runs.start("--permits", "2", "gpu", "--", *SLOT)
    (here / "end").touch()
    assert [run.wait() for run in running] == [0, 0]
    assert (waits.wait(), waits.err) == (0, "")
    assert waits.out.split()[0] in ("0", "1")


def test_the_command_knows_its_own_slot_alone(runs: Runs) -> None:
    """Not that of a run around it."""
    code, out, _ = runs.finish("job", "--", *SLOT, env={"REDLOCK_SLOT": "7"})
    assert (code, out.split()[0]) == (0, "none")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--permits", "0"), "permits are a number from 1 to 256, got '0'"),
        (("--permits", "257"), "permits are a number from 1 to 256"),
        (("--permits", "2", "-s"), "not allowed with argument"),
        (("--permits", "2", "--at-least", "5"), "--at-least goes with none of"),
    ],
)
def test_what_cannot_be_is_wrong_usage(arguments: tuple[str, ...], words: str, runs: Runs) -> None:
    """Exit code 2, and nothing is run."""
    code, out, err = runs.finish(*arguments, "gpu", "--", *SLOT)
    assert (code, out) == (2, "")
    assert words in err
