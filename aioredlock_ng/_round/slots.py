"""The acquire of a semaphore's permit: a tally for each slot (R24, R25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from .._core.command import Answer
from .._core.quorum import Verdict, Vote
from .._core.slots import ANY, most_granted
from .._kinds.primitive import Primitive
from .asked import GrantRound
from .round import Asks

ORPHANED: Final = Answer(Vote.REFUSED, "granted another slot, which is released again")
"""Replaces the grant of another slot than the one that was won."""


def grant_round(outbox: Asks, primitive: Primitive) -> GrantRound:
    """Return a round that acquires a lock without a batch."""
    return (SlotRound if primitive.kind.no_slot else GrantRound)(outbox, primitive.read_acquire)


@final
class SlotRound(GrantRound):
    """WON with Q grants of one slot, LOST as soon as no slot can reach Q.

    `granted` counts the grants of the slot that most nodes granted; grants of other slots count as refusals.
    """

    slot = ANY
    """The slot that was won, after the win."""
    _give_back: Callable[[list[int]], object] | None = None

    def take(self, node: int, answer: Answer) -> None:
        """Take a node's answer; one that comes after the win may still grant another slot."""
        orphaned = self.verdict is Verdict.WON and answer.vote is Vote.GRANTED and answer.slot != self.slot
        super().take(node, ORPHANED if orphaned else answer)
        # The holding exists already, and learns at once of a slot that it has to release there.  Before
        # that, `settle` finds the orphaned slot among the answers.
        if orphaned and self._give_back is not None:
            self._give_back([node])

    def cast(self, vote: Vote) -> Verdict:
        """Count the vote that was just stored in `answers`."""
        self.pending -= 1
        # Example: of five nodes two have granted slot 0 to this call, two slot 1, and one has not answered.
        # That is two granted, two refused, one pending, and either slot may still win.
        granted = [a.slot for a in self.answers if a is not None and a.vote is Vote.GRANTED]
        slot, self.granted = most_granted(granted)
        self.silent += vote is Vote.SILENT
        # Not counted one by one: when another slot takes the lead, grants become refusals.
        self.refused = self.size - self.pending - self.silent - self.granted
        # The verdict stands; only the numbers change.
        if self.verdict is not Verdict.PENDING:
            return self.verdict
        # Won: grants of other slots are worth nothing now, and go back once there is a holding.
        if self.granted == self.quorum:
            self.verdict, self.slot = Verdict.WON, slot
            self.answers = [ORPHANED if self._is_stray(answer) else answer for answer in self.answers]
        # Lost: even if all missing answers are for the leading slot, it falls short.
        elif self.granted + self.pending < self.quorum:
            self.verdict = Verdict.LOST
        return self.verdict

    def _is_stray(self, answer: Answer | None) -> bool:
        return answer is not None and answer.vote is Vote.GRANTED and answer.slot != self.slot

    def won(self, primitive: Primitive) -> Primitive:
        """Return the primitive at the slot that was won."""
        return primitive if self.slot == ANY else primitive.at(self.slot)

    def settle(self, give_back: Callable[[list[int]], object]) -> None:
        """Call `give_back` with the nodes that granted another slot than the one that was won.

        Called at once, and again for each such node that answers later.
        """
        # Set first: a late answer during the call below is given back by `take`.
        self._give_back = give_back
        give_back([node for node, answer in enumerate(self.answers) if answer is ORPHANED])
