"""The lease is the body's deadline: what loss does to the task under it, case by case (R7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from aioredlock_ng import Lease, Lock, LockLostError, LossReason
from aioredlock_ng.testing import lose
from tests.unit.tasks import End, ending, in_task, sim, turns
from tests.unit.worlds import GRACE, PLAIN, TTL, World, deadline, world

FOREVER = 1000.0
SOON = 0.002
"""Seconds within which the watchdog strikes: it wakes at most every millisecond."""
FREE = [()] * 3


def notes(error: BaseException | None) -> str:
    """Return the notes on an exception, as one text."""
    return "\n".join(getattr(error, "__notes__", ()))


def lost(end: End, *names: str, reason: LossReason = LossReason.EXPIRED) -> LockLostError:
    """Check that a task ended in the loss of these names, and kept no cancellation; return the error."""
    assert isinstance(end.error, LockLostError)
    assert (end.error.names, end.error.reason, end.cancelling) == (names or ("a",), reason, 0)
    return end.error


def cancelled(end: End) -> asyncio.CancelledError:
    """Check that a task ended in a cancellation from elsewhere, and still counts it; return the error."""
    assert isinstance(end.error, asyncio.CancelledError)
    assert end.cancelling == 1
    return end.error


def current() -> asyncio.Task[object]:
    """Return the running task."""
    task = asyncio.current_task()
    assert task is not None
    return task


class AtLoss:
    """A hook that does something at the loss: just before the strike (turn -1), or `turn` turns later."""

    def __init__(self, turn: int) -> None:
        self._turn = turn
        self.action: Callable[[], object] | None = None

    def on_lost(self, event: object) -> None:
        """Act now, or later."""
        self._act(self._turn)

    def _act(self, turn: int) -> None:
        if turn >= 0:
            sim().call_soon(self._act, turn - 1)
        elif self.action is not None:
            self.action()


def plain(w: World, name: str = "a", **options: str) -> Lock:
    """Describe a lock whose lease is not extended."""
    return w.manager.lock(name, extension=PLAIN, **options)


async def under(w: World, body: Callable[[Lease], Awaitable[object]], **options: str) -> End:
    """Run a body under a lease that is not extended, in a task of its own; return how its block ended."""

    async def block() -> None:
        async with plain(w, **options) as lease:
            await body(lease)

    return await in_task(block)


async def sleep_under(w: World, name: str = "a", seconds: float = FOREVER) -> None:
    """Sleep under a lease that is not extended."""
    async with plain(w, name):
        await asyncio.sleep(seconds)


# -- the cancellation --------------------------------------------------------------------------------


async def test_the_body_is_cancelled_at_its_deadline():
    """It is cancelled one grace before validity ends, cleans up inside the lock, and its block raises."""
    async with world() as w:

        async def body(lease: Lease) -> None:
            assert not lease.lost.is_set()
            try:
                await asyncio.sleep(FOREVER)
            finally:
                due = deadline(lease)
                assert due <= sim().time() <= due + SOON
                assert lease.lost.is_set()
                await asyncio.sleep(GRACE * TTL * 0.9)
                lease.check()
                assert (lease.held, lease.remaining > 0) == (True, True)
                assert w.keys == [(b"redlock:a",)] * 3

        error = lost(await under(w, body))
        assert isinstance(error.__cause__, asyncio.CancelledError)
        assert w.keys == FREE


async def test_the_body_is_cancelled_once():
    """A body that swallows the cancellation goes on undisturbed (an edge, not a level), and hears at exit."""
    async with world() as w:
        times = []

        async def body(_: Lease) -> None:
            for _ in range(100):
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    times.append(sim().time())

        lost(await under(w, body))
        assert len(times) == 1


async def test_an_earlier_cancellation_count_is_the_baseline():
    """A task that had swallowed a cancellation before it entered gets LockLostError and its old count."""
    async with world() as w:

        async def body() -> None:
            current().cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            await sleep_under(w)

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.cancelling == 1


# -- exceptions of the body --------------------------------------------------------------------------


@pytest.mark.parametrize("on_lost", ["cancel", "raise"])
async def test_an_exception_of_a_body_that_was_cancelled_gets_a_note(on_lost):
    """A body that turns the cancellation into its own error, or was spared it, keeps that error."""
    async with world() as w:
        mine = ValueError("mine")

        async def body(_: Lease) -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(2 * TTL)
            raise mine

        end = await under(w, body, on_lost=on_lost)
        assert (end.error, end.cancelling) == (mine, 0)
        assert "'a'" in notes(mine)
        assert "lost" in notes(mine)


# -- other people's cancellations --------------------------------------------------------------------


@pytest.mark.parametrize("turn", range(-1, 12))
async def test_a_foreign_cancellation_at_the_moment_of_the_loss(turn):
    """Another cancellation around the moment of the loss, in whatever turn of the loop, is not lost."""
    hook = AtLoss(turn)
    async with world(hooks=[hook]) as w:
        task = in_task(lambda: sleep_under(w))
        hook.action = lambda: task.cancel("theirs") or pytest.fail("the report takes a round trip")
        cancelled(await task)
        await asyncio.sleep(1)
        assert w.keys == FREE


@pytest.mark.parametrize("turn", range(-1, 8))
@pytest.mark.parametrize("outer", [True, False])
async def test_a_timeout_at_the_moment_of_the_loss(turn, outer):
    """A timeout that fires with the loss: the outer of the two decides, and the count is back to zero."""
    hook = AtLoss(turn)
    async with world(hooks=[hook]) as w:
        finished = False

        async def sleep(timeout: asyncio.Timeout) -> None:
            nonlocal finished
            hook.action = lambda: timeout.reschedule(sim().time()) if not finished else None
            await (sleep_under(w) if outer else asyncio.sleep(FOREVER))

        async def body(_: Lease | None = None) -> None:
            nonlocal finished
            try:
                async with asyncio.timeout(None) as timeout:
                    await sleep(timeout)
            finally:
                finished = True

        end = await (in_task(body) if outer else under(w, body))
        assert end.cancelling == 0
        if outer or type(end.error) is TimeoutError:
            assert type(end.error) is TimeoutError
            assert outer or "lost" in notes(end.error)
        else:
            lost(end)


@pytest.mark.parametrize("raises", [None, ValueError("mine")], ids=repr)
async def test_a_foreign_cancellation_while_the_exit_awaits_the_report(raises):
    """The block ends in the foreign cancellation, and the releases arrive all the same."""
    async with world(latency=0.02) as w:

        async def body() -> None:
            async with w.manager.lock("a"):
                await asyncio.sleep(1)
                if raises is not None:
                    raise raises

        task = in_task(body)
        await asyncio.sleep(0.04 + 1 + 0.01)
        assert not task.done()
        task.cancel("theirs")
        assert cancelled(await task).__context__ is raises
        await asyncio.sleep(0.04)
        assert w.keys == FREE


# -- the end of the body -----------------------------------------------------------------------------


@pytest.mark.parametrize("turn", range(8))
async def test_a_body_that_ends_as_its_deadline_passes(turn):
    """Lost in the turn in which it ends, before or after the strike: LockLostError, and nothing stray."""
    async with world() as w:
        struck = False

        async def body_and_more() -> None:
            nonlocal struck
            try:
                async with plain(w) as lease:
                    await lease.lost.wait()  # runs before the strike that the loss has asked for
                    try:
                        await turns(turn)
                    except asyncio.CancelledError:
                        struck = True
                        raise
            finally:
                await turns(5)  # would meet a stray cancellation
                await asyncio.sleep(1)

        error = lost(await in_task(body_and_more))
        assert struck == (turn > 0) == (error.__cause__ is not None)
        assert w.keys == FREE


@pytest.mark.parametrize("checks", [True, False])
async def test_a_body_that_outlives_validity_without_a_pause(checks):
    """A body that blocked the loop past the end of validity hears of it at exit, without a cancellation."""
    async with world() as w:

        async def body() -> None:
            async with w.manager.lock("a") as lease:
                sim().advance(TTL + 1)
                if checks:
                    assert not lease.held
                    with pytest.raises(LockLostError):
                        lease.check()

        assert lost(await in_task(body)).__cause__ is None


async def test_on_lost_raise_skips_the_cancellation():
    """The body runs on, can see the loss, and its block ends in LockLostError, also when it has released."""
    async with world() as w:
        ran_on = asyncio.Event()

        async def body(lease: Lease) -> None:
            await lease.lost.wait()
            lease.check()  # within grace the lock is still ours
            await asyncio.sleep(TTL)
            with pytest.raises(LockLostError):
                lease.check()
            await lease.release()
            ran_on.set()

        lost(await under(w, body, on_lost="raise"))
        assert ran_on.is_set()


async def test_on_lost_raise_of_the_manager_is_the_default_of_its_locks():
    """The manager's on_lost holds for every lock that does not say otherwise."""
    async with world(on_lost="raise") as w:
        for options, seconds in (({}, 2 * TTL), ({"on_lost": "cancel"}, TTL)):
            began = sim().time()
            end = await under(w, lambda _: asyncio.sleep(2 * TTL), **options)
            lost(end)
            assert end.at - began == pytest.approx(seconds, rel=0.1)


# -- release and leases without a body ---------------------------------------------------------------


async def test_acquire_never_cancels_a_task():
    """The loss of a lease from acquire() sets `lost` and cancels neither its acquirer nor any other task."""
    async with world() as w:

        async def body() -> None:
            lease = await plain(w).acquire()
            await asyncio.sleep(3 * TTL)
            assert (lease.lost.is_set(), lease.held) == (True, False)
            with pytest.raises(LockLostError) as caught:
                lease.check()
            assert caught.value.reason is LossReason.EXPIRED
            report = await lease.release()
            assert [node.outcome.value for node in report.nodes] == ["was not held"] * 3

        end = await in_task(body)
        assert (end.error, end.cancelling) == (None, 0)


async def sleep_in(lease: Lease) -> None:
    """Sleep in the block of a lease."""
    async with lease as same:
        assert same is lease
        await asyncio.sleep(FOREVER)


async def test_async_with_lease_that_is_over():
    """A lost, and a released, lease cannot be entered; one inside its grace can, and cancels at once."""
    async with world() as w:
        lease = await plain(w).acquire()
        await lease.lost.wait()
        assert lease.held
        end = await ending(lambda: sleep_in(lease))
        lost(end)
        assert end.at < lease.valid_until
        gone = await plain(w).acquire()
        await asyncio.sleep(2 * TTL)
        released = await plain(w).acquire()
        await released.release()
        for over, reason in ((gone, LossReason.EXPIRED), (released, LossReason.RELEASED)):
            lost(await ending(lambda over=over: sleep_in(over)), reason=reason)
        await gone.release()


# -- exits in other tasks and other orders -----------------------------------------------------------


async def fixture(lock: Lock) -> AsyncIterator[Lease]:
    """Hold a lock between two steps of a generator, as a fixture does."""
    async with lock as lease:
        yield lease


@pytest.mark.parametrize("passes", [True, False])
async def test_an_exit_in_another_task_takes_nothing_back(passes):
    """The task that entered keeps its cancellation; the exiting one converts nothing, and raises if alone."""
    async with world() as w:
        lock = plain(w)
        seen: list[asyncio.CancelledError] = []
        go = asyncio.Event()

        async def enter() -> None:
            await lock.__aenter__()
            try:
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError as error:
                seen.append(error)
            await go.wait()

        entered = in_task(enter)
        while not seen:
            await asyncio.sleep(0.1)
        error = seen[0] if passes else None
        end = await in_task(lambda: lock.__aexit__(type(error) if error else None, error, None))
        if passes:
            assert (end.error, end.cancelling) == (None, 0), "the block raises it, not the exit"
            assert "lost" in notes(error)
        else:
            assert lost(end).__cause__ is None
        assert entered.cancelling() == 1
        go.set()
        assert (await entered).cancelling == 1


# -- nested locks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner_after", [0.0, 0.0005, 0.001, 0.002, 0.003, 0.005, 1.0])
async def test_nested_locks_that_are_both_lost(inner_after):
    """The outer one's LockLostError leaves, whether they are lost at once or one after the other."""
    async with world() as w:

        async def body(_: Lease) -> None:
            await asyncio.sleep(inner_after)
            await sleep_under(w, "inner")

        lost(await under(w, body, name="outer"), "outer")
        assert w.keys == FREE


# -- one Lock, many leases ---------------------------------------------------------------------------


async def test_generators_leave_the_blocks_of_a_shared_lock_in_any_order():
    """Each exit releases the lease of its own block, be it in its task or, left early, in another one."""
    async with world() as w:
        pool = w.manager.semaphore("pool", permits=3)
        holders = [fixture(pool) for _ in range(3)]
        leases = [await anext(one) for one in holders]
        await holders[0].aclose()
        assert [lease.held for lease in leases] == [False, True, True]
        await asyncio.create_task(holders[1].aclose())
        assert [lease.held for lease in leases] == [False, False, True]
        await holders[2].aclose()
        assert [lease.held for lease in leases] == [False] * 3


class Traced:
    """Enters and leaves a lock for its caller, as code that traces or retries does."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    async def _call(self, function: Callable[..., Awaitable[Any]], *args: object) -> Any:
        return await function(*args)

    async def __aenter__(self) -> Lease:
        return await self._call(self._lock.__aenter__)

    async def __aexit__(self, *exc_info: object) -> None:
        await self._call(self._lock.__aexit__, *exc_info)


async def test_helpers_that_enter_for_their_callers_leave_the_block_of_their_task():
    """Their frames come and go, one like the other."""
    async with world() as w:
        pool = Traced(w.manager.semaphore("pool", permits=3))
        seen: list[bool] = []

        async def work(number: int) -> None:
            await asyncio.sleep(number / 10)
            async with pool as lease:
                await asyncio.sleep(1 + number)
                seen.append(lease.held)
            seen.append(lease.held)

        await asyncio.gather(*map(work, range(3)))
        assert seen == [True, False] * 3


async def test_a_loss_cancels_the_task_whose_generator_holds_the_lock():
    """Not one that has left its own generator, in a task of the event loop's."""
    async with world() as w:
        read = w.manager.rwlock("a").read()

        async def rows() -> AsyncIterator[Lease]:
            async with read as lease:
                while True:
                    yield lease
                    await asyncio.sleep(0.1)

        async def early() -> None:
            async for _ in rows():
                break
            await asyncio.sleep(1)

        async def all_of_it() -> None:
            async for lease in rows():
                lease.check()

        reading = in_task(all_of_it)
        await asyncio.sleep(0.05)
        left = in_task(early)
        await asyncio.sleep(0.5)
        lose(w.manager, "a")
        lost(await reading, reason=LossReason.REFUSED)
        assert (await left).error is None
