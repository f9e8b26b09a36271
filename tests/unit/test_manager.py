"""The manager: its start, its end, its loop and process, what it tells (R18, A4)."""

from __future__ import annotations

import asyncio
import os
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from aioredlock_ng import ConfigurationError, LockManager, LossReason, NodeState, Vote
from aioredlock_ng.errors import LockLostError, LockTakenError, ManagerClosedError, QuorumUnavailableError
from aioredlock_ng.events import Acquired, Extended, GaveUp, Lost, NodeChanged, Refused, Released
from aioredlock_ng.testing import MemoryNode, SimLoop
from tests.servers import eventually
from tests.unit.tasks import cycle, in_task, sim, turns
from tests.unit.traces import Heard, count, sent
from tests.unit.worlds import GRACE, LATENCY, PLAIN, ROUND_TRIP, TIMEOUT, TTL, make, world


def masters(number: int = 3) -> list[MemoryNode]:
    """Return nodes that are up."""
    return [MemoryNode(latency=LATENCY) for _ in range(number)]


def background() -> set[str]:
    """Return the names of the package's tasks."""
    return {task.get_name() for task in asyncio.all_tasks() if "aioredlock_ng" in task.get_name()}


# -- start -------------------------------------------------------------------------------------------


def test_a_manager_at_module_level():
    """Made without a loop, it binds and connects at its first use, from several tasks at once."""
    manager = LockManager(masters())
    assert "not started" in repr(manager)
    now = manager.statistics()
    assert (now.held, now.waiting, now.acquired, now.leases) == (0, 0, 0, ())

    async def main() -> None:
        await asyncio.gather(*(hold(manager, f"lock-{number}", 1) for number in range(10)))
        assert len([name for name in background() if "watchdog" in name]) == 1
        await manager.aclose()
        assert background() == set()

    SimLoop.run(main())


@pytest.mark.parametrize(("breaks", "mends"), [("crash", "restart"), ("freeze", "thaw")])
async def test_a_start_with_no_node_up(breaks, mends):
    """No node needs to be up: start() returns in time, acquires fail as unavailable, and then recover."""
    nodes = masters()
    for node in nodes:
        getattr(node, breaks)()
    began = sim().time()
    async with make(nodes, connect_timeout=1) as manager:
        assert sim().time() - began <= 1.000001
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("a", blocking_timeout=0.2).acquire()
        assert all(vote.vote is Vote.SILENT and vote.reason for vote in caught.value.votes)
        for node in nodes:
            getattr(node, mends)()
        began = sim().time()
        async with manager.lock("a"):
            assert sim().time() - began < 1.5


@pytest.mark.parametrize("others", ["frozen", "slow"])
async def test_a_start_waits_for_a_majority_only(others):
    """One node that does not answer holds a start up by no more than one node_timeout: the others need a
    round trip to connect, and on fresh nodes two to be greeted.  One that is a moment later is up then.
    """
    nodes = masters()
    if others == "frozen":
        nodes[2].freeze()
    else:
        nodes[2].latency = TIMEOUT / 8
    began = sim().time()
    async with make(nodes) as manager:
        assert sim().time() - began <= 3 * ROUND_TRIP + TIMEOUT + 1e-6
        last = NodeState.CONNECTING if others == "frozen" else NodeState.UP
        assert [node.state for node in manager.statistics().nodes] == [NodeState.UP] * 2 + [last]
        await cycle(manager.lock("a", blocking_timeout=0))


# -- two nodes that are one server -------------------------------------------------------------------


async def test_two_addresses_of_one_server_are_found_at_the_start():
    """Two nodes with one run_id are refused by start() with both names, and no task is left."""
    nodes = [MemoryNode("left"), MemoryNode("right"), MemoryNode("other")]
    nodes[1]._server.run_id = nodes[0]._server.run_id
    manager = make(nodes)
    for use in (manager.start, manager.lock("a").acquire, make(nodes).__aenter__):
        with pytest.raises(ConfigurationError, match=r"left.*right"):
            await use()
    assert [count(node, "acquire") for node in nodes] == [0] * 3
    await manager.aclose()
    await asyncio.sleep(0.1)
    assert background() == set()


# -- aclose ------------------------------------------------------------------------------------------


async def test_aclose_releases_every_lease():
    """Leases in blocks and from acquire() are released on every node, and all tasks end."""
    async with world() as w:
        free = [await w.manager.lock(f"free-{number}").acquire() for number in range(5)]
        blocks = [in_task(lambda name=f"block-{number}": hold(w.manager, name)) for number in range(5)]
        await asyncio.sleep(1)
        assert [len(keys) for keys in w.keys] == [10] * 3
        await w.manager.aclose()
        assert w.keys == [()] * 3
        assert background() == set()
        for end in await asyncio.gather(*blocks):
            assert isinstance(end.error, LockLostError)
            assert (end.error.reason, end.cancelling) == (LossReason.MANAGER_CLOSED, 0)
        for lease in free:
            with pytest.raises(LockLostError):
                lease.check()
            await lease.release()
        assert "closed" in repr(w.manager)


async def hold(manager: LockManager, name: str, seconds: float = 1000.0, **options: Any) -> None:
    """Hold a lock."""
    async with manager.lock(name, **options):
        await asyncio.sleep(seconds)


async def test_aclose_is_idempotent_and_concurrent():
    """Called again, before a start, or by many tasks at once, it ends once and quietly."""
    manager = make(masters())
    await manager.aclose()
    await manager.aclose()
    with pytest.raises(ManagerClosedError):
        await manager.start()
    async with world() as w:
        body = in_task(lambda: hold(w.manager, "a"))
        await asyncio.sleep(1)
        ends = await asyncio.gather(*(in_task(w.manager.aclose) for _ in range(5)))
        assert [end.error for end in ends] == [None] * 5
        assert isinstance((await body).error, LockLostError)
        assert w.keys == [()] * 3
        assert background() == set()


async def test_aclose_refuses_new_acquires():
    """From its first moment, also while it waits for bodies, and ever after."""
    async with world() as w:
        body = in_task(lambda: hold_stubbornly(w.manager, 3.0))
        await asyncio.sleep(1)
        closing = in_task(w.manager.aclose)
        for _ in range(3):
            await turns(2)
            for lock in (w.manager.lock("a"), w.manager.lock("b"), w.manager.lock("c", blocking_timeout=0)):
                for use in (lock.acquire, lock.try_acquire):
                    assert isinstance((await in_task(use)).error, ManagerClosedError)
            assert not closing.done()
            await asyncio.sleep(0.1)
        await closing
        await body
        for use in (w.manager.start, lambda: w.manager.inspect("a")):
            with pytest.raises(ManagerClosedError):
                await use()
        assert {one.key for one in sent(w.nodes[0]) if one.kind == "acquire"} == {b"redlock:a"}


async def hold_stubbornly(manager: LockManager, seconds: float, name: str = "a", **options: Any) -> None:
    """Hold a lock, and take so long to clean up."""
    async with manager.lock(name, **options):
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(seconds)


async def test_aclose_wakes_waiters():
    """Waiters in the queue, between two tries and in the middle of one get ManagerClosedError."""
    async with world() as w:
        w.occupy("taken", 1000.0)
        lease = await w.manager.lock("own").acquire()
        waiters = [in_task(w.manager.lock(name).acquire) for name in ("own", "taken") * 3]
        await asyncio.sleep(2)
        for node in w.nodes[:2]:
            node.latency = 0.05
        waiters.append(in_task(w.manager.lock("under way").acquire))
        await asyncio.sleep(0.04)
        began = sim().time()
        await w.manager.aclose()
        for end in await asyncio.gather(*waiters):
            assert isinstance(end.error, ManagerClosedError)
            assert end.at - began <= TIMEOUT + 1e-6
        assert not lease.held
        await asyncio.sleep(1)
        assert w.keys == [(b"redlock:taken",)] * 3


@pytest.mark.parametrize("turn", range(12))
async def test_aclose_in_any_turn_of_an_acquire(turn):
    """Closed in whatever turn of an acquire: a lost lease or ManagerClosedError, and no key is left."""
    async with world(latency=0.0) as w:
        tasks = [in_task(lambda n=number: hold(w.manager, f"lock-{n}", 0.1)) for number in range(3)]
        await turns(turn)
        await w.manager.aclose()
        for end in await asyncio.gather(*tasks):
            assert isinstance(end.error, (ManagerClosedError, LockLostError))
            assert end.cancelling == 0
        await asyncio.sleep(0.1)
        assert w.keys == [()] * 3
        assert background() == set()


async def test_aclose_waits_for_bodies():
    """A body that cleans up is waited for, under the keys, and ends inside the lock."""
    async with world() as w:
        body = in_task(lambda: hold_stubbornly(w.manager, 3.0))
        await asyncio.sleep(1)
        began = sim().time()
        closing = in_task(w.manager.aclose)
        await asyncio.sleep(2.9)
        assert None not in w.holders("a")
        await closing
        assert 3 <= sim().time() - began < 3.1
        error = (await body).error
        assert isinstance(error, LockLostError)
        assert error.reason is LossReason.MANAGER_CLOSED


@pytest.mark.parametrize("on_lost", ["cancel", "raise"])
async def test_aclose_waits_at_most_until_the_deadline(on_lost):
    """A body that does not end is left behind at its deadline: not extended any more, and released."""
    async with world() as w:
        began = sim().time()
        body = in_task(lambda: hold_stubbornly(w.manager, 60.0, on_lost=on_lost))
        await asyncio.sleep(5)
        extended = count(w.nodes[0], "extend")
        await w.manager.aclose()
        due = began + TTL / 3 + TTL  # it was extended once; less the drift and the grace
        assert due - 0.102 - GRACE * TTL <= sim().time() <= due - 0.1 - GRACE * TTL + TIMEOUT
        assert w.keys == [()] * 3
        assert count(w.nodes[0], "extend") == extended
        assert background() == set()
        end = await body
        assert isinstance(end.error, LockLostError)
        assert end.error.reason is LossReason.MANAGER_CLOSED


async def test_a_cancelled_aclose_still_closes():
    """A caller that stops waiting for aclose() finds the leases released and the tasks ended all the same."""
    async with world() as w:
        body = in_task(lambda: hold_stubbornly(w.manager, 3.0))
        await asyncio.sleep(1)
        closing = in_task(w.manager.aclose)
        await asyncio.sleep(0.5)
        closing.cancel()
        assert isinstance((await closing).error, asyncio.CancelledError)
        await body
        await asyncio.sleep(TTL)
        assert (w.keys, background()) == ([()] * 3, set())


# -- the loop and the process ------------------------------------------------------------------------


async def test_the_last_block_closes():
    """A function, or a task, that enters the manager of its caller does not close it for that."""
    async with world() as w:
        manager, left = make(w.nodes), asyncio.Event()

        async def enter() -> None:
            async with manager:
                await left.wait()

        async with manager:
            beside = asyncio.create_task(enter())
            await turns(5)
            with pytest.raises(ZeroDivisionError):
                async with manager:
                    raise ZeroDivisionError
            async with manager.lock("a"):
                pass
        async with manager.lock("a"):
            left.set()
        await beside
        with pytest.raises(ManagerClosedError):
            await manager.lock("a").acquire()
        with pytest.raises(ManagerClosedError):
            await manager.__aenter__()


def test_another_loop_is_refused():
    """Every use from a second loop is a RuntimeError that says so, and does not disturb the first."""
    manager = LockManager(masters())
    with asyncio.Runner(loop_factory=SimLoop) as first, asyncio.Runner(loop_factory=SimLoop) as second:
        lease = first.run(manager.lock("a").acquire())
        lock = manager.lock("a")
        for use in (manager.start(), lock.acquire(), lock.try_acquire(), manager.aclose(),
                    manager.inspect("a"), manager.force_release("a")):  # fmt: skip
            with pytest.raises(RuntimeError, match="another event loop"):
                second.run(use)
        assert lease.held
        first.run(manager.aclose())


def in_child(check: Callable[[], None]) -> None:
    """Run a check in a child that is forked from here, and fail unless it passes there."""
    with warnings.catch_warnings(action="ignore"):
        child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException:  # noqa: BLE001 (the child must not go on with the tests)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_another_process_is_refused():
    """After a fork the child gets RuntimeError that says what to do, for every entry."""
    async with world() as w:

        def check() -> None:
            for use in (w.manager.start(), w.manager.lock("a").acquire(), w.manager.inspect("a")):
                with pytest.raises(RuntimeError, match="fork"):
                    use.send(None)

        in_child(check)
        await cycle(w.manager.lock("a"))


def test_a_forked_child_that_goes_on_with_its_parents_loop_is_refused():
    """A loop that does not run at the fork can be run in the child: there, too, the error says what to do."""
    manager = LockManager(masters())
    words = "this LockManager was started before a fork: make one per process, after the fork"
    with asyncio.Runner() as runner:
        runner.run(hold(manager, "a", 0))

        def check() -> None:
            with pytest.raises(RuntimeError, match=words):
                runner.run(hold(manager, "a", 0))

        in_child(check)
        runner.run(hold(manager, "a", 0))
        runner.run(manager.aclose())


def test_a_forked_child_does_not_hand_its_parents_lock_on():
    """A block that ends in a child is its parent's: no task of the child gets the lock by that."""
    manager, inside = LockManager(masters(), fencing=False), list[int]()

    async def use(number: int, ends: asyncio.Event) -> None:
        async with manager.lock("a"):
            inside.append(number)
            await ends.wait()

    async def begin() -> tuple[asyncio.Event, list[asyncio.Task[None]]]:
        ends = asyncio.Event()
        uses = [asyncio.create_task(use(number, ends)) for number in range(2)]
        await eventually(lambda: inside == [0])
        return ends, uses

    with asyncio.Runner() as runner:
        ends, uses = runner.run(begin())

        def check() -> None:
            ends.set()
            runner.run(asyncio.wait((uses[0],)))
            runner.run(turns(10))  # those that a hand-off takes, and more
            assert inside == [0]

        in_child(check)
        ends.set()
        runner.run(asyncio.wait(uses))
        assert inside == [0, 1]
        runner.run(manager.aclose())


# -- hooks -------------------------------------------------------------------------------------------


async def test_a_raising_hook_is_logged_once_and_affects_nothing(caplog):
    """Hooks that raise at every event change no lock, and other hooks still hear; one log line each."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("on_"):
                return self.fail
            raise AttributeError(name)

        def fail(self, event: object) -> None:
            raise RuntimeError(f"broken by {type(event).__name__}")

    hook = Heard()

    async def use() -> None:
        async with world(hooks=[Broken(), hook, Broken()]) as w:
            for name in ("a", "b"):
                await hold(w.manager, name, TTL)
            with pytest.raises(LockLostError):
                await hold(w.manager, "c", extension=PLAIN)
            w.occupy("d", 1000.0)
            assert await w.manager.lock("d").try_acquire() is None

    assert (await in_task(use)).error is None
    heard = {Acquired, Extended, GaveUp, Lost, NodeChanged, Refused, Released}
    assert {type(event) for _, event in hook.told} == heard
    assert caplog.text.count("hook Broken failed") == 2
    assert background() == set()


# -- what it tells -----------------------------------------------------------------------------------


async def test_statistics():
    """Held, waiting, counters and nodes are as they are."""
    async with world() as w:
        w.occupy("taken", 1000.0)
        held = [await w.manager.lock(f"lock-{number}").acquire() for number in range(4)]
        waiting = [in_task(w.manager.lock("lock-0", blocking_timeout=50).acquire) for _ in range(3)]
        assert await w.manager.lock("taken").try_acquire() is None
        await asyncio.sleep(1)
        now = w.manager.statistics()
        assert (now.held, now.waiting, now.acquired, now.refused) == (4, 3, 4, 1)
        assert (now.extended, now.lost, now.released) == (0, 0, 0)
        await asyncio.sleep(TTL / 3)
        assert w.manager.statistics().extended == 4
        w.vacate("lock-3")
        await asyncio.sleep(TTL / 3)
        assert w.manager.statistics().lost == 1
        for lease in held:
            await lease.release()
        await asyncio.gather(*waiting)
        now = w.manager.statistics()
        assert (now.held, now.waiting, now.acquired, now.released) == (0, 0, 7, 7)
        for node, spec in zip(now.nodes, w.nodes, strict=True):
            assert (node.name, node.state, node.in_flight) == (spec.name, NodeState.UP, 0)
            assert (node.round_trip, node.pending_releases, node.dropped) == (pytest.approx(ROUND_TRIP), 0, 0)


# -- looking and administering -----------------------------------------------------------------------


async def test_inspect():
    """Per node: held or not, by which holder, how long, whether by this manager; None without an answer."""
    async with world(5, holder="us") as w, w.process(holder="them") as other:
        free = await w.manager.inspect("a")
        assert [(one.node, one.held) for one in free] == [(node.name, False) for node in w.nodes]
        async with w.manager.lock("a"):
            await asyncio.sleep(1)
            w.vacate("a", 1)
            w.occupy("a", None, 2)
            w.nodes[3].freeze()
            seen = await w.manager.inspect("a")
            assert [(one.held, one.ours, one.holder) for one in seen] == [
                (True, True, "us"), (False, False, None), (True, False, None), (None, False, None),
                (True, True, "us"),
            ]  # fmt: skip
            approx = pytest.approx(TTL - 1, abs=0.1)
            assert [one.ttl for one in seen] == [approx, None, None, None, approx]
            assert [bool(one.reason) for one in seen] == [False, False, False, True, False]
            one, *_ = await other.inspect("a")
            assert (one.held, one.ours, one.holder) == (True, False, "us")
            w.nodes[3].thaw()


async def test_force_release():
    """It deletes the key on every node for any holder, tells what was there, and the holder loses."""
    async with world() as w, w.process(holder="them") as other:
        lease = await other.lock("a").acquire()
        w.nodes[2].freeze()
        told = await w.manager.force_release("a")
        assert [(one.held, one.holder, bool(one.reason)) for one in told] == [
            (True, "them", False), (True, "them", False), (None, None, True),
        ]  # fmt: skip
        assert w.holders("a")[:2] == [None, None]
        w.nodes[2].thaw()
        await asyncio.sleep(TTL / 3 + 0.1)
        assert not lease.held
        await cycle(w.manager.lock("a", blocking_timeout=1))
        assert all(one.held is False for one in await w.manager.force_release("a"))


async def test_managers_of_different_prefixes_do_not_meet():
    """The prefix begins every key, so that two applications can use the same names."""
    async with (
        world() as w,
        w.process(prefix="other:") as other,
        w.manager.lock("a"),
        other.lock("a", blocking_timeout=0),
    ):
        assert w.keys == [(b"other:a", b"redlock:a")] * 3
        end = await in_task(w.manager.lock("a", blocking_timeout=0).acquire)
        assert isinstance(end.error, LockTakenError)
