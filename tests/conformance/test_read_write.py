"""The scripts of the read-write lock: what they answer, leave and tell, on every kind of master (R19 to R23).

Which fences they give is in ``test_fences.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioredlock_ng import _scripts
from tests.conformance.masters import WRONG
from tests.conformance.stage import (
    AWAITED_MS,
    FAR,
    KEEP_MS,
    TTL,
    TTL_MS,
    TURN_MS,
    Stage,
    counters,
    locks,
    queues,
    refused,
    waits,
)
from tests.conformance.test_notices import LOUD, heard_by
from tests.conformance.tools import FOREIGN, OTHERS, OURS, SLACK, lives

KEY, QUEUE = locks("a")[0], queues("a")[0]
THREE = [(KEY, b"3")]

each_mode = pytest.mark.parametrize("mode", ["read", "write"])
each_number = pytest.mark.parametrize("names", ["a", "ab"])
with_and_without_fences = pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "plain"])


class ReadWriteStage(Stage):
    """A node with what is under a lock's key, and in the queue beside it."""

    async def put_readers(self, name: str = "a", **seconds: float) -> None:
        """Have readers under a lock's key: `ours` and `others`, or any other, each for some seconds more.

        What is below 0 has ended.  The key ends with the last of them, or else in a minute.
        """
        owners = {"ours": OURS, "others": OTHERS}
        scores = {owners.get(who, who.encode()): left for who, left in seconds.items()}
        await self._put_scores(locks(name)[0], scores, max(0, *seconds.values()) or 60.0)

    async def put_marks(self, names: str = "a", **seconds: float) -> None:
        """Leave marks in locks' queues, each for some seconds more; what is below 0 has ended.

        Their keys live for a minute, so that short-lived ones can be looked at on a slow machine, too.
        """
        for queue in queues(names):
            await self._put_scores(queue, {what.encode(): left for what, left in seconds.items()}, 60.0)

    async def _put_scores(self, key: bytes, seconds: dict[bytes, float], ttl: float) -> None:
        now_ms = await self.now_ms()
        self.put(key, {member: now_ms + round(left * 1000) for member, left in seconds.items()}, ttl)

    async def reads(self, name: str = "a", **seconds: float) -> bool:
        """Return whether just these read, each for about this many seconds more, or below 0."""
        value, _ = self.look(locks(name)[0])
        assert isinstance(value, dict), value
        now_ms = await self.now_ms()
        owners = {OURS: "ours", OTHERS: "others"}
        left = {owners.get(who, who.decode()): (int(ends) - now_ms) / 1000 for who, ends in value.items()}
        return left.keys() == seconds.keys() and all(
            seconds[who] - SLACK < ends <= seconds[who] for who, ends in left.items()
        )

    def marks(self, name: str = "a") -> dict[str, int]:
        """Return the marks in a lock's queue, each with the node's time in milliseconds at which it ends."""
        value, _ = self.look(queues(name)[0])
        return {what.decode(): int(ends) for what, ends in value.items()} if isinstance(value, dict) else {}

    # -- scripts -----------------------------------------------------------------------------------

    async def ask(
        self,
        mode: str,
        names: str = "a",
        *,
        ballot: int = 1,
        seat: bytes = b"",
        owner: bytes = OURS,
        ttl_ms: int = TTL_MS,
        **vote: Any,
    ) -> Any:
        """Run `read.lua` or `write.lua`; a ballot of 0 is none."""
        script = {"read": _scripts.READ, "write": _scripts.WRITE}[mode]
        args = (owner, ttl_ms, ballot, 1, KEEP_MS, seat)
        return await self.voted(script, self._keys(names, ballot), *args, **vote)

    async def rw_raise(self, mode: str, fence: int, names: str = "a", **vote: Any) -> Any:
        """Run `rw_raise.lua`."""
        args = (OURS, fence, KEEP_MS, mode.encode())
        return await self.voted(_scripts.RW_RAISE, self._keys(names), *args, **vote)

    async def rw_extend(
        self, mode: str, fence: int = 0, names: str = "a", *, ttl_ms: int = TTL_MS, **vote: Any
    ) -> Any:
        """Run `rw_extend.lua`; a fence of 0 is none."""
        args = (OURS, ttl_ms, fence, KEEP_MS, mode.encode())
        return await self.voted(_scripts.RW_EXTEND, self._keys(names, fence), *args, **vote)

    async def rw_repair(self, mode: str, fence: int = 0, names: str = "a") -> Any:
        """Run `rw_repair.lua`; a fence of 0 is none."""
        args = (OURS, TTL_MS, fence, KEEP_MS, mode.encode())
        return await self.run(_scripts.RW_REPAIR, self._keys(names, fence), *args)

    async def rw_release(
        self, mode: str, fence: int = 0, names: str = "a", *, loud: bytes = b"", seat: bytes = b""
    ) -> Any:
        """Run `rw_release.lua`; a fence of 0 is none, an empty seat as well."""
        args = (OURS, fence, KEEP_MS, loud, mode.encode(), *[seat] * bool(seat))
        return await self.run(_scripts.RW_RELEASE, self._keys(names, fence), *args)

    @staticmethod
    def _keys(names: str, fence: int = 1) -> list[bytes]:
        return [*locks(names), *(counters(names) if fence else ()), *queues(names)]


STAGE = ReadWriteStage


# -- one key, whatever the kind (R19) ----------------------------------------------------------------


@each_number
async def test_readers_are_in_a_mutexs_way(stage, names):
    """Each script of a mutex takes them for another's lock that stays until the last of them ends."""
    await stage.put_readers("a", ours=20, others=30, ended=-5)
    before = stage.stored("ab")
    assert refused(await stage.acquire(names, ballot=1), 30)
    assert waits(await stage.run(_scripts.SET_ALL, locks(names), OURS, TTL_MS, 0, 1, 1), 30)
    assert await stage.raise_(await stage.fence(0), names) == 0
    for fence in (0, await stage.fence(0)):
        assert await stage.extend(max(fence, 1), names) == -1
        assert await stage.run(_scripts.EXTEND, locks(names), OURS, TTL_MS, 0, 1) == -1
        assert await stage.repair(max(fence, 1), names) == -1
        released = await stage.release(fence, names)
        assert (released[0], waits(released[1], 30), *released[2:]) == (0, True, 0, 1)
    assert stage.stored("ab") == before
    assert lives(stage.lives()[0], 30)


async def test_a_counter_is_even_after_each_who_was_alone(stage):
    """A mutex, a batch of them, a block, a writer; readers between make it odd, and share it (R21, R43)."""
    asked: dict[str, Callable[[int], Any]] = {
        "one": lambda ballot: stage.acquire(ballot=ballot),
        "a block": lambda ballot: stage.acquire(ballot=ballot, block=64),
        "a batch": lambda ballot: stage.acquire_many(ballot=ballot),
        "a reader": lambda ballot: stage.ask("read", ballot=ballot),
        "a writer": lambda ballot: stage.ask("write", ballot=ballot),
    }
    ballot, seen = await stage.fence(-10), [0]
    for what, ask in list(asked.items()) * 4:
        stage.hold("a", None)
        seen.append((await ask(ballot))[1])
        ballot += 1_003
        assert seen[-1] % 2 == (what == "a reader"), what
        if what == "a reader":
            assert (await stage.ask("read", ballot=ballot, owner=OTHERS))[1] == seen[-1]
    assert seen == sorted(set(seen))


@each_mode
@with_and_without_fences
async def test_a_string_is_in_the_way_of_both(stage, mode, fenced):
    """Whatever program wrote it: it stays as it is, for as long as its time to live."""
    fence = 5 if fenced else 0
    for value, ttl in ((OTHERS, 30.0), (FOREIGN, None)):
        stage.hold("b", value, ttl)
        before = stage.stored("ab")
        for names in ("b", "ab"):
            assert refused(await stage.ask(mode, names, ballot=fence), ttl)
            assert await stage.rw_extend(mode, fence, names) == -1
            assert await stage.rw_repair(mode, fence, names) == -1
            given, wait, *rest = await stage.rw_release(mode, fence, names)
            assert (given, waits(wait, ttl), rest) == (0, True, [0, int(value == FOREIGN)])
        assert stage.stored("ab") == before


@each_mode
@each_number
async def test_another_programs_set_is_left_alone(stage, mode, names):
    """Readers have an end, and so has their key: a set without expiry is in the way for ever (R19)."""
    scores = {b"gold": 1, b"silver": 7}
    stage.put(locks(names)[-1], scores)
    for ballot in (0, 1):
        code, wait, *_ = await stage.ask(mode, names, ballot=ballot)
        assert (code, wait) == (0, -1)
    assert await stage.rw_repair(mode, 5, names) == -1
    assert (await stage.rw_release(mode, 0, names))[:2] == [0, -1]
    assert stage.look(locks(names)[-1]) == (scores, None)


async def test_an_inspection_shows_those_that_read(stage):
    """The one that ends last first, with the milliseconds of each; none that has ended."""
    await stage.put_readers(ours=20, others=30, ended=-5)
    stage.count("a", 41)
    value, left, count = await stage.inspect()
    assert (value[::2], count) == ([OTHERS, OURS], b"41")
    assert all(map(waits, [*value[1::2], left], (30, 20, 30)))


# -- readers and writers (R20) -----------------------------------------------------------------------


@with_and_without_fences
@each_number
async def test_readers_come_beside_readers(stage, names, fenced):
    """Each has an end of its own, and the key ends with the last of them."""
    for name in names:
        await stage.put_readers(name, others=30)
    assert (await stage.ask("read", names, ballot=int(fenced)))[0] == 1
    short = {"owner": b"short", "ttl_ms": 20_000}
    assert (await stage.ask("read", names, ballot=int(fenced), **short))[0] == 1
    for name in names:
        assert await stage.reads(name, ours=TTL, others=30, short=20)
        assert lives(stage.lives(name)[0], TTL)


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_grant_drops_readers_that_have_ended(stage, names):
    """Of those that crashed nothing stays for ever; one whose own entry has ended is let in again."""
    await stage.put_readers(others=30, gone=-1, **{"long-gone": -90})
    assert (await stage.ask("read", names))[0] == 1
    assert await stage.reads(ours=TTL, others=30)
    await stage.put_readers(others=30, ours=-1)
    assert (await stage.ask("read", names))[0] == 1
    assert await stage.reads(ours=TTL, others=30)


@with_and_without_fences
@each_mode
async def test_others_are_in_a_writers_way(stage, mode, fenced):
    """All or nothing; the wait is that of the name which stays longest.  A writer's readers count, too."""
    stage.hold("a", OTHERS, 20.0)
    stage.hold("c", OTHERS, 40.0)
    if mode == "write":
        await stage.put_readers("a", others=20, ours=40)
    before = stage.stored("abc")
    for names in ("abc", "c" if mode == "read" else "a"):
        assert refused(await stage.ask(mode, names, ballot=int(fenced)), 40)
    assert stage.stored("abc") == before


LEAVING: list[tuple[dict[str, float], dict[str, float], float | None]] = [
    ({"ours": 40, "others": 20}, {"others": 20}, 20.0),
    ({"ours": 20, "others": 40}, {"others": 40}, 40.0),
    ({"ours": 20, "others": 20, "a": 20}, {"others": 20, "a": 20}, 20.0),
    ({"ours": 40, "others": 20, "ended": -1}, {"others": 20, "ended": -1}, 20.0),
    ({"ours": 40, "ended": -1}, {}, None),
    ({"ours": 40}, {}, None),
    ({"ours": -1, "others": 20}, {"others": 20}, 20.0),
]
"""Readers before a release of ours and after it, and the seconds for which their key lives then."""


@each_mode
async def test_the_key_ends_with_the_last_reader(stage, mode):
    """Any of them may leave, in either mode: where there is a set, one reads."""
    for before, after, key in LEAVING:
        await stage.put_readers(**before)
        assert await stage.rw_release(mode) == [1, 0, 0]
        assert lives(stage.lives()[0], key), before
        assert await stage.reads(**after) if after else stage.stored() == [None, None]


async def test_a_reader_that_is_not_in_leaves_the_others_alone(stage):
    """To an undone reader they are not in the way; to an undone writer they are, and are no foreigners."""
    assert await stage.rw_release("read") == [0, 0, 0]
    await stage.put_readers(others=30)
    assert await stage.rw_release("read") == [0, 0, 0]
    given, wait, *told = await stage.rw_release("write")
    assert (given, waits(wait, 30), told) == (0, True, [0])
    assert await stage.reads(others=30)
    assert lives(stage.lives()[0], 30)


@each_mode
async def test_a_release_frees_all_that_is_ours(stage, mode):
    """As writer and as reader, past free names, others', and locks and counters of another type (R5)."""
    stage.hold("a")
    await stage.put_readers("b", ours=30, others=20)
    stage.hold("d", OTHERS, 40.0)
    await stage.put_readers("e", ours=30)
    fence = await stage.fence(0)
    stage.count("e", WRONG)
    given, wait, *told = await stage.rw_release(mode, fence, "abcde")
    assert (given, waits(wait, 40), told) == (3, True, [0, 0])
    assert stage.held("acde") == [None, None, OTHERS, None]
    assert await stage.reads("b", others=20)
    assert stage.counted("abcde") == [fence, fence, None, None, WRONG]
    stage.hold("a", WRONG)
    stage.hold("b")
    assert await stage.rw_release(mode, 0, "ab") == "WRONGTYPE"
    assert stage.held("ab") == [WRONG, None]


@with_and_without_fences
async def test_a_reader_is_extended_alone(stage, fenced):
    """Never shortened, and the others' ends stay; the key lives as long as the last of all."""
    await stage.put_readers("a", ours=20, others=30, ended=-1)
    await stage.put_readers("b", ours=120, others=90)
    fence = await stage.fence(0) if fenced else 0
    assert await stage.rw_extend("read", fence, "ab") == 1
    assert await stage.reads("a", ours=TTL, others=30)
    assert await stage.reads("b", ours=120, others=90)
    assert all(map(lives, stage.lives("ab")[:2], [TTL, 120]))
    assert await stage.rw_extend("read", fence, "b", ttl_ms=1000) == 1
    assert await stage.reads("b", ours=120, others=90)
    assert stage.counted("ab") == [fence if fenced else None] * 2
    stage.hold("ab", ttl=120)
    assert await stage.rw_extend("write", fence, "ab") == 1
    assert all(map(lives, stage.lives("ab")[:2], [120, 120])), "nor is a writer"


async def test_an_extension_never_creates(stage):
    """Neither a reader that is not in or has ended, nor a writer; and readers are others to a writer."""
    await stage.put_readers("a", others=30, ours=-1)
    stage.hold("b")
    before = stage.stored("abc")
    assert [await stage.rw_extend("read", 0, names) for names in ("a", "c", "bc")] == [0, 0, 0]
    assert [await stage.rw_extend("write", 0, names) for names in ("a", "c", "bc")] == [-1, 0, 0]
    assert stage.stored("abc") == before
    assert lives(stage.lives("b")[0], 30)


@with_and_without_fences
async def test_a_repair_gives_a_reader_its_place_back(stage, fenced):
    """Beside others, and never for a shorter time than it has; not where a writer is (R9)."""
    fence = await stage.fence(0) if fenced else 0
    await stage.put_readers("b", others=90)
    await stage.put_readers("c", ours=120)
    await stage.put_marks("a", w7=30)
    assert await stage.rw_repair("read", fence, "abc") == 0
    assert await stage.reads("a", ours=TTL)
    assert await stage.reads("b", ours=TTL, others=90)
    assert await stage.reads("c", ours=120)
    assert all(map(lives, stage.lives("abc")[:3], [TTL, 90, 120]))
    assert stage.counted("abc") == [fence if fenced else None] * 3
    stage.hold("e", OTHERS)
    assert await stage.rw_repair("read", fence, "de") == -1
    assert stage.held("de") == [None, OTHERS]


@with_and_without_fences
async def test_a_repair_gives_a_writer_its_key_back(stage, fenced):
    """Where it is free or its own; readers are in its way, its own entry too (R9)."""
    fence = await stage.fence(0) if fenced else 0
    stage.hold("b", ttl=120.0)
    stage.hold("c")
    assert await stage.rw_repair("write", fence, "abc") == 0
    assert stage.stored("abc") == [OURS] * 3 + [fence if fenced else None] * 3
    assert all(map(lives, stage.lives("abc")[:3], [TTL, 120, TTL]))
    await stage.put_readers("e", ours=30)
    assert await stage.rw_repair("write", fence, "de") == -1
    assert stage.held("d") == [None]
    assert await stage.reads("e", ours=30)


async def test_a_reader_raises_counters(stage):
    """As long as it reads: to its fence, never down, and 1 also where others are above it already (R21)."""
    fence = await stage.fence(5) | 1
    stage.count("abcd", None, fence - 2, fence, fence + 2)
    for name in "abcd":
        await stage.put_readers(name, ours=30, others=20)
    assert await stage.rw_raise("read", fence, "abcd") == 1
    assert stage.counted("abcd") == [fence] * 3 + [fence + 2]
    await stage.put_readers("b", ours=-1, others=20)
    assert await stage.rw_raise("read", fence + 4, "ab") == 0, "it has ended"
    assert stage.counted("ab") == [fence] * 2


async def test_a_writer_raises_counters(stage):
    """As a mutex does: where one is above its fence there is no certificate."""
    fence = await stage.fence(5)
    stage.hold("a")
    assert await stage.rw_raise("write", fence) == 1
    assert stage.stored() == [OURS, fence]
    assert await stage.rw_raise("write", fence - 2) == -3
    assert await stage.rw_raise("write", await stage.fence(FAR)) == -2
    assert await stage.rw_raise("write", fence, "ab") == 0
    for holder in (OTHERS, None):
        stage.hold("a", holder)
        assert await stage.rw_raise("write", fence + 2) == 0
    await stage.put_readers(ours=30)
    assert await stage.rw_raise("write", fence + 2) == 0
    assert stage.counted() == [fence]


# -- turns (R22) -------------------------------------------------------------------------------------


@with_and_without_fences
async def test_a_waiting_writer_keeps_new_readers_out(stage, fenced):
    """Of several names too; its mark, and no other, is how long."""
    ballot = int(fenced)
    await stage.put_marks("b", w7=20, w8=30, r=50, turn=-1)
    for names in ("b", "ab"):
        assert refused(await stage.ask("read", names, ballot=ballot), 30)
    assert stage.stored("ab") == [None] * 4
    await stage.put_readers("b", others=30)
    assert (await stage.ask("read", "b", ballot=ballot))[0] == 0
    assert waits((await stage.rw_release("read", 0, "ab"))[1], 30)
    await stage.put_marks("b", w7=-1, w8=-2, r=50)
    assert (await stage.ask("read", "ab", ballot=ballot))[0] == 1
    assert await stage.rw_release("read", 0, "ab") == [2, 0, 0]


@with_and_without_fences
async def test_in_the_readers_turn_no_writer_comes_in(stage, fenced):
    """And readers do, though writers wait."""
    ballot = int(fenced)
    await stage.put_marks("a", w7=20, turn=10, r=20)
    await stage.put_marks("b", turn=9)
    for names in ("a", "ab"):
        code, wait, _, nothing = await stage.ask("write", names, ballot=ballot, seat=b"7")
        assert (code, waits(wait, 10), nothing) == (0, True, 0)
        assert waits((await stage.rw_release("write", 0, names))[1], 10)
    assert (await stage.ask("read", "ab", ballot=ballot))[0] == 1
    assert waits((await stage.ask("write", ballot=ballot))[1], TTL), "its readers stay longer than the turn"
    await stage.rw_release("read", 0, "ab")
    await stage.put_marks("ab", turn=-1)
    assert (await stage.ask("write", "ab", ballot=ballot))[0] == 1


@each_mode
@each_number
async def test_a_call_that_waits_leaves_a_mark(stage, mode, names):
    """For a second, again with each try; one that does not wait leaves none.  What has ended is dropped."""
    stage.hold(names, OTHERS)
    mine = "r" if mode == "read" else "w7"
    await stage.ask(mode, seat=b"7")
    assert 0 < (stage.look(QUEUE)[1] or 0) <= 1.0, "hints stay for no longer than they are of use"
    await stage.put_marks(names, **{mine: 0.5, "w8": 30, "w9": -1})
    before = {name: stage.marks(name) for name in names}
    assert (await stage.ask(mode, names))[0] == 0
    assert {name: stage.marks(name) for name in names} == before
    earliest = await stage.now_ms()
    assert (await stage.ask(mode, names, seat=b"7"))[0] == 0
    latest = await stage.now_ms()
    for name in names:
        marks = stage.marks(name)
        assert earliest + 1000 <= marks.pop(mine) <= latest + 1000
        assert marks == {"w8": before[name]["w8"]}


@each_mode
@pytest.mark.parametrize("taken", ["a", "b", "c"])
async def test_a_call_leaves_no_mark_at_a_name_that_is_free(stage, mode, taken):
    """Of several names only one is in its way: the others are for readers and writers to have (R22)."""
    stage.hold(taken, OTHERS)
    assert (await stage.ask(mode, "abc", seat=b"7"))[0] == 0
    assert [name for name in "abc" if stage.marks(name)] == [taken]
    stage.hold(taken, None)
    await stage.put_marks("b", **({"turn": 30} if mode == "write" else {"w8": 30}))
    assert (await stage.ask(mode, "abc", seat=b"7"))[0] == 0
    assert len(stage.marks("b")) == 2


async def test_a_writer_takes_its_mark_away_from_a_name_that_has_become_free(stage, told):
    """The readers that wait there are notified; another name is still in its way (R22)."""
    stage.hold("ab", OTHERS)
    assert (await stage.ask("write", "ab", seat=b"7"))[0] == 0
    stage.hold("a", None)
    assert await told() == [[], [], []]
    assert (await stage.ask("write", "ab", seat=b"7"))[0] == 0
    assert [set(stage.marks(name)) for name in "ab"] == [set(), {"w7"}]
    assert await told() == [THREE] * 3


async def test_a_phase_does_not_wait_for_a_reader_that_another_name_keeps_out(stage):
    """It has come: the phase at the name that is free ends soon, and a writer may have that one (R22)."""
    stage.hold("b", OTHERS)
    await stage.put_marks("a", turn=30)
    assert (await stage.ask("read", "ab", seat=b"7"))[0] == 0
    assert stage.marks("a")["turn"] <= await stage.now_ms() + TURN_MS


@each_number
async def test_a_writer_that_gets_in_or_gives_up_waits_no_more(stage, names):
    """It takes its mark away, and no other; a turn is no matter of it."""
    await stage.put_marks("ab", w7=30, w8=30, r=30)
    assert (await stage.ask("write", names, seat=b"7"))[0] == 1
    assert [set(stage.marks(name)) for name in names] == [{"w8", "r"}] * len(names)
    await stage.rw_release("write", 0, names)
    await stage.put_marks("ab", w7=30, w8=30, r=30)
    assert waits((await stage.rw_release("read", 0, names, seat=b"7"))[1], 30)
    assert [set(stage.marks(name)) for name in names] == [{"w8", "r"}] * len(names)


@pytest.mark.parametrize("how", ["release", "downgrade"])
@each_number
async def test_a_writer_that_leaves_gives_readers_their_turn(stage, names, how):
    """If any wait: their mark becomes a turn, long enough for the first of them, which shortens it."""
    stage.hold("abcd")
    await stage.put_marks("ab", r=30, w7=20)
    await stage.put_marks("c", r=-1, w7=20)
    await stage.put_marks("d", w7=20)

    async def turn_of(lasts_ms, *steps):
        earliest = await stage.now_ms()
        for step in steps:
            await step
        latest = await stage.now_ms()
        for name in names:
            assert set(stage.marks(name)) == {"w7", "turn"}
            assert earliest + lasts_ms <= stage.marks(name)["turn"] <= latest + lasts_ms

    if how == "release":
        leave = [stage.rw_release("write", 0, each) for each in (names, "c", "d")]
    else:
        leave = [stage.rw_extend("read", 0, each) for each in (names, "c", "d")]
    await turn_of(AWAITED_MS, *leave)
    assert (set(stage.marks("c")), set(stage.marks("d"))) == ({"r", "w7"}, {"w7"})
    await turn_of(TURN_MS, stage.ask("read", names, owner=b"first"))
    await stage.put_marks(names, turn=-1, w7=40)
    before = stage.marks()
    assert (await stage.ask("read", names, owner=b"first"))[0] == 1, "a repeated command"
    assert stage.marks() == before, "what a later one finds is left as it is"


# -- downgrade (R23) ---------------------------------------------------------------------------------


@with_and_without_fences
@pytest.mark.parametrize(("left", "after"), [(30.0, TTL), (120.0, 120.0)])
async def test_an_extension_makes_a_reader_of_the_writer(stage, fenced, left, after):
    """It lives as long as the writer would have; its fence stays, and other readers come in behind it."""
    stage.hold("ab", ttl=left)
    fence = await stage.fence(-1) if fenced else 0
    for _ in range(2):
        assert await stage.rw_extend("read", fence, "ab") == 1
        for name in "ab":
            assert await stage.reads(name, ours=after)
    assert all(map(lives, stage.lives("ab")[:2], [after] * 2))
    assert stage.counted("ab") == [fence if fenced else None] * 2
    code, shared, _ = await stage.ask("read", "ab", owner=OTHERS, ballot=int(fenced))
    assert (code, shared) == (1, fence + 1 if fenced else 0)
    assert (await stage.ask("write", "ab", owner=b"third"))[0] == 0
    assert await stage.rw_extend("write", fence, "ab") == -1, "it is no writer any more"


# -- notices (R13, R22, R33) -------------------------------------------------------------------------


@pytest.fixture
async def told(master):
    """Give a function that returns what a waiting reader and two waiting writers have heard since then.

    All listen on the channel of the key, writers also on that of the queue.
    """
    async with heard_by(master, (KEY,), (KEY, QUEUE), (KEY, QUEUE)) as since:
        yield since


@each_mode
@pytest.mark.parametrize("fence", [0, 777], ids=["plain", "fenced"])
async def test_whoever_may_come_in_is_told(stage, told, mode, fence):
    """All where a writer leaves; writers where the last reader does, of whom those that crashed are none.

    In whatever mode it is released; a quiet release tells nothing.
    """
    for loud, crowd, writers in ((LOUD, 3, 2), (b"", 0, 0)):
        stage.hold("a")
        assert await stage.rw_release(mode, fence, loud=loud) == [1, 0, crowd]
        assert await told() == [THREE if loud else []] * 3
        await stage.put_readers(ours=30, others=20)
        assert await stage.rw_release(mode, fence, loud=loud) == [1, 0, 0]
        assert await told() == [[], [], []]
        await stage.put_readers(ours=30, ended=-1)
        assert await stage.rw_release(mode, fence, loud=loud) == [1, 0, writers]
        assert await told() == [[], *[[(QUEUE, b"2")] if loud else []] * 2]
        assert (await stage.rw_release(mode, loud=loud))[2] == (bool(loud) and {"read": 3, "write": 2}[mode])


@pytest.mark.parametrize(("mode", "crowd"), [("read", 3), ("write", 2)])
async def test_what_gives_nothing_back_counts_those_that_wait_alike(stage, told, mode, crowd):
    """A reader all that listen for the key, a writer those that listen for the last reader (R33)."""
    for holder in (None, OTHERS):
        stage.hold("a", holder)
        assert (await stage.rw_release(mode, loud=LOUD))[2] == crowd
    await stage.put_readers(others=30)
    assert (await stage.rw_release(mode, loud=LOUD))[2] == crowd
    assert await told() == [[], [], []]


@each_mode
async def test_readers_are_told_of_a_writer_that_waits_no_more(stage, told, mode):
    """It gave up, or reads now; where it left no mark, or read before, there is nothing new."""
    await stage.put_readers(others=30)
    await stage.put_marks(w7=30, w8=30)
    await stage.rw_release(mode, seat=b"9")
    assert await told() == [[], [], []]
    await stage.rw_release(mode, seat=b"7")
    assert await told() == [THREE] * 3
    stage.hold("a")
    for news in (THREE, []):
        assert await stage.rw_extend("read") == 1
        assert await told() == [news] * 3
