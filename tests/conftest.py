"""Fixtures that give tests real servers (``tests/servers.py`` says from where).

=================  ======================================================================================
``any_nodes``      5 servers; the test runs once per arm (path, local, docker); shared, empty at the start
``shared_nodes``   5 servers of the fastest arm; shared, empty at the start: for tests that break nothing
``nodes3``         3 servers of the fastest arm, for this test alone
``nodes5``         5 servers of the fastest arm, for this test alone
``make_nodes``     a function that starts servers with options of their own, for this test alone
``postgres_dsn``   the DSN of a PostgreSQL server that tests share
=================  ======================================================================================
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import os
import re
import signal
import sys
import tomllib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

import hypothesis
import pytest

from aioredlock_ng.testing.local_nodes import LocalNodes
from tests import leftovers
from tests.postgres import postgres_server
from tests.servers import EACH_ARM, Nodes, SharedSets, fastest_arm
from tests.tiers import QUICK, WHOLE, Share, tier_of, tier_of_file

TESTS: Final = Path(__file__).parent

# Without bytecode each of some thousand child processes, and each worker, would compile all modules again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No example fails for want of time, and a clone that one may not write to needs no database of examples.
# Before tests are imported: `@settings` take what they leave open when they are defined.
hypothesis.settings.register_profile("unhurried", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("unhurried")

gc.disable()  # nothing that is imported and collected becomes garbage; see `pytest_collection_finish`


def is_named(config: pytest.Config) -> bool:
    """Return whether files, tests or the last failures are asked for, not a folder or the whole suite."""
    last_failed = config.getoption("lf", default=False)
    return last_failed or not any(Path(argument).is_dir() for argument in config.args)


UNSAID: Final = "(quick)"  # the addopts in pyproject.toml have it; -m on the command line takes its place
WORKERS_PER_CPU: Final = 2  # tests wait for servers and processes about half of their time


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Share the suite or a folder of it among several processes; for less, these start too slowly."""
    if config.option.keyword or is_named(config):
        return 0
    # The quick tier is so short that it would begin with importing everything once more.
    each = 1 if config.option.markexpr == QUICK else WORKERS_PER_CPU
    return each * (os.cpu_count() or 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the share of the long tiers that is to run."""
    parser.addoption("--share", metavar="K/N", type=Share.parse, help="of long tiers run the K-th of N parts")


def pytest_configure(config: pytest.Config) -> None:
    """Choose tiers by what is named: all of a file or a test, the full one of a folder, else the quick one.

    End what failed tests leave.
    """
    config.pluginmanager.register(leftovers)
    if config.option.markexpr == UNSAID:
        with_folder = config.args_source is pytest.Config.ArgsSource.ARGS
        config.option.markexpr = "" if is_named(config) else WHOLE if with_folder else QUICK


def pytest_report_header() -> str:
    """Name the versions of the libraries that the recipes are run with; the head of each run has them."""
    group = tomllib.loads(Path(TESTS.parent, "pyproject.toml").read_text())["dependency-groups"]["recipes"]
    found = []
    for name in [re.split(r"[<>=]", each)[0] for each in group]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return f"recipes: {', '.join(found) or 'none of the libraries is here'}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file that has no quick tests when only these are asked for: each worker would import all."""
    if config.option.markexpr == QUICK and collection_path.match("test_*.py"):
        return tier_of_file(collection_path.relative_to(TESTS).as_posix()) != QUICK or None
    return None


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier; leave those out that are of another share."""
    share: Share | None = config.option.share
    left_out = []
    for item in items:
        file = item.path.relative_to(TESTS).as_posix()
        tier = tier_of(file, {mark.name for mark in item.iter_markers()})
        item.add_marker(tier)
        if share is not None and not share.has(item.nodeid, tier):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_finish() -> None:
    """Keep what is there by now out of ``gc.collect()``."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Keep what the tests of a file leave, such as reports, out of the ``gc.collect()`` of later ones."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


@pytest.fixture(autouse=True, scope="session")
def no_restart_quarantine() -> Iterator[None]:
    """Let nodes that tests restart, flush or use under a prefix of their own vote at once.

    Tests of the quarantine ask for one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDLOCK_RESTART_QUARANTINE", "0")
        yield


@pytest.fixture(autouse=True, scope="session")
def no_ignored_signals() -> None:
    """Heed the signals that ``nohup`` and ``&`` have us ignore, for children would ignore them, too."""
    for number, usual in (
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture(scope="session")
def shared_sets() -> Iterator[SharedSets]:
    """Return what gives an arm's shared set of 5 servers, whole and empty, and starts it when first asked."""
    with contextlib.closing(SharedSets()) as shared:
        yield shared


@pytest.fixture(params=EACH_ARM)
def any_nodes(request: pytest.FixtureRequest, shared_sets: SharedSets) -> Nodes:
    """Give 5 servers, once per arm; a test may break them, the next one finds them whole and empty."""
    return shared_sets(request.param)


@pytest.fixture
def shared_nodes(shared_sets: SharedSets) -> Nodes:
    """Give 5 servers that other tests use too, whole and empty."""
    return shared_sets(fastest_arm())


@pytest.fixture
def make_nodes() -> Iterator[Callable[..., LocalNodes]]:
    """Return a function with the arguments of ``local_nodes`` that starts servers for this test alone."""
    with contextlib.ExitStack() as stack:

        def make(n: int = 5, **options: object) -> LocalNodes:
            options.setdefault("server", fastest_arm())
            nodes = LocalNodes(n, **options)  # type: ignore[arg-type]
            stack.enter_context(contextlib.closing(nodes))
            nodes.start()
            return nodes

        yield make


@pytest.fixture
def nodes3(make_nodes: Callable[..., LocalNodes]) -> LocalNodes:
    """Give 3 servers for this test alone."""
    return make_nodes(3)


@pytest.fixture
def nodes5(make_nodes: Callable[..., LocalNodes]) -> LocalNodes:
    """Give 5 servers for this test alone."""
    return make_nodes(5)


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """Give the DSN of a PostgreSQL server that tests share; each drops what it makes."""
    with postgres_server() as dsn:
        yield dsn
