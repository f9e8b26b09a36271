"""Counts the managers of one process over the same nodes: each has its own connections, and one would do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final, final
from weakref import WeakSet

from .._log import report
from .._node import Node
from .._node.fork import close_in_children
from .background import Background

MANY: Final = 10
"""How many managers run over the same nodes when a warning is logged."""


@final
class _Crowds:
    """The running managers of this process, by the names of their nodes."""

    def __init__(self) -> None:
        self.close()
        close_in_children(self)

    def close(self) -> None:
        """Begin with none: a forked child has its own, and a thread of its parent may have held the lock."""
        self._lock = threading.Lock()  # managers of several threads start beside each other
        self._running: dict[tuple[str, ...], WeakSet[Background]] = {}
        self._told: set[tuple[str, ...]] = set()

    def add(self, background: Background, names: tuple[str, ...]) -> int:
        """Count a manager; return how many run over its nodes if that calls for a warning, else 0."""
        with self._lock:
            # Managers that were closed, or whose loop was, do not count.
            crowd = self._running.setdefault(names, WeakSet())
            for other in list(crowd):
                if not other.running:
                    crowd.discard(other)
            crowd.add(background)
            # Lists of nodes without a manager are forgotten: a new crowd over them is a new warning.
            for gone in [known for known, them in self._running.items() if not them]:
                del self._running[gone]
                self._told.discard(gone)
            if len(crowd) < MANY or names in self._told:
                return 0
            self._told.add(names)
            return len(crowd)


_crowds: Final = _Crowds()


def count_in(background: Background, nodes: Sequence[Node]) -> None:
    """Count a manager that starts, and warn once per list of nodes when too many run at once."""
    names = tuple(sorted(node.name for node in nodes))
    if count := _crowds.add(background, names):
        report(
            logging.WARNING,
            "%d lock managers of this process use the same nodes (%s), each with its own connections: "
            "make one, share it, and close it when the process ends",
            count,
            ", ".join(names),
        )
