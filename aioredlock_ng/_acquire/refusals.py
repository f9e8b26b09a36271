"""What a call is told when a task of its own process is in its way: for that no node is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..errors import (
    LockNotAcquiredError,
    LockTakenError,
    QuorumUnavailableError,
    WouldDeadlockError,
    printable,
)

if TYPE_CHECKING:
    from .._hold.holding import Holding
    from .._local.local_queue import Gate
    from .._session.runtime import Runtime


def refuse_deadlock(runtime: Runtime, names: tuple[str, ...]) -> None:
    """Fail if this task, inside the body of a lease of ours, would wait for its own release."""
    task = asyncio.current_task()
    for name in names:
        gate = runtime.gates.get(name)
        body = gate.holding.body if gate is not None and gate.holding is not None else None
        if body is not None and body.task is task:
            msg = f"this task holds {printable((name,))} and would wait for itself (not reentrant)"
            raise WouldDeadlockError(msg, names=names)


def cooling(runtime: Runtime, names: tuple[str, ...]) -> LockTakenError | None:
    """Return the error for a name that stays taken after its release by this process, or None (R34)."""
    if not runtime.cooldowns or not (left := runtime.cooldowns.left(names, runtime.clock.now())):
        return None
    msg = f"lock {printable(names)} was released, but stays taken for {left:.3f} s yet (at_least)"
    return LockTakenError(msg, names=names, retry_after=left, holder=runtime.holder)


def held_here(runtime: Runtime, names: tuple[str, ...], holding: Holding) -> LockTakenError:
    """Return the error for a lock that this process holds."""
    return LockTakenError(
        f"lock {printable(names)} is held by this process",
        names=names,
        retry_after=max(0.0, holding.valid_until - runtime.clock.now()),
        holder=runtime.holder,
    )


def in_the_way(
    runtime: Runtime, names: tuple[str, ...], gate: Gate, verdict: LockNotAcquiredError | None = None
) -> LockNotAcquiredError:
    """Return the error for a call behind `gate`: what the nodes said last to the task before it (R13)."""
    if gate.holding is not None:
        return held_here(runtime, names, gate.holding)
    if (error := cooling(runtime, names)) is not None:
        return error
    last = verdict or gate.refusal
    if isinstance(last, LockTakenError):
        return LockTakenError(
            last.args[0], names=names, votes=last.votes, retry_after=last.retry_after, holder=last.holder
        )
    if last is not None:
        return QuorumUnavailableError(last.args[0], names=names, votes=last.votes)
    asked = None if gate.attempt is None else gate.attempt.asked
    if asked is None or asked.tally.pending or asked.tally.answered >= asked.tally.quorum:
        return LockTakenError(f"another task of this process is acquiring {printable(names)}", names=names)
    msg = f"lock {printable(names)}: too few nodes have answered yet"
    return QuorumUnavailableError(msg, names=names, votes=asked.votes())
