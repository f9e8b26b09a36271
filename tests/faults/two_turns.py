"""A holds a lock and B waits for it while something goes wrong; then B has its turn.

Both are tasks with a manager each, so that each has connections of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from aioredlock_ng import ExtensionPolicy, Lease, LockLostError, LockManager
from tests.behaviour.tools import PATIENCE, all_up, boot_time, no_key_left, quiet
from tests.faults.claims import Claim, check_claims
from tests.faults.on_three import KEY, NAME
from tests.servers import ask, eventually

# So that extensions meet the fault, and what they bring about is soon seen.
OFTEN: Final = ExtensionPolicy(every=0.1, max_extensions=None)


class Turn:
    """One turn under the lock, in a task of its own, and what becomes of it."""

    lease: Lease  # from the moment when it is inside
    claim: Claim  # from the moment when it has left

    def __init__(self, manager: LockManager) -> None:
        self.manager = manager
        self.inside = asyncio.Event()
        self.lost: LockLostError | None = None
        self._leave = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        asked = boot_time()
        try:
            async with self.manager.lock(NAME) as self.lease:
                start = boot_time()
                self.inside.set()
                try:
                    await self._leave.wait()
                finally:
                    end = min(boot_time(), self.lease.valid_until)
                    self.claim = Claim(start, end, self.lease._holding.fence, asked)
        except LockLostError as error:
            self.lost = error

    async def begun(self) -> None:
        """Wait until it is inside."""
        await asyncio.wait_for(self.inside.wait(), PATIENCE)

    async def leaves(self) -> None:
        """Let it leave."""
        self._leave.set()
        await self.over()

    async def over(self) -> None:
        """Wait until it has left, or has lost its lock."""
        await asyncio.wait_for(asyncio.shield(self.task), PATIENCE)

    async def outlives(self, seconds: float) -> None:
        """Wait until extensions have moved the end of the lease by so much."""
        end = self.lease.valid_until + seconds
        await eventually(
            lambda: self.task.done() or self.lease.valid_until >= end, within=PATIENCE, what="A is extended"
        )
        self.lease.check()


class Two(NamedTuple):
    """The two of them."""

    urls: Sequence[str]
    a: Turn
    b: Turn

    @property
    def complete(self) -> bool:
        """Whether all nodes have the lock's key, of one owner."""
        values = {ask(url, "GET", KEY) for url in self.urls}
        return len(values) == 1 and None not in values

    async def all_up(self) -> None:
        """Wait until both count every node as up."""
        for turn in (self.a, self.b):
            await all_up(turn.manager)

    async def recovered(self) -> None:
        """Let B have its turn, and see that all is well: every node takes part, and nothing is left."""
        if not self.a.task.done():
            await self.a.leaves()
        await self.b.begun()
        await self.all_up()
        await eventually(lambda: self.complete, what="B has the key on every node")
        await self.b.leaves()
        assert self.b.lost is None
        check_claims([self.a.claim, self.b.claim])
        await no_key_left(self.urls)


def two_turns(urls: Sequence[str], **options: Any) -> contextlib.AbstractAsyncContextManager[Two]:
    """Have A hold the lock on all nodes, often extended in the background, and B wait for it."""
    return two_apart(urls, urls, urls, **({"extension": OFTEN} | options))


@contextlib.asynccontextmanager
async def two_apart(
    by_a: Sequence[str], by_b: Sequence[str], urls: Sequence[str], **options: Any
) -> AsyncIterator[Two]:
    """Have A hold the lock on all nodes, and B wait for it.

    A and B reach the servers by URLs of their own, and the test looks at them by `urls`, which nothing
    disturbs.
    """
    async with (
        quiet(),
        LockManager(by_a, holder="A", **options) as a,
        LockManager(by_b, holder="B", **options) as b,
    ):
        await all_up(a)
        await all_up(b)
        first = Turn(a)
        await first.begun()
        second = Turn(b)
        two = Two(urls, first, second)
        try:
            await eventually(lambda: two.complete, what="A has the key on every node")
            await eventually(lambda: b.statistics().waiting == 1, what="B waits")
            yield two
        finally:
            for task in (first.task, second.task):
                task.cancel()
            await asyncio.wait((first.task, second.task))
