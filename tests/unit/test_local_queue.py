"""The local queue by itself: kinds that share a name, the order of places, and what each leaves behind."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from aioredlock_ng._clock import SystemClock
from aioredlock_ng._kinds.kind import Kind
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._local import handoff, local_queue
from aioredlock_ng._local.admission import Admission
from aioredlock_ng._local.handoff import WINDOW, YIELD, HandoffWindows
from aioredlock_ng._local.local_queue import LocalQueue, Place, Ticket
from aioredlock_ng._round.futures import give_up
from aioredlock_ng.errors import LockTakenError
from tests.counting import counted
from tests.unit.worlds import virtual

READ = replace(MUTEX, name="read", shares_with=frozenset({"read"}))
WRITE = replace(MUTEX, name="write")


class HeldNow:
    """A lease, as the queue knows it."""

    valid_until = 10.0
    task = None


@dataclass(slots=True, eq=False)
class Caller:
    """A call of acquire, as far as the queue is concerned, and its lease."""

    ticket: Ticket
    waits_for: str = ""
    place: Place | None = None

    @property
    def in_for(self) -> tuple[str, ...]:
        """The names that it was let in for."""
        return self.ticket.names


@dataclass(slots=True)
class Line:
    """A queue, with its callers in the order in which they came, and what it told."""

    told_idle: list[str] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)
    queue: LocalQueue = field(init=False)
    callers: list[Caller] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the queue."""
        self.queue = LocalQueue(Admission(SystemClock(), 0.1), self.told_idle.append, self.announced.append)

    def comes(self, kind: Kind, *names: str, single_try: bool = False) -> Caller:
        """Let one more come, for name "a" if none is given."""
        names = names or ("a",)
        primitive = Primitive(kind, names, tuple(name.encode() for name in names))
        caller = Caller(Ticket(self.queue, primitive))
        self.callers.append(caller)
        self.goes_on(caller, single_try=single_try)
        return caller

    def goes_on(self, caller: Caller, *, single_try: bool = False) -> None:
        """Have it enter what it can, up to the first name that it has to wait for."""
        caller.place = None
        for name in caller.ticket.primitive.names[len(caller.in_for) :]:
            if not self.queue.enter(name, caller.ticket):
                caller.waits_for = name
                caller.place = self.queue.place(name, caller.ticket, single_try=single_try)
                return

    def gives_up(self, caller: Caller) -> None:
        """Have it stop, wherever it is, as a cancelled call does."""
        self.callers.remove(caller)
        if caller.place is not None:
            self.queue.step_out(caller.waits_for, caller.place)
        caller.ticket.leave()

    def releases(self, caller: Caller) -> bool:
        """Have it release what it holds; returns whether it does so quietly."""
        self.callers.remove(caller)
        quiet = caller.ticket.keep_quiet()
        caller.ticket.leave()
        return quiet

    def wins(self, caller: Caller) -> None:
        """Have it hold its lock."""
        caller.ticket.now_held(HeldNow(), lambda: LockTakenError("taken", names=("a",)))

    def is_refused(self, caller: Caller) -> None:
        """Have it wait for the nodes, or for another that does."""
        if speaks := caller.ticket.speaks():
            caller.ticket.listens()
        caller.ticket.refused(LockTakenError("taken", names=caller.in_for), 0.0)
        if not speaks:
            caller.ticket.step_back()
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
        if caller.ticket.notice_pending:
            caller.ticket.notice_pending = False
            self.queue.admission.leave()

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
            assert entry.inside, "an entry is there while a ticket is in"
            speaker = entry.speaker
            assert speaker is None or (speaker in entry.inside and speaker.held is None)
            for one, other in itertools.combinations(entry.inside, 2):
                assert not one.primitive.kind.conflicts(other.primitive.kind)
            first = next(iter(entry.queue or ()), None)  # if its wait has ended, it is about to step out
            if first is not None and not first.future.done():
                assert not entry.admits(first.ticket.primitive), "the first has to wait"
        kept = sum(caller.ticket.notice_pending for caller in self.callers)
        assert self.queue.admission.in_flight == kept, "a place is kept for each pending notice, and no other"

    def check_empty(self, *callers: Caller) -> None:
        """Have these release, and check that nothing is left behind."""
        for caller in callers:
            self.releases(caller)
        assert not self.queue.entries
        assert self.queue.admission.in_flight == 0


@virtual
async def test_the_reader_that_waits_for_others_speaks_until_it_wins_or_leaves():
    """What another one wins meanwhile changes nothing; those refused beside it come before later ones."""
    line = Line()
    line.read(1)
    first, second, third = (line.comes(READ) for _ in range(3))
    assert line.inside() == line.callers
    assert [caller.ticket.speaks() for caller in (first, second, third)] == [True, False, False]
    later = line.comes(WRITE)
    line.wins(second)
    assert not third.ticket.speaks()
    third.ticket.step_back()
    line.goes_on(third)
    line.check()
    behind = line.comes(READ)
    assert third.place is not None
    assert not third.place.future.done()
    line.wins(first)
    line.run_woken()
    assert third in line.inside()
    assert third.ticket.speaks()
    assert not {later, behind} & set(line.inside())
    line.gives_up(third)
    for caller in (line.callers[0], first, second):
        line.releases(caller)
    line.run_woken()
    assert line.inside() == [later]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@virtual
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
    assert writer.ticket.notice_pending
    assert line.queue.admission.in_flight == 1
    assert not line.announced
    assert line.inside() == [writer]
    line.asks(writer)
    line.releases(writer)
    assert line.inside() == behind[:1]  # it asks for both
    line.asks(behind[0])
    line.wins(behind[0])
    assert line.inside() == behind
    line.check_empty(*behind)


@virtual
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


@virtual
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


@virtual
async def test_of_those_that_share_a_name_one_asks_first():
    """When it has won the others ask, all at once; of those that are refused then one waits for all (R22)."""
    line = Line()
    callers = [line.comes(READ) for _ in range(4)]
    assert line.inside() == callers[:1]
    line.wins(callers[0])
    assert line.inside() == callers
    assert [caller.ticket.speaks() for caller in callers[1:]] == [True, False, False]
    late = line.comes(READ)
    assert line.inside() == callers
    for caller in callers[2:]:
        caller.ticket.leave()
        line.goes_on(caller)
    assert line.inside() == callers[:2]
    line.wins(callers[1])
    assert line.inside() == [*callers, late]
    line.check_empty(*callers, late)


@virtual
async def test_a_speaker_goes_on_when_another_wins():
    """It alone listens to releases, and would not hear of them beside a second one."""
    line = Line()
    (holder,) = line.read(1)
    speaker, slower = line.comes(READ), line.comes(READ)
    assert speaker.ticket.speaks()
    line.wins(slower)
    late = line.comes(READ)
    assert line.inside() == [holder, speaker, slower]
    line.wins(speaker)
    assert line.inside() == [holder, speaker, slower, late]
    line.check_empty(holder, speaker, slower, late)


@virtual
async def test_a_speaker_that_gives_up_lets_another_speak():
    """Those that waited behind it ask for themselves."""
    line = Line()
    (holder,) = line.read(1)
    speaker, other = line.comes(READ), line.comes(READ)
    assert speaker.ticket.speaks()
    assert not other.ticket.speaks()
    other.ticket.leave()
    line.goes_on(other)
    assert line.inside() == [holder, speaker]
    line.gives_up(speaker)
    assert line.inside() == [holder, other]
    assert other.ticket.speaks()
    line.gives_up(other)
    line.check_empty(holder)


@virtual
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


@virtual
async def test_a_notice_that_no_task_makes_up_for_is_published_once():
    """It goes from a task that was cancelled to the next, and is published when there is no next one."""
    line = Line()
    holder, one, next_one = line.comes(WRITE), line.comes(WRITE), line.comes(WRITE)
    assert line.releases(holder)
    line.gives_up(one)
    assert next_one.ticket.notice_pending
    assert line.queue.admission.in_flight == 1
    assert not line.announced
    line.gives_up(next_one)
    assert line.announced == ["a"]
    line.check_empty()


@virtual
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


@virtual
async def test_releases_are_listened_to_while_a_task_contends():
    """One that holds the name ends that for none of those that share it and contend still."""
    line = Line()
    (one,), other = line.read(1), line.comes(READ)
    other.ticket.listens()
    last = line.comes(READ)
    line.wins(last)
    assert not line.told_idle
    line.wins(other)
    line.releases(last)
    assert line.told_idle == ["a"]
    line.releases(one)
    line.releases(other)
    assert line.told_idle == ["a"]


@pytest.mark.parametrize("stays", ["one that holds", "one that contends", "none"])
@virtual
async def test_listening_ends_with_the_last_that_waits(stays):
    """Whether it steps out of the queue, or was taken out of it by one that left in the same turn."""
    line = Line()
    (one,), other = line.read(1), line.comes(READ)
    other.ticket.listens()
    waiting = line.comes(WRITE)
    if stays == "one that holds":
        line.wins(other)
    assert not line.told_idle
    assert waiting.place is not None
    waiting.place.future.cancel()
    line.releases(one)
    if stays == "none":
        line.gives_up(other)
    line.gives_up(waiting)
    assert line.told_idle == ([] if stays == "one that contends" else ["a"])


@virtual
async def test_listening_ends_when_the_last_that_waits_gives_up():
    """The task that holds the name has no use for it."""
    line = Line()
    one, waiting, last = line.comes(WRITE), line.comes(WRITE), line.comes(WRITE)
    one.ticket.listens()
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
    assert windows.give_back("a", 10.0, 10.0 + WINDOW / 2) is None
    assert windows.take("a", 10.0 + WINDOW / 2) is None
    over = windows.give_back("a", 10.0 + WINDOW / 2, 10.0 + WINDOW)
    assert over is not None
    assert windows.take("a", 10.0 + WINDOW + later) is (over if paused else None)
    assert windows.take("a", 10.0 + WINDOW + later) is None
    assert windows.give_back("b", 10.0 + WINDOW, 10.0 + WINDOW) is None, "it has a turn of its own"


def test_a_turn_is_over_after_its_hand_offs(monkeypatch):
    """So many locks in no time end it, too."""
    monkeypatch.setattr(handoff, "MAX_HAND_OFFS", 3)
    windows = HandoffWindows()
    ended = []
    for _ in range(7):
        windows.take("a", 10.0)
        ended.append(windows.give_back("a", 10.0, 10.0) is not None)
    assert ended == [False, False, True, False, False, True, False]


# -- many waiters ------------------------------------------------------------------------------------------


class SeenPlace(Place):
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


@virtual
async def test_leaving_a_queue_costs_the_same_however_long_it_is(monkeypatch):
    """What waiters that give up together cost grows with their number, not with its square."""
    monkeypatch.setattr(local_queue, "Place", SeenPlace)
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
    elif some.place is None and some.ticket.held is not None:
        line.releases(some)
    elif some.place is None:
        line.asks(some)
        if chance < 0.6:
            line.wins(some)
        else:
            line.is_refused(some)


@pytest.mark.parametrize("block", range(4))
@virtual
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
