"""What calls of `acquire` tell: to the hooks of their manager, and to the log."""

from __future__ import annotations

import logging
from typing import Final, final

from .._hold.holding import Holding
from .._hold.hooks import HookList
from .._kinds.primitive import Primitive
from .._log import debugging, report
from ..errors import ConfigurationError, LockNotAcquiredError, LockTakenError, printable
from ..events import Acquired, GaveUp, Refused, Waiting

MAX_REPORTED: Final = 1000
"""Keys without expiry that are reported; beyond it they are only polled."""


def tell_acquired(hooks: HookList, holding: Holding, *, waited: float, attempts: int) -> None:
    """Tell that the call has won."""
    if Acquired in hooks.wanted:
        event = Acquired(
            names=holding.names,
            label=holding.label,
            waited=waited,
            attempts=attempts,
            fence=holding.fence or None,
            votes=holding.votes() if hooks.votes else (),
            handed_on=not attempts,
            kind=holding.kind.name,
            lease=holding.number,
        )
        hooks.tell(event)
    if not debugging():
        return
    report(
        logging.DEBUG,
        "lock %s was acquired in %.3f s, %s",
        printable(holding.names),
        waited,
        f"at try {attempts}" if attempts else "from another task of this process",
        lock=holding.names,
        fence=holding.fence,
        kind=holding.kind.name,
    )


def tell_refused(
    hooks: HookList, lock: Primitive, label: str, error: LockNotAcquiredError, *, ahead: int
) -> None:
    """Tell that one try was not a win."""
    if Refused in hooks.wanted:
        event = Refused(
            names=lock.names,
            label=label,
            taken=isinstance(error, LockTakenError),
            votes=error.votes,
            kind=lock.kind.name,
            ahead=ahead,
        )
        hooks.tell(event)


def tell_waiting(
    hooks: HookList,
    lock: Primitive,
    label: str,
    error: LockNotAcquiredError | None,
    *,
    waited: float,
    ahead: int,
) -> None:
    """Tell that the call begins to wait: after `error`, or for a task of this process."""
    if Waiting in hooks.wanted:
        event = Waiting(
            names=lock.names,
            label=label,
            waited=waited,
            taken=error is None or isinstance(error, LockTakenError),
            votes=() if error is None else error.votes,
            kind=lock.kind.name,
            ahead=ahead,
        )
        hooks.tell(event)


def tell_gave_up(
    hooks: HookList,
    lock: Primitive,
    label: str,
    error: BaseException,
    *,
    waited: float,
    attempts: int,
) -> None:
    """Tell that the call ends in `error`."""
    if GaveUp in hooks.wanted:
        why = error.__cause__ if isinstance(error, ConfigurationError) else error
        refusal = why if isinstance(why, LockNotAcquiredError) else None
        event = GaveUp(
            names=lock.names,
            label=label,
            waited=waited,
            attempts=attempts,
            taken=None if refusal is None else isinstance(refusal, LockTakenError),
            votes=() if refusal is None else refusal.votes,
            kind=lock.kind.name,
        )
        hooks.tell(event)
    if debugging():
        message = "lock %s was not acquired in %.3f s: %r"
        names = printable(lock.names)
        report(logging.DEBUG, message, names, waited, error, lock=lock.names, kind=lock.kind.name)


@final
class EternalKeys:
    """Reports keys without expiry that are in the way, each once: no ttl will ever free them (R16)."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        self._reported: set[bytes] = set()

    def report(self, lock: Primitive, node: str) -> None:
        """Report those of one lock that a node has."""
        names, keys = lock.names, lock.keys
        if keys[0] in self._reported or len(self._reported) >= MAX_REPORTED:
            return
        self._reported.add(keys[0])
        report(
            logging.WARNING,
            "%s: a key without expiry is in the way of lock %s (%s); force_release() deletes it, or "
            "`aioredlock-ng release`",
            node,
            printable(names),
            ", ".join(ascii(key)[1:] for key in keys),
            lock=names,
            node=node,
            kind=lock.kind.name,
        )
