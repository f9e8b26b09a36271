"""What hooks and counters hear of one call of `acquire`: that it waits, and how it ends, each once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from aioredlock_ng import (
    LockNotAcquiredError,
    LockTakenError,
    ManagerClosedError,
    QuorumUnavailableError,
    WouldDeadlockError,
)
from aioredlock_ng.events import Acquired, Event, GaveUp, Hooks, Refused, Waiting
from tests.unit.worlds import LATENCY, TIMEOUT, in_task, make, opened, sim, turns, virtual, world

ROUND_TRIP = 2 * LATENCY


class Diary(Hooks):
    """A hook that writes down how calls go."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_acquired(self, event: Acquired) -> None:
        """Write it down."""
        self.events.append(event)

    def on_refused(self, event: Refused) -> None:
        """Write it down."""
        self.events.append(event)

    def on_waiting(self, event: Waiting) -> None:
        """Write it down."""
        self.events.append(event)

    def on_gave_up(self, event: GaveUp) -> None:
        """Write it down."""
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        """What was told, in order."""
        return [type(event).__name__ for event in self.events]

    def take(self) -> list[Event]:
        """Return what was told, and forget it."""
        events, self.events = self.events, []
        return events


@virtual
async def test_a_free_lock_is_told_once():
    """A call that is let through at once does not wait."""
    diary = Diary()
    async with world(hooks=[diary]) as w:
        async with w.manager.lock("a"):
            pass
        assert diary.kinds == ["Acquired"]
        assert w.manager.statistics().gave_up == 0


@virtual
async def test_a_task_of_this_process_is_in_the_way():
    """No node is asked, and still the wait and its end are told, and the refusal is counted."""
    diary = Diary()
    async with world(hooks=[diary]) as w, w.manager.lock("a"):
        diary.take()
        lock = w.manager.lock("a", blocking_timeout=3, label="x")
        assert isinstance((await in_task(lock.acquire)).error, LockTakenError)
        waiting, gave_up = diary.take()
        assert waiting == Waiting(names=("a",), label="x", waited=0.0, taken=True, votes=())
        assert gave_up == GaveUp(names=("a",), label="x", waited=3.0, attempts=0, taken=True, votes=())
        assert (w.manager.statistics().refused, w.manager.statistics().gave_up) == (1, 1)

        assert await w.manager.lock("a").try_acquire() is None
        (gave_up,) = diary.take()
        assert isinstance(gave_up, GaveUp)
        assert (gave_up.waited, gave_up.taken) == (0.0, True)
        assert (w.manager.statistics().refused, w.manager.statistics().gave_up) == (2, 2)


@virtual
async def test_a_single_try_waits_for_a_verdict_on_another_task_and_is_told():
    """A single try behind a contender without a verdict gives up with that verdict; it never waits."""
    diary = Diary()
    async with world() as w, opened(w.nodes, seed=2, hooks=[diary]) as other, w.manager.lock("a"):
        ends = await asyncio.gather(*(in_task(other.lock("a", blocking=False).acquire) for _ in range(2)))
        assert [type(end.error) for end in ends] == [LockTakenError] * 2
        assert Counter(diary.kinds) == {"Refused": 1, "GaveUp": 2}
        assert (other.statistics().refused, other.statistics().gave_up) == (2, 2)


@virtual
async def test_a_name_that_stays_taken_after_its_release():
    """No node is asked while `at_least` runs: the wait, its end and the refusal are told all the same."""
    diary = Diary()
    async with world(hooks=[diary]) as w:
        await (await w.manager.lock("a", at_least=10).acquire()).release()
        diary.take()
        with pytest.raises(LockTakenError):
            await w.manager.lock("a", blocking_timeout=3).acquire()
        assert await w.manager.lock("a").try_acquire() is None
        assert diary.kinds == ["Waiting", "GaveUp", "GaveUp"]
        assert [event.taken for event in diary.take() if not isinstance(event, Acquired)] == [True] * 3
        assert (w.manager.statistics().refused, w.manager.statistics().gave_up) == (2, 2)


@virtual
async def test_another_process_holds_it():
    """Rounds are told each, the wait and its end once; both say that it is taken, and what nodes said."""
    diary = Diary()
    async with world() as w, opened(w.nodes, seed=2, hooks=[diary]) as other, w.manager.lock("a"):
        with pytest.raises(LockTakenError):
            await other.lock("a", blocking_timeout=3).acquire()
        events = diary.take()
        assert [type(event) for event in events[:2]] == [Refused, Waiting]
        kinds = Counter(type(event) for event in events)
        gave_up = events[-1]
        assert isinstance(gave_up, GaveUp)
        assert kinds == {Refused: gave_up.attempts, Waiting: 1, GaveUp: 1}
        assert gave_up.taken is True
        assert gave_up.waited == pytest.approx(3 + 2 * ROUND_TRIP)
        assert len(gave_up.votes) == 3
        assert isinstance(events[1], Waiting)
        assert (events[1].taken, len(events[1].votes)) == (True, 3)
        assert other.statistics().refused == gave_up.attempts
        assert other.statistics().gave_up == 1


@virtual
async def test_no_quorum():
    """Without a quorum both say so."""
    diary = Diary()
    async with world(hooks=[diary]) as w:
        for node in w.nodes[1:]:
            node.freeze()
        with pytest.raises(QuorumUnavailableError):
            await w.manager.lock("a", blocking_timeout=1).acquire()
        (waiting,) = [event for event in diary.events if isinstance(event, Waiting)]
        gave_up = diary.events[-1]
        assert isinstance(gave_up, GaveUp)
        assert (waiting.taken, gave_up.taken) == (False, False)
        assert gave_up.waited <= 1 + TIMEOUT + 1e-6
        assert waiting.votes


@virtual
async def test_a_call_that_waits_and_wins_tells_both():
    """A wait that ends in the lock is no giving up."""
    diary = Diary()
    async with world() as w, opened(w.nodes, seed=2, hooks=[diary]) as other:
        lease = await w.manager.lock("a").acquire()
        waiter = asyncio.create_task(other.lock("a").acquire())
        await asyncio.sleep(1)
        await lease.release()
        await (await waiter).release()
        assert [kind for kind in diary.kinds if kind != "Refused"] == ["Waiting", "Acquired"]
        assert other.statistics().gave_up == 0


@virtual
async def test_a_call_that_is_cut_short_says_so():
    """Cancelled at the gate or between tries, closed, or refused for a deadlock: `taken` is None."""
    diary = Diary()
    async with world() as w:
        other = make(w.nodes, hooks=[diary])
        foreign = await w.manager.lock("a").acquire()
        async with other, other.lock("b"):
            diary.take()
            for name in "ab":
                waiter = asyncio.create_task(other.lock(name).acquire())
                await asyncio.sleep(1)
                waiter.cancel()
                await asyncio.wait([waiter])
            with pytest.raises(WouldDeadlockError):
                await other.lock("b").acquire()
            late = in_task(other.lock("a").acquire)
            await turns(2)
        assert isinstance((await late).error, ManagerClosedError)
        ends = [event for event in diary.take() if isinstance(event, GaveUp)]
        assert [(event.names, event.taken) for event in ends] == [
            (("a",), None),
            (("b",), None),
            (("b",), None),
            (("a",), None),
        ]
        assert other.statistics().gave_up == 4
        await foreign.release()


@pytest.mark.parametrize("error", [ValueError("hook"), asyncio.CancelledError("hook")], ids=repr)
def test_hooks_that_fail_change_nothing(error):
    """A hook that raises when a call waits or gives up costs neither the lock nor the right error."""

    class Hostile(Hooks):
        def on_waiting(self, event: Waiting) -> None:
            raise error

        def on_gave_up(self, event: GaveUp) -> None:
            raise error

    @virtual
    async def main() -> None:
        async with world(hooks=[Hostile()]) as w:
            lease = await w.manager.lock("a").acquire()
            with pytest.raises(LockNotAcquiredError):
                await w.manager.lock("a", blocking_timeout=1).acquire()
            waiter = asyncio.create_task(w.manager.lock("a").acquire())
            await asyncio.sleep(1)
            await lease.release()
            await (await waiter).release()
            assert sim().time() >= 2

    main()
