"""Every block of the README and of ``docs/`` is run: Python over real servers, SQL, tests and commands."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import shlex
import sqlite3
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from aioredlock_ng._settings.specs import split_urls
from aioredlock_ng.testing.local_nodes import initialise
from tests.docs.pages import BLOCKS, DOCS, PAGES, README, RECIPES, Block, blocks_of, command_lines, name_of
from tests.docs.running import (
    COMMANDED,
    Database,
    beside_database,
    run_database_page,
    run_page,
    set_up_django,
)
from tests.environments.interpreters import ROOT
from tests.plugin.runs import AUTO, run
from tests.servers import Nodes, fastest_arm

WITH_DATABASE: Final = DOCS / "how-to" / "database.md"
WITH_PYTHON: Final = [
    page
    for page in PAGES
    if page not in (WITH_DATABASE, *RECIPES)
    and any(block.language == "python" and not block.is_tests for block in blocks_of(page))
]
TESTS: Final = [block for block in BLOCKS if block.is_tests and ROOT / block.page not in RECIPES]

# Without a language: lines of a server, or of a configuration, which tests of their own read.
LANGUAGES: Final = {"", "python", "sh", "sql", "text"}


@pytest.fixture
def logger_as_before() -> Iterator[None]:
    """Take away the handlers that a page adds."""
    logger = logging.getLogger("aioredlock_ng")
    before = list(logger.handlers)
    yield
    logger.handlers[:] = before


@pytest.fixture
def urls(shared_nodes: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Give servers: three for a quorum, which the environment names, and one alone."""
    given = shared_nodes.urls
    initialise(given[:3])
    initialise(given[3:4])
    monkeypatch.setenv("REDLOCK_URLS", ",".join(given[:3]))
    monkeypatch.chdir(tmp_path)
    return given


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs(page: Path, urls: list[str], logger_as_before: None) -> None:
    """A reader can copy block after block: they run, say what the page says, and what they define works."""
    names: dict[str, Any] = {"__name__": "__main__"}
    if page == README:
        names["db"] = Database()
    if page == DOCS / "start.md":
        initialise(urls[:1])  # it begins with one node, to which it adds two

    asyncio.run(run_page(blocks_of(page), names, urls))

    if page == README:
        assert names["db"].paid == {42: 142}
    names.clear()
    gc.collect()  # what the page left open is its own failure, not that of a later test


def test_the_page_about_databases_runs(urls: list[str], postgres_dsn: str) -> None:
    """Over PostgreSQL; its endpoint and its view lose no update to each other."""
    set_up_django(postgres_dsn)
    names: dict[str, Any] = {"__name__": "__main__"}
    blocks = [beside_database(block, postgres_dsn) for block in blocks_of(WITH_DATABASE)]
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        asyncio.run(run_database_page(blocks, names, urls))
        assert admin.execute("SELECT balance FROM account").fetchone() == (6,)
        admin.execute("DROP TABLE account, redlock_fences")
    names.clear()
    gc.collect()


@pytest.mark.parametrize("block", TESTS, ids=lambda block: f"{block.page}:{block.line}")
def test_a_block_of_tests_is_a_file_of_tests(block: Block, tmp_path: Path) -> None:
    """A reader copies a block into a file of its own, and all tests in it pass, without a warning."""
    if "nodes" in block.source:
        fastest_arm()  # skips where there is no server

    done = run(tmp_path, block.source, *AUTO)

    assert done.outcomes == {"passed": block.source.count("def test_")}, done.output


def test_the_sql_runs() -> None:
    """The statements compare fences as the pages say: equal and greater ones pass."""
    statements = [block.source for block in BLOCKS if block.language == "sql"]
    assert len(statements) >= 2
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE account (id INTEGER, balance INTEGER, fence INTEGER)")
    db.execute("INSERT INTO account VALUES (1, 100, 0)")
    for fence, accepted in ((5, True), (5, True), (4, False), (6, True)):
        for statement in statements:
            done = db.execute(statement, {"id": 1, "balance": 100, "fence": fence})
            changed = len(done.fetchall()) if "RETURNING" in statement else done.rowcount
            assert changed == accepted
    db.close()


def test_nothing_is_left_out() -> None:
    """The expression that finds blocks finds all of them, and none is excepted."""
    fences = sum(line.lstrip().startswith("```") for page in PAGES for line in page.read_text().splitlines())
    assert fences == 2 * len(BLOCKS)
    assert {block.language for block in BLOCKS} <= LANGUAGES
    assert len([block for block in BLOCKS if block.language == "python"]) >= 20
    assert not any("<!-- not run" in page.read_text() for page in PAGES)


def test_every_recipe_is_run() -> None:
    """Each page of `docs/recipes/` has a test of its own, which runs its programs."""
    file = ROOT / "tests" / "recipes" / "test_recipes.py"
    tests = re.findall(r"^def test_(\w+)\(", file.read_text(), re.MULTILINE)
    assert sorted(tests) == [page.stem for page in RECIPES]


# -- commands ----------------------------------------------------------------------------------------


def test_the_pages_that_are_a_way_through_have_commands() -> None:
    """Their commands run with them, in `test_the_python_of_a_page_runs`."""
    for page in COMMANDED:
        lines = [line for block in BLOCKS if block.page == page for line in block.source.splitlines()]
        assert len([line for line in lines if line.startswith("aioredlock-ng ")]) >= 2


# What the pages call the programs that a reader puts into a file.
TITLED: Final = [title for block in BLOCKS for title in re.findall(r'^title="([\w.]+\.py)"$', block.info)]

# Programs of the reader's machine, and the two long commands that tests/environments looks at.
KNOWN: Final = ("cd", "chmod", "docker", "export", "openssl", "python3", "redis-cli", "redis-server", "shtab")

# What the recipes start, with their own tests.
STARTED: Final = ("arq", "celery", "gunicorn", "pyinstaller", "taskiq", "uvicorn")


@pytest.mark.parametrize("line", command_lines())
def test_a_line_of_commands_can_be_typed(line: str) -> None:
    """The extras that a line installs exist; programs that it starts are there."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["pip", "install"]:
        extras = re.findall(r"\[([\w,]+)\]", line)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert {each for found in extras for each in found.split(",")} <= set(
            project["optional-dependencies"]
        )
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file() or words[1] in TITLED
    elif words[0] == "while":  # a program of the page, again and again
        assert words[1] == "python"
        assert words[2].removesuffix(";") in TITLED
        assert words[3:] == ["do", ":;", "done"]
    elif words[0] == "export":
        variable, _, value = words[1].partition("=")
        assert variable == "REDLOCK_URLS"
        assert len(split_urls(value)) == 3
    else:
        assert words[0] in ("aioredlock-ng", *KNOWN, *STARTED)  # the first: tests/cli/test_commands.py
