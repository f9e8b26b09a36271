"""Errors: what their repr shows."""

from __future__ import annotations

import pytest

from aioredlock_ng import (
    LockError,
    LockLostError,
    LockTakenError,
    LossReason,
    ManagerClosedError,
    QuorumUnavailableError,
    Vote,
    WouldDeadlockError,
)
from aioredlock_ng.errors import NodeVote

VOTE = NodeVote("redis://h", Vote.SILENT, "no answer")
ERRORS = [
    (LockError("why"), "LockError('why')"),
    (LockTakenError("why", names=("a",), retry_after=1.0), "LockTakenError('why')"),
    (
        QuorumUnavailableError("why", votes=[VOTE]),
        "QuorumUnavailableError('why [redis://h silent (no answer)]')",
    ),
    (LockLostError("why", reason=LossReason.EXPIRED), "LockLostError('why')"),
    (WouldDeadlockError("it's"), 'WouldDeadlockError("it\'s")'),
    (ManagerClosedError("why"), "ManagerClosedError('why')"),
]


@pytest.mark.parametrize(("error", "shown"), ERRORS, ids=lambda value: type(value).__name__)
def test_an_errors_repr_is_its_class_and_its_message(error: LockError, shown: str) -> None:
    """As for any exception, and with the nodes' votes where there are any."""
    assert repr(error) == shown
