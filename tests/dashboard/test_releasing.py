"""A lock that is released from the page: the conditions that can change in between."""

from __future__ import annotations

import asyncio
import json

import pytest

from aioredlock_ng._dashboard.site import PageRequest, site_maker
from tests.dashboard.serving import TOKEN
from tests.unit.tasks import virtual
from tests.unit.worlds import LATENCY, world

SHOWN = {"name": "a", "state": "held", "holder": None, "since": None, "readers": [], "permits": []}


async def ask(manager, address="1.2.3.4", **shown):
    """Release a lock as it was shown, another program's: the status, and the answer."""
    make = site_maker(token=TOKEN, allow_release=True, hosts=None, interval=2.0, trust_proxy=False)
    site, text = make(manager), b""

    async def send(path, body, **headers):
        nonlocal text
        text = json.dumps(body).encode()
        headers |= {"content-type": "application/json", "content-length": str(len(text))}
        return await site.answer(
            PageRequest(
                method="POST", path=path, headers=headers, query={}, address=address, body=read, https=False
            )
        )

    async def read():
        return text

    signed_in = await send("sign-in", {"token": TOKEN})
    cookie = signed_in.headers["Set-Cookie"].partition(";")[0]
    answer = await send("release", {**SHOWN, **shown}, cookie=cookie)
    return answer.status, json.loads(answer.body)


@virtual
async def test_a_lock_that_too_few_nodes_show_is_left_alone():
    """Also when that is what was shown: it cannot be seen whose it is."""
    async with world() as w:
        w.occupy("a", None)
        for node in w.nodes[:2]:
            node.freeze()
        status, said = await ask(w.manager, state="unknown")
        assert (status, said) == (503, {"detail": "1 of 3 nodes answered, 2 are needed: nothing was changed"})
        assert all(w.holders("a"))
        for node in w.nodes:
            node.thaw()


@pytest.mark.parametrize(
    ("address", "shown"), [("1.2.3.4", "1.2.3.4"), ("x\x1b[31m\nERROR\u202e", r"'x\x1b[31m\nERROR\u202e'")]
)
@virtual
async def test_a_server_that_stops_meanwhile_logs_it(caplog, address, shown):
    """The nodes may have done it already.  Behind a proxy the address is what a header says: one line."""
    async with world() as w:
        w.occupy("a", None)
        task = asyncio.create_task(ask(w.manager, address))
        await asyncio.sleep(5 * LATENCY)  # it has looked, as `force_release` has, and deletes
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (record,) = caplog.records
        assert record.getMessage() == (
            f"lock 'a' may have been released from the dashboard by {shown}: the server stopped meanwhile"
        )
        assert not any(w.holders("a"))


@virtual
async def test_a_manager_that_is_closed_is_unavailable():
    """Which is no error of the server."""
    async with world() as w:
        await w.manager.aclose()
        status, said = await ask(w.manager)
        assert status == 503
        assert "closed" in str(said["detail"])
