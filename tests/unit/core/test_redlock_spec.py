"""The Redlock page, rule by rule: "Distributed Locks with Redis" in the Redis documentation.

One test per statement that prescribes or promises something, in the page's order, grouped by the
page's headings.  The docstrings say the rule in other words.  Masters are in memory and time is
virtual, everything between is the shipping code.

Where the page's own command is the subject, it is sent as it stands there (`PLAIN`); all else is tested
with the defaults: fences, and incarnation records beside the locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import pytest

from aioredlock_ng import (
    ExtensionPolicy,
    Lease,
    LockError,
    LockManager,
    LockTakenError,
    QuorumUnavailableError,
    Vote,
)
from aioredlock_ng._core.validity import drift
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import sim
from tests.unit.traces import locks, sent
from tests.unit.worlds import each

KEY = b"redlock:res"
OTHER = b"another-client"
OFF = ExtensionPolicy.off()
PLAIN: dict[str, Any] = {"fencing": False, "restart_quarantine": 0}
"""The settings of a manager that sends the page's commands and nothing else."""


def masters(count: int, latency: float | Callable[[], float] = 0.001) -> list[MemoryNode]:
    """Make `count` independent masters."""
    return [MemoryNode(f"node-{number}", latency=latency) for number in range(count)]


@contextlib.asynccontextmanager
async def client(nodes: Sequence[Any], *, seed: int = 1, **options: Any) -> AsyncIterator[LockManager]:
    """Run one client of the masters on virtual time."""
    options.setdefault("holder", f"client-{seed}")
    async with LockManager(nodes, clock=sim().clock, random=random.Random(seed), **options) as manager:
        yield manager


def verbs(node: MemoryNode) -> list[str]:
    """Return what a master executed."""
    return [one.kind for one in sent(node)]


def holders(nodes: Iterable[MemoryNode], key: bytes = KEY) -> list[bytes | None]:
    """Return the value under the lock's key on every master."""
    return [node.get(key) for node in nodes]


def masks(count: int) -> list[tuple[bool, ...]]:
    """Return every way to split `count` masters in two."""
    return list(itertools.product((False, True), repeat=count))


@contextlib.asynccontextmanager
async def redlock(
    number: int = 5, *, latency: float | Callable[[], float] = 0.001, **options: Any
) -> AsyncIterator[tuple[list[MemoryNode], LockManager]]:
    """Run masters and one client; its leases are released at the end."""
    nodes = masters(number, latency)
    async with client(nodes, **options) as manager:
        yield nodes, manager


def occupy(nodes: Iterable[MemoryNode], ttl: float | None = 60.0) -> None:
    """Let another client have the key on some masters."""
    each(nodes).set(KEY, OTHER, ttl)


# == Safety and Liveness Guarantees ==================================================================


async def test_a_majority_of_masters_is_enough() -> None:
    """Liveness B: with any three of five masters up a client locks and releases; with fewer it cannot."""
    for up in masks(5):
        nodes = masters(5)
        each(itertools.compress(nodes, (not one for one in up))).crash()
        async with client(nodes) as manager:
            if sum(up) >= 3:
                report = await (await manager.lock("res", blocking_timeout=0).acquire()).release()
                assert report.count(report.nodes[up.index(True)].outcome) >= 3
                assert holders(nodes) == [None] * 5
            else:
                with pytest.raises(QuorumUnavailableError):
                    await manager.lock("res", blocking_timeout=0).acquire()


# == Correct Implementation with a Single Instance ===================================================


async def test_a_lock_is_taken_by_set_nx_px() -> None:
    """The key is set only if it is not there, with an expiry in milliseconds, in one command."""
    async with redlock(1, **PLAIN) as (nodes, manager), manager.lock("res", ttl=30):
        assert nodes[0].executed == [(b"SET", KEY, nodes[0].get(KEY), b"NX", b"PX", b"30000")]


async def test_the_value_has_twenty_random_bytes() -> None:
    """160 bits in hexadecimal, before the holder's label; from the system's own random source."""
    async with redlock(1) as (nodes, manager):
        for _ in range(200):
            await (await manager.lock("res").acquire()).release()
    ever_set, ever_clear = 0, 0
    for one in sent(nodes[0]):
        if one.kind == "acquire":
            digits, since, holder = one.owner.split(b":")
            assert (len(digits), len(since), holder) == (40, 13, b"client-1")
            ever_set |= int(digits, 16)
            ever_clear |= ~int(digits, 16)
    every_bit = 2**160 - 1
    assert ever_set == ever_clear & every_bit == every_bit, "every bit of the 160 varies"
    assert isinstance(LockManager(["redis://localhost"])._life.random, secrets.SystemRandom)


async def test_a_release_deletes_only_the_clients_own_key() -> None:
    """A holder that overslept releases by script, and leaves alone the key that another client has by now."""
    async with redlock() as (nodes, manager):
        lease = await manager.lock("res", ttl=1.0, extension=OFF).acquire()
        await asyncio.sleep(2)
        for node in nodes:
            assert node.get(KEY) is None
            node.set(KEY, OTHER, 10.0)
        await lease.release()
        assert holders(nodes) == [OTHER] * 5
        assert all("DEL" not in verbs(node) and verbs(node)[-1] == "release" for node in nodes)


# == The Redlock Algorithm ===========================================================================


def slow_sender(master: Any, seconds: float) -> Any:
    """Return a master to which sending takes time: sending to the next one begins only later."""
    node: Any = master.link()

    def slowly(send: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any) -> Any:
            try:
                return send(*args)
            finally:
                sim().advance(seconds)

        return slow

    node.submit, become = slowly(node.submit), node._become

    def slow_become(*args: Any) -> None:
        become(*args)
        node.post = slowly(node.post)

    node._become, master.link = slow_become, lambda: node
    return master


async def test_step_1_the_time_is_read_before_anything_is_sent() -> None:
    """However long sending takes, the validity counts from before the first byte: for a lock, and an
    extension.
    """
    async with client([slow_sender(node, 0.05) for node in masters(5)], ttl=10.0) as manager:
        asked_at = sim().time()
        lease = await manager.lock("res").acquire()
        assert lease.valid_until == pytest.approx(asked_at + 10.0 - drift(10.0), abs=1e-9)
        asked_at = sim().time()
        await lease.extend()
        assert lease.valid_until == pytest.approx(asked_at + 10.0 - drift(10.0), abs=1e-9)


@pytest.mark.parametrize("size", range(1, 6))
async def test_step_3_a_majority_is_needed_and_enough(size: int) -> None:
    """For every set of masters on which another client has the key: acquired if and only if Q are free."""
    for taken in masks(size):
        nodes = masters(size)
        occupy(itertools.compress(nodes, taken))
        async with client(nodes) as manager:
            if (free := taken.count(False)) > sum(taken):
                lease = await manager.lock("res", blocking_timeout=0).acquire()
                await asyncio.sleep(0.1)
                assert sum(vote.vote is Vote.GRANTED for vote in lease.votes) == free
            else:
                with pytest.raises(LockTakenError):
                    await manager.lock("res", blocking_timeout=0).acquire()


async def test_step_3_the_time_it_took_must_leave_some_validity() -> None:
    """A majority counts only if enough of the validity is left when the client knows of it, else it is
    given up.
    """
    for round_trip in (number / 50 for number in range(50)):
        nodes = masters(5, latency=round_trip / 2)
        async with client(nodes, ttl=1.0, node_timeout=0.99, extension=OFF, connect_timeout=10) as manager:
            left = 1.0 - drift(1.0) - round_trip
            if left > 0.5:  # half of the ttl: the least that is worth having
                lease = await manager.lock("res", blocking_timeout=0).acquire()
                assert lease.remaining == pytest.approx(left)
                await lease.release()
            else:
                with pytest.raises(QuorumUnavailableError, match="too late"):
                    await manager.lock("res", blocking_timeout=0).acquire()
                await asyncio.sleep(round_trip)
                assert holders(nodes) == [None] * 5


async def test_step_4_the_validity_is_what_is_left_of_the_ttl() -> None:
    """Initial validity minus the time it took the third answer to come, minus the drift."""
    for latencies_ms in list(itertools.permutations((1, 10, 20, 30, 40)))[::7]:
        nodes = [MemoryNode(latency=latency / 1000) for latency in latencies_ms]
        async with client(nodes, ttl=7.0) as manager:
            began = sim().time()
            lease = await manager.lock("res").acquire()
            elapsed = sim().time() - began
            assert elapsed == pytest.approx(2 * 0.020)
            assert lease.remaining == pytest.approx(7.0 - elapsed - (0.07 + 0.002))
            await lease.release()


@pytest.mark.parametrize("taken", [mask for mask in masks(5) if sum(mask) >= 3])
async def test_step_5_a_failure_is_undone_on_all_masters(taken: tuple[bool, ...]) -> None:
    """A client that does not get Q releases everywhere, also where the answer was no, and touches no other's
    key.
    """
    nodes = masters(5)
    occupy(itertools.compress(nodes, taken))
    async with client(nodes) as manager:
        assert await manager.lock("res").try_acquire() is None
        await asyncio.sleep(0.01)
        assert [verbs(node) for node in nodes] == [["acquire", "release"]] * 5
        assert holders(nodes) == [OTHER if is_taken else None for is_taken in taken]


async def test_step_5_an_answer_that_comes_after_the_failure_is_undone_too() -> None:
    """Masters that grant when the attempt has long failed lose the key at once, and not by expiry."""
    async with redlock() as (nodes, manager):
        each(nodes[:3]).freeze()
        with pytest.raises(QuorumUnavailableError):
            await manager.lock("res", ttl=60.0).try_acquire()
        each(nodes[:3]).thaw()
        await asyncio.sleep(0.1)
        assert all("acquire" in verbs(node) for node in nodes)
        assert holders(nodes) == [None] * 5


# == Is the Algorithm Asynchronous? ==================================================================


# == Retry on Failure ================================================================================


async def test_all_masters_are_asked_at_the_same_time() -> None:
    """The questions leave together: every master executes at the same instant, and the client needs one round
    trip.
    """
    async with redlock(9, latency=0.01) as (nodes, manager):
        began = sim().time()
        asking = asyncio.create_task(manager.lock("res").acquire())
        await asyncio.sleep(0.0099)
        assert [verbs(node) for node in nodes] == [[]] * 9
        await asyncio.sleep(0.0002)
        assert [verbs(node) for node in nodes] == [["acquire"]] * 9
        await asking
        assert sim().time() - began == pytest.approx(0.02)


# == Releasing the Lock ==============================================================================


# == Safety Arguments ================================================================================


# == Liveness Arguments ==============================================================================


async def test_every_key_expires_by_itself() -> None:
    """No key is ever set without an expiry: locks over one name, over several, keys that are given back,
    and their counters; only the incarnation record stays.
    """
    async with redlock(3, ttl=3.0) as (nodes, manager):
        leases = [await manager.lock("res").acquire(), await manager.lock("a", "b").acquire()]
        for key in locks(nodes[0]):
            nodes[0].delete(key)
        for lease in leases:
            await lease.extend()
        await asyncio.sleep(0.01)
        for node in nodes:
            assert len(locks(node)) == 3
            assert [key for key in node.keys if node.ttl(key) is None] == [b"redlock:{meta}"]


# == Performance, Crash Recovery and fsync ===========================================================


# == Making the algorithm more reliable: Extending the lock ==========================================


async def extend(lease: Lease) -> Any:
    """Extend a lease and return what went wrong."""
    try:
        await lease.extend()
    except LockError as error:
        return error


# == Disclaimer about consistency ====================================================================
