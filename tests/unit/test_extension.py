"""Extension: when, how often, what its three ends do, and what it never does (R8, R9)."""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import logging
import random

import pytest

from aioredlock_ng import (
    ExtensionPolicy,
    Lease,
    LockLostError,
    LossReason,
    QuorumUnavailableError,
    Vote,
)
from aioredlock_ng._clock import SystemClock
from aioredlock_ng._hold.watchdog import Watchdog
from aioredlock_ng.events import Extended, ExtensionsLow, LoopStalled, Lost
from tests.unit.worlds import (
    LATENCY,
    PLAIN,
    TIMEOUT,
    TTL,
    World,
    count,
    deadline,
    in_task,
    sent,
    sim,
    until,
    virtual,
    within,
    world,
)

KEY = b"redlock:a"
ROUND_TRIP = 2 * LATENCY
SHORT = 0.5
"""Seconds: a ttl for what takes many extensions."""
DRIFT = 0.01 * TTL + 0.002


class Diary:
    """A hook that writes down what it hears."""

    def __init__(self) -> None:
        self.extended: list[tuple[float, Extended]] = []
        self.lost: list[tuple[float, Lost]] = []
        self.low: list[tuple[float, ExtensionsLow]] = []
        self.stalled: list[LoopStalled] = []

    def on_extended(self, event: Extended) -> None:
        """Write it down with the time."""
        self.extended.append((sim().time(), event))

    def on_extensions_low(self, event: ExtensionsLow) -> None:
        """Write it down with the time."""
        self.low.append((sim().time(), event))

    def on_lost(self, event: Lost) -> None:
        """Write it down with the time."""
        self.lost.append((sim().time(), event))

    def on_loop_stalled(self, event: LoopStalled) -> None:
        """Write it down."""
        self.stalled.append(event)


# -- the watchdog ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "ttl"),
    [
        (1 / 3, 10.0),
        (0.5, 10.0),
        (0.1, 10.0),
        (1 / 3, 1.0),
        pytest.param(0.5, 600.0, marks=pytest.mark.heavy),
    ],
)
@virtual
async def test_a_lease_is_extended_at_its_share_of_the_ttl(every, ttl):
    """Each extension is asked `every` of the ttl after the one before it, and won in a round trip."""
    diary = Diary()
    async with world(hooks=[diary]) as w:
        asked_at = sim().time()
        lock = w.manager.lock("a", ttl=ttl, extension=ExtensionPolicy(every=every, grace=0.01))
        async with lock as lease:
            await asyncio.sleep(10 * every * ttl)
            assert lease.extensions in (9, 10)
    times = [asked_at] + [when - ROUND_TRIP for when, _ in diary.extended]
    steps = [later - before for before, later in itertools.pairwise(times)]
    assert all(every * ttl - 1e-6 <= step <= every * ttl + 0.002 for step in steps), steps
    for number, (when, event) in enumerate(diary.extended, start=1):
        assert event.extensions == number
        assert event.names == ("a",)
        assert event.remaining == pytest.approx(ttl - 0.01 * ttl - 0.002 - ROUND_TRIP), when


@virtual
async def test_validity_after_an_extension_counts_from_its_asking():
    """`valid_until` is the asking of the won round plus ttl minus drift, never later; the keys outlive it."""
    async with world(latency=0.02) as w, w.manager.lock("a") as lease:
        for _ in range(200):
            await asyncio.sleep(0.25)
            ends = sorted(sim().time() + (node.ttl(KEY) or 0.0) for node in w.nodes)
            assert lease.valid_until <= ends[1] - DRIFT
            assert lease.valid_until > sim().time() + TTL / 2


@pytest.mark.parametrize("by_hand", [0, 3])
def test_a_holder_is_warned_before_its_extensions_run_out(by_hand, caplog):
    """At half and at 90 %: one warning and one event each, with the time that is left, which is right."""
    diary = Diary()
    policy = ExtensionPolicy(max_extensions=10)
    left: list[tuple[float, float]] = []

    async def main() -> None:
        async with world(hooks=[diary]) as w:
            lease = await w.manager.lock("a", extension=policy, label="x").acquire()
            for _ in range(by_hand):  # these do not count
                await lease.extend()
            await lease.lost.wait()
            left.extend((when + event.remaining, sim().time()) for when, event in diary.low)
            with pytest.raises(LockLostError, match=r"after 10 extensions.*ExtensionPolicy\.max_extensions"):
                await lease.extend()
            await lease.release()

    with caplog.at_level(logging.WARNING, "aioredlock_ng"):
        virtual(main)()
    events = [event for _, event in diary.low]
    assert [(event.extensions, event.max_extensions) for event in events] == [(5, 10), (9, 10)]
    assert all((event.names, event.label) == (("a",), "x") for event in events)
    for said, lost in left:
        assert said == pytest.approx(lost, abs=0.05)
    warnings = [
        record.getMessage() for record in caplog.records if "max_extensions sets" in record.getMessage()
    ]
    assert len(warnings) == 2
    for (_, event), warning in zip(diary.low, warnings, strict=True):
        assert f"'a' was extended {event.extensions} of 10 times" in warning
        assert f"lost in {event.remaining:.1f} s" in warning


@virtual
async def test_no_limit_is_no_end_to_warn_of():
    """Neither a lease without a limit nor a plain one is told that its extensions run low."""
    diary = Diary()
    async with world(1, ttl=SHORT, hooks=[diary]) as w:
        forever = await w.manager.lock("a", extension=ExtensionPolicy(max_extensions=None)).acquire()
        plain = await w.manager.lock("b", extension=PLAIN).acquire()
        await asyncio.sleep(40 * SHORT)
        await forever.release()
        await plain.release()
    assert len(diary.extended) > 100
    assert not diary.low


@virtual
async def test_extensions_are_bounded():
    """After `max_extensions` the lease runs to its deadline and is lost as `extensions_exhausted`."""
    async with world() as w:
        began = sim().time()

        async def body() -> None:
            async with w.manager.lock("a", extension=ExtensionPolicy(max_extensions=3)):
                await asyncio.sleep(1000)

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.error.reason is LossReason.EXTENSIONS_EXHAUSTED
        assert end.at - began == pytest.approx(TTL + TTL - DRIFT - 0.05 * TTL, abs=0.02)
        assert [count(node, "extend") for node in w.nodes] == [3, 3, 3]


@virtual
async def test_the_default_bound_is_a_thousand_extensions():
    """A forgotten lock of the default policy ends by itself."""
    async with world(1, ttl=SHORT) as w:
        lease = await w.manager.lock("a").acquire()
        await asyncio.wait_for(lease.lost.wait(), 1002 * SHORT / 3 + SHORT)
        assert lease.extensions == 1000
        await asyncio.sleep(SHORT)
        with pytest.raises(LockLostError) as caught:
            lease.check()
        assert caught.value.reason is LossReason.EXTENSIONS_EXHAUSTED
        await lease.release()


@pytest.mark.heavy
@virtual
async def test_no_bound_must_be_asked_for():
    """With max_extensions=None the watchdog goes on for as long as the lease is held."""
    async with world() as w, w.manager.lock("a", extension=ExtensionPolicy(max_extensions=None)) as lease:
        await asyncio.sleep(100 * TTL)
        assert lease.extensions >= 299


@virtual
async def test_a_plain_lease_is_never_extended():
    """With extensions off nothing is sent between acquire and release, and it expires (not: exhausted)."""
    async with world() as w:
        lease = await w.manager.lock("a", extension=PLAIN).acquire()
        await lease.lost.wait()
        assert sim().time() == pytest.approx(deadline(lease), abs=0.002)
        await asyncio.sleep(TTL)
        assert [[one.kind for one in sent(node)] for node in w.nodes] == [["acquire"]] * 3
        with pytest.raises(LockLostError) as caught:
            lease.check()
        assert caught.value.reason is LossReason.EXPIRED
        await lease.release()


# -- the three ends of a round -----------------------------------------------------------------------


@virtual
async def test_an_unknown_round_is_tried_again_until_the_deadline():
    """Without an answer of a majority the watchdog asks again, with back-off; then the deadline decides."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        due = deadline(lease)
        for node in w.nodes[:2]:
            node.freeze()
        await lease.lost.wait()
        assert due <= sim().time() <= due + 0.002
        asked = [one for one in sent(w.nodes[2]) if one.kind == "extend"]
        assert 5 < len(asked) < 60
        with pytest.raises(LockLostError) as caught:
            await lease.extend()
        assert caught.value.reason is LossReason.EXPIRED
        assert [vote.vote for vote in caught.value.votes] == [Vote.SILENT, Vote.SILENT, Vote.GRANTED]
        for node in w.nodes:
            node.thaw()
        await lease.release()


@virtual
async def test_the_deadline_comes_while_an_extension_is_under_way():
    """The round may take longer than the lease lasts: the body stops at the deadline all the same (R7)."""
    async with world(ttl=1.0, node_timeout=0.4) as w:
        stopped = []

        async def hold() -> None:
            async with w.manager.lock("a", extension=ExtensionPolicy(every=0.8)) as lease:
                for node in w.nodes:
                    node.freeze()
                try:
                    await asyncio.sleep(3600)
                finally:
                    stopped.append(sim().time() - deadline(lease, 1.0))

        end = await in_task(hold)
        assert isinstance(end.error, LockLostError)
        assert stopped == [pytest.approx(0.0, abs=0.002)]
        for node in w.nodes:
            node.thaw()


@virtual
async def test_a_majority_that_comes_back_in_time_saves_the_lease():
    """Frozen for most of the validity and thawed before the deadline: renewed, not lost."""
    diary = Diary()
    async with world(hooks=[diary]) as w, w.manager.lock("a") as lease:
        await asyncio.sleep(1)
        for node in w.nodes:
            node.freeze()
        await until(deadline(lease) - 2)
        for node in w.nodes:
            node.thaw()
        await asyncio.sleep(5 * TTL)
        assert lease.held
    assert not diary.lost


@virtual
async def test_all_connections_lost_is_no_loss():
    """Connections that break are made anew, and the lease survives, again and again."""
    async with world() as w, w.manager.lock("a") as lease:
        for _ in range(30):
            await asyncio.sleep(1.1)
            for node in w.nodes:
                node.disconnect()
        assert lease.held
        assert lease.extensions >= 8


@virtual
async def test_a_refusal_by_a_majority_loses_at_once():
    """Q refusals end the lease with their arrival, long before its validity: `refused`, not held."""
    diary = Diary()
    async with world(5, hooks=[diary]) as w:
        lease = await w.manager.lock("a").acquire()
        asked_at = sim().time() - ROUND_TRIP
        w.vacate("a", 0, 1)
        w.occupy("a", 100.0, 2)
        async with within(TTL):
            await lease.lost.wait()
        assert sim().time() == pytest.approx(asked_at + TTL / 3 + ROUND_TRIP, abs=0.002)
        assert not lease.held
        assert lease.remaining == 0
        ((_, event),) = diary.lost
        assert event.reason is LossReason.REFUSED
        assert [vote.vote for vote in event.votes].count(Vote.REFUSED) == 3
        await lease.release()
        assert w.holders("a") == [None, None, b"a stranger", None, None]


@virtual
async def test_a_tie_of_refusals_and_silence_is_unknown():
    """Refused by fewer than Q with the rest silent loses nothing at once; the deadline decides."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        w.vacate("a", 0)
        w.nodes[1].freeze()
        await asyncio.sleep(TTL / 2)
        assert lease.held
        assert not lease.lost.is_set()
        w.nodes[1].thaw()
        await asyncio.sleep(TTL)
        assert lease.held
        await lease.release()


@virtual
async def test_a_failed_extension_never_releases():
    """Neither an unknown nor a refused round sends a release: that is the body's exit."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        w.vacate("a", 0, 1)
        await lease.lost.wait()
        await asyncio.sleep(1)
        assert [count(node, "release") for node in w.nodes] == [0, 0, 0]
        assert w.holders("a")[2] is not None
        await lease.release()
        other = await w.manager.lock("b").acquire()
        for node in w.nodes[:2]:
            node.freeze()
        await other.lost.wait()
        await asyncio.sleep(0.2)
        assert count(w.nodes[2], "release", "b") == 0
        for node in w.nodes:
            node.thaw()
        await other.release()


# -- never back to life ------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [None, 0.0, 1.0])
@pytest.mark.parametrize("seconds", [3.0, 6.5, 8.0])
@virtual
async def test_a_stall_that_ends_in_time(seconds, before):
    """A loop that stood still for less than the validity extends as soon as it runs, and tells the length."""
    diary = Diary()
    async with world(hooks=[diary]) as w, w.manager.lock("a") as lease:
        if before is not None:  # else the body blocks before any other task has run
            await asyncio.sleep(before)
        sim().advance(seconds)
        await asyncio.sleep(2 * TTL)
        assert lease.held
    assert not diary.lost
    assert len(diary.stalled) == 1
    assert seconds - 0.26 <= diary.stalled[0].seconds <= seconds
    assert diary.stalled[0].suspended == 0


@pytest.mark.parametrize("behind", [0.0, 1.0, 3.3])
@pytest.mark.parametrize("seconds", [10.5, 30.0])
@virtual
async def test_a_stall_past_the_deadline_is_never_extended_back_to_life(behind, seconds):
    """A loop that stood still too long has lost the lock by the clock, whatever answers lie waiting."""
    diary = Diary()
    async with world(hooks=[diary], latency=0.04) as w:
        lease = await w.manager.lock("a").acquire()
        await asyncio.sleep(behind)  # 3.3: with the first extension under way
        before = [count(node, "extend") for node in w.nodes]
        sim().advance(seconds)
        assert not lease.held
        with pytest.raises(LockLostError):
            lease.check()
        for node in w.nodes:  # as if no client had been able to take the lock meanwhile
            node.set(KEY, sent(node)[0].owner, 100.0)
        await asyncio.sleep(TTL)
        assert not lease.held
        assert lease.lost.is_set()
        assert lease.extensions == 0
        assert [event.reason for _, event in diary.lost] == [LossReason.EXPIRED]
        assert [count(node, "extend") - n for node, n in zip(w.nodes, before, strict=True)] in (
            [0] * 3,
            [1] * 3,  # on its way when the loop stopped
        )
        assert len(diary.stalled) == 1
        assert seconds - 0.26 <= diary.stalled[0].seconds <= seconds
        with pytest.raises(LockLostError):
            await lease.extend()
        await lease.release()


@virtual
async def test_an_answer_that_waited_past_the_deadline_revives_nothing():
    """An extension granted in time, whose answer is read too late, does not bring the lease back."""
    async with world(latency=0.04) as w:
        lease = await w.manager.lock("a").acquire()
        await until(lease.valid_until - TTL + DRIFT + TTL / 3 + 0.06)
        assert [count(node, "extend") for node in w.nodes] == [1] * 3
        assert lease.extensions == 0, "granted, but not heard of"
        sim().advance(TTL)
        await asyncio.sleep(0.1)
        assert not lease.held
        assert lease.extensions == 0
        assert lease.lost.is_set()
        await lease.release()


@virtual
async def test_a_suspended_machine_loses_by_the_suspend_safe_clock():
    """After a suspend the lease is not held, its body is told within a tick, and nothing is revived."""
    diary = Diary()
    async with world(hooks=[diary]) as w:
        lease = await w.manager.lock("a").acquire()
        await asyncio.sleep(1)
        resumed = sim().time()
        sim().suspend(60)
        assert not lease.held
        assert lease.remaining == 0
        await lease.lost.wait()
        assert sim().time() - resumed <= 0.25 + 0.002
        assert [count(node, "extend") for node in w.nodes] == [0] * 3
        await asyncio.sleep(TTL / 2)
        assert not lease.held
        (stall,) = diary.stalled
        assert stall.seconds == pytest.approx(60, abs=0.3)
        assert stall.suspended == pytest.approx(60, abs=0.3)
        assert [event.reason for _, event in diary.lost] == [LossReason.EXPIRED]
        await lease.release()


@virtual
async def test_a_short_suspend_is_survived():
    """The watchdog judges on the clock that goes on during suspend: the next extension is not late."""
    async with world() as w, w.manager.lock("a") as lease:
        for _ in range(20):
            await asyncio.sleep(1)
            sim().suspend(4)
        assert lease.held


@virtual
async def test_a_stall_is_logged_with_its_length():
    """The log says for how long the loop stood still; without a lease nothing is logged."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("aioredlock_ng")
    logger.addHandler(handler)
    try:
        diary = Diary()
        async with world(hooks=[diary]) as w:
            await asyncio.sleep(1)
            sim().advance(5)
            await asyncio.sleep(1)
            assert not diary.stalled
            async with w.manager.lock("a"):
                sim().advance(5)
                await asyncio.sleep(1)
            assert len(diary.stalled) == 1
    finally:
        logger.removeHandler(handler)
    lines = [record.getMessage() for record in records if "stood still" in record.getMessage()]
    assert len(lines) == 1
    assert f"{diary.stalled[0].seconds:.2f} s" in lines[0]


# -- extend() ----------------------------------------------------------------------------------------


@virtual
async def test_extend_renews():
    """extend() returns None, moves the validity and is counted."""
    async with world() as w:
        lease = await w.manager.lock("a", extension=PLAIN).acquire()
        await asyncio.sleep(5)
        asked_at = sim().time()
        assert await lease.extend() is None
        assert lease.valid_until == pytest.approx(asked_at + TTL - DRIFT)
        assert lease.extensions == 1
        await asyncio.sleep(8)
        assert lease.held
        await lease.release()


@virtual
async def test_extend_never_shortens():
    """A shorter ttl than what is left changes neither the validity nor any key's expiry."""
    async with world() as w:
        lease = await w.manager.lock("a", extension=PLAIN).acquire()
        before, ends = lease.valid_until, [sim().time() + (node.ttl(KEY) or 0) for node in w.nodes]
        await asyncio.sleep(1)
        await lease.extend(2)
        assert lease.valid_until == before
        now = [sim().time() + (node.ttl(KEY) or 0) for node in w.nodes]
        assert now == pytest.approx(ends, abs=0.002)
        await lease.release()


@pytest.mark.parametrize("ttl", [0.5, 1.0, 3.0, 9.0])
@virtual
async def test_short_extensions_do_not_keep_the_watchdog_from_its_work(ttl):
    """A body that calls extend() with a short ttl all the time is extended no later than another."""
    async with world() as w, w.manager.lock("a") as lease:
        for _ in range(100):
            await asyncio.sleep(0.5)
            await lease.extend(ttl)
            assert lease.remaining > TTL / 2


@virtual
async def test_the_watchdog_goes_on_with_the_longest_ttl():
    """After extend(60) the watchdog asks for 60 s, at a third of them."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        await lease.extend(60)
        assert lease.remaining > 59
        await lease.extend(5)
        await asyncio.sleep(59)
        assert lease.remaining > 39
        asked = [
            one.words[one.words.index(one.owner) + 1] for one in sent(w.nodes[0]) if one.kind == "extend"
        ]
        assert asked == [b"60000", b"5000", b"60000", b"60000"]
        await lease.release()


@virtual
async def test_the_grace_is_a_share_of_the_longest_ttl():
    """After extend(60) the body is told that share of 60 s before the end, also after a shorter extend()."""
    async with world() as w:
        lease = await w.manager.lock("a", extension=PLAIN).acquire()
        await lease.extend(60)
        await lease.extend(5)
        due = deadline(lease, 60)
        await lease.lost.wait()
        assert due <= sim().time() <= due + 0.002
        await lease.release()


@virtual
async def test_extend_of_a_lost_lease():
    """extend() tells what the nodes say: refused by a majority is LockLostError, then and ever after."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        w.vacate("a", 0, 1)
        for _ in range(2):
            with pytest.raises(LockLostError) as caught:
                await lease.extend()
            assert caught.value.reason is LossReason.REFUSED
            assert [vote.vote for vote in caught.value.votes][:2] == [Vote.REFUSED] * 2
            assert [count(node, "extend") for node in w.nodes] == [1] * 3, (
                "what is lost is not asked for again"
            )
        assert lease.lost.is_set()
        await lease.release()
        assert w.keys == [()] * 3


@virtual
async def test_extend_of_a_lease_that_is_lost_but_valid():
    """Within the grace the lock is lost, though still ours by the clock: nothing is asked any more."""
    async with world(extension=PLAIN) as w:
        lease = await w.manager.lock("a").acquire()
        await until(deadline(lease) + LATENCY)
        assert lease.lost.is_set()
        assert lease.held
        with pytest.raises(LockLostError):
            await lease.extend()
        assert not any(count(node, "extend") for node in w.nodes)
        await lease.release()


@virtual
async def test_a_won_round_takes_the_blame_from_those_before_it():
    """A round that failed explains a loss only while none has been won since."""
    async with world(extension=ExtensionPolicy(max_extensions=1)) as w:
        lease = await w.manager.lock("a").acquire()
        for node in w.nodes:
            node.freeze()
        await asyncio.sleep(TTL / 3 + 2 * TIMEOUT)
        for node in w.nodes:
            node.thaw()
        await lease.lost.wait()
        await until(lease.valid_until)
        with pytest.raises(LockLostError) as caught:
            lease.check()
        assert caught.value.reason is LossReason.EXTENSIONS_EXHAUSTED
        assert caught.value.votes == ()
        await lease.release()


@virtual
async def test_extend_of_a_released_lease():
    """extend() after release() raises with reason `released` and sends nothing."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        await lease.release()
        with pytest.raises(LockLostError) as caught:
            await lease.extend()
        assert caught.value.reason is LossReason.RELEASED
        assert [count(node, "extend") for node in w.nodes] == [0] * 3


@pytest.mark.parametrize("reason", [LossReason.EXPIRED, LossReason.RELEASED])
@virtual
async def test_an_extend_that_is_overtaken_by_the_end(reason):
    """A majority grants it, but the lease has been lost meanwhile, valid by the clock or not, or released."""
    async with world(latency=0.02, extension=PLAIN) as w:
        lease = await w.manager.lock("a").acquire()
        if reason is LossReason.EXPIRED:
            await until(deadline(lease) - 0.01)
        extend = in_task(lease.extend)
        await asyncio.sleep(0.015)
        if reason is LossReason.RELEASED:
            await lease.release()
        else:
            assert lease.held, "lost at its deadline, which is before the end of validity"
            assert lease.lost.is_set()
        error = (await extend).error
        assert isinstance(error, LockLostError)
        assert error.reason is reason
        await lease.release()


@virtual
async def test_extend_without_a_quorum():
    """Too few answers are QuorumUnavailableError after one node_timeout; the lease is held by the clock."""
    async with world() as w:
        lease = await w.manager.lock("a", extension=PLAIN).acquire()
        for node in w.nodes[1:]:
            node.freeze()
        before, began = lease.valid_until, sim().time()
        with pytest.raises(QuorumUnavailableError) as caught:
            await lease.extend()
        assert sim().time() - began == pytest.approx(TIMEOUT)
        assert [vote.vote for vote in caught.value.votes] == [Vote.GRANTED, Vote.SILENT, Vote.SILENT]
        assert caught.value.names == ("a",)
        assert lease.held
        assert not lease.lost.is_set()
        assert lease.valid_until == before
        assert lease.extensions == 0
        for node in w.nodes:
            node.thaw()
        await lease.extend()
        await lease.release()


@pytest.mark.parametrize("ttl", [0, -1, 24 * 3600 + 1, TIMEOUT, float("nan")])
@virtual
async def test_extend_checks_its_ttl(ttl):
    """A ttl that cannot work is a ValueError with the value in it; nothing is sent, nothing changes."""
    async with world() as w, w.manager.lock("a", extension=PLAIN) as lease:
        before = lease.valid_until
        with pytest.raises(ValueError, match=repr(ttl)):
            await lease.extend(ttl)
        assert lease.valid_until == before
        assert [count(node, "extend") for node in w.nodes] == [0] * 3


@virtual
async def test_a_cancelled_extend_does_no_harm():
    """A caller that stops waiting leaves the round to its end, and the lease goes on."""
    async with world(latency=0.02) as w, w.manager.lock("a") as lease:
        task = asyncio.create_task(lease.extend())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()
        await asyncio.sleep(0.1)
        assert lease.extensions == 1
        await asyncio.sleep(3 * TTL)
        assert lease.held


@virtual
async def test_one_extension_round_of_a_lease_is_in_flight():
    """Many callers and the watchdog at once: each node sees one extension at a time, one after the other."""
    async with world(latency=0.02) as w:
        lease = await w.manager.lock("a").acquire()
        w.nodes[2].latency = 0.3  # answers after the round has ended
        began = sim().time()
        await until(lease.valid_until - TTL + DRIFT + TTL / 3 - 0.001)
        ends = await asyncio.gather(*(in_task(lease.extend) for _ in range(10)))
        assert [end.error for end in ends] == [None] * 10
        assert lease.extensions in (10, 11)
        gaps = sorted({round(end.at - began, 6) for end in ends})
        assert len(gaps) == 10, "one after the other"
        await asyncio.sleep(1)
        await lease.release()


@virtual
async def test_waiting_extends_of_a_lease_that_is_lost_meanwhile():
    """A waiter for the round before it hears of its refusal, and asks no node again."""
    async with world(latency=0.02) as w:
        lease = await w.manager.lock("a").acquire()
        w.vacate("a")
        ends = await asyncio.gather(*(in_task(lease.extend) for _ in range(5)))
        assert all(isinstance(end.error, LockLostError) for end in ends)
        assert [count(node, "extend") for node in w.nodes] == [1] * 3
        await lease.release()


# -- top-up ------------------------------------------------------------------------------------------


@virtual
async def test_a_node_that_lost_the_key_gets_it_back_in_a_won_round():
    """Wiped on a minority, the key is there again after the next extension, with the same owner and ttl."""
    async with world(5) as w, w.manager.lock("a") as lease:
        owner = w.holders("a")[2]
        w.nodes[0].restart()
        w.vacate("a", 1)
        await asyncio.sleep(TTL / 3 + 0.01)
        assert w.holders("a") == [owner] * 5
        assert w.nodes[0].ttl(KEY) == pytest.approx(TTL, abs=0.1)
        assert lease.extensions == 1
        assert [count(node, "top-up") for node in w.nodes] == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("index", range(5))
@virtual
async def test_every_node_that_lost_the_key_gets_it_back(index):
    """Whether it answers before or after the others: the verdict may come first, the top-up follows."""
    async with world(5) as w, w.manager.lock("a"):
        w.vacate("a", index)
        await asyncio.sleep(TTL / 3 + 0.02)
        assert None not in w.holders("a")


@pytest.mark.parametrize(("index", "told"), [(0, 1), (4, 0)])
@virtual
async def test_the_event_tells_of_nodes_that_are_topped_up(index, told):
    """Those that have answered by then; the statistics count the others, too."""
    diary = Diary()
    async with world(5, hooks=[diary]) as w, w.manager.lock("a", extension=PLAIN) as lease:
        w.vacate("a", index)
        await lease.extend()
        await lease.extend()
        await asyncio.sleep(0.01)
        assert [event.topped_up for _, event in diary.extended] == [told, 0]
        assert w.manager.statistics().topped_up == 1


@virtual
async def test_a_slow_node_that_lost_the_key_gets_it_back():
    """An answer "missing" that comes well after the verdict, but within the round, is still of use."""
    async with world() as w, w.manager.lock("a"):
        w.nodes[0].latency = 0.03
        w.vacate("a", 0)
        await asyncio.sleep(TTL / 3 + 0.2)
        assert None not in w.holders("a")


@pytest.mark.parametrize("release", [True, False])
@virtual
async def test_a_missing_key_that_is_heard_of_too_late_is_not_set_again(release):
    """A slow node's "missing" that comes after the release, or after the loss, tops no node up."""
    async with world() as w:
        lease = await w.manager.lock("a", extension=PLAIN).acquire()
        w.nodes[0].latency = 0.04
        w.vacate("a", 0)
        await until(deadline(lease) - 0.02)
        if release:
            await lease.extend()
            await lease.release()
        else:
            lease_extends = in_task(lease.extend)
            await asyncio.sleep(0.01)
            w.vacate("a", 1, 2)
            await lease_extends
            with pytest.raises(LockLostError):
                await lease.extend()
        await asyncio.sleep(1)
        assert count(w.nodes[0], "top-up") == 0
        assert w.holders("a")[0] is None
        await lease.release()


@virtual
async def test_a_rolling_loss_of_keys_is_survived():
    """One node after the other loses the key, more than a majority in all: each is topped up in between."""
    async with world() as w, w.manager.lock("a") as lease:
        for number in range(12):
            w.vacate("a", number % 3)
            await asyncio.sleep(TTL / 2)
            assert lease.held
        assert None not in w.holders("a")


@pytest.mark.parametrize("gone", [(0, 1), (0, 1, 2)])
@virtual
async def test_a_lost_majority_is_never_resurrected(gone):
    """A key that is gone from a majority is not set again anywhere."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        w.vacate("a", *gone)
        await lease.lost.wait()
        await asyncio.sleep(TTL)
        assert [count(node, "top-up") for node in w.nodes] == [0] * 3
        assert w.keys == [()] * 3
        await lease.release()


@virtual
async def test_an_unknown_round_tops_no_node_up():
    """Without a proven majority a missing key stays missing."""
    async with world(5) as w:
        lease = await w.manager.lock("a").acquire()
        w.vacate("a", 0)
        for node in w.nodes[1:4]:
            node.freeze()
        await lease.lost.wait()
        assert count(w.nodes[0], "top-up") == 0
        assert w.holders("a")[0] is None
        for node in w.nodes:
            node.thaw()
        await lease.release()


@virtual
async def test_a_strangers_key_is_not_touched_by_a_top_up():
    """Where another owner's key stands, nothing is set; the lease lives on its majority."""
    async with world() as w, w.manager.lock("a") as lease:
        w.occupy("a", 100.0, 2)
        await asyncio.sleep(3 * TTL)
        assert lease.held
        assert w.holders("a")[2] == b"a stranger"
        assert count(w.nodes[2], "top-up") == 0


@virtual
async def test_several_names_are_topped_up_all_or_nothing():
    """A node that lost one of two keys is topped up; one where the other is a stranger's is not."""
    async with world(5) as w, w.manager.lock("a", "b") as lease:
        w.vacate("a", 0)
        w.vacate("a", 1)
        w.occupy("b", 100.0, 1)
        await asyncio.sleep(TTL / 3 + 0.01)
        owner = w.holders("a")[3]
        assert w.holders("a") == [owner, None, owner, owner, owner]
        assert w.holders("b") == [owner, b"a stranger", owner, owner, owner]
        assert lease.held


@virtual
async def test_a_topped_up_node_is_released_too():
    """A node that was down at the acquire and was topped up later keeps no key after the release."""
    async with world() as w:
        w.nodes[0].crash()
        await asyncio.sleep(1)
        lease = await w.manager.lock("a").acquire()
        w.nodes[0].restart()
        await asyncio.sleep(TTL / 2)
        assert None not in w.holders("a")
        await lease.release()
        assert w.keys == [()] * 3


# -- after the release -------------------------------------------------------------------------------


def after_release(world_: World) -> list[str]:
    """Return the kinds of commands that any node executed for an owner after its first release."""
    found = []
    for node in world_.nodes:
        released: set[bytes] = set()
        for one in sent(node):
            if one.owner in released and one.kind != "release":
                found.append(one.kind)
            if one.kind == "release":
                released.add(one.owner)
    return found


@pytest.mark.heavy
@virtual
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
        assert after_release(w) == []
        assert w.keys == [()] * 3


@virtual
async def test_a_release_overtakes_nothing_and_is_overtaken_by_nothing():
    """An extension under way on a slow node is answered, and then released there: no key is left."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        w.nodes[2].freeze()
        task = in_task(lease.extend)
        await asyncio.sleep(0.01)
        await lease.release()
        await task
        w.nodes[2].thaw()
        await asyncio.sleep(0.01)
        assert [one.kind for one in sent(w.nodes[2])] == ["acquire", "extend", "release"]
        assert w.keys == [()] * 3


# -- dropped leases, many leases ---------------------------------------------------------------------


@virtual
async def test_a_dropped_lease_warns_and_is_released():
    """A lease that cannot be released any more is no longer extended, its keys go, and it warns."""
    async with world() as w:
        lease: Lease | None = await w.manager.lock("a").acquire()
        assert lease is not None
        with pytest.warns(ResourceWarning, match="'a'"):
            lease = None
        await asyncio.sleep(0.01)
        assert w.keys == [()] * 3
        assert w.manager.statistics().held == 0
        await asyncio.sleep(TTL)
        assert [count(node, "extend") for node in w.nodes] == [0] * 3


@virtual
async def test_a_released_lease_is_dropped_in_silence():
    """After a release, or at the end of its block, a lease goes without a warning."""
    async with world() as w:
        lease = await w.manager.lock("a").acquire()
        await lease.release()
        async with w.manager.lock("b") as other:
            pass
        del lease, other
        gc.collect()


class Due:
    """What a watchdog watches."""

    due = 1.0


def test_a_watchdog_forgets_in_bulk(monkeypatch):
    """It drops what is out of date when there is as much of it as of what lives, not at every step."""
    cleanings: list[int] = []
    heapify = heapq.heapify
    monkeypatch.setattr(heapq, "heapify", lambda heap: (cleanings.append(len(heap)), heapify(heap)))
    watchdog, watched = Watchdog(SystemClock(), lambda *_: None), [Due() for _ in range(500)]
    for one in watched:
        watchdog.watch(one)  # type: ignore[arg-type]
    assert cleanings == []
    for one in 2 * watched:
        watchdog.watch(one)  # type: ignore[arg-type]
    assert cleanings == [500]


@pytest.mark.heavy
@virtual
async def test_two_thousand_leases_share_one_watchdog():
    """The number of tasks does not grow with the leases, and every one of them is extended in time."""
    async with world(5) as w:
        await asyncio.sleep(1)
        idle = len(asyncio.all_tasks())
        locks = [w.manager.lock(f"lock-{number}") for number in range(2000)]
        leases = await asyncio.gather(*(lock.acquire() for lock in locks))
        assert len(asyncio.all_tasks()) == idle
        watchdogs = [task for task in asyncio.all_tasks() if "watchdog" in task.get_name()]
        assert len(watchdogs) == 1
        await asyncio.sleep(TTL)
        assert len(asyncio.all_tasks()) == idle
        assert all(lease.held for lease in leases)
        assert {lease.extensions for lease in leases} <= {2, 3}
        assert w.manager.statistics().held == 2000
        await asyncio.gather(*(lease.release() for lease in leases))
        assert w.keys == [()] * 5
