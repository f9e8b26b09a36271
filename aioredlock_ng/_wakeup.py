"""Release notices: a waiter asks again within a round trip of the release (rule R13).

A release is published on the channel that has the name of the lock's key.  A contender that was refused
listens there on every node, over the connection that its commands use: the subscription is queued before its
own release, so that it stands when that one tells how long the lock will stay.

Notices are hints.  They never count as votes, and none has to arrive: who waits asks again after its back-off
anyway, and a notice that was lost costs that much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import final

from ._core.quorum import majority
from ._futures import ring
from ._node import Node


@final
class Ear:
    """One contender that waits until the lock is free on a majority of the nodes."""

    __slots__ = ("_free", "_future", "_quorum")

    def __init__(self, quorum: int) -> None:
        self._quorum = quorum
        self._free: set[int] = set()
        self._future: asyncio.Future[bool] | None = None

    def clear(self) -> None:
        """Forget what was heard: the nodes are being asked now."""
        self._free.clear()

    def free(self, nodes: Iterable[int]) -> None:
        """Note that the lock is free on these nodes."""
        self._free.update(nodes)
        if self._future is not None and len(self._free) >= self._quorum:
            ring(self._future)

    def enough(self) -> asyncio.Future[bool]:
        """Return a future that is done as soon as the lock is free on a majority."""
        self._future = asyncio.get_running_loop().create_future()
        self.free(())
        return self._future


@final
class Wakeups:
    """The subscriptions of one manager, by channel; there is at most one contender for each (`_gate`)."""

    __slots__ = ("_ears", "_nodes", "_quorum")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._quorum = majority(len(nodes))
        self._ears: dict[bytes, Ear | None] = {}

    def listen(self, channels: Iterable[bytes]) -> Ear:
        """Listen to these channels from now on, with an ear that has heard nothing yet."""
        ear = Ear(self._quorum)
        for channel in channels:
            if channel not in self._ears:
                for node in self._nodes:
                    node.subscribe(channel)
            self._ears[channel] = ear
        return ear

    def rest(self, channels: Iterable[bytes]) -> None:
        """Keep the subscriptions for the next contender, though nobody waits for their notices now."""
        for channel in channels:
            if channel in self._ears:
                self._ears[channel] = None

    def drop(self, channel: bytes) -> None:
        """Listen no more: nobody waits."""
        if channel in self._ears:
            del self._ears[channel]
            for node in self._nodes:
                node.unsubscribe(channel)

    @property
    def any(self) -> bool:
        """Whether there is any subscription."""
        return bool(self._ears)

    @property
    def deaf(self) -> bool:
        """Whether too few nodes can tell of releases at all."""
        return sum(node.can_hear for node in self._nodes) < self._quorum

    def listening(self, channel: bytes) -> bool:
        """Whether this manager is subscribed there, or about to be."""
        return channel in self._ears

    def hears(self, channels: Sequence[bytes]) -> bool:
        """Whether a majority would tell of a release on all of these channels."""
        return sum(all(map(node.hears, channels)) for node in self._nodes) >= self._quorum

    def on_notice(self, node: Node, channel: bytes) -> None:
        """Take a notice."""
        if (ear := self._ears.get(channel)) is not None:
            ear.free((self._nodes.index(node),))
