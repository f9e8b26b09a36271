"""What the examples fenced_*.py share: two deposits, the first by a process that is frozen in between.

A takes the lock, reads the balance, and is frozen (SIGSTOP) past its ttl.  B gets the lock, reads and writes.
A goes on (SIGCONT) and writes what it had in mind.  Only the account can refuse that.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol

from aioredlock_ng import LockLostError, LockManager
from aioredlock_ng.testing import local_nodes

TTL = 1.0  # seconds; B waits so long


class Account(Protocol):
    """The resource, which B uses in this process and A in one of its own (so it must pickle)."""

    async def read(self, fence: int) -> int | None:
        """Return the balance, and refuse older fences from here on; None if this one is older."""

    async def write(self, balance: int, fence: int) -> bool:
        """Write, unless this fence is older than another that was here."""


class Deposit(NamedTuple):
    """What became of a deposit."""

    fence: int
    accepted: bool  # by the account
    lost: bool  # the lock, as its holder learned at the end of the block


def say(who: str, what: str) -> None:
    print(f"{who}: {what}", flush=True)  # at once, for two processes print


async def deposit(urls: list[str], account: Account, who: str, amount: int, on_lost: str) -> Deposit:
    """Add to the balance under the lock; A is frozen between its reading and its writing."""
    accepted = lost = False
    async with LockManager(urls, ttl=TTL) as manager:
        try:
            async with manager.lock("account:1", blocking_timeout=30, on_lost=on_lost) as lease:
                balance = await account.read(lease.fence)
                say(who, f"has the lock with fence {lease.fence} and reads {balance}")
                if who == "A":
                    os.kill(os.getpid(), signal.SIGSTOP)  # for longer than the ttl
                accepted = balance is not None and await account.write(balance + amount, lease.fence)
                say(who, f"its deposit of {amount} is {'written' if accepted else 'refused'}")
        except LockLostError as error:
            lost = True
            say(who, f"learns: {error}")
    return Deposit(lease.fence, accepted, lost)


def frozen_deposit(urls: list[str], account: Account, on_lost: str, outcome: Connection) -> None:
    """What the process of A does."""
    os.setpgrp()  # frozen as a group of its own, it is ended by the kernel (SIGHUP) when its parent is gone
    logging.basicConfig(stream=sys.stdout, format="A: logs: %(message)s")
    outcome.send(asyncio.run(deposit(urls, account, "A", 30, on_lost)))


def wait_until_frozen(pid: int) -> None:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        raise RuntimeError(f"A ended before it could be frozen, status {status}")


async def two_deposits(
    urls: list[str], account: Account, *, on_lost: str = "raise"
) -> tuple[Deposit, Deposit]:
    """Let A begin, be frozen, and be overtaken by B; return what became of both.

    By default a lost lock cancels the block at its next `await`: often A's write would not even leave.
    "raise" leaves A alone, as if it were a thread, or its write were on its way already.
    """
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    a = spawn.Process(target=frozen_deposit, args=(urls, account, on_lost, sender))
    a.start()
    sender.close()  # A has its own, so that its end is seen here
    try:
        await asyncio.to_thread(wait_until_frozen, a.pid)
        say("A", f"is frozen past its ttl of {TTL:g} s")
        by_b = await deposit(urls, account, "B", 10, on_lost)
        say("A", "goes on")
        os.kill(a.pid, signal.SIGCONT)
        by_a = await asyncio.to_thread(receiver.recv)
    finally:
        a.kill()  # also when it is frozen
        a.join()
        receiver.close()
    return by_a, by_b


@contextlib.asynccontextmanager
async def node_urls() -> AsyncIterator[list[str]]:
    if urls := os.environ.get("REDLOCK_URLS"):
        yield urls.split(",")
    else:
        async with local_nodes(3) as nodes:
            yield nodes.urls


async def show(account: Account) -> None:
    """Tell the story; the exit status is 0 only if A's write was refused and B's stands."""
    async with node_urls() as urls:
        by_a, by_b = await two_deposits(urls, account)
    balance = await account.read(by_b.fence)
    print(f"the balance is {balance}")
    if by_a.accepted or not by_b.accepted or balance != 110:
        sys.exit("the stale write went through")
