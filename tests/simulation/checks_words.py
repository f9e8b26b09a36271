"""The rules that a history is checked by, and what is said when one is broken."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.simulation.history import Claim


class Rule(StrEnum):
    """The rules of a history."""

    EXCLUSION = "exclusion"
    """No two clients believe to hold a lock, or a slot, at once, but for readers (R20)."""
    PERMITS = "permits"
    """No more clients believe to hold a semaphore at once than the one says that says most, each in a slot of
    its own that there is (R24, R26)."""
    UNIQUE = "unique"
    """A fence is given once per name, or slot (R10, R25), but for readers: between two writers they share one
    (R21)."""
    ORDER = "order"
    """A client that asked for a lock after a fence had been given gets a greater one (R10); a reader after a
    reader none that is smaller (R21)."""
    SUCCESSION = "succession"
    """A client that holds a lock after another has a greater fence, whenever it asked; rests on exclusion.
    Not a reader after a reader."""
    UNCHANGED = "unchanged"
    """A writer learns that none came since a read lease only if none had the lock before it asked (R23)."""
    MEANWHILE = "meanwhile"
    """Nor any while it waited; rests on exclusion."""
    OWNERSHIP = "ownership"
    """A lock's key is changed for its owner alone, not shortened, and made by acquire or repair (R6, R8)."""
    RESOURCE = "resource"
    """A resource that compares fences refuses late writers, and no others (R10)."""
    LOST_UPDATE = "lost update"
    """No value of an unguarded counter is written twice."""
    STEADY = "steady"
    """The data that a reader reads does not change before it is done (R20)."""
    LOCAL_ORDER = "local order"
    """Calls of one process that wait for one name get it in the order in which they came (R13)."""
    TURNS = "turns"
    """A call for a fair lock waits for one hold of each other process at most, where nothing goes wrong, and
    all stand in line (R28)."""
    LIVENESS = "liveness"
    """When all faults are over, every acquire succeeds in time."""
    LEAK = "leak"
    """No task and no key is left."""
    COMPLAINT = "complaint"
    """No process meets what it must not: lateness, silence, an end without a cause (R2, R3, R7, R8, R13)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken once."""

    rule: Rule
    at: float
    text: str
    """Which client did what when, for people."""
    claims: tuple[Claim, ...] = ()
    """Those that do not go together, the earlier one first."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"
