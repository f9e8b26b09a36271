"""One look for all that watch: on virtual time, over masters in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from aioredlock_ng._dashboard import feed as feeds
from aioredlock_ng._dashboard.feed import LINGER, MAX_FOLLOWED, MAX_STREAMS, Feed, Stream, TooManyError
from aioredlock_ng.testing import MemoryNode
from tests.dashboard.reading import Page
from tests.unit.tasks import sim, virtual, within
from tests.unit.traces import PREFIX
from tests.unit.worlds import World, world

EVERY = 5.0


@contextlib.contextmanager
def watched(w: World, name: str | None = None, *, feed: Feed | None = None) -> Iterator[tuple[Page, Stream]]:
    """Open a page."""
    with contextlib.closing((feed or Feed(w.manager, interval=EVERY)).open(name)) as stream:
        yield Page(), stream


async def hear(page: Page, stream: Stream) -> Page:
    """Wait for what comes next."""
    async with within(10 * EVERY):
        text = await stream.next()
    assert text is not None
    page.hear(text)
    return page


def searches(node: MemoryNode) -> int:
    """Return how often a node was searched for locks."""
    return sum(words[0] == b"SCAN" for words in node.executed)


@virtual
async def test_ten_pages_are_one_look_in_an_interval():
    """All see the same table; the nodes are asked as for one."""
    async with world() as w, w.manager.lock("a"):
        feed = Feed(w.manager, interval=EVERY)
        with contextlib.ExitStack() as stack:
            pages = [stack.enter_context(watched(w, feed=feed)) for _ in range(10)]
            for _ in range(4):
                await asyncio.gather(*(hear(*each) for each in pages))
            assert [searches(node) for node in w.nodes] == [4, 4, 4]
            for page, _ in pages:
                assert page.events == ["state", "change", "change", "change"]
                assert page.locks["a"]["state"] == "held"
                assert page.head["up"] == 3
                assert all(abs(node["clock"]) < 0.1 for node in page.head["nodes"])


@virtual
async def test_nodes_are_left_alone_while_no_page_is_open():
    """A page that is loaded again is not much; after that nothing is asked, until the next one."""
    async with world() as w:
        feed = Feed(w.manager, interval=EVERY)
        with watched(w, feed=feed) as page:
            await hear(*page)
        await asyncio.sleep(LINGER + EVERY)
        before = searches(w.nodes[0])
        assert before <= 2
        await asyncio.sleep(100 * EVERY)
        assert searches(w.nodes[0]) == before
        async with w.manager.lock("a"):
            with watched(w, feed=feed) as (page2, stream):
                assert (await hear(page2, stream)).events == ["state"]
                assert list(page2.locks) == ["a"]
                assert page2.head["since_last"]["granted"] == 0  # it was not seen whether that was just now


@virtual
async def test_a_page_that_was_slow_gets_all():
    """It has no queue: what it missed is in the state."""
    async with world() as w:
        feed = Feed(w.manager, interval=EVERY)
        with watched(w, feed=feed) as slow, watched(w, feed=feed) as quick:
            await hear(*slow)
            await hear(*quick)
            async with w.manager.lock("missed"):
                await hear(*quick)
            lease = await w.manager.lock("kept").acquire()
            await hear(*quick)
            page = await hear(*slow)
            assert page.events == ["state", "state"]
            assert list(page.locks) == list(quick[0].locks) == ["kept"]
            await lease.release()
            await hear(*slow)
            assert page.events[-1] == "change"
            assert not page.locks


@virtual
async def test_a_page_goes_on_where_its_stream_broke_off():
    """By the id of what it heard last; an id of another process, or of long ago, brings the whole state."""
    async with world() as w:
        feed = Feed(w.manager, interval=EVERY)
        with watched(w, feed=feed) as (page, stream):
            await hear(page, stream)
            with contextlib.closing(feed.open(heard=page.last_id)) as again:
                await hear(page, again)
                assert page.events == ["state", "change"]
            for other in (
                "",
                "x",
                f"x-{page.last_id}",
                page.last_id + "0" * 99,
                page.last_id.split("-")[0] + "-1",
                page.last_id.split("-")[0] + "-9",
            ):
                with contextlib.closing(feed.open(heard=other)) as again:
                    assert (await hear(Page(), again)).events == ["state"], other


@virtual
async def test_a_lock_is_followed():
    """From the first moment, with what happens to it: in the order in which it does, and each thing once."""
    async with world() as w, w.process(holder="you") as other:
        feed = Feed(w.manager, interval=EVERY)
        with watched(w, feed=feed) as first:
            await hear(*first)
            with watched(w, "a", feed=feed) as (page, stream):
                at = sim().time()
                await hear(page, stream)
                assert sim().time() - at < 1  # and does not wait for the next look
                assert page.lock["state"] == "free"
                async with other.lock("a") as lease:
                    await hear(page, stream)
                    assert (page.lock["holder"], page.locks["a"]["holder"]) == ("you", "you")
                    assert page.lock["highest_fence"] == page.locks["a"]["highest_fence"] == lease.fence
                    assert [node["fence_counter"] for node in page.lock["nodes"]] == [lease.fence] * 3
                    assert [node["held"] for node in page.lock["nodes"]] == [True] * 3
                await hear(page, stream)
                assert [each["what"] for each in page.happened] == ["free", "granted", "released"]
                with watched(w, "a", feed=feed) as later:
                    await hear(*later)
                    assert later[0].happened == page.happened


@virtual
async def test_a_stream_without_news_says_that_it_is_there(monkeypatch):
    """However long it is to the next look; and misses none for it."""
    monkeypatch.setattr(feeds, "KEEP_ALIVE", 2.0)
    async with world() as w:
        feed = Feed(w.manager, interval=5.0)
        with watched(w, feed=feed) as (page, stream):
            await hear(page, stream)
            at = sim().time()
            for _ in range(2):
                assert await stream.next() == ": nothing new\n\n"
            assert sim().time() - at == pytest.approx(4.0, abs=0.1)
            await hear(page, stream)
            assert page.events == ["state", "change"]


@pytest.mark.parametrize(
    ("away", "seen"),
    [(LINGER - 1.5, ["free", "granted"]), (LINGER + 2 * EVERY, ["held"])],
    ids=["short", "long"],
)
@virtual
async def test_a_page_that_is_loaded_again_has_its_history(away, seen):
    """Looking goes on for some seconds, also when it was the only page; later a history starts again.

    What was seen long ago says nothing of when things have happened since.
    """
    async with world() as w:
        feed = Feed(w.manager, interval=1.0)
        with watched(w, "a", feed=feed) as first:
            await hear(*first)
        async with w.manager.lock("a"):
            await asyncio.sleep(away)
            assert bool(feed._followed) is (away < LINGER)
            with watched(w, "a", feed=feed) as (page, stream):
                await hear(page, stream)
                assert [each["what"] for each in page.happened] == seen


@virtual
async def test_what_was_seen_stays_while_nothing_can_be():
    """A page says that it is old; and goes on when it is over."""
    async with world() as w, w.manager.lock("a"):
        feed = Feed(w.manager, interval=EVERY)
        with watched(w, feed=feed) as (page, stream):
            await hear(page, stream)
            with pytest.MonkeyPatch.context() as patch:

                async def fail(*_, **__):
                    raise RuntimeError("a bug")

                patch.setattr(feeds, "look", fail)
                await hear(page, stream)
                assert page.problem == "the nodes could not be polled: the log says why"
                with watched(w, feed=feed) as later:
                    await hear(*later)
                    assert later[0].events == ["state", "problem"]
            assert list(page.locks) == ["a"]
            await hear(page, stream)
            assert page.problem is None


@virtual
async def test_a_lock_that_no_node_tells_of_is_unknown():
    """And not gone: what was known of it stays, and nothing has happened to it."""
    async with world() as w, w.manager.lock("a", ttl=1000), w.process() as other:
        for node in w.nodes:
            node.set(PREFIX + b"\xff", b"another program's", None)
        with watched(w, "a", feed=Feed(other, interval=EVERY)) as (page, stream):
            holder = (await hear(page, stream)).locks["a"]["holder"]
            for node in w.nodes:
                node.freeze()
            await hear(page, stream)
            assert page.head["answered"] == 0
            assert (page.locks["a"]["state"], page.locks["a"]["holder"]) == ("unknown", holder)
            for node in w.nodes:
                node.thaw()
            while page.locks["a"]["state"] != "held":
                await hear(page, stream)
                assert page.problem is None
                happened = page.head["since_last"]
                assert not any(happened[what] for what in ("released", "expired", "handed_over"))
            history = [each["what"] for each in page.happened]
            assert history == ["held"] + ["silent"] * 3 + ["agrees"] * 3


@virtual
async def test_streams_and_pages_are_limited():
    """More are refused, and take nothing from those that are open."""
    async with world() as w:
        feed = Feed(w.manager, interval=EVERY)
        with contextlib.ExitStack() as stack:
            for number in range(MAX_FOLLOWED):
                with contextlib.closing(feed.open(f"closed {number}")):
                    assert len(feed._followed) <= MAX_FOLLOWED, "what is closed is not in the way"
                stack.enter_context(contextlib.closing(feed.open(f"lock {number}")))
            with (
                pytest.raises(TooManyError, match="locks are open"),
                contextlib.closing(feed.open("one more")),
            ):
                pass
            stack.enter_context(contextlib.closing(feed.open("lock 0")))
            for _ in range(MAX_STREAMS - MAX_FOLLOWED - 1):
                stack.enter_context(contextlib.closing(feed.open()))
            with pytest.raises(TooManyError, match="close one"), contextlib.closing(feed.open()):
                pass
        await asyncio.sleep(LINGER + 2 * EVERY)
        with contextlib.closing(feed.open("one more")):
            pass


@virtual
async def test_all_streams_end_when_the_page_goes():
    """Also one that waits for its first news."""
    async with world() as w:
        feed = Feed(w.manager, interval=EVERY)
        with contextlib.closing(feed.open()) as stream:
            waiting = asyncio.create_task(stream.next())
            await asyncio.sleep(0)
            feed.close()
            assert await waiting is None
            assert await stream.next() is None
        tasks = asyncio.all_tasks()
        with contextlib.closing(feed.open()) as late:
            assert await late.next() is None
            assert asyncio.all_tasks() == tasks, "a browser that comes then has nothing looked at"


@virtual
async def test_a_look_that_costs_much_is_made_seldom(monkeypatch):
    """At most a twentieth of a processor: the page shows the time from one look to the next."""
    spent = iter(range(1000))
    monkeypatch.setattr(
        feeds.time, "thread_time", lambda: next(spent) * 0.5
    )  # each look takes half a second of it
    async with world() as w:
        feed = Feed(w.manager, interval=1.0)
        with watched(w, feed=feed) as (page, stream):
            await hear(page, stream)
            at = sim().time()
            await hear(page, stream)
            assert sim().time() - at == pytest.approx(10.0, abs=0.5)
            assert page.head["interval"] == 10.0
