"""The lease is the body's deadline: what loss does to the task under it, case by case (R7)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress

import anyio
import pytest

from aioredlock_ng import Lease, LockLostError, LossReason
from tests.unit.worlds import (
    GRACE,
    PLAIN,
    TTL,
    World,
    deadline,
    ending,
    in_task,
    sim,
    turns,
    until,
    virtual,
    world,
)

FOREVER = 1000.0
SOON = 0.002
"""Seconds within which the watchdog strikes: it wakes at most every millisecond."""


def notes(error: BaseException | None) -> str:
    """Return the notes on an exception, as one text."""
    return "\n".join(getattr(error, "__notes__", ()))


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


async def sleep_under(w: World, name: str = "a", seconds: float = FOREVER) -> None:
    """Sleep under a lease that is not extended."""
    async with w.manager.lock(name, extension=PLAIN):
        await asyncio.sleep(seconds)


# -- the cancellation --------------------------------------------------------------------------------


@virtual
async def test_the_body_is_cancelled_at_its_deadline():
    """The body is cancelled one grace before validity ends, and its block ends in LockLostError."""
    async with world() as w:
        leases: list[Lease] = []
        struck: list[float] = []

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN) as lease:
                leases.append(lease)
                assert not lease.lost.is_set()
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    struck.append(sim().time())
                    assert lease.lost.is_set()

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.error.reason is LossReason.EXPIRED
        assert end.error.names == ("a",)
        assert isinstance(end.error.__cause__, asyncio.CancelledError)
        assert end.cancelling == 0
        due = deadline(leases[0])
        assert due <= struck[0] <= due + SOON


@virtual
async def test_clean_up_of_the_body_is_still_inside_the_lock():
    """While the cancelled body cleans up within its grace, the keys are there and the lease is held."""
    async with world() as w:
        seen = []

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN) as lease:
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    await asyncio.sleep(GRACE * TTL * 0.9)
                    lease.check()
                    seen.append((lease.held, lease.remaining > 0, w.keys))

        end = await in_task(body)
        assert seen == [(True, True, [(b"redlock:a",)] * 3)]
        assert isinstance(end.error, LockLostError)
        assert w.keys == [()] * 3


@virtual
async def test_the_body_is_cancelled_once():
    """A body that swallows the cancellation goes on undisturbed (an edge, not a level), and hears at exit."""
    async with world() as w:
        cancelled = []

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN):
                for _ in range(100):
                    try:
                        await asyncio.sleep(1)
                    except asyncio.CancelledError:
                        cancelled.append(sim().time())

        end = await in_task(body)
        assert len(cancelled) == 1
        assert isinstance(end.error, LockLostError)
        assert end.cancelling == 0


@virtual
async def test_a_won_extension_moves_the_deadline():
    """A lease that is extended in time cancels no task, however long the body runs."""
    async with world() as w, w.manager.lock("a") as lease:
        await asyncio.sleep(20 * TTL)
        assert lease.held
        assert lease.extensions >= 20


@virtual
async def test_refusal_by_a_majority_cancels_the_body_at_once():
    """With the key gone on a majority the body ends at the next extension, with the votes that say why."""
    async with world() as w:

        async def body() -> None:
            async with w.manager.lock("a") as lease:
                w.vacate("a", 0, 1)
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    assert not lease.held
                    assert lease.remaining == 0

        began = sim().time()
        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.error.reason is LossReason.REFUSED
        assert len(end.error.votes) == 3
        assert end.at - began < TTL / 3 + 0.02


@virtual
async def test_a_shield_does_not_hold_the_cancellation_off():
    """An anyio scope with a shield is no protection against the loss of the lock."""
    async with world() as w:

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN):
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(FOREVER)

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.cancelling == 0


@virtual
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


@virtual
async def test_the_loop_of_a_body_goes_on_after_a_loss():
    """After LockLostError the task can await and lock again: no stray cancellation is left behind."""
    async with world() as w:
        for _ in range(3):
            with pytest.raises(LockLostError):
                await sleep_under(w)
            await turns(3)
            assert current().cancelling() == 0
        async with w.manager.lock("a"):
            await asyncio.sleep(1)


# -- exceptions of the body --------------------------------------------------------------------------


@virtual
async def test_an_exception_of_the_body_leaves_unchanged():
    """Without a loss the body's exception passes as it is, without a note, and the lock is free."""
    async with world() as w:
        mine = ValueError("mine")

        async def body() -> None:
            async with w.manager.lock("a"):
                raise mine

        end = await in_task(body)
        assert end.error is mine
        assert notes(mine) == ""
        assert w.keys == [()] * 3


@virtual
async def test_an_exception_of_a_body_that_was_cancelled_gets_a_note():
    """A body that turns the cancellation into its own error keeps it; a note tells of the loss."""
    async with world() as w:
        mine = ValueError("mine")

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN):
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError:
                    raise mine from None

        end = await in_task(body)
        assert end.error is mine
        assert "'a'" in notes(mine)
        assert "lost" in notes(mine)
        assert end.cancelling == 0


@virtual
async def test_loss_while_the_body_cleans_up_after_its_own_exception():
    """A clean-up that the loss interrupts ends in LockLostError; the body's exception is in its chain."""
    async with world() as w:
        mine = ValueError("mine")

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN):
                try:
                    await asyncio.sleep(1)
                    raise mine
                finally:
                    await asyncio.sleep(FOREVER)

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.error.__cause__ is not None
        assert end.error.__cause__.__context__ is mine
        assert end.cancelling == 0


@virtual
async def test_a_task_group_whose_child_fails_during_our_cancellation():
    """Its exception group leaves unchanged, with a note, and the count is back to zero."""
    async with world() as w:
        mine = ValueError("in the clean-up of the child")

        async def child() -> None:
            try:
                await asyncio.sleep(FOREVER)
            finally:
                raise mine

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN), asyncio.TaskGroup() as group:
                group.create_task(child())
                await asyncio.sleep(FOREVER)

        end = await in_task(body)
        assert isinstance(end.error, ExceptionGroup)
        assert end.error.exceptions == (mine,)
        assert "lost" in notes(end.error)
        assert end.cancelling == 0


@virtual
async def test_a_task_group_in_the_body_is_cancelled_as_a_whole():
    """A task group whose children take the cancellation well ends in LockLostError, all children ended."""
    async with world() as w:
        ended = []

        async def child(number: int) -> None:
            try:
                await asyncio.sleep(FOREVER)
            finally:
                ended.append(number)

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN), asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(child(number))

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert sorted(ended) == [0, 1, 2]
        assert end.cancelling == 0


# -- other people's cancellations --------------------------------------------------------------------


@virtual
async def test_a_foreign_cancellation_leaves_unchanged():
    """A cancellation from elsewhere passes with its message, without a note, and the lock is free."""
    async with world() as w:
        task = in_task(lambda: sleep_under(w))
        await asyncio.sleep(1)
        task.cancel("theirs")
        end = await task
        assert isinstance(end.error, asyncio.CancelledError)
        assert end.error.args == ("theirs",)
        assert notes(end.error) == ""
        assert end.cancelling == 1
        assert w.keys == [()] * 3


@virtual
async def test_a_timeout_around_the_lock():
    """asyncio.timeout around a lock ends in TimeoutError."""
    async with world() as w:

        async def body() -> None:
            async with asyncio.timeout(1):
                await sleep_under(w)

        end = await in_task(body)
        assert type(end.error) is TimeoutError
        assert end.cancelling == 0
        assert w.keys == [()] * 3


@pytest.mark.parametrize("turn", range(-1, 12))
def test_a_foreign_cancellation_at_the_moment_of_the_loss(turn):
    """Another cancellation around the moment of the loss, in whatever turn of the loop, is not lost."""

    async def main() -> None:
        hook = AtLoss(turn)
        async with world(hooks=[hook]) as w:
            task = in_task(lambda: sleep_under(w))
            hook.action = lambda: task.cancel("theirs") or pytest.fail("the report takes a round trip")
            end = await task
            assert isinstance(end.error, asyncio.CancelledError)
            assert end.cancelling == 1
            await asyncio.sleep(1)
            assert w.keys == [()] * 3

    virtual(main)()


@pytest.mark.parametrize("turn", range(-1, 8))
@pytest.mark.parametrize("outer", [True, False])
def test_a_timeout_at_the_moment_of_the_loss(turn, outer):
    """A timeout that fires with the loss: the outer of the two decides, and the count is back to zero."""

    async def main() -> None:
        hook = AtLoss(turn)
        async with world(hooks=[hook]) as w:

            def fire(timeout: asyncio.Timeout) -> None:
                hook.action = lambda: timeout.reschedule(sim().time()) if not finished else None

            finished = False

            async def body() -> None:
                nonlocal finished
                if outer:
                    async with asyncio.timeout(None) as timeout:
                        fire(timeout)
                        await sleep_under(w)
                else:
                    async with w.manager.lock("a", extension=PLAIN):
                        try:
                            async with asyncio.timeout(None) as timeout:
                                fire(timeout)
                                await asyncio.sleep(FOREVER)
                        finally:
                            finished = True

            end = await in_task(body)
            if outer:
                assert type(end.error) is TimeoutError
            else:
                lost = isinstance(end.error, LockLostError)
                assert lost or (type(end.error) is TimeoutError and "lost" in notes(end.error)), end
            assert end.cancelling == 0

    virtual(main)()


@virtual
async def test_a_timeout_that_fires_before_the_strike_of_the_same_turn():
    """An outer timeout wins also when it is the first of the two to cancel; an inner one does not."""
    hook = AtLoss(-1)
    async with world(hooks=[hook]) as w:

        async def outer() -> None:
            async with asyncio.timeout(None) as timeout:
                hook.action = timeout._on_timeout
                await sleep_under(w)

        async def inner() -> None:
            async with w.manager.lock("a", extension=PLAIN), asyncio.timeout(None) as timeout:
                hook.action = timeout._on_timeout
                await asyncio.sleep(FOREVER)

        end = await in_task(outer)
        assert type(end.error) is TimeoutError
        assert end.cancelling == 0
        end = await in_task(inner)
        assert isinstance(end.error, LockLostError)
        assert end.cancelling == 0


@virtual
async def test_a_foreign_cancellation_while_the_exit_awaits_the_report():
    """The block ends in the foreign cancellation, and the releases arrive all the same."""
    async with world(latency=0.02) as w:
        for raises in (None, ValueError("mine")):

            async def body(error: Exception | None = raises) -> None:
                async with w.manager.lock(f"a {error}"):
                    await asyncio.sleep(1)
                    if error is not None:
                        raise error

            task = in_task(body)
            await asyncio.sleep(0.04 + 1 + 0.01)
            assert not task.done()
            task.cancel("theirs")
            end = await task
            assert isinstance(end.error, asyncio.CancelledError)
            assert end.cancelling == 1
            assert end.error.__context__ is raises
            await asyncio.sleep(0.04)
            assert w.keys == [()] * 3


@virtual
async def test_a_foreign_cancellation_while_the_exit_of_a_lost_lease_awaits_the_report():
    """Also then the cancellation is theirs: ours has been taken back before the first await."""
    async with world(latency=0.02) as w:
        task = in_task(lambda: sleep_under(w))
        await asyncio.sleep(9.4)
        while not w.manager.statistics().lost:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel("theirs")
        end = await task
        assert isinstance(end.error, asyncio.CancelledError)
        assert end.cancelling == 1
        await asyncio.sleep(0.04)
        assert w.keys == [()] * 3


@pytest.mark.parametrize("pauses", [False, True])
def test_a_body_that_cancels_itself(pauses):
    """A body that cancels its own task ends in that cancellation, lost or not, and the lock is free."""

    async def main(seconds: float) -> None:
        async with world() as w:

            async def body() -> None:
                async with w.manager.lock("a", extension=PLAIN):
                    try:
                        await asyncio.sleep(seconds)
                    finally:
                        current().cancel("mine")
                        if pauses:
                            await asyncio.sleep(0)

            end = await in_task(body)
            assert isinstance(end.error, asyncio.CancelledError)
            assert end.cancelling == 1
            await asyncio.sleep(1)
            assert w.keys == [()] * 3

    virtual(main)(1)
    virtual(main)(FOREVER)


# -- the end of the body -----------------------------------------------------------------------------


@pytest.mark.heavy
@virtual
async def test_a_body_that_ends_in_time():
    """A body that ends just before its deadline is not disturbed, nor is what follows it."""
    async with world() as w:

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN) as lease:
                await until(deadline(lease) - 0.001)
            assert not lease.lost.is_set()
            await asyncio.sleep(FOREVER)

        end = await in_task(body)
        assert end.error is None
        assert end.cancelling == 0


@pytest.mark.parametrize("turn", range(8))
def test_a_body_that_ends_as_its_deadline_passes(turn):
    """Lost in the turn in which it ends, before or after the strike: LockLostError, and nothing stray."""

    async def main() -> None:
        async with world() as w:
            struck = False

            async def body() -> None:
                nonlocal struck
                async with w.manager.lock("a", extension=PLAIN) as lease:
                    await lease.lost.wait()  # runs before the strike that the loss has asked for
                    try:
                        await turns(turn)
                    except asyncio.CancelledError:
                        struck = True
                        raise

            async def body_and_more() -> None:
                try:
                    await body()
                finally:
                    await turns(5)  # would meet a stray cancellation
                    await asyncio.sleep(1)

            end = await in_task(body_and_more)
            assert isinstance(end.error, LockLostError)
            assert struck == (turn > 0)
            assert (end.error.__cause__ is not None) == struck
            assert end.cancelling == 0
            assert w.keys == [()] * 3

    virtual(main)()


@pytest.mark.parametrize("checks", [True, False])
def test_a_body_that_outlives_validity_without_a_pause(checks):
    """A body that blocked the loop past the end of validity hears of it at exit, without a cancellation."""

    async def main() -> None:
        async with world() as w:

            async def body() -> None:
                async with w.manager.lock("a") as lease:
                    sim().advance(TTL + 1)
                    if checks:
                        assert not lease.held
                        with pytest.raises(LockLostError):
                            lease.check()

            end = await in_task(body)
            assert isinstance(end.error, LockLostError)
            assert end.error.reason is LossReason.EXPIRED
            assert end.error.__cause__ is None
            assert end.cancelling == 0

    virtual(main)()


@virtual
async def test_on_lost_raise_skips_the_cancellation():
    """With on_lost="raise" the body runs on, can see the loss, and its block ends in LockLostError."""
    async with world() as w:
        ran_on = asyncio.Event()

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN, on_lost="raise") as lease:
                await lease.lost.wait()
                lease.check()  # within grace the lock is still ours
                await asyncio.sleep(TTL)
                with pytest.raises(LockLostError):
                    lease.check()
                ran_on.set()

        end = await in_task(body)
        assert ran_on.is_set()
        assert isinstance(end.error, LockLostError)
        assert end.cancelling == 0


@virtual
async def test_on_lost_raise_of_the_manager_is_the_default_of_its_locks():
    """The manager's on_lost holds for every lock that does not say otherwise."""
    async with world(on_lost="raise") as w:

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN):
                await asyncio.sleep(2 * TTL)

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.at > 1000 + 2 * TTL
        end = await in_task(lambda: _under(w, "cancel"))
        assert isinstance(end.error, LockLostError)
        assert end.at < 1000 + 4 * TTL


async def _under(w: World, on_lost: str) -> None:
    async with w.manager.lock("a", extension=PLAIN, on_lost=on_lost):
        await asyncio.sleep(2 * TTL)


@virtual
async def test_on_lost_raise_keeps_the_note():
    """An exception of a body that was not cancelled gets the note of the loss, too."""
    async with world() as w:
        mine = ValueError("mine")

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN, on_lost="raise"):
                await asyncio.sleep(2 * TTL)
                raise mine

        end = await in_task(body)
        assert end.error is mine
        assert "lost" in notes(mine)


# -- release and leases without a body ---------------------------------------------------------------


@virtual
async def test_release_under_a_running_body_cancels_no_task():
    """After an explicit release the body runs on; check() says `released`, and the exit is quiet."""
    async with world() as w:

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN) as lease:
                report = await lease.release()
                assert [node.outcome.value for node in report.nodes] == ["released"] * 3
                assert not lease.held
                with pytest.raises(LockLostError) as caught:
                    lease.check()
                assert caught.value.reason is LossReason.RELEASED
                await asyncio.sleep(3 * TTL)
                assert not lease.lost.is_set()

        end = await in_task(body)
        assert end.error is None
        assert end.cancelling == 0


@virtual
async def test_release_from_another_task():
    """Any task of the loop may release; the body is not disturbed, and its exception stays without a note."""
    async with world() as w:
        mine = ValueError("mine")
        leases: list[Lease] = []

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN) as lease:
                leases.append(lease)
                await asyncio.sleep(3 * TTL)
                raise mine

        task = in_task(body)
        await asyncio.sleep(1)
        first = await asyncio.create_task(leases[0].release())
        assert w.keys == [()] * 3
        assert await leases[0].release() == first
        end = await task
        assert end.error is mine
        assert notes(mine) == ""


@virtual
async def test_release_after_the_loss_does_not_hide_it():
    """A lease that was lost and then released still ends its block in LockLostError, as `expired`."""
    async with world() as w:

        async def body() -> None:
            async with w.manager.lock("a", extension=PLAIN, on_lost="raise") as lease:
                await asyncio.sleep(2 * TTL)
                await lease.release()

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.error.reason is LossReason.EXPIRED


@virtual
async def test_acquire_never_cancels_a_task():
    """The loss of a lease from acquire() sets `lost` and cancels neither its acquirer nor any other task."""
    async with world() as w:

        async def body() -> None:
            lease = await w.manager.lock("a", extension=PLAIN).acquire()
            await asyncio.sleep(3 * TTL)
            assert lease.lost.is_set()
            assert not lease.held
            with pytest.raises(LockLostError) as caught:
                lease.check()
            assert caught.value.reason is LossReason.EXPIRED
            report = await lease.release()
            assert [node.outcome.value for node in report.nodes] == ["was not held"] * 3

        end = await in_task(body)
        assert end.error is None
        assert end.cancelling == 0


@virtual
async def test_async_with_lease_binds_the_entering_task():
    """A lease acquired in one task and entered in another is the deadline of the second."""
    async with world() as w:
        lease = await asyncio.create_task(w.manager.lock("a", extension=PLAIN).acquire())

        async def body() -> None:
            async with lease as same:
                assert same is lease
                await asyncio.sleep(FOREVER)

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert isinstance(end.error.__cause__, asyncio.CancelledError)
        assert end.cancelling == 0
        assert current().cancelling() == 0
        assert w.keys == [()] * 3


@virtual
async def test_async_with_lease_that_is_over():
    """A lost, and a released, lease cannot be entered."""
    async with world() as w:
        lost = await w.manager.lock("a", extension=PLAIN).acquire()
        await asyncio.sleep(2 * TTL)
        with pytest.raises(LockLostError) as caught:
            async with lost:
                pytest.fail("entered")
        assert caught.value.reason is LossReason.EXPIRED
        await lost.release()
        released = await w.manager.lock("a").acquire()
        await released.release()
        with pytest.raises(LockLostError) as caught:
            async with released:
                pytest.fail("entered")
        assert caught.value.reason is LossReason.RELEASED


@virtual
async def test_async_with_lease_inside_its_grace():
    """A lease whose deadline has passed but not its validity is entered and cancels at once."""
    async with world() as w:
        lease = await w.manager.lock("a", extension=PLAIN).acquire()
        await lease.lost.wait()
        assert lease.held
        end = await ending(lambda: _sleep_in(lease))
        assert isinstance(end.error, LockLostError)
        assert end.cancelling == 0
        assert end.at < lease.valid_until


async def _sleep_in(lease: Lease) -> None:
    async with lease:
        await asyncio.sleep(FOREVER)


# -- exits in other tasks and other orders -----------------------------------------------------------


async def fixture(w: World, leases: list[Lease], name: str = "a") -> AsyncIterator[Lease]:
    """Hold a lock between two steps of a generator, as a fixture does."""
    async with w.manager.lock(name, extension=PLAIN) as lease:
        leases.append(lease)
        yield lease


@virtual
async def test_a_fixture_enters_and_exits_in_different_tasks():
    """An async generator advanced by two tasks holds the lock in between and gives it back."""
    async with world() as w:
        generator = fixture(w, [])
        lease = await asyncio.create_task(anext(generator))
        await asyncio.sleep(1)
        assert lease.held
        with pytest.raises(StopAsyncIteration):
            await asyncio.create_task(anext(generator))
        assert w.keys == [()] * 3
        assert current().cancelling() == 0


@virtual
async def test_a_lost_fixture_raises_at_its_exit():
    """Its loss cancels no task, since the task that entered is over; its exit raises LockLostError."""
    async with world() as w:
        generator = fixture(w, [])
        lease = await asyncio.create_task(anext(generator))
        await asyncio.sleep(2 * TTL)
        assert lease.lost.is_set()

        end = await in_task(generator.__anext__)
        assert isinstance(end.error, LockLostError)
        assert end.cancelling == 0
        assert w.keys == [()] * 3


@virtual
async def test_an_exception_at_the_exit_of_a_lost_fixture_leaves_with_a_note():
    """Thrown into the generator from another task, it is not replaced."""
    async with world() as w:
        generator = fixture(w, [])
        await asyncio.create_task(anext(generator))
        await asyncio.sleep(2 * TTL)
        mine = ValueError("mine")
        end = await in_task(lambda: generator.athrow(mine))
        assert end.error is mine
        assert "lost" in notes(mine)


@pytest.mark.parametrize("passes", [True, False])
def test_an_exit_in_another_task_takes_nothing_back(passes):
    """The task that entered keeps its cancellation; the exiting one converts nothing, and raises if alone."""

    async def main() -> None:
        async with world() as w:
            lock = w.manager.lock("a", extension=PLAIN)
            cancelled: list[asyncio.CancelledError] = []
            go = asyncio.Event()

            async def enter() -> None:
                await lock.__aenter__()
                try:
                    await asyncio.sleep(FOREVER)
                except asyncio.CancelledError as error:
                    cancelled.append(error)
                await go.wait()

            entered = in_task(enter)
            while not cancelled:
                await asyncio.sleep(0.1)
            error = cancelled[0] if passes else None
            end = await in_task(lambda: lock.__aexit__(type(error) if error else None, error, None))
            if passes:
                assert end.error is None, "the exit leaves the exception alone: the block raises it"
                assert "lost" in notes(error)
            else:
                assert isinstance(end.error, LockLostError)
                assert end.error.__cause__ is None
            assert end.cancelling == 0
            assert entered.cancelling() == 1
            go.set()
            assert (await entered).cancelling == 1

    virtual(main)()


@virtual
async def test_an_exit_in_another_task_disarms():
    """After another task's exit the task that entered is never cancelled."""
    async with world() as w:
        lock = w.manager.lock("a", extension=PLAIN)

        async def enter() -> None:
            await lock.__aenter__()
            await asyncio.create_task(lock.__aexit__(None, None, None))
            await asyncio.sleep(3 * TTL)

        end = await in_task(enter)
        assert end.error is None
        assert w.keys == [()] * 3


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_exit_stacks_closed_in_any_order(order):
    """Locks in exit stacks of their own may be left in any order, in the same task or in another one."""

    async def main(elsewhere: bool) -> None:
        async with world() as w:
            stacks = [AsyncExitStack() for _ in range(3)]
            leases = [
                await stack.enter_async_context(w.manager.lock(f"lock-{i}")) for i, stack in enumerate(stacks)
            ]
            left = {0, 1, 2}
            for index in order:
                closing = stacks[index].aclose()
                await (asyncio.create_task(closing) if elsewhere else closing)
                left.discard(index)
                assert {i for i, lease in enumerate(leases) if lease.held} == left
            assert w.keys == [()] * 3
            assert current().cancelling() == 0

    virtual(main)(elsewhere=False)
    virtual(main)(elsewhere=True)


@virtual
async def test_hand_over_hand():
    """A task walks a chain of locks, each taken before the one behind it is left."""
    async with world() as w:
        behind = w.manager.lock("link-0")
        await behind.__aenter__()
        for number in range(1, 20):
            ahead = w.manager.lock(f"link-{number}")
            await ahead.__aenter__()
            await behind.__aexit__(None, None, None)
            behind = ahead
            await asyncio.sleep(TTL / 3)
            assert w.keys == [(b"redlock:link-%d" % number,)] * 3
        await behind.__aexit__(None, None, None)
        assert w.keys == [()] * 3
        assert current().cancelling() == 0


@virtual
async def test_hand_over_hand_with_a_loss():
    """A lock left out of order takes its own cancellation back, even if it was entered first."""
    async with world() as w:

        async def body() -> None:
            first, second = w.manager.lock("first", extension=PLAIN), w.manager.lock("second")
            await first.__aenter__()
            await second.__aenter__()
            error: BaseException | None = None
            try:
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError as raised:
                error = raised
            with pytest.raises(LockLostError) as caught:
                await first.__aexit__(type(error), error, None)
            assert caught.value.names == ("first",)
            assert current().cancelling() == 0
            await asyncio.sleep(TTL)
            await second.__aexit__(None, None, None)

        end = await in_task(body)
        assert end.error is None
        assert end.cancelling == 0


# -- nested locks ------------------------------------------------------------------------------------


async def nested(w: World, inner_after: float = 0.0) -> None:
    """Sleep under two plain leases, the inner one acquired a little later."""
    async with w.manager.lock("outer", extension=PLAIN):
        await asyncio.sleep(inner_after)
        async with w.manager.lock("inner", extension=PLAIN):
            await asyncio.sleep(FOREVER)


@pytest.mark.parametrize("inner_after", [0.0, 0.0005, 0.001, 0.002, 0.003, 0.005, 1.0])
def test_nested_locks_that_are_both_lost(inner_after):
    """The outer one's LockLostError leaves, whether they are lost at once or one after the other."""

    async def main() -> None:
        async with world() as w:
            end = await in_task(lambda: nested(w, inner_after))
            assert isinstance(end.error, LockLostError)
            assert end.error.names == ("outer",)
            assert end.cancelling == 0
            assert w.keys == [()] * 3

    virtual(main)()


@virtual
async def test_nested_locks_lost_by_the_same_answer():
    """Two locks refused in the same instant cancel one body: the outer's LockLostError, count zero."""
    async with world() as w:

        async def body() -> None:
            async with w.manager.lock("outer"), w.manager.lock("inner"):
                for name in ("outer", "inner"):
                    w.vacate(name)
                await asyncio.sleep(FOREVER)

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.error.names == ("outer",)
        assert end.cancelling == 0


@virtual
async def test_only_the_inner_of_two_nested_locks_is_lost():
    """Its LockLostError passes the outer lock like any exception, and the outer one is released."""
    async with world() as w:

        async def body() -> None:
            async with w.manager.lock("outer"):
                await sleep_under(w, "inner")

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.error.names == ("inner",)
        assert notes(end.error) == ""
        assert end.cancelling == 0
        assert w.keys == [()] * 3


@virtual
async def test_the_outer_of_two_nested_locks_is_lost_while_the_inner_one_awaits_its_report():
    """The inner exit sees a foreign cancellation, the outer one knows its own."""
    async with world(latency=0.02) as w:

        async def body() -> None:
            async with w.manager.lock("outer", extension=PLAIN) as outer:
                async with w.manager.lock("inner"):
                    await until(deadline(outer) - 0.01)
                pytest.fail("the exit was not cancelled")

        end = await in_task(body)
        assert isinstance(end.error, LockLostError)
        assert end.error.names == ("outer",)
        assert end.cancelling == 0
        await asyncio.sleep(1)
        assert w.keys == [()] * 3


# -- one Lock, many leases ---------------------------------------------------------------------------


@virtual
async def test_the_exit_of_a_shared_lock_takes_the_current_tasks_lease():
    """With a lost fixture still inside, a task that entered the same Lock leaves with its own lease."""
    async with world() as w:
        lock = w.manager.lock("a", extension=PLAIN)
        await asyncio.create_task(lock.__aenter__())
        await asyncio.sleep(TTL)  # lost; the key has expired
        async with lock as mine:
            assert mine.held
        assert not mine.held
        with pytest.raises(LockLostError):
            await asyncio.create_task(lock.__aexit__(None, None, None))


@virtual
async def test_the_exit_of_a_shared_lock_prefers_a_lease_whose_task_is_over():
    """Left from a third task, it takes the lease of the finished task before that of a living one."""
    async with world() as w:
        lock = w.manager.lock("a", extension=PLAIN, on_lost="raise")
        go = asyncio.Event()

        async def alive() -> None:
            async with lock:
                await go.wait()

        living = in_task(alive)
        await asyncio.sleep(TTL)
        orphan = await asyncio.create_task(lock.__aenter__())
        assert orphan.held
        await asyncio.create_task(lock.__aexit__(None, None, None))  # not lost: no error
        assert not orphan.held
        go.set()
        end = await living
        assert isinstance(end.error, LockLostError)
        assert w.keys == [()] * 3


@virtual
async def test_the_exit_of_a_shared_lock_falls_back_to_the_oldest_lease():
    """Left from a third task while all tasks that entered live, it takes the oldest lease."""
    async with world() as w:
        lock = w.manager.lock("a", extension=PLAIN, on_lost="raise")
        entered: list[Lease] = []

        async def alive() -> None:
            entered.append(await lock.__aenter__())
            await asyncio.sleep(FOREVER)

        first = asyncio.create_task(alive())
        await asyncio.sleep(TTL)
        second = asyncio.create_task(alive())
        await asyncio.sleep(1)
        oldest, youngest = entered
        with pytest.raises(LockLostError):
            await asyncio.create_task(lock.__aexit__(None, None, None))
        with pytest.raises(LockLostError) as caught:
            oldest.check()
        assert caught.value.reason is LossReason.EXPIRED
        assert youngest.held
        await asyncio.create_task(lock.__aexit__(None, None, None))
        assert not youngest.held
        for task in (first, second):
            task.cancel()
        await asyncio.wait((first, second))


@virtual
async def test_one_lock_entered_by_many_tasks():
    """A Lock is a description: fifty tasks share one, each in its turn, each with its own lease."""
    async with world() as w:
        lock = w.manager.lock("a")
        inside = 0
        leases = set()

        async def body() -> None:
            nonlocal inside
            async with lock as lease:
                inside += 1
                assert inside == 1
                leases.add(id(lease))
                await asyncio.sleep(0.01)
                inside -= 1
                keep.append(lease)

        keep: list[Lease] = []
        ends = await asyncio.gather(*(in_task(body) for _ in range(50)))
        assert [end.error for end in ends] == [None] * 50
        assert len(leases) == 50
