"""The layers: imports point down only.  Read off the files' syntax trees, nothing is imported."""

from __future__ import annotations

import ast
import graphlib
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import aioredlock_ng

PACKAGE = "aioredlock_ng"
ROOT = Path(aioredlock_ng.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


OUTSIDE = {
    "_cli", "_dashboard", "_demo", "_pyinstaller", "_view", "__main__", "contrib", "pytest_plugin", "sync",
}  # fmt: skip
"""Users of the public interface that live in the package."""

PUBLIC = {"", "errors", "events", "testing", "_log", "_settings"}
PUBLIC_MODULES = {
    f"{PACKAGE}._locks{name}" for name in ("", ".decorator", ".template", ".lease", ".election", ".permits")
} | {f"{PACKAGE}._core.rights"}
"""The other modules that they may import; "" is the package itself.  `_settings`, `_log` and these modules
are no part of the inside: options, log records, rights and the state of a lease have one form, and what users
must not copy is refused in one way."""

PROGRAMS = {"_cli", "_demo", "testing"}
"""Programs of their own, and what stands for a server: there is no caller whose context it could keep."""

PURE = {f"_admin/doctor/{name}.py" for name in ("checks", "facts", "findings", "judge")}
"""Judgement without I/O, beside the core."""

IMPURE = {
    "asyncio", "concurrent", "contextvars", "datetime", "hiredis", "io", "logging", "os", "pathlib", "random",
    "redis", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "warnings",
}  # fmt: skip
"""The pure core has no use for these: I/O, clocks, chance, threads, global state."""

USE_REDIS_CLIENTS = {
    "_node/clients.py", "_node/connection.py", "_node/handshake.py", "_node/redis_sentinel.py",
    "_node/urls.py", "_settings/specs.py", "testing/local_nodes.py",
}  # fmt: skip
USE_DATETIME = {"_core/quarantine.py", "_locks/template.py", "_settings/options.py"}
USE_HIREDIS = {"_node/pipe.py", "testing/_memory_connection.py"}
USE_TIME = {"_clock.py"}

TESTS = ROOT.parent / "tests"
TESTS_OF_THE_INSIDE = (
    "unit/core/", "unit/node/", "conformance/", "simulation/", "model/", "fuzz/test_p", "fuzz/resp.py",
    "cli/test_ended", "cli/test_run", "dashboard/", "load/", "unit/test_kinds.py",
    "unit/test_duration.py",
    "unit/test_batches", "unit/test_outbox.py", "unit/test_deadlines.py", "unit/test_new_kind.py",
)  # fmt: skip
"""Folders and files of tests whose subject is private: scripts, pure rules, connections, batches, abstract
worlds, and the parts of the command and of the page."""

TESTS_INTO_THE_INSIDE = 60
"""The greatest number of other test files that import private modules; each change may lower it."""

# Raised from 20,100 and 43,340 by recipes, web locks that outlive the commit, fair semaphores, patterns and
# rights of the command, several names and skips, and their tests.
CODE_LINES = {ROOT: 20_545, TESTS: 44_730}
"""Lines of code of the package and of its tests, reached and to be kept within one percent.  A change that
raises a figure says here why."""

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip

FUNCTION_LINES = 60
"""As many lines of code a function has at the most."""


@dataclass(frozen=True)
class Import:
    """One imported module, absolute, and where."""

    file: str
    line: int
    module: str
    at_run_time: bool

    @property
    def part(self) -> str | None:
        """The part of this package, such as "_core"; None for a module of another package."""
        head, _, rest = self.module.partition(".")
        return rest.partition(".")[0] if head == PACKAGE else None

    @property
    def top(self) -> str:
        """The top-level package."""
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def relative_name(path: Path) -> str:
    """Return a file's name inside the package, with slashes."""
    return path.relative_to(ROOT).as_posix()


def part_of(file: str) -> str:
    """Return the part of the package that a file is: its folder, or its own name."""
    return file.partition("/")[0].removesuffix(".py")


def is_module(dotted: str) -> bool:
    """Say whether a dotted name below the package is a module of it."""
    path = ROOT.joinpath(*dotted.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports_of(file: str, tree: ast.Module) -> Iterator[Import]:
    """Yield the imports of one file, made absolute, those inside functions included."""
    package = [PACKAGE, *file.split("/")[:-1]]
    for_types = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name, node not in for_types)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            for alias in node.names:
                name = f"{module}.{alias.name}"
                inside = name.startswith(f"{PACKAGE}.") and is_module(name)
                yield Import(file, node.lineno, name if inside else module, node not in for_types)


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax trees of all files; not while tests are collected, which every worker does."""
    return {relative_name(path): ast.parse(path.read_text()) for path in FILES}


def nodes() -> Iterator[tuple[str, Any]]:
    """Yield every node of every file, with the file's name."""
    for file, tree in trees().items():
        for node in ast.walk(tree):
            yield file, node


@cache
def imports() -> list[Import]:
    """Return the imports of all files."""
    return [found for file, tree in trees().items() for found in imports_of(file, tree)]


def offences(allowed: Callable[[Import], bool]) -> list[str]:
    """Return the imports for which `allowed(import)` is False, as lines to read."""
    return [str(found) for found in imports() if not allowed(found)]


def test_the_core_is_pure() -> None:
    """Ring 0 imports itself and the harmless part of the standard library: no I/O, no clock, no chance."""
    core = [found for found in imports() if part_of(found.file) == "_core"]
    for found in core:
        assert found.part in ("_core", None), str(found)
        if found.part is None:
            assert found.top in sys.stdlib_module_names - IMPURE or found.file in USE_DATETIME, str(found)


def test_a_diagnosis_is_judged_without_io() -> None:
    """Facts in, findings out: what it imports beside itself is the core's, and as harmless."""
    judging = [found for found in imports() if found.file in PURE]
    assert {found.file for found in judging} == PURE
    for found in judging:
        if found.part is None:
            assert found.top in sys.stdlib_module_names - IMPURE, str(found)
        elif found.part != "_core":
            assert found.module.rpartition(".")[2] + ".py" in {Path(file).name for file in PURE}, str(found)


def module_of(file: str) -> str:
    """Return the dotted name of a file's module."""
    return f"{PACKAGE}.{file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"


def graph_of(imports: Iterable[Import]) -> dict[str, set[str]]:
    """Return which modules each module imports; the package itself imports all, each at its first use."""
    graph: dict[str, set[str]] = {}
    for found in imports:
        importer = module_of(found.file)
        if found.part is not None and found.file != "__init__.py" and found.module not in (PACKAGE, importer):
            graph.setdefault(importer, set()).add(found.module)
    return graph


def test_no_module_is_in_a_circle() -> None:
    """To understand a module, no reader needs the module itself.

    Imports for types count as well, but for those of `_lock`, whose files tell one story: a session has
    parts, and these know the session.
    """
    counted = [
        found
        for found in imports()
        if found.at_run_time or not {part_of(found.file), found.part} <= {"_lock"}
    ]
    list(graphlib.TopologicalSorter(graph_of(counted)).static_order())  # raises CycleError


def storeys() -> list[set[str]]:
    """Return the parts of the package on each line of the map for contributors, from the ground up."""
    page = (ROOT.parent / ".github" / "CONTRIBUTING.md").read_text()
    rows = page.partition("| part | what it does |")[2].partition("\n\n")[0].splitlines()[2:]
    named = [re.findall(r"`([\w.]+?)(?:\.py|/)`", row.split("|")[1]) for row in rows]
    return [set(parts) for parts in reversed(named)]


def test_imports_lead_downwards() -> None:
    """In the shell, and for types, too: a part imports from its own line of the map, or from one below."""
    height = {part: storey for storey, parts in enumerate(storeys()) for part in parts}
    height |= dict.fromkeys(("__init__", "__main__"), max(height.values()))
    assert len(height) > 20
    upwards = [
        str(found) for found in imports() if found.part and height[part_of(found.file)] < height[found.part]
    ]
    assert not upwards


def test_inside_imports_are_relative() -> None:
    """The package does not import itself by its name: the dots show the layer."""
    for file, node in nodes():
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        assert not [name for name in names if name.split(".")[0] == PACKAGE], f"{file}:{names}"


def test_nothing_imports_the_outside() -> None:
    """The command line, integrations and the testing kit are leaves: no layer needs them."""
    assert not offences(
        lambda found: found.part not in OUTSIDE | {"testing"} or part_of(found.file) in OUTSIDE | {found.part}
    )


def test_the_outside_uses_the_public_interface() -> None:
    """The command line and integrations see what users see."""
    assert not offences(
        lambda found: (
            part_of(found.file) not in OUTSIDE
            or found.part is None
            or found.part in PUBLIC | OUTSIDE
            or found.module in PUBLIC_MODULES
        )
    )


def test_few_tests_import_the_inside() -> None:
    """Tests see what users see; only a test whose subject is private imports a private module."""
    found = [
        name
        for path in sorted(TESTS.rglob("*.py"))
        if not (name := path.relative_to(TESTS).as_posix()).startswith(TESTS_OF_THE_INSIDE)
        and re.search(
            r"^ *from aioredlock_ng(\.\w+)*\.?( import.*\W|\.)_[a-z]", path.read_text(), re.MULTILINE
        )
    ]
    assert len(found) <= TESTS_INTO_THE_INSIDE, found


def test_redis_py_is_used_at_the_seams_only() -> None:
    """Its connections and clients are known to few files, its exceptions to `_node` and `errors`."""
    assert not offences(
        lambda found: (
            found.top != "redis"
            or found.file in USE_REDIS_CLIENTS
            or (found.module == "redis.exceptions" and part_of(found.file) in ("_node", "errors"))
        )
    )


def test_hiredis_is_used_by_the_pipe_only() -> None:
    """RESP is parsed and packed in one file, and in the master in memory, which plays the server."""
    assert not offences(lambda found: found.top != "hiredis" or found.file in USE_HIREDIS)


def test_one_file_reads_the_clock() -> None:
    """`_clock.py` is the seam (R2); only what runs real servers or processes reads the time, too."""
    assert not offences(
        lambda found: (
            found.top not in ("time", "datetime")
            or found.file in USE_TIME
            or part_of(found.file) in OUTSIDE | {"testing"}
            or (found.module == "datetime" and found.file in USE_DATETIME)
        )  # the types of values
    )


def test_whatever_is_scheduled_has_a_context_of_its_own() -> None:
    """A timer or task without one would keep its caller's, with all that a request has there, and hand it to
    the next that it sets.  A task gets one from ``Context().run(loop.create_task, …)``.
    """
    scheduling = {
        "call_later",
        "call_at",
        "call_soon",
        "call_soon_threadsafe",
        "create_task",
        "ensure_future",
    }
    assert not [
        f"{file}:{node.lineno}"
        for file, node in nodes()
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", None) in scheduling
        and not any(keyword.arg == "context" for keyword in node.keywords)
        and part_of(file) not in PROGRAMS
        and file != "_lock/body.py"  # users' code
    ]


def test_the_wall_clock_decides_nothing() -> None:
    """The time of day goes into what people read, a key's value and a survey, and no further (R2).

    A session of the dashboard ends by it, in all processes.
    """
    readers = {
        file
        for file, node in nodes()
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("wall", "wall_of"))
    }
    kit = {file for file in readers if part_of(file) == "testing"}  # its clocks pass it on
    page = {"_dashboard/access.py"}
    assert readers - kit - page == {"_lock/attempt.py", "_lock/session.py", "_admin/survey.py"}


def test_chance_comes_in_through_the_seam() -> None:
    """All layers draw from a given `Random`, never from the module's own."""
    for file, node in nodes():
        if part_of(file) in OUTSIDE | {"testing"}:
            continue
        if isinstance(node, ast.Import):
            assert "random" not in [alias.name for alias in node.names], file
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            assert [alias.name for alias in node.names] == ["Random"], file


def test_functions_stay_small() -> None:
    """A function is seen as a whole on one screen."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    big = [(file, node.name) for file, node in nodes() if isinstance(node, functions) and is_big(node)]
    assert not big


def is_big(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a function has too many lines, its decorators and its docstring not counted."""
    first = function.body[0]
    docstring = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(function) is not None else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring > FUNCTION_LINES


@pytest.mark.parametrize("folder", CODE_LINES, ids=lambda folder: folder.name)
def test_the_house_keeps_its_size(folder: Path) -> None:
    """It does not grow unnoticed; a change that makes it smaller takes the figure down."""
    reached, now = CODE_LINES[folder], sum(map(code_lines, folder.rglob("*.py")))
    assert 0.99 * reached <= now <= 1.01 * reached, f"{now} lines of code, where CODE_LINES has {reached}"


def code_lines(path: Path) -> int:
    """Count the lines that have a token: no empty lines, no comments, no docstrings."""
    source = path.read_text()
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, places) and ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstrings)
