"""The two directions through a chaos proxy (``chaos_proxy.py``), and what becomes of bytes that go there."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, final

END: Final = b""  # stands for the end of a connection, behind all that came before it


class Connection(Protocol):
    """The acts of a direction on its connection."""

    def close(self) -> None:
        """Close both ends."""

    def reset(self) -> None:
        """Reset both ends."""


@final
class Way:
    """One of the two directions through a proxy: what becomes of the bytes that go there."""

    def __init__(self) -> None:
        self.delay = 0.0  # seconds that everything takes; no limit to how much is under way
        # Seconds more at most, drawn for all that comes at once; nothing overtakes.
        self.jitter = 0.0
        # Gives how many bytes are written at once; None for as many as there are.
        self.piece: Callable[[], int] | None = None
        self._stalled = False
        self._left: int | None = None
        self._lanes: set[Lane] = set()

    def stall(self) -> None:
        """Let nothing through, the end of a connection included; what comes is kept."""
        self._stalled = True
        for lane in self._lanes:
            lane.stalled = True

    def flow(self) -> None:
        """Deliver what was kept, all at once, and go on."""
        self._stalled = False
        for lane in list(self._lanes):
            lane.stalled = False
            lane.carry()

    def reset_after(self, number: int) -> None:
        """Reset the connection that the byte behind the next `number` ones is on; done once."""
        self._left = number


@final
class Lane:
    """One direction of one connection."""

    def __init__(self, way: Way, connection: Connection) -> None:
        self.way = way
        self.stalled = way._stalled
        self.target: asyncio.Transport | None = None
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self.under_way: deque[tuple[float, bytes]] = deque()
        self._last_due = 0.0
        self._again: asyncio.Handle | None = None
        way._lanes.add(self)

    def arrive(self, data: bytes) -> None:
        """Take what was sent; it is written when it is due."""
        way = self.way
        due = self._loop.time() + way.delay + way.jitter * random.random()
        self._last_due = max(self._last_due, due)
        self.under_way.append((self._last_due, data))
        if self._again is None:
            self.carry()

    def carry(self) -> None:
        """Write what is due, as far as it may go."""
        self._stop()
        while self.under_way and self.target is not None and not self.stalled:
            due, data = self.under_way.popleft()
            if due > self._loop.time():
                self.under_way.appendleft((due, data))
                self._again = self._loop.call_at(due, self.carry)
                return
            if data == END:
                self._connection.close()
                return
            size = len(data) if self.way.piece is None else self.way.piece()
            if data[size:]:
                self.under_way.appendleft((due, data[size:]))
            if not self._write(data[:size]):
                return
            if self.way.piece is not None:
                # Not in the next turn but the one after it: by then a reader in this loop has had its turn.
                self._again = self._loop.call_soon(self._in_the_next_turn)
                return

    def _in_the_next_turn(self) -> None:
        self._again = self._loop.call_soon(self.carry)

    def _write(self, data: bytes) -> bool:
        """Write, up to where the connection is to be reset; False when it was."""
        way = self.way
        resets = way._left is not None and len(data) > way._left
        data = data[: way._left] if resets else data
        assert self.target is not None, "the caller has looked"
        self.target.write(data)
        if resets:
            way._left = None
            self._connection.reset()
        elif way._left is not None:
            way._left -= len(data)
        return not resets

    def end(self) -> None:
        """Forget what is under way."""
        self._stop()
        self.under_way.clear()
        self.way._lanes.discard(self)

    def _stop(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
