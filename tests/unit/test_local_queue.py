"""The local queue, by itself and with the places for tries in flight: kinds, order, bursts (R13, R15)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from aioredlock_ng import ConfigurationError, Lease
from aioredlock_ng._clock import SystemClock
from aioredlock_ng._kinds.kind import Kind
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._lock import handoff, local_queue, watchdog
from aioredlock_ng._lock.handoff import WINDOW, YIELD, YIELD_WITHOUT_LISTENERS, HandoffWindows
from aioredlock_ng._lock.holding import Holding
from aioredlock_ng._lock.local_queue import (
    AttemptLimiter,
    Contender,
    LocalQueue,
    QueueEntry,
)
from aioredlock_ng._round.deadlines import give_up
from aioredlock_ng.errors import LockTakenError, ManagerClosedError, QuorumUnavailableError
from aioredlock_ng.testing.memory_node import MemoryNode
from tests.counting import counted
from tests.unit.tasks import End, cycle, in_task, sim, turns
from tests.unit.traces import PREFIX, Sent, sent
from tests.unit.worlds import ROUND_TRIP, TIMEOUT, World, each, world

READ = replace(MUTEX, name="read", shares_with=frozenset({"read"}))
WRITE = replace(MUTEX, name="write")


class HeldNow:
    """A lease, as the queue knows it."""

    valid_until = 10.0
    task = None


@dataclass(slots=True, eq=False)
class Caller:
    """A call of acquire, as far as the queue is concerned, and its lease."""

    contender: Contender
    waits_for: str = ""
    place: QueueEntry | None = None

    @property
    def in_for(self) -> tuple[str, ...]:
        """The names that it was let in for."""
        return self.contender.names


@dataclass(slots=True)
class Line:
    """A queue, with its callers in the order in which they came, and what it told."""

    told_idle: list[str] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)
    queue: LocalQueue = field(init=False)
    callers: list[Caller] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the queue."""
        self.queue = LocalQueue(
            AttemptLimiter(SystemClock(), 0.1), self.told_idle.append, self.announced.append
        )

    def comes(self, kind: Kind, *names: str, single_try: bool = False) -> Caller:
        """Let one more come, for name "a" if none is given."""
        names = names or ("a",)
        primitive = Primitive(kind, names, tuple(name.encode() for name in names))
        caller = Caller(Contender(self.queue, primitive))
        self.callers.append(caller)
        self.goes_on(caller, single_try=single_try)
        return caller

    def goes_on(self, caller: Caller, *, single_try: bool = False) -> None:
        """Have it enter what it can, up to the first name that it has to wait for."""
        caller.place = None
        for name in caller.contender.primitive.names[len(caller.in_for) :]:
            if not self.queue.enter(name, caller.contender):
                caller.waits_for = name
                caller.place = self.queue.line_up(name, caller.contender, single_try=single_try)
                return

    def gives_up(self, caller: Caller) -> None:
        """Have it stop, wherever it is, as a cancelled call does."""
        self.callers.remove(caller)
        if caller.place is not None:
            self.queue.step_out(caller.waits_for, caller.place)
        caller.contender.leave()

    def releases(self, caller: Caller) -> bool:
        """Have it release what it holds; returns whether it does so quietly."""
        self.callers.remove(caller)
        quiet = caller.contender.keep_quiet()
        caller.contender.leave()
        return quiet

    def wins(self, caller: Caller) -> None:
        """Have it hold its lock."""
        caller.contender.now_held(HeldNow(), lambda: LockTakenError("taken", names=("a",)))

    def is_refused(self, caller: Caller) -> None:
        """Have it wait for the nodes, or for another that does."""
        if speaks := caller.contender.represents_process():
            caller.contender.listens()
        caller.contender.refused(LockTakenError("taken", names=caller.in_for), 0.0)
        if not speaks:
            caller.contender.requeue()
            self.goes_on(caller)

    def read(self, number: int) -> list[Caller]:
        """Let so many come that share a name, and have it."""
        readers = []
        for _ in range(number):
            readers.append(self.comes(READ))
            self.wins(readers[-1])
        return readers

    def asks(self, caller: Caller) -> None:
        """Have it ask the nodes, with the place that was kept for that, if one was."""
        if caller.contender.notice_pending:
            caller.contender.notice_pending = False
            self.queue.attempt_limiter.leave()

    def run_woken(self, chance: Callable[[], float] = lambda: 0.0) -> None:
        """Let the tasks run whose waits have ended; those run later that `chance` says so of."""
        for caller in list(self.callers):
            if caller.place is None or not caller.place.future.done():
                continue
            if not caller.place.future.cancelled() and caller.place.future.result():
                self.goes_on(caller)
            elif chance() < 0.7:
                self.gives_up(caller)

    def inside(self, name: str = "a") -> list[Caller]:
        """Return the callers that are in, in the order in which they came."""
        return [caller for caller in self.callers if name in caller.in_for]

    def check(self) -> None:
        """Check what must hold after every step."""
        for entry in self.queue.entries.values():
            assert entry.inside, "an entry is there while a contender is in"
            speaker = entry.representative
            assert speaker is None or (speaker in entry.inside and speaker.held is None)
            for one, other in itertools.combinations(entry.inside, 2):
                assert not one.primitive.kind.conflicts(other.primitive.kind)
            first = next(iter(entry.queue or ()), None)  # if its wait has ended, it is about to step out
            if first is not None and not first.future.done():
                assert not entry.admits(first.contender.primitive), "the first has to wait"
        kept = sum(caller.contender.notice_pending for caller in self.callers)
        assert self.queue.attempt_limiter.in_flight == kept, (
            "a place is kept for each pending notice, and no other"
        )

    def check_empty(self, *callers: Caller) -> None:
        """Have these release, and check that nothing is left behind."""
        for caller in callers:
            self.releases(caller)
        assert not self.queue.entries
        assert self.queue.attempt_limiter.in_flight == 0


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
async def test_the_last_to_leave_lets_a_waiting_writer_in(order):
    """Readers share, and leave in any order; a writer waits for all of them, and all wait for it."""
    line = Line()
    readers = line.read(3)
    writer = line.comes(WRITE)
    behind = [line.comes(READ), line.comes(READ)]
    assert line.inside() == readers
    quiet = []
    for number in order:
        assert writer not in line.inside()
        quiet.append(line.releases(readers[number]))
        line.check()
    assert quiet == [False, False, True], "quiet for a task that asks at once, not for one that waits still"
    assert writer.contender.notice_pending
    assert line.queue.attempt_limiter.in_flight == 1
    assert not line.announced
    assert line.inside() == [writer]
    line.asks(writer)
    line.releases(writer)
    assert line.inside() == behind[:1]  # it asks for both
    line.asks(behind[0])
    line.wins(behind[0])
    assert line.inside() == behind
    line.check_empty(*behind)


async def test_a_waiting_writer_is_not_overtaken():
    """A reader that comes behind a waiting writer waits, though other readers are in."""
    line = Line()
    (first,) = line.read(1)
    writer, late = line.comes(WRITE), line.comes(READ)
    assert line.inside() == [first]
    line.releases(first)
    assert line.inside() == [writer]
    line.gives_up(writer)
    assert line.inside() == [late]


async def test_a_writer_that_gives_up_lets_the_readers_behind_it_in():
    """These waited for nothing but the writer; the next writer keeps its place among them."""
    line = Line()
    (first,), writer = line.read(1), line.comes(WRITE)
    readers = [line.comes(READ), line.comes(READ)]
    second = line.comes(WRITE)
    last = line.comes(READ)
    line.gives_up(writer)
    assert line.inside() == [first, *readers]
    for reader in (first, *readers):
        line.releases(reader)
    assert line.inside() == [second]
    line.gives_up(second)
    assert line.inside() == [last]


async def test_of_those_that_share_a_name_one_asks_first():
    """When it has won the others ask, all at once; of those that are refused then one waits for all (R22)."""
    line = Line()
    callers = [line.comes(READ) for _ in range(4)]
    assert line.inside() == callers[:1]
    line.wins(callers[0])
    assert line.inside() == callers
    assert [caller.contender.represents_process() for caller in callers[1:]] == [True, False, False]
    late = line.comes(READ)
    assert line.inside() == callers
    for caller in callers[2:]:
        caller.contender.leave()
        line.goes_on(caller)
    assert line.inside() == callers[:2]
    line.wins(callers[1])
    assert line.inside() == [*callers, late]
    line.check_empty(*callers, late)


async def test_a_speaker_goes_on_when_another_wins():
    """It alone listens to releases, and would not hear of them beside a second one."""
    line = Line()
    (holder,) = line.read(1)
    speaker, slower = line.comes(READ), line.comes(READ)
    assert speaker.contender.represents_process()
    line.wins(slower)
    late = line.comes(READ)
    assert line.inside() == [holder, speaker, slower]
    line.wins(speaker)
    assert line.inside() == [holder, speaker, slower, late]
    line.check_empty(holder, speaker, slower, late)


async def test_a_caller_that_is_let_in_as_it_gives_up_lets_the_next_in():
    """Let in, timed out and cancelled in one turn of the loop, in any order: the next is in, once."""
    for first_step, second_step in itertools.permutations(("let in", "timed out"), 2):
        line = Line()
        holder, one, next_one = line.comes(WRITE), line.comes(WRITE), line.comes(WRITE)
        assert one.place is not None
        for step in (first_step, second_step):
            if step == "let in":
                line.releases(holder)
            elif not one.place.future.done():
                one.place.future.cancel()
        line.gives_up(one)
        assert line.inside() == [next_one], first_step
        line.check()
        line.gives_up(next_one)
        line.check_empty()


async def test_a_notice_that_no_task_makes_up_for_is_published_once():
    """It goes from a task that was cancelled to the next, and is published when there is no next one."""
    line = Line()
    holder, one, next_one = line.comes(WRITE), line.comes(WRITE), line.comes(WRITE)
    assert line.releases(holder)
    line.gives_up(one)
    assert next_one.contender.notice_pending
    assert line.queue.attempt_limiter.in_flight == 1
    assert not line.announced
    line.gives_up(next_one)
    assert line.announced == ["a"]
    line.check_empty()


async def test_a_task_that_wants_more_names_is_not_waited_for():
    """It may ask much later: the release before it is published, and no place is kept."""
    line = Line()
    holder, several = line.comes(WRITE), line.comes(WRITE, "a", "b")
    assert not line.releases(holder)
    assert line.inside() == [several]
    line.goes_on(several)
    assert line.inside("b") == [several]
    assert not line.announced
    line.gives_up(several)
    holder, one = line.comes(WRITE), line.comes(WRITE)
    line.comes(WRITE, "a", "b")
    assert line.releases(holder)
    line.gives_up(one)  # what was kept for it is not kept for the next, which may wait for "b"
    assert line.announced == ["a"]
    line.check()


# -- who listens -----------------------------------------------------------------------------------------


async def test_releases_are_listened_to_while_a_task_contends():
    """One that holds the name ends that for none of those that share it and contend still."""
    line = Line()
    (one,), other = line.read(1), line.comes(READ)
    other.contender.listens()
    last = line.comes(READ)
    line.wins(last)
    assert not line.told_idle
    line.wins(other)
    line.releases(last)
    assert line.told_idle == ["a"]
    line.releases(one)
    line.releases(other)
    assert line.told_idle == ["a"]


async def test_listening_ends_when_the_last_that_waits_gives_up():
    """The task that holds the name has no use for it."""
    line = Line()
    one, waiting, last = line.comes(WRITE), line.comes(WRITE), line.comes(WRITE)
    one.contender.listens()
    line.wins(one)
    line.gives_up(last)
    assert not line.told_idle
    line.gives_up(waiting)
    assert line.told_idle == ["a"]


# -- turns -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("later", "paused"), [(0.0, True), (YIELD / 2, True), (YIELD, False)])
def test_a_turn_is_over_after_its_time(later, paused):
    """The release that ends it says so, and the next to ask, once, unless it kept still for a while."""
    windows = HandoffWindows()
    windows.take("b", 10.0 + WINDOW)
    assert windows.take("a", 10.0) is None
    assert windows.give_back("a", 10.0, 10.0 + WINDOW / 2, 0) is None
    assert windows.take("a", 10.0 + WINDOW / 2) is None
    over = windows.give_back("a", 10.0 + WINDOW / 2, 10.0 + WINDOW, 0)
    assert over is not None
    assert windows.take("a", 10.0 + WINDOW + later) is (over if paused else None)
    assert windows.take("a", 10.0 + WINDOW + later) is None
    assert windows.give_back("b", 10.0 + WINDOW, 10.0 + WINDOW, 0) is None, "it has a turn of its own"


def test_a_turn_is_over_after_its_hand_offs(monkeypatch):
    """So many locks in no time end it, too."""
    monkeypatch.setattr(handoff, "MAX_HAND_OFFS", 3)
    windows = HandoffWindows()
    ended = []
    for _ in range(7):
        windows.take("a", 10.0)
        ended.append(windows.give_back("a", 10.0, 10.0, 0) is not None)
    assert ended == [False, False, True, False, False, True, False]


# -- many waiters ------------------------------------------------------------------------------------------


class SeenPlace(QueueEntry):
    """A place whose comparisons are counted, as a search for it would make them."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def lines_per_leave(number: int) -> float:
    """Count what it takes one of so many waiters to leave the queue, in any order."""
    line = Line()
    waiting = [line.comes(WRITE) for _ in range(number + 1)][1:]
    assert type(waiting[0].place) is SeenPlace
    random.Random(number).shuffle(waiting)
    with counted() as work:
        for one in waiting:
            line.queue.step_out("a", one.place)
    return work.lines / number


async def test_leaving_a_queue_costs_the_same_however_long_it_is(monkeypatch):
    """What waiters that give up together cost grows with their number, not with its square."""
    monkeypatch.setattr(local_queue, "QueueEntry", SeenPlace)
    assert lines_per_leave(4_000) < 2 * lines_per_leave(250)


# -- anything ----------------------------------------------------------------------------------------------


def step(line: Line, draw: random.Random) -> None:
    """Let one thing happen."""
    if draw.random() < 0.4 and len(line.callers) < 8:
        names = draw.choice([("a",), ("a",), ("b",), ("a", "b")])
        line.comes(draw.choice([READ, READ, WRITE]), *names, single_try=draw.random() < 0.2)
        return
    if not line.callers:
        return
    some = draw.choice(line.callers)
    chance = draw.random()
    if chance < 0.2:
        line.gives_up(some)
    elif some.place is not None and not some.place.future.done():
        if chance < 0.6:
            some.place.future.cancel()
        else:
            give_up(some.place.future)
    elif some.place is None and some.contender.held is not None:
        line.releases(some)
    elif some.place is None:
        line.asks(some)
        if chance < 0.6:
            line.wins(some)
        else:
            line.is_refused(some)


@pytest.mark.parametrize("block", range(4))
async def test_whatever_happens_nothing_is_forgotten(block):
    """Callers of two kinds and three sets of names come and go in every way; all that waits gets its turn."""
    for seed in range(100 * block, 100 * (block + 1)):
        draw, line = random.Random(seed), Line()
        listened: set[str] = set()
        for _ in range(60):
            step(line, draw)
            line.check()
            line.run_woken(draw.random)
            line.check()
            listened |= {name for name, entry in line.queue.entries.items() if entry.listened}
        line.run_woken()
        while line.callers:
            able = [caller for caller in line.callers if caller.place is None]
            assert able, f"seed {seed}: all wait, and none can leave"
            line.gives_up(draw.choice(able))
            line.run_woken()
            line.check()
        line.check_empty()
        assert listened <= set(line.told_idle), "what was listened to is listened to for ever"


PLACES = 4
"""Places for tries in flight, where a test says so: few make a burst small."""


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few tries be in flight at once."""
    monkeypatch.setattr(local_queue, "MAX_TRIES", PLACES)
    monkeypatch.setattr(local_queue, "MAX_QUIET", PLACES)


def places(w: World) -> AttemptLimiter:
    """Return the attempt_limiter of the world's manager."""
    return w.manager._life.session.attempt_limiter


@contextlib.asynccontextmanager
async def deserted(**options: float) -> AsyncIterator[World]:
    """Open a world; at the end every place was given back, and no call stands in line."""
    async with world(**options) as w:
        place = places(w)
        yield w
        assert (place.in_flight, len(place._line), len(place._singles)) == (0, 0, 0)


def asked(node: MemoryNode) -> list[str]:
    """Return the names that a node was asked for, in order."""
    return [one.key.decode().partition(":")[2] for one in sent(node) if one.kind == "acquire"]


def ends(w: World, *names: str, **options: float) -> list[asyncio.Task[End]]:
    """Ask for some names at once, each in a task of its own."""
    return [in_task(w.manager.lock(name, **options).acquire) for name in names]


def burst(w: World, number: int = PLACES, **options: float) -> list[asyncio.Task[End]]:
    """Ask for so many names at once."""
    return ends(w, *map(str, range(number)), **options)


async def succeed(tasks: list[asyncio.Task[End]]) -> None:
    """See that all of these have their lock in the end."""
    assert [end.error for end in await asyncio.gather(*tasks)] == [None] * len(tasks)


@contextlib.asynccontextmanager
async def full(w: World) -> AsyncIterator[None]:
    """Have every place taken when the block begins; those that took them have their locks in the end."""
    tasks = burst(w)
    await turns(1)
    assert places(w).in_flight >= places(w).most
    yield
    await succeed(tasks)


@contextlib.contextmanager
def frozen(w: World) -> Iterator[None]:
    """Have no node answer meanwhile."""
    each(w.nodes).freeze()
    yield
    each(w.nodes).thaw()


# -- a burst -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("later", "ahead"), [(1, 0), (2, local_queue.MAX_TRIES)], ids=["turn", "next turn"])
async def test_an_extension_leaves_ahead_of_those_that_stand_in_line(later, ahead):
    """However many have asked, no more than the window's tries are before it; none of this turn's."""
    async with world() as w:
        lease = await w.manager.lock("held").acquire()
        tasks = burst(w, 500)
        await turns(later)
        await lease.extend()
        before = [one.kind for one in sent(w.nodes[0])]
        assert before[: before.index("extend")].count("acquire") == 1 + ahead
        await succeed(tasks)
        await lease.release()


@pytest.mark.parametrize("what", ["held", "had", "stays"])
async def test_a_call_that_asks_no_node_for_now_takes_no_place(few_places, what):
    """It stood in line before it found that its process holds the name, or has had its turn, or that the
    name stays taken: it waits for that without a place.
    """
    async with deserted() as w:
        lease = await w.manager.lock("held").acquire()
        async with w.manager.lock("had"):
            await asyncio.sleep(WINDOW)
        await cycle(w.manager.lock("stays", at_least=TIMEOUT))
        async with full(w):
            tasks = ends(w, *[what] * PLACES)
            await asyncio.sleep(ROUND_TRIP + YIELD_WITHOUT_LISTENERS / 2)
            assert asked(w.nodes[0]) == ["held", "had", "stays", "0", "1", "2", "3"]
            assert not any(task.done() for task in tasks)
            assert places(w).in_flight == 0
            await lease.release()
            await succeed(tasks)


async def test_a_call_that_comes_first_when_no_lock_can_be_trusted_gives_its_place_back(few_places):
    """Its nodes turned out to be no quorum while it stood in line: it asks none."""
    async with deserted() as w, full(w):
        (late,) = ends(w, "late")
        await turns(1)
        availability = w.manager._life.session.availability
        sim().call_later(ROUND_TRIP / 2, setattr, availability, "conflict", "two nodes are one server")
        assert isinstance((await late).error, ConfigurationError)
        availability.conflict = None
        await asyncio.sleep(TIMEOUT)
        assert asked(w.nodes[0]).count("late") == 0


async def test_calls_that_stand_in_line_are_counted(few_places):
    """They wait for their turn, as those behind a task of their process do."""
    async with deserted() as w, full(w):
        late = ends(w, "late", "later")
        await turns(1)
        assert w.manager.statistics().waiting == 2
        await succeed(late)


async def test_an_attempt_that_may_not_be_made_keeps_no_place():
    """Two nodes turn out to be one server while the call waits for its next attempt (A4)."""
    async with world() as w:
        each(w.nodes).set(PREFIX + b"a", b"another's", 5.0)
        waits = in_task(w.manager.lock("a").acquire)
        await asyncio.sleep(2 * ROUND_TRIP)
        session = w.manager._life.session
        assert session is not None
        session.availability.conflict = "two nodes are one server"
        assert isinstance((await waits).error, ConfigurationError)
        assert places(w).in_flight == 0
        session.availability.conflict = None


async def test_a_single_try_of_what_its_process_holds_does_not_stand_in_line(few_places):
    """No node is asked for it, so that it needs no place to be told at once."""
    async with deserted() as w:
        lease = await w.manager.lock("held").acquire()
        async with full(w):
            (told,) = ends(w, "held", blocking_timeout=0)
            await turns(3)
            assert told.done()
            assert isinstance((await told).error, LockTakenError)
        await lease.release()


# -- the time of those in line -------------------------------------------------------------------------


async def test_the_time_in_line_is_the_callers(few_places):
    """A call whose time ends in line is told so then, and nothing was sent for it."""
    async with deserted() as w:
        with frozen(w):
            before = burst(w, blocking_timeout=1.0)
            (late,) = ends(w, "late", blocking_timeout=0.03)
            end = await late
            assert isinstance(end.error, QuorumUnavailableError)
            assert "not attempted" in str(end.error)
            assert {vote.vote.value for vote in end.error.votes} == {"silent"}
            assert end.at == pytest.approx(1000.03, abs=0.01)
            assert "late" not in asked(w.nodes[0])
        await succeed(before)


async def test_a_refusal_is_told_again_when_the_time_runs_out_in_line(few_places):
    """The second try found no place in time: the answer to the first one is what is known."""
    async with deserted() as w:
        w.occupy("taken", 60.0)
        (call,) = ends(w, "taken", blocking_timeout=0.2)
        await asyncio.sleep(0.05)
        with frozen(w):
            tasks = burst(w, 40, blocking_timeout=5.0)
            assert isinstance((await call).error, LockTakenError)
        await succeed(tasks)


async def test_a_single_try_does_not_stand_behind_those_that_can_wait(few_places):
    """Of two places one is for a single try, so that it waits for its like alone; the others go on, too."""
    async with world() as w:
        calls = burst(w, 30)
        await turns(2)
        singles = [in_task(w.manager.lock(f"s{number}").try_acquire) for number in range(5)]
        await succeed(calls + singles)
        order = asked(w.nodes[0])[PLACES : PLACES + 10]
        assert order == ["s0", "4", "s1", "5", "s2", "6", "s3", "7", "s4", "8"]


@pytest.mark.parametrize("latency", [TIMEOUT / 5, TIMEOUT * 0.45])
async def test_a_single_try_is_heard_out_though_it_stood_in_line(few_places, latency):
    """What it waited for its place is not taken from the time that nodes have to answer."""
    async with world(latency=latency) as w:
        await succeed(burst(w, 5 * PLACES, blocking_timeout=0))


async def test_single_tries_are_sent_away_when_nodes_do_not_answer(few_places):
    """They do not wait for one try after the other to end in silence."""
    async with deserted() as w:
        with frozen(w):
            began = sim().time()
            tasks = burst(w, 30, blocking_timeout=0)
            waiting = ends(w, "patient", blocking_timeout=5.0)
            for end in await asyncio.gather(*tasks):
                assert isinstance(end.error, QuorumUnavailableError)
                assert end.at - began <= 2 * TIMEOUT + ROUND_TRIP
        await succeed(waiting)


async def test_the_line_is_bounded(few_places, monkeypatch):
    """Beyond its bound a call is told at once that there are too many."""
    monkeypatch.setattr(local_queue, "MAX_IN_LINE", 10)
    async with world() as w:
        tasks = burst(w, PLACES + 15)
        await succeed(tasks[: PLACES + 10])
        assert {type((await task).error) for task in tasks[PLACES + 10 :]} == {QuorumUnavailableError}


# -- leaving the line ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
async def test_a_place_is_never_lost(few_places, seed):
    """Calls are cancelled, or run out of time, at any moment, also at that when a place comes."""
    chance = random.Random(seed)
    async with deserted() as w:
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
        assert w.keys == [()] * 3


@pytest.mark.parametrize("timeout", [0, 5.0], ids=["single try", "patient"])
async def test_a_place_that_came_to_a_cancelled_call_goes_to_the_next(few_places, monkeypatch, timeout):
    """It leaves the line in the moment in which its turn comes."""
    async with deserted() as w, full(w):
        standing = asyncio.create_task(cycle(w.manager.lock("x", blocking_timeout=timeout)))
        await turns(2)
        call_next = AttemptLimiter._call_next

        def and_cancel(self: AttemptLimiter) -> bool:
            found = call_next(self)
            standing.cancel()
            return found

        monkeypatch.setattr(AttemptLimiter, "_call_next", and_cancel)
        await asyncio.wait((standing,))
        assert standing.cancelled()


async def test_closing_ends_the_wait_in_line(few_places):
    """Calls in line hear that the manager is closed."""
    async with deserted() as w:
        with frozen(w):
            tasks = burst(w, 3 * PLACES)
            await turns(3)
            await w.manager.aclose()
            assert {type(end.error) for end in await asyncio.gather(*tasks)} == {ManagerClosedError}


# -- hand-off ------------------------------------------------------------------------------------------


def of_the_hot_name(w: World) -> list[Sent]:
    """Return the acquires and releases of the hot name, in their order."""
    return [one for one in sent(w.nodes[0]) if one.key == b"redlock:hot"]


@pytest.mark.parametrize("quiet", [True, False])
async def test_a_task_behind_a_release_asks_past_the_line(few_places, monkeypatch, quiet):
    """In one write, and others hear of none; where too many do, it stands in line, and others hear."""
    if not quiet:
        monkeypatch.setattr(local_queue, "MAX_QUIET", 0)
    async with deserted() as w:
        first = await w.manager.lock("hot").acquire()
        wanted = [asyncio.create_task(cycle(w.manager.lock("hot"))) for _ in range(6)]
        await turns(3)
        others = burst(w, 40)
        await turns(2)
        began = sim().time()
        await first.release()
        release = [one for one in of_the_hot_name(w) if one.kind == "release"]
        assert release[0].words[-2] == (b"" if quiet else b"1")
        if quiet:
            pairs = itertools.pairwise(one.kind for one in of_the_hot_name(w))
            assert ("release", "acquire") in pairs
            assert sim().time() - began <= 2 * ROUND_TRIP
        await asyncio.gather(*wanted)
        await succeed(others)


# -- one turn of the loop ------------------------------------------------------------------------------


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
        leases: list[Lease] = await asyncio.gather(*(w.manager.lock(str(n)).acquire() for n in range(35)))
        await asyncio.sleep(1.2)
        assert [times.count(time) for time in sorted(set(times))] == [10, 10, 10, 5]
        assert all(lease.extensions == 1 for lease in leases)
        for lease in leases:
            await lease.release()
