"""The local queue per name: one contender per process and name reaches the nodes (rule R13).

Tasks of one process that want the same name queue here, first in, first out, instead of fighting
each other over the network.  The gate is for calm, not for safety: who passes still has to win the
quorum.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from ._attempt import Attempt
    from ._holding import Holding
    from .errors import LockNotAcquiredError, LockTakenError


@final
@dataclass(slots=True, eq=False)
class Gate:
    """The queue of one name."""

    queue: deque[asyncio.Future[None]] = field(default_factory=deque)
    holding: Holding | None = None
    """The lease of this process that holds the name, once there is one."""
    attempt: Attempt | None = None
    """What the contender that is through the gate is trying."""
    refusal: LockNotAcquiredError | None = None
    """What the nodes said last to a contender."""
    single_tries: list[asyncio.Future[None]] = field(default_factory=list)
    """Turns in the queue that want the contender's first verdict, and no more."""

    def judged(self) -> None:
        """Send away who only waited for a verdict."""
        for turn in self.single_tries:
            turn.cancel()
        self.single_tries.clear()


@final
class Pass:
    """The right to contend for some names; `open` gives it to the next in line."""

    __slots__ = ("_gates", "names")

    def __init__(self, gates: Gates, names: tuple[str, ...]) -> None:
        self._gates = gates
        self.names = names

    def trying(self, attempt: Attempt) -> None:
        """Show who waits behind this pass what is being tried."""
        for name in self.names:
            self._gates[name].attempt = attempt

    def held_by(self, holding: Holding, taken: LockTakenError) -> None:
        """Tell who waits behind this pass that the names are held now."""
        for name in self.names:
            self._gates[name].holding = holding
        self.refused(taken)

    def refused(self, error: LockNotAcquiredError) -> None:
        """Tell who waits behind this pass what the nodes said last."""
        for name in self.names:
            gate = self._gates[name]
            gate.refusal = error
            gate.judged()

    def open(self) -> None:
        """Let the next in line through, once."""
        names, self.names = self.names, ()
        for name in names:
            self._gates.open(name)


@final
class Gates:
    """The gates of one manager, by name; a gate exists while somebody is through it."""

    __slots__ = ("_gates",)

    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}

    def __getitem__(self, name: str) -> Gate:
        return self._gates[name]

    def get(self, name: str) -> Gate | None:
        """Return the gate of `name` if somebody is through it."""
        return self._gates.get(name)

    def enter(self, name: str, *, single_try: bool) -> asyncio.Future[None] | None:
        """Pass the gate of `name`: None when it was free, else a future that is done when it is ours.

        A caller that stops waiting must call `leave` with the future.  The future of a single try is
        cancelled as soon as the contender before it has a verdict.
        """
        gate = self._gates.get(name)
        if gate is None:
            self._gates[name] = Gate()
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gate.queue.append(turn)
        if single_try:
            gate.single_tries.append(turn)
        return turn

    def leave(self, name: str, turn: asyncio.Future[None]) -> None:
        """Stop waiting; a turn that came in the same moment goes to the next in line."""
        if turn.done() and not turn.cancelled():
            self.open(name)
            return
        turn.cancel()
        gate = self._gates.get(name)
        if gate is not None and turn in gate.queue:
            gate.queue.remove(turn)

    def open(self, name: str) -> None:
        """Let the next in line through."""
        gate = self._gates[name]
        gate.holding = gate.attempt = None  # the last refusal stays: it is still the last that is known
        while gate.queue:
            turn = gate.queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._gates[name]

    @property
    def waiting(self) -> int:
        """How many tasks stand in a queue."""
        return sum(len(gate.queue) for gate in self._gates.values())
