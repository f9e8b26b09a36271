"""What a manager has done since it was made: see `ManagerStatistics`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(slots=True)
class Counters:
    """Counted where it happens, by all parts of one manager."""

    acquired: int = 0
    handed_on: int = 0
    """Of those acquired, the ones that another task of the process has handed on (R43)."""
    refused: int = 0
    gave_up: int = 0
    extended: int = 0
    lost: int = 0
    released: int = 0
    certified: int = 0
    """Fences that the answers to the acquire made, in one round trip."""
    raised: int = 0
    """Fences that took a second round."""
    uncertified: int = 0
    """Tries given up because the nodes did not agree on a fence."""
    topped_up: int = 0
    """Keys given back to nodes that had lost them."""
    quarantined: int = 0
    """Times that a node was found without a vote."""
    steps: int = 0
    """Jumps of nodes' clocks that were noticed."""
