"""The scripts of a semaphore: what they answer and leave, on every kind of master (R24, R25)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from aioredlock_ng import _scripts
from aioredlock_ng._core.fencing import START_LAG_MS, at
from aioredlock_ng._node.pipe import untagged
from tests.conformance.rules import TAG
from tests.conformance.stage import (
    EXPECTED,
    KEEP,
    KEEP_MS,
    SENTINEL,
    TTL,
    TTL_MS,
    Stage,
    counters,
    locks,
    slot_counters,
)
from tests.conformance.tools import OTHERS, OURS, SLACK, WRONG, Master, alike, connected, is_hash, lives
from tests.servers import Nodes

LOCK: Final = locks("a")[0]
COUNTERS: Final = slot_counters("a")[0]
THIRD: Final = b"a" * 40 + b":third"


class SlotStage(Stage):
    """One node, whose sentinel is `EXPECTED` unless a test changes it, with a semaphore under one name."""

    async def put_slots(self, *held: tuple[int, bytes, float]) -> None:
        """Have slots held: each with its owner, for so many seconds yet; what is below 0 has ended."""
        now_ms = await self.now_ms()
        fields = {b"%d" % slot: b"%d:%b" % (now_ms + left * 1000, owner) for slot, owner, left in held}
        self.put(LOCK, fields, max(1.0, *(left for _, _, left in held)))

    async def slots(self) -> dict[int, tuple[bytes, float]]:
        """Return the slots under the key: owners, each with the seconds that it has left, or below 0."""
        ((value, _),) = self.master.look([LOCK])
        fields = value if is_hash(value) else {}
        now_ms = await self.now_ms()
        parted = {int(slot): entry.partition(b":") for slot, entry in fields.items()}
        return {slot: (owner, (int(till) - now_ms) / 1000) for slot, (till, _, owner) in parted.items()}

    async def owners(self) -> dict[int, bytes]:
        """Return the owners under the key, by slot."""
        return {slot: owner for slot, (owner, _) in (await self.slots()).items()}

    def counted(self) -> dict[int, int]:
        """Return the counters, by slot."""
        ((value, _),) = self.master.look([COUNTERS])
        return {int(slot): int(count) for slot, count in value.items()} if is_hash(value) else {}

    async def ask(
        self,
        permits: int = 4,
        start: int = 0,
        span: int | None = None,
        *,
        ballot: int = 1,
        floor: int = 0,
        stamp: Sequence[bytes] | None = (),
        owner: bytes = OURS,
    ) -> Any:
        """Run `slots_acquire.lua`; a ballot of 0 is none, a stamp of None as well."""
        keys = [LOCK, *([COUNTERS] if ballot else []), *(() if stamp is None else (SENTINEL,))]
        look = (permits, start, permits if span is None else span)
        args = (owner, TTL_MS, ballot, 1, KEEP_MS, *look)
        return await self.node.run(_scripts.SLOTS_ACQUIRE, keys, *args, *self._stamp(stamp, floor))

    async def lift(self, fence: int, slot: int, *, floor: int = 0, stamp: Sequence[bytes] = ()) -> Any:
        """Run `slots_raise.lua`."""
        args = (OURS, fence, KEEP_MS, slot)
        keys = [LOCK, COUNTERS, SENTINEL]
        return await self.node.run(_scripts.SLOTS_RAISE, keys, *args, *self._stamp(stamp, floor))

    async def prolong(self, slot: int, fence: int = 0, *, stamp: Sequence[bytes] | None = ()) -> Any:
        """Run `slots_extend.lua`; a fence of 0 is none, a stamp of None as well."""
        keys = [LOCK, *([COUNTERS] if fence else []), *(() if stamp is None else (SENTINEL,))]
        args = (OURS, TTL_MS, fence, KEEP_MS, slot)
        return await self.node.run(_scripts.SLOTS_EXTEND, keys, *args, *self._stamp(stamp, 0))

    async def refill(self, slot: int, fence: int = 0) -> Any:
        """Run `slots_top_up.lua`; a fence of 0 is none."""
        keys = [LOCK, *([COUNTERS] if fence else [])]
        return await self.node.run(_scripts.SLOTS_TOP_UP, keys, OURS, TTL_MS, fence, KEEP_MS, slot)

    async def free(self, fence: int = 0, *, slot: int = -1, permits: int = 4, loud: bytes = b"") -> Any:
        """Run `slots_release.lua`; a fence of 0 is none."""
        keys = [LOCK, *([COUNTERS] if fence else [])]
        args = (OURS, fence, KEEP_MS, loud, permits, slot)
        return await self.node.run(_scripts.SLOTS_RELEASE, keys, *args)

    @staticmethod
    def _stamp(stamp: Sequence[bytes] | None, floor: int) -> tuple[bytes | int, ...]:
        if stamp is None:
            return ()
        expected, identity = stamp or (EXPECTED, b"")
        return expected, floor, identity


@pytest.fixture
async def stage(master: Master) -> AsyncIterator[SlotStage]:
    """Give an empty node with the sentinel that all requests expect."""
    master.flush()
    master.put([(SENTINEL, EXPECTED, None)])
    async with connected(master) as node:
        yield SlotStage(master, node)


def waits(seen: int, seconds: float) -> bool:
    """Return whether the wait of a refusal is about so long."""
    return alike(seen, round(seconds * 1000) + 1)


# -- acquire -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fenced", [True, False])
async def test_the_first_free_slot_from_the_start_on_is_granted(stage: SlotStage, fenced: bool) -> None:
    """Round and round, and each to one owner; the key lives as long as the longest of them."""
    await stage.put_slots((1, OTHERS, 30), (2, OTHERS, 90), (3, OTHERS, -5))
    code, fence, _, slot = await stage.ask(4, 1, ballot=1 if fenced else 0)
    assert (code, slot, fence > 0) == (1, 3, fenced)
    assert lives((await stage.slots())[3][1], TTL)
    assert lives(stage.master.look([LOCK])[0][1], 90)
    assert (await stage.ask(4, 1, owner=THIRD))[3] == 0
    assert await stage.owners() == {0: THIRD, 1: OTHERS, 2: OTHERS, 3: OURS}
    assert stage.counted().keys() == {3, 0} if fenced else {0}


async def test_a_slot_that_has_ended_is_dropped(stage: SlotStage) -> None:
    """By the next grant of any other one."""
    await stage.put_slots((1, OTHERS, -5), (2, OTHERS, 30))
    assert (await stage.ask(4, 0))[3] == 0
    assert await stage.owners() == {0: OURS, 2: OTHERS}


async def test_a_refusal_tells_when_the_first_slot_ends(stage: SlotStage) -> None:
    """0 where one is free that was not looked at; slots beyond those that were asked for do not matter."""
    await stage.put_slots((0, OTHERS, 90), (1, OTHERS, 30), (5, OTHERS, 20))
    before = await stage.owners()
    code, wait, _, slot = await stage.ask(2)
    assert (code, waits(wait, 30), slot) == (0, True, -1)
    assert (await stage.ask(3, 1, 1))[:2] == [0, 0]
    assert await stage.owners() == before
    assert stage.counted() == {}


async def test_an_owner_has_one_slot(stage: SlotStage) -> None:
    """A repeated command is told of it, wherever it begins to look, and nothing changes."""
    first = await stage.ask(4, 2, ballot=await stage.fence(-10))
    before = await stage.slots(), stage.counted()
    again = await stage.ask(4, 0, ballot=await stage.fence(-5))
    assert (again[:2], again[3]) == (first[:2], first[3])
    assert ((await stage.slots()).keys(), stage.counted()) == (before[0].keys(), before[1])


async def test_each_slot_has_a_counter_of_its_own(stage: SlotStage) -> None:
    """Above every value that it ever had; a missing one begins behind the node's time, or at the floor."""
    ballot = await stage.fence(-10)
    fences = [(await stage.ask(4, slot, 1, ballot=ballot, owner=b"%d" % slot))[1] for slot in (0, 1)]
    assert fences == [ballot, ballot]
    await stage.put_slots((1, OTHERS, 30))
    assert (await stage.ask(4, 0, 1, ballot=1))[1] == ballot + 2
    assert stage.counted() == {0: ballot + 2, 1: ballot}
    assert lives(stage.master.look([COUNTERS])[0][1], KEEP)
    least = at(await stage.now_ms() - START_LAG_MS)
    assert least < (await stage.ask(4, 2, 1, ballot=1, owner=THIRD))[1] < least + at(round(SLACK * 1000))
    floor = await stage.fence(20)
    assert (await stage.ask(4, 3, 1, ballot=1, owner=b"x", floor=floor))[1] == floor + 2


@pytest.mark.parametrize("why", ["missing", "another", "identity"])
async def test_nothing_is_granted_without_a_vote(stage: SlotStage, why: str) -> None:
    """A sentinel that is not the expected one, or another server's identity: nothing changes (R12)."""
    identity = await stage.identity()
    await stage.put_slots((1, OURS, 30), (2, OTHERS, 30))
    stamp = {"missing": (b"", b""), "another": (EXPECTED, b""), "identity": (EXPECTED, identity[:-1])}[why]
    if why != "identity":
        stage.put(SENTINEL, None if why == "missing" else EXPECTED + b"0")
    code, nothing, _, slot = await stage.ask(stamp=stamp, owner=THIRD)
    assert (code, nothing, slot) == (-1, 0, -1)
    assert await stage.owners() == {1: OURS, 2: OTHERS}
    fence = await stage.fence(0)
    assert await stage.lift(fence, 1, stamp=stamp) == -1
    extended = [await stage.prolong(slot, fence, stamp=stamp) for slot in (1, 2)]
    assert extended == [11, 9]
    assert await stage.prolong(0, fence, stamp=stamp) == 10, "and gives back what it is not for"
    assert await stage.owners() == {2: OTHERS}


# -- what others have under the name (R19) -------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [OTHERS, {b"reader": 1}, WRONG], ids=["a mutex", "readers", "another program's"]
)
async def test_another_kind_is_an_error_and_stays(stage: SlotStage, value: Any) -> None:
    """A name is of one kind."""
    stage.put(LOCK, value, 30)
    assert await stage.ask() == "WRONGTYPE"
    assert await stage.prolong(0, 5) == "WRONGTYPE"
    assert await stage.refill(0, 5) == "WRONGTYPE"
    assert await stage.lift(5, 0) == "WRONGTYPE"
    assert await stage.free(5) == "WRONGTYPE"
    assert stage.master.look([LOCK])[0][0] == value


async def test_permits_are_no_mutexs_and_no_readers(stage: SlotStage) -> None:
    """Each of their scripts answers with the server's error, and changes nothing."""
    await stage.put_slots((0, OTHERS, 30))
    assert await stage.acquire() == "WRONGTYPE"
    assert [b"WRONGTYPE" in each for each in (await stage.acquire_many(ballot=1))[1:]] == [True]
    assert await stage.extend(5) == "WRONGTYPE"
    assert await stage.top_up(5) == "WRONGTYPE"
    assert await stage.release(0) == "WRONGTYPE"
    queue = b"redlock:queue:{redlock:a}"
    for script in (_scripts.READ, _scripts.WRITE):
        keys = [LOCK, b"redlock:fence:{redlock:a}", queue, SENTINEL]
        args = (OURS, TTL_MS, 1, 1, KEEP_MS, b"", EXPECTED, 0, b"")
        assert await stage.node.run(script, keys, *args) == "WRONGTYPE"
    assert await stage.owners() == {0: OTHERS}


@pytest.mark.parametrize(
    ("fields", "ttl"), [({b"name": b"value"}, None), ({b"name": b"value"}, 30.0), ({b"0": b"5:x"}, None)]
)
async def test_another_programs_hash_is_left_alone(
    stage: SlotStage, fields: dict[bytes, bytes], ttl: float | None
) -> None:
    """One with entries of another form is in the way for as long as it is there."""
    stage.put(LOCK, fields, ttl)
    code, wait, _, slot = await stage.ask()
    assert (code, slot) == (0, -1)
    assert wait == -1 if ttl is None else alike(wait, round(ttl * 1000))
    assert (await stage.prolong(0), await stage.refill(0), await stage.lift(5, 0)) == (-1, -1, 0)
    given, wait, told, foreign = await stage.free()
    assert (given, told, foreign) == (0, 0, 1)
    assert stage.master.look([LOCK])[0][0] == fields


async def test_counters_of_another_type_grant_nothing(stage: SlotStage) -> None:
    """What they fail leaves nothing behind; a release goes on without them."""
    stage.put(COUNTERS, b"5")
    assert await stage.ask() == "WRONGTYPE"
    assert await stage.owners() == {}
    await stage.put_slots((0, OURS, 30))
    assert (await stage.free(5, slot=0))[0] == 1


# -- what is held --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fenced", [True, False])
async def test_an_extension_is_of_one_slot_and_gives_the_others_back(stage: SlotStage, fenced: bool) -> None:
    """An answer may have been lost that told of another one (R25)."""
    await stage.put_slots((0, OURS, 30), (1, OURS, 30), (2, OTHERS, 30))
    fence = await stage.fence(0) if fenced else 0
    assert await stage.prolong(0, fence) == 1
    slots = await stage.slots()
    assert slots.keys() == {0, 2}
    assert lives(slots[0][1], TTL)
    assert stage.counted() == ({0: fence} if fenced else {})
    assert await stage.prolong(2, fence) == -1, "it is another's"
    assert (await stage.owners()).keys() == {2}


async def test_an_extension_never_creates_nor_shortens(stage: SlotStage) -> None:
    """What has ended is missing, as is what is free (R8)."""
    await stage.put_slots((0, OURS, -1), (1, OTHERS, 90))
    assert [await stage.prolong(0), await stage.prolong(3)] == [0, 0]
    assert await stage.owners() == {1: OTHERS}
    await stage.put_slots((0, OURS, 90))
    assert await stage.prolong(0) == 1
    assert lives((await stage.slots())[0][1], 90)


async def test_a_top_up_is_of_one_slot_and_gives_the_others_back(stage: SlotStage) -> None:
    """Never two slots of one owner at a node; one that another has is not taken (R9, R25)."""
    await stage.put_slots((0, OURS, 30), (2, OTHERS, 30))
    fence = await stage.fence(0)
    assert await stage.refill(1, fence) == 0
    assert await stage.owners() == {1: OURS, 2: OTHERS}
    assert lives((await stage.slots())[1][1], TTL)
    assert stage.counted() == {1: fence}
    assert await stage.refill(2, fence) == -1
    assert await stage.owners() == {2: OTHERS}


async def test_a_raise_is_for_the_slots_owner_alone(stage: SlotStage) -> None:
    """The counter of that slot, unless it is above, or that would be too far ahead of the clock (R10)."""
    await stage.put_slots((0, OURS, 30), (1, OTHERS, 30))
    fence = await stage.fence(0)
    assert [await stage.lift(fence, slot) for slot in (0, 1, 2)] == [1, 0, 0]
    assert stage.counted() == {0: fence}
    assert await stage.lift(fence - 1, 0) == -3
    assert await stage.lift(await stage.fence(60), 0) == -2
    assert stage.counted() == {0: fence}


async def test_a_release_is_of_all_slots_of_the_owner(stage: SlotStage) -> None:
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
    assert stage.master.locks() == []


async def test_a_release_lifts_the_counter_of_its_slot(stage: SlotStage) -> None:
    """That of a slot that was not won is left alone."""
    await stage.put_slots((0, OURS, 30), (1, OURS, 30))
    fence = await stage.fence(0)
    assert (await stage.free(fence, slot=1))[0] == 2
    assert stage.counted() == {1: fence}


@pytest.mark.parametrize("slot", [1, 2, 3], ids=["another's", "nobody's", "of one that has ended"])
async def test_a_release_leaves_the_counters_of_other_slots_alone(stage: SlotStage, slot: int) -> None:
    """Of a slot that is its owner's no more another one may have a fence by now, and that counts."""
    await stage.put_slots((0, OURS, 30), (1, OTHERS, 30), (3, OTHERS, -1))
    fence = await stage.fence(0)
    assert (await stage.free(fence, slot=slot))[0] == 1
    assert stage.counted() == {}


async def test_an_inspection_shows_the_slots_that_are_held(stage: SlotStage) -> None:
    """By their numbers, with the milliseconds of each; none that has ended."""
    await stage.put_slots((11, OTHERS, 20), (2, OURS, 30), (3, OURS, -1))
    stage.put(counters("a")[0], b"41", 60.0)
    value, left, count = await stage.node.run(_scripts.INSPECT, [LOCK, *counters("a")], 1)
    assert count is None, "slots have counters of their own"
    assert value[::3] == [2, 11]
    assert value[1::3] == [OURS, OTHERS]
    assert [waits(ms, seconds) for ms, seconds in zip(value[2::3], (30, 20), strict=True)] == [True, True]
    assert alike(left, 30_000)
    stage.put(LOCK, {b"name": b"value"})
    ((error,), left, _) = await stage.node.run(_scripts.INSPECT, [LOCK, *counters("a")], 1)
    assert (error.partition(b" ")[0], left) == (b"WRONGTYPE", -1)


# -- a server without memory left ----------------------------------------------------------------------


@pytest.fixture
def client(any_nodes: Nodes) -> Iterator[redis.Redis[bytes]]:
    """Give a connection to one empty server, which has all memory again in the end."""
    with contextlib.closing(redis.Redis.from_url(any_nodes.urls[0])) as made:
        yield made
        made.config_set("maxmemory", 0)


def test_without_memory_holders_go_on_and_leave_and_none_comes_in(client: redis.Redis[bytes]) -> None:
    """An extension and a release need none, also where the key need not live longer (R8)."""

    def run(script: Any, *args: bytes | int) -> Any:
        keys = [LOCK, COUNTERS]
        try:
            return untagged(client.execute_command("EVAL", script.source, 2, *keys, *args, TAG), TAG)
        except OutOfMemoryError:
            return "OOM"

    ask: Callable[[bytes, int], Any] = lambda owner, ttl: run(  # noqa: E731
        _scripts.SLOTS_ACQUIRE, owner, ttl, 1, 1, KEEP_MS, 4, 0, 4
    )
    code, fence, _, slot = ask(OURS, 30_000)
    assert (code, slot) == (1, 0)
    assert ask(OTHERS, 10 * TTL_MS)[3] == 1
    client.config_set("maxmemory", 1)
    assert ask(THIRD, TTL_MS) == "OOM"
    assert client.hkeys(LOCK) == [b"0", b"1"]
    assert run(_scripts.SLOTS_EXTEND, OURS, TTL_MS, fence, KEEP_MS, 0) == 1
    held = client.hget(LOCK, "0")
    assert held is not None
    assert int(held.partition(b":")[0]) > client.time()[0] * 1000 + 31_000
    assert run(_scripts.SLOTS_RELEASE, OURS, fence, KEEP_MS, b"1", 4, 0)[0] == 1
    assert client.hkeys(LOCK) == [b"1"]
