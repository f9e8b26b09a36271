"""The one thing that a context tells: that a task was started inside a reentrant block (R27).

It gives no right to anything.  It is what a warning rests on: a task that waits for a block to end that may
itself be waiting for this task.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final, final
from weakref import ref

from .._kinds.primitive import Primitive
from .._local.runner import current_runners
from .._log import report
from ..errors import printable
from .holding import Holding, Holdings

MAX_WARNED: Final = 1000
"""Locks of one manager about which it warns, each once."""

INSIDE: Final[ContextVar[tuple[ref[Holding], ...]]] = ContextVar("aioredlock_ng_inside", default=())
"""The locks whose blocks the code is inside of, or was when its task was started."""


def entered(holding: Holding) -> None:
    """Note in the context that a block under `holding` begins."""
    INSIDE.set((*_still_inside(), ref(holding)))


def left(holding: Holding) -> None:
    """Note that it has ended; where the context is another one, that is found out without this."""
    INSIDE.set(tuple(each for each in _still_inside() if each() is not holding))


def _still_inside() -> tuple[ref[Holding], ...]:
    """Return the entries whose blocks have not ended: a long line of tasks does not gather the others."""
    return tuple(each for each in INSIDE.get() if (held := each()) is not None and held.body is not None)


@final
class Ancestors:
    """Warns of calls that wait for a block which their own task was started in."""

    __slots__ = ("_holdings", "_warned")

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._warned: set[tuple[str, ...]] = set()

    def look(self, lock: Primitive) -> None:
        """Warn, once for each lock, if a call that begins to wait for it may wait for ever.

        Need not be called where nothing is `INSIDE`.
        """
        names = lock.names
        for each in INSIDE.get():
            holding = each()
            if (
                holding is None
                or holding not in self._holdings.all
                or holding.task in (None, *current_runners())
            ):
                continue
            if set(names).isdisjoint(holding.names) or names in self._warned:
                continue
            if len(self._warned) < MAX_WARNED:
                self._warned.add(names)
                report(
                    logging.WARNING,
                    "a task waits for lock %s, and was started inside a block under it: if the block waits "
                    "for the task, neither goes on.  The lock is reentrant for the task that holds it alone; "
                    "hand its lease to tasks that work under it",
                    printable(names),
                    lock=names,
                    kind=lock.kind.name,
                )
