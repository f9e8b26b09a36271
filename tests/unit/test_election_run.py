"""Elections at their edges: waits that end, blocks entered later, the end of `run`, pauses, labels (R31)."""

# ruff: noqa: PT012 (a block is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise

import pytest

from aioredlock_ng import (
    Election,
    Leadership,
    LockLostError,
    LockTakenError,
    QuorumUnavailableError,
    WouldDeadlockError,
)
from aioredlock_ng.events import Acquired, Hooks
from aioredlock_ng.testing import lose
from tests.unit.test_election import NAME, following
from tests.unit.worlds import virtual, world


@virtual
async def test_a_campaign_may_have_an_end() -> None:
    """The time limits are those of locks; a single try returns None while another candidate leads."""
    async with world() as w:
        async with w.manager.election(NAME).campaign():
            for options in ({"blocking": False}, {"blocking_timeout": 0.2}):
                with pytest.raises(LockTakenError):
                    await asyncio.create_task(_win(w.manager.election(NAME, **options)))
            assert await asyncio.create_task(w.manager.election(NAME).try_campaign()) is None
        for node in w.nodes:
            node.crash()
        election = w.manager.election(NAME, quorum_timeout=0.5)
        with pytest.raises(QuorumUnavailableError):
            await election.campaign()
        with pytest.raises(QuorumUnavailableError):
            await election.run(_fail)


async def _win(election: Election) -> Leadership:
    return await election.campaign()


async def _fail(_: Leadership) -> None:
    raise AssertionError("led")


@virtual
async def test_a_leadership_without_a_block_can_be_entered() -> None:
    """Then its loss cancels the block, and leaving it resigns, with a word to observers."""
    async with world() as w, following(w.manager) as follower:
        leadership = await w.manager.election(NAME).try_campaign()
        assert leadership is not None
        async with leadership as entered:
            assert entered is leadership
            await asyncio.sleep(1)
            assert follower.terms == [leadership.term]
            with pytest.raises(RuntimeError, match="one body"):
                await leadership.__aenter__()
        assert not leadership.held
        await asyncio.sleep(1)
        assert follower.told[-1] is None

        leadership = await w.manager.election(NAME).campaign()
        with pytest.raises(LockLostError):
            async with leadership:
                lose(w.manager, NAME)
                await asyncio.sleep(60)
        with pytest.raises(LockLostError):
            await leadership.__aenter__()


@virtual
async def test_run_ends_when_it_is_cancelled_whatever_lead_makes_of_it() -> None:
    """A timeout around it, a task group, a server's stop: none of them may wait for ever."""

    async def returns(_: Leadership) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    async def loses(leadership: Leadership) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            lose(w.manager, NAME)
            leadership.check()

    async def groups(_: Leadership) -> None:
        with suppress(ExceptionGroup, asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(60))

    async def gives_up(_: Leadership) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("interrupted") from None

    async with world() as w:
        for lead in (returns, loses, groups):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await w.manager.election(NAME).run(lead)
            assert await w.manager.election(NAME).leader() is None
        with pytest.raises(ValueError, match="interrupted"):
            await asyncio.wait_for(w.manager.election(NAME).run(gives_up), 1)


@virtual
async def test_run_goes_on_after_a_loss_that_lead_did_not_let_pass() -> None:
    """The library's own cancellation ends the term, and no more than that."""
    terms: list[int] = []

    async def lead(leadership: Leadership) -> None:
        terms.append(leadership.term)
        if len(terms) == 3:
            raise ZeroDivisionError
        lose(w.manager, NAME)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    async with world() as w:
        with pytest.raises(ZeroDivisionError):
            await w.manager.election(NAME).run(lead)
    assert terms == sorted(set(terms))


@virtual
async def test_run_goes_on_after_a_group_of_tasks_that_has_failed() -> None:
    """Before Python 3.13 that leaves its own cancellation in the count of the task."""
    terms = 0

    async def fail() -> None:
        raise ValueError

    async def lead(_: Leadership) -> None:
        nonlocal terms
        if (terms := terms + 1) == 3:
            raise ZeroDivisionError
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())

    async with world() as w:
        with pytest.raises(ZeroDivisionError):
            await w.manager.election(NAME).run(lead)


@virtual
async def test_lead_is_inside_of_its_own_election() -> None:
    """A lock of that name would wait for itself; and a task that is thrown away takes `lead` along."""
    inside = asyncio.Event()

    async def lead(_: Leadership) -> None:
        with pytest.raises(WouldDeadlockError):
            await w.manager.lock(NAME).acquire()
        inside.set()
        await asyncio.sleep(60)

    async with world() as w:
        running = asyncio.create_task(w.manager.election(NAME).run(lead))
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@virtual
async def test_run_raises_a_group_that_has_more_than_the_loss() -> None:
    """An error of the user's own is not swallowed because the loss came with it."""

    async def lead(leadership: Leadership) -> None:
        lose(w.manager, NAME)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        with pytest.raises(LockLostError) as lost:
            leadership.check()
        raise ExceptionGroup("both", [lost.value, ValueError("mine")])

    async with world() as w:
        with pytest.raises(ExceptionGroup) as raised:
            await w.manager.election(NAME).run(lead)
    assert raised.group_contains(ValueError, match="mine")


@virtual
async def test_run_pauses_while_terms_end_at_once() -> None:
    """A lead with nothing to do keeps no node busy: the pause grows, and there is none after a long term."""
    began: list[float] = []
    loop = asyncio.get_running_loop()

    async def lead(_: Leadership) -> None:
        began.append(loop.time())
        if len(began) == 15:
            await asyncio.sleep(2)

    async with world() as w:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await w.manager.election(NAME).run(lead)
    between = [after - before for before, after in pairwise(began)]
    assert 0.05 <= between[0] <= 0.2
    assert all(2.5 <= pause <= 5.1 for pause in between[7:14])
    assert between[14] < 2.2, "no pause after a long term"
    assert between[15] <= 0.2


@virtual
async def test_kinds_of_which_there_are_few_are_labelled_by_their_name() -> None:
    """Elections, semaphores and fair locks; a label that is given wins, and the holder is another matter."""
    seen: list[tuple[str, ...]] = []

    class Watch(Hooks):
        def on_acquired(self, event: Acquired) -> None:
            seen.append((*event.names, event.label))

    async with world(hooks=[Watch()]) as w:
        m = w.manager
        async with (
            m.election("e").campaign(),
            m.semaphore("s", permits=2),
            m.lock("f", fair=True),
            m.lock("m"),
        ):
            pass
        async with m.rwlock("r").read(), m.election("e", label="x", holder="me").campaign() as leadership:
            assert leadership.holder == "me"
        async with m.semaphore("s", permits=2, label="y"), m.lock("f", fair=True, label=""):
            pass
    assert seen == [
        ("e", "e"),
        ("s", "s"),
        ("f", "f"),
        ("m", ""),
        ("r", ""),
        ("e", "x"),
        ("s", "y"),
        ("f", ""),
    ]
