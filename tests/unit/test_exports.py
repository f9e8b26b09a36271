"""The package file: every public name is there, to people, tools and type checkers, and none costs anything
before it is used.
"""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
import typing
from importlib import import_module
from pathlib import Path

import pytest

import aioredlock_ng

FILE = Path(aioredlock_ng.__file__)
TREE = ast.parse(FILE.read_text())
HEAVY = {"aioredlock_ng._manager", "anyio", "asyncio", "hiredis", "redis"}
"""What an import of the package, or of the pytest plugin, must not bring with it."""


def fresh(*lines: str) -> str:
    """Run lines of Python in an interpreter of their own and return what they print."""
    command = [sys.executable, "-W", "error", "-c", "\n".join(("import sys", *lines))]
    environment = {**os.environ, "PYTHONPATH": str(FILE.parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)  # noqa: PLW1510
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def block(test: str) -> list[ast.stmt]:
    """Return the body of the one ``if`` with that test."""
    (found,) = (node for node in TREE.body if isinstance(node, ast.If) and ast.unparse(node.test) == test)
    return found.body


def typed_imports() -> dict[str, str]:
    """Return what type checkers are shown: the home of each name, read off the file."""
    return {
        alias.name: node.module or ""
        for node in block("TYPE_CHECKING")
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.level == 1 and alias.asname is None
    }


def test_three_lists_of_names_are_one() -> None:
    """The imports that type checkers read, the table behind `__getattr__` and `__all__` agree."""
    homes = aioredlock_ng._HOMES

    assert typed_imports() == homes
    assert list(homes) == sorted(homes, key=lambda name: (not name.isupper(), name)) == aioredlock_ng.__all__


@pytest.mark.parametrize("name", aioredlock_ng.__all__)
def test_every_name_is_what_its_module_says(name: str) -> None:
    """A name of the package is the object of that name in its home."""
    home = import_module(f"aioredlock_ng.{aioredlock_ng._HOMES[name]}")

    assert getattr(aioredlock_ng, name) is getattr(home, name)


def test_the_package_file_only_exports() -> None:
    """`__init__.py` is imports, lists, strings, and the two functions of PEP 562.

    Those are hidden from type checkers: for them a misspelt import has to stay an error.
    """
    kinds = ast.ImportFrom | ast.Assign | ast.If | ast.Expr
    hidden = block("not TYPE_CHECKING")

    assert all(isinstance(node, kinds) for node in TREE.body)
    assert all(isinstance(node.value, ast.Constant) for node in TREE.body if isinstance(node, ast.Expr))
    assert [node.name for node in hidden if isinstance(node, ast.FunctionDef)] == ["__getattr__", "__dir__"]
    assert len(hidden) == sum(isinstance(node, ast.FunctionDef) for node in ast.walk(TREE)) == 2


@pytest.mark.process
@pytest.mark.parametrize("module", ["aioredlock_ng", "aioredlock_ng.pytest_plugin"])
def test_an_import_brings_nothing_heavy(module: str) -> None:
    """Every start of pytest imports the plugin, and with it the package: no client, no loop, no shell."""
    assert fresh(f"import {module}", f"print(sorted({HEAVY} & set(sys.modules)))") == "[]"


@pytest.mark.process
def test_a_first_use_imports() -> None:
    """A plain import is enough for every name; the second access is an ordinary one."""
    lines = (
        "import aioredlock_ng",
        "assert 'LockManager' not in vars(aioredlock_ng)",
        "manager = aioredlock_ng.LockManager(['redis://a'])",
        "print(vars(aioredlock_ng)['LockManager'] is type(manager))",
    )

    assert fresh(*lines) == "True"


@pytest.mark.process
def test_the_star_imports_everything() -> None:
    """``from aioredlock_ng import *`` gives all public names and nothing else."""
    lines = (
        "before = {*globals(), 'before'}",
        "from aioredlock_ng import *",
        "print(*sorted(set(globals()) - before))",
    )

    assert fresh(*lines).split() == sorted(aioredlock_ng.__all__)


@pytest.mark.process
def test_public_modules_need_no_import_of_their_own() -> None:
    """`errors` and `events` are there after an import of the package."""
    lines = ("import aioredlock_ng", "print(aioredlock_ng.errors.__name__, aioredlock_ng.events.__name__)")

    assert fresh(*lines) == "aioredlock_ng.errors aioredlock_ng.events"


@pytest.mark.process
def test_tools_see_all_names() -> None:
    """`dir` lists what has not been imported yet, and `help` shows it."""
    lines = (
        "import aioredlock_ng, pydoc",
        "print(*dir(aioredlock_ng))",
        "print(pydoc.render_doc(aioredlock_ng, renderer=pydoc.plaintext))",
    )
    listed, _, shown = fresh(*lines).partition("\n")

    assert {*aioredlock_ng.__all__, "errors", "events", "__doc__"} <= set(listed.split())
    assert "class LockManager" in shown
    assert "class WouldDeadlockError" in shown


def test_a_wrong_name_is_an_attribute_error() -> None:
    """What is not there says so as with any module, for `hasattr`, and for an import."""
    with pytest.raises(AttributeError, match=r"^module 'aioredlock_ng' has no attribute 'RedLock'$"):
        aioredlock_ng.RedLock  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'RedLock'"):
        exec("from aioredlock_ng import RedLock")  # noqa: S102 (a type checker would object)


@pytest.mark.process
def test_an_error_is_restored_where_nothing_was_imported() -> None:
    """A pickled error arrives in a process that has not used the package yet."""
    votes = [aioredlock_ng.NodeVote("a", aioredlock_ng.Vote.SILENT, "frozen")]
    error = aioredlock_ng.LockLostError(
        "gone", reason=aioredlock_ng.LossReason.EXPIRED, names=("x",), votes=votes
    )
    lines = (
        "import pickle",
        f"error = pickle.loads({pickle.dumps(error)!r})",
        "print(type(error).__name__, error.reason, error.names, *error.votes)",
    )

    assert fresh(*lines) == "LockLostError expired ('x',) a silent (frozen)"


def test_type_hints_can_be_resolved() -> None:
    """Frameworks that read annotations find what they name."""
    hints = typing.get_type_hints(aioredlock_ng.LockManager.__init__)

    assert hints["retry"] is aioredlock_ng.RetryPolicy
    assert hints["extension"] is aioredlock_ng.ExtensionPolicy
