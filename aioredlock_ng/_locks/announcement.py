"""A leader's announcements: at its win, and with each extension for nodes that were not reached (R31)."""

from __future__ import annotations

from typing import final

from .._core.command import Reply
from .._core.election import Leader
from .._round.outbox import Outbox
from .._round.releases import Releases
from .subject import Subject


@final
class Announcement:
    """The announcement of one leader; it receives the answers to its own commands, and ignores them."""

    __slots__ = ("_outbox", "_releases", "_said_goodbye", "_subject", "leader")

    def __init__(self, outbox: Outbox, releases: Releases, subject: Subject, leader: Leader) -> None:
        self._outbox = outbox
        self._releases = releases
        self._subject = subject
        self._said_goodbye = False
        self.leader = leader

    def repeat(self) -> None:
        """Announce the term on all nodes; a term that was won stays won, so that this is never too late."""
        self._outbox.drain()  # commands from before this one are sent before it
        command = self._subject.announce(self.leader)
        for index, node in enumerate(self._outbox.nodes):
            node.submit(command, self, index)

    def say_goodbye(self) -> None:
        """Notify observers, once, that the leader has given up its lock."""
        if not self._said_goodbye:
            self._said_goodbye = True
            self._releases.announce(self._subject.announced)

    @property
    def awaited(self) -> bool:
        """As in `Receiver`: a server that has forgotten the script is sent it once more."""
        return True

    def on_reply(self, node: int, reply: Reply) -> None:
        """Do nothing: the next extension announces again."""
