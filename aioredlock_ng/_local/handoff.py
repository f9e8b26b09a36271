"""Turns: a process that hands a name from task to task lets other processes have it (rule R13).

When a name is handed on inside the process, the next acquire leaves in the same write as the release before
it, and nobody else is told.  So that others get in, a turn is bounded in time and in count.  The release that
ends it is told to all who listen, and the next contender of this process lets them ask first: for `YIELD`
seconds, or until the next release, if anybody listened or nobody can be told; else for a `GLIMPSE`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from .._round.round import Round

TURN: Final = 0.05
"""Seconds for which one process may hand a name from task to task before it lets others ask."""

MAX_HAND_OFFS: Final = 1024
"""How often it may do so in one turn."""

YIELD: Final = 0.025
"""Seconds for which it then keeps from asking, at most: who began to poll lately has asked by then."""

GLIMPSE: Final = 0.001
"""Seconds for which it keeps from asking when nobody listens: who polls may still be there."""

MAX_TURNS: Final = 1024
"""Names whose turns are remembered after their gate has gone; the oldest gives way."""


@final
@dataclass(slots=True, eq=False)
class Turn:
    """A stretch of time in which this process has had a name again and again."""

    began: float
    used: float
    """When the name was last given back; before that, when it was taken."""
    count: int = 0
    """How often it was given back."""
    over: bool = False
    release: Round | None = None
    """The release that ended it: set by who was told that it is over."""
    listened: bool = False
    """Whether this process itself listened to that release."""


@final
class Turns:
    """The turns of one process, by name.  Times are the manager's clock."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: OrderedDict[str, Turn] = OrderedDict()

    def take(self, name: str, now: float) -> Turn | None:
        """Note that this process is about to ask for `name`; returns a turn that is over, once."""
        turn = self._turns.get(name)
        if turn is not None and now - turn.used < YIELD:
            if not turn.over:
                return None
        else:
            turn = None  # others had their moment
        self._turns[name] = Turn(now, now)
        self._turns.move_to_end(name)
        if len(self._turns) > MAX_TURNS:
            self._turns.popitem(last=False)
        return turn

    def give_back(self, name: str, now: float) -> Turn | None:
        """Note that this process gives `name` back; returns its turn if this release ends it."""
        turn = self._turns.get(name)
        if turn is None:
            return None
        turn.used = now
        turn.count += 1
        turn.over = now - turn.began >= TURN or turn.count >= MAX_HAND_OFFS
        return turn if turn.over else None

    def lose(self, name: str) -> None:
        """Note that somebody else has `name`: this process has had its turn."""
        self._turns.pop(name, None)
