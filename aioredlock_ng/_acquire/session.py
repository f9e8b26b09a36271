"""What calls of `acquire` use of their session."""

from __future__ import annotations

from .._core.policy import RetryPolicy
from .._hold.ancestors import Ancestors
from .._local.sleeps import Sleeps
from .._log import Once
from .attempt import TrySession
from .long_waits import LongWaits
from .notifications import Notifications
from .refusals import LocalRefusals


class AcquireSession(TrySession):
    """The parts of a session that its calls of `acquire` share."""

    __slots__ = ()

    node_timeout: float
    retry: RetryPolicy
    local: LocalRefusals
    notifications: Notifications
    sleeps: Sleeps
    long_waits: LongWaits
    no_expiry: Once
    """Keys without expiry that have been reported."""
    ancestors: Ancestors
