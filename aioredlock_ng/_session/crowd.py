"""Managers of one process over the same nodes: each has connections and tasks of its own; one would do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final
from weakref import WeakSet

from .._log import report
from .._node import Node
from .background import Background

MANY: Final = 10
"""Managers over the same nodes, running at once, of which one warning tells."""

_running: Final[dict[tuple[str, ...], WeakSet[Background]]] = {}
_told: Final[set[tuple[str, ...]]] = set()
_lock: Final = threading.Lock()  # managers of several threads start beside each other


def count_in(background: Background, nodes: Sequence[Node]) -> None:
    """Count a manager that starts, and warn once per list of nodes when too many run at once."""
    names = tuple(sorted(node.name for node in nodes))
    with _lock:
        crowd = _running.setdefault(names, WeakSet())
        for other in list(crowd):
            if other.over or other.loop_closed:
                crowd.discard(other)
        crowd.add(background)
        for gone in [known for known, them in _running.items() if not them]:
            del _running[gone]
            _told.discard(gone)
        count = len(crowd)
        if count < MANY or names in _told:
            return
        _told.add(names)
    report(
        logging.WARNING,
        "%d lock managers of this process run over the same nodes (%s), each with connections of its own: "
        "make one, share it, and close it when the process ends",
        count,
        ", ".join(names),
    )
