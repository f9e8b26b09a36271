"""Losing a lock on purpose: for tests of what users' code does then."""

from __future__ import annotations

from typing import Final

from .._manager import LockManager
from ..errors import LossReason, printable
from ._bypass import bypassed

FORCIBLE: Final = (LossReason.REFUSED, LossReason.EXPIRED)
"""The losses that come from outside; the other reasons are the holder's own doing."""


def lose(manager: LockManager, name: str, reason: LossReason = LossReason.REFUSED) -> None:
    """Take the lock `name` away from `manager` now, as if the nodes or the clock had done it.

    The holder sees a real loss: the block under the lock is cancelled, `Lease.lost` is set, hooks are
    called, and the block ends in `LockLostError`.  `Lease.held` is False from now on.  The key on the
    nodes goes with the release at the end of the block, as after a real loss.  Of several read locks that
    the manager has under the name all are lost.

    Args:
        manager: a manager that holds the lock; of its own loop, which must be the running one.
        name: the lock's name, or one of its names.
        reason: ``REFUSED``, as if a majority had said that the key is gone, or ``EXPIRED``, as if
            validity had ended before an extension was won.

    Raises:
        LookupError: the manager holds no lock of this name; the message says which ones it holds.
        ValueError: any other reason: `LockManager.aclose`, `Lease.release` and a policy with few
            extensions bring those about.
        RuntimeError: called from outside the manager's loop.
    """
    if reason not in FORCIBLE:
        raise ValueError(f"reason must be one of {', '.join(FORCIBLE)}, got {reason!r}")
    life = manager._life  # noqa: SLF001 (users have no way to it, for good reason)
    sessions = bypassed(life) if life.session is None else [life.session, *bypassed(life)]
    held = [(r, h) for r in sessions for h in r.watchdog.leases if h.held and h.loss is None]
    losing = [(session, holding) for session, holding in held if name in holding.names]
    if not losing:
        names = printable(sorted({name for _, holding in held for name in holding.names}))
        raise LookupError(f"this manager does not hold {name!a}; it holds {names or 'nothing'}")
    for session, holding in losing:
        session.check_here()
        if reason is LossReason.EXPIRED:
            holding._grant = holding._grant._replace(valid_until=session.clock.now())  # noqa: SLF001
        holding.lose(reason)
