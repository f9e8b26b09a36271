"""The scripts of an election, on every kind of master (R31, R32)."""

from __future__ import annotations

import contextlib

import pytest

from tests.conformance.masters import WRONG
from tests.conformance.stage import KEEP, SENTINEL, announcements, locks
from tests.conformance.tools import FOREIGN, OTHERS, lives
from tests.listening import listen

(LOCK,) = locks("a")
(ANNOUNCED,) = announcements("a")
TERM = (4_102_444_800_000 << 10) + 1
"""In the year 2100: a number with more digits than a float shows by itself."""


async def test_the_greatest_term_stays(stage):
    """A smaller one changes nothing, not even how long it lives; the same one lives longer."""
    for term, label, announced in (
        (TERM, b"a", True),
        (TERM - 1, b"b", False),
        (TERM, b"a", True),
        (TERM + 1, b"a:b:", True),
        (TERM, b"a", False),
        (TERM + 2, b"", True),
        (TERM + 3, "zoë – 1".encode() + b"%d", True),
    ):
        value, _ = stage.look(ANNOUNCED)
        stage.put(ANNOUNCED, value, 30.0)
        assert await stage.announce(term, label) == int(announced)
        wanted = (b"%d:%b" % (term, label), KEEP) if announced else (value, 30.0)
        value, ttl = stage.look(ANNOUNCED)
        assert (value, lives(ttl, wanted[1])) == (wanted[0], True)
    assert (await stage.observe())[2] == value


@pytest.mark.parametrize("value", [b"", FOREIGN, b":us", b"-5:us", b"x5:us", b"5"])
async def test_what_is_no_announcement_gives_way(stage, value):
    """No term stands there that could be greater."""
    stage.put(ANNOUNCED, value)
    assert await stage.announce(3) == 1
    assert stage.look(ANNOUNCED)[0] == b"3:us"


async def test_a_node_without_a_vote_keeps_it_too(stage):
    """A term that was won stays won: no incarnation record is looked at."""
    stage.put(SENTINEL, None)
    assert await stage.announce(TERM) == 1
    assert await stage.observe() == [0, 0, b"%d:us" % TERM]


async def test_new_terms_are_published_and_no_others(stage, master):
    """On the channel of the announcement's own key; a repeated one is no news."""
    listener = await listen(master.spec)
    with contextlib.closing(listener.transport):
        await listener.subscribe(ANNOUNCED, LOCK)
        await stage.announce(5)
        await stage.announce(5)
        await stage.announce(4)
        await stage.announce(6)
        assert await listener.until(2) == [[b"message", ANNOUNCED, b""]] * 2
        stage.put(ANNOUNCED, None)
        await stage.announce(1)
        assert await listener.until(3) == [[b"message", ANNOUNCED, b""]] * 3


async def test_what_an_observer_sees(stage):
    """Whether the node votes, whether anything is under the lock's key, and what is announced."""
    assert await stage.observe() == [1, 0, b""]
    assert await stage.observe(stamp=b"another incarnation record") == [0, 0, b""]
    assert await stage.observe(stamp=b"") == [0, 0, b""]
    stage.hold("a", OTHERS)
    stage.put(ANNOUNCED, b"7:us", 30.0)
    assert await stage.observe() == [1, 1, b"7:us"]
    assert await stage.observe(stamp=b"") == [0, 1, b"7:us"]


@pytest.mark.parametrize("ttl", [30.0, None])
@pytest.mark.parametrize("value", [OTHERS, FOREIGN, b"", WRONG])
async def test_whatever_is_under_the_key_is_a_lock(stage, value, ttl):
    """Of any type, with and without expiry: a leader could not be there beside it (R19)."""
    stage.put(LOCK, value, ttl)
    assert await stage.observe() == [1, 1, b""]


async def test_a_value_of_any_size_is_cut(stage):
    """Another program may have written there."""
    stage.put(ANNOUNCED, b"7:" + b"x" * 100_000, 30.0)
    assert (await stage.observe())[2] == b"7:" + b"x" * 1022


async def test_another_type_is_an_error(stage):
    """Where no announcement can be, the node is silent to both."""
    stage.put(ANNOUNCED, WRONG, 30.0)
    assert await stage.announce(3) == "WRONGTYPE"
    assert await stage.observe() == "WRONGTYPE"
