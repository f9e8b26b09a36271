"""The scripts of a semaphore: what they answer and leave, on every kind of master (R24, R25)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.fencing import START_LAG_MS, at
from tests.conformance.masters import WRONG, is_hash
from tests.conformance.stage import (
    EXPECTED,
    FAR,
    KEEP,
    KEEP_MS,
    SENTINEL,
    TTL,
    TTL_MS,
    Stage,
    beside,
    locks,
    waits,
)
from tests.conformance.tools import OTHERS, OURS, SLACK, lives

LOCK: Final = locks("a")[0]
COUNTERS: Final = beside("a", b"slots")[0]
THIRD: Final = b"a" * 40 + b":third"


class SlotStage(Stage):
    """A node with a semaphore under one name."""

    async def put_slots(self, *held: tuple[int, bytes, float]) -> None:
        """Have slots held: each with its owner, for some seconds more; what is below 0 has ended."""
        now_ms = await self.now_ms()
        fields = {b"%d" % slot: b"%d:%b" % (now_ms + left * 1000, owner) for slot, owner, left in held}
        self.put(LOCK, fields, max(1.0, *(left for _, _, left in held)))

    async def slots(self) -> dict[int, tuple[bytes, float]]:
        """Return the slots under the key: owners, each with the seconds that it has left, or below 0."""
        value, _ = self.look(LOCK)
        now_ms = await self.now_ms()
        parted = {int(slot): entry.partition(b":") for slot, entry in value.items()} if is_hash(value) else {}
        return {slot: (owner, (int(till) - now_ms) / 1000) for slot, (till, _, owner) in parted.items()}

    async def owners(self) -> dict[int, bytes]:
        """Return the owners under the key, by slot."""
        return {slot: owner for slot, (owner, _) in (await self.slots()).items()}

    def counts(self) -> dict[int, int]:
        """Return the counters, by slot."""
        value, _ = self.look(COUNTERS)
        return {int(slot): int(count) for slot, count in value.items()} if is_hash(value) else {}

    async def ask(
        self,
        permits: int = 4,
        start: int = 0,
        span: int | None = None,
        *,
        ballot: int = 1,
        owner: bytes = OURS,
        **vote: Any,
    ) -> Any:
        """Run `slots_acquire.lua`; a ballot of 0 is none."""
        args = (owner, TTL_MS, ballot, 1, KEEP_MS, permits, start, permits if span is None else span)
        return await self.voted(_scripts.SLOTS_ACQUIRE, self._keys(ballot), *args, **vote)

    async def lift(self, fence: int, slot: int, **vote: Any) -> Any:
        """Run `slots_raise.lua`."""
        return await self.voted(_scripts.SLOTS_RAISE, self._keys(1), OURS, fence, KEEP_MS, slot, **vote)

    async def prolong(self, slot: int, fence: int = 0, **vote: Any) -> Any:
        """Run `slots_extend.lua`; a fence of 0 is none."""
        args = (OURS, TTL_MS, fence, KEEP_MS, slot)
        return await self.voted(_scripts.SLOTS_EXTEND, self._keys(fence), *args, **vote)

    async def refill(self, slot: int, fence: int = 0) -> Any:
        """Run `slots_repair.lua`; a fence of 0 is none."""
        return await self.run(_scripts.SLOTS_REPAIR, self._keys(fence), OURS, TTL_MS, fence, KEEP_MS, slot)

    async def free(self, fence: int = 0, *, slot: int = -1, permits: int = 4) -> Any:
        """Run `slots_release.lua`; a fence of 0 is none."""
        args = (OURS, fence, KEEP_MS, b"", permits, slot)
        return await self.run(_scripts.SLOTS_RELEASE, self._keys(fence), *args)

    @staticmethod
    def _keys(fence: int) -> list[bytes]:
        return [LOCK, COUNTERS] if fence else [LOCK]


STAGE = SlotStage


@pytest.mark.parametrize("fenced", [True, False])
async def test_the_first_free_slot_from_the_start_on_is_granted(stage, fenced):
    """Round and round, each to one owner; what has ended is dropped, the key lives as long as the longest."""
    await stage.put_slots((1, OTHERS, 30), (2, OTHERS, 90), (3, OTHERS, -5))
    code, fence, _, slot = await stage.ask(4, 1, ballot=1 if fenced else 0)
    assert (code, slot, fence > 0) == (1, 3, fenced)
    assert lives((await stage.slots())[3][1], TTL)
    assert lives(stage.look(LOCK)[1], 90)
    assert (await stage.ask(4, 1, owner=THIRD))[3] == 0
    assert await stage.owners() == {0: THIRD, 1: OTHERS, 2: OTHERS, 3: OURS}
    assert stage.counts().keys() == ({3, 0} if fenced else {0})
    await stage.put_slots((1, OTHERS, -5), (2, OTHERS, 30))
    assert (await stage.ask(4, 0))[3] == 0
    assert await stage.owners() == {0: OURS, 2: OTHERS}


async def test_a_refusal_tells_when_the_first_slot_ends(stage):
    """0 where one is free that was not looked at; slots beyond those that were asked for do not matter."""
    await stage.put_slots((0, OTHERS, 90), (1, OTHERS, 30), (5, OTHERS, 20))
    before = await stage.owners()
    code, wait, _, slot = await stage.ask(2)
    assert (code, waits(wait, 30), slot) == (0, True, -1)
    assert (await stage.ask(3, 1, 1))[:2] == [0, 0]
    assert (await stage.owners(), stage.counts()) == (before, {})


async def test_slots_of_another_kind_are_in_the_way(stage):
    """Until they have ended: no kind counts the holders of another one, whose owners have another letter."""
    semaphore, rate = (b"%040x:1763640000000%b:us" % (number, b"sq"[number:][:1]) for number in range(2))
    await stage.put_slots((0, rate, 30))
    assert (await stage.ask(owner=semaphore))[0] == 0
    assert await stage.owners() == {0: rate}
    await stage.put_slots((0, rate, -5))
    assert (await stage.ask(owner=semaphore))[0] == 1
    assert await stage.owners() == {0: semaphore}


async def test_each_slot_has_a_counter_of_its_own(stage):
    """Above every value that it ever had; a missing one begins behind the node's time, or at the floor."""
    ballot = await stage.fence(-10)
    fences = [(await stage.ask(4, slot, 1, ballot=ballot, owner=b"%d" % slot))[1] for slot in (0, 1)]
    assert fences == [ballot, ballot]
    await stage.put_slots((1, OTHERS, 30))
    assert (await stage.ask(4, 0, 1, ballot=1))[1] == ballot + 2
    assert stage.counts() == {0: ballot + 2, 1: ballot}
    assert lives(stage.look(COUNTERS)[1], KEEP)
    least = at(await stage.now_ms() - START_LAG_MS)
    assert least < (await stage.ask(4, 2, 1, ballot=1, owner=THIRD))[1] < least + at(round(SLACK * 1000))
    floor = await stage.fence(20)
    assert (await stage.ask(4, 3, 1, ballot=1, owner=b"x", floor=floor))[1] == floor + 2


# -- what others have under the name (R19) -------------------------------------------------------------


@pytest.mark.parametrize("value", [OTHERS, {b"reader": 1}, WRONG], ids=["a mutex", "readers", "a list"])
async def test_another_kind_is_an_error_and_stays(stage, value):
    """A name is of one kind."""
    stage.put(LOCK, value, 30)
    assert await stage.ask() == "WRONGTYPE"
    assert await stage.prolong(0, 5) == "WRONGTYPE"
    assert await stage.refill(0, 5) == "WRONGTYPE"
    assert await stage.lift(5, 0) == "WRONGTYPE"
    assert await stage.free(5) == "WRONGTYPE"
    assert stage.look(LOCK)[0] == value


async def test_permits_are_no_mutexs_and_no_readers(stage):
    """Each of their scripts answers with the server's error, and changes nothing."""
    await stage.put_slots((0, OTHERS, 30))
    assert await stage.acquire() == "WRONGTYPE"
    assert [b"WRONGTYPE" in each for each in (await stage.acquire_many(ballot=1))[1:]] == [True]
    assert await stage.extend(5) == "WRONGTYPE"
    assert await stage.repair(5) == "WRONGTYPE"
    assert await stage.release(0) == "WRONGTYPE"
    for script in (_scripts.READ, _scripts.WRITE):
        keys = [LOCK, *beside("a", b"fence"), *beside("a", b"queue"), SENTINEL]
        args = (OURS, TTL_MS, 1, 1, KEEP_MS, b"", EXPECTED, 0)
        assert await stage.run(script, keys, *args) == "WRONGTYPE"
    assert await stage.owners() == {0: OTHERS}


@pytest.mark.parametrize(
    ("fields", "ttl"), [({b"name": b"value"}, None), ({b"name": b"value"}, 30.0), ({b"0": b"5:x"}, None)]
)
async def test_another_programs_hash_is_left_alone(stage, fields, ttl):
    """One with entries of another form is in the way for as long as it is there."""
    stage.put(LOCK, fields, ttl)
    code, wait, _, slot = await stage.ask()
    assert (code, waits(wait, ttl), slot) == (0, True, -1)
    assert (await stage.prolong(0), await stage.refill(0), await stage.lift(5, 0)) == (-1, -1, 0)
    given, wait, told, foreign = await stage.free()
    assert (given, told, foreign) == (0, 0, 1)
    assert stage.look(LOCK)[0] == fields


# -- what is held --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fenced", [True, False])
async def test_an_extension_is_of_one_slot_and_gives_the_others_back(stage, fenced):
    """An answer may have been lost that named another one (R25)."""
    await stage.put_slots((0, OURS, 30), (1, OURS, 30), (2, OTHERS, 30))
    fence = await stage.fence(0) if fenced else 0
    assert await stage.prolong(0, fence) == 1
    slots = await stage.slots()
    assert slots.keys() == {0, 2}
    assert lives(slots[0][1], TTL)
    assert stage.counts() == ({0: fence} if fenced else {})
    assert await stage.prolong(2, fence) == -1, "it is another's"
    assert (await stage.owners()).keys() == {2}


async def test_an_extension_never_creates_nor_shortens(stage):
    """An entry that has ended is missing, as is a free slot (R8)."""
    await stage.put_slots((0, OURS, -1), (1, OTHERS, 90))
    assert [await stage.prolong(0), await stage.prolong(3)] == [0, 0]
    assert await stage.owners() == {1: OTHERS}
    await stage.put_slots((0, OURS, 90))
    assert await stage.prolong(0) == 1
    assert lives((await stage.slots())[0][1], 90)


async def test_a_repair_is_of_one_slot_and_gives_the_others_back(stage):
    """Never two slots of one owner at a node; one that another has is not taken (R9, R25)."""
    await stage.put_slots((0, OURS, 30), (2, OTHERS, 30))
    fence = await stage.fence(0)
    assert await stage.refill(1, fence) == 0
    assert await stage.owners() == {1: OURS, 2: OTHERS}
    assert lives((await stage.slots())[1][1], TTL)
    assert stage.counts() == {1: fence}
    assert await stage.refill(2, fence) == -1
    assert await stage.owners() == {2: OTHERS}


async def test_a_raise_is_for_the_slots_owner_alone(stage):
    """The counter of that slot, unless it is above, or that would be too far ahead of the clock (R10)."""
    await stage.put_slots((0, OURS, 30), (1, OTHERS, 30))
    fence = await stage.fence(0)
    assert [await stage.lift(fence, slot) for slot in (0, 1, 2)] == [1, 0, 0]
    assert await stage.lift(fence - 1, 0) == -3
    assert await stage.lift(await stage.fence(FAR), 0) == -2
    assert stage.counts() == {0: fence}


async def test_a_release_is_of_all_slots_of_the_owner(stage):
    """And drops what has ended; the key goes with the last of them."""
    await stage.put_slots((0, OURS, 30), (1, OURS, 30), (2, OTHERS, 20), (3, OTHERS, -1))
    assert await stage.free(permits=3) == [2, 0, 0]
    assert await stage.owners() == {2: OTHERS}
    assert await stage.free(permits=3) == [0, 0, 0]
    await stage.put_slots((0, OTHERS, 30), (1, OTHERS, 20), (2, OURS, -1))
    given, wait, _ = await stage.free(permits=2)
    assert (given, waits(wait, 20)) == (0, True)
    await stage.put_slots((0, OURS, 30))
    assert (await stage.free())[0] == 1
    assert stage.held() == [None]


@pytest.mark.parametrize(("slot", "lifted"), [(0, True), (1, False), (2, False), (3, False)])
async def test_a_release_lifts_the_counter_of_its_slot(stage, slot, lifted):
    """Of a slot that is its owner's no more another one may have a fence by now, and that counts."""
    await stage.put_slots((0, OURS, 30), (1, OTHERS, 30), (3, OTHERS, -1))
    fence = await stage.fence(0)
    assert (await stage.free(fence, slot=slot))[0] == 1
    assert stage.counts() == ({slot: fence} if lifted else {})


async def test_an_inspection_shows_the_slots_that_are_held(stage):
    """By their numbers, with the milliseconds of each, without a fence; none that has ended."""
    await stage.put_slots((11, OTHERS, 20), (2, OURS, 30), (3, OURS, -1))
    value, left, count = await stage.inspect()
    assert (value[::3], value[1::3], count) == ([2, 11], [OURS, OTHERS], None)
    assert all(map(waits, [*value[2::3], left], (30, 20, 30)))
