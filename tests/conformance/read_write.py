"""The scripts of the read-write lock by hand: one node, with what is under a lock's key and beside it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from aioredlock_ng import _scripts
from tests.conformance.stage import EXPECTED, KEEP_MS, SENTINEL, TTL_MS, Stage, counters, locks, queues
from tests.conformance.tools import OTHERS, OURS, Master, connected


class ReadWriteStage(Stage):
    """One node, whose sentinel is `EXPECTED` unless a test changes it."""

    async def put_readers(self, name: str = "a", **seconds: float) -> None:
        """Have readers under a lock's key: `ours` and `others`, or any other, each for so many seconds yet.

        What is below 0 has ended.  The key ends with the last of them, or else in a minute.
        """
        now_ms = await self.now_ms()
        owners = {"ours": OURS, "others": OTHERS}
        scores = {owners.get(who, who.encode()): now_ms + round(left * 1000) for who, left in seconds.items()}
        self.put(locks(name)[0], scores, max(0, *seconds.values()) or 60.0)

    async def readers(self, name: str = "a") -> dict[bytes, float]:
        """Return the set under a lock's key: owners, each with the seconds that it has left, or below 0."""
        ((value, _),) = self.master.look(locks(name))
        assert isinstance(value, dict), value
        now_ms = await self.now_ms()
        return {owner: (ends - now_ms) / 1000 for owner, ends in value.items()}

    async def put_marks(self, name: str = "a", **seconds: float) -> None:
        """Leave marks in a lock's queue, each for so many seconds yet; what is below 0 has ended.

        Their key lives for a minute, so that short-lived ones can be looked at on a slow machine, too.
        """
        now_ms = await self.now_ms()
        scores = {what.encode(): now_ms + round(left * 1000) for what, left in seconds.items()}
        self.put(queues(name)[0], scores, 60.0)

    def marks(self, name: str = "a") -> dict[str, int]:
        """Return the marks in a lock's queue, each with the node's time in milliseconds at which it ends."""
        ((value, _),) = self.master.look(queues(name))
        marks = value if isinstance(value, dict) else {}
        return {what.decode(): ends for what, ends in marks.items()}

    # -- scripts -----------------------------------------------------------------------------------

    async def ask(
        self,
        mode: str,
        names: str = "a",
        *,
        ballot: int = 1,
        floor: int = 0,
        seat: bytes = b"",
        stamp: Sequence[bytes] | None = (),
        owner: bytes = OURS,
        ttl_ms: int = TTL_MS,
    ) -> Any:
        """Run `read.lua` or `write.lua`; a ballot of 0 is none, a stamp of None as well."""
        script = {"read": _scripts.READ, "write": _scripts.WRITE}[mode]
        keys = [*self._with_queues(names, fenced=ballot > 0), *(() if stamp is None else (SENTINEL,))]
        args = (owner, ttl_ms, ballot, 1, KEEP_MS, seat)
        return await self.node.run(script, keys, *args, *self._stamp(stamp, floor))

    async def rw_raise(
        self, mode: str, fence: int, names: str = "a", *, floor: int = 0, stamp: Sequence[bytes] = ()
    ) -> Any:
        """Run `rw_raise.lua`."""
        keys = [*self._with_queues(names), SENTINEL]
        args = (OURS, fence, KEEP_MS, mode.encode())
        return await self.node.run(_scripts.RW_RAISE, keys, *args, *self._stamp(stamp, floor))

    async def rw_extend(
        self,
        mode: str,
        fence: int = 0,
        names: str = "a",
        *,
        floor: int = 0,
        stamp: Sequence[bytes] | None = (),
        ttl_ms: int = TTL_MS,
    ) -> Any:
        """Run `rw_extend.lua`; a fence of 0 is none, a stamp of None as well."""
        keys = [*self._with_queues(names, fenced=fence > 0), *(() if stamp is None else (SENTINEL,))]
        args = (OURS, ttl_ms, fence, KEEP_MS, mode.encode())
        return await self.node.run(_scripts.RW_EXTEND, keys, *args, *self._stamp(stamp, floor))

    async def rw_top_up(self, mode: str, fence: int = 0, names: str = "a") -> Any:
        """Run `rw_top_up.lua`; a fence of 0 is none."""
        keys = self._with_queues(names, fenced=fence > 0)
        return await self.node.run(_scripts.RW_TOP_UP, keys, OURS, TTL_MS, fence, KEEP_MS, mode.encode())

    async def rw_release(
        self, mode: str, fence: int = 0, names: str = "a", *, loud: bytes = b"", seat: bytes = b""
    ) -> Any:
        """Run `rw_release.lua`; a fence of 0 is none, an empty seat as well."""
        keys = self._with_queues(names, fenced=fence > 0)
        seats = (seat,) if seat else ()
        args = (OURS, fence, KEEP_MS, loud, mode.encode(), *seats)
        return await self.node.run(_scripts.RW_RELEASE, keys, *args)

    @staticmethod
    def _with_queues(names: str, *, fenced: bool = True) -> list[bytes]:
        return [*locks(names), *(counters(names) if fenced else ()), *queues(names)]

    @staticmethod
    def _stamp(stamp: Sequence[bytes] | None, floor: int) -> tuple[bytes | int, ...]:
        if stamp is None:
            return ()
        expected, identity = stamp or (EXPECTED, b"")
        return expected, floor, identity


@contextlib.asynccontextmanager
async def read_write_staged(master: Master) -> AsyncIterator[ReadWriteStage]:
    """Give an empty node with the sentinel that all requests expect."""
    master.flush()
    master.put([(SENTINEL, EXPECTED, None)])
    async with connected(master) as node:
        yield ReadWriteStage(master, node)
