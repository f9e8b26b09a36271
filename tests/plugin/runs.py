"""Runs of pytest in processes of their own, with the plugins that a test names and no others."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.environments.interpreters import ROOT
from tests.servers import without_quarantine_set

OURS = ("-p", "aioredlock_ng.pytest_plugin")
ASYNCIO = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function")
AUTO = (*ASYNCIO, "-o", "asyncio_mode=auto")
STRICT = (*ASYNCIO, "-o", "asyncio_mode=strict")
ANYIO = ("-p", "anyio.pytest_plugin")

MODES = {
    "pytest-asyncio in auto mode": (AUTO, ""),
    "pytest-asyncio in strict mode": (STRICT, "@pytest.mark.asyncio"),
    "pytest-asyncio, one loop for the module": (STRICT, '@pytest.mark.asyncio(loop_scope="module")'),
    "anyio": (ANYIO, "@pytest.mark.anyio"),
    "both plugins": ((*ANYIO, *AUTO), ""),
}
"""The plugins that may run a user's async tests: the options, and the mark that each of the tests needs."""

TIMEOUT = 60.0
"""Seconds for one run; one takes about one."""


@dataclass(frozen=True, slots=True)
class Run:
    """The end of a run."""

    outcomes: dict[str, int]
    """The numbers of pytest's last line: passed, failed, skipped, errors, warnings."""
    output: str


def run(folder: Path, source: str, *options: str, **environment: str) -> Run:
    """Run one file of tests in `folder`; every warning in it is an error."""
    (folder / "test_users.py").write_text(textwrap.dedent(source))
    ours = without_quarantine_set()
    inherited = {key: value for key, value in ours.items() if not key.startswith("PYTEST")}
    isolated = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    words = ("-m", "pytest", "-ra", "-W", "error", "-p", "no:cacheprovider", *OURS, *options)
    done = subprocess.run(  # noqa: PLW1510 (its outcome is the caller's question)
        [sys.executable, *words], cwd=folder, env={**inherited, **isolated, **environment},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    output = done.stdout + done.stderr
    last = output.strip().rpartition("\n")[2]
    return Run({word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)\b", last)}, output)


def check_run(folder: Path, source: str, *options: str, says: str = "", **outcomes: int) -> None:
    """Run one file, and see how its tests end, and what is said."""
    done = run(folder, source, *options)
    assert done.outcomes == outcomes, done.output
    assert says in done.output


def check_run_in(mode: str, folder: Path, source: str, **outcomes: int) -> None:
    """Do so with a file that imports pytest in one of the `MODES`: its async tests are marked."""
    options, mark = MODES[mode]
    source = source.replace("async def test_", f"{mark}\nasync def test_")
    source += "\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    check_run(folder, source, *options, **outcomes)
