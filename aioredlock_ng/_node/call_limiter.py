"""Limits how many calls of a user's client are made at once, and orders them (R13, R17).

A pool makes a connection for every call that finds none idle, and beyond its limit it refuses calls: also
those on which a held lease rests.  And the more calls are made at once, the longer each of them takes, until
none is answered in time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, final

AT_ONCE: Final = 32
"""Calls of one client that are made at once: enough to keep a loop busy."""


def at_once(connections: int) -> int:
    """Return how many calls may be made at once through a pool of `connections`: at most half as many.

    The others are for checks of the server, for calls that take too long, and for other uses of the client.
    """
    return max(1, min(AT_ONCE, connections // 2))


@final
class CallLimiter:
    """Lets a limited number of calls through at a time: `urgent` ones first, each first in, first out."""

    __slots__ = ("_free", "_others", "_urgent")

    def __init__(self, free: int) -> None:
        self._free = free
        self._urgent: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._others: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    async def enter(self, *, urgent: bool, within: float) -> Place:
        """Wait for a place; it is free again `within` seconds, also if the call takes longer."""
        loop = asyncio.get_running_loop()
        if self._free:
            self._free -= 1
        else:
            future: asyncio.Future[None] = loop.create_future()
            line = self._urgent if urgent else self._others
            line[future] = None
            try:
                await future
            except asyncio.CancelledError:
                line.pop(future, None)
                # It was let in at the same moment: the next one has its place.
                if not future.cancelled():
                    self.leave()
                raise
        return Place(self, loop, within)

    def leave(self) -> None:
        """Let the next one through."""
        for line in (self._urgent, self._others):
            while line:
                future, _ = line.popitem(last=False)
                if not future.done():
                    future.set_result(None)
                    return
        self._free += 1


@final
class Place:
    """The place of a call that is being made."""

    __slots__ = ("_call_limiter", "_left", "_timer")

    def __init__(self, call_limiter: CallLimiter, loop: asyncio.AbstractEventLoop, within: float) -> None:
        self._call_limiter = call_limiter
        self._left = False
        self._timer = loop.call_later(within, self.leave)

    def leave(self) -> None:
        """Make room for the next one; once."""
        if not self._left:
            self._left = True
            self._timer.cancel()
            self._call_limiter.leave()
