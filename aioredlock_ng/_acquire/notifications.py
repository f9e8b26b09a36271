"""Release notices: a waiter asks again within a round trip of the release (rule R13).

A release is published on the channel that has the name of the lock's key.  A contender that was refused
listens there on every node, over the connection that its commands use: the subscription is queued before its
own release, so that it stands when that one tells how long the lock will stay.

A notice says how many were told, so that not all of a crowd follow it (R33).

Notices are hints.  They never count as votes, and none has to arrive: a waiter asks again after its back-off
anyway, and a notice that was lost costs that much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, final

from .._core.quorum import majority
from .._core.slots import ANY, MAX_PERMITS
from .._node import Node
from .._round.futures import ring

MAX_DIGITS: Final = 6
"""Digits of a notice that are read as a number."""


@final
class ReleaseListener:
    """One contender that waits until the lock is free on a majority of the nodes."""

    __slots__ = ("_free", "_future", "_in_line", "_late", "_nodes", "_quorum", "listeners", "slot")

    def __init__(self, nodes: int, *, in_line: bool = False) -> None:
        self._in_line = in_line
        self._nodes = range(nodes)
        self._quorum = majority(nodes)
        self.listeners = 0
        """How many listen, as the last notices said; 0 when they did not."""
        self.slot = ANY
        """Which slot of a semaphore is free on a majority of the nodes, if that was said; or, of those that
        wait in line, how many are told to come before this one there, or fewer (R30)."""
        self._free: dict[int, set[int]] = {}  # by slot, `ANY` where none is named
        self._late: set[tuple[int, int]] = set()  # nodes, by slot, that have yet to tell what was passed by
        self._future: asyncio.Future[bool] | None = None

    def clear(self) -> None:
        """Forget what was heard: the nodes are being asked now."""
        self._free.clear()
        self._late.clear()
        self.slot = ANY

    def pass_by(self) -> None:
        """Forget a release, also what some nodes have not told of it yet: others follow it (R33)."""
        told = self._told(self.slot)
        for slot in list(self._free):
            if slot == self.slot or (self._in_line and slot < self.slot):
                del self._free[slot]
        self._late.update((self.slot, node) for node in self._nodes if node not in told)
        self.slot = ANY

    def told(self, node: int, listeners: int, slot: int = ANY) -> None:
        """Take a notice, and how many were told with us."""
        self.listeners = listeners
        if (slot, node) in self._late:
            self._late.discard((slot, node))
        else:
            self.free((node,), slot)

    def free(self, nodes: Iterable[int], slot: int = ANY) -> None:
        """Note that the lock is free on these nodes, or the slot that is named."""
        self._free.setdefault(slot, set()).update(nodes)
        if self._future is None:
            return
        for each in sorted(self._free) if self._in_line else (slot,):  # the best place
            if len(self._told(each)) >= self._quorum:
                self.slot = each
                ring(self._future)
                return

    def _told(self, slot: int) -> set[int]:
        """Return the nodes where a slot is free; in line, where the place is that one or a better one."""
        if not self._in_line:
            return self._free.get(slot, set())
        return {node for place, nodes in self._free.items() if place <= slot for node in nodes}

    def enough(self) -> asyncio.Future[bool]:
        """Return a future that is done as soon as the lock is free on a majority."""
        self._future = asyncio.get_running_loop().create_future()
        for slot in tuple(self._free):
            self.free((), slot)
        return self._future


@final
class Notifications:
    """The subscriptions of one manager, by channel.

    A channel of releases has one contender (`_local/local_queue`), that of an election one observation, for
    all that observe it in this process; no channel is both (R16).
    """

    __slots__ = ("_nodes", "_quorum", "_seat", "_waiters", "_watched")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._quorum = majority(len(nodes))
        self._seat = b""  # the channel of this process, once it has stood in line (R30)
        self._waiters: dict[bytes, ReleaseListener | None] = {}
        self._watched: dict[bytes, Callable[[], object]] = {}

    def listen(self, channels: Iterable[bytes], seat: bytes = b"") -> ReleaseListener:
        """Listen to these channels from now on, with a waiter that has heard nothing yet.

        With a `seat`, that is the channel, which is kept for good, and `channels` what it is to tell of.
        """
        waiter = ReleaseListener(len(self._nodes), in_line=bool(seat))
        if seat and not self._seat:
            self._seat = seat
            for node in self._nodes:
                node.subscribe(seat)
        for channel in channels:
            if channel not in self._waiters and not seat:
                for node in self._nodes:
                    node.subscribe(channel)
            self._waiters[channel] = waiter
        return waiter

    def rest(self, channels: Iterable[bytes], waiter: ReleaseListener) -> None:
        """Keep the subscriptions for the next contender, though this one waits for their notices no more."""
        for channel in channels:
            if self._waiters.get(channel) is waiter:
                self._waiters[channel] = None

    def drop(self, channel: bytes) -> None:
        """Listen no more: no call waits."""
        if channel in self._waiters:
            del self._waiters[channel]
            for node in self._nodes:
                node.unsubscribe(channel)

    def watch(self, channel: bytes, on_answer: Callable[[], object]) -> None:
        """Call `on_answer` whenever something is published there."""
        assert channel not in self._watched, "one for all of this process"
        self._watched[channel] = on_answer
        for node in self._nodes:
            node.subscribe(channel)

    def unwatch(self, channel: bytes) -> None:
        """Take `watch` back."""
        del self._watched[channel]
        for node in self._nodes:
            node.unsubscribe(channel)

    @property
    def deaf(self) -> bool:
        """Whether too few nodes can tell of releases at all."""
        return sum(node.can_hear for node in self._nodes) < self._quorum

    def is_subscribed(
        self, channels: Sequence[bytes], foreign: Container[int] = (), seat: bytes = b""
    ) -> bool:
        """Whether a majority would tell of a release on all of these channels, or on the seat's.

        Nodes where another program is in the way, by their numbers, are `foreign`, and tell nothing.
        """
        heard = (seat,) if seat else channels
        tell = (
            index not in foreign and all(map(node.is_subscribed, heard))
            for index, node in enumerate(self._nodes)
        )
        return sum(tell) >= self._quorum

    def on_notice(self, node: Node, channel: bytes, message: object) -> None:
        """Take a notice."""
        if channel == self._seat and isinstance(message, bytes):  # what is free stands behind the place
            message, _, channel = message.partition(b"@")
        if (waiter := self._waiters.get(channel)) is not None:
            waiter.told(self._nodes.index(node), *_told(message))
        elif (on_answer := self._watched.get(channel)) is not None:
            on_answer()


def _told(message: object) -> tuple[int, int]:
    """Return how many a notice says that it is for, 0 where it does not; and which slot is free, or `ANY`."""
    listeners, colon, slot = message.partition(b":") if isinstance(message, bytes) else (b"", b"", b"")
    named = _number(slot) if colon else None
    return _number(listeners) or 0, ANY if named is None or named >= MAX_PERMITS else named


def _number(said: bytes) -> int | None:
    return int(said) if len(said) <= MAX_DIGITS and said.isdigit() else None
