"""What metrics and traces of locks have in common: bounded labels, the words for outcomes, known managers.

Nothing here or in what uses it knows the name of a lock: names may be many, and may be private.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, final

from ..events import GaveUp

if TYPE_CHECKING:
    from .. import ManagerStatistics

MAX_LABELS: Final = 100
"""Labels of locks that are told apart."""

OTHERS: Final = "(others)"
"""Stands for the labels beyond those."""

MAX_MANAGERS: Final = 64
"""Managers that are alive and seen at once; beyond that the oldest is seen no more."""

WON: Final = "won"


@final
class Labels:
    """The labels that were seen: the first hundred for themselves, all others together."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, label: str) -> str:
        """Return what a label counts as."""
        known = self._known.get(label)
        if known is None:
            if len(self._known) >= MAX_LABELS:
                return OTHERS
            known = self._known[label] = label
        return known


@final
class Managers:
    """The managers that have a hook, as long as they are there."""

    __slots__ = ("_attached",)

    def __init__(self) -> None:
        self._attached: list[Callable[[], ManagerStatistics | None]] = []

    def attach(self, statistics: Callable[[], ManagerStatistics | None]) -> None:
        """As `Hooks.attach`."""
        self._attached = [each for each in self._attached if each() is not None][1 - MAX_MANAGERS :]
        self._attached.append(statistics)

    def __iter__(self) -> Iterator[ManagerStatistics]:
        """Return what each tells of itself now, but for those that are closed."""
        for statistics in self._attached:
            if (told := statistics()) is not None and not told.closed:
                yield told


def outcome(event: GaveUp) -> str:
    """Return how a call that got no lock ended: `taken`, `no_quorum` or `cancelled`."""
    if event.taken is None:
        return "cancelled"
    return "taken" if event.taken else "no_quorum"


def held_by_label(told: ManagerStatistics, labels: Labels) -> dict[tuple[str, str], int]:
    """Return how many leases a manager holds, by label and kind; of what is not listed the kind is empty."""
    held: dict[tuple[str, str], int] = {}
    for lease in told.leases:
        of = labels.of(lease.label), lease.kind
        held[of] = held.get(of, 0) + 1
    if (more := told.held - len(told.leases)) > 0:
        held[OTHERS, ""] = more
    return held
