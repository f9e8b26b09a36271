"""The question for a semaphore's permit: a tally for each slot (R24, R25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from .._core.command import Answer
from .._core.quorum import Verdict, Vote
from .._core.slots import ANY, most_granted
from .._kinds.primitive import Primitive
from .asked import GrantRound
from .round import Asks

ORPHANED: Final = Answer(Vote.REFUSED, "granted another slot, which goes back")
"""What the grant of another slot is worth once one is won."""


def grant_round(outbox: Asks, primitive: Primitive) -> GrantRound:
    """Return the question for a lock that is no batch's."""
    return (SlotRound if primitive.kind.no_slot else GrantRound)(outbox, primitive.read_acquire)


@final
class SlotRound(GrantRound):
    """WON with Q grants of one slot, LOST as soon as no slot can have as many.

    What `granted` counts is the slot that most nodes granted; the grants of others count as refusals.
    """

    slot = ANY
    """The slot that was won, once one is."""
    _give_back: Callable[[list[int]], object] | None = None

    def take(self, node: int, answer: Answer) -> None:
        """Take a node's answer; one that comes after the win may still be the grant of another slot."""
        orphaned = self.verdict is Verdict.WON and answer.vote is Vote.GRANTED and answer.slot != self.slot
        super().take(node, ORPHANED if orphaned else answer)
        if orphaned and self._give_back is not None:
            self._give_back([node])

    def cast(self, vote: Vote) -> Verdict:
        """Count the vote that was put among the answers."""
        self.pending -= 1
        granted = [a.slot for a in self.answers if a is not None and a.vote is Vote.GRANTED]
        slot, self.granted = most_granted(granted)
        self.silent += vote is Vote.SILENT
        self.refused = self.size - self.pending - self.silent - self.granted
        if self.verdict is not Verdict.PENDING:
            return self.verdict
        if self.granted == self.quorum:
            self.verdict, self.slot = Verdict.WON, slot
            self.answers = [ORPHANED if self._is_stray(answer) else answer for answer in self.answers]
        elif self.granted + self.pending < self.quorum:
            self.verdict = Verdict.LOST
        return self.verdict

    def _is_stray(self, answer: Answer | None) -> bool:
        return answer is not None and answer.vote is Vote.GRANTED and answer.slot != self.slot

    def won(self, primitive: Primitive) -> Primitive:
        """Return the slot that was won."""
        return primitive if self.slot == ANY else primitive.at(self.slot)

    def settle(self, give_back: Callable[[list[int]], object]) -> None:
        """Have `give_back` called with the nodes that granted another slot than the one that was won.

        At once, and again for each that answers later.
        """
        self._give_back = give_back
        give_back([node for node, answer in enumerate(self.answers) if answer is ORPHANED])
