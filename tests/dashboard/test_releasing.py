"""A lock that is released from the page: what can come between."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import LockManager
from aioredlock_ng._dashboard.releasing import asked, release
from aioredlock_ng._dashboard.site import Request
from tests.unit.tasks import virtual
from tests.unit.worlds import LATENCY, world

SHOWN = {"name": "a", "state": "held", "holder": None, "since": None, "readers": [], "permits": []}


async def ask(manager: LockManager) -> tuple[int, dict[str, object]]:
    """Release a lock as it was shown, another program's."""
    wanted = asked(SHOWN)
    assert wanted is not None
    return await release(manager, *wanted, address="1.2.3.4")


@virtual
async def test_what_too_few_nodes_tell_of_is_left_alone():
    """Also when that is what was shown: it cannot be seen whose it is."""
    async with world() as w:
        w.occupy("a", None)
        for node in w.nodes[:2]:
            node.freeze()
        wanted = asked({**SHOWN, "state": "unknown"})
        assert wanted is not None
        status, said = await release(w.manager, *wanted, address="1.2.3.4")
        assert (status, said) == (503, {"detail": "1 of 3 nodes answered, 2 are needed: nothing was changed"})
        assert all(w.holders("a"))
        for node in w.nodes:
            node.thaw()


@virtual
async def test_a_server_that_stops_meanwhile_tells_the_log(caplog):
    """The nodes may have done it already: a release that nothing tells of would be a riddle."""
    async with world() as w:
        w.occupy("a", None)
        task = asyncio.create_task(ask(w.manager))
        await asyncio.sleep(5 * LATENCY)  # it has looked, as `force_release` has, and deletes
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (record,) = caplog.records
        assert record.getMessage() == (
            "lock 'a' may have been released from the dashboard by 1.2.3.4: "
            "the server stopped before the nodes answered"
        )
        assert not any(w.holders("a"))


@virtual
async def test_a_manager_that_is_closed_is_told():
    """As what it is, and not as an error of the server."""
    async with world() as w:
        await w.manager.aclose()
        status, said = await ask(w.manager)
        assert status == 503
        assert "closed" in str(said["detail"])


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("::1", "::1"),
        ("x\x1b[31m\nERROR", r"'x\x1b[31m\nERROR'"),
        ("\u202ex", r"'\u202ex'"),
    ],
)
def test_an_address_is_one_line_of_the_log(address, shown):
    """Behind a proxy it is what a header says."""

    async def body():
        return b""

    request = Request(method="GET", path="", headers={}, query={}, address=address, body=body, https=False)
    assert request.client_address == shown
