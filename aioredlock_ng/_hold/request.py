"""The settings of a lock, worked out once for all locks of a manager that have the same ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

from .._core.policy import ExtensionPolicy
from .._core.validity import min_validity, valid_until
from .._settings.options import OnLost


@final
@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """The settings that a lock is asked for with, beside its names; times in seconds.  Never changed."""

    ttl: float
    at_least: float = 0.0
    blocking_timeout: float | None
    quorum_timeout: float | None
    extension: ExtensionPolicy
    on_lost: OnLost
    label: str
    holder: str | None = None
    """The holder's label, for people that inspect the lock; None: its manager's."""
    node_timeout: float
    reentrant: bool = False
    validity: float = field(init=False)
    """How long a win is valid, counted from the request (R3)."""
    least_validity: float = field(init=False)
    """How much validity must be left when a win is judged, or it is no win (R3)."""
    extended_after: float = field(init=False)
    """When the lease is first extended, counted from the request; infinity: never."""
    due_after: float = field(init=False)
    """When the watchdog must first check the lease, to extend it or to end it in time (R7)."""

    def __post_init__(self) -> None:
        ttl, extension = self.ttl, self.extension
        grace = extension.grace * ttl
        self.validity = valid_until(0.0, ttl)
        self.least_validity = min_validity(ttl, self.node_timeout, grace)
        self.extended_after = math.inf if extension.max_extensions == 0 else extension.every * ttl
        self.due_after = min(self.extended_after, self.validity - grace)
