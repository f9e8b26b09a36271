"""Greeting a node and initialising it: what becomes of its record, on every kind of master (R12, R14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from aioredlock_ng._core.fencing import FLOOR_AHEAD_MS, at, floor_at
from aioredlock_ng._core.quarantine import (
    BY_INIT,
    BY_USE,
    Claim,
    Incarnation,
    parse,
    wait_ms,
)
from tests.conformance.masters import WRONG
from tests.conformance.stage import CLAIM, SENTINEL, Stage

HOUR_MS: Final = 3_600_000
THEM: Final = Claim(born_ms=1, how=BY_INIT, label=b"them")
QUARANTINE: Final = 60_000
"""Milliseconds."""


@pytest.fixture(autouse=True)
def no_incarnation(stage):
    """Begin without one."""
    stage.put(SENTINEL, None)


def read(value: Any) -> Incarnation:
    """Return an incarnation record of the format that this version writes."""
    incarnation = parse(value)
    assert incarnation is not None, value
    return incarnation


def there(stage: Stage) -> Any:
    """Return what is stored; it has no expiry."""
    value, ttl = stage.look(SENTINEL)
    assert ttl is None
    return value


async def some(stage: Stage, **changes: Any) -> Incarnation:
    """Store an incarnation record of this server, ready since a minute ago, and return it."""
    identity = await stage.identity()
    now_ms = await stage.now_ms()
    made = Incarnation(
        identity=identity,
        floor=at(now_ms),
        ready_ms=now_ms - 60_000,
        size=5,
        quarantine_ms=QUARANTINE,
        claim=THEM,
    )
    made = replace(made, **changes)
    stage.put(SENTINEL, bytes(made))
    return made


# -- greet ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("quarantine_ms", [0, 1, QUARANTINE, 86_400_000])
async def test_the_first_greeting_makes_an_incarnation(stage, quarantine_ms):
    """It has a floor above all that was, waits for the quarantine and a margin, and says so for ever."""
    incarnation, time_us, identity, role = await stage.greet(quarantine_ms=quarantine_ms)
    assert read(incarnation) == Incarnation(
        identity=identity,
        floor=floor_at(time_us),
        ready_ms=time_us // 1000 + wait_ms(quarantine_ms),
        size=5,
        quarantine_ms=quarantine_ms,
        claim=CLAIM,
    )
    assert there(stage) == incarnation
    assert role == b"master"
    assert len(identity) == 80


@pytest.mark.parametrize("floor", ["older", "ahead"])
async def test_another_servers_incarnation_is_replaced(stage, floor):
    """A restart with old data: a new wait, and a floor above the old one and the time (R12)."""
    now_ms = await stage.now_ms()
    ahead = at(now_ms + (HOUR_MS if floor == "ahead" else -HOUR_MS))
    await some(stage, identity=b"x" * 80, floor=ahead, quarantine_ms=90_000)
    incarnation, time_us, identity, _ = await stage.greet(quarantine_ms=QUARANTINE)
    assert read(incarnation) == Incarnation(
        identity=identity,
        floor=max(ahead, floor_at(time_us)),
        ready_ms=time_us // 1000 + wait_ms(90_000),
        size=5,
        quarantine_ms=90_000,
        claim=THEM,
    ), "the quorum is as old as it was"
    assert there(stage) == incarnation


async def test_an_unknown_format_is_left_alone(stage):
    """Another version's incarnation record is left as it is."""
    for value in (
        b"",
        b"2:x:1:2:5:4:1:use:us",
        b"1:x:1:2:5:4",
        b"1:x:1:2:5:4:1:use",
        b"1:x:1:2:5:4:1::us",
        b"1:x:1:2:5:4::use:us",
        b"1:x:-1:2:5:4:1:use:us",
        b"1:x:1:2:5:4\n:1:use:us",
    ):
        assert parse(value) is None
        stage.put(SENTINEL, value)
        assert (await stage.greet(restart=value))[0] == value
    assert await stage.init() == value
    assert there(stage) == value


@pytest.mark.parametrize("size", [0, 3])
async def test_a_look_changes_nothing(stage, size):
    """A greeting with no number of nodes tells what is there; so does one with another number (A4)."""
    if not size:
        assert (await stage.greet(size=0))[0] == b""
        assert there(stage) is None
    before = bytes(await some(stage, identity=b"x" * 80))
    restart = b"" if size else before
    assert (await stage.greet(size=size, quarantine_ms=QUARANTINE * 2, restart=restart))[0] == before
    assert there(stage) == before


async def test_another_type_is_an_error(stage):
    """Such a node cannot have a vote; what is there stays."""
    stage.put(SENTINEL, WRONG)
    with pytest.raises(AssertionError, match="WRONGTYPE"):
        await stage.greet()
    assert await stage.init() == "WRONGTYPE"
    assert there(stage) == WRONG


async def test_a_longer_quarantine_wins(stage):
    """The wait that is under way grows by the difference, and is written down for all."""
    before = await some(stage, ready_ms=await stage.now_ms() + 1000)
    incarnation, _, _, _ = await stage.greet(quarantine_ms=QUARANTINE + 5000)
    longer = wait_ms(QUARANTINE + 5000) - wait_ms(QUARANTINE)
    assert longer == 5050
    assert read(incarnation) == replace(
        before, ready_ms=before.ready_ms + longer, quarantine_ms=QUARANTINE + 5000
    )
    assert there(stage) == incarnation


@pytest.mark.parametrize("ready", ["passed", "initialised"])
async def test_a_quarantine_begins_anew(stage, ready):
    """Only for the incarnation record that was seen: a second client finds it done (R14)."""
    before = await some(stage, **({"ready_ms": 0} if ready == "initialised" else {}))
    unseen = bytes(replace(before, floor=1))
    assert (await stage.greet(quarantine_ms=QUARANTINE, restart=unseen))[0] == bytes(before)
    restarted, time_us, _, _ = await stage.greet(quarantine_ms=QUARANTINE, restart=bytes(before))
    assert read(restarted) == replace(before, ready_ms=time_us // 1000 + wait_ms(QUARANTINE))
    assert (await stage.greet(quarantine_ms=QUARANTINE, restart=bytes(before)))[0] == restarted
    assert there(stage) == restarted


async def test_a_wait_never_takes_longer_than_a_quarantine(stage):
    """The clock went back since it was written: what would take hours begins again, with a fresh floor."""
    before = await some(stage, ready_ms=await stage.now_ms() + HOUR_MS)
    incarnation, time_us, _, _ = await stage.greet(quarantine_ms=QUARANTINE)
    ready_ms = time_us // 1000 + wait_ms(QUARANTINE)
    assert read(incarnation) == replace(before, floor=floor_at(time_us), ready_ms=ready_ms)
    assert there(stage) == incarnation


async def test_a_floor_is_lifted_as_far_as_the_clock_allows(stage):
    """Nodes that forgot at once get one floor: none falls, and none gets ahead of its own clock (R11)."""
    before = await some(stage, floor=at(await stage.now_ms()))
    lifted = before.floor + at(5000)
    assert read((await stage.greet(quarantine_ms=QUARANTINE, lift=lifted))[0]) == replace(
        before, floor=lifted
    )
    assert read((await stage.greet(quarantine_ms=QUARANTINE, lift=1))[0]).floor == lifted
    incarnation, time_us, _, _ = await stage.greet(quarantine_ms=QUARANTINE, lift=lifted + at(HOUR_MS))
    assert read(incarnation).floor == floor_at(time_us)
    assert there(stage) == incarnation


# -- take back -----------------------------------------------------------------------------------

US: Final = Claim(born_ms=3, how=BY_USE, label=b"us: 1")


@pytest.mark.parametrize("ahead", [False, True], ids=["", "its clock was set back"])
@pytest.mark.parametrize("theirs", [0, 90_000])
async def test_a_node_is_taken_back(stage, theirs, ahead):
    """It has no memory of our locks, and waits for our quarantine, not for theirs.

    A floor above all that its clock gives stays: fences from before may be as great.
    """
    floor = at(await stage.now_ms() + HOUR_MS) if ahead else 1
    stray = Claim(born_ms=4, label=b"stray")
    before = await some(stage, size=3, floor=floor, quarantine_ms=theirs, claim=stray)
    incarnation, time_us, identity, role = await stage.greet(
        quarantine_ms=QUARANTINE, restart=bytes(before), claim=US
    )
    assert read(incarnation) == Incarnation(
        identity=identity,
        floor=max(floor_at(time_us), floor),
        ready_ms=time_us // 1000 + wait_ms(QUARANTINE),
        size=5,
        quarantine_ms=QUARANTINE,
        claim=US,
    )
    assert there(stage) == incarnation
    assert role == b"master"
    assert (await stage.greet(quarantine_ms=QUARANTINE))[0] == incarnation


async def test_only_what_was_seen_is_taken(stage):
    """Of two clients that take it, or where another one was faster, the second changes nothing."""
    before = bytes(await some(stage, size=3))
    for restart in (b"", before.replace(b":3:", b":4:")):
        assert (await stage.greet(restart=restart))[0] == before
    stage.put(SENTINEL, b"2:newer")
    assert (await stage.greet(restart=b"2:newer"))[0] == there(stage) == b"2:newer"


# -- init ----------------------------------------------------------------------------------------


async def test_an_initialised_node_may_vote_at_once(stage):
    """Its floor is above all that was; its identity and the number of nodes are written down."""
    before = await stage.now_ms()
    value = await stage.init(size=7, quarantine_ms=QUARANTINE)
    after = await stage.now_ms()
    incarnation = read(value)
    assert at(before + FLOOR_AHEAD_MS) <= incarnation.floor < at(after + 1 + FLOOR_AHEAD_MS)
    identity = await stage.identity()
    assert before <= incarnation.claim.born_ms <= after
    assert replace(incarnation, floor=0, claim=replace(incarnation.claim, born_ms=0)) == Incarnation(
        identity=identity,
        floor=0,
        ready_ms=0,
        size=7,
        quarantine_ms=QUARANTINE,
        claim=Claim(how=BY_INIT, label=b"us"),
    )
    stage.put(SENTINEL, value)
    assert (await stage.greet(size=7, quarantine_ms=QUARANTINE))[0] == value
    assert there(stage) == value


async def test_an_initialisation_never_lowers_the_floor(stage):
    """Whatever was written before, here or by another server; N and quarantine are what is asked for now."""
    high = at(await stage.now_ms() + HOUR_MS)
    for identity in (b"x" * 80, await stage.identity()):
        await some(stage, identity=identity, floor=high, ready_ms=2**45)
        incarnation = read(await stage.init(size=3, quarantine_ms=1000))
        assert (incarnation.floor, incarnation.ready_ms) == (high, 0)
        assert (incarnation.size, incarnation.quarantine_ms) == (3, 1000)


async def test_the_second_round_leaves_a_server_alone_that_was_not_in_the_first(stage):
    """It was restarted between the two, and waits."""
    before = await some(stage, identity=b"x" * 80, floor=0)
    assert read(await stage.init(quarantine_ms=QUARANTINE, floor=at(await stage.now_ms()))) == before


async def test_nodes_get_one_floor_in_the_second_round(stage):
    """The floor that all are given is taken if the clock allows it, and no greater one ever."""
    first = read(await stage.init())
    told = first.floor - at(500)
    await some(stage, floor=0)
    assert read(await stage.init(floor=told)).floor == told
    far = at(await stage.now_ms() + HOUR_MS)
    before = await stage.now_ms()
    assert at(before + FLOOR_AHEAD_MS) <= read(await stage.init(floor=far)).floor < far
