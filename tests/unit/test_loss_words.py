"""In what words the end of a lease's validity is told, with the votes that explain it."""

from __future__ import annotations

import pytest

from aioredlock_ng import LossReason
from aioredlock_ng._core.quorum import Vote
from aioredlock_ng._hold.loss import lost_error
from aioredlock_ng.errors import NodeVote


@pytest.mark.parametrize(
    ("granted", "told"),
    [
        (0, "its validity ended before a majority extended it"),
        (1, "its validity ended before a majority extended it"),
        (2, "its validity had ended when a majority extended it; these votes came too late"),
        (3, "its validity had ended when a majority extended it; these votes came too late"),
    ],
)
def test_votes_that_came_too_late_are_called_so(granted: int, told: str) -> None:
    """Grants of a majority beside a loss would contradict it."""
    votes = tuple(NodeVote(f"node-{i}", Vote.GRANTED if i < granted else Vote.SILENT, "") for i in range(3))
    assert told in str(lost_error(("x",), LossReason.EXPIRED, votes, extensions=0))
