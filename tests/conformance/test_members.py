"""The servers that clients use, as a node keeps them, on every kind of master (R12c)."""

from __future__ import annotations

from typing import Final

import pytest

from aioredlock_ng._core.members import NEW, USED, WAITS, Member, read_members
from tests.conformance.stage import MEMBERS, SENTINEL, Stage

TOLERANCE: Final = 0.5

MOST: Final = 32
"""Servers that a node keeps."""


@pytest.fixture(autouse=True)
def no_members(stage: Stage) -> None:
    """Begin without any."""
    stage.put(MEMBERS, None)
    stage.put(SENTINEL, None)


async def _told(
    stage: Stage, told: bytes, at: int = 0, label: bytes = b"us"
) -> dict[tuple[bytes, bytes], Member]:
    """Tell a node of servers; return the servers that it knows, with moments in seconds before now."""
    lines = await stage.tell(told, at, label)
    members = read_members(lines, now_ms=await stage.now_ms(), asked_at=0.0, size=3)
    found = {(member.identity, member.state): member for member in members}
    assert len(found) == len(members)
    return found


def _about(seconds: float) -> object:
    return pytest.approx(-seconds, abs=TOLERANCE)


async def test_a_node_keeps_the_first_moment_and_the_last_answer(stage: Stage) -> None:
    """Whatever the order in which clients tell; with the label of the client that has used it last."""
    for told, label in ((b"20000 20000", b"us"), (b"12000 9000", b"us"), (b"7000 3000", b"them")):
        a = (await _told(stage, b"3:a u " + told, label=label))[b"a", USED]
    assert (a.there_since, a.answered_at, a.told_since) == (_about(20), _about(3), _about(0))
    a = (await _told(stage, b"3:a u 15000 9000"))[b"a", USED]
    assert (a.there_since, a.answered_at, a.label) == (_about(20), _about(3), b"them")


async def test_a_server_that_is_not_used_any_more_has_a_line_of_its_own(stage: Stage) -> None:
    """Telling of it as not used does not prolong what is known of its use."""
    await _told(stage, b"3:a u 9000 3000")
    found = await _told(stage, b"3:a w 9000 0")
    assert found[b"a", USED].answered_at == _about(3)
    assert found[b"a", WAITS].answered_at == _about(0)


async def test_a_server_that_is_not_used_is_kept_for_a_moment(stage: Stage) -> None:
    """One that is used for as long as a lock with its vote can live."""
    await _told(stage, b"3:a w 9000 5100 3:b u 9000 5100 3:c n 9000 4000")
    assert {identity for identity, _ in await _told(stage, b"")} == {b"b", b"c"}


async def test_a_server_is_kept_for_the_longest_quarantine(stage: Stage) -> None:
    """Also where the client that greets has a shorter one, which it then gives up."""
    await stage.greet(3, 120_000)
    await _told(stage, b"3:a u 90000 90000")
    assert set(await _told(stage, b"")) == {(b"a", USED)}


async def test_what_a_node_hears_late_is_as_old_as_it_was(stage: Stage) -> None:
    """It stood still: the client said so 10 s ago; or the client thinks that the node's clock is ahead."""
    now_ms = await stage.now_ms()
    late = await _told(stage, b"3:a u 1000 1000", now_ms - 10_000)
    assert late[b"a", USED].answered_at == _about(11)
    ahead = await _told(stage, b"3:a u 1000 1000", now_ms + 10_000)
    assert ahead[b"a", USED].answered_at == _about(1)


async def test_a_clock_that_went_back_proves_nothing(stage: Stage) -> None:
    """A moment in the future becomes now: it could make a server that is gone one that is there."""
    future = await stage.now_ms() + 60_000
    stage.put(MEMBERS, b"3:a u 5 5 %d them\n" % future)
    a = (await _told(stage, b""))[b"a", USED]
    assert [a.there_since, a.told_since, a.answered_at] == [_about(0)] * 3


async def test_an_init_forgets_since_when_servers_have_been_used(stage: Stage) -> None:
    """An operator may have changed the list."""
    await _told(stage, b"3:a u 5 0")
    await stage.init(3, 60_000)
    assert set(await _told(stage, b"3:b u 7 0")) == {(b"b", USED)}


async def test_a_node_keeps_so_many_servers_and_those_in_use_first(stage: Stage) -> None:
    """Restarts make new ones, and a client that may write to the key can write anything there."""
    now_ms = await stage.now_ms()
    planted = b"".join(b"3:used%d u 5 5 %d them\n" % (number, now_ms - 1000) for number in range(100))
    stage.put(MEMBERS, b"no line\n" + b"x" * 300 + b"\n" + planted)
    found = await _told(stage, b"3:a n 0 0")
    assert len(found) == MOST
    assert (b"a", NEW) in found
    found = await _told(stage, b"3:b u 7 0")
    assert len(found) == MOST
    assert (b"b", USED) in found
    assert (b"a", NEW) not in found


async def test_a_value_that_is_too_long_is_read_in_part(stage: Stage) -> None:
    """And soon, whatever it holds."""
    stage.put(MEMBERS, b"1 " * 500_000)
    assert set(await _told(stage, b"3:a u 5 0")) == {(b"a", USED)}
    stage.put(MEMBERS, b"x" * 5_000_000)
    assert set(await _told(stage, b"3:a u 5 0")) == {(b"a", USED)}
