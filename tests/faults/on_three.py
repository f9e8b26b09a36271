"""A holder with no more than a majority: A has the lock on three nodes of five, and B asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from aioredlock_ng import ExtensionPolicy, Lease, LockManager
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import PATIENCE, all_up, boot_time
from tests.servers import ask, eventually

NAME: Final = "account"
KEY: Final = f"redlock:{NAME}"

COUNTER: Final = f"redlock:fence:{{{KEY}}}"

HOLDING: Final = (0, 1, 2)  # the nodes that A has


@contextlib.asynccontextmanager
async def held_on_three(nodes: LocalNodes, **options: Any) -> AsyncIterator[tuple[Lease, LockManager]]:
    """Have A hold the lock on exactly three nodes, without extensions, and B connected to all five.

    The other two are frozen from before A connects until it has the lock, so that they never hear of it.
    """
    others = [i for i in range(5) if i not in HOLDING]
    async with LockManager(nodes.urls, holder="B", **options) as b:
        await all_up(b)
        for i in others:
            nodes.pause(i)
        async with LockManager(nodes.urls, holder="A", extension=ExtensionPolicy.off(), **options) as a:
            lease = await a.lock(NAME).acquire()
            for i in others:
                nodes.resume(i)
            await all_up(b)
            assert [ask(url, "EXISTS", KEY) for url in nodes.urls] == [int(i in HOLDING) for i in range(5)]
            yield lease, b


async def waits_for_its_end(b: LockManager, by_a: Lease) -> None:
    """Have B ask for the lock when one of A's nodes has forgotten it: it is let in when A's lease has ended.

    Until then that node is in quarantine (R12).
    """
    await eventually(lambda: b.statistics().quarantined == 1, what="the node waits")
    by_b = await b.lock(NAME, blocking_timeout=PATIENCE).acquire()

    assert boot_time() >= by_a.valid_until
    assert by_a._holding.fence < by_b._holding.fence or not by_a._holding.fence
    await by_b.release()
    await all_up(b)
