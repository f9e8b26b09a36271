"""The local queue per name: one contender per process and name reaches the nodes (rule R13).

Tasks of one process that want the same name queue here, first in, first out, instead of fighting
each other over the network.  The gate is for calm, not for safety: who passes still has to win the
quorum.

Handing a name on inside the process takes no time at all, so that other processes, which only ask
now and then, would never find it free.  After a turn of the process its next contender therefore
waits a moment (`TURN`, `YIELD`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from ._attempt import Attempt
    from ._holding import Holding
    from .errors import LockNotAcquiredError, LockTakenError

MAX_WAITERS: Final = 65536
"""Tasks of one process that may wait for one name."""

TURN: Final = 0.25
"""Seconds for which one process may hand a name from task to task before it lets others ask."""

YIELD: Final = 0.025
"""Seconds for which it then keeps from asking: a tenth of its turn."""

MAX_TURNS: Final = 1024
"""Names whose turns are remembered after their gate has gone; the oldest gives way."""


@final
@dataclass(slots=True, eq=False)
class Place:
    """A place in the queue; `future` is done when it is first, or has been given up."""

    future: asyncio.Future[None]
    single_try: bool
    verdict: LockNotAcquiredError | None = None
    """What the contender before a single try was told: it waits for no more than that."""


@final
@dataclass(slots=True, eq=False)
class Gate:
    """The queue of one name."""

    queue: dict[Place, None] = field(default_factory=dict)
    holding: Holding | None = None
    """The lease of this process that holds the name, once there is one."""
    attempt: Attempt | None = None
    """What the contender that is through the gate is trying."""
    refusal: LockNotAcquiredError | None = None
    """What the nodes said last to a contender."""

    def judged(self, verdict: LockNotAcquiredError) -> None:
        """Send away who only waited for a verdict."""
        for place in [place for place in self.queue if place.single_try]:
            del self.queue[place]
            place.verdict = verdict
            place.future.cancel()


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
            gate = self._gates[name]
            gate.holding, gate.refusal = holding, None
            gate.judged(taken)

    def refused(self, error: LockNotAcquiredError) -> None:
        """Tell who waits behind this pass what the nodes said last."""
        for name in self.names:
            self._gates.lose_turn(name)
            gate = self._gates[name]
            gate.refusal = error
            gate.judged(error)

    def open(self) -> None:
        """Let the next in line through, once."""
        names, self.names = self.names, ()
        for name in names:
            self._gates.open(name)


@final
class Gates:
    """The gates of one manager, by name; a gate exists while somebody is through it."""

    __slots__ = ("_gates", "_turns")

    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}
        self._turns: dict[str, tuple[float, float]] = {}  # name → when the turn began, when it was last used

    def __getitem__(self, name: str) -> Gate:
        return self._gates[name]

    def get(self, name: str) -> Gate | None:
        """Return the gate of `name` if somebody is through it."""
        return self._gates.get(name)

    def enter(self, name: str, *, single_try: bool) -> Place | None:
        """Pass the gate of `name`: None when it was free, else a place in its queue.

        A caller that stops waiting must call `leave` with it.
        """
        gate = self._gates.get(name)
        if gate is None:
            self._gates[name] = Gate()
            return None
        place = Place(asyncio.get_running_loop().create_future(), single_try)
        gate.queue[place] = None
        return place

    def leave(self, name: str, place: Place) -> None:
        """Stop waiting; what came in the same moment goes to the next in line."""
        if place.future.done() and not place.future.cancelled():
            self.open(name)
            return
        place.future.cancel()
        if (gate := self._gates.get(name)) is not None:
            gate.queue.pop(place, None)

    def open(self, name: str) -> None:
        """Let the next in line through."""
        gate = self._gates[name]
        gate.holding = gate.attempt = None
        while gate.queue:
            place = next(iter(gate.queue))
            del gate.queue[place]
            if not place.future.done():
                place.future.set_result(None)
                return
        del self._gates[name]

    # -- turns of the process ------------------------------------------------------------------

    def pause_due(self, name: str, now: float) -> float:
        """Return the seconds that this process should keep from asking for `name` now."""
        began, used = self._turns.get(name, (now, now))
        if now - used >= YIELD:
            began = now  # others had their moment
        elif now - began >= TURN:
            self._turns.pop(name, None)
            return YIELD
        self._turns.pop(name, None)
        self._turns[name] = (began, now)
        if len(self._turns) > MAX_TURNS:
            del self._turns[next(iter(self._turns))]
        return 0.0

    def use_turn(self, name: str, now: float) -> None:
        """Note that this process gives `name` back now."""
        if name in self._turns:
            self._turns[name] = (self._turns[name][0], now)

    def lose_turn(self, name: str) -> None:
        """Note that somebody else has `name`: this process has had its turn."""
        self._turns.pop(name, None)
