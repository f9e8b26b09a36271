"""The work of a handler under a lock, in the tests of every framework."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass
class Stay:
    """The work of a handler under the lock: it says that it is inside, and stays until it may leave."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    ended_by: list[BaseException | None] = field(default_factory=list)

    async def __call__(self) -> None:
        """Stay, and note how that ended."""
        self.entered.set()
        try:
            await self.leave.wait()
        except BaseException as error:
            self.ended_by.append(error)
            raise
        self.ended_by.append(None)
