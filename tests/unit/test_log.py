"""What is logged: each record says which lock, node and fence it is about; locks' lives are told at DEBUG."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import aioredlock_ng
from aioredlock_ng import LOG_FIELDS, LockTakenError
from aioredlock_ng._core.quorum_view import QuorumView
from aioredlock_ng._log import report
from aioredlock_ng._node.greeting import MAX_LOGGED_FINDINGS, Greeting
from tests.unit.worlds import TTL, opened, virtual, world

LOGGER = logging.getLogger("aioredlock_ng")
FORMAT = logging.Formatter(
    "%(levelname)s lock=%(lock)s kind=%(kind)s node=%(node)s fence=%(fence)s %(message)s"
)


class Lines(logging.Handler):
    """Keeps records, and formats each with the attributes that all of them have."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it; a missing attribute is shown where it is formatted."""
        self.records.append(record)
        self.lines.append(FORMAT.format(record))

    def about(self, lock: str) -> list[str]:
        """Return the messages about a lock."""
        return [r.getMessage() for r in self.records if getattr(r, "lock", None) == lock]


@contextmanager
def logged(level: int = logging.DEBUG) -> Iterator[Lines]:
    """Keep what is logged."""
    lines, before = Lines(), LOGGER.level
    LOGGER.addHandler(lines)
    LOGGER.setLevel(level)
    try:
        yield lines
    finally:
        LOGGER.removeHandler(lines)
        LOGGER.setLevel(before)


def test_a_lease_is_told_from_its_win_to_its_release():
    """Acquired, extended, released: at DEBUG, each with the lock and its fence."""
    fences: list[int | None] = []

    async def main() -> None:
        async with world() as w, w.manager.lock("a") as lease:
            fences.append(lease.fence)
            await asyncio.sleep(TTL / 2)

    with logged() as log:
        virtual(main)()
    told = [record for record in log.records if getattr(record, "lock", None)]
    assert [(r.levelno, r.__dict__["lock"], r.__dict__["fence"], r.__dict__["node"]) for r in told] == [
        (logging.DEBUG, "a", fences[0], None)
    ] * 3
    acquired, extended, released = log.about("a")
    assert acquired.startswith("lock 'a' was acquired in 0.00")
    assert acquired.endswith("at try 1")
    assert extended.startswith("lock 'a' was extended for the time number 1, valid for 9.89")
    assert released.startswith("lock 'a' was released after 5.0")
    assert told[0].filename == "acquisition.py", "not the function that all of them go through"


def test_a_lock_that_is_not_had_is_told():
    """The end of a call that gives up, with its error; several names are separated by commas."""

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=2) as other, w.manager.lock("a"):
            with pytest.raises(LockTakenError):
                await other.lock("a", "b", blocking_timeout=1).acquire()

    with logged() as log:
        virtual(main)()
    (line,) = log.about("a, b")
    assert line.startswith("lock 'a', 'b' was not acquired in 1.0")
    assert "LockTakenError" in line


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_nothing_of_it_is_logged_above_debug(level):
    """An application that logs INFO hears of no lease that goes well."""

    async def main() -> None:
        async with world() as w, w.manager.lock("a"):
            await asyncio.sleep(TTL)

    with logged(level) as log:
        virtual(main)()
    assert log.about("a") == []


def test_records_about_nodes_name_them_and_an_orderly_close_is_none_that_is_down():
    """Each node is up, and then disconnected; the word "down" is for those that are."""

    async def main() -> None:
        async with world() as w:
            w.nodes[0].crash()
            await asyncio.sleep(TTL)
            names.extend(node.name for node in w.manager.statistics().nodes)

    names: list[str] = []
    with logged(logging.INFO) as log:
        virtual(main)()
    told = [(r.__dict__["node"], r.getMessage(), r.levelno) for r in log.records]
    for name in names:
        assert (name, f"node {name} is up", logging.INFO) in told
    ends = [line for name, line, level in told if line.endswith("disconnected") and level == logging.INFO]
    assert ends == [f"node {name} is disconnected" for name in names[1:]], "the first one is down already"
    down = {name for name, line, _ in told if " is down: " in line}
    assert down == {names[0]}


def test_a_name_cannot_forge_a_line():
    """A lock's name stands in its record as it is, unless it has what ends a line or hides in one."""
    with logged() as log:
        report(logging.INFO, "x", lock=("ä b", "a\nWARNING forged", "\x1b[2J"), node="n", fence=7)
    (record,) = log.records
    assert record.__dict__["lock"] == "ä b, a\\nWARNING forged, \\x1b[2J"
    assert (record.__dict__["node"], record.__dict__["fence"]) == ("n", 7)
    assert record.filename == Path(__file__).name, "the place is that of the caller"


def test_a_node_that_says_ever_new_things_does_not_fill_memory():
    """Lines are told once, so they are kept: a limited number of them."""
    greeting = Greeting("n", QuorumView(b"{meta}", 3, 60_000))
    with logged() as log:
        for number in [*range(2 * MAX_LOGGED_FINDINGS), 0]:
            greeting._log_once(logging.WARNING, f"line {number}")
    assert len(log.records) == MAX_LOGGED_FINDINGS


METHODS = {"critical", "debug", "error", "exception", "info", "log", "warn", "warning"}


def test_every_line_of_the_package_goes_through_one_function():
    """No record can lack the attributes: no other module logs by itself."""
    package = Path(aioredlock_ng.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in METHODS
        and re.search(r"\blog(ging|ger)?\b", ast.unparse(node.func.value), re.IGNORECASE)
    }
    assert found == {"_log.py"}


def test_every_record_has_all_fields(caplog):
    """Of a lock and of nodes, of one and of none: pytest's own handler sees each, and no other names."""

    async def main() -> None:
        async with world() as w, opened(w.nodes, seed=2) as other, w.manager.lock("a"):
            w.nodes[0].crash()
            with pytest.raises(LockTakenError):
                await other.lock("a", blocking_timeout=1).acquire()

    with caplog.at_level(logging.DEBUG, "aioredlock_ng"):
        virtual(main)()
        report(logging.INFO, "x")
    ours = [vars(record) for record in caplog.records if record.name == "aioredlock_ng"]
    usual = vars(logging.makeLogRecord({})).keys() | {"message"}
    assert {frozenset(record.keys() - usual) for record in ours} == {frozenset(LOG_FIELDS)}
    for field in LOG_FIELDS:
        values = {record[field] for record in ours}
        assert None in values
        assert len(values) > 1, field


def test_structlog_takes_the_fields_over():
    """With its own formatter, as the page has it: what it allows are keys of the event, of this type."""
    structlog = pytest.importorskip("structlog")
    own = structlog.stdlib.ProcessorFormatter
    formatter = own(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder(allow=LOG_FIELDS)],
        processors=[own.remove_processors_meta, structlog.processors.JSONRenderer()],
    )
    with logged() as log:
        report(logging.INFO, "%s came", "n", lock=("a", "b"), kind="mutex", node="n", fence=7)
        report(logging.INFO, "nothing")
    full, empty = (json.loads(formatter.format(record)) for record in log.records)
    assert full == {"event": "n came", "lock": "a, b", "kind": "mutex", "node": "n", "fence": 7}
    assert empty == {"event": "nothing", **dict.fromkeys(LOG_FIELDS)}
