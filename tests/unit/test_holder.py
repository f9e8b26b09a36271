"""`LockTakenError.holder`: what the holder of a taken lock calls itself."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng import LockTakenError
from tests.unit.worlds import LATENCY, in_task, opened, virtual, world

OTHERS = b"0123456789" * 4 + b":1700000000000:"
"""What an owner value of this package begins with: all but the label."""


@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("options", [{}, {"fencing": False}], ids=["fenced", "plain"])
@virtual
async def test_an_error_names_the_holder(options, names):
    """The label of the manager that holds the lock, in the error and its message; never its owner value."""
    async with world(holder="billing-7", **options) as w, opened(w.nodes, seed=2, **options) as other:
        lease = await w.manager.lock(*names).acquire()
        for blocking_timeout in (0, 1):
            with pytest.raises(LockTakenError, match="is held by billing-7") as caught:
                await other.lock("a", blocking_timeout=blocking_timeout).acquire()
            assert caught.value.holder == "billing-7"
            owner = lease._holding.owner.decode()
            assert owner.partition(":")[0] not in f"{caught.value!r}{caught.value.__dict__}"
        await lease.release()


@virtual
async def test_the_holder_in_this_process_is_named():
    """A task that is kept out by another one of its process is told the label that both have."""
    async with world(holder="here") as w, w.manager.lock("a"):
        for blocking_timeout in (0, 1):
            end = await in_task(w.manager.lock("a", blocking_timeout=blocking_timeout).acquire)
            assert isinstance(end.error, LockTakenError)
            assert end.error.holder == "here"


@virtual
async def test_a_task_that_waits_behind_another_is_told_what_that_one_was_told():
    """The holder's label travels with the verdict."""
    async with world(holder="there") as w, opened(w.nodes, seed=2) as other, w.manager.lock("a"):
        first = in_task(other.lock("a", blocking_timeout=3).acquire)
        await asyncio.sleep(10 * LATENCY)
        with pytest.raises(LockTakenError) as caught:
            await other.lock("a", blocking_timeout=1).acquire()
        assert caught.value.holder == "there"
        await first


@pytest.mark.parametrize("nodes", [(0,), (0, 1)], ids=len)
@virtual
async def test_what_a_minority_says_is_no_holder(nodes):
    """Without a majority that names the same one it is unknown: such keys may be a try under way."""
    async with world(5) as w:
        for number in range(3):
            label = b"one" if number in nodes else b"other-%d" % number
            w.nodes[number].set(b"redlock:a", OTHERS + label, 30.0)
        with pytest.raises(LockTakenError, match="is held by another client") as caught:
            await w.manager.lock("a", blocking=False).acquire()
        assert caught.value.holder is None


@virtual
async def test_another_programs_key_has_no_holder():
    """It is taken; the holder is not known."""
    async with world() as w:
        w.occupy("a", 30.0)
        with pytest.raises(LockTakenError) as caught:
            await w.manager.lock("a", blocking=False).acquire()
        assert caught.value.holder is None


@virtual
async def test_a_forged_label_cannot_forge_a_line():
    """A label that no manager could have is shown escaped."""
    async with world() as w:
        for node in w.nodes:
            node.set(b"redlock:a", OTHERS + b"x\nroot: fine \xff", 30.0)
        with pytest.raises(LockTakenError) as caught:
            await w.manager.lock("a", blocking=False).acquire()
        assert caught.value.holder == "x\\nroot: fine \\ufffd"
        assert "\n" not in str(caught.value)
