"""Ends a call in the queue of a name when the task before it has found no quorum for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from .._round.futures import give_up
from ..errors import QuorumUnavailableError

if TYPE_CHECKING:
    from .._local.local_queue import Gate, Place
    from .._session.runtime import Runtime
    from .waiting import Patience

LOOKS: Final = 10
"""How often, within its time, a call looks whether the task before it misses a quorum, at most."""


@final
class QuorumWatch:
    """Looks for one `place` in the queue of `gate`, until it is cancelled.

    The task that is through the gate asks the nodes for all behind it; they go by what it was told.
    """

    __slots__ = ("_gate", "_patience", "_place", "_runtime", "_timer")

    def __init__(self, runtime: Runtime, patience: Patience, gate: Gate, place: Place) -> None:
        self._runtime = runtime
        self._patience = patience
        self._gate = gate
        self._place = place
        self._look_in(patience.quorum_left(0.0))

    def cancel(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look_in(self, seconds: float) -> None:
        self._timer = self._runtime.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        gate, left = self._gate, self._patience.quorum_left(self._gate.answered_at)
        missing = gate.holding is None and isinstance(gate.refusal, QuorumUnavailableError)
        if missing and left <= 0:
            self._place.verdict = gate.refusal
            give_up(self._place.future)
            return
        least = self._runtime.node_timeout
        if not missing:
            least = max(least, (self._patience.for_quorum or 0.0) / LOOKS)
        self._look_in(max(left, least))
