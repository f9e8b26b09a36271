"""Elections at their edges: waits that end, blocks entered later, the end of `run`, pauses, labels (R31)."""

# ruff: noqa: PT012 (a block is what has to raise, and a block holds statements)

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise

import pytest

from aioredlock_ng import LockLostError, LockTakenError, LossReason
from aioredlock_ng.errors import QuorumUnavailableError
from aioredlock_ng.testing import lose
from tests.unit.tasks import in_task, sim
from tests.unit.test_election import NAME, following
from tests.unit.worlds import TTL, world


async def test_a_campaign_may_have_an_end():
    """The time limits are those of locks; a single try returns None while another candidate leads."""
    async with world() as w:
        async with w.manager.election(NAME).campaign():
            for options in ({"blocking": False}, {"blocking_timeout": 0.2}):
                end = await in_task(w.manager.election(NAME, **options).campaign().__aenter__)
                assert isinstance(end.error, LockTakenError)
            assert await asyncio.create_task(w.manager.election(NAME).try_campaign()) is None
        for node in w.nodes:
            node.crash()
        election = w.manager.election(NAME, quorum_timeout=0.5)
        with pytest.raises(QuorumUnavailableError):
            await election.campaign()
        with pytest.raises(QuorumUnavailableError):
            await election.run(None)


async def test_a_leadership_without_a_block_can_be_entered():
    """Then its loss cancels the block, and leaving it resigns, with a word to observers."""
    async with world() as w, following(w.manager) as follower:
        leadership = await w.manager.election(NAME).try_campaign()
        await asyncio.sleep(3 * TTL)
        async with leadership as entered:
            assert entered is leadership
            assert follower.terms == [leadership.term]
            with pytest.raises(RuntimeError, match="one block only"):
                await leadership.__aenter__()
        assert not leadership.held
        await asyncio.sleep(1)
        assert follower.told[-1] is None

        leadership = await w.manager.election(NAME).campaign()
        with pytest.raises(LockLostError):
            async with leadership:
                lose(w.manager, NAME)
                await asyncio.sleep(60)

        leadership = await w.manager.election(NAME).campaign()
        lose(w.manager, NAME)
        assert leadership.lost.is_set()
        await asyncio.sleep(1)  # there is no block to be cancelled
        with pytest.raises(LockLostError):
            leadership.check()
        with pytest.raises(LockLostError):
            await leadership.__aenter__()
        await leadership.resign()
        assert w.keys == [()] * 3


# -- run -----------------------------------------------------------------------------------------------


async def test_run_leads_once_per_term():
    """A lost leadership leads to the next campaign, and so does one that has ended; until it is cancelled."""
    async with world() as w:
        led = []

        async def lead(leadership):
            led.append((leadership.term, "begins"))
            try:
                if len(led) == 1:
                    lose(w.manager, NAME)
                await asyncio.sleep(1 if len(led) < 4 else 3600)
                led.append((leadership.term, "returns"))
            except asyncio.CancelledError:
                led.append((leadership.term, "is cancelled"))
                raise

        task = asyncio.create_task(w.manager.election(NAME).run(lead))
        await asyncio.sleep(60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ends = [end for _, end in led]
        assert ends == ["begins", "is cancelled", "begins", "returns", "begins", "is cancelled"]
        terms = [term for term, _ in led]
        assert terms == sorted(terms)
        assert len(set(terms)) == 3
        assert w.keys == [()] * 3


async def test_what_lead_raises_leaves_run():
    """Also a lost lock that is another one's, or a leadership's that was not lost."""
    async with world() as w:
        calls = []

        async def lose_another(leadership):
            calls.append(leadership)
            assert len(calls) <= 2, "once by each"
            async with w.manager.lock("another"):
                lose(w.manager, "another")
                await asyncio.sleep(1)

        async def lose_both(leadership):
            try:
                await lose_another(leadership)
            finally:
                lose(w.manager, NAME)

        async def accuse(_):
            raise LockLostError("not true", reason=LossReason.EXPIRED, names=(NAME,), votes=())

        for lead in (lose_another, lose_both):
            with pytest.raises(LockLostError) as caught:
                await w.manager.election(NAME).run(lead)
            assert caught.value.names == ("another",)
        with pytest.raises(LockLostError, match="not true"):
            await w.manager.election(NAME).run(accuse)
        assert w.keys == [()] * 3


async def _is_cancelled(w, leadership):
    lose(w.manager, NAME)
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(60)


async def _checks(w, leadership):
    lose(w.manager, NAME)
    leadership.check()


async def _checks_in_a_group(w, leadership):
    async def check():
        await asyncio.sleep(0)
        leadership.check()

    lose(w.manager, NAME)
    async with asyncio.TaskGroup() as group:
        group.create_task(check())
        group.create_task(check())


async def _resigns(w, leadership):
    await leadership.resign()
    leadership.check()


async def _has_a_group_that_fails(w, leadership):
    """Before Python 3.13 that leaves its own cancellation in the count of the task."""
    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.wait_for(asyncio.sleep(1), 0))


@pytest.mark.parametrize(
    "ends", [_is_cancelled, _checks, _checks_in_a_group, _resigns, _has_a_group_that_fails]
)
async def test_run_goes_on_after_the_end_of_a_term(ends):
    """However `lead` finds out, and whatever it makes of the cancellation: that is the library's own."""
    terms = []

    async def lead(leadership):
        terms.append(leadership.term)
        if len(terms) == 3:
            raise ZeroDivisionError
        await ends(w, leadership)

    async with world() as w:
        with pytest.raises(ZeroDivisionError):
            await w.manager.election(NAME).run(lead)
    assert terms == sorted(set(terms))


async def test_run_ends_when_it_is_cancelled_whatever_lead_makes_of_it():
    """A timeout around it, a task group, a server's stop: none of them may wait for ever."""

    async def returns(_):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    async def loses(leadership):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            lose(w.manager, NAME)
            leadership.check()

    async def groups(_):
        with suppress(ExceptionGroup, asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(60))

    async def gives_up(_):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        raise ValueError("interrupted")

    async with world() as w:
        for lead in (returns, loses, groups):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(w.manager.election(NAME).run(lead), 1)
            assert await w.manager.election(NAME).leader() is None
        with pytest.raises(ValueError, match="interrupted"):
            await asyncio.wait_for(w.manager.election(NAME).run(gives_up), 1)


async def test_run_raises_a_group_that_has_more_than_the_loss():
    """An error of the user's own is not swallowed because the loss came with it."""

    async def lead(leadership):
        await _is_cancelled(w, leadership)
        with pytest.raises(LockLostError) as lost:
            leadership.check()
        raise ExceptionGroup("both", [lost.value, ValueError("mine")])

    async with world() as w:
        with pytest.raises(ExceptionGroup) as raised:
            await w.manager.election(NAME).run(lead)
    assert raised.group_contains(ValueError, match="mine")


async def test_run_pauses_while_terms_end_at_once():
    """A lead with nothing to do keeps no node busy: the pause grows, and there is none after a long term."""
    began = []

    async def lead(_):
        began.append(sim().time())
        if len(began) == 15:
            await asyncio.sleep(2)

    async with world() as w:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(w.manager.election(NAME).run(lead), 60)
    between = [after - before for before, after in pairwise(began)]
    assert 0.05 <= between[0] <= 0.2
    assert all(2.5 <= pause <= 5.1 for pause in between[7:14])
    assert between[14] < 2.2, "no pause after a long term"
    assert between[15] <= 0.2
