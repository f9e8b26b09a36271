"""Extension: when, how often, what its three ends do, and what it never does (R8, R9)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioredlock_ng import ExtensionPolicy, Lease, LockLostError, LossReason, QuorumUnavailableError, Vote
from aioredlock_ng.events import Extended, ExtensionsLow, LoopStalled, Lost
from tests.unit.tasks import cancelled, in_task, sim, until, within
from tests.unit.traces import Heard, count, sent
from tests.unit.worlds import PLAIN, ROUND_TRIP, STRANGER, TIMEOUT, TTL, World, deadline, each, world

KEY = b"redlock:a"
DRIFT = 0.01 * TTL + 0.002


@contextlib.asynccontextmanager
async def held(number: int = 3, **options: Any) -> AsyncIterator[tuple[World, Lease, Heard]]:
    """Open a world in which "a" is held; at the end all nodes answer again, and it is released."""
    heard = Heard()
    async with world(number, hooks=[heard], **options) as w:
        lease = await w.manager.lock("a").acquire()
        yield w, lease, heard
        each(w.nodes).thaw()
        await lease.release()


def counts(w: World, kind: str = "extend", name: str | None = None) -> list[int]:
    """Return how many commands of a kind each node has executed."""
    return [count(node, kind, name) for node in w.nodes]


def loss(lease: Lease) -> LockLostError:
    """Return what a lost lease says."""
    with pytest.raises(LockLostError) as caught:
        lease.check()
    return caught.value


async def not_extended(lease: Lease) -> LockLostError:
    """Return what the extension of a lost lease says."""
    with pytest.raises(LockLostError) as caught:
        await lease.extend()
    return caught.value


# -- the watchdog ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "ttl"), [(1 / 3, 10.0), (0.5, 10.0), (0.1, 10.0), (1 / 3, 1.0)])
async def test_a_lease_is_extended_at_its_share_of_the_ttl(every, ttl):
    """Each extension is asked `every` of the ttl after the one before it, and won in a round trip."""
    async with held(ttl=ttl, extension=ExtensionPolicy(every=every, grace=0.01)) as (_, lease, heard):
        asked_at = sim().time() - ROUND_TRIP
        await asyncio.sleep(10 * every * ttl)
        assert lease.extensions in (9, 10)
        times = [asked_at] + [when - ROUND_TRIP for when, event in heard.told if isinstance(event, Extended)]
        steps = [later - before for before, later in itertools.pairwise(times)]
        assert all(every * ttl - 1e-6 <= step <= every * ttl + 0.002 for step in steps), steps
        for number, event in enumerate(heard.of(Extended), start=1):
            assert (event.extensions, event.names) == (number, ("a",))
            assert event.remaining == pytest.approx(ttl - 0.01 * ttl - 0.002 - ROUND_TRIP)


async def test_validity_after_an_extension_counts_from_its_asking():
    """`valid_until` is the asking of the won round plus ttl minus drift, never later; the keys outlive it."""
    async with held(latency=0.02) as (w, lease, _):
        for _ in range(200):
            await asyncio.sleep(0.25)
            ends = sorted(sim().time() + (node.ttl(KEY) or 0.0) for node in w.nodes)
            assert sim().time() + TTL / 2 < lease.valid_until <= ends[1] - DRIFT


@pytest.mark.parametrize("by_hand", [0, 3])
async def test_a_holder_is_warned_before_its_extensions_run_out(by_hand, caplog):
    """At half and at 90 %: one warning and one event each, with the time that is left, which is right."""
    caplog.set_level(logging.WARNING, "aioredlock_ng")
    heard = Heard()
    async with world(hooks=[heard]) as w:
        lease = await w.manager.lock("a", extension=ExtensionPolicy(max_extensions=10), label="x").acquire()
        for _ in range(by_hand):  # these do not count
            await lease.extend()
        await lease.lost.wait()
        for when, event in heard.told:
            if isinstance(event, ExtensionsLow):
                assert when + event.remaining == pytest.approx(sim().time(), abs=0.05)
        with pytest.raises(LockLostError, match=r"after 10 extensions.*ExtensionPolicy\.max_extensions"):
            await lease.extend()
        await lease.release()
    events = heard.of(ExtensionsLow)
    assert [(event.extensions, event.max_extensions) for event in events] == [(5, 10), (9, 10)]
    assert all((event.names, event.label) == (("a",), "x") for event in events)
    warnings = [line for line in caplog.messages if "max_extensions sets" in line]
    for event, warning in zip(events, warnings, strict=True):
        assert f"'a' was extended {event.extensions} of 10 times" in warning
        assert f"lost in {event.remaining:.1f} s" in warning


async def test_extensions_are_bounded():
    """After `max_extensions` the lease runs to its deadline and is lost as `extensions_exhausted`."""
    async with held(extension=ExtensionPolicy(max_extensions=3)) as (w, lease, _):
        began = sim().time()
        ended = await in_task(lambda: asyncio.wait_for(lease.lost.wait(), 1000))
        assert ended.error is None
        assert sim().time() - began == pytest.approx(TTL + TTL - DRIFT - 0.05 * TTL, abs=0.02)
        assert (await not_extended(lease)).reason is LossReason.EXTENSIONS_EXHAUSTED
        assert counts(w) == [3, 3, 3]


# -- the three ends of a round -----------------------------------------------------------------------


async def test_an_unknown_round_is_tried_again_until_the_deadline():
    """Without an answer of a majority the watchdog asks again, with back-off; then the deadline decides."""
    async with held() as (w, lease, _):
        due = deadline(lease)
        each(w.nodes[:2]).freeze()
        await lease.lost.wait()
        assert due <= sim().time() <= due + 0.002
        assert 5 < count(w.nodes[2], "extend") < 60
        error = await not_extended(lease)
        assert error.reason is LossReason.EXPIRED
        assert [vote.vote for vote in error.votes] == [Vote.SILENT, Vote.SILENT, Vote.GRANTED]
        assert "its validity ended before a majority extended it" in str(error)


async def test_a_refusal_by_a_majority_loses_at_once():
    """Q refusals end the lease with their arrival, long before its validity: `refused`, not held."""
    async with held(5) as (w, lease, heard):
        asked_at = sim().time() - ROUND_TRIP
        w.vacate("a", 0, 1)
        w.occupy("a", 100.0, 2)
        async with within(TTL):
            await lease.lost.wait()
        assert sim().time() == pytest.approx(asked_at + TTL / 3 + ROUND_TRIP, abs=0.002)
        assert not lease.held
        assert lease.remaining == 0
        (event,) = heard.of(Lost)
        assert event.reason is LossReason.REFUSED
        assert [vote.vote for vote in event.votes].count(Vote.REFUSED) == 3
        await lease.release()
        assert w.holders("a") == [None, None, STRANGER, None, None]


async def test_a_failed_extension_never_releases():
    """Neither an unknown nor a refused round sends a release: that is the body's exit."""
    async with held() as (w, lease, _):
        w.vacate("a", 0, 1)
        await lease.lost.wait()
        await asyncio.sleep(1)
        assert counts(w, "release") == [0, 0, 0]
        assert w.holders("a")[2] is not None
        other = await w.manager.lock("b").acquire()
        each(w.nodes[:2]).freeze()
        await other.lost.wait()
        await asyncio.sleep(0.2)
        assert count(w.nodes[2], "release") == 0
        each(w.nodes).thaw()
        await other.release()


# -- never back to life ------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [0.0, 1.0, 3.3])
@pytest.mark.parametrize("seconds", [10.5, 30.0])
async def test_a_stall_past_the_deadline_is_never_extended_back_to_life(behind, seconds):
    """A loop that stood still too long has lost the lock by the clock, whatever answers lie waiting."""
    async with held(latency=0.04) as (w, lease, heard):
        await asyncio.sleep(behind)  # 3.3: with the first extension under way
        before = count(w.nodes[0], "extend")
        sim().advance(seconds)
        assert not lease.held
        loss(lease)
        for node in w.nodes:  # as if no client had been able to take the lock meanwhile
            node.set(KEY, sent(node)[0].owner, 100.0)
        await asyncio.sleep(TTL)
        assert not lease.held
        assert lease.lost.is_set()
        assert lease.extensions == 0
        assert [event.reason for event in heard.of(Lost)] == [LossReason.EXPIRED]
        # one was on its way when the loop stopped, if any
        assert [number - before for number in counts(w)] in ([0] * 3, [1] * 3)
        (stall,) = heard.of(LoopStalled)
        assert seconds - 0.26 <= stall.seconds <= seconds
        await not_extended(lease)


async def test_an_answer_that_waited_past_the_deadline_revives_nothing():
    """An extension granted in time, whose answer is read too late, does not bring the lease back."""
    async with held(latency=0.04) as (w, lease, _):
        await until(lease.valid_until - TTL + DRIFT + TTL / 3 + 0.06)
        assert counts(w) == [1] * 3
        assert lease.extensions == 0, "granted, but not heard of"
        sim().advance(TTL)
        await asyncio.sleep(0.1)
        assert not lease.held
        assert lease.extensions == 0
        assert lease.lost.is_set()
        assert "had ended when a majority extended it; these votes came too late" in str(loss(lease))


async def test_a_suspended_machine_loses_by_the_suspend_safe_clock():
    """After a suspend the lease is not held, its body ends within a tick, and nothing is revived."""
    async with held() as (w, lease, heard):
        await asyncio.sleep(1)
        resumed = sim().time()
        sim().suspend(60)
        assert not lease.held
        assert lease.remaining == 0
        await lease.lost.wait()
        assert sim().time() - resumed <= 0.25 + 0.002
        assert counts(w) == [0] * 3
        await asyncio.sleep(TTL / 2)
        assert not lease.held
        (stall,) = heard.of(LoopStalled)
        assert (stall.seconds, stall.suspended) == pytest.approx((60, 60), abs=0.3)
        assert [event.reason for event in heard.of(Lost)] == [LossReason.EXPIRED]


async def test_a_short_suspend_is_survived():
    """The watchdog judges on the clock that goes on during suspend: the next extension is not late."""
    async with held() as (_, lease, _):
        for _ in range(20):
            await asyncio.sleep(1)
            sim().suspend(4)
        assert lease.held


# -- extend() ----------------------------------------------------------------------------------------


async def test_extend_never_shortens():
    """A shorter ttl than what is left changes neither the validity nor any key's expiry; its own renews."""
    async with held(extension=PLAIN) as (w, lease, _):
        before, ends = lease.valid_until, [sim().time() + (node.ttl(KEY) or 0) for node in w.nodes]
        await asyncio.sleep(1)
        await lease.extend(2)
        assert lease.valid_until == before
        now = [sim().time() + (node.ttl(KEY) or 0) for node in w.nodes]
        assert now == pytest.approx(ends, abs=0.002)
        asked_at = sim().time()
        assert await lease.extend() is None
        assert lease.valid_until == pytest.approx(asked_at + TTL - DRIFT)
        assert lease.extensions == 2


async def test_the_watchdog_goes_on_with_the_longest_ttl():
    """After extend(60) it asks for 60 s, at a third of them, whatever is asked by hand."""
    async with held() as (w, lease, _):
        await lease.extend(60)
        assert lease.remaining > 59
        await lease.extend(5)
        await asyncio.sleep(59)
        assert lease.remaining > 39
        asked = [each.words[each.words.index(each.owner) + 1] for each in sent(w.nodes[0])[1:]]
        assert asked == [b"60000", b"5000", b"60000", b"60000"]


async def test_extend_of_a_lost_lease():
    """Refused by a majority is LockLostError, then and ever after; what is lost is not asked for again."""
    async with held() as (w, lease, _):
        w.vacate("a", 0, 1)
        for _ in range(2):
            error = await not_extended(lease)
            assert error.reason is LossReason.REFUSED
            assert [vote.vote for vote in error.votes][:2] == [Vote.REFUSED] * 2
            assert counts(w) == [1] * 3
        assert lease.lost.is_set()
        await lease.release()
        assert w.keys == [()] * 3


async def test_extend_without_a_quorum():
    """Too few answers are QuorumUnavailableError after one node_timeout; the lease is held by the clock."""
    async with held(extension=PLAIN) as (w, lease, _):
        each(w.nodes[1:]).freeze()
        before, began = lease.valid_until, sim().time()
        with pytest.raises(QuorumUnavailableError) as caught:
            await lease.extend()
        assert sim().time() - began == pytest.approx(TIMEOUT)
        assert [vote.vote for vote in caught.value.votes] == [Vote.GRANTED, Vote.SILENT, Vote.SILENT]
        assert caught.value.names == ("a",)
        assert (lease.held, lease.lost.is_set(), lease.extensions) == (True, False, 0)
        assert lease.valid_until == before


async def test_a_cancelled_extend_does_no_harm():
    """A caller that stops waiting leaves the round to its end, and the lease goes on."""
    async with held(latency=0.02) as (_, lease, _):
        task = asyncio.create_task(lease.extend())
        await asyncio.sleep(0.01)
        await cancelled(task)
        assert task.cancelled()
        await asyncio.sleep(0.1)
        assert lease.extensions == 1
        await asyncio.sleep(3 * TTL)
        assert lease.held


async def test_one_extension_round_of_a_lease_is_in_flight():
    """Many callers and the watchdog at once: each node sees one extension at a time, one after the other."""
    async with held(latency=0.02) as (w, lease, _):
        w.nodes[2].latency = 0.3  # answers after the round has ended
        await until(lease.valid_until - TTL + DRIFT + TTL / 3 - 0.001)
        ends = await asyncio.gather(*(in_task(lease.extend) for _ in range(10)))
        assert [end.error for end in ends] == [None] * 10
        assert lease.extensions in (10, 11)
        assert len({round(end.at, 6) for end in ends}) == 10
        await asyncio.sleep(1)


# -- repair ------------------------------------------------------------------------------------------


async def test_a_node_that_lost_the_key_gets_it_back_in_a_won_round():
    """Wiped on a minority, the key is there again after the next extension, with the same owner and ttl."""
    async with held(5) as (w, lease, _):
        owner = w.holders("a")[2]
        w.nodes[0].restart()
        w.vacate("a", 1)
        await asyncio.sleep(TTL / 3 + 0.01)
        assert w.holders("a") == [owner] * 5
        assert w.nodes[0].ttl(KEY) == pytest.approx(TTL, abs=0.1)
        assert lease.extensions == 1
        assert counts(w, "repair") == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("release", [True, False])
async def test_a_missing_key_that_is_heard_of_too_late_is_not_set_again(release):
    """A slow node's "missing" that comes after the release, or after the loss, tops no node up."""
    async with held(extension=PLAIN) as (w, lease, _):
        w.nodes[0].latency = 0.04
        w.vacate("a", 0)
        await until(deadline(lease) - 0.02)
        if release:
            await lease.extend()
            await lease.release()
        else:
            extends = in_task(lease.extend)
            await asyncio.sleep(0.01)
            w.vacate("a", 1, 2)
            await extends
            await not_extended(lease)
        await asyncio.sleep(1)
        assert count(w.nodes[0], "repair") == 0
        assert w.holders("a")[0] is None


@pytest.mark.parametrize("gone", [(0, 1), (0, 1, 2)])
async def test_a_lost_majority_is_never_resurrected(gone):
    """A key that is gone from a majority is not set again anywhere."""
    async with held() as (w, lease, _):
        w.vacate("a", *gone)
        await lease.lost.wait()
        await asyncio.sleep(TTL)
        assert counts(w, "repair") == [0] * 3
        assert w.keys == [()] * 3


async def test_a_topped_up_node_is_released_too():
    """A node that was down at the acquire and was topped up later keeps no key after the release."""
    async with world() as w:
        w.nodes[0].crash()
        await asyncio.sleep(1)
        async with w.manager.lock("a"):
            w.nodes[0].restart()
            await asyncio.sleep(TTL / 2)
            assert None not in w.holders("a")
        assert w.keys == [()] * 3


# -- after the release -------------------------------------------------------------------------------


@pytest.mark.heavy
async def test_nothing_is_sent_with_the_owner_after_its_release():
    """In a thousand races of release, extensions and lost scripts nothing but releases follows a release."""
    dice = random.Random(5)
    async with world(latency=lambda: dice.choice((0.0, 0.001, 0.02, 0.09)), node_timeout=0.5) as w:
        extending = 0
        for number in range(1000):
            lease = await w.manager.lock(f"race-{number}", ttl=1.2).acquire()
            tasks = [in_task(lease.extend) for _ in range(dice.randrange(3))]
            if dice.random() < 0.3:
                w.nodes[dice.randrange(3)].flush_scripts()
            if dice.random() < 0.3:
                w.vacate(f"race-{number}", dice.randrange(3))
            await asyncio.sleep(dice.choice((0, 0, 0.001, 0.01, 0.05, 0.4, 0.401, 0.41, 0.45)))
            extending += any(not task.done() for task in tasks)
            await lease.release()
            for task in tasks:
                end = await task
                assert end.error is None or isinstance(end.error, LockLostError)
        await asyncio.sleep(2)
        assert extending > 100
        for node in w.nodes:
            released: set[bytes] = set()
            for one in sent(node):
                assert one.kind == "release" or one.owner not in released
                if one.kind == "release":
                    released.add(one.owner)
        assert w.keys == [()] * 3


# -- dropped leases ---------------------------------------------------------------------


async def test_a_dropped_lease_warns_and_is_released():
    """It is no longer extended, its keys go, and it warns; one that was released goes in silence."""
    async with world() as w:
        lease: Lease | None = await w.manager.lock("a").acquire()
        with pytest.warns(ResourceWarning, match="'a'"):
            lease = None
        await asyncio.sleep(0.01)
        assert w.keys == [()] * 3
        assert w.manager.statistics().held == 0
        await asyncio.sleep(TTL)
        assert counts(w) == [0] * 3
        lease = await w.manager.lock("a").acquire()
        await lease.release()
        async with w.manager.lock("b") as other:
            pass
        del lease, other
        gc.collect()
