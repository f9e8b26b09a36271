"""What one call of `acquire` tells to the hooks of its manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import LockNotAcquiredError, LockTakenError
from .events import Acquired, GaveUp, Refused, Waiting

if TYPE_CHECKING:
    from ._acquire import Request
    from ._holding import Holding
    from ._runtime import Runtime


def tell_acquired(
    runtime: Runtime, request: Request, holding: Holding, *, waited: float, attempts: int
) -> None:
    """Tell that the call has won."""
    if runtime.audience.wants(Acquired):
        event = Acquired(
            names=request.names,
            label=request.label,
            waited=waited,
            attempts=attempts,
            fence=holding.fence or None,
            votes=holding.votes(),
        )
        runtime.audience.tell(event)


def tell_refused(runtime: Runtime, request: Request, error: LockNotAcquiredError) -> None:
    """Tell that one try was not a win."""
    if runtime.audience.wants(Refused):
        taken = isinstance(error, LockTakenError)
        event = Refused(names=request.names, label=request.label, taken=taken, votes=error.votes)
        runtime.audience.tell(event)


def tell_waiting(
    runtime: Runtime, request: Request, error: LockNotAcquiredError | None, *, waited: float
) -> None:
    """Tell that the call begins to wait: after `error`, or for a task of this process."""
    if runtime.audience.wants(Waiting):
        event = Waiting(
            names=request.names,
            label=request.label,
            waited=waited,
            taken=error is None or isinstance(error, LockTakenError),
            votes=() if error is None else error.votes,
        )
        runtime.audience.tell(event)


def tell_gave_up(
    runtime: Runtime, request: Request, error: BaseException, *, waited: float, attempts: int
) -> None:
    """Tell that the call ends in `error`."""
    if runtime.audience.wants(GaveUp):
        refusal = error if isinstance(error, LockNotAcquiredError) else None
        event = GaveUp(
            names=request.names,
            label=request.label,
            waited=waited,
            attempts=attempts,
            taken=None if refusal is None else isinstance(refusal, LockTakenError),
            votes=() if refusal is None else refusal.votes,
        )
        runtime.audience.tell(event)
