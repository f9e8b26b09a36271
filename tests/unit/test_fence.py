"""Fences: numbers that a majority agrees on, unique and growing whatever is lost (R10, R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from aioredlock_ng import ConfigurationError, Lease, Lock, LockManager, Vote
from aioredlock_ng.errors import QuorumUnavailableError
from aioredlock_ng.events import Acquired
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import in_task, sim
from tests.unit.traces import Heard, count, counter, sent
from tests.unit.worlds import LATENCY, PLAIN, ROUND_TRIP, TIMEOUT, World, ago, each, opened, put, world

EPSILON = 1e-6
HOUR = 3600.0

SETTLED: Final = 3.0
"""Seconds after which nodes that lost their data can follow each other's floors: 12 s ahead, at most 10 s
are allowed to be caught up."""


def stands(w: World, name: str) -> list[int | None]:
    """Return where each node's counter for a name stands."""
    values = [node.get(counter(name)) for node in w.nodes]
    return [None if value is None else int(value) for value in values]


def tries(w: World) -> tuple[int, int, int]:
    """Return how many fences took one round, two, and how many tries came to none."""
    statistics = w.manager.statistics()
    return statistics.certified, statistics.raised, statistics.uncertified


async def fence_of(manager: LockManager, *names: str, **options: Any) -> int:
    """Lock and unlock; return the fence."""
    async with manager.lock(*names, **options) as lease:
        assert lease.fence is not None
        return lease.fence


# -- agreement -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3])
async def test_nodes_that_agree_above_the_ballot_are_asked_for_all_locks_at_once(number: int) -> None:
    """After `init` all counters begin at one floor, above every ballot: releases need raise no counter."""
    async with world(number) as w:
        await w.manager.init()
        for node in w.nodes:
            node.executed.clear()
        leases = await asyncio.gather(*(w.manager.lock(f"{i}").acquire() for i in range(20)))
        assert all(lease.fence and lease.fence > ago(0) for lease in leases)
        await asyncio.gather(*(lease.release() for lease in leases))
        assert [len(node.executed) for node in w.nodes] == [2] * number


@pytest.mark.parametrize("number", [1, 2, 3, 5])
async def test_nodes_that_agree_make_a_fence_in_one_round(number: int) -> None:
    """The answers to the acquire are the certificate: every counter equals the fence, after one round trip
    (R10).
    """
    heard = Heard()
    async with world(number, hooks=[heard]) as w:
        for _ in range(3):
            began = sim().time()
            lease = await w.manager.lock("a").acquire()
            assert sim().time() - began <= ROUND_TRIP + EPSILON
            await asyncio.sleep(LATENCY)
            assert isinstance(lease.fence, int)
            assert stands(w, "a") == [lease.fence] * number
            assert f"fence={lease.fence}" in repr(lease)
            assert heard.of(Acquired)[-1].fence == lease.fence
            await lease.release()
        fences = [event.fence for event in heard.of(Acquired)]
        assert fences == sorted(set(fences))
        assert tries(w) == (3, 0, 0)
        assert all(count(node, "raise") == 0 for node in w.nodes)


# -- disagreement --------------------------------------------------------------------------------------


async def test_nodes_that_disagree_are_raised_to_the_greatest() -> None:
    """A second round lifts those below the greatest counter, and only those; it is the fence (R10)."""
    async with world() as w:
        greatest = ago(2)
        put(w, "a", ago(4), greatest, None)
        began = sim().time()
        async with w.manager.lock("a") as lease:
            assert sim().time() - began <= 2 * ROUND_TRIP + EPSILON
            await asyncio.sleep(LATENCY)
            assert lease.fence == greatest + 2
            assert stands(w, "a") == [lease.fence] * 3
            assert [count(node, "raise", "a") for node in w.nodes] == [1, 0, 1]
        assert tries(w) == (0, 1, 0)


async def test_the_round_that_raises_takes_from_the_validity() -> None:
    """Keys live from the first question on: agreeing on a fence does not begin their time again (R3, R10)."""
    async with world() as w:
        put(w, "a", ago(4), ago(2), None)
        asked_at = sim().clock.now()
        lease = await w.manager.lock("a", ttl=10.0).acquire()
        assert tries(w) == (0, 1, 0)
        assert lease.valid_until == pytest.approx(asked_at + 10.0 - 0.102, abs=EPSILON)


async def _uncertified(w: World, number: int = 1) -> QuorumUnavailableError:
    """Let a try fail for want of a certificate; return its error."""
    end = await in_task(w.manager.lock("a", blocking_timeout=0).acquire)
    assert isinstance(end.error, QuorumUnavailableError)
    assert tries(w) == (0, 0, number)
    return end.error


async def test_without_a_certificate_the_try_is_lost() -> None:
    """Nodes that can follow none of the counters: no fence, no lock, no key; the error says so (R10)."""
    async with world() as w:
        put(w, "a", ago(-11.5), ago(-11.2), ago(-11.1))
        error = await _uncertified(w)
        assert "did not agree on a fence" in str(error)
        assert [vote.vote for vote in error.votes].count(Vote.SILENT) == 2
        assert all(vote.reason for vote in error.votes if vote.vote is Vote.SILENT)
        await asyncio.sleep(ROUND_TRIP)
        assert w.keys == [()] * 3
        assert w.manager.statistics().refused == 1
        _, before, _ = sorted(fence for fence in stands(w, "a") if fence is not None)
        began = sim().time()
        assert await fence_of(w.manager, "a") > before, "above what two of them had"
        assert 1 < sim().time() - began < SETTLED, "as soon as the clocks allow it"


async def test_the_same_name_again_is_proposed_above_its_last_fence() -> None:
    """Where the counter is beyond the clock's ballot, as it is for a moment after each lock, too (R10)."""
    async with world() as w:
        stands = ago(0)
        put(w, "a", stands, stands, stands)
        fences = [await fence_of(w.manager, "a") for _ in range(3)]
        first, *others = _ballots(w.nodes[0])
        assert first < stands < fences[0], "the clock's"
        assert others == [fence + 1 for fence in fences[:-1]]
        assert fences == sorted(set(fences))


async def test_a_single_try_has_time_left_to_raise_counters() -> None:
    """It has a `node_timeout`, of which the first round may take a good part (R10)."""
    async with world(latency=0.2 * TIMEOUT) as w:
        put(w, "a", ago(-1), ago(-2), ago(-3))
        lease = await w.manager.lock("a").try_acquire()
        assert lease is not None
        assert tries(w) == (0, 1, 0)
        await lease.release()


def _acquires(node: MemoryNode) -> list[Any]:
    return [one for one in sent(node) if one.kind == "acquire"]


def _ballots(node: MemoryNode) -> list[int]:
    return [int(one.words[one.words.index(one.owner) + 2]) for one in _acquires(node)]


# -- in passing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("repair", [False, True], ids=["_extend", "_repair"])
@pytest.mark.parametrize("by", [None, -1000, 500])
async def test_a_node_that_is_late_is_raised_in_passing(repair: bool, by: int | None) -> None:
    """Extension and repair carry the fence: counters below it follow, none is ever lowered (R10)."""
    async with world() as w, w.manager.lock("a", extension=PLAIN) as lease:
        assert lease.fence is not None
        await asyncio.sleep(1)
        _move(w.nodes[2], lease, by)
        if repair:
            w.vacate("a", 2)
        await lease.extend()
        await asyncio.sleep(ROUND_TRIP)
        assert stands(w, "a") == [lease.fence, lease.fence, lease.fence + max(0, by or 0)]


KINDS: Final[dict[str, Callable[[LockManager], Lock]]] = {
    "lock": lambda manager: manager.lock("a", extension=PLAIN),
    "two names": lambda manager: manager.lock("a", "b", extension=PLAIN),
    "writer": lambda manager: manager.rwlock("a", extension=PLAIN).write(),
    "permit": lambda manager: manager.semaphore("a", permits=1, extension=PLAIN),
    "fair": lambda manager: manager.lock("a", fair=True, extension=PLAIN),
}
"""All but the first are asked for in no batch."""


@pytest.mark.parametrize(
    ("kind", "by"), [*((kind, 0) for kind in KINDS), ("lock", None), ("lock", -1000), ("lock", 500)]
)
async def test_a_release_raises_in_passing_where_a_node_is_known_to_stand_elsewhere(
    kind: str, by: int | None
) -> None:
    """It carries the fence then: counters below it follow, none is ever lowered (R10)."""
    # A clock that is behind what is proposed: the node grants, with a lower fence.
    nodes = [MemoryNode(latency=LATENCY, clock_offset=offset) for offset in (0.0, 0.0, -12.0)]
    async with opened(nodes) as manager, KINDS[kind](manager) as lease:
        w, look = World(nodes, manager), slot_stands if kind == "permit" else stands
        assert lease.fence is not None
        await asyncio.sleep(1)
        one, two, behind = look(w, "a")
        assert (one, two) == (lease.fence, lease.fence)
        assert behind is not None
        assert behind < lease.fence
        if by != 0:
            _move(nodes[2], lease, by)
        await lease.release()
        await asyncio.sleep(ROUND_TRIP)
        assert look(w, "a") == [lease.fence, lease.fence, lease.fence + max(0, by or 0)]


def _move(node: MemoryNode, lease: Lease, by: int | None) -> None:
    """Have a node stand so far from the fence of a lease, or have no counter."""
    if by is None:
        node.delete(counter("a"))
    else:
        node.set(counter("a"), b"%d" % ((lease.fence or 0) + by), 600.0)


def slot_stands(w: World, name: str) -> list[int | None]:
    """Return where each node's counter for the only slot of a semaphore stands."""
    key = counter(name).replace(b"fence:", b"slots:")
    return [int(node._server.fields(key)[b"0"]) for node in w.nodes]


# -- several names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("heights", [(0, 0, 0), (1, 2, 3), (3, 1, 2), (5, 5, 0)])
async def test_several_names_share_one_fence(heights: tuple[int, ...]) -> None:
    """It is greater than all that their counters had, they all stand at it, and each name goes on above it
    (R10).
    """
    async with world() as w:
        before = [0]
        for name, height in zip("abc", heights, strict=True):
            before += [await fence_of(w.manager, name) for _ in range(height)]
        async with w.manager.lock("c", "a", "b") as lease:
            await asyncio.sleep(LATENCY)
            assert lease.fence is not None
            assert lease.fence > max(before)
            assert [stands(w, name) for name in "abc"] == [[lease.fence] * 3] * 3
        assert [await fence_of(w.manager, name) > lease.fence for name in "abc"] == [True] * 3


# -- what is lost --------------------------------------------------------------------------------------


async def _counters_expire(w: World) -> None:
    await asyncio.sleep(310)  # up to 10 s ahead when they were made, and kept until `start` is past that
    assert stands(w, "a") == [None] * 3


async def _counters_vanish(w: World) -> None:
    """The counters of a majority, with their incarnation records: all that a node knows."""
    each(w.nodes[:2]).flush()
    await asyncio.sleep(SETTLED)


async def _all_restart(w: World) -> None:
    each(w.nodes).restart()
    await asyncio.sleep(SETTLED)


async def _one_restarts(w: World) -> None:
    w.nodes.append(w.nodes.pop(0))
    w.nodes[0].restart()
    await asyncio.sleep(1)


LOSSES = [
    pytest.param(_counters_expire, marks=pytest.mark.heavy),
    _counters_vanish,
    _all_restart,
    _one_restarts,
]


@pytest.mark.parametrize("loss", LOSSES)
async def test_fences_grow_whatever_is_lost(loss: Callable[[World], Awaitable[None]]) -> None:
    """Whichever of two processes comes next, whatever the nodes forgot: its fence is greater (R10, R11)."""
    fences: list[int] = []
    async with world(fence_ttl=300) as w, w.process(fence_ttl=300) as other:
        put(w, "a", *[ago(-9.9)] * 3)  # as high as they can be raised
        for number in range(8):
            manager = (w.manager, other)[number % 2]
            fences.append(await fence_of(manager, "a", blocking_timeout=5))
            await loss(w)
    assert fences == sorted(set(fences))


@pytest.mark.heavy
async def test_a_thousand_in_a_millisecond_do_not_run_away() -> None:
    """More acquires than a millisecond has numbers: the counters stay below what a loss makes up for
    (R10, R11).
    """
    async with world(latency=0.0) as w:
        fences = [await fence_of(w.manager, "a") for _ in range(3000)]
        assert sim().time() < 1000 + 1
        assert fences == sorted(set(fences))
        assert max(fences) < ago(-12)
        each(w.nodes).restart()
        await asyncio.sleep(SETTLED)
        assert await fence_of(w.manager, "a") > fences[-1]


# -- wrong clocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, pytest.param(3, marks=pytest.mark.heavy)])
async def test_a_counter_outlives_a_clock_that_was_ahead(number: int) -> None:
    """A majority's clocks are an hour ahead for a lock's turn and come back: after one more turn and more
    than a `fence_ttl` of rest, what counters start with would be below what they were (R11).
    """
    async with world(number) as w:
        ahead = w.nodes[: number // 2 + 1]
        fences = [await fence_of(w.manager, "a")]
        for seconds, rest in ((HOUR, 5), (-HOUR, 5), (0, 700)):
            each(ahead).step_clock(seconds)
            await asyncio.sleep(5)
            fences.append(await fence_of(w.manager, "a", blocking_timeout=30))
            await asyncio.sleep(rest)
        fences.append(await fence_of(w.manager, "a", blocking_timeout=30))
    assert fences == sorted(set(fences))


async def test_a_lease_has_only_the_numbers_of_its_kind() -> None:
    """A fence that the manager does not ask for, and a slot of no permit, are errors that name what to do."""
    async with world(fencing=False) as w, w.manager.lock("a") as lease:
        assert "fence" not in repr(lease)
        with pytest.raises(ConfigurationError, match=r"lock 'a': .* fencing=False: leave that option out"):
            lease.fence  # noqa: B018
        with pytest.raises(
            TypeError, match=r"only a lease of `LockManager\.semaphore` has a slot, got <Lease"
        ):
            lease.slot  # noqa: B018
