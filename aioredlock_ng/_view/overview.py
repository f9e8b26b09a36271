"""One look at all nodes and locks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from .. import LockInspection, LockManager, NodeStatistics, QueueInspection, Survey

_MAX_LINES: Final = 16
"""Locks, the first by their names, whose waiters are asked for: a round each, one after the other."""

_HAVE_WAITERS: Final = ("fair", "read", "write")
"""Kinds of locks whose waiters the nodes know."""

_QUARANTINE_FROM: Final = 3
"""Nodes from which on clients have a restart quarantine by default."""

_UNUSED: Final = "no incarnation record"
"""Begins the reason of a node that has never been used, or has forgotten that it was."""


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Nodes and locks, as they were seen at one moment."""

    nodes: tuple[NodeStatistics, ...]
    survey: Survey | None
    """None when nothing could be looked at."""
    problem: str = ""
    """Why not."""
    unavailable_for: float = 0.0
    """Seconds until a majority could grant a lock; `math.inf` when no moment is known."""
    strangers: tuple[str, ...] = ()
    """The servers that other clients use and the list of nodes lacks."""
    disagreement: tuple[str, ...] = ()
    """Sentences about them."""
    queues: Mapping[str, QueueInspection] = dataclasses.field(default_factory=dict)
    """The waiters for locks, where they were looked at."""

    @property
    def answered(self) -> int:
        """The number of nodes that answered."""
        return len(self.nodes) - len(self.survey.silent) if self.survey is not None else 0

    @property
    def up(self) -> int:
        """The number of nodes that take part in locking."""
        return sum(node.state == "up" for node in self.nodes)

    @property
    def quorum(self) -> int:
        """The number that is needed."""
        return len(self.nodes) // 2 + 1

    @property
    def margin(self) -> int:
        """The number of those that are up that may fail; below 0: the number that is missing."""
        return self.up - self.quorum


async def look(
    manager: LockManager,
    names: Sequence[str] = (),
    *,
    quarantine: float | None = None,
    queues: bool = False,
    limit: int = 1000,
    wanted: Callable[[LockInspection, float], bool] = lambda _lock, _at: True,
) -> Overview:
    """Look at the nodes, and at the locks `names`, or at `limit` of all; with `queues`, also at waiters.

    Of all locks it is asked for the first that can have waiters.  `wanted` says which locks to keep, at the
    moment of the look.  See `unavailable_for` for `quarantine`.
    """
    from .. import ConfigurationError

    try:
        survey = await manager.survey(*names, limit=limit)
        locks = tuple(lock for lock in survey.locks if wanted(lock, survey.at))
        survey = dataclasses.replace(survey, locks=locks)
        most = [lock.name for lock in locks if lock.kind in _HAVE_WAITERS][:_MAX_LINES]
        lines = {name: await manager.queue(name) for name in names or most} if queues else {}
    except ConfigurationError as error:
        return Overview(
            nodes=manager.statistics().nodes, survey=None, problem=str(error), unavailable_for=math.inf
        )
    wait = unavailable_for(manager, quarantine)
    statistics = manager.statistics()
    return Overview(
        nodes=statistics.nodes,
        survey=survey,
        unavailable_for=wait,
        strangers=statistics.strangers,
        disagreement=statistics.disagreement,
        queues=lines,
    )


def unavailable_for(manager: LockManager, quarantine: float | None) -> float:
    """Return the seconds until a majority could grant a lock; `math.inf` when no moment is known.

    A node that was never used votes at once for clients whose `quarantine` is 0; None is their default.
    """
    statistics = manager.statistics()
    at_once = quarantine == 0 or (quarantine is None and len(statistics.nodes) < _QUARANTINE_FROM)
    able = sum(node.state == "up" or node.reason.startswith(_UNUSED) for node in statistics.nodes)
    if at_once and statistics.conflict is None and able > len(statistics.nodes) // 2:
        return 0.0
    return manager.unavailable_for
