"""The scripts of the read-write lock: what they answer and leave, on every kind of master (R19 to R23)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.fencing import START_LAG_MS, at, block_end
from tests.conformance.read_write import ReadWriteStage, read_write_staged
from tests.conformance.stage import (
    AWAITED_MS,
    EXPECTED,
    KEEP,
    SENTINEL,
    TTL,
    TTL_MS,
    TURN_MS,
    counters,
    locks,
    queues,
)
from tests.conformance.tools import FOREIGN, OTHERS, OURS, SLACK, WRONG, Master, alike, lives

MODES: Final = ("read", "write")
NO_TIME: Final = [None, None]

each_mode = pytest.mark.parametrize("mode", MODES)
with_and_without_fences = pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "plain"])


@pytest.fixture
async def stage(master: Master) -> AsyncIterator[ReadWriteStage]:
    """Give an empty node with a sentinel."""
    async with read_write_staged(master) as made:
        yield made


def close(seen: dict[bytes, float], wanted: dict[bytes, float]) -> bool:
    """Return whether the same owners read for about so long: but for the time that has passed."""
    return seen.keys() == wanted.keys() and all(
        wanted[owner] - SLACK < left <= wanted[owner] for owner, left in seen.items()
    )


def waits(seen: int, seconds: float) -> bool:
    """Return whether the wait of a refusal is about so long; -1 is without end."""
    return seen == -1 if seconds < 0 else alike(seen, round(seconds * 1000) + 1)


# -- one key, whatever the kind (R19) ----------------------------------------------------------------


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_readers_are_in_a_mutexs_way(stage: ReadWriteStage, names: str) -> None:
    """Each script of a mutex takes them for another's lock that stays until the last of them ends."""
    await stage.put_readers("a", ours=20, others=30, ended=-5)
    before = stage.stored("ab")
    code, wait, _ = await stage.acquire(names, ballot=1)
    assert (code, waits(wait, 30)) == (0, True)
    assert waits(await stage.node.run(_scripts.SET_ALL, locks(names), OURS, TTL_MS, 0, 1, 1), 30)
    assert await stage.raise_(await stage.fence(0), names) == 0
    for fence in (0, await stage.fence(0)):
        assert await stage.extend(max(fence, 1), names) == -1
        assert await stage.node.run(_scripts.EXTEND, locks(names), OURS, TTL_MS, 0, 1) == -1
        assert await stage.top_up(max(fence, 1), names) == -1
        released = await stage.release(fence, names)
        assert (released[0], waits(released[1], 30), *released[2:]) == (0, True, 0, 1)
    assert stage.stored("ab") == before
    assert lives(stage.lives()[0], 30)


async def test_readers_are_in_a_batchs_way(stage: ReadWriteStage) -> None:
    """Each lock of a batch has the answer that it has alone; the others are granted (R42)."""
    await stage.put_readers("b", others=30)
    ballot = block_end(await stage.fence(-10), 1)
    _, *answers = await stage.acquire_many("abc", ballot=ballot)
    assert (answers[0], waits(-answers[1], 30), answers[2]) == (ballot, True, ballot)
    assert await stage.extend_many(0, "abc") == [1, -1, 1]
    assert await stage.extend_many(ballot, "abc") == [1, -1, 1]
    first, (given, wait, told, foreign), last = await stage.release_many("abc")
    assert (first, given, waits(wait, 30), told, foreign, last) == (1, 0, True, 0, 1, 1)
    assert close(await stage.readers("b"), {OTHERS: 30})


async def test_a_counter_is_even_after_each_who_was_alone(stage: ReadWriteStage) -> None:
    """A mutex, a batch of them, a block of any size, a writer; readers between make it odd (R21, R43)."""
    asked: dict[str, Callable[[int], Any]] = {
        "one": lambda ballot: stage.acquire(ballot=ballot),
        "a block": lambda ballot: stage.acquire(ballot=ballot, block=64),
        "a batch": lambda ballot: stage.acquire_many(ballot=ballot, block=63),
        "a reader": lambda ballot: stage.ask("read", ballot=ballot),
        "a writer": lambda ballot: stage.ask("write", ballot=ballot),
    }
    ballot, seen = await stage.fence(-10), [0]
    for what, ask in list(asked.items()) * 4:
        stage.put(locks("a")[0], None)
        seen.append((await ask(ballot))[1])
        ballot += 1_003
        assert seen[-1] % 2 == (what == "a reader"), what
    assert seen == sorted(set(seen))


@each_mode
@with_and_without_fences
@pytest.mark.parametrize(("value", "ttl"), [(OTHERS, 30.0), (FOREIGN, 90.0), (FOREIGN, None)])
async def test_a_string_is_in_the_way_of_both(
    stage: ReadWriteStage, mode: str, fenced: bool, value: bytes, ttl: float | None
) -> None:
    """Whatever program wrote it: it stays as it is, for as long as its time to live."""
    stage.put(locks("b")[0], value, ttl)
    before = stage.stored("ab")
    for names in ("b", "ab"):
        code, wait, *_ = await stage.ask(mode, names, ballot=1 if fenced else 0)
        assert (code, waits(wait, -1 if ttl is None else ttl)) == (0, True)
        assert await stage.rw_extend(mode, 5 if fenced else 0, names) == -1
        assert await stage.rw_top_up(mode, 5 if fenced else 0, names) == -1
        released = await stage.rw_release(mode, 5 if fenced else 0, names)
        assert (released[0], waits(released[1], -1 if ttl is None else ttl)) == (0, True)
        assert released[2:] == [0, int(value == FOREIGN)]
    assert stage.stored("ab") == before


@each_mode
@pytest.mark.parametrize("names", ["a", "ab"])
async def test_another_programs_set_is_left_alone(stage: ReadWriteStage, mode: str, names: str) -> None:
    """Readers have an end, and so has their key: a set without expiry is in the way for ever (R19)."""
    scores = {b"gold": 1, b"silver": 7}
    stage.put(locks(names)[-1], scores)
    for ballot in (0, 1):
        code, wait, *_ = await stage.ask(mode, names, ballot=ballot)
        assert (code, wait) == (0, -1)
    assert await stage.rw_top_up(mode, 5, names) == -1
    assert (await stage.rw_release(mode, 0, names))[:2] == [0, -1]
    assert stage.master.look(locks(names)[-1:]) == [(scores, None)]


@each_mode
@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("what", ["lock", "counter", "sentinel"])
async def test_another_type_is_an_error(stage: ReadWriteStage, mode: str, names: str, what: str) -> None:
    """Nothing is granted; what a failing counter lets happen before the error, a release undoes."""
    key = {"lock": locks(names)[-1], "counter": counters(names)[-1], "sentinel": SENTINEL}[what]
    stage.put(key, WRONG)
    assert await stage.ask(mode, names) == "WRONGTYPE"
    if what == "lock":
        assert await stage.rw_extend(mode, 5, names) == "WRONGTYPE"
        assert await stage.rw_top_up(mode, 5, names) == "WRONGTYPE"
        assert await stage.rw_raise(mode, 5, names) == ("WRONGTYPE" if names == "a" else 0)
        assert await stage.rw_release(mode, 5, names) == "WRONGTYPE"
    else:
        assert (await stage.rw_release(mode, 0, names))[1:] == [0, 0]
    assert stage.master.look([key]) == [(WRONG, None)]
    assert set(stage.stored(names)) <= {None, WRONG}


@each_mode
async def test_hints_of_another_type_do_no_harm(stage: ReadWriteStage, mode: str) -> None:
    """Grants, extensions and releases are the same without them; a call that has to wait is told (R22)."""
    stage.put(queues("a")[0], WRONG, 90.0)
    assert (await stage.ask(mode, seat=b"7"))[0] == 1
    assert await stage.rw_extend(mode) == 1
    assert await stage.rw_extend("read") == 1
    stage.put(locks("b")[0], OURS, 30.0)
    assert await stage.rw_release("write", 0, "ab", seat=b"7") == [2, 0, 0]
    stage.put(locks("a")[0], OTHERS, 30.0)
    assert (await stage.ask(mode))[0] == 0
    assert await stage.ask(mode, seat=b"7") == "WRONGTYPE"
    assert waits((await stage.rw_release(mode, seat=b"7"))[1], 30)
    assert stage.master.look(queues("a"))[0][0] == WRONG
    assert lives(stage.master.look(queues("a"))[0][1], 90)


@each_mode
@pytest.mark.parametrize("why", ["missing", "another", "identity"])
async def test_nothing_is_granted_without_a_vote(stage: ReadWriteStage, mode: str, why: str) -> None:
    """A sentinel that is not the expected one, or another server's identity: nothing changes (R12)."""
    identity = await stage.identity()
    assert (await stage.ask(mode, "b", stamp=(EXPECTED, identity)))[0] == 1, "this is what a vote looks like"
    stamp = {"missing": (b"", b""), "another": (EXPECTED, b""), "identity": (EXPECTED, identity[:-1])}[why]
    if why != "identity":
        stage.put(SENTINEL, None if why == "missing" else EXPECTED + b"0")
    code, nothing, time_us, *before = await stage.ask(mode, seat=b"7", stamp=stamp)
    assert (code, nothing, before) == (-1, 0, [0] * (mode == "write"))
    assert abs(time_us // 1000 - await stage.now_ms()) < SLACK * 1000
    assert stage.stored() == [None, None]
    assert stage.marks() == {}
    fence = await stage.fence(0)
    assert await stage.rw_raise(mode, fence, "b", stamp=stamp) == -1
    assert await stage.rw_extend(mode, fence, "abc", stamp=stamp) == 10
    assert await stage.rw_extend(mode, fence, "b", stamp=stamp) == 11
    stage.put(locks("c")[0], OTHERS, 30.0)
    assert await stage.rw_extend(mode, fence, "bc", stamp=stamp) == 9
    assert (await stage.ask(mode, "b", stamp=stamp))[0] == -1, "not even what is ours already"


@pytest.mark.parametrize("many", [False, True])
async def test_an_inspection_shows_those_that_read(stage: ReadWriteStage, many: bool) -> None:
    """The one that ends last first, with the milliseconds of each; none that has ended, at most 101."""
    crowd = {f"reader-{number}": float(100 + number) for number in range(150 if many else 0)}
    await stage.put_readers(ours=20, others=30, ended=-5, **crowd)
    stage.put(counters("a")[0], b"41", 60.0)
    value, left, count = await stage.node.run(_scripts.INSPECT, [*locks("a"), *counters("a")], 1)
    assert count == b"41"
    assert waits(left, max(30.0, *crowd.values()) if crowd else 30)
    assert len(value) == 2 * (101 if many else 2)
    owners = [f"reader-{number}".encode() for number in range(149, 48, -1)] if many else [OTHERS, OURS]
    assert value[::2] == owners
    assert [waits(ms, seconds) for ms, seconds in zip(value[1::2], (30, 20), strict=False)] == [not many] * 2


# -- readers and writers (R20) -----------------------------------------------------------------------


@with_and_without_fences
@pytest.mark.parametrize("names", ["a", "ab"])
async def test_readers_come_beside_readers(stage: ReadWriteStage, names: str, fenced: bool) -> None:
    """Each has an end of its own, and the key ends with the last of them."""
    ballot = 1 if fenced else 0
    for name in names:
        await stage.put_readers(name, others=30)
    assert (await stage.ask("read", names, ballot=ballot))[0] == 1
    for name in names:
        assert close(await stage.readers(name), {OURS: TTL, OTHERS: 30})
    assert all(lives(ttl, TTL) for ttl in stage.lives(names)[: len(names)])
    assert (await stage.ask("read", names, owner=b"short", ttl_ms=20_000, ballot=ballot))[0] == 1
    for name in names:
        assert close(await stage.readers(name), {OURS: TTL, OTHERS: 30, b"short": 20})
    assert all(lives(ttl, TTL) for ttl in stage.lives(names)[: len(names)])


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_grant_drops_readers_that_have_ended(stage: ReadWriteStage, names: str) -> None:
    """Of those that crashed nothing stays for ever, while others come and go."""
    await stage.put_readers(others=30, gone=-1, **{"long-gone": -90})
    assert (await stage.ask("read", names))[0] == 1
    assert close(await stage.readers(), {OURS: TTL, OTHERS: 30})


@with_and_without_fences
@pytest.mark.parametrize("names", ["a", "ab", "ba"])
async def test_a_reader_is_in_a_writers_way(stage: ReadWriteStage, names: str, fenced: bool) -> None:
    """Also a writer's own: it waits for the last of them, and changes nothing."""
    await stage.put_readers(others=20, ours=40)
    before = stage.stored("ab")
    code, wait, _, nothing = await stage.ask("write", "".join(sorted(names)), ballot=1 if fenced else 0)
    assert (code, waits(wait, 40), nothing) == (0, True, 0)
    assert stage.stored("ab") == before


@each_mode
async def test_a_writer_is_in_the_way_of_several_names(stage: ReadWriteStage, mode: str) -> None:
    """All or nothing; the wait is that of the name which stays longest."""
    stage.put(locks("a")[0], OTHERS, 20.0)
    stage.put(locks("c")[0], OTHERS, 40.0)
    code, wait, *_ = await stage.ask(mode, "abc")
    assert (code, waits(wait, 40)) == (0, True)
    assert stage.stored("abc")[1] is None
    assert stage.stored("abc")[3:] == [None] * 3


@each_mode
@with_and_without_fences
@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_repeated_acquire_changes_nothing(
    stage: ReadWriteStage, mode: str, names: str, fenced: bool
) -> None:
    """It is granted again with the same fence, whoever waits; nothing lives longer for it."""
    ballot = block_end(await stage.fence(-10), 1) if fenced else 0
    fence = (await stage.ask(mode, names, ballot=ballot))[1]
    for name in names:
        if mode == "read":
            await stage.put_readers(name, ours=20, others=30)
            await stage.put_marks(name, w7=30)
        else:
            stage.put(locks(name)[0], OURS, 30.0)
            await stage.put_marks(name, r=30)
        stage.put(counters(name)[0], b"%d" % fence if fenced else None, 300.0)
    before = stage.stored(names)
    again = await stage.ask(mode, names, ballot=ballot + 1000 if fenced else 0)
    assert again[:2] == [1, fence]
    assert again[3:] == [fence] * (mode == "write")
    assert stage.stored(names) == before
    assert all(lives(ttl, 30.0) for ttl in stage.lives(names)[: len(names)])


@each_mode
async def test_an_acquire_of_which_a_part_is_ours_is_a_new_one(stage: ReadWriteStage, mode: str) -> None:
    """A name of several has ended: all are ours then, with one fence."""
    _, first, *_ = await stage.ask(mode, "ab")
    stage.put(locks("a")[0], None)
    if mode == "read":
        await stage.put_readers("b", ours=20)
    _, second, *_ = await stage.ask(mode, "ab")
    assert second == (first if mode == "read" else first + 2)
    assert stage.stored("ab")[2:] == [b"%d" % second] * 2
    if mode == "read":
        assert close(await stage.readers("a"), {OURS: TTL})
        assert close(await stage.readers("b"), {OURS: 20})
    else:
        assert stage.stored("ab")[:2] == [OURS] * 2


async def test_a_reader_whose_entry_has_ended_is_let_in_anew(stage: ReadWriteStage) -> None:
    """Its entry is still there beside those of others."""
    await stage.put_readers(ours=-1, others=30)
    assert (await stage.ask("read"))[0] == 1
    assert close(await stage.readers(), {OURS: TTL, OTHERS: 30})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ({"ours": 40, "others": 20}, {OTHERS: 20}, 20.0),
        ({"ours": 20, "others": 40}, {OTHERS: 40}, 40.0),
        ({"ours": 20, "others": 20, "a": 20}, {OTHERS: 20, b"a": 20}, 20.0),
        ({"ours": 40, "others": 20, "ended": -1}, {OTHERS: 20, b"ended": -1}, 20.0),
        ({"ours": 40, "ended": -1}, {}, None),
        ({"ours": 40}, {}, None),
        ({"ours": -1, "others": 20}, {OTHERS: 20}, 20.0),
    ],
)
async def test_the_key_ends_with_the_last_reader(
    stage: ReadWriteStage, mode: str, before: dict[str, float], after: dict[bytes, float], key: float | None
) -> None:
    """Whichever of them leaves, and in whatever mode: where there is a set, one reads."""
    await stage.put_readers(**before)
    assert await stage.rw_release(mode) == [1, 0, 0]
    assert lives(stage.lives()[0], key)
    if after:
        assert close(await stage.readers(), after)
    else:
        assert stage.stored() == [None, None]


async def test_a_reader_that_is_not_in_leaves_the_others_alone(stage: ReadWriteStage) -> None:
    """To an undone reader they are not in the way; to an undone writer they are, and are no foreigners."""
    assert await stage.rw_release("read") == [0, 0, 0]
    await stage.put_readers(others=30)
    assert await stage.rw_release("read") == [0, 0, 0]
    given, wait, *told = await stage.rw_release("write")
    assert (given, waits(wait, 30), told) == (0, True, [0])
    assert close(await stage.readers(), {OTHERS: 30})
    assert lives(stage.lives()[0], 30)


@each_mode
async def test_a_release_frees_all_that_is_ours(stage: ReadWriteStage, mode: str) -> None:
    """As writer and as reader, past free names, others' and those of another type (R5)."""
    stage.put(locks("a")[0], OURS, 30.0)
    await stage.put_readers("b", ours=30, others=20)
    stage.put(locks("d")[0], OTHERS, 40.0)
    await stage.put_readers("e", ours=30)
    fence = await stage.fence(0)
    released = await stage.rw_release(mode, fence, "abcde")
    assert (released[0], waits(released[1], 40), released[2:]) == (3, True, [0, 0])
    assert stage.stored("acde")[:4] == [None, None, OTHERS, None]
    assert close(await stage.readers("b"), {OTHERS: 20})
    assert stage.stored("abcde")[5:] == [b"%d" % fence, b"%d" % fence, None, None, b"%d" % fence]
    stage.put(locks("a")[0], WRONG)
    stage.put(locks("b")[0], OURS, 30.0)
    assert await stage.rw_release(mode, 0, "ab") == "WRONGTYPE"
    assert stage.stored("ab")[:2] == [WRONG, None]


@each_mode
async def test_a_counter_of_another_type_does_not_keep_a_lock(stage: ReadWriteStage, mode: str) -> None:
    """What cannot be raised is left; what is ours goes all the same."""
    await stage.put_readers("a", ours=30)
    stage.put(locks("b")[0], OURS, 30.0)
    stage.put(counters("a")[0], WRONG)
    fence = await stage.fence(0)
    assert await stage.rw_release(mode, fence, "ab") == [2, 0, 0]
    assert stage.stored("ab") == [None, None, WRONG, b"%d" % fence]


@with_and_without_fences
async def test_a_reader_is_extended_alone(stage: ReadWriteStage, fenced: bool) -> None:
    """Never shortened, and the others' ends stay; the key lives as long as the last of all."""
    await stage.put_readers("a", ours=20, others=30, ended=-1)
    await stage.put_readers("b", ours=120, others=90)
    fence = await stage.fence(0) if fenced else 0
    assert await stage.rw_extend("read", fence, "ab") == 1
    assert close(await stage.readers("a"), {OURS: TTL, OTHERS: 30})
    assert close(await stage.readers("b"), {OURS: 120, OTHERS: 90})
    assert all(map(lives, stage.lives("ab")[:2], [TTL, 120]))
    assert await stage.rw_extend("read", fence, "b", ttl_ms=1000) == 1
    assert close(await stage.readers("b"), {OURS: 120, OTHERS: 90})
    assert stage.stored("ab")[2:] == [b"%d" % fence if fenced else None] * 2


async def test_an_extension_never_creates(stage: ReadWriteStage) -> None:
    """Neither a reader that is not in or has ended, nor a writer; and readers are others to a writer."""
    await stage.put_readers("a", others=30, ours=-1)
    stage.put(locks("b")[0], OURS, 30.0)
    before = stage.stored("abc")
    assert await stage.rw_extend("read", 0, "a") == 0
    assert await stage.rw_extend("read", 0, "c") == 0
    assert await stage.rw_extend("read", 0, "bc") == 0
    assert await stage.rw_extend("write", 0, "a") == -1
    assert await stage.rw_extend("write", 0, "c") == 0
    assert await stage.rw_extend("write", 0, "bc") == 0
    assert stage.stored("abc") == before
    assert lives(stage.lives("b")[0], 30)


async def test_a_writer_is_extended(stage: ReadWriteStage) -> None:
    """As a mutex is: at least for the ttl, never shortened."""
    stage.put(locks("a")[0], OURS, 30.0)
    stage.put(locks("b")[0], OURS, 120.0)
    fence = await stage.fence(0)
    assert await stage.rw_extend("write", fence, "ab") == 1
    assert all(map(lives, stage.lives("ab"), [TTL, 120, KEEP, KEEP]))
    assert stage.stored("ab") == [OURS, OURS, b"%d" % fence, b"%d" % fence]


@with_and_without_fences
async def test_a_top_up_gives_a_reader_its_place_back(stage: ReadWriteStage, fenced: bool) -> None:
    """Beside others, and never for a shorter time than it has; not where a writer is (R9)."""
    fence = await stage.fence(0) if fenced else 0
    await stage.put_readers("b", others=90)
    await stage.put_readers("c", ours=120)
    await stage.put_marks("a", w7=30)
    assert await stage.rw_top_up("read", fence, "abc") == 0
    assert close(await stage.readers("a"), {OURS: TTL})
    assert close(await stage.readers("b"), {OURS: TTL, OTHERS: 90})
    assert close(await stage.readers("c"), {OURS: 120})
    assert all(map(lives, stage.lives("abc")[:3], [TTL, 90, 120]))
    assert stage.stored("abc")[3:] == [b"%d" % fence if fenced else None] * 3
    stage.put(locks("e")[0], OTHERS, 30.0)
    assert await stage.rw_top_up("read", fence, "de") == -1
    assert stage.stored("de")[:2] == [None, OTHERS]


@with_and_without_fences
async def test_a_top_up_gives_a_writer_its_key_back(stage: ReadWriteStage, fenced: bool) -> None:
    """Where it is free or its own; readers are in its way, its own entry too (R9)."""
    fence = await stage.fence(0) if fenced else 0
    stage.put(locks("b")[0], OURS, 120.0)
    stage.put(locks("c")[0], OURS, 30.0)
    assert await stage.rw_top_up("write", fence, "abc") == 0
    assert stage.stored("abc") == [OURS] * 3 + [b"%d" % fence if fenced else None] * 3
    assert all(map(lives, stage.lives("abc")[:3], [TTL, 120, TTL]))
    await stage.put_readers("e", ours=30)
    assert await stage.rw_top_up("write", fence, "de") == -1
    assert stage.stored("d")[0] is None
    assert close(await stage.readers("e"), {OURS: 30})


# -- fences (R21) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(
    ("stored", "floor", "ballot", "wanted"),
    [
        pytest.param(-1.0, None, -10.0, "stored", id="a counter above the ballot"),
        pytest.param(-20.0, None, -10.0, "stored", id="a counter below the ballot stays as well"),
        pytest.param(-400.0, None, -10.0, "stored", id="also one that is older than a missing one"),
        pytest.param(5.0, None, -10.0, "stored", id="and one beyond the node's time"),
        pytest.param(None, None, -400.0, "start", id="a missing counter starts behind the node's time"),
        pytest.param(None, None, -10.0, "ballot", id="there the ballot counts"),
        pytest.param(None, None, 3600.0, "now", id="but never beyond the node's time"),
        pytest.param(-20.0, 12.0, -10.0, "floor", id="nothing is below the floor"),
        pytest.param(None, 12.0, -10.0, "floor", id="a missing counter neither"),
    ],
)
async def test_where_a_readers_fence_comes_from(
    stage: ReadWriteStage, *, stored: float | None, floor: float | None, ballot: float, wanted: str, odd: bool
) -> None:
    """What the counter is, made odd, so that all readers between two writers have one fence."""
    numbers = {
        name: 0 if seconds is None else await stage.fence(seconds) + odd
        for name, seconds in {"stored": stored, "floor": floor, "ballot": ballot}.items()
    }
    if stored is not None:
        stage.put(counters("a")[0], b"%d" % numbers["stored"], 300.0)
    code, fence, time_us = await stage.ask("read", floor=numbers["floor"], ballot=numbers["ballot"])
    numbers |= {"now": at(time_us // 1000), "start": at(time_us // 1000 - START_LAG_MS)}
    assert (code, fence) == (1, numbers[wanted] | 1)
    assert stage.stored()[1] == b"%d" % fence
    assert lives(stage.lives()[1], KEEP)
    stage.put(counters("a")[0], b"%d" % fence, 300.0)
    again = await stage.ask("read", owner=OTHERS, floor=numbers["floor"], ballot=numbers["ballot"] + 10**6)
    assert again[:2] == [1, fence], "the next reader has the same"
    assert lives(stage.lives()[1], KEEP)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(
    ("stored", "floor", "ballot", "before", "wanted"),
    [
        pytest.param(-1.0, None, -10.0, "stored", "above stored", id="a counter above the ballot"),
        pytest.param(-20.0, None, -10.0, "stored", "from ballot", id="a ballot above the counter"),
        pytest.param(-20.0, None, 3600.0, "stored", "from now", id="a ballot is capped by the node's time"),
        pytest.param(None, None, -400.0, "start", "above start", id="a missing counter"),
        pytest.param(-20.0, 12.0, -10.0, "floor", "above floor", id="nothing is below the floor"),
    ],
)
async def test_where_a_writers_fence_comes_from(
    stage: ReadWriteStage,
    *,
    stored: float | None,
    floor: float | None,
    ballot: float,
    before: str,
    wanted: str,
    odd: bool,
) -> None:
    """As a mutex's: the next even number; the answer also says where the counter was (R23)."""
    numbers = {
        name: 0 if seconds is None else await stage.fence(seconds) + odd
        for name, seconds in {"stored": stored, "floor": floor, "ballot": ballot}.items()
    }
    if stored is not None:
        stage.put(counters("a")[0], b"%d" % numbers["stored"], 300.0)
    answer = await stage.ask("write", floor=numbers["floor"], ballot=numbers["ballot"])
    code, fence, time_us, stood = answer
    numbers |= {"now": at(time_us // 1000), "start": at(time_us // 1000 - START_LAG_MS)}
    where, name = wanted.split()
    assert (code, stood) == (1, numbers[before])
    assert fence == block_end(numbers[name] + (where == "above"), 1)
    assert stage.stored() == [OURS, b"%d" % fence]
    assert all(map(lives, stage.lives(), [TTL, KEEP]))


@each_mode
async def test_names_share_one_fence(stage: ReadWriteStage, mode: str) -> None:
    """That of the greatest counter; where one is missing the ballot counts, for readers too."""
    low, high = await stage.fence(-20), await stage.fence(-5)
    stage.put(counters("a")[0], b"%d" % low, 300.0)
    stage.put(counters("b")[0], b"%d" % high, 300.0)
    answer = await stage.ask(mode, "ab", ballot=high - 1000)
    assert answer[1] == (high | 1 if mode == "read" else high + 2)
    assert answer[3:] == [high] * (mode == "write")
    stage.put(counters("c")[0], b"%d" % low, 300.0)
    assert (await stage.ask(mode, "cd", ballot=high))[1] == (high | 1 if mode == "read" else high)
    assert stage.stored("ab")[2:] == [b"%d" % answer[1]] * 2


async def test_between_two_writers_all_readers_have_one_fence(stage: ReadWriteStage) -> None:
    """Greater than the writer's before them, smaller than the next one's."""
    fences = []
    for _ in range(3):
        fences.append((await stage.ask("write", ballot=1))[1])
        await stage.rw_release("write")
        readers = [(await stage.ask("read", ballot=1, owner=owner))[1] for owner in (OTHERS, OURS)]
        assert readers == [fences[-1] + 1] * 2
        fences.append(readers[0])
        stage.put(locks("a")[0], None)
    assert fences == sorted(set(fences))


async def test_a_reader_raises_counters(stage: ReadWriteStage) -> None:
    """As long as it reads: to its fence, never down, and 1 also where others are above it already."""
    fence = await stage.fence(5) | 1
    for name, stored in (("a", None), ("b", fence - 2), ("c", fence), ("d", fence + 2)):
        await stage.put_readers(name, ours=30, others=20)
        stage.put(counters(name)[0], None if stored is None else b"%d" % stored, 300.0)
    assert await stage.rw_raise("read", fence, "abcd") == 1
    assert stage.stored("abcd")[4:] == [*[b"%d" % fence] * 3, b"%d" % (fence + 2)]
    assert all(lives(ttl, KEEP) for ttl in stage.lives("abcd")[4:])
    await stage.put_readers("b", ours=-1, others=20)
    assert await stage.rw_raise("read", fence + 4, "ab") == 0, "it has ended"
    assert await stage.rw_raise("read", await stage.fence(60), "a") == -2
    assert stage.stored("ab")[2:] == [b"%d" % fence] * 2


async def test_a_writer_raises_counters(stage: ReadWriteStage) -> None:
    """As a mutex does: where one is above its fence there is no certificate."""
    fence = await stage.fence(5)
    stage.put(locks("a")[0], OURS, 30.0)
    assert await stage.rw_raise("write", fence) == 1
    assert stage.stored() == [OURS, b"%d" % fence]
    assert await stage.rw_raise("write", fence - 2) == -3
    assert await stage.rw_raise("write", await stage.fence(60)) == -2
    assert await stage.rw_raise("write", fence, "ab") == 0
    for holder in (OTHERS, None):
        stage.put(locks("a")[0], holder, 30.0)
        assert await stage.rw_raise("write", fence + 2) == 0
    await stage.put_readers(ours=30)
    assert await stage.rw_raise("write", fence + 2) == 0
    assert stage.stored()[1] == b"%d" % fence


@each_mode
@pytest.mark.parametrize("what", ["extend", "top up", "release"])
async def test_what_is_behind_is_raised_in_passing(stage: ReadWriteStage, mode: str, what: str) -> None:
    """Never down; and not beyond the node's time and ten seconds (R10)."""
    fence, far = await stage.fence(5), await stage.fence(60)
    ask: Callable[[int], Any] = {
        "extend": lambda fence: stage.rw_extend(mode, fence, "abc"),
        "top up": lambda fence: stage.rw_top_up(mode, fence, "abc"),
        "release": lambda fence: stage.rw_release(mode, fence, "abc"),
    }[what]
    for asked, after in ((fence, fence), (far, None)):
        for name, stored in (("a", None), ("b", b"7"), ("c", b"%d" % (fence + 2))):
            stage.put(counters(name)[0], stored, 300.0)
            stage.put(locks(name)[0], OURS, 30.0)
            if mode == "read":
                await stage.put_readers(name, ours=30)
        assert await ask(asked) in (1, 0, [3, 0, 0])
        raised = [None, b"7"] if after is None else [b"%d" % after] * 2
        assert stage.stored("abc")[3:] == [*raised, b"%d" % (fence + 2)]


# -- turns (R22) -------------------------------------------------------------------------------------


@with_and_without_fences
async def test_a_waiting_writer_keeps_new_readers_out(stage: ReadWriteStage, fenced: bool) -> None:
    """Of several names too; its mark, and no other, is how long."""
    ballot = 1 if fenced else 0
    await stage.put_marks("b", w7=20, w8=30, r=50, turn=-1)
    for names in ("b", "ab"):
        code, wait, _ = await stage.ask("read", names, ballot=ballot)
        assert (code, waits(wait, 30)) == (0, True)
    assert stage.stored("ab") == [None] * 4
    await stage.put_readers("b", others=30)
    assert (await stage.ask("read", "b", ballot=ballot))[0] == 0
    assert waits((await stage.rw_release("read", 0, "ab"))[1], 30)
    await stage.put_marks("b", w7=-1, w8=-2, r=50)
    assert (await stage.ask("read", "ab", ballot=ballot))[0] == 1
    assert await stage.rw_release("read", 0, "ab") == [2, 0, 0]


@with_and_without_fences
async def test_in_the_readers_turn_no_writer_comes_in(stage: ReadWriteStage, fenced: bool) -> None:
    """And readers do, though writers wait."""
    ballot = 1 if fenced else 0
    await stage.put_marks("a", w7=20, turn=10, r=20)
    await stage.put_marks("b", turn=9)
    for names in ("a", "ab"):
        code, wait, _, nothing = await stage.ask("write", names, ballot=ballot, seat=b"7")
        assert (code, waits(wait, 10), nothing) == (0, True, 0)
        assert waits((await stage.rw_release("write", 0, names))[1], 10)
    assert (await stage.ask("read", "ab", ballot=ballot))[0] == 1
    assert waits((await stage.ask("write", ballot=ballot))[1], TTL), "its readers stay longer than the turn"
    await stage.rw_release("read", 0, "ab")
    for name in "ab":
        await stage.put_marks(name, turn=-1)
    assert (await stage.ask("write", "ab", ballot=ballot))[0] == 1


@each_mode
@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_call_that_waits_leaves_a_mark(stage: ReadWriteStage, mode: str, names: str) -> None:
    """For a second, again with each try; one that does not wait leaves none.  What has ended is dropped."""
    for name in names:
        stage.put(locks(name)[0], OTHERS, 30.0)
    mine = "r" if mode == "read" else "w7"
    for name in names:
        await stage.put_marks(name, **{mine: 0.5, "w8": 30, "w9": -1})
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
        stage.put(locks(name)[0], None)


@each_mode
@pytest.mark.parametrize("taken", ["a", "b", "c"])
async def test_a_call_leaves_no_mark_at_a_name_that_is_free(
    stage: ReadWriteStage, mode: str, taken: str
) -> None:
    """Of several names only one is in its way: the others are for readers and writers to have (R22)."""
    stage.put(locks(taken)[0], OTHERS, 30.0)
    assert (await stage.ask(mode, "abc", seat=b"7"))[0] == 0
    assert [name for name in "abc" if stage.marks(name)] == [taken]
    stage.put(locks(taken)[0], None)
    await stage.put_marks("b", **({"turn": 30} if mode == "write" else {"w8": 30}))
    assert (await stage.ask(mode, "abc", seat=b"7"))[0] == 0
    assert len(stage.marks("b")) == 2


async def test_the_first_mark_lasts_as_long_as_its_key(stage: ReadWriteStage) -> None:
    """Hints stay for no longer than they are of use."""
    stage.put(locks("a")[0], OTHERS, 30.0)
    await stage.ask("read", seat=b"7")
    ((_, ttl),) = stage.master.look(queues("a"))
    assert ttl is None or ttl <= 1.0


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_writer_that_gets_in_waits_no_more(stage: ReadWriteStage, names: str) -> None:
    """It takes its mark away, and no other."""
    for name in names:
        await stage.put_marks(name, w7=30, w8=30, r=30)
    assert (await stage.ask("write", names, seat=b"7"))[0] == 1
    assert [set(stage.marks(name)) for name in names] == [{"w8", "r"}] * len(names)


@pytest.mark.parametrize("how", ["release", "downgrade"])
@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_writer_that_leaves_gives_readers_their_turn(
    stage: ReadWriteStage, names: str, how: str
) -> None:
    """If any wait: their mark becomes a turn, which is long enough for the first of them."""
    waiting, ended, none = "ab", "c", "d"
    for name in "abcd":
        stage.put(locks(name)[0], OURS, 30.0)
    for name in waiting:
        await stage.put_marks(name, r=30, w7=20)
    await stage.put_marks(ended, r=-1, w7=20)
    await stage.put_marks(none, w7=20)
    earliest = await stage.now_ms()
    for name in (names, ended, none):
        await (stage.rw_release("write", 0, name) if how == "release" else stage.rw_extend("read", 0, name))
    latest = await stage.now_ms()
    for name in names:
        assert set(stage.marks(name)) == {"w7", "turn"}
        assert earliest + AWAITED_MS <= stage.marks(name)["turn"] <= latest + AWAITED_MS
    assert set(stage.marks(ended)) == {"r", "w7"}
    assert set(stage.marks(none)) == {"w7"}


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_the_first_reader_in_its_turn_shortens_it(stage: ReadWriteStage, names: str) -> None:
    """The others are near; what a later one finds is left as it is."""
    for name in names:
        await stage.put_marks(name, turn=30, w7=40)
    earliest = await stage.now_ms()
    assert (await stage.ask("read", names))[0] == 1
    latest = await stage.now_ms()
    for name in names:
        marks = stage.marks(name)
        assert earliest + TURN_MS <= marks["turn"] <= latest + TURN_MS
        await stage.put_marks(name, turn=-1, w7=40)
        before = stage.marks(name)
        assert (await stage.ask("read", name))[0] == 1, "a repeated command"
        assert stage.marks(name) == before


async def test_a_call_that_gives_up_takes_its_mark_away(stage: ReadWriteStage) -> None:
    """With its last release, or by itself; others' stay, and a turn is no matter of it."""
    await stage.put_marks("a", w7=30, w8=30, r=30)
    await stage.put_marks("b", w8=30)
    assert waits((await stage.rw_release("read", 0, "ab", seat=b"7"))[1], 30)
    assert (set(stage.marks("a")), set(stage.marks("b"))) == ({"w8", "r"}, {"w8"})
    await stage.rw_release("write", 0, "ab", seat=b"8")
    assert (set(stage.marks("a")), set(stage.marks("b"))) == ({"r"}, set())


# -- downgrade (R23) ---------------------------------------------------------------------------------


@with_and_without_fences
@pytest.mark.parametrize(("left", "after"), [(30.0, TTL), (120.0, 120.0)])
async def test_an_extension_makes_a_reader_of_the_writer(
    stage: ReadWriteStage, fenced: bool, left: float, after: float
) -> None:
    """It lives as long as the writer would have; its fence stays, and other readers come in behind it."""
    for name in "ab":
        stage.put(locks(name)[0], OURS, left)
    fence = await stage.fence(-1) if fenced else 0
    assert await stage.rw_extend("read", fence, "ab") == 1
    for name in "ab":
        assert close(await stage.readers(name), {OURS: after})
    assert all(map(lives, stage.lives("ab")[:2], [after] * 2))
    assert stage.stored("ab")[2:] == [b"%d" % fence if fenced else None] * 2
    code, shared, _ = await stage.ask("read", "ab", owner=OTHERS, ballot=1 if fenced else 0)
    assert (code, shared) == (1, fence + 1 if fenced else 0)
    assert await stage.rw_extend("read", fence, "ab") == 1
    assert (await stage.ask("write", "ab", owner=b"third", ballot=1))[0] == 0
    assert await stage.rw_extend("write", fence, "ab") == -1, "it is no writer any more"


async def test_a_part_that_is_a_reader_already_stays_one(stage: ReadWriteStage) -> None:
    """A downgrade that is asked again, where its first answer was lost."""
    await stage.put_readers("a", ours=90, others=30)
    stage.put(locks("b")[0], OURS, 30.0)
    assert await stage.rw_extend("read", 0, "ab") == 1
    assert close(await stage.readers("a"), {OURS: 90, OTHERS: 30})
    assert close(await stage.readers("b"), {OURS: TTL})
    stage.put(locks("b")[0], OTHERS, 30.0)
    assert await stage.rw_extend("read", 0, "ab") == -1
