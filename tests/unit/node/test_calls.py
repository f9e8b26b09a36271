"""The calls of a user's client: how many at once, which goes first, and which need not be made (R17)."""

from __future__ import annotations

import asyncio

import pytest

from aioredlock_ng._core.command import Command, Purpose, Reply, Silence
from aioredlock_ng._node import calls as calls_module
from aioredlock_ng._node.callers import calls_at_once
from aioredlock_ng._node.calls import AT_ONCE, LAST_CALLS, Calls
from tests.unit.tasks import sim, turns

LONGEST = 1.0


class Server:
    """Answers when it is told to; knows what it was asked, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[Purpose, bytes]] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def execute(self, command: Command) -> Reply:
        """Take a call."""
        self.asked.append((command.purpose, command.owner))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future
        return 1

    def answer(self, number: int = 1) -> None:
        """Answer the oldest calls."""
        some, self._waiting = self._waiting[:number], self._waiting[number:]
        for future in some:
            future.set_result(None)


def command(purpose: Purpose, owner: bytes = b"") -> Command:
    """Make a command that does nothing."""
    return Command(purpose, owner=owner, fits=lambda _: True, keys=(), verb=b"PING")


def made(number: int = 0, purpose: Purpose = Purpose.ACQUIRE) -> tuple[Server, Calls]:
    """Return a server, and a client's calls to it: so many of a purpose, each of an owner of its own."""
    server = Server()
    calls = Calls(server.execute, at_once=AT_ONCE)
    calls.longest = LONGEST
    for owner in range(number):
        calls.start(command(purpose, b"%d" % owner))
    return server, calls


async def test_what_a_lease_rests_on_goes_first() -> None:
    """Beyond so many at once, acquires wait; extensions, releases and raises are ahead, in their order."""
    server, calls = made()
    tasks = [calls.start(command(Purpose.ACQUIRE)) for _ in range(AT_ONCE + 2)]
    urgent = [Purpose.EXTEND, Purpose.RELEASE, Purpose.REPAIR, Purpose.RAISE]
    tasks += [calls.start(command(purpose)) for purpose in urgent]
    await turns(3)
    assert len(server.asked) == AT_ONCE
    for _ in range(6):
        server.answer()
        await turns(3)
    assert [purpose for purpose, _ in server.asked[AT_ONCE:]] == [*urgent, Purpose.ACQUIRE, Purpose.ACQUIRE]
    server.answer(AT_ONCE)
    await asyncio.gather(*tasks)
    await turns(2)
    assert not calls.tasks


async def test_calls_of_one_owner_do_not_overtake_each_other() -> None:
    """Nor does one overtake that before it when an earlier one has ended."""
    server, calls = made()
    purposes = [Purpose.ACQUIRE, Purpose.EXTEND, Purpose.RELEASE]
    calls.start(command(purposes[0], b"a"))
    calls.start(command(purposes[1], b"a"))
    await turns(3)
    server.answer()
    await turns(5)
    calls.start(command(purposes[2], b"a"))
    for asked in (2, 3):
        await turns(5)
        assert [purpose for purpose, _ in server.asked] == purposes[:asked]
        server.answer()
    await turns(5)
    assert not calls.tasks


async def test_a_call_that_takes_long_gives_its_place_up() -> None:
    """A server that stands still does not keep what follows from being asked when it goes on."""
    server, calls = made(AT_ONCE)
    calls.start(command(Purpose.EXTEND))
    await asyncio.sleep(LONGEST / 2)
    assert len(server.asked) == AT_ONCE
    await asyncio.sleep(LONGEST)
    assert server.asked[-1][0] is Purpose.EXTEND
    server.answer(AT_ONCE + 1)
    await turns(3)
    for _ in range(AT_ONCE + 1):
        calls.start(command(Purpose.OTHER))
    await turns(3)
    assert len(server.asked) == 2 * AT_ONCE + 1, "no place was given back twice"
    for number in (AT_ONCE + 1, 1):
        server.answer(number)
        await turns(3)
    assert not calls.tasks


async def test_a_call_that_waits_for_a_place_can_be_spared() -> None:
    """It is never made.  One that is under way, or behind its owner's call, is none to be spared."""
    server, calls = made()
    first = calls.start(command(Purpose.ACQUIRE, b"a"))
    behind = calls.start(command(Purpose.EXTEND, b"a"))
    for _ in range(AT_ONCE - 1):
        calls.start(command(Purpose.ACQUIRE))
    queued = [calls.start(command(Purpose.ACQUIRE, b"b%d" % i)) for i in range(2)]
    release = calls.start(command(Purpose.RELEASE, b"b0"))
    await turns(3)
    assert [calls.cancel_if_queued(call) for call in (first, behind, queued[0])] == [False, False, True]
    await turns(3)
    assert queued[0].cancelled()
    server.answer(AT_ONCE)
    await turns(5)
    expected = [(Purpose.ACQUIRE, b"b1"), (Purpose.EXTEND, b"a"), (Purpose.RELEASE, b"b0")]
    assert sorted(server.asked[AT_ONCE:], key=str) == sorted(expected, key=str)
    server.answer(3)
    await asyncio.gather(first, behind, queued[1], release)


@pytest.mark.parametrize("together", [True, False])
async def test_a_waiter_that_goes_takes_no_place_with_it(together: bool) -> None:
    """Not even if its turn came in the same moment."""
    server, calls = made(AT_ONCE)
    waiting = [calls.start(command(Purpose.ACQUIRE, b"w%d" % i)) for i in range(2)]
    await turns(3)
    if together:
        server.answer()
        await turns(1)
    waiting[0].cancel()
    await turns(3)
    for number in (0 if together else 1, AT_ONCE + 1, 2):
        server.answer(number)
        await turns(5)
    assert not calls.tasks
    for _ in range(AT_ONCE):
        calls.start(command(Purpose.ACQUIRE))
    await turns(3)
    assert len(server.asked) >= 2 * AT_ONCE + 1, "every place was given back"
    server.answer(AT_ONCE)
    await turns(3)


@pytest.mark.parametrize(
    ("connections", "calls"), [(2, 1), (5, 2), (40, 20), (100, AT_ONCE), (2**31, AT_ONCE)]
)
def test_calls_take_half_of_a_pool_at_most(connections: int, calls: int) -> None:
    """The rest is for looks at the server, and for what else the client is used for."""
    assert calls_at_once("a client", connections) == calls


async def test_each_purpose_has_room_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases that wait leave acquires theirs, and the other way round; it comes back with the answers."""
    monkeypatch.setattr(calls_module, "MAX_CALLS", 2)
    monkeypatch.setattr(calls_module, "MAX_RELEASES", 3)
    server, calls = made()
    purposes = [Purpose.ACQUIRE] * 2 + [Purpose.RELEASE] * 2
    tasks = [calls.start(command(purpose)) for purpose in purposes]
    assert not calls.has_room(Purpose.ACQUIRE)
    assert calls.has_room(Purpose.RELEASE)
    assert calls.has_room(Purpose.EXTEND)
    await turns(2)
    server.answer(4)
    replies = await asyncio.gather(*tasks)
    assert not any(isinstance(reply, Silence) for reply in replies)
    assert calls.has_room(Purpose.ACQUIRE)


@pytest.mark.parametrize(
    ("pause", "number", "limit", "asked", "took"),
    [
        (0.05, AT_ONCE, 0.1, 4 * AT_ONCE, 0.2),
        (0.5, AT_ONCE, 0.1, AT_ONCE, 0.2),
        (0.1, 1, 1.0, None, LAST_CALLS),
    ],
    ids=["answered in time", "not answered", "answered slowly"],
)
async def test_at_the_end_calls_are_made_while_some_are_answered(
    pause: float, number: int, limit: float, asked: int | None, took: float
) -> None:
    """What waits for a place, too: releases would be lost.  When none is answered, all are cancelled; and a
    server that answers to one after the other, slowly, does not keep a node from its end.
    """
    server, calls = made(4 * AT_ONCE, Purpose.RELEASE)

    async def answer() -> None:
        while True:
            await asyncio.sleep(pause)
            server.answer(number)

    answering, began = asyncio.create_task(answer()), sim().time()
    await calls.end(limit)
    assert sim().time() - began == pytest.approx(took)
    assert len(server.asked) == asked or asked is None
    assert not calls.tasks
    answering.cancel()
