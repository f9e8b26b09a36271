"""The package file: every public name is there, to people, tools and type checkers, and none costs anything
before it is used.
"""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import aioredlock_ng
from aioredlock_ng import LockLostError, LossReason, NodeVote, Vote

FILE = Path(aioredlock_ng.__file__)
TREE = ast.parse(FILE.read_text())
HEAVY = {"aioredlock_ng._manager", "anyio", "asyncio", "hiredis", "redis"}
"""Modules that an import of the package, or of the pytest plugin, must not bring with it."""


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
    assert sorted(homes, key=lambda name: (not name.isupper(), name)) == aioredlock_ng.__all__


def test_every_name_is_what_its_module_says() -> None:
    """A name of the package is the object of that name in its home."""
    for name, module in aioredlock_ng._HOMES.items():
        home = import_module(f"aioredlock_ng.{module}")
        assert getattr(aioredlock_ng, name) is getattr(home, name)


ERROR = LockLostError(
    "gone", reason=LossReason.EXPIRED, names=("x",), votes=[NodeVote("a", Vote.SILENT, "frozen")]
)


@pytest.mark.process
@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        # Every start of pytest imports the plugin, and with it the package: no client, no loop, no shell.
        *(((f"import {module}", f"print(sorted({HEAVY} & set(sys.modules)))"), "[]")
          for module in ("aioredlock_ng", "aioredlock_ng.pytest_plugin")),
        # A plain import is enough for every name; the second access is an ordinary one.
        (("import aioredlock_ng as it", "assert 'LockManager' not in vars(it)", "it.LockManager(['redis://a'])",
          "print('LockManager' in vars(it))"), "True"),
        # `errors` and `events` are there, too.
        (("import aioredlock_ng as it", "print(it.errors.__name__, it.events.__name__)"),
         "aioredlock_ng.errors aioredlock_ng.events"),
        # The star gives all public names and nothing else.
        (("before = {*globals(), 'before'}", "from aioredlock_ng import *",
          "print(*sorted(set(globals()) - before))"), " ".join(sorted(aioredlock_ng.__all__))),
        # `dir` lists what has not been imported, and `help` shows it.
        (("import aioredlock_ng as it, pydoc",
          "print({*it.__all__, 'errors', 'events', '__doc__'} <= {*dir(it)})",
          "shown = pydoc.render_doc(it, renderer=pydoc.plaintext)",
          "print('class LockManager' in shown, 'class WouldDeadlockError' in shown)"), "True\nTrue True"),
        # A pickled error arrives in a process that has not used the package.
        (("import pickle", f"error = pickle.loads({pickle.dumps(ERROR)!r})",
          "print(type(error).__name__, error.reason, error.names, *error.votes)"),
         "LockLostError expired ('x',) a silent (frozen)"),
    ],
)  # fmt: skip
def test_in_a_fresh_interpreter(lines: tuple[str, ...], printed: str) -> None:
    """The modules that an import brings, the names after it, and those that tools see."""
    command = [sys.executable, "-W", "error", "-c", "\n".join(("import sys", *lines))]
    environment = {**os.environ, "PYTHONPATH": str(FILE.parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", printed)


def test_a_wrong_name_is_an_attribute_error() -> None:
    """As with any module, for `hasattr`, and for an import."""
    with pytest.raises(AttributeError, match=r"^module 'aioredlock_ng' has no attribute 'RedLock'$"):
        aioredlock_ng.RedLock  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'RedLock'"):
        exec("from aioredlock_ng import RedLock")  # noqa: S102 (a type checker would object)
