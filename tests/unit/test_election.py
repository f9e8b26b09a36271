"""Leader election: campaigns, announcements, observers (R31, R32)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re

import pytest

from aioredlock_ng import (
    ConfigurationError,
    ExtensionPolicy,
    Leader,
    LeaderUnknown,
    LockLostError,
    LockManager,
    LockNotAcquiredError,
    LossReason,
    ManagerClosedError,
    NodeState,
    QuorumUnavailableError,
    ReleaseOutcome,
)
from tests.simulation.wires import WiredNode
from tests.unit.tasks import cancelled, cycle, in_task, sim, turns, until
from tests.unit.traces import PREFIX, count, sent
from tests.unit.worlds import GRACE, LATENCY, ROUND_TRIP, TTL, each, make, opened, put, world

NAME = "scheduler"
KEY = PREFIX + NAME.encode()
ANNOUNCED = PREFIX + b"leader:{" + KEY + b"}"
SOON = 4 * ROUND_TRIP
"""Seconds within which news is there: a notice, and a look."""
LOOK_EVERY = 5.0
"""Seconds after which an observer looks at the latest."""
LOOK_AGAIN = 1.0
"""Seconds after which it looks again where too few nodes have answered."""


def announced(w):
    """Return what stands announced on every node."""
    return [node.get(ANNOUNCED) for node in w.nodes]


def listeners(w):
    """Return how many managers listen to an election's news, on each node."""
    return [node._server.listening(ANNOUNCED) for node in w.nodes]


class Follower:
    """Observes in a task of its own, and keeps each report and its time."""

    def __init__(self, manager):
        self.told, self.at = [], []
        self.task = asyncio.create_task(self._follow(manager))

    async def _follow(self, manager):
        async for leader in manager.election(NAME).observe():
            self.told.append(leader)
            self.at.append(sim().time())

    @property
    def terms(self):
        """Return the terms that were reported to it."""
        return [leader.term for leader in self.told if isinstance(leader, Leader)]


@contextlib.asynccontextmanager
async def following(manager):
    """Follow an election for the length of a block."""
    follower = Follower(manager)
    try:
        yield follower
    finally:
        await cancelled(follower.task)


# -- campaigns (R31) -----------------------------------------------------------------------------------


async def test_one_of_several_candidates_leads():
    """Others wait; when it resigns in its body, which goes on, another has won in a round trip or so."""
    async with world() as w, w.process() as other:
        election = w.manager.election(NAME, holder="node-1")
        assert repr(election) == "<Election 'scheduler' ttl=10s>"
        async with election.campaign() as leadership:
            rival = in_task(lambda: _win(other, "node-2"))
            await asyncio.sleep(60)
            assert not rival.done()
            assert (leadership.name, leadership.holder, leadership.held) == (NAME, "node-1", True)
            assert 0 < leadership.remaining <= TTL
            leadership.check()
            assert "leads" in repr(leadership)
            assert str(leadership.term) in repr(leadership)
            at = sim().time()
            assert (await leadership.resign()).count(ReleaseOutcome.RELEASED) == 3
            assert (await rival).at - at < 0.2
            assert "is over" in repr(leadership)
            assert (leadership.held, leadership.lost.is_set()) == (False, False)
            with pytest.raises(LockLostError):
                leadership.check()
            assert (await leadership.resign()).count(ReleaseOutcome.RELEASED) == 3
        assert w.keys == [()] * 3


async def _win(manager, label):
    async with manager.election(NAME, holder=label).campaign() as leadership:
        return leadership


async def test_a_leader_is_extended_without_a_limit():
    """The manager's limit on extensions is none for leaders; its other settings count."""
    policy = ExtensionPolicy(every=0.5, max_extensions=3)
    async with world(extension=policy) as w, w.manager.election(NAME, ttl=2).campaign() as leadership:
        await asyncio.sleep(100)
        assert leadership.held
        assert 98 <= count(w.nodes[0], "extend") <= 100


@pytest.mark.parametrize("how", ["cancel", "raise"])
async def test_a_lost_leadership_ends_its_body(how):
    """Before its key can be gone: the block is cancelled, or goes on, and ends in `LockLostError`."""
    async with world() as w:
        with pytest.raises(LockLostError) as caught:  # noqa: PT012
            async with w.manager.election(NAME, on_lost=how).campaign() as leadership:
                each(w.nodes[:2]).freeze()
                frozen_at = sim().time()
                try:
                    await asyncio.sleep(30)
                finally:
                    held, lost, after = leadership.held, leadership.lost.is_set(), sim().time() - frozen_at
                    each(w.nodes[:2]).thaw()
        assert caught.value.reason is LossReason.EXPIRED
        assert (held, lost) == (how == "cancel", True)
        assert (after < TTL * (1 - GRACE)) is (how == "cancel")


async def test_a_campaign_is_used_once():
    """Another one is another call of `campaign`."""
    async with world() as w:
        campaign = w.manager.election(NAME).campaign()
        assert repr(campaign) == "<Campaign 'scheduler'>"
        await cycle(campaign)
        for again in (campaign.__aenter__, campaign._win):
            with pytest.raises(RuntimeError, match="used once"):
                await again()


async def test_a_look_at_the_lock_shows_what_the_candidate_calls_itself():
    """An inspection, a survey and a refusal; also where another of its process leads next, in a next term."""
    async with world(holder="us") as w, w.process(holder="other") as other:
        seen, terms = [], []

        async def lead(label):
            async with w.manager.election(NAME, holder=label).campaign() as leadership:
                terms.append(leadership.term)
                (lock,) = (await w.manager.survey()).locks
                seen.append((lock.holder, (await other.inspect(NAME))[0].holder))
                with pytest.raises(LockNotAcquiredError, match=re.escape(label or "us")):
                    await other.lock(NAME, blocking=False).acquire()

        await asyncio.gather(*(lead(label) for label in ("one", "two", "two", None)))
        assert seen == [("one", "one"), ("two", "two"), ("two", "two"), ("us", "us")]
        assert terms == sorted(set(terms))
        assert announced(w) == [b"%d:us" % terms[-1]] * 3


# -- announcements (R31) -------------------------------------------------------------------------------


async def test_a_leader_announces_after_its_win():
    """In the turn in which it learns that it has won; nothing about it leaves before."""
    async with world() as w, w.manager.election(NAME, holder="node-1").campaign() as leadership:
        assert announced(w) == [None] * 3
        await asyncio.sleep(ROUND_TRIP)
        assert announced(w) == [b"%d:node-1" % leadership.term] * 3
        kinds = [one.kind for one in sent(w.nodes[0]) if one.kind in ("acquire", "raise", "announce")]
        assert kinds == ["acquire", "announce"]


async def test_a_candidate_without_a_certificate_announces_nothing():
    """A majority of grants is no win where no fence is agreed on: that leader never was."""
    async with world() as w:
        ahead = [(1 << 52) + 1, (1 << 52) + 3, (1 << 52) + 5]  # too far ahead to be raised
        put(w, NAME, *ahead)
        campaign = in_task(lambda: _win(w.manager, "a"))
        await asyncio.sleep(2)
        assert not campaign.done()
        assert announced(w) == [None] * 3
        campaign.cancel()
        await campaign


async def test_each_extension_announces_again():
    """A node that was away hears of the leader then; those that know get no second notice."""
    async with world() as w, w.process() as other:
        w.nodes[2].crash()
        async with following(other) as follower, w.manager.election(NAME, ttl=3).campaign() as leadership:
            await asyncio.sleep(0.5)
            looks = count(w.nodes[0], "observe")
            w.nodes[2].restart()
            assert announced(w)[2] is None
            await asyncio.sleep(3)
            assert announced(w)[2] == announced(w)[0]
            assert follower.terms == [leadership.term]
            assert count(w.nodes[0], "observe") <= looks + 4


async def test_observers_that_are_cut_off_know_no_leader():
    """For a ttl the last report may still be true; then nothing is known, until enough nodes answer again."""
    async with world() as w, w.manager.election(NAME).campaign() as leadership:
        wires = [node.wire() for node in w.nodes]
        async with opened(wires, seed=99) as other, following(other) as follower:
            await asyncio.sleep(1)
            assert follower.terms == [leadership.term]
            cut = sim().time()
            for wire in wires[:2]:
                wire.cut()
            await asyncio.sleep(TTL - LOOK_EVERY)
            assert len(follower.told) == 1
            await asyncio.sleep(2 * LOOK_EVERY)
            assert follower.told[1:] == [LeaderUnknown.UNKNOWN]
            assert not follower.told[1]
            assert TTL - LOOK_EVERY < follower.at[1] - cut < TTL + LOOK_EVERY
            for wire in wires[:2]:
                wire.mend()
            await asyncio.sleep(LOOK_EVERY)
            assert follower.terms == [leadership.term] * 2


async def test_an_observer_that_is_busy_is_not_cut_off():
    """However short the ttl: only looks that have failed say so, not the time between two of them."""
    async with world() as w, w.manager.election(NAME, ttl=2).campaign() as leadership:
        told = []

        async def follow():
            async for leader in w.manager.election(NAME, ttl=2).observe():
                told.append(leader)
                await asyncio.sleep(3)

        followers = [asyncio.create_task(follow())]
        await asyncio.sleep(7.3)
        followers.append(asyncio.create_task(follow()))
        await asyncio.sleep(30)
        await cancelled(*followers)
        assert told == [Leader(leadership.term, leadership.holder)] * 2


async def test_a_node_in_quarantine_is_told_too():
    """It has no vote, and forgot everything; what was won is true all the same."""
    async with world(restart_quarantine=60) as w, w.manager.election(NAME).campaign():
        await asyncio.sleep(1)
        w.nodes[0].flush()
        await asyncio.sleep(TTL)
        assert w.manager.statistics().nodes[0].state is NodeState.QUARANTINED
        assert announced(w)[0] == announced(w)[1]


@pytest.mark.heavy
async def test_an_announcement_lives_until_the_next_one():
    """A leader of a long ttl is extended seldom: also an observer that comes in between hears of it."""
    options = {"fence_ttl": 300, "restart_quarantine": 1200}
    async with world(**options) as w, w.manager.election(NAME, ttl=1200).campaign() as leadership:
        await asyncio.sleep(390)  # extended after 400 s
        assert await w.manager.election(NAME).leader() == Leader(leadership.term, leadership.holder)


async def test_an_older_leader_that_comes_late_changes_nothing():
    """The greatest term stays, whatever the order of arrival."""
    async with world() as w, w.process() as other:
        first = await w.manager.election(NAME, holder="old").campaign()
        await first.resign()
        second = await other.election(NAME, holder="new").campaign()
        first._announcement.repeat()
        await asyncio.sleep(1)
        assert announced(w) == [b"%d:new" % second.term] * 3
        await second.resign()


async def test_a_server_that_forgets_the_script_is_told_once_more():
    """An announcement is not lost to SCRIPT FLUSH."""
    async with world() as w:
        each(w.nodes).flush_scripts()
        async with w.manager.election(NAME, holder="a").campaign() as leadership:
            await asyncio.sleep(3 * ROUND_TRIP)
            assert announced(w) == [b"%d:a" % leadership.term] * 3


async def test_an_announcement_is_no_lock():
    """A survey does not show it, `init` does not take it for one, and no lock may be called so (R16)."""
    async with world() as w:
        async with w.manager.election(NAME).campaign():
            await asyncio.sleep(1)
            locks = (await w.manager.survey()).locks
            assert [(lock.name, lock.state) for lock in locks] == [(NAME, "held")]
        await asyncio.sleep(1)
        assert None not in announced(w)
        assert (await w.manager.survey()).locks == ()
        await w.manager.init()
        with pytest.raises(ValueError, match="reserved"):
            w.manager.lock(f"leader:{{{KEY.decode()}}}")


# -- observers (R32) -----------------------------------------------------------------------------------


async def test_observers_are_told_of_each_leader():
    """That there is none, then each new one within a round trip or so; terms grow, and each was won."""
    async with world() as w, w.process() as second, w.process() as third:
        async with following(third) as follower:
            await asyncio.sleep(SOON)
            assert follower.told == [None]
            led: list[Leader | None] = []
            for label, manager in (("a", w.manager), ("b", second), ("a", w.manager)):
                async with manager.election(NAME, holder=label).campaign() as leadership:
                    won_at = sim().time()
                    await asyncio.sleep(1)
                    led.append(Leader(leadership.term, label))
                    assert follower.told[-1] == led[-1]
                    assert follower.at[-1] - won_at <= SOON
                left_at = sim().time()
                await asyncio.sleep(1)
                assert follower.told[-1] is None
                assert follower.at[-1] - left_at <= SOON
        assert follower.told == [None, led[0], None, led[1], None, led[2], None]
        assert follower.terms == sorted(set(follower.terms))


async def test_a_leader_that_is_gone_is_noticed_without_a_notice():
    """It says no goodbye; a look every few seconds finds its keys gone."""
    async with world() as w, w.process() as other:
        async with following(w.manager) as follower:
            await asyncio.sleep(SOON)
            leadership = await other.election(NAME, ttl=3).campaign()
            await asyncio.sleep(SOON)
            die(leadership)
            gone_at = sim().time() + 3
            await asyncio.sleep(3 + LOOK_EVERY + 1)
            assert follower.told == [None, Leader(leadership.term, leadership.holder), None]
            assert gone_at <= follower.at[-1] <= gone_at + LOOK_EVERY + SOON
        await leadership.resign()


def die(leadership):
    """Have it never extended again, as if its process had died."""
    holding = leadership._lease._holding
    holding._session.watchdog.forget(holding)


async def test_a_lock_without_an_announcement_is_no_leader():
    """Not of a candidate that has not won, nor of a lock of that name, on one node or on all."""
    async with world() as w, w.process() as other:
        put(w, NAME, 7, 7, 7)
        w.occupy(NAME, None, 0)
        async with following(w.manager) as follower:
            await asyncio.sleep(1)
            assert follower.told == [None]
            w.vacate(NAME)
            async with other.lock(NAME):
                await asyncio.sleep(3 * LOOK_EVERY)
                assert follower.told == [None]
                async with following(other) as late:
                    await asyncio.sleep(LOOK_EVERY)
                    assert late.told == [], "neither a leader nor that there is none"


async def test_what_only_one_node_tells_of_was_won_all_the_same():
    """The greatest term counts, even if one node alone has it; and it is never taken back."""
    async with world() as w, w.process() as other:
        w.occupy(NAME, None)
        for node, value in zip(w.nodes, (b"4:a", b"6:b", b"4:a"), strict=True):
            node.set(ANNOUNCED, value, 600)
        async with following(other) as follower:
            await asyncio.sleep(1)
            assert follower.told == [Leader(6, "b")]
            w.nodes[1].crash()
            await asyncio.sleep(3 * LOOK_EVERY)
            assert follower.told == [Leader(6, "b")]


async def test_a_term_that_is_over_does_not_come_back():
    """Though its announcement stands there for minutes, while the next candidate's keys are in the way."""
    async with world() as w, w.process() as other, following(other) as follower:
        await asyncio.sleep(SOON)
        async with w.manager.election(NAME).campaign():
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        assert len(follower.told) == 3
        w.occupy(NAME, None)
        await asyncio.sleep(3 * LOOK_EVERY)
        assert len(follower.told) == 3
        assert follower.told[-1] is None


async def test_nodes_without_a_vote_are_not_enough():
    """A node that has lost its memory shows no lock, and that says nothing; nothing is reported meanwhile."""
    async with world(restart_quarantine=60) as w, w.process(restart_quarantine=60) as other:
        leadership = await w.manager.election(NAME).campaign()
        await asyncio.sleep(1)
        each(w.nodes[:2]).flush()
        async with following(other) as follower:
            await asyncio.sleep(2)
            assert follower.told == []
            with pytest.raises(QuorumUnavailableError, match="too few nodes with a vote") as caught:
                await other.election(NAME).leader()
            assert caught.value.names == (NAME,)
            assert len(caught.value.votes) == 3
            await asyncio.sleep(70)
            assert leadership.lost.is_set()
            assert follower.told == [LeaderUnknown.UNKNOWN, None]
        await leadership.resign()


async def test_news_comes_when_the_nodes_do():
    """Without a majority's answer: no report, after a ttl that nothing is known; then the leader."""
    async with world() as w, w.manager.election(NAME, ttl=60).campaign() as leadership, w.process() as other:
        each(w.nodes[:2]).freeze()
        async with following(other) as follower:
            await asyncio.sleep(TTL - 1)
            assert follower.told == []
            await asyncio.sleep(5)
            assert follower.told == [LeaderUnknown.UNKNOWN]
            each(w.nodes[:2]).thaw()
            thawed_at = sim().time()
            await asyncio.sleep(2)
            assert follower.terms == [leadership.term]
            assert follower.at[1] - thawed_at <= LOOK_AGAIN + 0.2


# -- one subscription, one look (R32) ------------------------------------------------------------------


async def test_observers_of_a_process_share_subscription_and_looks():
    """Ten cost what one does, and none counts as a waiter; the last that leaves takes all of it along."""
    async with world() as w, w.process() as other, contextlib.AsyncExitStack() as stack:
        followers = [await stack.enter_async_context(following(other)) for _ in range(10)]
        await asyncio.sleep(1)
        assert listeners(w) == [1] * 3
        assert other.statistics().waiting == 0
        before = count(w.nodes[0], "observe")
        async with w.manager.election(NAME).campaign() as leadership:
            await asyncio.sleep(60)
            looks = count(w.nodes[0], "observe") - before
            assert 60 / LOOK_EVERY - 1 <= looks <= 60 / 4 + 3
        await asyncio.sleep(1)
        for follower in followers:
            assert follower.told == [None, Leader(leadership.term, leadership.holder), None]
        await stack.aclose()
        await asyncio.sleep(SOON)
        assert listeners(w) == [0] * 3
        before = count(w.nodes[0], "observe")
        await asyncio.sleep(3 * LOOK_EVERY)
        assert count(w.nodes[0], "observe") == before


async def test_an_observer_that_joins_is_told_what_a_look_of_its_own_has_shown():
    """Not what the others have seen some seconds ago: an announcement of before its beginning is heard of."""
    async with world() as w, w.process() as other, following(other) as first:
        await asyncio.sleep(1)
        assert first.told == [None]
        for node in w.nodes:  # no notice arrives
            for client in list(node._server._channels[ANNOUNCED]):
                node._server.unsubscribe(client, ANNOUNCED)
        async with w.manager.election(NAME).campaign() as leadership:
            await asyncio.sleep(SOON)
            assert first.told == [None]
            async with following(other) as second:
                await asyncio.sleep(SOON)
                assert second.terms == [leadership.term]
                assert second.told[0] is not None
                assert first.told == [None, second.told[0]]


async def test_news_during_a_look_brings_another_one():
    """The nodes may have been read before the announcement that they tell of."""
    async with world() as w, w.process() as other, following(other) as follower:
        await asyncio.sleep(1)
        began = sim().time()
        for after in (0.0, 1.5, 2.2):  # at 1 the look begins, at 2 the nodes answer, at 3 it is over
            await until(began + after * LATENCY)
            for node in w.nodes:
                if after < 2:
                    node._server.publish(ANNOUNCED, b"")
                else:
                    node.set(KEY, b"anything", 60)
                    node.set(ANNOUNCED, b"4:a", 60)
        await asyncio.sleep(SOON)
        assert follower.told == [None, Leader(4, "a")]


# -- the end of an observer ----------------------------------------------------------------------------


async def test_an_observer_that_leaves_the_loop_early_leaves_nothing_behind():
    """By a break, which asyncio closes it for, or by a cancellation."""
    async with world() as w, w.process() as other:
        async for leader in other.election(NAME).observe():
            assert leader is None
            break
        del leader
        gc.collect()
        await asyncio.sleep(SOON)
        assert listeners(w) == [0] * 3
        async with following(other):
            await asyncio.sleep(1)
            assert listeners(w) == [1] * 3
        await asyncio.sleep(SOON)
        assert listeners(w) == [0] * 3


@pytest.mark.parametrize("crash", [False, True], ids=["all up", "none left"])
async def test_observers_end_when_the_manager_is_closed(crash):
    """At once, whether they wait or their consumer is busy, and also where no connection ends that would
    have them look; later ones get an error.
    """
    async with world() as w, make(w.nodes, seed=7) as manager:
        waiting, busy = Follower(manager), manager.election(NAME).observe()
        assert await anext(busy) is None
        if crash:
            each(w.nodes).crash()
        await asyncio.sleep(LOOK_EVERY)
        assert not waiting.task.done()
        await manager.aclose()
        await turns(3)
        assert waiting.task.done()
        assert waiting.task.exception() is None
        assert [leader async for leader in busy] == []
        for late in (anext(manager.election(NAME).observe()), manager.election(NAME).leader()):
            with pytest.raises(ManagerClosedError):
                await late


async def test_an_observer_is_told_of_nodes_that_cannot_be_a_quorum():
    """At its beginning, and when that is found out later."""
    async with world() as w:
        news = w.manager.election(NAME).observe()
        assert await anext(news) is None
        meta = PREFIX + b"{meta}"
        w.nodes[1].set(meta, w.nodes[1].get(meta).replace(b":3:", b":5:"))
        await asyncio.sleep(1)
        for observer in (news, w.manager.election(NAME).observe()):
            with pytest.raises(ConfigurationError, match="quorum of 5 nodes"):
                await anext(observer)


# -- bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"name": ""}, ValueError, "empty"),
        ({"name": 7}, TypeError, "7"),
        ({"name": "leader:{a}"}, ValueError, "reserved"),
        ({"holder": 7}, TypeError, "holder must be a str, got 7"),
        ({"holder": "a\nb"}, ValueError, "holder must be at most 200 printable"),
        ({"holder": "x" * 201}, ValueError, "holder must be"),
        ({"ttl": 0}, ValueError, "ttl"),
        ({"ttl": "1"}, TypeError, "'1'"),
        ({"on_lost": "ignore"}, ValueError, "'ignore'"),
        ({"extension": 3}, TypeError, "ExtensionPolicy, got 3"),
        ({"extension": ExtensionPolicy.off()}, ValueError, "a leader extends its lock"),
    ],
)
def test_bad_values_are_refused_at_the_call(options, error, message):
    """With the value in the message."""
    manager = LockManager([WiredNode()])
    with pytest.raises(error, match=message):
        manager.election(**{"name": NAME, **options})


def test_without_fences_there_are_no_terms():
    """It is refused at the call, with or without a quarantine."""
    for quarantine in (0, 60):
        manager = LockManager([WiredNode()], fencing=False, restart_quarantine=quarantine)
        with pytest.raises(ConfigurationError, match=r"'scheduler'.*fencing=False"):
            manager.election(NAME)


@contextlib.asynccontextmanager
async def watched(ttl, *, node_timeout):
    """Give a candidate and an observer over the same nodes, with their wires, and the observer's reports."""
    nodes = [WiredNode(latency=LATENCY) for _ in range(3)]
    ours, theirs = ([node.wire() for node in nodes] for _ in range(2))
    options = {"ttl": ttl, "node_timeout": node_timeout}
    async with (
        contextlib.aclosing(make(theirs, **options)) as observer,
        contextlib.aclosing(make(ours, **options)) as candidate,
        following(observer) as follower,
    ):
        yield candidate, ours, observer, theirs, follower


async def test_a_term_is_not_taken_for_over_by_nodes_that_were_free_one_after_the_other():
    """The first node has no key when it is read; a late acquire and an extension keep the lock there, and the
    key of the second one ends before that one is read (R32).
    """
    ttl = 1.0
    async with watched(ttl, node_timeout=0.2) as (candidate, ours, observer, theirs, follower):
        async with candidate.lock("another"):
            pass
        ours[0].cut()
        won_at = sim().time()
        leadership = await candidate.election(NAME).campaign()
        await asyncio.sleep(0.02)
        ours[1].cut()
        await asyncio.sleep(won_at + 0.905 * ttl - sim().time())
        theirs[1].extra = won_at + 1.003 * ttl - sim().time()
        asks = Follower(observer)
        await asyncio.sleep(0.005)
        ours[0].mend()
        await asyncio.sleep(won_at + 1.2 * ttl - sim().time())
        theirs[1].extra = 0
        ours[1].mend()
        await asyncio.sleep(20 * ttl)
        assert leadership.held
        leader = Leader(leadership.term, leadership.holder)
        assert (follower.told, asks.told) == ([None, leader], [leader])
        await cancelled(asks.task)
        await leadership.resign()


async def test_two_readings_that_take_longer_than_a_ttl_do_not_end_a_term():
    """A key that was set behind the first one may have ended before the second one (R32)."""
    ttl = 1.0
    async with watched(ttl, node_timeout=0.9) as (candidate, _, _, theirs, follower):
        async with candidate.election(NAME).campaign() as leadership:
            await asyncio.sleep(SOON)
            for wire in theirs:
                wire.extra = 0.3 * ttl  # each way
        await asyncio.sleep(10 * ttl)
        leader = Leader(leadership.term, leadership.holder)
        assert follower.told == [leader]
        for wire in theirs:
            wire.extra = 0
        await asyncio.sleep(4 * ttl)
        assert follower.told == [leader, None]
