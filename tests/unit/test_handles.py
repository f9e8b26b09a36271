"""The handles of a contributor: what nox and pre-commit are told to call is there.

Neither is needed for that: the noxfile is run with a stand-in for nox, which notes what a session would run.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WANTED = {"tests", "all_tests", "lint", "docs", "bench"}
BY_GROUP = {"mkdocs": "docs"}
"""Modules that another dependency group than `dev` brings."""


class Session:
    """Notes what is run."""

    def __init__(self, *posargs: str) -> None:
        self.posargs = list(posargs)
        self.ran: list[tuple[str, ...]] = []

    def run(self, *command: str, external: bool) -> None:
        """Note it."""
        assert external, "the project's environment is none of nox's"
        self.ran.append(command)


@pytest.fixture
def noxfile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The names of the noxfile, with a Python that is there whatever runs the tests."""
    sessions: dict[str, Callable[[Session], None]] = {}

    def session(function: Callable[[Session], None]) -> Callable[[Session], None]:
        sessions[function.__name__] = function
        return function

    stand_in = SimpleNamespace(session=session, options=SimpleNamespace(), Session=Session)
    monkeypatch.setitem(sys.modules, "nox", stand_in)
    names = runpy.run_path(str(ROOT / "noxfile.py"))
    for function in sessions.values():
        function.__globals__["PYTHON"] = Path(sys.executable)
    return {**names, "sessions": sessions, "default": stand_in.options.sessions}


def test_nox_has_the_five_things_one_does(noxfile: dict[str, Any]):
    """Tests, all tests, lint and types, docs, benchmarks; each says in its first line what it does."""
    assert set(noxfile["sessions"]) == WANTED
    assert set(noxfile["default"]) <= WANTED
    assert all(session.__doc__ for session in noxfile["sessions"].values())


@pytest.mark.parametrize("name", sorted(WANTED))
def test_what_nox_calls_exists(noxfile: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch):
    """Every module is in the environment, or in the group that its session names; every file is there."""
    monkeypatch.syspath_prepend(str(ROOT))
    session = Session()
    noxfile["sessions"][name](session)
    assert session.ran
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for python, option, module, *arguments in session.ran:
        assert (python, option) == (sys.executable, "-m")
        if module in BY_GROUP:
            assert any(each.startswith(module) for each in groups[BY_GROUP[module]])
        else:
            assert importlib.util.find_spec(module), module
        paths = [argument for argument in arguments if "/" in argument]
        assert all((ROOT / path).exists() for path in paths), paths


def test_pre_commit_needs_no_other_repository():
    """Each hook is a tool of the project's environment, in one of the groups of a contributor."""
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    dev = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    for hook in repo["hooks"]:
        tool = Path(hook["entry"].split()[0])
        assert (hook["language"], tool.parent) == ("system", Path(".venv/bin"))
        assert any(each.startswith(tool.name) for each in dev), tool
