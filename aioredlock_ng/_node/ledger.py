"""The release ledger of one node: releases that it has not acknowledged (rule R5).

A release that is lost with its connection would leave a key until its ttl ends.  An acquire that was in
flight on that connection may even be executed after the release that follows it.  So both are recorded here:
releases are sent again, before anything else on the next connection, and the release of an *unanswered*
acquire is repeated until no key of its owner can exist any more.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import ClassVar, Final, final

from .._core.command import Command, Receiver, Reply, Silence, deleted_any

LEDGER_LIMIT: Final = 16384
"""Releases, and unanswered acquires, that one node's ledger holds; beyond it the oldest is dropped."""


REPEATED_AT_ONCE: Final = 1024
"""Releases repeated at one check: a server that answers with errors is not flooded with them."""


@final
@dataclass(slots=True)
class _Unresolved:
    """A creating command without an answer, which may still be executed."""

    until: float
    """When its key has certainly ended."""
    keeps: float
    """Seconds that its key can live."""
    another: bool = False
    """Whether another command may have set the owner's key since: a deletion says nothing of this one."""


@final
@dataclass(slots=True, eq=False)
class PendingRelease:
    """A release that the node has not acknowledged; it receives the answers to its own repetitions."""

    ledger: Ledger
    command: Command
    until: float
    unresolved: bool
    """Whether the owner's acquire may still be executed."""
    sent: bool = False
    asker: tuple[Receiver, int] | None = None
    """The round of the release, and the node's index there: it gets the answer that settles this."""
    awaited: ClassVar = True  # a release is always worth sending

    def on_reply(self, node: int, reply: Reply) -> None:
        """Settle the release, unless the answer leaves it open."""
        self.sent = False
        if isinstance(reply, Silence):
            return
        # "Was not held" settles nothing while the acquire may still be executed.  A deletion shows that it
        # was, unless what was deleted may be the key of a repair.
        settles = deleted_any(reply) and not self.ledger.has_another(self.command.owner)
        if settles or not self.unresolved:
            self.ledger.remove(self.command.owner)
            if self.asker is not None:
                receiver, index = self.asker
                receiver.on_reply(index, reply)


@final
class Ledger:
    """The releases that one node has not acknowledged, by owner.  Times are the manager's clock."""

    def __init__(self) -> None:
        self._releases: OrderedDict[bytes, PendingRelease] = OrderedDict()
        self.unresolved: OrderedDict[bytes, _Unresolved] = OrderedDict()
        """The owners whose acquires may still be executed behind our back."""
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._releases)

    def record_unresolved(self, command: Command, now: float) -> None:
        """Note that `command`, which creates a key, was under way when its connection ended."""
        # An owner can have several such commands, such as an acquire and a repair: the longest counts.
        known = self.unresolved.get(command.owner)
        if known is None:
            self.unresolved[command.owner] = _Unresolved(now + command.keeps, command.keeps)
        else:
            known.until, known.keeps = max(known.until, now + command.keeps), max(known.keeps, command.keeps)
            known.another = True
        # The release is recorded already: from now on "was not held" does not settle it.
        if release := self._releases.get(command.owner):
            release.unresolved = True
            release.until = max(release.until, now + command.keeps)
        if len(self.unresolved) > LEDGER_LIMIT:
            self.unresolved.popitem(last=False)
            self.dropped += 1

    def note_another(self, owner: bytes) -> None:
        """Note that a repair sets the key of `owner`, too (R9)."""
        if owner in self.unresolved:
            self.unresolved[owner].another = True

    def has_another(self, owner: bytes) -> bool:
        """Whether several commands may have set, or may still set, the key of `owner`."""
        return owner in self.unresolved and self.unresolved[owner].another

    def record(self, command: Command, now: float, receiver: Receiver | None = None, index: int = 0) -> None:
        """Note a release that is not acknowledged; `receiver` gets the answer that settles it."""
        if command.owner in self._releases:
            return
        # A fair lock: the process's next call may have its seat by the time of a repetition.
        if command.repeated:
            command = replace(command, args=command.repeated)
        unresolved = command.owner in self.unresolved
        until = now + command.keeps
        if unresolved:
            until = max(until, self.unresolved[command.owner].until)
        self._releases[command.owner] = PendingRelease(self, command, until, unresolved)
        if receiver is not None:
            self._releases[command.owner].asker = receiver, index
        if len(self._releases) > LEDGER_LIMIT:
            self._releases.popitem(last=False)
            self.dropped += 1

    def remove(self, owner: bytes) -> None:
        """Remove the records of `owner`."""
        self._releases.pop(owner, None)
        self.unresolved.pop(owner, None)

    def reconnected(self, now: float) -> None:
        """Start the time of every unresolved command again.

        A server that was frozen executes the commands that had arrived once it goes on, even if the
        connection was reset meanwhile: a key may begin to live as late as now.
        """
        for owner, unresolved in self.unresolved.items():
            unresolved.until = now + unresolved.keeps
            if release := self._releases.get(owner):
                release.until = max(release.until, unresolved.until)

    def due(self, now: float) -> list[PendingRelease]:
        """Return the releases to send now; forget those whose keys have ended with their ttl."""
        for owner in [owner for owner, command in self.unresolved.items() if command.until <= now]:
            del self.unresolved[owner]
        for owner in [owner for owner, release in self._releases.items() if release.until <= now]:
            del self._releases[owner]
        due = [release for release in self._releases.values() if not release.sent][:REPEATED_AT_ONCE]
        # They go to the end, so that the others are sent at the next check.
        for release in due:
            self._releases[release.command.owner] = self._releases.pop(release.command.owner)
        return due
