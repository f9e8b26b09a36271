"""What a node keeps of the servers that clients use, on every kind of master (R12c)."""

from __future__ import annotations

from typing import Final

import pytest

from aioredlock_ng._core.members import NOT_USED, Member, read_members
from aioredlock_ng._core.quarantine import wait_ms
from tests.conformance.stage import MEMBERS, Stage

TOLERANCE_MS: Final = 500

MOST: Final = 32
"""Servers that a node keeps."""


@pytest.fixture(autouse=True)
def no_members(stage: Stage) -> None:
    """Begin without any."""
    stage.put(MEMBERS, None)


async def _told(stage: Stage, told: bytes, at: int = 0) -> dict[tuple[bytes, bool], Member]:
    members = read_members(await stage.tell(told, at), await stage.now_ms(), size=3)
    found = {(member.identity, member.used): member for member in members}
    assert len(found) == len(members)
    return found


async def test_a_node_keeps_the_least_since_and_the_last_use(stage: Stage) -> None:
    """Whatever the order in which clients tell."""
    for told in (b"3:a 7 3000", b"3:a 5 9000", b"3:a 9 20000"):
        a = (await _told(stage, told))[b"a", True]
    assert a.since_ms == 5
    assert a.age_ms == pytest.approx(3000, abs=TOLERANCE_MS)


async def test_a_server_that_is_not_used_any_more_has_a_line_of_its_own(stage: Stage) -> None:
    """Telling of it as not used does not prolong what is known of its use."""
    await _told(stage, b"3:a 5 3000")
    found = await _told(stage, b"3:a %d 0" % NOT_USED)
    assert found[b"a", True].age_ms == pytest.approx(3000, abs=TOLERANCE_MS)
    assert found[b"a", False].age_ms == pytest.approx(0, abs=TOLERANCE_MS)


async def test_what_a_node_hears_late_is_as_old_as_it_was(stage: Stage) -> None:
    """It stood still: the client said so 10 s ago; or the client thinks that the node's clock is ahead."""
    now_ms = await stage.now_ms()
    late = await _told(stage, b"3:a 5 1000", now_ms - 10_000)
    assert late[b"a", True].age_ms == pytest.approx(11_000, abs=TOLERANCE_MS)
    ahead = await _told(stage, b"3:a 5 1000", now_ms + 10_000)
    assert ahead[b"a", True].age_ms == pytest.approx(1000, abs=TOLERANCE_MS)


async def test_an_init_forgets_since_when_servers_have_been_used(stage: Stage) -> None:
    """An operator may have changed the list: clients with the former one do not come first again."""
    await _told(stage, b"3:a 5 0")
    await stage.init(3, 60_000)
    assert await _told(stage, b"3:b 7 0") == {(b"b", True): Member(b"b", 7, pytest.approx(0, abs=500), b"us")}


async def test_a_node_keeps_so_many_servers_and_those_in_use_first(stage: Stage) -> None:
    """Restarts make new ones, and whoever may write to the key can write anything there."""
    now_ms = await stage.now_ms()
    planted = b"".join(b"3:used%d 5 %d them\n" % (number, now_ms - 1000) for number in range(100))
    stage.put(MEMBERS, b"no line\n" + b"x" * 300 + b"\n" + planted)
    found = await _told(stage, b"3:a %d 0" % NOT_USED)
    assert len(found) == MOST
    assert (b"a", False) in found
    found = await _told(stage, b"3:b 7 0")
    assert len(found) == MOST
    assert (b"b", True) in found
    assert (b"a", False) not in found


async def test_a_server_is_kept_for_longer_where_a_client_tells_seldom(stage: Stage) -> None:
    """A client may have used it for two of its heartbeats since it told so; that one is kept in any case."""
    life_ms = wait_ms(60_000) + 5000
    await _told(stage, b"3:a 5 %d" % (life_ms + 7000))
    assert await _told(stage, b"") == {}
    await _told(stage, b"3:a 5 %d 3:~4000 %d 0" % (life_ms + 7000, NOT_USED))
    assert (b"a", True) in await _told(stage, b"")
    for number in range(MOST + 5):
        found = await _told(stage, b"3:b%d %d 0" % (number, NOT_USED))
    assert {(b"a", True), (b"~4000", False)} <= found.keys()


async def test_a_value_that_is_too_long_is_read_in_part(stage: Stage) -> None:
    """And soon, whatever it holds."""
    stage.put(MEMBERS, b"1 " * 500_000)
    assert set(await _told(stage, b"3:a 5 0")) == {(b"a", True)}
    stage.put(MEMBERS, b"x" * 5_000_000)
    assert set(await _told(stage, b"3:a 5 0")) == {(b"a", True)}
