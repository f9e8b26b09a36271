"""The turn of readers after a writer, as all masters keep it: how long writers are told to wait (R22)."""

from __future__ import annotations

from typing import Final

from aioredlock_ng._core.seats import Seat
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._kinds.read_write import READ, WRITE
from tests.conformance.stage import AWAITED_MS, TTL, TURN_MS, locks
from tests.conformance.tools import OTHERS, OURS, Asked, Master, connected

QUEUE: Final = b"redlock:queue:{redlock:a}"
READERS, WRITERS = (Primitive(kind, ("a",), tuple(locks("a")), beside=(QUEUE,)) for kind in (READ, WRITE))
SEAT: Final = Seat(b"a seat")


async def told_to_wait(node: Asked) -> tuple[int, int]:
    """Return for how many milliseconds a writer is told to wait, 0: it got in, and the node's time (µs)."""
    granted, wait, time_us, _ = await node.ask(WRITERS.acquire(OTHERS, TTL))
    await node.ask(WRITERS.release(OTHERS, TTL, quiet=True))
    return (0 if granted == 1 else wait), time_us


async def test_a_turn_waits_for_its_first_reader_and_ends_soon_after_it(master: Master) -> None:
    """Before one has come it is long enough for a long way; then the others, told at once, are near."""
    async with connected(master) as node:
        assert (await node.ask(WRITERS.acquire(OURS, TTL)))[0] == 1
        refused, _, began = await node.ask(READERS.acquire(OURS, TTL, seat=SEAT))
        assert refused == 0
        await node.ask(WRITERS.release(OURS, TTL))
        wait, now = await told_to_wait(node)
        assert AWAITED_MS - (now - began) / 1000 <= wait <= AWAITED_MS + 1

        granted, _, began = await node.ask(READERS.acquire(OURS, TTL, seat=SEAT))
        assert granted == 1
        await node.ask(READERS.release(OURS, TTL))
        wait, now = await told_to_wait(node)
        assert TURN_MS - (now - began) / 1000 <= wait <= TURN_MS + 1


async def test_no_turn_is_given_where_no_reader_waits(master: Master) -> None:
    """Nor where one asked that does not wait: a writer that comes next gets in."""
    async with connected(master) as node:
        assert (await node.ask(WRITERS.acquire(OURS, TTL)))[0] == 1
        assert (await node.ask(READERS.acquire(OURS, TTL)))[0] == 0
        await node.ask(WRITERS.release(OURS, TTL))
        assert (await told_to_wait(node))[0] == 0
