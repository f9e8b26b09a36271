"""The scenario of Redlock's critiques: a holder is frozen past its validity, overtaken, wakes up and writes.

Processes, signals, locks and resources are real, and the guards are those that the examples show.  Without a
guard the same story ends in a lost write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _frozen_holder import two_deposits

from aioredlock_ng.testing import LocalNodes
from tests.faults.accounts import GUARDED, PlainSqlite, filled


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def resource(request: pytest.FixtureRequest) -> str:
    """Give each kind of account in turn."""
    return request.param


@pytest.fixture
def place(
    resource: str, tmp_path: Path, make_nodes: Callable[[int], LocalNodes], request: pytest.FixtureRequest
) -> Iterator[str]:
    """Give the place of an account with a balance of 100."""
    if resource == "sqlite":
        place = str(tmp_path / "bank.sqlite")
    elif resource == "postgres":
        place = request.getfixturevalue("postgres_dsn")
    else:
        place = make_nodes(1).urls[0]
    with filled(resource, place):
        yield place


@pytest.fixture
def account(resource: str, place: str) -> Any:
    """Give an account that checks fences."""
    return GUARDED[resource](place)


async def test_a_stale_write_is_refused(account: Any, nodes3: LocalNodes) -> None:
    """B's write stands, A's is refused, and A learns that it has lost the lock."""
    by_a, by_b = await two_deposits(nodes3.urls, account)

    assert by_a.fence < by_b.fence
    assert (by_a.accepted, by_a.lost) == (False, True)
    assert (by_b.accepted, by_b.lost) == (True, False)
    assert await account.read(by_b.fence) == 110


@pytest.mark.parametrize("resource", ["sqlite"], indirect=True)
@pytest.mark.parametrize("on_lost", ["raise", "cancel"])
@pytest.mark.parametrize("guarded", [True, False])
async def test_only_the_guard_stops_it(on_lost: str, guarded: bool, place: str, nodes3: LocalNodes) -> None:
    """The lock tells A that it was lost, but too late: without a guard B's deposit is gone.

    A write without an `await` runs before the loop can cancel anything.
    """
    account = GUARDED["sqlite"](place) if guarded else PlainSqlite(place)

    by_a, by_b = await two_deposits(nodes3.urls, account, on_lost=on_lost)

    assert (by_a.accepted, by_a.lost) == (not guarded, True)
    assert (by_b.accepted, by_b.lost) == (True, False)
    assert await account.read(by_b.fence) == (110 if guarded else 130)


@pytest.mark.full
async def test_a_guard_compares(account: Any) -> None:
    """The same fence may write again, a greater one takes over, a smaller one neither writes nor reads.

    Reading claims; neighbours of the size that fences have are kept apart, by Lua's numbers as well.
    """
    assert await account.write(1, 50)
    assert await account.write(2, 50)
    assert not await account.write(3, 49)
    assert await account.read(49) is None
    assert await account.read(50) == await account.read(51) == 2
    assert not await account.write(4, 50), "or it would overwrite what it has not seen"
    fence = (4_102_444_800_000 << 10) + 1  # in the year 2100
    assert await account.write(5, fence)
    assert not await account.write(6, fence - 1)
    assert await account.write(7, fence + 1)
    assert await account.read(fence + 1) == 7
