"""The public interface as users write it.  Never run: ``mypy --strict`` reads it.

Each `assert_type` is a promise to type checkers; nothing here needs a cast or an ignore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Unpack, assert_type

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError

import aioredlock_ng
from aioredlock_ng import (
    LOG_FIELDS,
    Campaign,
    Clock,
    ConfigurationError,
    Election,
    ExtensionPolicy,
    Finding,
    Leader,
    Leadership,
    LeaderUnknown,
    Lease,
    LeaseStatistics,
    Lock,
    LockError,
    LockInspection,
    LockLostError,
    LockManager,
    LockNotAcquiredError,
    LockTakenError,
    LossReason,
    ManagerClosedError,
    ManagerStatistics,
    Mode,
    Node,
    NodeInitialisation,
    NodeInspection,
    NodeRelease,
    NodeState,
    NodeStatistics,
    NodeVote,
    PermitInspection,
    QueueInspection,
    QuorumUnavailableError,
    ReaderInspection,
    ReadWriteLock,
    ReadWriteLockOptions,
    ReleaseOutcome,
    ReleaseReport,
    RetryPolicy,
    SemaphoreOptions,
    SilentNode,
    Survey,
    Vote,
    WaiterInspection,
    WouldDeadlockError,
)
from aioredlock_ng.events import (
    Acquired,
    ClockStepped,
    Downgraded,
    Extended,
    ExtensionsLow,
    GaveUp,
    Hooks,
    LoopStalled,
    Lost,
    Misconfigured,
    NodeChanged,
    Refused,
    Released,
    Waiting,
)
from aioredlock_ng.testing import MemoryNode, SimLoop, local_nodes


async def quick_start() -> None:
    """The ten lines of the README."""
    async with LockManager(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]) as manager:
        assert_type(manager, LockManager)
        async with manager.lock("invoice:42") as lease:
            assert_type(lease, Lease)
            assert_type(lease.fence, int)


def make_managers() -> None:
    """Every setting, every kind of node, alone and mixed."""
    LockManager(("redis://a",))
    LockManager(url for url in ["redis://a", "valkeys://user:password@b:7000/1", "unix:///run/redis.sock"])
    LockManager([Redis(), Redis.from_url("redis://b")])
    LockManager([RedisCluster(host="a")], prefix="{locks}:")
    LockManager([MemoryNode(), MemoryNode("b"), MemoryNode(latency=0.001)])
    LockManager(["redis://a", Redis(), MemoryNode()])
    LockManager(
        ["redis://a"],
        ttl=30,
        node_timeout=0.05,
        connect_timeout=timedelta(seconds=1),
        prefix="redlock:",
        retry=RetryPolicy(base=0.01, cap=0.5),
        extension=ExtensionPolicy(every=1 / 3, max_extensions=100, grace=0.05),
        on_lost="cancel",
        holder="worker-1",
        hooks=[Metrics(), OneMethod()],
    )
    LockManager(["redis://a"], fencing=False, fence_ttl=timedelta(hours=1), restart_quarantine=60)
    LockManager(["redis://a"], fencing=True, fence_ttl=600.0, restart_quarantine=None)
    LockManager(["redis://a"], ttl=timedelta(minutes=1), extension=ExtensionPolicy(max_extensions=None))
    assert_type(LockManager.from_env(), LockManager)
    assert_type(LockManager.from_env(ttl=5.0), LockManager)
    assert_type(LockManager.from_env(fencing=False, ttl=5.0), LockManager[None])


def own_node(node: Node) -> None:
    """An object with the `Node` protocol."""
    LockManager([node, "redis://a"])
    assert_type(node.name, str)


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
    LockManager([MemoryNode()], clock=FixedClockWithWall())
    clock: Clock = FixedClock()
    LockManager([MemoryNode()], clock=clock)
    LockManager([MemoryNode()], clock=SimLoop().clock)


async def fences(*, fencing: bool) -> None:
    """A fence is an int, unless it is switched off; what takes any manager says so."""
    plain = LockManager(["redis://a"], fencing=False, ttl=5)
    assert_type(plain, LockManager[None])
    async with plain.lock("a") as without:
        assert_type(without, Lease[None])
        assert_type(without.fence, None)
    assert_type(LockManager(["redis://a"], fencing=True), LockManager[int])
    assert_type(LockManager(["redis://a"], fencing=fencing), LockManager[int | None])
    for manager in (plain, LockManager(["redis://a"])):
        await any_manager(manager)


async def any_manager(manager: LockManager[int | None]) -> None:
    """With or without fences."""
    if (lease := await manager.lock("a").try_acquire()) is not None:
        assert_type(lease.fence, int | None)


async def life(manager: LockManager) -> None:
    """Without ``async with``."""
    await manager.start()
    assert_type(repr(manager), str)
    await manager.aclose()


async def locks(manager: LockManager) -> None:
    """What a lock can be asked for."""
    lock = manager.lock("a")
    assert_type(lock, Lock)
    assert_type(lock.names, tuple[str, ...])
    assert_type(await lock.acquire(), Lease)
    assert_type(await lock.try_acquire(), Lease | None)
    manager.lock("a", "b", ttl=5, blocking=False)
    manager.lock(
        "a",
        ttl=timedelta(seconds=5),
        blocking_timeout=timedelta(milliseconds=500),
        quorum_timeout=timedelta(milliseconds=100),
        extension=ExtensionPolicy.off(),
        on_lost="raise",
        label="a:{}",
        at_least=timedelta(minutes=1),
        reentrant=True,
    )
    if (lease := await lock.try_acquire()) is not None:
        async with lease as entered:
            assert_type(entered, Lease)


async def fair_locks(manager: LockManager) -> None:
    """First come, first served, and the line."""
    assert_type(manager.lock("printer", fair=True), Lock)
    queue = await manager.queue("printer")
    assert_type(queue, QueueInspection)
    assert_type((queue.name, queue.more_waiters), tuple[str, bool])
    assert_type(queue.silent, tuple[SilentNode, ...])
    waiter = queue.waiters[0]
    assert_type(waiter, WaiterInspection)
    assert_type((waiter.place, waiter.holder, waiter.since), tuple[int, str | None, float])
    assert_type((waiter.ours, waiter.known_to), tuple[bool, int])


async def semaphores(
    manager: LockManager, plain: LockManager[None], **options: Unpack[SemaphoreOptions]
) -> None:
    """So many at once."""
    pool = manager.semaphore("gpu", permits=4, ttl=5, blocking_timeout=timedelta(seconds=2), label="gpus")
    assert_type(pool, Lock[int, int])
    async with pool as lease:
        assert_type(lease, Lease[int, int])
        assert_type((lease.slot, lease.fence), tuple[int, int])
        either: Lease = lease
        assert_type(either.slot, int | None)
    assert_type(manager.semaphore("gpu", permits=4, **options), Lock[int, int])
    assert_type(plain.semaphore("gpu", permits=4), Lock[None, int])
    async with manager.lock("a") as other:
        assert_type(other.slot, int | None)
    permit = (await manager.inspect("gpu"))[0].permits[0]
    assert_type(permit, PermitInspection)
    assert_type((permit.slot, permit.holder, permit.since), tuple[int, str | None, float | None])
    assert_type((permit.ttl, permit.ours, permit.held_by), tuple[float | None, bool, int])
    assert_type((await manager.survey("gpu")).locks[0].permits, tuple[PermitInspection, ...])


async def read_write_locks(manager: LockManager) -> None:
    """Many readers, one writer."""
    lock = manager.rwlock("catalogue", "prices", ttl=5, blocking_timeout=timedelta(seconds=2), label="shop")
    assert_type(lock, ReadWriteLock)
    assert_type(lock.names, tuple[str, ...])
    assert_type(lock.read(), Lock)
    async with lock.read() as before:
        assert_type(before, Lease)
        assert_type(before.mode, Mode | None)
    async with lock.write(since=before) as lease:
        assert_type(lease.fence, int)
        assert_type(lease.unchanged, bool | None)
        await lease.downgrade()
    async with manager.rwlock("catalogue", reentrant=True).write() as lease, lock.read() as inner:
        assert_type(inner, Lease)
    plain = LockManager(["redis://a"], fencing=False)
    assert_type(plain.rwlock("a"), ReadWriteLock[None])
    async with plain.rwlock("a").write() as without:
        assert_type(without, Lease[None])


def shared(manager: LockManager[int | None], **options: Unpack[ReadWriteLockOptions]) -> None:
    """Options that are passed on, and any manager."""
    assert_type(manager.rwlock("a", **options), ReadWriteLock[int | None])


async def elections(manager: LockManager) -> None:
    """To lead, for a term or again and again, and to follow."""
    election = manager.election(
        "scheduler",
        ttl=timedelta(seconds=5),
        holder="node-7",
        extension=ExtensionPolicy(every=0.2),
        on_lost="raise",
    )
    assert_type(election, Election)
    assert_type(election.name, str)
    campaign = election.campaign()
    assert_type(campaign, Campaign)
    async with campaign as leadership:
        assert_type(leadership, Leadership)
        assert_type(leadership.name, str)
        assert_type(leadership.term, int)
        assert_type(leadership.holder, str)
        assert_type(leadership.held, bool)
        assert_type(leadership.remaining, float)
        assert_type(leadership.lost, asyncio.Event)
        leadership.check()
        assert_type(await leadership.resign(), ReleaseReport)
    assert_type(await election.campaign(), Leadership)

    async for leader in election.observe():
        assert_type(leader, Leader | LeaderUnknown | None)
        if leader is LeaderUnknown.UNKNOWN:
            continue
        if leader is not None:
            assert_type(leader.term, int)
            assert_type(leader.holder, str)
    news = election.observe()
    if newest := await anext(news):
        assert_type(newest, Leader)
    await news.aclose()
    assert_type(await election.leader(), Leader | None)


async def lead(leadership: Leadership) -> str:
    """What it returns is of no consequence."""
    return leadership.holder


async def always_a_candidate(manager: LockManager) -> None:
    """It returns for no one."""
    await manager.election("scheduler").run(lead)


async def leases(lease: Lease) -> None:
    """What a lease says and does."""
    assert_type(lease.name, str)
    assert_type(lease.names, tuple[str, ...])
    assert_type(lease.remaining, float)
    assert_type(lease.valid_until, float)
    assert_type(lease.held, bool)
    assert_type(lease.lost, asyncio.Event)
    assert_type(lease.extensions, int)
    assert_type(lease.votes, tuple[NodeVote, ...])
    lease.check()
    await lease.extend()
    await lease.extend(30)
    await lease.extend(timedelta(seconds=30))
    report = await lease.release()
    assert_type(report, ReleaseReport)
    assert_type(report.nodes, tuple[NodeRelease, ...])
    assert_type(report.nodes[0].outcome, ReleaseOutcome)
    assert_type(report.count(ReleaseOutcome.RELEASED), int)
    assert_type(report.count(ReleaseOutcome.KEPT), int)
    assert_type(report.count(ReleaseOutcome.HANDED_ON), int)


def decorated(manager: LockManager) -> None:
    """The signature of a decorated function is its own."""

    @manager.locked("report:{customer_id}", ttl=60, quorum_timeout=5, fair=True)
    async def report(customer_id: int, *, verbose: bool = False) -> list[str]:
        return [str(customer_id)] * verbose

    @manager.locked("report:{customer_id}", mode="write", ttl=60)
    async def write(customer_id: int) -> None:
        """Write it."""

    modes: tuple[Mode, ...] = ("read", "write")
    for mode in modes:
        manager.locked("report:{customer_id}", mode=mode)(write)

    async def call() -> None:
        assert_type(await write(1), None)
        assert_type(await report(7), list[str])
        assert_type(await report(customer_id=7, verbose=True), list[str])

    as_function: Callable[[int], Coroutine[Any, Any, list[str]]] = report
    asyncio.run(call())
    asyncio.run(as_function(1))


class Reports:
    """A class whose method is locked."""

    manager = LockManager(["redis://a"])

    @manager.locked("report:{self.name}:{number}")
    async def make(self, number: int) -> bytes:
        """Make a report."""
        return b"%d" % number

    name = "daily"


async def methods() -> None:
    """`self` is bound as ever."""
    assert_type(await Reports().make(3), bytes)


async def errors(lock: Lock) -> None:
    """The tree, and what each error carries."""
    try:
        async with lock:
            pass
    except LockTakenError as taken:
        assert_type(taken.retry_after, float | None)
        assert_type(taken.holder, str | None)
        assert_type(taken.votes, tuple[NodeVote, ...])
        assert_type(taken.names, tuple[str, ...])
    except QuorumUnavailableError as unavailable:
        assert_type(unavailable.retry_after, float | None)
        for vote in unavailable.votes:
            assert_type(vote.node, str)
            assert_type(vote.vote, Vote)
            assert_type(vote.reason, str)
            assert_type(vote.retry_after, float | None)
    except LockLostError as lost:
        assert_type(lost.reason, LossReason)
        assert_type(lost.reason.upper(), str)
    except (WouldDeadlockError, ManagerClosedError) as error:
        base: LockError = error
        redis_error: RedisError = error
        assert_type((base.names, redis_error.args), tuple[tuple[str, ...], tuple[Any, ...]])
    except LockNotAcquiredError as other:
        assert_type(other.names, tuple[str, ...])
    except ConfigurationError as misconfigured:
        value_error: ValueError = misconfigured
        assert_type(value_error.args, tuple[Any, ...])


async def looking(manager: LockManager) -> None:
    """Statistics, inspection, administration."""
    statistics = manager.statistics()
    assert_type(statistics, ManagerStatistics)
    assert_type(statistics.nodes, tuple[NodeStatistics, ...])
    assert_type(statistics.leases, tuple[LeaseStatistics, ...])
    held = statistics.leases[0]
    assert_type((held.names, held.label), tuple[tuple[str, ...], str])
    assert_type((held.fence, held.age, held.kind), tuple[int | None, float, str])
    assert_type(statistics.nodes[0].state, NodeState)
    assert_type(statistics.nodes[0].round_trip, float | None)
    assert_type((statistics.held, statistics.waiting, statistics.acquired), tuple[int, int, int])
    assert_type(statistics.handed_on, int)
    assert_type((statistics.refused, statistics.gave_up), tuple[int, int])
    found = await manager.inspect("a")
    assert_type(found, tuple[NodeInspection, ...])
    assert_type(found[0].held, bool | None)
    assert_type(found[0].ttl, float | None)
    assert_type(found[0].since, float | None)
    assert_type((found[0].ours, found[0].wrong_type), tuple[bool, bool])
    assert_type((found[0].kind, found[0].fence_counter), tuple[str | None, int | None])
    assert_type((found[0].readers, found[0].more_readers), tuple[tuple[ReaderInspection, ...], bool])
    assert_type(await manager.force_release("a"), tuple[NodeInspection, ...])


async def surveying(manager: LockManager) -> None:
    """All locks, and what voids a quorum."""
    survey = await manager.survey()
    assert_type(survey, Survey)
    assert_type(await manager.survey("a", "b", limit=10), Survey)
    assert_type(survey.locks, tuple[LockInspection, ...])
    assert_type((survey.truncated, survey.at), tuple[bool, float])
    assert_type(survey.silent, tuple[SilentNode, ...])
    lock = survey.locks[0]
    assert_type((lock.name, lock.held_by, lock.holder), tuple[str, int, str | None])
    assert_type((lock.since, lock.ttl, lock.highest_fence), tuple[float | None, float | None, int | None])
    assert_type(lock.nodes, tuple[NodeInspection, ...])
    assert_type((lock.kind, lock.shared, lock.more_readers), tuple[str | None, bool, bool])
    assert_type(lock.readers, tuple[ReaderInspection, ...])
    reader = lock.readers[0]
    assert_type((reader.holder, reader.since, reader.ttl), tuple[str | None, float | None, float | None])
    assert_type((reader.ours, reader.held_by), tuple[bool, int])
    if lock.state == "held":
        assert_type(lock.agreed, tuple[NodeInspection, ...])
    findings = await manager.diagnose()
    assert_type(findings, tuple[Finding, ...])
    if findings[0].level == "error":
        assert_type((findings[0].node, findings[0].check), tuple[str | None, str])
        assert_type(findings[0].message + findings[0].advice, str)


class Metrics:
    """A hook may have any of the methods."""

    def on_acquired(self, event: Acquired) -> None:
        """Look at what it is told."""
        assert_type((event.names, event.label), tuple[tuple[str, ...], str])
        assert_type((event.waited, event.attempts, event.fence), tuple[float, int, int | None])
        assert_type((event.handed_on, event.kind), tuple[bool, str])

    def on_refused(self, event: Refused) -> None:
        """Likewise."""
        assert_type((event.taken, event.votes), tuple[bool, tuple[NodeVote, ...]])

    def on_waiting(self, event: Waiting) -> None:
        """Likewise."""
        assert_type((event.waited, event.taken, event.votes), tuple[float, bool, tuple[NodeVote, ...]])

    def on_gave_up(self, event: GaveUp) -> None:
        """Likewise."""
        assert_type((event.waited, event.attempts, event.taken), tuple[float, int, bool | None])
        assert_type(event.votes, tuple[NodeVote, ...])

    def on_extended(self, event: Extended) -> None:
        """Likewise."""
        assert_type((event.extensions, event.remaining, event.topped_up), tuple[int, float, int])

    def on_downgraded(self, event: Downgraded) -> None:
        """Likewise."""
        assert_type((event.held_for, event.kind), tuple[float, str])

    def on_extensions_low(self, event: ExtensionsLow) -> None:
        """Likewise."""
        assert_type((event.extensions, event.max_extensions, event.remaining), tuple[int, int, float])

    def on_lost(self, event: Lost) -> None:
        """Likewise."""
        assert_type((event.reason, event.held_for), tuple[LossReason, float])

    def on_released(self, event: Released) -> None:
        """Likewise."""
        assert_type((event.held_for, event.stays_taken, event.handed_on), tuple[float, float, bool])

    def on_node_changed(self, event: NodeChanged) -> None:
        """Likewise."""
        assert_type((event.node, event.state, event.reason), tuple[str, NodeState, str])

    def on_misconfigured(self, event: Misconfigured) -> None:
        """Likewise."""
        assert_type(event.reason, str)

    def on_clock_stepped(self, event: ClockStepped) -> None:
        """Likewise."""
        assert_type((event.node, event.seconds), tuple[str | None, float])

    def on_loop_stalled(self, event: LoopStalled) -> None:
        """Likewise."""
        assert_type((event.seconds, event.suspended), tuple[float, float])


class OneMethod(Hooks):
    """The base class has them all; a subclass needs what it wants."""

    def on_lost(self, event: Lost) -> None:
        """Look at what it is told."""
        super().on_lost(event)


def version() -> None:
    """Of the package."""
    assert_type(aioredlock_ng.__version__, str)
    assert_type(LOG_FIELDS, tuple[str, ...])


async def fresh_nodes(manager: LockManager) -> None:
    """What states that no lock can be alive, and what is told of the nodes."""
    nodes = await manager.init()
    assert_type(nodes, tuple[NodeInitialisation, ...])
    assert_type((nodes[0].node, nodes[0].done, nodes[0].reason), tuple[str, bool, str])
    await manager.init(force=True)
    statistics = manager.statistics()
    assert_type((statistics.certified, statistics.raised, statistics.uncertified), tuple[int, int, int])
    assert_type((statistics.topped_up, statistics.quarantined, statistics.steps), tuple[int, int, int])
    assert_type(statistics.conflict, str | None)
    assert_type((manager.available, manager.unavailable_for), tuple[bool, float])
    node = statistics.nodes[0]
    assert_type((node.votes_in, node.clock, node.mismatched), tuple[float | None, float | None, int])
    assert_type(node.strayed, bool)


async def testing_kit() -> None:
    """What users' own tests use."""
    async with local_nodes(5) as nodes, LockManager(nodes.urls) as manager:
        assert_type(manager, LockManager)

    async def on_virtual_time() -> int:
        return 1

    assert_type(SimLoop.run(on_virtual_time()), int)
