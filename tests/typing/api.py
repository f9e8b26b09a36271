"""The public interface as users write it.  Never run: ``mypy --strict`` and ``basedpyright`` read it.

Each `assert_type` is a promise to type checkers; nothing here needs a cast or an ignore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from typing import Any, Unpack, assert_type

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError

import aioredlock_ng as ng
from aioredlock_ng import events
from aioredlock_ng.testing import MemoryNode, SimLoop, local_nodes


async def quick_start() -> None:
    """The ten lines of the README."""
    async with ng.LockManager(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]) as manager:
        assert_type(manager, ng.LockManager)
        async with manager.lock("invoice:42") as lease:
            assert_type((lease, lease.fence), tuple[ng.Lease, int])


def make_managers() -> None:
    """Every setting, every kind of node, alone and mixed."""
    ng.LockManager(("redis://a",))
    ng.LockManager(url for url in ["redis://a", "valkeys://user:password@b:7000/1", "unix:///run/redis.sock"])
    ng.LockManager([Redis(), Redis.from_url("redis://b")])
    ng.LockManager([RedisCluster(host="a")], prefix="{locks}:")
    ng.LockManager([MemoryNode(), MemoryNode("b"), MemoryNode(latency=0.001)])
    ng.LockManager(["redis://a", Redis(), MemoryNode()])
    ng.LockManager(
        ["redis://a"],
        ttl=30,
        node_timeout=0.05,
        connect_timeout=timedelta(seconds=1),
        prefix="redlock:",
        retry=ng.RetryPolicy(base=0.01, cap=0.5),
        extension=ng.ExtensionPolicy(every=1 / 3, max_extensions=100, grace=0.05),
        on_lost="cancel",
        holder="worker-1",
        hooks=[Metrics(), OneMethod()],
    )
    ng.LockManager(["redis://a"], fencing=False, fence_ttl=timedelta(hours=1), restart_quarantine=60)
    ng.LockManager(["redis://a"], fencing=True, fence_ttl=600.0, restart_quarantine=None)
    ng.LockManager(["redis://a"], ttl=timedelta(minutes=1), extension=ng.ExtensionPolicy(max_extensions=None))
    assert_type(ng.LockManager.from_env(), ng.LockManager)
    assert_type(ng.LockManager.from_env(ttl=5.0), ng.LockManager)
    assert_type(ng.LockManager.from_env(fencing=False, ttl=5.0), ng.LockManager)


class FixedClock:
    """A clock of the user's own; it needs no time of day, and may have one."""

    def now(self) -> float:
        """Stand still."""
        return 1.0


class FixedClockWithWall(FixedClock):
    """The same with the time of day."""

    def wall(self) -> float:
        """Stand still."""
        return 1.8e9


def own_clock() -> None:
    """The seams for tests."""
    ng.LockManager([MemoryNode()], clock=FixedClockWithWall())
    clock: ng.Clock = FixedClock()
    ng.LockManager([MemoryNode()], clock=clock)
    ng.LockManager([MemoryNode()], clock=SimLoop().clock)


async def fences(*, fencing: bool) -> None:
    """A fence is an int, with every manager: without one the access raises."""
    manager = ng.LockManager(["redis://a"], fencing=fencing)
    if (lease := await manager.lock("a").try_acquire()) is not None:
        assert_type(lease.fence, int)


async def life(manager: ng.LockManager) -> None:
    """Without ``async with``."""
    await manager.start()
    assert_type(repr(manager), str)
    await manager.aclose()


async def locks(manager: ng.LockManager) -> None:
    """The options of a lock."""
    lock = manager.lock("a")
    assert_type((lock, lock.names), tuple[ng.Lock, tuple[str, ...]])
    assert_type(await lock.acquire(), ng.Lease)
    assert_type(await lock.try_acquire(), ng.Lease | None)
    manager.lock("a", "b", ttl=5, blocking=False)
    manager.lock(
        "a",
        ttl=timedelta(seconds=5),
        blocking_timeout=timedelta(milliseconds=500),
        quorum_timeout=timedelta(milliseconds=100),
        extension=ng.ExtensionPolicy.off(),
        on_lost="raise",
        label="a:{}",
        at_least=timedelta(minutes=1),
        reentrant=True,
    )
    if (lease := await lock.try_acquire()) is not None:
        async with lease as entered:
            assert_type(entered, ng.Lease)


async def fair_locks(manager: ng.LockManager) -> None:
    """First come, first served, and the line."""
    assert_type(manager.lock("printer", fair=True), ng.Lock)
    queue = await manager.queue("printer")
    assert_type((queue, queue.name, queue.more_waiters), tuple[ng.QueueInspection, str, bool])
    assert_type(queue.silent, tuple[ng.SilentNode, ...])
    waiter = queue.waiters[0]
    assert_type((waiter, waiter.place, waiter.holder), tuple[ng.WaiterInspection, int, str | None])


async def exit_stacks(manager: ng.LockManager) -> None:
    """Whatever is entered by ``async with`` is one to the standard library, too."""
    async with AsyncExitStack() as stack:
        assert_type(await stack.enter_async_context(ng.LockManager(["redis://a"])), ng.LockManager)
        lease = await stack.enter_async_context(manager.lock("a"))
        assert_type(lease.fence, int)
        slot = await stack.enter_async_context(manager.semaphore("s", permits=2))
        assert_type(slot.slot, int)
        read = await stack.enter_async_context(manager.rwlock("rw").read())
        assert_type(read.mode, ng.Mode | None)
        leadership = await stack.enter_async_context(manager.election("e").campaign())
        assert_type(leadership.term, int)
        assert_type(await stack.enter_async_context(await manager.lock("b").acquire()), ng.Lease)
    blocks: list[AbstractAsyncContextManager[ng.Lease]] = [manager.lock("a"), manager.rwlock("b").write()]
    won: Coroutine[Any, Any, ng.Lease | None] = manager.lock("a").try_acquire()
    await asyncio.gather(won, *(block.__aenter__() for block in blocks))


async def semaphores(manager: ng.LockManager, **options: Unpack[ng.SemaphoreOptions]) -> None:
    """A number of holders at once."""
    pool = manager.semaphore("gpu", permits=4, ttl=5, blocking_timeout=timedelta(seconds=2), label="gpus")
    assert_type(pool, ng.Lock)
    async with pool as lease:
        assert_type((lease, lease.slot, lease.fence), tuple[ng.Lease, int, int])
    assert_type(manager.semaphore("gpu", permits=4, **options), ng.Lock)
    async with manager.fair_semaphore("gpu", permits=4, weight=2, **options) as leases:
        assert_type(leases, tuple[ng.Lease, ...])
    permit = (await manager.inspect("gpu"))[0].permits[0]
    assert_type((permit, permit.slot, permit.holder), tuple[ng.PermitInspection, int, str | None])


async def read_write_locks(manager: ng.LockManager) -> None:
    """Many readers, one writer."""
    lock = manager.rwlock("catalogue", "prices", ttl=5, blocking_timeout=timedelta(seconds=2), label="shop")
    assert_type((lock, lock.names), tuple[ng.ReadWriteLock, tuple[str, ...]])
    assert_type(lock.read(), ng.Lock)
    async with lock.read() as before:
        assert_type((before, before.mode), tuple[ng.Lease, ng.Mode | None])
    async with lock.write(since=before) as lease:
        assert_type((lease.fence, lease.unchanged), tuple[int, bool | None])
        await lease.downgrade()
    async with manager.rwlock("catalogue", reentrant=True).write() as lease, lock.read() as inner:
        assert_type(inner, ng.Lease)


def shared(manager: ng.LockManager, **options: Unpack[ng.ReadWriteLockOptions]) -> None:
    """Options that are passed on."""
    assert_type(manager.rwlock("a", **options), ng.ReadWriteLock)


async def elections(manager: ng.LockManager) -> None:
    """To lead, for a term or again and again, and to follow."""
    election = manager.election(
        "scheduler",
        ttl=timedelta(seconds=5),
        holder="node-7",
        extension=ng.ExtensionPolicy(every=0.2),
        on_lost="raise",
    )
    assert_type((election, election.name), tuple[ng.Election, str])
    campaign = election.campaign()
    assert_type(campaign, ng.Campaign)
    async with campaign as leadership:
        assert_type((leadership, leadership.name, leadership.term), tuple[ng.Leadership, str, int])
        assert_type((leadership.holder, leadership.held, leadership.remaining), tuple[str, bool, float])
        assert_type(leadership.lost, asyncio.Event)
        leadership.check()
        assert_type(await leadership.resign(), ng.ReleaseReport)
    assert_type(await election.campaign(), ng.Leadership)

    async for leader in election.observe():
        assert_type(leader, ng.Leader | ng.LeaderUnknown | None)
        if leader is ng.LeaderUnknown.UNKNOWN:
            continue
        if leader is not None:
            assert_type((leader.term, leader.holder), tuple[int, str])
    news = election.observe()
    if newest := await anext(news):
        assert_type(newest, ng.Leader)
    await news.aclose()
    assert_type(await election.leader(), ng.Leader | None)


async def lead(leadership: ng.Leadership) -> str:
    """Return anything: it is ignored."""
    return leadership.holder


async def always_a_candidate(manager: ng.LockManager) -> None:
    """It returns for no one."""
    await manager.election("scheduler").run(lead)


async def leases(lease: ng.Lease) -> None:
    """The attributes and methods of a lease."""
    assert_type((lease.name, lease.names, lease.remaining), tuple[str, tuple[str, ...], float])
    assert_type((lease.valid_until, lease.held, lease.lost), tuple[float, bool, asyncio.Event])
    assert_type((lease.extensions, lease.votes), tuple[int, tuple[ng.NodeVote, ...]])
    lease.check()
    await lease.extend()
    await lease.extend(30)
    await lease.extend(timedelta(seconds=30))
    report = await lease.release()
    assert_type((report, report.nodes), tuple[ng.ReleaseReport, tuple[ng.NodeRelease, ...]])
    assert_type(report.nodes[0].outcome, ng.ReleaseOutcome)
    assert_type(report.count(ng.ReleaseOutcome.RELEASED), int)


def decorated(manager: ng.LockManager) -> None:
    """The signature of a decorated function is its own."""

    @manager.locked("report:{customer_id}", ttl=60, quorum_timeout=5, fair=True)
    async def report(customer_id: int, *, verbose: bool = False) -> list[str]:
        return [str(customer_id)] * verbose

    @manager.locked("report:{customer_id}", mode="write", ttl=60)
    async def write(customer_id: int) -> None:
        """Write it."""

    @manager.locked("from:{payer}", "to:{payee}", blocking=False, otherwise=None)
    async def pay(payer: int, payee: int) -> str:
        return f"{payer} {payee}"

    @manager.locked("tick", blocking=False, otherwise=0)
    async def tick() -> str:
        return "ran"

    modes: tuple[ng.Mode, ...] = ("read", "write")
    for mode in modes:
        manager.locked("report:{customer_id}", mode=mode)(write)

    async def call() -> None:
        assert_type(await write(1), None)
        assert_type((await pay(1, payee=2), await tick()), tuple[str | None, str | int])
        assert_type(await report(7), list[str])
        assert_type(await report(customer_id=7, verbose=True), list[str])

    as_function: Callable[[int], Coroutine[Any, Any, list[str]]] = report
    asyncio.run(call())
    asyncio.run(as_function(1))


class Reports:
    """A class whose method is locked."""

    manager = ng.LockManager(["redis://a"])

    @manager.locked("report:{self.name}:{number}")
    async def make(self, number: int) -> bytes:
        """Make a report."""
        return b"%d" % number

    name = "daily"


async def methods() -> None:
    """`self` is bound as in any method."""
    assert_type(await Reports().make(3), bytes)


async def errors(lock: ng.Lock) -> None:
    """The tree, and what each error carries."""
    try:
        async with lock:
            pass
    except ng.LockTakenError as taken:
        assert_type((taken.retry_after, taken.holder), tuple[float | None, str | None])
        assert_type((taken.votes, taken.names), tuple[tuple[ng.NodeVote, ...], tuple[str, ...]])
    except ng.QuorumUnavailableError as unavailable:
        assert_type(unavailable.retry_after, float | None)
        for vote in unavailable.votes:
            assert_type((vote.node, vote.vote, vote.reason), tuple[str, ng.Vote, str])
            assert_type(vote.retry_after, float | None)
    except ng.LockLostError as lost:
        assert_type(lost.reason, ng.LossReason)
        assert_type(lost.reason.upper(), str)
    except (ng.WouldDeadlockError, ng.ManagerClosedError) as error:
        base: ng.LockError = error
        redis_error: RedisError = error
        assert_type((base.names, redis_error.args), tuple[tuple[str, ...], tuple[Any, ...]])
    except ng.LockNotAcquiredError as other:
        assert_type(other.names, tuple[str, ...])
    except ng.ConfigurationError as misconfigured:
        value_error: ValueError = misconfigured
        assert_type(value_error.args, tuple[Any, ...])


async def looking(manager: ng.LockManager) -> None:
    """Statistics, inspection, administration: values that may be missing say so."""
    statistics = manager.statistics()
    assert_type((statistics, statistics.nodes), tuple[ng.ManagerStatistics, tuple[ng.NodeStatistics, ...]])
    assert_type((statistics.conflict, statistics.strangers), tuple[str | None, tuple[str, ...]])
    assert_type((statistics.leases[0], statistics.leases[0].fence), tuple[ng.LeaseStatistics, int | None])
    node = statistics.nodes[0]
    assert_type((node.state, node.round_trip, node.votes_in), tuple[ng.NodeState, float | None, float | None])
    assert_type((manager.available, manager.unavailable_for), tuple[bool, float])
    found = await manager.inspect("a")
    assert_type((found, found[0].held), tuple[tuple[ng.NodeInspection, ...], bool | None])
    assert_type((found[0].ttl, found[0].since), tuple[float | None, float | None])
    assert_type((found[0].kind, found[0].fence_counter), tuple[str | None, int | None])
    assert_type(await manager.force_release("a"), tuple[ng.NodeInspection, ...])
    nodes = await manager.init(force=True)
    assert_type((nodes, nodes[0].done), tuple[tuple[ng.NodeInitialisation, ...], bool])


async def surveying(manager: ng.LockManager) -> None:
    """All locks, and what voids a quorum."""
    survey = await manager.survey("a", "b", limit=10)
    assert_type((survey, survey.locks), tuple[ng.Survey, tuple[ng.LockInspection, ...]])
    assert_type((survey.truncated, survey.at, survey.silent), tuple[bool, float, tuple[ng.SilentNode, ...]])
    lock = survey.locks[0]
    assert_type((lock.holder, lock.since, lock.ttl), tuple[str | None, float | None, float | None])
    assert_type((lock.kind, lock.highest_fence), tuple[str | None, int | None])
    assert_type(lock.readers, tuple[ng.ReaderInspection, ...])
    if lock.state == "held":
        assert_type(lock.agreed, tuple[ng.NodeInspection, ...])
    findings = await manager.diagnose()
    assert_type(findings, tuple[ng.Finding, ...])
    if findings[0].level == "error":
        assert_type((findings[0].node, findings[0].check), tuple[str | None, str])


class Metrics:
    """A hook may have any of the methods."""

    def on_acquired(self, event: events.Acquired) -> None:
        """Read the event."""
        assert_type((event.names, event.label), tuple[tuple[str, ...], str])
        assert_type((event.waited, event.fence), tuple[float, int | None])

    def on_gave_up(self, event: events.GaveUp) -> None:
        """Read the event."""
        assert_type((event.taken, event.votes), tuple[bool | None, tuple[ng.NodeVote, ...]])

    def on_lost(self, event: events.Lost) -> None:
        """Read the event."""
        assert_type((event.reason, event.held_for), tuple[ng.LossReason, float])

    def on_node_changed(self, event: events.NodeChanged) -> None:
        """Read the event."""
        assert_type((event.node, event.state, event.reason), tuple[str, ng.NodeState, str])


class OneMethod(events.Hooks):
    """The base class has them all; a subclass needs what it wants."""

    def on_lost(self, event: events.Lost) -> None:
        """Read the event."""
        super().on_lost(event)


def version() -> None:
    """Of the package."""
    assert_type((ng.__version__, ng.LOG_FIELDS), tuple[str, tuple[str, ...]])


async def testing_kit() -> None:
    """The helpers for users' own tests."""
    async with local_nodes(5) as nodes, ng.LockManager(nodes.urls) as manager:
        assert_type(manager, ng.LockManager)

    async def on_virtual_time() -> int:
        return 1

    assert_type(SimLoop.run(on_virtual_time()), int)
