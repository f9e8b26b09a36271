"""Leads whenever it is elected, in a process of its own: ``python candidate.py LABEL TTL PATH URL,URL,…``.

With its term it writes to the account in the SQLite file ``PATH``, and once more when it learns that it
leads no more.  As ``observer`` it tells of leaders instead.  It prints what happens
as lines of JSON, with the time of `CLOCK_MONOTONIC`, which processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from fenced_sqlite import Account

from aioredlock_ng import Election, Leadership, LockManager


def say(what: str, **facts: Any) -> None:
    """Tell the test, in one piece: the process may be killed at any time."""
    line = json.dumps({"what": what, "at": time.clock_gettime(time.CLOCK_MONOTONIC), **facts})
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


class Candidate:
    """Campaigns until it is killed."""

    def __init__(self, account: Account) -> None:
        self._account = account

    async def lead(self, leadership: Leadership) -> None:
        """Lead until it is over."""
        say("leads", term=leadership.term)
        say("writes", term=leadership.term, accepted=await self._account.write(101, leadership.term))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say("is cancelled", term=leadership.term, held=leadership.held)
            late = await self._account.write(102, leadership.term)
            say("writes late", term=leadership.term, accepted=late)
            raise


async def observe(election: Election) -> None:
    """Tell of leaders until killed."""
    async for leader in election.observe():
        say("hears", term=leader.term if leader else None, label=leader.holder if leader else None)


async def main(label: str, ttl: str, path: str, urls: str) -> None:
    """Take part in the election."""
    async with LockManager(urls.split(",")) as manager:
        election = manager.election("scheduler", ttl=float(ttl), holder=label)
        say("is there")
        if label == "observer":
            await observe(election)
        await election.run(Candidate(Account(path)).lead)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
