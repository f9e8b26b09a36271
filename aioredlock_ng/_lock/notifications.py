"""Notifications of releases: a waiter asks again within a round trip of the release (rule R13).

A release is published on a channel with the name of the lock's key.  A contender that was refused subscribes
to it on every node, over the connection that its commands use.  The subscription is queued before the release
of its own attempt, so that it is in place when the reply to that says how long the lock will stay taken.

A notification says how many processes it was sent to, so that not all of a crowd ask again at once (R33).

Notifications are hints.  They never count as votes, and none has to arrive: a waiter asks again after its
back-off anyway, so a lost notification costs no more than that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, final

from .._core.quorum import majority
from .._core.slots import ANY, MAX_PERMITS
from .._node.redis_node import Node
from .._round.deadlines import ring

MAX_DIGITS: Final = 6
"""Most digits of a number in a notification; a longer one counts as missing."""


@final
class ReleaseListener:
    """Wakes one contender when the lock is free on a majority of the nodes."""

    __slots__ = ("_free", "_future", "_in_line", "_late", "_nodes", "_quorum", "listeners", "slot")

    def __init__(self, nodes: int, *, in_line: bool = False) -> None:
        self._in_line = in_line
        self._nodes = range(nodes)
        self._quorum = majority(nodes)
        self.listeners = 0
        """Number of processes notified, as the last notification says; 0 if it does not."""
        self.slot = ANY
        """The slot of a semaphore that is free on a majority of the nodes, if it was named.  For a fair lock:
        an upper bound for the number of calls before this one in the queue (R30)."""
        self._free: dict[int, set[int]] = {}  # nodes by slot, `ANY` where none is named
        # Nodes, with the slot, whose notification of a release that was passed by is still to come.
        self._late: set[tuple[int, int]] = set()
        self._future: asyncio.Future[bool] | None = None

    def clear(self) -> None:
        """Forget all notifications: the nodes are being asked now."""
        self._free.clear()
        self._late.clear()
        self.slot = ANY

    def pass_by(self) -> None:
        """Ignore a release, with its notifications that are still to come: others ask after it (R33)."""
        heard = self._free_on(self.slot)
        for slot in list(self._free):
            # In a fair lock's queue a better position on some nodes belongs to the same release.
            if slot == self.slot or (self._in_line and slot < self.slot):
                del self._free[slot]
        # Example: nodes 0, 1 and 2 of five have notified us.  The notifications of nodes 3 and 4 belong to
        # the same release, and must not count towards a majority for the next one.
        self._late.update((self.slot, node) for node in self._nodes if node not in heard)
        self.slot = ANY

    def hear(self, node: int, listeners: int, slot: int = ANY) -> None:
        """Take a node's notification; `listeners` is the number of processes that it was sent to."""
        self.listeners = listeners
        # It belongs to a release that was passed by.
        if (slot, node) in self._late:
            self._late.discard((slot, node))
        else:
            self.free((node,), slot)

    def free(self, nodes: Iterable[int], slot: int = ANY) -> None:
        """Note that the lock, or the slot that is named, is free on these nodes."""
        self._free.setdefault(slot, set()).update(nodes)
        # No task waits at the moment: `enough` will find what is stored here.
        if self._future is None:
            return
        # In a fair lock's queue: the best position that a majority has confirmed.  Example: nodes 0 and 1 say
        # that one call is ahead, and node 2 that none is.  On these three nodes at most one is ahead.
        for each in sorted(self._free) if self._in_line else (slot,):
            if len(self._free_on(each)) >= self._quorum:
                self.slot = each
                ring(self._future)
                return

    def _free_on(self, slot: int) -> set[int]:
        """Return the nodes on which a slot is free; in a queue, those with that position or a better one."""
        if not self._in_line:
            return self._free.get(slot, set())
        return {node for position, nodes in self._free.items() if position <= slot for node in nodes}

    def enough(self) -> asyncio.Future[bool]:
        """Return a future that is done as soon as the lock is free on a majority of the nodes."""
        self._future = asyncio.get_running_loop().create_future()
        for slot in tuple(self._free):
            self.free((), slot)
        return self._future


@final
class Notifications:
    """The subscriptions of one manager, by channel.

    A channel of releases has one contender (`_lock/local_queue`).  The channel of an election has one
    observation, for all observers in this process.  No channel is both (R16).
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._quorum = majority(len(nodes))
        self._seat = b""  # the channel of this process, after it first waited for a fair lock (R30)
        self._listeners: dict[bytes, ReleaseListener | Callable[[], object] | None] = {}

    def listen(self, channels: Iterable[bytes], seat: bytes = b"") -> ReleaseListener:
        """Subscribe to these channels, and return a new listener for them.

        With a `seat`, the process has one channel of that name, which it keeps, and `channels` are the locks
        whose notifications come there.
        """
        listener = ReleaseListener(len(self._nodes), in_line=bool(seat))
        # The first wait for a fair lock in this process.
        if seat and not self._seat:
            self._seat = seat
            for node in self._nodes:
                node.subscribe(seat)
        for channel in channels:
            # The subscription may be left from an earlier contender (`rest`): then only the listener changes.
            if channel not in self._listeners and not seat:
                for node in self._nodes:
                    node.subscribe(channel)
            self._listeners[channel] = listener
        return listener

    def rest(self, channels: Iterable[bytes], listener: ReleaseListener) -> None:
        """Remove a listener, but keep the subscriptions for the next contender."""
        for channel in channels:
            # Another contender may have taken over the channel.
            if self._listeners.get(channel) is listener:
                self._listeners[channel] = None

    def drop(self, channel: bytes) -> None:
        """Unsubscribe from a channel, if that has a subscription."""
        if channel in self._listeners:
            del self._listeners[channel]
            for node in self._nodes:
                node.unsubscribe(channel)

    def watch(self, channel: bytes, on_notice: Callable[[], object]) -> None:
        """Subscribe to `channel`, and call `on_notice` at each message there, until `drop`."""
        assert channel not in self._listeners, "one for all of this process"
        self._listeners[channel] = on_notice
        for node in self._nodes:
            node.subscribe(channel)

    @property
    def deaf(self) -> bool:
        """Whether fewer than a majority of the nodes can notify this process at all."""
        return sum(node.can_hear for node in self._nodes) < self._quorum

    def is_subscribed(
        self, channels: Sequence[bytes], foreign: Container[int] = (), seat: bytes = b""
    ) -> bool:
        """Whether a majority of the nodes would notify this process on all channels, or on that of the seat.

        `foreign` are the nodes, by number, where another program's key is in the way: they notify no process.
        """
        needed = (seat,) if seat else channels
        tell = (
            index not in foreign and all(map(node.is_subscribed, needed))
            for index, node in enumerate(self._nodes)
        )
        return sum(tell) >= self._quorum

    def on_notice(self, node: Node, channel: bytes, message: object) -> None:
        """Take a notification."""
        # On the channel of this process the lock's channel is in the message, behind the position.
        if channel == self._seat and isinstance(message, bytes):
            message, _, channel = message.partition(b"@")
        listener = self._listeners.get(channel)
        # A release, and a contender that waits for it.
        if isinstance(listener, ReleaseListener):
            listener.hear(self._nodes.index(node), *_read(message))
        # An election.  Any other channel was given up while the message was on its way.
        elif listener is not None:
            listener()


def _read(message: object) -> tuple[int, int]:
    """Return the number of listeners in a notification, or 0; and the slot that is free, or `ANY`."""
    # Examples: "3" went to three listeners, and "3:1" says also that slot 1 is free.
    listeners, colon, slot = message.partition(b":") if isinstance(message, bytes) else (b"", b"", b"")
    named = _number(slot) if colon else None
    return _number(listeners) or 0, ANY if named is None or named >= MAX_PERMITS else named


def _number(said: bytes) -> int | None:
    return int(said) if len(said) <= MAX_DIGITS and said.isdigit() else None
