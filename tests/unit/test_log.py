"""Log records name their lock, node and fence; the lives of locks are logged at DEBUG."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aioredlock_ng import LOG_FIELDS, LockTakenError
from tests.unit.worlds import TTL, world

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

    @property
    def messages(self) -> list[str]:
        """The messages of the records."""
        return [record.getMessage() for record in self.records]

    def about(self, lock: str) -> list[str]:
        """Return the messages about a lock."""
        return [r.getMessage() for r in self.records if getattr(r, "lock", None) == lock]


@contextmanager
def logged(level: int = logging.DEBUG, lines: Lines | None = None) -> Iterator[Lines]:
    """Keep what is logged."""
    lines, before = lines or Lines(), LOGGER.level
    LOGGER.addHandler(lines)
    LOGGER.setLevel(level)
    try:
        yield lines
    finally:
        LOGGER.removeHandler(lines)
        LOGGER.setLevel(before)


async def test_a_lease_is_told_from_its_win_to_its_release():
    """Acquired, extended, released: at DEBUG, each with the lock and its fence; nothing above DEBUG."""
    for level in (logging.DEBUG, logging.INFO):
        with logged(level) as log:
            async with world() as w, w.manager.lock("a") as lease:
                await asyncio.sleep(TTL / 2)
        told = [record for record in log.records if getattr(record, "lock", None)]
        if level > logging.DEBUG:
            assert told == []
            continue
        assert [(r.levelno, r.__dict__["lock"], r.__dict__["fence"], r.__dict__["node"]) for r in told] == [
            (logging.DEBUG, "a", lease.fence, None)
        ] * 3
        acquired, extended, released = log.about("a")
        assert acquired.startswith("lock 'a' was acquired in 0.00")
        assert acquired.endswith("at attempt 1")
        assert extended.startswith("lock 'a' was extended (extension number 1), valid for 9.89")
        assert released.startswith("lock 'a' was released after 5.0")
        assert told[0].filename == "acquisition.py", "not the function that all of them go through"


async def test_a_lock_that_is_not_had_is_told():
    """The end of a call that gives up, with its error; several names are separated by commas.  A name cannot
    forge a line: it stands in its record as it is, unless it has what ends a line or hides in one.
    """
    names = ("a", "b\nWARNING forged", "\x1b[2J", "ä b")
    with logged() as log:
        async with world() as w, w.process() as other, w.manager.lock("a"):
            with pytest.raises(LockTakenError):
                await other.lock(*names, blocking_timeout=1).acquire()
    (line,) = log.about("\\x1b[2J, a, b\\nWARNING forged, ä b")
    assert line.startswith(r"lock '\x1b[2J', 'a', 'b\nWARNING forged', ")
    assert " was not acquired in 1.0" in line
    assert "LockTakenError" in line


async def test_structlog_takes_the_fields_over():
    """With its own formatter, as the page has it: what it allows are keys of the event, of this type."""
    structlog = pytest.importorskip("structlog")
    own = structlog.stdlib.ProcessorFormatter
    formatter = own(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder(allow=LOG_FIELDS)],
        processors=[own.remove_processors_meta, structlog.processors.JSONRenderer()],
    )
    with logged() as log:
        async with world() as w, w.manager.lock("a", "b") as lease:
            pass
    told = [json.loads(formatter.format(record)) for record in log.records]
    up, acquired = (next(one for one in told if word in one["event"]) for word in ("is up", "acquired"))
    assert {name: up[name] for name in LOG_FIELDS} == {**dict.fromkeys(LOG_FIELDS), "node": w.nodes[0].name}
    acquired.pop("event")
    assert acquired == {"lock": "a, b", "kind": "mutex", "node": None, "fence": lease.fence}
