"""Owner values: none can be guessed, and none is used twice (A5)."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from typing import Final

import pytest

from aioredlock_ng import LockManager, LockTakenError
from aioredlock_ng.testing import MemoryNode
from tests.behaviour.tools import python
from tests.unit.tasks import sim, virtual
from tests.unit.traces import sent

SECRET: Final = 40  # characters of an owner value that are random: what follows is for people

FORKING: Final = """
import asyncio, os, random
from aioredlock_ng import LockManager
from aioredlock_ng.testing import MemoryNode

random.seed(1)
manager = LockManager([MemoryNode()])

async def work():
    async with manager:
        for number in range(20):
            lease = await manager.lock(f"job {number}").acquire()
            print(lease._holding.owner.decode().partition(":")[0], flush=True)
            await lease.release()

for _ in range(4):
    child = os.fork()
    if not child:
        asyncio.run(work())
        os._exit(0)
    os.waitpid(child, 0)
asyncio.run(work())
"""


async def owners(manager: LockManager, node: MemoryNode, number: int) -> list[bytes]:
    """Take and release a lock so often; returns the owner values that the node was sent."""
    for _ in range(number):
        async with manager.lock("job"):
            pass
    return [command.owner for command in sent(node) if command.kind == "acquire"]


def test_the_source_is_the_systems() -> None:
    """A manager that is given no source draws from the operating system, 160 bits for each value."""
    managers_random = LockManager(["redis://any"])._life.random
    assert type(managers_random) is secrets.SystemRandom


@virtual
async def test_an_error_of_the_source_costs_one_attempt() -> None:
    """The next attempt draws again: an interrupt, or a system without entropy, ends no manager."""

    class Failing(random.Random):
        def randbytes(self, n: int) -> bytes:
            if sim().time() < failing_until:
                raise OSError("no entropy")
            return super().randbytes(n)

    failing_until = sim().time() + 1
    async with LockManager([MemoryNode()], clock=sim().clock, random=Failing(1)) as manager:
        with pytest.raises(OSError, match="no entropy"):
            await manager.lock("a").acquire()
        await asyncio.sleep(1)
        async with manager.lock("a") as lease:
            assert lease.held


@virtual
async def test_owner_values_are_fresh_uniform_and_ascii() -> None:
    """Two thousand attempts: no value twice, every hexadecimal digit as often as any, nothing but ASCII."""
    number = 2000
    node = MemoryNode()
    async with LockManager([node], clock=sim().clock) as manager:
        seen = await owners(manager, node, number)
    values = [owner[:SECRET] for owner in seen]
    assert len(values) == len(set(values)) == number
    assert all(owner.isascii() and owner[SECRET : SECRET + 1] == b":" for owner in seen)
    digits = Counter(b"".join(values))
    assert set(digits) == set(b"0123456789abcdef")
    expected = number * SECRET / 16
    # Chi squared with 15 degrees of freedom: 60 is passed by chance once in two million runs.
    assert sum((count - expected) ** 2 / expected for count in digits.values()) < 60
    places = [len({value[place] for value in values}) for place in range(SECRET)]
    assert places == [16] * SECRET, "no place is fixed"


@virtual
async def test_a_lost_attempt_uses_up_its_value() -> None:
    """A refused client comes again with another value: one value stands for one attempt (R5, R10)."""
    node = MemoryNode()
    async with LockManager([node], clock=sim().clock) as manager:
        node.set(b"redlock:job", b"another holder", 60)
        for _ in range(33):
            with pytest.raises(LockTakenError):
                await manager.lock("job", blocking=False).acquire()
    seen = [command.owner[:SECRET] for command in sent(node) if command.kind == "acquire"]
    assert len(seen) == len(set(seen)) == 33


@pytest.mark.heavy
async def test_forks_share_no_value() -> None:
    """Five processes of one program, seeded before they parted: a hundred different values."""
    async with python("-W", "ignore", "-c", FORKING) as program:
        out, errors = await program.ended()
    values = out.split()
    assert (len(values), len(set(values))) == (100, 100), errors
