"""A lock that is followed: one look at it and at its line, how it is, and what happens to it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from . import wire
from .changes import Picture, events, picture

if TYPE_CHECKING:
    from .. import LockInspection, LockManager, QueueInspection


@final
class Glimpse(NamedTuple):
    """What was seen of a lock at one moment."""

    at: float
    """In Unix seconds by the manager's clock."""
    lock: LockInspection
    queue: QueueInspection
    picture: Picture
    """Both, as `events` compares them."""


async def look_at(manager: LockManager, name: str) -> Glimpse:
    """Look at the queue first: one that leaves it for the lock is seen to hold that, not to be nowhere."""
    loop = asyncio.get_running_loop()
    queue = await manager.queue(name)
    asked = loop.time()
    survey = await manager.survey(name)
    (lock,) = survey.locks
    return Glimpse(survey.at, lock, queue, picture(lock.nodes, queue, asked=asked, answered=loop.time()))


MAX_HISTORY: Final = 500
"""Events of one lock that are kept for pages that are opened later, at most."""


@final
class Followed:
    """One lock whose page is open."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pages = 0
        self.left = 0.0
        """When the last page that showed it was closed, by the loop's clock."""
        self.seen: Picture | None = None
        self._at = 0.0
        self._lock: dict[str, Any] | None = None
        self._history: deque[tuple[int, dict[str, Any]]] = deque(maxlen=MAX_HISTORY)
        """What has happened, each with the number of the look that saw it."""
        self._looking = asyncio.Lock()
        """What has happened is what one look and the next have seen: they are made one after the other."""

    async def poll(self, manager: LockManager, number: int) -> None:
        """Look at it, and note what has happened since the last time."""
        async with self._looking:
            await self._look(manager, number)

    async def look_first(self, manager: LockManager, number: int) -> None:
        """Look at it unless that has been done: until the next look at all it would show nothing."""
        if self.seen is None:
            async with self._looking:
                if self.seen is None:  # the page of it that was opened a moment before had it looked at
                    await self._look(manager, number)

    async def _look(self, manager: LockManager, number: int) -> None:
        try:
            glimpse = await look_at(manager, self.name)
        except ValueError:
            return  # another program's key: no lock of ours can have such a name, and the table shows it
        self._note(glimpse, number)

    def _note(self, glimpse: Glimpse, number: int) -> None:
        now = glimpse.picture if self.seen is None else glimpse.picture.on(self.seen)
        self._history += ((number, wire.told(each, glimpse.at)) for each in events(self.seen, now))
        self._at, self.seen = glimpse.at, now
        self._lock = wire.in_full(glimpse.lock, glimpse.at, glimpse.queue)

    def message(self, heard: int, last: int) -> str:
        """Say how it is, and what has happened to it since look `heard`, until look `last`."""
        if self._lock is None:
            return ""
        happened = [each for number, each in self._history if heard < number <= last]
        return wire.event(
            "lock", {"name": self.name, "at": self._at, "lock": self._lock, "happened": happened}
        )
