"""The examples are run as a reader runs them: over nodes that they are given, and over nodes of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask, without_quarantine_set

EXAMPLES: Final = ROOT / "examples"

# What the examples say that freeze a holder.
STORY: Final = (
    r"\AA: has the lock with fence \d+ and reads 100\nA: is frozen past its ttl of 1 s\n"
    r"B: has the lock with fence \d+ and reads 100\nB: its deposit of 10 is written\n"
    r"A: goes on\n(.|\n)*A: its deposit of 30 is refused\n(.|\n)*A: learns: lock 'account:1' was lost(.|\n)*"
    r"the balance is 110\n\Z"
)

# Examples that run to their end, and what they print.
PROGRAMS: Final = {
    "quickstart.py": r"\A10 tasks added 1 each: 10\n(.|\n)*another client: lock 'quickstart' is held",
    "worker_pool.py": r"\A40 items done once each, by [123] processes: \[[\d, ]+\]\n\Z",
    "catalogue_cache.py": r"\A5 editions, each built once by one of 3 processes, and read as a whole\n\Z",
    "gpu_pool.py": r"\A24 jobs done on 4 devices, one at a time on each, by [123] processes\n\Z",
    "print_queue.py": (
        r"\Ain line: north at 0, east at 1, south at 2, west at 3\n"
        r"12 pages printed, in this order:( (north|east|south|west)){12}\n\Z"
    ),
    "scheduler.py": (
        r"\A(.|\n)*\w+: follows (\w+)\n(.|\n)*(\w+) leads, and is killed\n"
        r"(.|\n)*each job was planned once, by \w+ and then \w+(.|\n)*\n\Z"
    ),
    "migration.py": r"\Aredis-py's Lock holds it: free in \d+ s at .*\nevery call has its counterpart\n\Z",
    **{f"fenced_{resource}.py": STORY for resource in ("sqlite", "postgres", "redis")},
}

# Examples that need a visitor, and where the tests stand that visit them.
OWN_TESTS: Final = {
    "fastapi_app.py": "tests/contrib",
    "aiohttp_app.py": "tests/contrib",
    "cron_singleton.py": "tests/cli",
}

# How those keys begin that outlive the locks (R16); one prefix of the examples is empty.
OWN_MARK: Final = re.compile(rb"(redlock:)?(fence:\{|slots:\{|leader:\{|queue:\{|\{meta\}|\{members\})")

TIMEOUT: Final = 60.0  # seconds for one program; the longest takes one or two


@pytest.mark.process
@pytest.mark.parametrize("given", [True, False], ids=["REDLOCK_URLS", "own nodes"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_and_says_so(
    name: str, given: bool, shared_nodes: Nodes, request: pytest.FixtureRequest
) -> None:
    """A program ends well, without a warning, says what it should, and leaves no lock behind."""
    environment = without_quarantine_set() | {"PYTHONPATH": str(ROOT)}
    environment.pop("REDLOCK_URLS", None)
    if given:
        environment["REDLOCK_URLS"] = ",".join(shared_nodes.urls)
    if "postgres" in name:
        environment["REDLOCK_POSTGRES_DSN"] = request.getfixturevalue("postgres_dsn")

    done = subprocess.run(
        [sys.executable, "-W", "error", f"examples/{name}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(PROGRAMS[name], done.stdout), done.stdout
    left = [key for url in shared_nodes.urls for key in ask(url, "KEYS", "*")]
    assert [key for key in left if not OWN_MARK.match(key)] == []


def test_every_example_is_run_somewhere() -> None:
    """A new example needs a line above, and the tests that the lines name do use it."""
    programs = {path.name for path in EXAMPLES.glob("[!_]*.py")}
    assert programs == PROGRAMS.keys() | OWN_TESTS.keys()
    for name, folder in OWN_TESTS.items():
        tests = [path.read_text() for path in Path(ROOT, folder).rglob("test_*.py")]
        assert any(name.removesuffix(".py") in text for text in tests), f"no test in {folder} uses {name}"
