"""Log lines, most of them from the background, where nothing could take an exception."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("aioredlock_ng")

MAX_REPORTED: Final = 1000
"""Things of one sort that one manager reports, each once."""

CONTAINED: Final = (Exception, asyncio.CancelledError)
"""The exceptions of others' code in the background: each ends what it struck, and nothing else (R44).

A `CancelledError` that no caller of ours has asked for is one of these.  Others end the process.
"""

LOG_FIELDS: Final[tuple[str, ...]] = ("lock", "kind", "node", "fence")
"""The attributes that every record logged to ``aioredlock_ng`` has, beside those of all records.

``lock`` (str): its names, separated by commas; ``kind`` (str): of that lock, as in `events.Acquired`;
``node`` (str): the node's name, as in `NodeStatistics`; ``fence`` (int): the lease's.  Each is None where the
record is not about one.
"""

debugging = functools.partial(log.isEnabledFor, logging.DEBUG)
"""Whether lines that only a debugger of locks wants are logged; no function of ours, for the hot path."""


_by: Final = threading.local()


@final
class _Elsewhere(logging.Filter):
    """Takes the records of threads that do not call log handlers, before other filters see them."""

    def filter(self, record: logging.LogRecord) -> bool:
        deliver = getattr(_by, "deliver", None)
        if deliver is not None:
            deliver(_handle, record)
        return deliver is None


_elsewhere: Final = _Elsewhere()


def log_by(deliver: Callable[..., object]) -> None:
    """Have `deliver` handle the records of this thread, ours and asyncio's: it must not wait for handlers.

    What `deliver` is given is a function, to be called in another thread, and its arguments.
    """
    _by.deliver = deliver
    for logger in (log, logging.getLogger("asyncio")):
        if _elsewhere not in logger.filters:
            logger.filters.insert(0, _elsewhere)


def _handle(record: logging.LogRecord) -> None:
    with suppress(Exception):
        logging.getLogger(record.name).handle(record)


def report(
    level: int,
    message: str,
    *args: object,
    lock: Sequence[str] = (),
    node: str | None = None,
    fence: int | None = None,
    kind: str | None = None,
    exc_info: BaseException | tuple[type[BaseException], BaseException, TracebackType | None] | None = None,
    stacklevel: int = 2,
) -> None:
    """Log with `LOG_FIELDS`, whatever a user's filter or handler does: a failing one must not cost a lock."""
    names = ", ".join(map(one_line, lock)) or None
    extra = dict(zip(LOG_FIELDS, (names, kind, node, fence or None), strict=True))
    with suppress(*CONTAINED):
        log.log(level, message, *args, extra=extra, exc_info=exc_info, stacklevel=stacklevel)


@final
class Once:
    """Lets each thing be reported once; after as many as its limit, no more."""

    def __init__(self, limit: int = MAX_REPORTED) -> None:
        self.reported: set[object] = set()
        self._limit = limit

    def first(self, what: object) -> bool:
        """Whether it is to be reported; the second time it is not."""
        if what in self.reported or len(self.reported) >= self._limit:
            return False
        self.reported.add(what)
        return True


def one_line(text: str) -> str:
    """Return a text of others as it is, unless it could end a line or disguise it."""
    return text if text.isprintable() else ascii(text)[1:-1]
