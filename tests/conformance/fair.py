"""The scripts of the fair lock by hand: one node, its lock, and the line beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aioredlock_ng import _scripts
from aioredlock_ng._core.keyspace import SEATS, TICKETS, mark_key
from tests.conformance.stage import EXPECTED, KEEP_MS, SENTINEL, TTL_MS, Stage, counters, locks
from tests.conformance.tools import OURS

LOCK: Final = locks("a")[0]
TICKETS_KEY: Final = mark_key(b"redlock:", TICKETS, LOCK)
SEATS_KEY: Final = mark_key(b"redlock:", SEATS, LOCK)
LIFE_MS: Final = 100_000
"""How long a seat lives at the head of the line."""


def seat(number: int) -> bytes:
    """Return the name of a seat."""
    return b"redlock:seats:{%040x:host:%d}" % (number, number)


class FairStage(Stage):
    """One node, whose sentinel is `EXPECTED` unless a test changes it."""

    async def put_line(
        self,
        *seats: tuple[bytes, int, float],
        free_since: float | None = None,
        late: float | None = None,
        ttl: float = 600.0,
    ) -> None:
        """Have seats in the line: each with its ticket, and the seconds that it lives yet, or below 0.

        The lock is free since so many seconds, or its holder ends in so many, if below 0.  Head starts are
        long for so many seconds more as `late` says.
        """
        now_ms = await self.now_ms()
        self.put(TICKETS_KEY, {name: ticket for name, ticket, _ in seats}, ttl)
        ends = {name: now_ms + round(left * 1000) for name, _, left in seats}
        if free_since is not None:
            ends[b"free"] = now_ms - round(free_since * 1000)
        if late is not None:
            ends[b"late"] = now_ms + round(late * 1000)
        self.put(SEATS_KEY, ends, ttl)

    def line(self) -> list[bytes]:
        """Return the seats, in their order."""
        tickets = self.tickets()
        return sorted(tickets, key=lambda name: (tickets[name], name))

    def tickets(self) -> dict[bytes, int]:
        """Return the seats, each with its ticket."""
        return self._scores(TICKETS_KEY)

    def seats(self) -> dict[bytes, int]:
        """Return the seats, each with the node's time in milliseconds at which it ends."""
        return {
            name: ends for name, ends in self._scores(SEATS_KEY).items() if name not in (b"free", b"late")
        }

    def free_since(self) -> int | None:
        """Return since when the lock is free, or when its holder ends, in milliseconds of the node's time."""
        return self._scores(SEATS_KEY).get(b"free")

    def _scores(self, key: bytes) -> dict[bytes, int]:
        ((value, _),) = self.master.look([key])
        return {name: int(score) for name, score in value.items()} if isinstance(value, dict) else {}

    # -- scripts -----------------------------------------------------------------------------------

    async def ask(
        self,
        name: bytes = b"",
        ticket: int = 0,
        *,
        ballot: int = 1,
        stamp: Sequence[bytes] | None = (),
        owner: bytes = OURS,
    ) -> Any:
        """Run `fair_acquire.lua`; a ballot of 0 is none, a stamp of None as well."""
        keys = [LOCK, *(counters("a") if ballot else ()), TICKETS_KEY, SEATS_KEY]
        keys += [] if stamp is None else [SENTINEL]
        expected, identity = stamp or (EXPECTED, b"")
        behind = () if stamp is None else (expected, 0, identity)
        args = (owner, TTL_MS, ballot, 1, KEEP_MS, name, ticket, LIFE_MS)
        return await self.node.run(_scripts.FAIR_ACQUIRE, keys, *args, *behind)

    async def free(
        self, name: bytes = b"", ticket: int = 0, *, fence: int = 0, loud: bytes = b"", owner: bytes = OURS
    ) -> Any:
        """Run `fair_release.lua`; a fence of 0 is none; by a ticket of 0 the call waits no more."""
        keys = [LOCK, *(counters("a") if fence else ()), TICKETS_KEY, SEATS_KEY]
        args = (owner, fence, KEEP_MS, loud, name, ticket, LIFE_MS)
        return await self.node.run(_scripts.FAIR_RELEASE, keys, *args)

    async def queue(self, most: int = 100) -> Any:
        """Run `queue.lua`."""
        return await self.node.run(_scripts.QUEUE, [TICKETS_KEY, SEATS_KEY], most)
