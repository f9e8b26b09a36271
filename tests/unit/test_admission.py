"""Admission: a burst of calls asks the nodes in turn, and costs no lease that is held (R13, R15)."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator

import pytest

from aioredlock_ng import (
    ConfigurationError,
    Lease,
    LockManager,
    LockTakenError,
    ManagerClosedError,
    QuorumUnavailableError,
)
from aioredlock_ng._acquire.acquisition import Acquisition
from aioredlock_ng._clock import SystemClock
from aioredlock_ng._hold import watchdog
from aioredlock_ng._hold.holding import Holding
from aioredlock_ng._local import admission
from aioredlock_ng._local.admission import MAX_TRIES_BY_CLIENTS, Admission
from aioredlock_ng._local.handoff import WINDOW, YIELD_WITHOUT_LISTENERS
from aioredlock_ng._node import pipe
from aioredlock_ng.testing.memory_node import MemoryNode
from tests.unit.worlds import LATENCY, TIMEOUT, End, count, in_task, sent, sim, turns, virtual, world

ROUND_TRIP = 2 * LATENCY
PLACES = 4
"""Places for tries in flight, where a test says so: few make a burst small."""


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few tries be in flight at once."""
    monkeypatch.setattr(admission, "MAX_TRIES", PLACES)
    monkeypatch.setattr(admission, "MAX_QUIET", PLACES)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Write down how many places were taken whenever one was given back."""
    seen: list[int] = []
    leave = Admission.leave

    def spy(self: Admission, *args: object) -> None:
        seen.append(self.in_flight)
        leave(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Admission, "leave", spy)
    return seen


def places(manager: LockManager) -> Admission:
    """Return a manager's admission."""
    assert manager._life.session is not None
    return manager._life.session.admission


def assert_deserted(manager: LockManager) -> None:
    """See that every place was given back, and that no call stands in line."""
    place = places(manager)
    assert (place.in_flight, len(place._line), len(place._singles)) == (0, 0, 0)


def asked(node: MemoryNode) -> list[str]:
    """Return the names that a node was asked for, in order."""
    return [one.key.decode().partition(":")[2] for one in sent(node) if one.kind == "acquire"]


async def cycle(manager: LockManager, name: str, **options: float) -> None:
    """Have a lock for a moment."""
    async with manager.lock(name, **options):
        pass


def ends(manager: LockManager, *names: str, **options: float) -> list[asyncio.Task[End]]:
    """Ask for some names at once, each in a task of its own."""
    return [in_task(manager.lock(name, **options).acquire) for name in names]


# -- a burst -------------------------------------------------------------------------------------------


@virtual
async def test_a_burst_costs_no_lease_and_no_try(monkeypatch, at_once):
    """Many more tasks than commands may be in flight: each asks once, and leases are extended meanwhile."""
    monkeypatch.setattr(pipe, "MAX_IN_FLIGHT", 400)
    async with world(ttl=0.3) as w:
        held = [await w.manager.lock(f"held {number}").acquire() for number in range(20)]
        await asyncio.sleep(0.095)  # their extensions are due in the middle of what follows
        await asyncio.gather(*(cycle(w.manager, f"{number}") for number in range(1000)))
        statistics = w.manager.statistics()
        assert (statistics.refused, statistics.lost, statistics.held) == (0, 0, 20)
        assert [count(node, "acquire") for node in w.nodes] == [1020] * 3
        assert max(at_once) == admission.MAX_TRIES
        await asyncio.sleep(0.5)
        assert all(lease.held for lease in held)
        for lease in held:
            await lease.release()
        assert_deserted(w.manager)


@pytest.mark.parametrize(("later", "ahead"), [(1, 0), (2, admission.MAX_TRIES)], ids=["turn", "next turn"])
@virtual
async def test_an_extension_leaves_ahead_of_those_that_stand_in_line(later, ahead):
    """However many have asked, no more than the window's tries are before it; none of this turn's."""
    async with world() as w:
        lease = await w.manager.lock("held").acquire()
        burst = [asyncio.create_task(cycle(w.manager, f"{number}")) for number in range(500)]
        await turns(later)
        await lease.extend()
        before = [one.kind for one in sent(w.nodes[0])]
        assert before[: before.index("extend")].count("acquire") == 1 + ahead
        await asyncio.gather(*burst)
        await lease.release()


@virtual
async def test_calls_are_admitted_in_their_order(few_places):
    """First in, first out: also those that come while others stand in line."""
    async with world() as w:
        tasks = []
        for number in range(60):
            tasks.append(asyncio.create_task(cycle(w.manager, f"{number}")))
            if number % 9 == 0:
                await asyncio.sleep(ROUND_TRIP / 3)
        await asyncio.gather(*tasks)
        assert asked(w.nodes[0]) == [f"{number}" for number in range(60)]
        assert_deserted(w.manager)


@virtual
async def test_a_waiting_call_takes_no_place(few_places):
    """Between its tries a call keeps no other from asking; it stands in line again for the next one."""
    async with world() as w:
        w.occupy("taken", 3.0)
        waiting = [asyncio.create_task(cycle(w.manager, "taken")) for _ in range(3 * PLACES)]
        w.occupy("gone", 1.0)
        waiting += [asyncio.create_task(cycle(w.manager, "gone", ttl=1.0)) for _ in range(3)]
        await asyncio.sleep(0.1)
        began = sim().time()
        await asyncio.gather(*(cycle(w.manager, f"{number}") for number in range(PLACES)))
        assert sim().time() - began < 5 * ROUND_TRIP
        await asyncio.gather(*waiting)
        assert_deserted(w.manager)


@virtual
async def test_a_call_behind_its_own_process_takes_no_place(few_places):
    """It stood in line before it found the name held: it gives the place back, and waits without one."""
    async with world() as w:
        lease = await w.manager.lock("held").acquire()
        burst = ends(w.manager, *(f"{number}" for number in range(PLACES)))
        await turns(1)
        assert places(w.manager).in_flight >= places(w.manager).most
        behind = ends(w.manager, *["held"] * PLACES)
        await asyncio.gather(*burst)
        await asyncio.sleep(ROUND_TRIP)
        assert places(w.manager).in_flight == 0
        await lease.release()
        assert [end.error for end in await asyncio.gather(*behind)] == [None] * PLACES
        assert_deserted(w.manager)


@virtual
async def test_a_call_stands_in_line_before_it_does_anything(few_places):
    """So the work of a burst is spread over the turns of the loop, and not only its tries (R13)."""
    async with world() as w:
        burst = ends(w.manager, *(f"{number}" for number in range(PLACES)))
        await turns(1)
        late = ends(w.manager, "late")
        await turns(2)
        assert w.manager._life.session is not None
        assert w.manager._life.session.queue.entries.get("late") is None
        assert len(places(w.manager)._line) == 1
        assert [end.error for end in await asyncio.gather(*burst, *late)] == [None] * (PLACES + 1)


@virtual
async def test_a_call_that_lets_others_ask_takes_no_place(few_places):
    """It stood in line before it found that its process has had its turn: it pauses without a place."""
    async with world() as w:
        async with w.manager.lock("had"):
            await asyncio.sleep(WINDOW)
        burst = ends(w.manager, *(f"{number}" for number in range(PLACES)))
        await turns(1)
        assert places(w.manager).in_flight >= places(w.manager).most
        (again,) = ends(w.manager, "had")
        await asyncio.sleep(ROUND_TRIP + YIELD_WITHOUT_LISTENERS / 2)
        assert asked(w.nodes[0]) == ["had", "0", "1", "2", "3"]
        assert places(w.manager).in_flight == 0
        assert [end.error for end in await asyncio.gather(*burst, again)] == [None] * (PLACES + 1)
        assert_deserted(w.manager)


@virtual
async def test_a_call_that_lets_a_name_cool_down_takes_no_place(few_places):
    """It stood in line before it found that the name stays taken: it waits for that without a place."""
    async with world() as w:
        async with w.manager.lock("stays", at_least=TIMEOUT):
            pass
        burst = ends(w.manager, *(f"{number}" for number in range(PLACES)))
        await turns(1)
        assert places(w.manager).in_flight >= places(w.manager).most
        (again,) = ends(w.manager, "stays")
        await asyncio.sleep(2 * ROUND_TRIP)
        assert not again.done()
        assert places(w.manager).in_flight == 0
        assert [end.error for end in await asyncio.gather(*burst, again)] == [None] * (PLACES + 1)
        assert_deserted(w.manager)


@virtual
async def test_a_call_that_comes_first_when_no_lock_can_be_trusted_gives_its_place_back(few_places):
    """Its nodes turned out to be no quorum while it stood in line: it asks none."""
    async with world() as w:
        burst = ends(w.manager, *(f"{number}" for number in range(PLACES)))
        await turns(1)
        (late,) = ends(w.manager, "late")
        await turns(1)
        session = w.manager._life.session
        assert session is not None
        sim().call_later(
            ROUND_TRIP / 2, setattr, session.availability, "conflict", "two nodes are one server"
        )
        assert isinstance((await late).error, ConfigurationError)
        session.availability.conflict = None
        await asyncio.gather(*burst)
        await asyncio.sleep(TIMEOUT)
        assert asked(w.nodes[0]).count("late") == 0
        assert_deserted(w.manager)


@virtual
async def test_a_single_try_of_what_its_process_holds_does_not_stand_in_line(few_places):
    """No node is asked for it, so that it needs no place to be told at once."""
    async with world() as w:
        lease = await w.manager.lock("held").acquire()
        burst = ends(w.manager, *(f"{number}" for number in range(PLACES)))
        await turns(1)
        assert places(w.manager).in_flight >= places(w.manager).most
        (told,) = ends(w.manager, "held", blocking_timeout=0)
        await turns(3)
        assert told.done()
        assert isinstance((await told).error, LockTakenError)
        await asyncio.gather(*burst)
        await lease.release()
        assert_deserted(w.manager)


@virtual
async def test_a_holder_may_wait_for_another_lock(few_places):
    """Leases take no place, so that tasks that want several locks, in one order, do not stop each other."""
    async with world() as w:

        async def both(number: int) -> None:
            async with w.manager.lock(f"{number % 7}"), w.manager.lock(f"b{number % 5}", f"c{number % 3}"):
                await asyncio.sleep(0.001)

        async with asyncio.timeout(60):
            await asyncio.gather(*(both(number) for number in range(40)))
        assert_deserted(w.manager)


# -- the time of those in line -------------------------------------------------------------------------


@virtual
async def test_the_time_in_line_is_the_callers(few_places):
    """A call whose time ends in line is told so then, and nothing was sent for it."""
    async with world() as w:
        for node in w.nodes:
            node.freeze()
        before = ends(w.manager, *"abcd", blocking_timeout=1.0)
        late = in_task(w.manager.lock("late", blocking_timeout=0.03).acquire)
        end = await late
        assert isinstance(end.error, QuorumUnavailableError)
        assert "not asked" in str(end.error)
        assert {vote.vote.value for vote in end.error.votes} == {"silent"}
        assert end.at - sim().time() == 0
        assert "late" not in asked(w.nodes[0])
        for node in w.nodes:
            node.thaw()
        assert [end.error for end in await asyncio.gather(*before)] == [None] * 4
        assert_deserted(w.manager)


@virtual
async def test_a_refusal_is_told_again_when_the_time_runs_out_in_line(few_places):
    """The second try found no place in time: the answer to the first one is what is known."""
    async with world() as w:
        w.occupy("taken", 60.0)
        call = in_task(w.manager.lock("taken", blocking_timeout=0.2).acquire)
        await asyncio.sleep(0.05)
        for node in w.nodes:
            node.freeze()
        burst = ends(w.manager, *(f"{number}" for number in range(40)), blocking_timeout=5.0)
        end = await call
        assert isinstance(end.error, LockTakenError)
        for node in w.nodes:
            node.thaw()
        assert [end.error for end in await asyncio.gather(*burst)] == [None] * 40
        assert_deserted(w.manager)


@virtual
async def test_a_burst_of_single_tries(few_places):
    """Each is asked, once, and heard out; none is silent for want of room."""
    async with world() as w:
        w.occupy("7", 60.0)
        burst = ends(w.manager, *(f"{number}" for number in range(50)), blocking_timeout=0)
        errors = [end.error for end in await asyncio.gather(*burst)]
        assert isinstance(errors.pop(7), LockTakenError)
        assert errors == [None] * 49
        assert [count(node, "acquire") for node in w.nodes] == [50] * 3


@virtual
async def test_a_single_try_does_not_stand_behind_those_that_can_wait(few_places):
    """Of two places one is for a single try, so that it waits for its like alone; the others go on, too."""
    async with world() as w:
        calls = [asyncio.create_task(cycle(w.manager, f"{number}")) for number in range(30)]
        await turns(2)
        singles = [in_task(w.manager.lock(f"s{number}").try_acquire) for number in range(5)]
        await asyncio.gather(*calls)
        assert [end.error for end in await asyncio.gather(*singles)] == [None] * 5
        order = asked(w.nodes[0])[PLACES : PLACES + 10]
        assert order == ["s0", "4", "s1", "5", "s2", "6", "s3", "7", "s4", "8"]


@virtual
async def test_a_single_try_is_heard_out_though_it_stood_in_line(few_places):
    """What it waited for its place is not taken from the time that nodes have to answer."""
    async with world(latency=0.045) as w:
        burst = ends(w.manager, *(f"{number}" for number in range(5 * PLACES)), blocking_timeout=0)
        assert [end.error for end in await asyncio.gather(*burst)] == [None] * 5 * PLACES


@virtual
async def test_a_single_try_is_given_the_time_in_line_and_no_more(few_places):
    """What it had waited for before, a manager that starts, say, is part of its `node_timeout` (R13)."""
    async with world() as w:
        session = w.manager._life.session
        assert session is not None
        while places(w.manager).enter():
            pass
        before, lock = TIMEOUT / 4, w.manager.lock("a")
        began = session.clock.now() - before
        call = Acquisition(session, lock._primitive, lock._request, 0.0, began)
        in_line = asyncio.create_task(call._stand_in_line())
        await asyncio.sleep(TIMEOUT / 2)
        for _ in range(PLACES + 1):
            places(w.manager).leave()
        await in_line
        assert call._budget.for_answers() == pytest.approx(TIMEOUT - before)
        assert_deserted(w.manager)


@virtual
async def test_single_tries_are_sent_away_when_nodes_do_not_answer(few_places):
    """They do not wait for one try after the other to end in silence."""
    async with world() as w:
        for node in w.nodes:
            node.freeze()
        began = sim().time()
        burst = ends(w.manager, *(f"{number}" for number in range(30)), blocking_timeout=0)
        waiting = ends(w.manager, "patient", blocking_timeout=5.0)
        all_ends = await asyncio.gather(*burst)
        assert {type(end.error) for end in all_ends} == {QuorumUnavailableError}
        assert max(end.at for end in all_ends) - began <= 2 * TIMEOUT + ROUND_TRIP
        for node in w.nodes:
            node.thaw()
        assert (await waiting[0]).error is None
        assert_deserted(w.manager)


@virtual
async def test_the_line_is_bounded(few_places, monkeypatch):
    """Beyond its bound a call is told at once that there are too many."""
    monkeypatch.setattr(admission, "MAX_IN_LINE", 10)
    async with world() as w:
        burst = ends(w.manager, *(f"{number}" for number in range(PLACES + 15)))
        errors = [end.error for end in await asyncio.gather(*burst)]
        assert errors[: PLACES + 10] == [None] * (PLACES + 10)
        assert {type(error) for error in errors[PLACES + 10 :]} == {QuorumUnavailableError}


# -- leaving the line ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_place_is_never_lost(few_places, seed):
    """Calls are cancelled, or run out of time, at any moment, also at that when a place comes."""
    chance = random.Random(seed)

    async def main() -> None:
        async with world() as w:
            tasks = []
            for number in range(80):
                timeout = chance.choice([None, 0, 0.002, 0.004, 0.01])
                lock = w.manager.lock(f"{chance.randrange(60)}", blocking_timeout=timeout)
                tasks.append(in_task(lock.acquire if number % 2 else lock.try_acquire))
            for _ in range(30):
                await asyncio.sleep(chance.choice([0.0, 0.0, ROUND_TRIP / 2, ROUND_TRIP]))
                chance.choice(tasks).cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # some were cancelled before they began
            await asyncio.sleep(0.1)
            assert_deserted(w.manager)
            assert w.keys == [()] * 3

    virtual(main)()


@pytest.mark.parametrize("timeout", [0, 5.0], ids=["single try", "patient"])
@pytest.mark.parametrize("called", [False, True], ids=["in line", "when its turn comes"])
def test_a_cancelled_call_leaves_the_line(few_places, monkeypatch, timeout, called):
    """At once; a place that came in the same moment goes to the next."""

    async def main() -> None:
        async with world() as w:
            burst = ends(w.manager, *(f"{number}" for number in range(PLACES)))
            await turns(1)
            line = places(w.manager)
            standing = asyncio.create_task(cycle(w.manager, "x", blocking_timeout=timeout))
            await turns(2)
            assert len(line._line) + len(line._singles) == 1
            if called:
                call_next = Admission._call_next

                def and_cancel(self: Admission) -> bool:
                    found = call_next(self)
                    standing.cancel()
                    return found

                monkeypatch.setattr(Admission, "_call_next", and_cancel)
            else:
                standing.cancel()
                await turns(2)
                assert len(line._line) + len(line._singles) == 0
            await asyncio.wait((standing,))
            assert standing.cancelled()
            await asyncio.gather(*burst)
            assert_deserted(w.manager)

    virtual(main)()


@virtual
async def test_closing_ends_the_wait_in_line(few_places):
    """Calls in line hear that the manager is closed."""
    async with world() as w:
        for node in w.nodes:
            node.freeze()
        burst = ends(w.manager, *(f"{number}" for number in range(3 * PLACES)))
        await turns(3)
        await w.manager.aclose()
        assert {type(end.error) for end in await asyncio.gather(*burst)} == {ManagerClosedError}
        assert_deserted(w.manager)


# -- hand-off ------------------------------------------------------------------------------------------


async def hand_around(manager: LockManager, tasks: int) -> None:
    """Let tasks of one process wait for one name, while others keep the line long."""
    wanted = [asyncio.create_task(cycle(manager, "hot")) for _ in range(tasks)]
    await turns(2)
    others = [asyncio.create_task(cycle(manager, f"{number}")) for number in range(40)]
    await asyncio.gather(*wanted, *others)


def behind_a_release(node: MemoryNode) -> int:
    """Count the acquires of the hot name that came right behind its release."""
    kinds = [one.kind for one in sent(node) if one.key == b"redlock:hot"]
    return sum(pair == ("release", "acquire") for pair in itertools.pairwise(kinds))


@virtual
async def test_a_task_behind_a_release_asks_past_the_line(few_places, at_once):
    """The next task of the process asks in the same write as the release; others are told of none."""
    async with world() as w:
        first = await w.manager.lock("hot").acquire()
        burst = asyncio.create_task(hand_around(w.manager, 6))
        await turns(5)
        began = sim().time()
        await first.release()
        release = [one for one in sent(w.nodes[0]) if one.key == b"redlock:hot" and one.kind == "release"]
        assert release[0].words[-2] == b""  # quiet
        assert behind_a_release(w.nodes[0]) >= 1
        assert sim().time() - began <= 2 * ROUND_TRIP
        await burst
        assert max(at_once) > PLACES
        assert_deserted(w.manager)


@virtual
async def test_where_too_many_ask_behind_releases_others_are_told(few_places, monkeypatch):
    """Then the next task stands in line like any other, and the release is not a quiet one."""
    monkeypatch.setattr(admission, "MAX_QUIET", 0)
    async with world() as w:
        first = await w.manager.lock("hot").acquire()
        burst = asyncio.create_task(hand_around(w.manager, 2))
        await turns(5)
        await first.release()
        release = [one for one in sent(w.nodes[0]) if one.key == b"redlock:hot" and one.kind == "release"]
        assert release[0].words[-2] == b"1"
        await burst
        assert_deserted(w.manager)


@pytest.mark.parametrize("names", [("hot",), ("cold", "hot")])
def test_a_place_that_came_with_a_name_goes_with_it(few_places, names):
    """The task that it was handed to is cancelled: the next has it, unless that waits for another name."""

    async def main() -> None:
        async with world() as w:
            cold = await w.manager.lock("cold").acquire()
            first = await w.manager.lock("hot").acquire()
            heir = in_task(w.manager.lock("hot").acquire)
            await turns(3)
            last = in_task(w.manager.lock(*names).acquire)
            await turns(3)
            release = asyncio.create_task(first.release())
            await turns(1)
            assert places(w.manager).in_flight == 1
            heir.cancel()
            await turns(3)
            assert places(w.manager).in_flight == (len(names) == 1)
            await cold.release()
            await release
            assert (await last).error is None
            assert_deserted(w.manager)

    virtual(main)()


# -- one turn of the loop ------------------------------------------------------------------------------


@virtual
async def test_extensions_are_sent_some_at_a_time(monkeypatch):
    """Many leases that are due at once are looked at in several turns; none is forgotten."""
    monkeypatch.setattr(watchdog, "MAX_LOOKS", 10)
    times: list[float] = []
    extend = Holding.extend

    def spy(self: Holding, *args: object, **options: object) -> object:
        times.append(sim().time())
        return extend(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Holding, "extend", spy)
    async with world(ttl=3.0) as w:
        leases: list[Lease] = await asyncio.gather(
            *(w.manager.lock(f"{number}").acquire() for number in range(35))
        )
        await asyncio.sleep(1.2)
        assert [times.count(time) for time in sorted(set(times))] == [10, 10, 10, 5]
        assert all(lease.extensions == 1 for lease in leases)
        for lease in leases:
            await lease.release()


@pytest.mark.parametrize("by_clients", [True, False])
def test_over_clients_fewer_tries_are_in_flight(by_clients: bool) -> None:
    """Each of their calls takes the loop long: more at once would all be answered after their time."""
    place = Admission(SystemClock(), TIMEOUT, by_clients=by_clients)
    most = MAX_TRIES_BY_CLIENTS if by_clients else admission.MAX_TRIES
    assert [place.enter() for _ in range(most + 1)].count(False) == 1
    assert place.in_flight >= place.most
    assert [place.reserve() for _ in range(most + 1)].count(False) == 1
    for _ in range(2 * most):
        place.leave()
    assert place.in_flight == 0
