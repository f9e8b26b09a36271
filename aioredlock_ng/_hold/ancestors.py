"""The locks that a context has acquired: by its own code, or by a task that started it.

They give no right to anything.  They serve a warning: a task waits for a lock that it holds itself, or
whose holder may be waiting for this task.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final, TypeAlias, final
from weakref import ref

from .._kinds.primitive import Primitive
from .._log import Once, report
from ..errors import printable
from .holding import Holding, Holdings

Locks: TypeAlias = "tuple[ref[Holding], ...]"

REMEMBERED: Final = 4
"""How many locks a context remembers: the latest ones."""

ACQUIRED: Final[ContextVar[Locks]] = ContextVar("aioredlock_ng_acquired", default=())
"""The locks that were acquired in this context; some of them may be over."""


@final
class Ancestors:
    """Warns of calls that wait for a lock of their own task, or of a task that started it."""

    __slots__ = ("_holdings", "_warned")

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._warned = Once()

    def check(self, lock: Primitive, acquired: Locks) -> None:
        """Warn, once for each lock, if a call whose context has `acquired` these may wait for ever."""
        names = lock.names
        # A semaphore of several permits: another holder may release one.
        if not lock.kind.full(1):
            return
        for each in acquired:
            # Released, collected or of other names.
            holding = each()
            if holding not in self._holdings.all or set(names).isdisjoint(holding.names):
                continue
            if self._warned.first(names):
                report(
                    logging.WARNING,
                    "a task waits for lock %s, which it or a task that started it has acquired: if the "
                    "holder waits for this task, neither can continue.  Release the lock before "
                    "acquiring it again, or pass its lease to tasks that work under it; reentrant=True "
                    "works only for the task that holds the lock",
                    printable(names),
                    lock=names,
                    kind=lock.kind.name,
                )
            return
