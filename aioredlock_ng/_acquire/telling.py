"""What calls of `acquire` and leases tell: to the hooks of their manager, and to the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .._log import debugging, report
from ..errors import LockLostError, LockNotAcquiredError, LockTakenError, LossReason, printable
from ..events import Acquired, Extended, ExtensionsLow, GaveUp, Lost, Refused, Released, Waiting

if TYPE_CHECKING:
    from .._hold.holding import Holding
    from .._session.runtime import Runtime
    from .acquisition import Request

# -- calls ---------------------------------------------------------------------------------------------


def tell_acquired(
    runtime: Runtime, request: Request, holding: Holding, *, waited: float, attempts: int
) -> None:
    """Tell that the call has won."""
    event = Acquired(
        names=request.names,
        label=request.label,
        waited=waited,
        attempts=attempts,
        fence=holding.fence or None,
        votes=holding.votes(),
    )
    runtime.audience.tell(event)
    _debug(holding, "lock %s was acquired in %.3f s, at try %d", printable(request.names), waited, attempts)


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
    if debugging():
        message = "lock %s was not acquired in %.3f s: %r"
        report(logging.DEBUG, message, printable(request.names), waited, error, lock=request.names)


# -- leases --------------------------------------------------------------------------------------------


def tell_extended(runtime: Runtime, holding: Holding, *, topped_up: int) -> None:
    """Tell that a lease was extended."""
    if not (debugging() or runtime.audience.wants(Extended)):
        return
    remaining = holding.valid_until - runtime.clock.now()
    message = "lock %s was extended for the time number %d, valid for %.3f s"
    _debug(holding, message, printable(holding.names), holding.extensions, remaining)
    event = Extended(
        names=holding.names,
        label=holding.label,
        extensions=holding.extensions,
        remaining=remaining,
        topped_up=topped_up,
    )
    runtime.audience.tell(event)


def tell_extensions_low(runtime: Runtime, holding: Holding, *, used: int, limit: int, left: float) -> None:
    """Warn that a lease will be lost in `left` seconds, since the rest of its extensions will be used."""
    report(
        logging.WARNING,
        "lock %s was extended %d of %d times and will be lost in %.1f s, unless it is released by then: "
        "ExtensionPolicy.max_extensions sets the limit, None lifts it",
        printable(holding.names),
        used,
        limit,
        left,
        lock=holding.names,
        fence=holding.fence,
    )
    event = ExtensionsLow(
        names=holding.names, label=holding.label, extensions=used, max_extensions=limit, remaining=left
    )
    runtime.audience.tell(event)


def tell_lost(runtime: Runtime, holding: Holding, error: LockLostError, *, held_for: float) -> None:
    """Tell that a lease was lost."""
    level = logging.INFO if error.reason is LossReason.MANAGER_CLOSED else logging.WARNING
    message = "%s; it was held for %.3f s"
    report(level, message, error, held_for, lock=holding.names, fence=holding.fence)
    event = Lost(
        names=holding.names, label=holding.label, reason=error.reason, held_for=held_for, votes=error.votes
    )
    runtime.audience.tell(event)


def tell_released(runtime: Runtime, holding: Holding, *, held_for: float) -> None:
    """Tell that the releases of a lease are queued."""
    if runtime.audience.wants(Released):
        event = Released(
            names=holding.names, label=holding.label, held_for=held_for, stays_taken=holding.stays
        )
        runtime.audience.tell(event)
    if debugging():
        stays = f", and stays taken for {holding.stays:.3f} s yet" if holding.stays else ""
        _debug(holding, "lock %s was released after %.3f s%s", printable(holding.names), held_for, stays)


def _debug(holding: Holding, message: str, *args: object) -> None:
    report(logging.DEBUG, message, *args, lock=holding.names, fence=holding.fence)
