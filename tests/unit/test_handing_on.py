"""Handing on: a lock goes from one task of a process to the next without a word to the nodes (R43)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, Final

import pytest

from aioredlock_ng import (
    ConfigurationError,
    ExtensionPolicy,
    Lease,
    LockLostError,
    LockManager,
    LockNotAcquiredError,
    LossReason,
    ManagerClosedError,
    ReleaseOutcome,
    Vote,
    WouldDeadlockError,
)
from aioredlock_ng._core.fencing import MAX_BLOCK
from aioredlock_ng._hold.succession import Grant
from aioredlock_ng._local import handoff
from aioredlock_ng._local.handoff import WINDOW, YIELD
from aioredlock_ng.events import Acquired, GaveUp, Hooks, Lost, Released
from aioredlock_ng.testing import MemoryNode, bypass, lose
from tests.listening import listen_in_memory
from tests.unit.worlds import (
    LATENCY,
    PLAIN,
    PREFIX,
    TTL,
    World,
    ago,
    count,
    counter,
    in_task,
    opened,
    put,
    sent,
    sim,
    turns,
    until,
    virtual,
    world,
)

NAME: Final = "a"
ROUND_TRIP: Final = 2 * LATENCY
SHORT: Final = 0.2
"""Seconds: a ttl of which much is over before a window is."""

BOTH: Final = pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])


class Begun:
    """A coroutine that has run up to its first pause."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._steps = coroutine.__await__()
        self._pause = next(self._steps)

    def __await__(self) -> Generator[Any, Any, None]:
        """Go on."""
        yield self._pause
        yield from self._steps


class Diary(Hooks):
    """Writes down what is told of a lock."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_acquired(self, event: Acquired) -> None:
        """Note it."""
        self.told.append(event)

    on_gave_up = on_lost = on_released = on_acquired  # type: ignore[assignment]

    def of(self, kind: type[Any]) -> list[Any]:
        """Return what is of a kind."""
        return [event for event in self.told if type(event) is kind]


def commands(w: World) -> list[int]:
    """Return how many commands for locks each node has executed."""
    return [sum(one.kind in ("acquire", "extend", "release", "raise") for one in sent(n)) for n in w.nodes]


def stands(w: World) -> set[int | None]:
    """Return where the nodes' counters stand."""
    values = [node.get(counter(NAME)) for node in w.nodes]
    return {None if value is None else int(value) for value in values}


def blocks(w: World) -> list[int]:
    """Return how many fences each acquire has asked for."""
    acquires = [one for one in sent(w.nodes[0]) if one.kind == "acquire"]
    return [int(one.words[one.words.index(one.owner) + 3]) for one in acquires]


async def holder(w: World, **options: Any) -> Lease:
    """Take the lock as a task that another of its process has let in: with a block of fences."""
    first = await w.manager.lock(NAME, ttl=TTL + 1).acquire()
    task = asyncio.create_task(w.manager.lock(NAME, **options).acquire())
    await turns(3)
    await first.release()
    return await task


def waits(w: World, **options: Any) -> asyncio.Task[Lease]:
    """Have a task wait for the lock."""
    return asyncio.create_task(w.manager.lock(NAME, **options).acquire())


@contextlib.asynccontextmanager
async def at_the_end(w: World) -> AsyncIterator[None]:
    """Check that nothing is left behind, on the nodes or in the process."""
    yield
    await asyncio.sleep(1)
    assert w.keys == [()] * len(w.nodes)
    session = w.manager._life.session
    assert session is not None
    assert not session.queue.entries
    assert not session.holdings.all
    assert not session.succession._untaken
    assert session.admission.in_flight == 0


# -- what goes on, and what does not ---------------------------------------------------------------------


@BOTH
def test_a_lock_is_handed_on_without_a_word_to_the_nodes(fencing: bool) -> None:
    """The next task has it in the same moment, as it is; the lease before ends like any other."""

    @virtual
    async def main() -> None:
        async with world(5, fencing=fencing) as w, at_the_end(w):
            one = await holder(w)
            task = waits(w)
            await asyncio.sleep(0.01)
            before, released = commands(w), sim().time()
            report = await one.release()
            two = await task
            assert sim().time() == released
            assert commands(w) == before
            assert report.count(ReleaseOutcome.HANDED_ON) == 5
            assert all("another task" in node.reason or "a task of" in node.reason for node in report.nodes)
            assert (await one.release()).count(ReleaseOutcome.HANDED_ON) == 5, "whenever it is asked again"
            assert two._holding.owner == one._holding.owner
            assert two.valid_until == one.valid_until
            assert [vote.vote for vote in two.votes] == [Vote.GRANTED] * 5
            assert two.fence == (one.fence + 1 if one.fence else None)
            assert (one.held, two.held) == (False, True)
            await two.release()

    main()


@virtual
async def test_the_lease_that_is_left_is_over():
    """It cannot be extended or used again: it was released, though the nodes have its owner value still."""
    async with world() as w, at_the_end(w):
        one = await holder(w)
        task = waits(w)
        await turns(2)
        await one.release()
        two = await task
        for use in (one.extend, lambda: asyncio.sleep(0, one.check())):
            with pytest.raises(LockLostError) as caught:
                await use()
            assert caught.value.reason is LossReason.RELEASED
        assert not one.lost.is_set()
        two.check()
        await two.extend()
        await two.release()


@virtual
async def test_each_lease_has_a_fence_of_the_block():
    """One after the other, up to the number at which the nodes' counters stand from the beginning."""
    async with world() as w, at_the_end(w):
        lease = await holder(w)
        fences = [lease.fence]
        acquires = count(w.nodes[0], "acquire")
        assert stands(w) == {(lease.fence or 0) + MAX_BLOCK - 1}
        for _ in range(MAX_BLOCK - 1):
            task = waits(w)
            await turns(2)
            await lease.release()
            lease = await task
            fences.append(lease.fence)
        assert count(w.nodes[0], "acquire") == acquires
        assert fences == list(range(fences[0] or 0, (fences[0] or 0) + MAX_BLOCK))
        assert stands(w) == {fences[-1]}
        # The block is used up: the nodes are asked for another one.
        task = waits(w)
        await turns(2)
        await lease.release()
        after = await task
        assert count(w.nodes[0], "acquire") == acquires + 1
        assert (after.fence or 0) > (fences[-1] or 0)
        await after.release()


@virtual
async def test_fences_are_asked_for_where_they_may_be_needed():
    """One for a name that no other task wants; a block where one waits, or has just had it."""
    async with world() as w, at_the_end(w):
        lease = await w.manager.lock(NAME).acquire()
        tasks = [waits(w, ttl=TTL + number) for number in range(1, 3)]
        await turns(2)
        await lease.release()
        for task in tasks:
            await (await task).release()
        assert blocks(w) == [1, MAX_BLOCK, MAX_BLOCK]
        both = await w.manager.lock(NAME, "b").acquire()
        task = asyncio.create_task(w.manager.lock(NAME, "b").acquire())
        await turns(2)
        await both.release()
        await (await task).release()
        assert blocks(w)[3:] == [1, 1], "several names are never handed on"


@virtual
async def test_a_fence_dates_from_the_acquire_of_its_block():
    """The nodes have forgotten the lock, and another process has won it: its fence is the greater one (A2).

    So a resource that has seen it refuses the heir of the lock that was lost, as it refuses its first holder.
    """
    async with world() as w, w.process() as other:
        one = await holder(w)
        w.vacate(NAME)
        elsewhere = await other.lock(NAME).acquire()
        task = waits(w)
        await turns(2)
        await one.release()
        heir = await task
        assert (one.fence or 0) < (heir.fence or 0) < (elsewhere.fence or 0)
        with pytest.raises(LockLostError):
            await heir.extend()
        await heir.release()
        after = in_task(w.manager.lock(NAME).acquire)
        await elsewhere.release()
        assert (await after).error is None


# -- when the nodes are asked all the same ---------------------------------------------------------------


async def refuses(
    w: World,
    one: Lease,
    *,
    next_options: dict[str, Any] | None = None,
    before: Callable[[], Any] | None = None,
) -> Lease:
    """Have another task wait for what `one` has, release that, and see that the nodes were asked."""
    task = waits(w, **(next_options or {}))
    await turns(2)
    extending = before() if before is not None else None
    await turns(2)
    owner, acquires = one._holding.owner, count(w.nodes[0], "acquire")
    report = await one.release()
    assert report.count(ReleaseOutcome.HANDED_ON) == 0
    two = await task
    if extending is not None:
        await asyncio.gather(extending, return_exceptions=True)
    assert two._holding.owner != owner
    assert (two.fence or 0) > (one.fence or 0) or one.fence is None
    assert count(w.nodes[0], "acquire") == acquires + 1
    await two.release()
    return two


@pytest.mark.parametrize("ttl", [TTL / 2, TTL - 0.001, TTL + 0.001, 2 * TTL])
@BOTH
def test_an_heir_wants_the_same_ttl(ttl: float, fencing: bool) -> None:
    """A shorter one would be kept from others for longer after a crash; a longer one would not be covered."""

    @virtual
    async def main() -> None:
        async with world(fencing=fencing) as w, at_the_end(w):
            await refuses(w, await holder(w), next_options={"ttl": ttl})

    main()


@pytest.mark.parametrize("of", ["the heir", "the lease before"])
@virtual
async def test_what_stays_taken_is_not_handed_on(of):
    """With `at_least` the name is to stay taken since it was asked for (R34)."""
    async with world() as w:
        options = {"at_least": 0.02}
        one = await holder(w, **(options if of == "the lease before" else {}))
        await asyncio.sleep(0.03 if of == "the lease before" else 0)
        await refuses(w, one, next_options=options if of == "the heir" else None)


@BOTH
def test_much_validity_must_be_left(fencing: bool) -> None:
    """Seven eighths of the ttl and more: it is good enough; less: the nodes are asked for a new one."""

    @virtual
    async def main() -> None:
        async with world(fencing=fencing) as w, at_the_end(w):
            for late in (False, True):
                one = await holder(w, ttl=SHORT, extension=PLAIN)
                task = waits(w, ttl=SHORT, extension=PLAIN)
                await until(one.valid_until - 7 / 8 * SHORT + late * 0.001 - 0.0005)
                owner = one._holding.owner
                await one.release()
                two = await task
                assert (two._holding.owner == owner) is not late
                await two.release()
                await asyncio.sleep(1)

    main()


@virtual
async def test_what_lives_longer_than_asked_is_not_handed_on():
    """A lease was extended by more than its ttl: the keys outlive what the next task wants."""
    async with world() as w, at_the_end(w):
        one = await holder(w)
        await one.extend(2 * TTL)
        await refuses(w, one)


@virtual
async def test_a_ttl_that_may_have_been_prolonged_is_not_handed_on():
    """An extension to a longer ttl found no quorum: some nodes may let the keys live that long."""
    async with world() as w:
        one = await holder(w, extension=PLAIN)
        for node in w.nodes[:2]:
            node.refuse("LOADING Redis is loading the dataset in memory")
        with pytest.raises(LockNotAcquiredError):
            await one.extend(2 * TTL)
        for node in w.nodes[:2]:
            node.refuse("")
        await refuses(w, one)


@virtual
async def test_an_extension_under_way_is_waited_for_by_none():
    """The nodes may be about to say that the lock is lost: they are asked."""
    async with world() as w, at_the_end(w):
        one = await holder(w)
        await refuses(w, one, before=lambda: asyncio.ensure_future(_begun(one)))


async def _begun(lease: Lease) -> None:
    await lease.extend()


@virtual
async def test_a_lock_that_was_lost_is_not_handed_on():
    """Whether by the clock or by the nodes: the next task asks."""
    for reason in (LossReason.REFUSED, LossReason.EXPIRED):
        async with world() as w, at_the_end(w):
            one = await holder(w)
            owner, acquires = one._holding.owner, count(w.nodes[0], "acquire")
            task = waits(w)
            await turns(2)
            lose(w.manager, NAME, reason)
            await one.release()
            two = await task
            assert two._holding.owner != owner
            assert count(w.nodes[0], "acquire") > acquires
            await two.release()


@virtual
async def test_a_lock_past_its_time_is_not_handed_on():
    """The loop stood still under it: its end has come, whether or not the watchdog has seen it."""
    async with world() as w:
        one = await holder(w, extension=PLAIN)
        task = waits(w, extension=PLAIN)
        await turns(2)
        sim().advance(TTL)
        report = await one.release()
        assert report.count(ReleaseOutcome.HANDED_ON) == 0
        assert one._holding.loss is LossReason.EXPIRED
        two = await task
        assert two._holding.owner != one._holding.owner
        await two.release()


@virtual
async def test_the_next_in_line_wants_this_name_alone():
    """One that waits for another name, too, asks for both; and it is not passed over."""
    async with world() as w, at_the_end(w):
        one = await holder(w)
        order: list[int] = []

        async def wants(*names: str) -> None:
            async with w.manager.lock(*names):
                order.append(len(names))

        tasks = [in_task(lambda: wants(NAME, "b")), in_task(lambda: wants(NAME))]
        await turns(3)
        assert (await one.release()).count(ReleaseOutcome.HANDED_ON) == 0
        await asyncio.gather(*tasks)
        assert order == [2, 1]


@pytest.mark.parametrize("wants", ["writer", "reader", "fair", "leader"])
@virtual
async def test_the_next_in_line_wants_the_same_kind(wants):
    """One of another kind asks the nodes itself, and has a lease of its own kind."""
    async with world() as w, at_the_end(w):
        one = await holder(w)
        locks = {
            "writer": w.manager.rwlock(NAME).write,
            "reader": w.manager.rwlock(NAME).read,
            "fair": lambda: w.manager.lock(NAME, fair=True),
        }
        lock = w.manager.election(NAME).campaign() if wants == "leader" else locks[wants]()
        asks = asyncio.create_task(lock.acquire() if wants != "leader" else lock.__aenter__())
        await turns(3)
        assert (await one.release()).count(ReleaseOutcome.HANDED_ON) == 0
        two = await asks
        assert getattr(two, "mode", None) == {"writer": "write", "reader": "read"}.get(wants)
        await (lock.__aexit__(None, None, None) if wants == "leader" else two.release())


@virtual
async def test_a_manager_that_cannot_lock_hands_nothing_on():
    """Two of its nodes are found to be one server: no lock can be trusted any more (A4)."""
    async with world() as w:
        one = await holder(w)
        task = waits(w)
        await turns(2)
        session = w.manager._life.session
        assert session is not None
        session.availability.conflict = "two nodes are one server"
        assert (await one.release()).count(ReleaseOutcome.HANDED_ON) == 0
        with pytest.raises(ConfigurationError):
            await task


# -- windows ---------------------------------------------------------------------------------------------


@virtual
async def test_a_window_ends_with_a_release_that_is_told():
    """After 50 ms the nodes hear of a release, all that listen are told, once, and others may ask first."""
    async with world() as w, at_the_end(w):
        listener = listen_in_memory(w.nodes[0])
        await listener.subscribe(PREFIX + NAME.encode())
        lease = await holder(w)
        began, ends = sim().time(), []
        while True:
            task = waits(w)
            await asyncio.sleep(0.006)
            assert listener.told == []
            released, owner = sim().time(), lease._holding.owner
            await lease.release()
            lease = await task
            ends.append(lease._holding.owner == owner)
            if not ends[-1]:
                break
        await asyncio.sleep(LATENCY)
        assert 6 <= len(ends) <= 9
        assert len(listener.told) == 1
        assert released - began <= WINDOW + 0.006
        await lease.release()


@virtual
async def test_a_window_ends_after_so_many(monkeypatch):
    """However little time it takes: locks that are handed on count."""
    monkeypatch.setattr(handoff, "MAX_HAND_OFFS", 6)
    async with world(fencing=False) as w, at_the_end(w):
        lease = await w.manager.lock(NAME).acquire()
        same = []
        for _ in range(12):
            task = waits(w)
            await turns(2)
            owner = lease._holding.owner
            await lease.release()
            lease = await task
            same.append(lease._holding.owner == owner)
        assert same == ([True] * 5 + [False]) * 2
        await lease.release()


@virtual
async def test_a_stall_does_not_begin_a_window_anew():
    """An heir that wakes late has had the lock meanwhile, and others have not: the window goes on."""
    async with world() as w, at_the_end(w):
        one = await holder(w)
        task = waits(w)
        await turns(2)
        release = asyncio.create_task(one.release())
        await turns(1)
        sim().advance(YIELD + 0.001)
        await release
        two = await task
        assert two._holding.owner == one._holding.owner
        task = waits(w)
        await asyncio.sleep(WINDOW - YIELD)
        report = await two.release()
        assert report.count(ReleaseOutcome.HANDED_ON) == 0
        assert sent(w.nodes[0])[-1].words[-2] == b"1", "it is told"
        await (await task).release()


@virtual
async def test_the_last_of_a_process_tells_the_others():
    """No task is left to hand the lock to: an ordinary release, which lets another process in at once."""
    async with world() as w, w.process() as other, at_the_end(w):
        one = await holder(w)
        task = waits(w)
        elsewhere = in_task(other.lock(NAME).acquire)
        await asyncio.sleep(0.02)
        await one.release()
        two = await task
        await asyncio.sleep(0.01)
        assert not elsewhere.done()
        released = sim().time()
        assert (await two.release()).count(ReleaseOutcome.RELEASED) == 3
        assert (await elsewhere).at - released <= 0.01 + 4 * ROUND_TRIP


# -- what the heir's lease is like -----------------------------------------------------------------------


@virtual
async def test_an_heir_extends_by_its_own_policy():
    """Its extensions are counted from its beginning, and tell the nodes the block's last fence (R8, R10)."""
    async with world() as w, at_the_end(w):
        one = await holder(w)
        await one.extend()
        task = waits(w, extension=ExtensionPolicy(max_extensions=2))
        await turns(2)
        await one.release()
        two = await task
        assert (one.extensions, two.extensions) == (1, 0)
        top = stands(w)
        w.nodes[2].set(counter(NAME), b"%d" % ((one.fence or 0) - 5), 600.0)
        await two.extend()
        await asyncio.sleep(ROUND_TRIP)
        assert two.extensions == 1
        assert stands(w) == top
        await asyncio.sleep(3 * TTL)
        with pytest.raises(LockLostError) as caught:
            two.check()
        assert caught.value.reason is LossReason.EXTENSIONS_EXHAUSTED
        await two.release()


@virtual
async def test_a_lease_is_extended_when_it_is_due_whichever_task_has_it():
    """The validity is the process's: it is extended in time, counted from the last round that was won."""
    async with world() as w, at_the_end(w):
        one = await holder(w, ttl=SHORT)
        asked = sim().time() - ROUND_TRIP
        task = waits(w, ttl=SHORT, extension=ExtensionPolicy(every=0.1))
        await until(asked + 0.05 * SHORT)
        await one.release()
        two = await task
        assert two._holding.owner == one._holding.owner
        await until(asked + 0.1 * SHORT)
        assert count(w.nodes[0], "extend") == 0
        await asyncio.sleep(2 * ROUND_TRIP)
        assert count(w.nodes[0], "extend") == 1
        assert two.extensions == 1
        await two.release()


@virtual
async def test_a_force_release_hits_whichever_lease_has_the_lock():
    """The heir's extension is refused by a majority: it loses the lock, and the lease before loses none."""
    diary = Diary()
    async with world(hooks=[diary]) as w:
        one = await holder(w, label="one")
        task = waits(w, label="two")
        await turns(2)
        await one.release()
        two = await task
        w.vacate(NAME)
        with pytest.raises(LockLostError) as caught:
            await two.extend()
        assert caught.value.reason is LossReason.REFUSED
        assert [event.label for event in diary.of(Lost)] == ["two"]
        await two.release()


@virtual
async def test_the_release_of_the_last_heir_reaches_every_node():
    """Also one that granted late, and one that was given its key back."""
    async with world(5) as w, at_the_end(w):
        w.nodes[4].latency = 0.05
        one = await holder(w)
        w.vacate(NAME, 3)
        await one.extend()
        task = waits(w)
        await turns(2)
        await one.release()
        two = await task
        await asyncio.sleep(0.2)
        assert all(w.keys)
        assert (await two.release()).count(ReleaseOutcome.RELEASED) == 5


@virtual
async def test_the_body_of_an_heir_would_wait_for_itself():
    """It holds the name like any other, and is the one whose body is stopped at a loss (R7)."""
    async with world() as w:
        one = await holder(w)

        async def body() -> None:
            async with w.manager.lock(NAME):
                with pytest.raises(WouldDeadlockError):
                    await w.manager.lock(NAME).acquire()
                lose(w.manager, NAME)
                await asyncio.sleep(1)

        task = in_task(body)
        await turns(2)
        await one.release()
        assert isinstance((await task).error, LockLostError)


@virtual
async def test_what_is_told_of_it():
    """Hooks are told of each lease; statistics list the one that is held, and count those handed on."""
    diary = Diary()
    async with world(hooks=[diary]) as w:
        one = await holder(w, label="one")
        task = waits(w, label="two")
        await asyncio.sleep(0.01)
        await one.release()
        two = await task
        statistics = w.manager.statistics()
        assert (statistics.held, statistics.acquired, statistics.handed_on, statistics.released) == (
            1,
            3,
            1,
            2,
        )
        (listed,) = statistics.leases
        assert (listed.label, listed.fence, listed.age) == ("two", two.fence, 0.0)
        assert await w.manager.lock(NAME).try_acquire() is None
        await asyncio.sleep(0.002)
        await two.release()
        acquired, released = diary.of(Acquired), diary.of(Released)
        assert [(event.label, event.attempts, event.handed_on) for event in acquired[1:]] == [
            ("one", 1, False),
            ("two", 0, True),
        ]
        assert acquired[-1].fence == two.fence
        assert acquired[-1].waited == pytest.approx(0.01)
        assert [(event.label, event.handed_on) for event in released[1:]] == [("one", True), ("two", False)]
        assert released[-1].held_for == pytest.approx(0.002)


@virtual
async def test_bypassed_locks_are_never_handed_on():
    """No task waits for another there: each call has a lock of its own, and its fences grow."""
    manager = LockManager(["redis://nowhere"] * 1)
    with bypass():
        one = await manager.lock(NAME).acquire()
        two = await manager.lock(NAME).acquire()
        assert (two.fence or 0) > (one.fence or 0)
        for lease in (one, two):
            assert (await lease.release()).count(ReleaseOutcome.RELEASED) == 1
    await manager.aclose()


# -- heirs that do not take it ---------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [0, 1, 2])
@BOTH
def test_an_heir_that_is_cancelled_passes_it_on(behind: int, fencing: bool) -> None:
    """To the next in line, with the next fence: none is given twice.  To none: it is released, and told."""

    @virtual
    async def main() -> None:
        diary = Diary()
        async with world(hooks=[diary], fencing=fencing) as w, at_the_end(w):
            listener = listen_in_memory(w.nodes[0])
            await listener.subscribe(PREFIX + NAME.encode())
            one = await holder(w)
            heir = in_task(w.manager.lock(NAME, label="heir").acquire)
            tasks = [waits(w) for _ in range(behind)]
            await turns(3)
            before = commands(w)
            release = asyncio.create_task(one.release())
            await turns(1)
            heir.cancel()
            assert isinstance((await heir).error, asyncio.CancelledError)
            await release
            await asyncio.sleep(ROUND_TRIP)
            assert [event.label for event in diary.of(GaveUp)] == ["heir"]
            assert all(event.label != "heir" for event in diary.of(Acquired) + diary.of(Released))
            if not behind:
                assert commands(w) == [number + 1 for number in before]
                assert len(listener.told) == 1
                return
            assert commands(w) == before
            two = await tasks[0]
            assert two.fence == (one.fence + 2 if one.fence else None)
            assert two._holding.owner == one._holding.owner
            await two.release()
            for task in tasks[1:]:
                await (await task).release()

    main()


@pytest.mark.parametrize("ends", ["cancelled", "late", "closed"])
@virtual
async def test_what_no_heir_takes_raises_the_nodes_that_are_behind(ends):
    """Its release carries the fence, as that of any lease does where a node granted below it (R10)."""
    nodes = [MemoryNode(latency=LATENCY, clock_offset=offset) for offset in (0.0, 0.0, -12.0)]
    async with opened(nodes) as manager:
        w = World(nodes, manager)
        one = await holder(w, extension=PLAIN)
        heir = in_task(manager.lock(NAME, extension=PLAIN).acquire)
        await turns(3)
        before = [int(node.get(counter(NAME))) for node in nodes]
        assert before[2] < before[0]
        one._holding.release()
        if ends == "cancelled":
            heir.cancel()
        elif ends == "late":
            sim().advance(TTL)
        else:
            await manager.aclose()
        await asyncio.sleep(ROUND_TRIP)
        stand = {int(node.get(counter(NAME))) for node in nodes}
        assert stand == {before[0]} if ends != "late" else min(stand) >= before[0]
        heir.cancel()
        await heir


@virtual
async def test_the_last_fence_of_a_block_may_go_to_an_heir_that_is_cancelled():
    """Then there is none for the task behind it, which asks for a block of its own."""
    async with world() as w, at_the_end(w):
        lease = await holder(w)
        for _ in range(MAX_BLOCK - 2):
            task = waits(w)
            await turns(2)
            await lease.release()
            lease = await task
        heir, behind = in_task(w.manager.lock(NAME).acquire), waits(w)
        await turns(3)
        release = asyncio.create_task(lease.release())
        await turns(1)
        heir.cancel()
        await asyncio.gather(heir, release)
        after = await behind
        assert after._holding.owner != lease._holding.owner
        assert (after.fence or 0) > (lease.fence or 0) + 1
        await after.release()


@virtual
async def test_an_heir_whose_time_is_up_gets_nothing():
    """Its wait ended in the moment of the release: the task behind it has the lock."""
    async with world() as w, at_the_end(w):
        one = await holder(w)
        late = in_task(w.manager.lock(NAME, blocking_timeout=0.01).acquire)
        behind = waits(w)
        await turns(3)
        ends = sim().time() + 0.01
        sim().call_at(ends, lambda: asyncio.ensure_future(one.release()))
        two = await behind
        assert sim().time() == pytest.approx(ends)
        assert two._holding.owner == one._holding.owner
        assert isinstance((await late).error, LockNotAcquiredError)
        await two.release()


@pytest.mark.parametrize("stall", [0.4 * TTL, 0.95 * TTL, TTL])
@virtual
async def test_an_heir_that_wakes_late_judges_what_it_was_given(stall):
    """As after any win: what is not valid for long enough is no lock, and the heir asks the nodes (R3)."""
    diary = Diary()
    async with world(hooks=[diary]) as w, at_the_end(w):
        one = await holder(w, extension=PLAIN)
        task = waits(w, extension=PLAIN)
        behind = waits(w, extension=PLAIN)
        await turns(3)
        release = asyncio.create_task(one.release())
        await turns(1)
        sim().advance(stall)
        went_on = sim().time()
        await release
        two = await task
        assert sim().time() - went_on <= 0.1, "its own keys are not in its way"
        inherited = stall < TTL / 2
        assert (two._holding.owner == one._holding.owner) is inherited
        assert diary.of(Acquired)[-1].handed_on is inherited
        assert two.remaining > (0 if inherited else 0.9 * TTL)
        assert not behind.done(), "it has kept its place"
        await two.release()
        await (await behind).release()
        assert not diary.of(Lost)


@virtual
async def test_a_manager_that_closes_releases_what_no_task_has_taken():
    """Between the hand-off and the waking of the heir: that gets no lease, and no key stays."""
    async with world() as w:
        one = await holder(w)
        tasks = [in_task(w.manager.lock(NAME).acquire) for _ in range(2)]
        await turns(3)
        session = w.manager._life.session
        assert session is not None
        one._holding.release()
        assert session.succession._untaken
        closing = Begun(w.manager.aclose())
        assert not session.succession._untaken, "it is not left to the heir"
        await closing
        for task in tasks:
            assert isinstance((await task).error, ManagerClosedError)
        await asyncio.sleep(ROUND_TRIP)
        assert w.keys == [()] * 3


@virtual
async def test_nodes_that_turn_out_to_be_one_server_end_it():
    """Between the hand-off and the waking of the heir: no lock can be trusted, and none is given."""
    async with world() as w, at_the_end(w):
        one = await holder(w)
        task = in_task(w.manager.lock(NAME).acquire)
        await turns(3)
        release = asyncio.create_task(one.release())
        await turns(1)
        session = w.manager._life.session
        assert session is not None
        session.availability.conflict = "two nodes are one server"
        assert isinstance((await task).error, ConfigurationError)
        await release
        session.availability.conflict = None


@virtual
async def test_an_heir_is_a_holder_to_those_that_come_meanwhile():
    """A single try is told that the name is held by this process, before the heir has gone on."""
    async with world() as w:
        one = await holder(w)
        task = waits(w)
        await turns(2)
        session = w.manager._life.session
        assert session is not None
        one._holding.release()
        assert isinstance(session.queue.entries[NAME].held, Grant)
        assert await w.manager.lock(NAME).try_acquire() is None
        await (await task).release()


# -- anything at all -------------------------------------------------------------------------------------


class Tasks:
    """Tasks of some processes that want one lock, and all that can happen to them."""

    def __init__(self, w: World, managers: list[LockManager], draw: random.Random) -> None:
        self._w = w
        self._managers = managers
        self._draw = draw
        self._inside: list[int] = []
        self.fences: list[int] = []
        """In the order of the grants."""
        self.handed_on = 0
        self.served = 0

    async def one(self, manager: LockManager) -> None:
        """Want the lock once, and use it in one way or another."""
        draw = self._draw
        ttl = draw.choice((TTL, TTL, TTL, TTL, 2 * TTL))
        patience = draw.choice((None, None, None, 0.0, 0.02, 1.0))
        with contextlib.suppress(LockNotAcquiredError, LockLostError, ManagerClosedError):
            async with manager.lock(NAME, ttl=ttl, blocking_timeout=patience) as lease:
                self.served += 1
                assert not self._inside, "two at once"
                self._inside.append(id(lease))
                try:
                    self.fences.append(lease.fence or 0)
                    await self._use(manager, lease)
                finally:
                    self._inside.remove(id(lease))

    async def _use(self, manager: LockManager, lease: Lease) -> None:
        draw = self._draw
        chance = draw.random()
        await asyncio.sleep(draw.choice((0, 0, 0.0005, 0.003)))
        if chance < 0.1:
            await lease.extend(draw.choice((None, 3 * TTL)))
        elif chance < 0.14:
            self._w.vacate(NAME)
            lose(manager, NAME)
            await asyncio.sleep(1)
        elif chance < 0.16:
            sim().advance(draw.choice((0.2, 0.6)) * TTL)
        lease.check()

    async def run(self) -> None:
        """Let them come and go."""
        draw = self._draw
        tasks: list[asyncio.Task[None]] = []
        for _ in range(150):
            comers = [self.one(draw.choice(self._managers)) for _ in range(draw.choice((1, 1, 2, 6)))]
            tasks.extend(map(asyncio.create_task, comers))
            await (turns(draw.randrange(4)) if draw.random() < 0.6 else asyncio.sleep(0.01 * draw.random()))
            alive = [task for task in tasks if not task.done()]
            for task in draw.sample(alive, min(len(alive), draw.choice((0, 0, 1, 1, 3)))):
                task.cancel()
        closed = self._managers[-1] if draw.random() < 0.5 and len(self._managers) > 1 else None
        if closed is not None:
            await closed.aclose()
        async with asyncio.timeout(120):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}, results


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.heavy) for block in range(1, 8))]
)
def test_whatever_happens_there_is_one_holder_with_a_fence_of_its_own(block: int) -> None:
    """In any order of acquires, releases, cancellations, losses, extensions, stalls and ends, and over two
    processes: one at a time, fences that grow from grant to grant, all served, nothing left.
    """
    handed_on = 0

    async def main(seed: int) -> None:
        nonlocal handed_on
        draw = random.Random(seed)
        latency = lambda: draw.uniform(0.0002, 0.002)  # noqa: E731
        async with (
            world(draw.choice((1, 3, 5)), latency=latency, seed=7000 + seed) as w,
            w.process() as other,
        ):
            if draw.random() < 0.7:  # counters are ahead of the time: nothing but acquires makes them grow
                put(w, NAME, *[ago(-5)] * len(w.nodes))
            tasks = Tasks(w, [w.manager, other] if draw.random() < 0.6 else [w.manager], draw)
            await tasks.run()
            for one, two in itertools.pairwise(tasks.fences):
                assert one < two
            assert tasks.served > 50
            await asyncio.sleep(1)
            assert w.keys == [()] * len(w.nodes)
            handed_on += w.manager.statistics().handed_on
            session = w.manager._life.session
            assert session is not None
            assert not session.queue.entries
            assert not session.holdings.all
            assert not session.succession._untaken
            assert session.admission.in_flight == 0

    for seed in range(3 * block, 3 * block + 3):
        virtual(main)(seed)
    assert handed_on > 50
