"""One look at one lock that is followed, and at the line for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, final

from .changes import Picture, picture

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
    """Look at the line first: one that leaves it for the lock is seen to hold that, not to be nowhere."""
    loop = asyncio.get_running_loop()
    queue = await manager.queue(name)
    asked = loop.time()
    survey = await manager.survey(name)
    (lock,) = survey.locks
    return Glimpse(survey.at, lock, queue, picture(lock.nodes, queue, asked=asked, answered=loop.time()))
