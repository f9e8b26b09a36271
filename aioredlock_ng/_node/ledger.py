"""The release ledger of one node: releases that it has not acknowledged (rule R5).

A release that is lost with its connection would leave a key until its ttl ends, and an acquire
that was under way on that connection may even be executed after the release that follows it.  So
both are written down here: releases are sent again, first on the next connection, and the release
of an *unanswered* acquire is repeated until no key of its owner can exist any more.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, final

from .._core.command import Command, Reply, Silence, Sink, deleted_any

LEDGER_LIMIT: Final = 16384
"""Releases, and unanswered acquires, that one node's ledger holds; the oldest gives way."""


PAID_AT_ONCE: Final = 1024
"""Releases repeated at one look: a server that answers with errors is not flooded with them."""


@final
@dataclass(slots=True)
class _Doubt:
    """A creating command that may still be executed."""

    until: float
    """When its key has certainly ended."""
    keeps: float
    """How long its key can live, in seconds."""


@final
class Debt:
    """A release that a node owes us an answer to; the sink of its own repetitions."""

    __slots__ = ("_ledger", "asker", "command", "doubtful", "sent", "until")

    def __init__(self, ledger: Ledger, command: Command, until: float, *, doubtful: bool) -> None:
        self._ledger = ledger
        self.command = command
        self.until = until
        self.doubtful = doubtful
        self.sent = False
        self.asker: tuple[Sink, int] | None = None
        """The release's own sink, and the node's number there: it gets the answer that settles this."""

    @property
    def pending(self) -> bool:
        """A release is always worth sending."""
        return True

    def on_reply(self, node: int, reply: Reply) -> None:
        """Settle the debt, unless the answer leaves it open."""
        self.sent = False
        if isinstance(reply, Silence):
            return
        # "Was not held" settles nothing while the acquire may still be executed.
        if deleted_any(reply) or not self.doubtful:
            self._ledger.settle(self.command.owner)
            if self.asker is not None:
                sink, index = self.asker
                sink.on_reply(index, reply)


@final
class Ledger:
    """What one node owes, by owner.  Times are the manager's clock."""

    __slots__ = ("_debts", "_doubts", "dropped")

    def __init__(self) -> None:
        self._debts: OrderedDict[bytes, Debt] = OrderedDict()
        self._doubts: OrderedDict[bytes, _Doubt] = OrderedDict()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._debts)

    def doubt(self, command: Command, now: float) -> None:
        """Note that `command`, which creates a key, was under way when its connection ended."""
        known = self._doubts.get(command.owner, _Doubt(0.0, 0.0))
        self._doubts[command.owner] = _Doubt(
            max(known.until, now + command.keeps), max(known.keeps, command.keeps)
        )
        if debt := self._debts.get(command.owner):
            debt.doubtful = True
            debt.until = max(debt.until, now + command.keeps)
        if len(self._doubts) > LEDGER_LIMIT:
            self._doubts.popitem(last=False)
            self.dropped += 1

    def in_doubt(self, owner: bytes) -> bool:
        """Whether an acquire of `owner` may still be executed behind our back."""
        return bool(self._doubts) and owner in self._doubts

    def owe(self, command: Command, now: float, sink: Sink | None = None, index: int = 0) -> None:
        """Note a release that the node has not acknowledged; `sink` and `index` as in `follow`."""
        if command.owner in self._debts:
            return
        doubtful = self.in_doubt(command.owner)
        until = now + command.keeps
        if doubtful:
            until = max(until, self._doubts[command.owner].until)
        self._debts[command.owner] = Debt(self, command, until, doubtful=doubtful)
        if sink is not None:
            self.follow(command.owner, sink, index)
        if len(self._debts) > LEDGER_LIMIT:
            self._debts.popitem(last=False)
            self.dropped += 1

    def follow(self, owner: bytes, sink: Sink, index: int) -> None:
        """Let `sink` have the answer that settles the debt of `owner`, as of its node `index`."""
        debt = self._debts.get(owner)
        if debt is not None and debt.asker is None and sink is not debt:
            debt.asker = sink, index

    def settle(self, owner: bytes) -> None:
        """Strike out what is owed for `owner`."""
        self._debts.pop(owner, None)
        self._doubts.pop(owner, None)

    def reconnected(self, now: float) -> None:
        """Start the time of every doubt anew.

        A server that was frozen executes what had arrived when it goes on, even when the connection
        was reset meanwhile: a key may begin to live as late as now.
        """
        for owner, doubt in self._doubts.items():
            doubt.until = now + doubt.keeps
            if debt := self._debts.get(owner):
                debt.until = max(debt.until, doubt.until)

    def due(self, now: float) -> list[Debt]:
        """Return what to send now; forget what has ended with its ttl."""
        for owner in [owner for owner, doubt in self._doubts.items() if doubt.until <= now]:
            del self._doubts[owner]
        for owner in [owner for owner, debt in self._debts.items() if debt.until <= now]:
            del self._debts[owner]
        due = [debt for debt in self._debts.values() if not debt.sent][:PAID_AT_ONCE]
        for debt in due:  # to the end of the line: the others get their turn
            self._debts[debt.command.owner] = self._debts.pop(debt.command.owner)
        return due
