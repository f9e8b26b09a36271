"""The subscriptions of one node, without I/O (rule R13).

The channels that a manager wants and those that the server has been asked for can differ: a command may find
no connection or no room, and a connection may end.  So every channel remembers both, and the owner of the
connection has the difference sent: at each change, when it is connected, and at each check of the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast, final

from .._core.command import Command, Purpose, Receiver, Reply, Silence
from .pipe import PUSH

MAX_CHANNELS: Final = 8192
"""Channels of one node; a waiter for a channel beyond that is not notified, and polls."""

SENT_AT_ONCE: Final = 1024
"""Subscriptions that one check sends: commands of locks find room between them."""

_SUBSCRIBE: Final = b"SUBSCRIBE"
_UNSUBSCRIBE: Final = b"UNSUBSCRIBE"
_SUBSCRIBED: Final = b"subscribe"

_FOR_GOOD: Final = ("NOPERM", "ERR")
"""Beginnings of errors that would come again on the same connection: no right, no such command."""


def is_refusal(command: Command, message: str) -> bool:
    """Whether an error reply to `command` says that the server refuses to let us subscribe."""
    return command.verb in (_SUBSCRIBE, _UNSUBSCRIBE) and message.startswith(_FOR_GOOD)


def listening(verb: bytes, channel: bytes) -> Command:
    """Build a command that is confirmed, in the order of all answers, by a push of its own kind."""

    def fits(reply: object) -> bool:
        return type(reply) is PUSH and reply[:2] == [verb.lower(), channel]

    return Command(Purpose.OTHER, owner=b"", fits=fits, keys=(channel,), verb=verb)


@final
class _Channel:
    """One channel on one connection; the receiver of the answers to its commands."""

    awaited = True
    __slots__ = ("_channels", "asked", "name", "refused", "stands", "unanswered", "wanted")

    def __init__(self, name: bytes, channels: Channels) -> None:
        self._channels = channels
        self.name = name
        self.wanted = True
        self.asked = False
        """Whether the last command that was sent for it was a SUBSCRIBE."""
        self.unanswered = 0
        self.stands = False
        """Whether we are subscribed, by the last confirmation."""
        self.refused = False
        """Whether the server refuses it, for as long as this connection lasts."""

    def on_reply(self, node: int, reply: Reply) -> None:
        """Take the confirmation of one command, or the silence instead of it."""
        self.unanswered -= 1
        if not isinstance(reply, Silence):
            self.stands = cast("list[object]", reply)[0] == _SUBSCRIBED
        elif reply.reason.startswith(_FOR_GOOD):
            self.refused = True
        self._channels.reconcile(self)


@final
class Channels:
    """The channels of one node.

    `send` queues a command, whose reply comes later, or returns False when it cannot do so now.
    """

    def __init__(self, send: Callable[[Command, Receiver], bool]) -> None:
        self._send = send
        self._by_name: dict[bytes, _Channel] = {}
        self._unsent: dict[bytes, _Channel] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, name: bytes) -> None:
        """Subscribe to a channel, if there is room for one more."""
        channel = self._by_name.get(name)
        if channel is None:
            if len(self._by_name) >= MAX_CHANNELS:
                return
            channel = self._by_name[name] = _Channel(name, self)
        channel.wanted = True
        self._send_wanted(channel)

    def remove(self, name: bytes) -> None:
        """Unsubscribe from a channel."""
        if channel := self._by_name.get(name):
            channel.wanted = False
            self._send_wanted(channel)
            self.reconcile(channel)

    def _send_wanted(self, channel: _Channel) -> bool:
        """Send the command that is wanted now, unless it was the last one sent; False if there is no room."""
        self._unsent.pop(channel.name, None)
        if channel.wanted is channel.asked or channel.refused:
            return True
        verb = _SUBSCRIBE if channel.wanted else _UNSUBSCRIBE
        if not self._send(listening(verb, channel.name), channel):
            self._unsent[channel.name] = channel
            return False
        channel.asked = channel.wanted
        channel.unanswered += 1
        return True

    def send_unsent(self) -> None:
        """Send what could not be sent before, as far as there is room now."""
        for channel in list(self._unsent.values())[:SENT_AT_ONCE]:
            if not self._send_wanted(channel):
                return

    def reconcile(self, channel: _Channel) -> None:
        """Compare the wanted state of a channel with the server's, once that has answered all commands."""
        # Answers are to come; or the channel is of an old connection.
        if channel.unanswered or self._by_name.get(channel.name) is not channel:
            return
        # They differ when the last command was not executed: then it is sent again.
        channel.asked = channel.stands
        if channel.wanted is not channel.asked:
            self._unsent[channel.name] = channel
        elif not channel.wanted:
            self._unsent.pop(channel.name, None)
            del self._by_name[channel.name]

    def disconnected(self) -> None:
        """Note that the connection has ended, and its subscriptions with it."""
        wanted = [name for name, channel in self._by_name.items() if channel.wanted]
        self._by_name = {name: _Channel(name, self) for name in wanted}  # the old ones may still be answered
        self._unsent = dict(self._by_name)

    def stands(self, name: bytes) -> bool:
        """Whether messages that are published there arrive."""
        channel = self._by_name.get(name)
        return channel is not None and channel.wanted and channel.stands and not channel.unanswered

    def wants(self, name: bytes) -> bool:
        """Whether the channel has a listener: a message may still arrive after the last listener left."""
        channel = self._by_name.get(name)
        return channel is not None and channel.wanted
