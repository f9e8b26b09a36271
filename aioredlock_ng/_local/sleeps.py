"""How the acquires of one manager wait: each for a limited time, and none beyond the manager's end."""

from __future__ import annotations

import asyncio
from typing import final

from .._round.availability import Availability
from .._round.futures import give_up, wait_for


@final
class Sleeps:
    """The waits that are going on."""

    __slots__ = ("_availability", "_futures")

    def __init__(self, availability: Availability) -> None:
        self._availability = availability
        self._futures: set[asyncio.Future[bool]] = set()

    def __len__(self) -> int:
        """Number of acquires that wait in a queue or for their next attempt."""
        return len(self._futures)

    async def wait(self, future: asyncio.Future[bool], seconds: float | None) -> bool:
        """Wait for `future`, at most `seconds`, and return its result; False when the time is up.

        Raises:
            ManagerClosedError: when the manager is closed meanwhile.
        """
        self._futures.add(future)
        try:
            done = await wait_for(future, seconds)
        finally:
            self._futures.discard(future)
        # `end` has woken this wait; or the future was set in the turn in which the manager was closed.
        if self._availability.closing:
            raise self._availability.closed_error()
        return done

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds; raises as `wait` does."""
        await self.wait(asyncio.get_running_loop().create_future(), seconds)

    def end(self) -> None:
        """End all waits: the manager is being closed."""
        for future in self._futures:
            give_up(future)
