"""What leases tell: to the hooks of their manager, and to the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from .._kinds.kind import Kind
from .._log import debugging, report
from ..errors import LockLostError, LossReason, NodeVote, printable
from ..events import Downgraded, Extended, ExtensionsLow, Lost, NotExtended, Released
from .hooks import HookList


class Told(Protocol):
    """The lease that is told of."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lock."""

    @property
    def label(self) -> str:
        """What it is called in metrics."""

    @property
    def kind(self) -> Kind:
        """What it is a lock of."""

    @property
    def number(self) -> int:
        """Which lease of the process it is."""

    fence: int
    extensions: int
    loss: LossReason | None


def tell_extended(hooks: HookList, lease: Told, *, remaining: float, topped_up: int) -> None:
    """Tell that a lease was extended."""
    if not (Extended in hooks.wanted or debugging()):
        return
    message = "lock %s was extended for the time number %d, valid for %.3f s"
    _debug(lease, message, printable(lease.names), lease.extensions, remaining)
    event = Extended(
        names=lease.names,
        label=lease.label,
        extensions=lease.extensions,
        remaining=remaining,
        topped_up=topped_up,
        kind=lease.kind.name,
        lease=lease.number,
    )
    hooks.tell(event)


def tell_not_extended(
    hooks: HookList,
    lease: Told,
    votes: Callable[[], tuple[NodeVote, ...]],
    *,
    refused: bool,
    remaining: float,
) -> None:
    """Tell that an extension was not a win."""
    if NotExtended in hooks.wanted:
        event = NotExtended(
            names=lease.names,
            label=lease.label,
            refused=refused,
            remaining=remaining,
            votes=votes(),
            kind=lease.kind.name,
            lease=lease.number,
        )
        hooks.tell(event)
    if debugging():
        why = "refused" if refused else "not answered by a majority"
        message = "an extension of lock %s was %s; it is valid for %.3f s"
        _debug(lease, message, printable(lease.names), why, remaining)


def tell_downgraded(hooks: HookList, lease: Told, *, held_for: float) -> None:
    """Tell that a lease was downgraded."""
    if Downgraded in hooks.wanted:
        event = Downgraded(
            names=lease.names,
            label=lease.label,
            held_for=held_for,
            kind=lease.kind.name,
            lease=lease.number,
        )
        hooks.tell(event)
    if debugging():
        message = "lock %s was downgraded after %.3f s"
        _debug(lease, message, printable(lease.names), held_for)


def tell_extensions_low(hooks: HookList, lease: Told, *, used: int, limit: int, left: float) -> None:
    """Warn that a lease will be lost in `left` seconds, since the rest of its extensions will be used."""
    report(
        logging.WARNING,
        "lock %s was extended %d of %d times and will be lost in %.1f s, unless it is released by then: "
        "ExtensionPolicy.max_extensions sets the limit, None lifts it",
        printable(lease.names),
        used,
        limit,
        left,
        lock=lease.names,
        fence=lease.fence,
        kind=lease.kind.name,
    )
    event = ExtensionsLow(
        names=lease.names,
        label=lease.label,
        extensions=used,
        max_extensions=limit,
        remaining=left,
        kind=lease.kind.name,
        lease=lease.number,
    )
    hooks.tell(event)


def tell_topped_up(lease: Told, node: str) -> None:
    """Tell that a node had lost a key, and is given it back."""
    message = "node %s had lost lock %s and is given it back"
    report(
        logging.INFO,
        message,
        node,
        printable(lease.names),
        lock=lease.names,
        node=node,
        fence=lease.fence,
        kind=lease.kind.name,
    )


def tell_lost(hooks: HookList, lease: Told, error: LockLostError, *, held_for: float) -> None:
    """Tell that a lease was lost."""
    level = logging.INFO if error.reason is LossReason.MANAGER_CLOSED else logging.WARNING
    message = "%s; it was held for %.3f s"
    kind = lease.kind.name
    report(level, message, error, held_for, lock=lease.names, fence=lease.fence, kind=kind)
    event = Lost(
        names=lease.names,
        label=lease.label,
        reason=error.reason,
        held_for=held_for,
        votes=error.votes,
        kind=kind,
        lease=lease.number,
    )
    hooks.tell(event)


def tell_released(hooks: HookList, lease: Told, *, held_for: float, stays: float, handed_on: bool) -> None:
    """Tell that the releases of a lease are queued, or that another task of the process has it (R43).

    The names stay taken for `stays` seconds.
    """
    if Released in hooks.wanted:
        event = Released(
            names=lease.names,
            label=lease.label,
            held_for=held_for,
            stays_taken=stays,
            handed_on=handed_on,
            lost=lease.loss is not None,
            kind=lease.kind.name,
            lease=lease.number,
        )
        hooks.tell(event)
    if debugging():
        still = f", and stays taken for {stays:.3f} s yet" if stays else ""
        still = ", to another task of this process" if handed_on else still
        _debug(lease, "lock %s was released after %.3f s%s", printable(lease.names), held_for, still)


def _debug(lease: Told, message: str, *args: object) -> None:
    report(logging.DEBUG, message, *args, lock=lease.names, fence=lease.fence, kind=lease.kind.name)
