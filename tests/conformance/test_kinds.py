"""The scripts of all kinds: their common answers, and that nothing is done without a vote."""

from __future__ import annotations

from typing import Any, Final

import pytest

from aioredlock_ng._core.command import Command
from aioredlock_ng._kinds import KINDS
from aioredlock_ng._kinds.kind import Kind
from aioredlock_ng._kinds.primitive import Primitive
from tests.conformance.masters import WRONG
from tests.conformance.stage import (
    EXPECTED,
    FAR,
    KEEP,
    SENTINEL,
    TTL,
    Stage,
    beside,
    each_reason,
    locks,
    without_a_vote,
)
from tests.conformance.tools import OURS, lives

LOCK: Final = locks("a")[0]


class Lock:
    """One lock of a kind, whose commands go to one node as they are."""

    def __init__(self, stage: Stage, kind: Kind) -> None:
        self.stage = stage
        self.counter = beside("a", kind.counter.encode())[0]
        self.name = Primitive(
            kind,
            ("a",),
            (LOCK,),
            counters=(self.counter,),
            beside=tuple(beside("a", mark.encode())[0] for mark in kind.beside),
            incarnation=SENTINEL,
            fence_ttl=KEEP,
        )

    async def acquire(self, ballot: int = 1, **vote: Any) -> Any:
        """Acquire; of a semaphore the slot that is granted is that of all later commands."""
        answer = await self._run(self.name.acquire(OURS, TTL, ballot), **vote)
        if self.name.kind.permits and answer[0] == 1:
            self.name = self.name.at(answer[-1])
        return answer

    async def raise_(self, fence: int, **vote: Any) -> Any:
        """Raise the counter."""
        return await self._run(self.name.raise_(OURS, fence), **vote)

    async def extend(self, fence: int, **vote: Any) -> Any:
        """Extend."""
        return await self._run(self.name.extend(OURS, TTL, fence), **vote)

    async def repair(self, fence: int) -> Any:
        """Set a lost key again."""
        return await self._run(self.name.repair(OURS, TTL, fence), voting=False)

    async def release(self, fence: int) -> Any:
        """Release."""
        return await self._run(self.name.release(OURS, TTL, fence, quiet=True), voting=False)

    async def _run(self, command: Command, *, stamp: bytes = EXPECTED, voting: bool = True) -> Any:
        assert command.script is not None, "with fences there is always one"
        vote = (stamp, 0) if voting else ()
        return await self.stage.run(command.script, command.keys, *command.args, *vote)

    def state(self) -> list[Any]:
        """Return what is under the lock and its counter."""
        return [self.stage.look(key)[0] for key in (LOCK, self.counter)]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def lock(request: pytest.FixtureRequest, stage: Stage) -> Lock:
    """Give one free lock of each kind."""
    return Lock(stage, request.param)


async def test_a_lock_from_its_acquire_to_its_release(lock):
    """A repeated acquire changes nothing; a raise goes up, not too far; an extension never creates (R8)."""
    code, fence, *_ = await lock.acquire(await lock.stage.fence(-10))
    before = lock.state()
    assert (await lock.acquire(await lock.stage.fence(-5)))[:2] == [code, fence] == [1, fence]
    assert lock.state() == before
    far, below = await lock.stage.fence(FAR), 1 if lock.name.kind.mode == "read" else -3
    assert [await lock.raise_(each) for each in (fence + 2, fence, far)] == [1, below, -2]
    assert await lock.extend(fence + 2) == 1
    assert lives(lock.stage.look(LOCK)[1], TTL)
    assert (await lock.release(fence + 2))[:2] == [1, 0]
    assert [await lock.extend(fence + 2), await lock.raise_(fence + 2)] == [0, 0]
    assert lock.stage.look(LOCK)[0] is None
    assert await lock.repair(fence + 2) == 0
    assert await lock.extend(fence + 2) == 1
    assert lives(lock.stage.look(lock.counter)[1], KEEP)


async def test_nothing_is_granted_without_a_vote(lock):
    """A record that is not the expected one: nothing changes, and the answers say so (R12)."""
    for why in each_reason:
        lock.stage.clear()
        fence, stamp = await lock.stage.fence(0), without_a_vote(lock.stage, why)
        assert (await lock.acquire(stamp=stamp))[:2] == [-1, 0]
        assert lock.state() == [None, None]
        lock.stage.put(SENTINEL, EXPECTED)
        assert (await lock.acquire())[0] == 1
        before, stamp = lock.state(), without_a_vote(lock.stage, why)
        assert (await lock.acquire(stamp=stamp))[0] == -1, "not even what is ours already"
        assert await lock.raise_(fence, stamp=stamp) == -1
        assert lock.state() == before
        assert await lock.extend(fence, stamp=stamp) == 11
        lock.stage.put(LOCK, None)
        assert await lock.extend(fence, stamp=stamp) == 10


async def test_another_type_is_an_error_and_stays(lock):
    """Nothing is granted; what a failing counter lets happen before the error, a release undoes."""
    for key in (LOCK, lock.counter, SENTINEL):
        lock.stage.clear()
        lock.stage.put(key, WRONG)
        assert await lock.acquire() == "WRONGTYPE", key
        if key == LOCK:
            fence, name = await lock.stage.fence(0), lock.name
            if name.kind.permits:
                lock.name = name.at(0)
            answers = [await ask(fence) for ask in (lock.raise_, lock.extend, lock.repair, lock.release)]
            assert answers == ["WRONGTYPE"] * 4
            lock.name = name
        elif key == lock.counter:
            assert (await lock.release(0))[1] == 0
            assert lock.stage.look(LOCK)[0] is None
        assert lock.stage.look(key) == (WRONG, None)
