"""The local queue per name: one contender per process and name reaches the nodes (rule R13).

Tasks of one process that want the same name queue here, first in, first out, instead of fighting
each other over the network.  The gate is for calm, not for safety: who passes still has to win the
quorum.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from .._round.futures import give_up
from .admission import Admission

if TYPE_CHECKING:
    from .._acquire.attempt import Attempt
    from .._hold.holding import Holding
    from ..errors import LockNotAcquiredError, LockTakenError

MAX_WAITERS: Final = 65536
"""Tasks of one process that may wait for one name."""


@final
@dataclass(slots=True, eq=False)
class Place:
    """A place in the queue; `future` is True when it is first, False when waiting is over."""

    future: asyncio.Future[bool]
    alone: bool
    """Whether this name is all that is wanted: then who is first asks at once."""
    verdict: LockNotAcquiredError | None = None
    """What the contender before a single try was told: it waits for no more than that."""


@final
@dataclass(slots=True, eq=False)
class Gate:
    """The queue of one name."""

    queue: OrderedDict[Place, None] | None = None
    """Who waits, once somebody has; most gates are passed without."""
    holding: Holding | None = None
    """The lease of this process that holds the name, once there is one."""
    attempt: Attempt | None = None
    """What the contender that is through the gate is trying."""
    refusal: LockNotAcquiredError | None = None
    """What the nodes said last to a contender."""
    answered_at: float = 0.0
    """Since when no quorum has answered, by the manager's clock, if that is the `refusal`."""
    untold: bool = False
    """Whether the last release was not published, and no task has asked since; a place is kept for one."""
    tries: list[Place] | None = None
    """The places of single tries: they wait for a verdict on the contender, not for their turn."""

    @property
    def next_asks(self) -> bool:
        """Whether the first in the queue asks as soon as it is let through."""
        for place in self.queue or ():
            if not place.future.done():
                return place.alone
        return False

    def judged(self, verdict: LockNotAcquiredError) -> None:
        """Send away those that waited for no more than a verdict; each leaves the queue itself."""
        tries, self.tries = self.tries, None
        for place in tries or ():
            place.verdict = verdict
            give_up(place.future)


@final
class Pass:
    """The right to contend for some names; `open` gives it to the next in line."""

    __slots__ = ("_gates", "names")

    def __init__(self, gates: Gates, names: tuple[str, ...]) -> None:
        self._gates = gates
        self.names = names

    def take_place(self) -> bool:
        """Take over the place among the tries in flight that was kept for this pass, if one was."""
        gate = self._gates[self.names[0]]
        kept, gate.untold = gate.untold, False
        return kept

    def trying(self, attempt: Attempt) -> None:
        """Show who waits behind this pass what is being tried."""
        for name in self.names:
            self._gates[name].attempt = attempt

    def held_by(self, holding: Holding, taken: Callable[[], LockTakenError]) -> None:
        """Tell who waits behind this pass that the names are held now."""
        for name in self.names:
            gate = self._gates[name]
            gate.holding, gate.refusal = holding, None
            if gate.tries:
                gate.judged(taken())
            if not gate.queue:
                self._gates.on_idle(name)

    def hand_on(self) -> bool:
        """Tell whether somebody else of this process asks as soon as this pass is opened.

        If so, the release need not be published, and a place is kept for the question.
        """
        if len(self.names) != 1:
            return False
        gate = self._gates[self.names[0]]
        gate.untold = gate.next_asks and self._gates.admission.reserve()
        return gate.untold

    def refused(self, error: LockNotAcquiredError, answered_at: float) -> None:
        """Tell the tasks behind this pass what the nodes said last, and when a quorum last answered."""
        for name in self.names:
            gate = self._gates[name]
            gate.refusal, gate.answered_at = error, answered_at
            gate.judged(error)

    def open(self) -> None:
        """Let the next in line through, once."""
        names, self.names = self.names, ()
        for name in names:
            self._gates.open(name)


@final
class Gates:
    """The gates of one manager, by name; a gate exists while somebody is through it."""

    __slots__ = ("_gates", "admission", "on_idle", "on_untold")

    def __init__(
        self, admission: Admission, on_idle: Callable[[str], None], on_untold: Callable[[str], None]
    ) -> None:
        self._gates: dict[str, Gate] = {}
        self.admission = admission
        self.on_idle = on_idle
        """Called when nobody waits for a name any more, whether or not it is held."""
        self.on_untold = on_untold
        """Called when a name is free, and nobody has been told."""

    def __getitem__(self, name: str) -> Gate:
        return self._gates[name]

    def get(self, name: str) -> Gate | None:
        """Return the gate of `name` if somebody is through it."""
        return self._gates.get(name)

    def enter(self, name: str) -> bool:
        """Pass the gate of `name` if it is free; else ask for a place in its `queue`."""
        if name in self._gates:
            return False
        self._gates[name] = Gate()
        return True

    def queue(self, name: str, *, single_try: bool, alone: bool) -> Place:
        """Return a place in the queue of `name`; who stops waiting there must call `leave`."""
        place = Place(asyncio.get_running_loop().create_future(), alone)
        gate = self._gates[name]
        if gate.queue is None:
            gate.queue = OrderedDict()
        gate.queue[place] = None
        if single_try:
            gate.tries = gate.tries or []
            gate.tries.append(place)
        return place

    def leave(self, name: str, place: Place) -> None:
        """Stop waiting; what came in the same moment goes to the next in line."""
        future = place.future
        if future.done() and not future.cancelled() and future.result():
            self.open(name)
            return
        future.cancel()
        gate = self._gates.get(name)
        if gate is not None and gate.queue and place in gate.queue:
            del gate.queue[place]
            if not gate.queue and gate.holding is not None:
                self.on_idle(name)

    def open(self, name: str) -> None:
        """Let the next in line through."""
        gate = self._gates[name]
        gate.holding = gate.attempt = None
        while gate.queue:
            place, _ = gate.queue.popitem(last=False)
            if not place.future.done():
                if not place.alone:  # it may have to wait for other names first
                    self._tell(name, gate)
                place.future.set_result(True)
                return
        del self._gates[name]
        self.on_idle(name)
        self._tell(name, gate)

    def _tell(self, name: str, gate: Gate) -> None:
        """Make up for a quiet release if the task that the name was handed to has gone without asking."""
        if gate.untold:
            gate.untold = False
            self.admission.leave()
            self.on_untold(name)
