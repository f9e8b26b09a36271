"""The scripts of a fair lock: what they answer, leave and tell, on every kind of master (R28, R29, R30)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from aioredlock_ng import _scripts
from aioredlock_ng._core.fencing import SHIFT
from tests.conformance.masters import WRONG
from tests.conformance.stage import KEEP_MS, SENTINEL, TTL_MS, Stage, beside, counters, locks, queues
from tests.conformance.test_notices import LOUD, heard_by
from tests.conformance.tools import OTHERS, OURS, alike, lives

LOCK: Final = locks("a")[0]
TICKETS_KEY, SEATS_KEY = LINE = beside("a", b"tickets")[0], beside("a", b"seats")[0]
FLAGS: Final = queues("a")[0]
LIFE_MS: Final = 100_000
"""The life of a seat at the head of the line."""
MANY: Final = 400
"""Seats whose head starts take 20 s: longer than a loaded machine stands still."""


def seat(number: int) -> bytes:
    """Return the name of a seat."""
    return b"redlock:seats:{%040x:host:%d}" % (number, number)


FIRST, SECOND, THIRD = seat(1), seat(2), seat(3)


def crowd() -> list[tuple[bytes, int, float]]:
    """Return the seats of many that live."""
    return [(seat(10 + number), 10 + number, 90.0) for number in range(MANY)]


class FairStage(Stage):
    """A node with a lock, and the line beside it."""

    async def put_line(
        self,
        *seats: tuple[bytes, int, float],
        free_since: float | None = None,
        late: float | None = None,
        ttl: float = 600.0,
    ) -> None:
        """Have seats in the line: each with its ticket, and the seconds that it lives yet, or below 0.

        The lock is free since some seconds, or its holder ends in some, if below 0.  Head starts are
        long for `late` seconds more.
        """
        now_ms = await self.now_ms()
        self.put(TICKETS_KEY, {name: ticket for name, ticket, _ in seats}, ttl)
        ends = {name: now_ms + round(left * 1000) for name, _, left in seats}
        if free_since is not None:
            ends[b"free"] = now_ms - round(free_since * 1000)
        if late is not None:
            ends[b"late"] = now_ms + round(late * 1000)
        self.put(SEATS_KEY, ends, ttl)

    def line(self) -> list[bytes]:
        """Return the seats, in their order."""
        tickets = self.tickets()
        return sorted(tickets, key=lambda name: (tickets[name], name))

    def tickets(self) -> dict[bytes, int]:
        """Return the seats, each with its ticket."""
        return self._scores(TICKETS_KEY)

    def seats(self) -> dict[bytes, int]:
        """Return the node's times in milliseconds: when each seat ends, and since or till when (b"free")."""
        return self._scores(SEATS_KEY)

    def _scores(self, key: bytes) -> dict[bytes, int]:
        value, _ = self.look(key)
        return {name: int(score) for name, score in value.items()} if isinstance(value, dict) else {}

    async def ask(
        self, name: bytes = b"", ticket: int = 0, *, ballot: int = 1, owner: bytes = OURS, **vote: Any
    ) -> Any:
        """Run `fair_acquire.lua`; a ballot of 0 is none."""
        args = (owner, TTL_MS, ballot, 1, KEEP_MS, name, ticket, LIFE_MS)
        return await self.voted(_scripts.FAIR_ACQUIRE, self._keys(ballot), *args, **vote)

    async def free(
        self, name: bytes = b"", ticket: int = 0, *, fence: int = 0, loud: bytes = b"", owner: bytes = OURS
    ) -> Any:
        """Run `fair_release.lua`; a fence of 0 is none; by a ticket of 0 the call waits no more."""
        args = (owner, fence, KEEP_MS, loud, name, ticket, LIFE_MS)
        return await self.run(_scripts.FAIR_RELEASE, self._keys(fence), *args)

    async def queue(self, most: int = 100) -> Any:
        """Run `queue.lua`."""
        return await self.run(_scripts.QUEUE, (*LINE, FLAGS), most)

    @staticmethod
    def _keys(fence: int) -> list[bytes]:
        return [LOCK, *(counters("a") if fence else ()), *LINE]


STAGE = FairStage


# -- acquire -------------------------------------------------------------------------------------------


async def test_a_refused_call_that_waits_takes_the_next_seat(stage):
    """Its ticket is the node's time, or one more than the last; without a seat it takes none."""
    stage.hold("a", OTHERS)
    code, wait, _, ticket, ahead = await stage.ask()
    assert (code, alike(wait, 30_000), ticket, ahead) == (0, True, 0, 0)
    assert stage.tickets() == {}
    now_ms = await stage.now_ms()
    code, wait, us, first, ahead = await stage.ask(FIRST)
    assert (code, alike(wait, 30_000), ahead) == (0, True, 0)
    assert now_ms <= first >> SHIFT <= us // 1000
    assert (await stage.ask(FIRST))[3] == first
    far = first + (3_600_000 << SHIFT)
    await stage.free(SECOND, far)
    *_, third, ahead = await stage.ask(THIRD)
    assert (third, ahead) == (far + 1, 2)
    assert stage.line() == [FIRST, SECOND, THIRD]


async def test_a_seat_lives_longer_behind_others(stage):
    """60 ms for each that comes before it; the keys as long as the last of them."""
    stage.hold("a", OTHERS)
    await stage.put_line(*crowd(), ttl=10.0)
    await stage.ask(FIRST, 2**50)
    now_ms = await stage.now_ms()
    assert alike(stage.seats()[FIRST] - now_ms, LIFE_MS + 60 * MANY)
    for _, left in stage.master.look(LINE):
        assert lives(left, (LIFE_MS + 60 * MANY) / 1000)


async def test_a_release_that_stays_settles_its_ticket(stage):
    """The ticket of other nodes takes the place of the node's own; a seat that was lost comes back to it."""
    stage.hold("a", OTHERS)
    *_, first, _ = await stage.ask(FIRST)
    await stage.ask(SECOND)
    deleted, wait, told, *_ = await stage.free(FIRST, first + 2**30)
    assert (deleted, alike(wait, 30_050), told) == (0, True, 0)
    assert stage.line() == [SECOND, FIRST]
    assert stage.tickets()[FIRST] == first + 2**30
    stage.put(TICKETS_KEY, {SECOND: first + 1}, 60.0)
    stage.put(SEATS_KEY, {SECOND: stage.seats()[SECOND]}, 60.0)
    assert (await stage.ask(FIRST, first))[3:] == [first, 0]
    assert stage.line() == [FIRST, SECOND]


async def test_the_first_in_line_has_a_free_lock_at_once(stage):
    """Its seat goes, and with the last one all."""
    await stage.put_line((FIRST, 5, 60.0), (SECOND, 6, 60.0), free_since=0.0)
    assert (await stage.ask(FIRST, 5))[0] == 1
    assert (stage.line(), stage.seats().get(b"free")) == ([SECOND], None)
    await stage.free()
    assert (await stage.ask(SECOND, 6))[0] == 1
    assert not {TICKETS_KEY, SEATS_KEY} & set(stage.master.all_keys())


@pytest.mark.parametrize("name", [FIRST, b""], ids=["in line", "a single try"])
async def test_others_wait_for_the_head_starts_before_them(stage, name):
    """50 ms for each: refused until then, and from then on granted past those, whose seats go."""
    await stage.put_line(*crowd(), free_since=0.0)
    code, wait, _, _, ahead = await stage.ask(name)
    assert (code, alike(wait, 50 * MANY), ahead) == (0, True, MANY)
    await stage.put_line(*crowd(), (SECOND, 2**50, 60.0), free_since=60.0)
    assert (await stage.ask(name, 2**49 if name else 0))[0] == 1
    assert stage.line() == ([SECOND] if name else [])


@pytest.mark.parametrize("free_since", [None, -60.0])
async def test_a_lock_that_went_without_a_word_is_free_from_now_on(stage, free_since):
    """By force, or before its holder's end: the head starts begin when it is seen."""
    await stage.put_line(*crowd(), free_since=free_since)
    before = await stage.now_ms()
    assert (await stage.ask(FIRST))[0] == 0
    since = stage.seats().get(b"free")
    assert since is not None
    assert before <= since <= await stage.now_ms()


async def test_head_starts_are_long_when_one_passed_over_comes_back(stage):
    """200 ms, since it lives and is far away: while the lock is another's, and when it is free."""
    stage.hold("a", OTHERS)
    await stage.put_line(*crowd())
    assert alike((await stage.ask())[1], 30_000 + 50 * MANY)
    await stage.ask(FIRST, 5)
    assert alike((await stage.ask())[1], 30_000 + 200 * (MANY + 1))
    assert alike((await stage.free(owner=OURS))[1], 30_000 + 200 * (MANY + 1))
    assert alike((await stage.free(owner=OTHERS))[1], 200 * (MANY + 1))
    assert alike((await stage.ask())[1], 200 * (MANY + 1))
    assert (await stage.ask(FIRST, 5))[0] == 1


@pytest.mark.parametrize(("late", "each"), [(9.0, 200), (60.0, 50), (-1.0, 50)])
async def test_a_clock_that_was_set_back_makes_no_head_start_long(stage, late, each):
    """A mark that is further ahead than one ever is was made before that, and would last for hours."""
    await stage.put_line(*crowd(), free_since=0.0, late=late)
    assert alike((await stage.ask())[1], each * MANY)


async def test_a_refusal_notes_when_the_holder_ends(stage):
    """So that its head starts count from there; a key without an end has none to note."""
    stage.hold("a", OTHERS)
    await stage.ask(FIRST)
    assert alike(stage.seats().get(b"free", 0) - await stage.now_ms(), 30_000)
    stage.put(LOCK, OTHERS)
    assert (await stage.ask(FIRST))[:2] == [0, -1]


async def test_seats_that_have_ended_are_passed_by(stage):
    """At the front they go; behind one that lives they count until they get there."""
    await stage.put_line((seat(5), 5, -1.0), (seat(6), 6, -1.0), (FIRST, 7, 60.0), (seat(8), 8, -1.0))
    stage.hold("a", OTHERS)
    assert (await stage.ask(SECOND, 9))[3:] == [9, 2]
    assert stage.line() == [FIRST, seat(8), SECOND]
    assert seat(5) not in stage.seats()


# -- release -------------------------------------------------------------------------------------------


async def test_a_call_that_waits_no_more_leaves(stage):
    """With the last one nothing is left, and what was not there is no error."""
    stage.hold("a", OTHERS)
    for name in (FIRST, SECOND):
        await stage.ask(name)
    await stage.free(FIRST)
    assert stage.line() == [SECOND]
    await stage.free(FIRST)
    await stage.free(SECOND, fence=777)
    assert stage.master.all_keys() == [LOCK, SENTINEL], "nor has another's counter been raised"


async def test_a_release_says_how_long_others_come_first(stage):
    """And notes since when the lock is free."""
    stage.hold("a")
    await stage.put_line(*crowd(), free_since=-30.0)
    before = await stage.now_ms()
    deleted, wait, _ = await stage.free()
    assert (deleted, alike(wait, 50 * MANY)) == (1, True)
    assert before <= stage.seats().get(b"free", 0) <= await stage.now_ms()
    assert stage.held() == [None]


# -- notices -------------------------------------------------------------------------------------------


@pytest.fixture
async def told(master):
    """Give a function that returns what the second to fourth of ten in line, and a plain waiter, heard."""
    async with heard_by(master, *((channel,) for channel in (FIRST, SECOND, THIRD, LOCK))) as since:

        async def messages():
            return [[message for _, message in each] for each in await since()]

        yield messages


TEN = [(seat(number), 100 + number, 60.0) for number in range(10)]


async def test_a_release_tells_the_first_two_that_listen(stage, told):
    """Each its place and what is free; all that listen on the key's channel hear of it, too."""
    await stage.put_line(*TEN)
    stage.hold("a")
    assert (await stage.free(loud=LOUD))[::2] == [1, 2]
    assert await told() == [[b"1:1@" + TICKETS_KEY], [b"1:2@" + TICKETS_KEY], [], [b"1"]]


async def test_the_head_that_leaves_a_free_lock_has_the_next_told(stage, told):
    """Not while another holds it, nor by a quiet release, nor one that frees nothing."""
    await stage.put_line(*TEN, free_since=0.0)
    await stage.free(seat(0), loud=LOUD)
    assert (await told())[:3] == [[b"1:0@" + TICKETS_KEY], [b"1:1@" + TICKETS_KEY], []]
    await stage.free(seat(5))
    await stage.free(loud=LOUD)
    stage.hold("a", OTHERS)
    await stage.free(seat(6), loud=LOUD)
    assert await told() == [[], [], [], []]


# -- what others put there -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", [TICKETS_KEY, SEATS_KEY])
async def test_a_line_of_another_type_keeps_no_lock_from_its_release(stage, key):
    """A call that would wait gets an error, and leaves nothing without an end."""
    stage.hold("a", OTHERS)
    stage.put(key, WRONG, 60.0)
    assert await stage.ask(FIRST) == "WRONGTYPE"
    assert await stage.queue() == "WRONGTYPE"
    assert not [left for value, left in stage.master.look(LINE) if value and left is None]
    stage.hold("a")
    assert (await stage.free(FIRST, loud=LOUD))[0] == 1
    assert stage.held() == [None]


# -- queue ---------------------------------------------------------------------------------------------


async def test_the_line_is_shown_in_its_order(stage):
    """Those that live, as many as asked for; and whether there are more."""
    assert await stage.queue() == [0, [], []]
    await stage.put_line((FIRST, 7, 60.0), (SECOND, 2**52, 60.0), (THIRD, 6, -1.0), free_since=0.0)
    assert await stage.queue() == [0, [FIRST, 7, SECOND, 2**52], []]
    assert await stage.queue(3) == [0, [FIRST, 7, SECOND, 2**52], []]
    assert await stage.queue(2) == [1, [FIRST, 7], []]
    assert stage.line() == [THIRD, FIRST, SECOND], "a look changes nothing"


async def test_writers_that_wait_are_shown(stage):
    """Those whose flags stand; not the flags of readers and of their phase, nor a key that is another's."""
    now_ms = await stage.now_ms()
    left = {b"wa:web-1": 50_000, b"wb:web-2": -500, b"r": 50_000, b"turn": 50_000}
    stage.put(FLAGS, {flag: now_ms + ms for flag, ms in left.items()}, 60.0)
    assert await stage.queue() == [0, [], [b"a:web-1"]]
    stage.put(FLAGS, WRONG, 60.0)
    assert await stage.queue() == [0, [], []]
