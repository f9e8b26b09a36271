"""What a leader announces: at its win, and with each extension for nodes that were not reached (R31)."""

from __future__ import annotations

from typing import final

from .._core.command import Reply
from .._core.election import Leader
from .._round.outbox import Outbox
from .._round.releases import Releases
from .subject import Subject


@final
class Announcement:
    """One leader's, as the sink of its own commands: what they come to is of no consequence."""

    __slots__ = ("_outbox", "_releases", "_said_goodbye", "_subject", "leader")

    def __init__(self, outbox: Outbox, releases: Releases, subject: Subject, leader: Leader) -> None:
        self._outbox = outbox
        self._releases = releases
        self._subject = subject
        self._said_goodbye = False
        self.leader = leader

    def repeat(self) -> None:
        """Tell all nodes; a term that was won stays won, so that this is never too late."""
        self._outbox.drain()  # what was asked before comes before it
        command = self._subject.announce(self.leader)
        for index, node in enumerate(self._outbox.nodes):
            node.submit(command, self, index)

    def say_goodbye(self) -> None:
        """Have observers look, once: the leader has given up its lock."""
        if not self._said_goodbye:
            self._said_goodbye = True
            self._releases.announce(self._subject.announced)

    @property
    def awaited(self) -> bool:
        """As a `Receiver`: a server that has forgotten the script is told it once more."""
        return True

    def on_reply(self, node: int, reply: Reply) -> None:
        """Nothing to do: the next extension announces again."""
