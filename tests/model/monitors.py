"""Records what real servers execute, as their ``MONITOR`` shows it: the events of a trace (traces.py).

A server shows each command with its time of day, and behind a script the commands that the script has called:
these tell what it found and did.  Clients and servers run on one machine, so that one clock orders all.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from aioredlock_ng import LockManager
from aioredlock_ng._core.quarantine import parse_any
from aioredlock_ng.testing.local_nodes import local_nodes
from tests.batches import singles
from tests.simulation.commands import command, lock_keys, owner_of
from tests.unit.traces import SCRIPTS, SOURCES

from .recorder import EXECUTED, FREE, KEY, META, NAME, Event, Recorded, listening

TTL: Final = 1.0

LONG: Final = 0.1
"""Share of the leases that last for longer than that."""

SETTLING: Final = 0.2
"""Seconds in which the monitors show the last commands."""

_LINE: Final = re.compile(rb"\+?(\d+\.\d+) \[\d+ (lua)?.*?\] (.*)", re.DOTALL)
_WORD: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)


class Shown(NamedTuple):
    """One line of a monitor."""

    at: float
    by_script: bool
    words: list[bytes]


def read(line: bytes) -> Shown | None:
    """Read a line; None: it is no command."""
    found = _LINE.fullmatch(line.rstrip(b"\r\n"))
    if found is None:
        return None
    words = [
        word.decode("latin-1").encode().decode("unicode_escape").encode("latin-1")
        for word in _WORD.findall(found[3])
    ]
    return Shown(float(found[1]), found[2] is not None, words)


@dataclass
class _State:
    """The value under the key."""

    holder: bytes = FREE
    ends: float = 0.0
    votes_from: float = 0.0
    """When the server's quarantine ends, as its incarnation record says (R12)."""
    waits: bool = False
    """Whether that is to come."""


class Monitor:
    """Writes down what one server executes, also when it has been restarted."""

    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self.shown: list[Shown] = []
        self.lost: list[float] = []
        """When it died, and lost its memory."""
        self.watching = asyncio.Event()
        self._port = port

    async def run(self) -> None:
        """Watch, until it is cancelled."""
        while True:
            with suppress(ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
                try:
                    writer.write(b"MONITOR\r\n")
                    await self._watch(reader)
                finally:
                    writer.close()
                    await writer.wait_closed()
            await asyncio.sleep(0.0005)  # before clients come back

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        if await reader.readline() != b"+OK\r\n":
            return
        self.watching.set()
        while line := await reader.readline():
            if (shown := read(line)) is not None:
                self.shown.append(shown)
        self.lost.append(time.time())

    def events(self) -> Iterator[Event]:
        """Yield what has happened to the key, with its end by time, which no monitor shows."""
        lost = [*self.lost]
        state = _State()
        for place, (at, by_script, words) in enumerate(self.shown):
            if lost and lost[0] < at:
                yield Event(at=lost.pop(0), what="lose", node=self.number)
                state = _State(votes_from=math.inf, waits=True)
            # Greetings set nothing by the same command, to see whether the server takes it.
            if by_script and words[:2] == [b"SET", META] and (incarnation := parse_any(words[2])):
                state.votes_from = incarnation.ready_ms / 1000
            if by_script or words[0] not in (b"EVALSHA", b"EVAL") or words[1] not in {*SCRIPTS, *SOURCES}:
                continue
            for one in map(list, singles(words)):
                if lock_keys(one) == [KEY] and command(one) in EXECUTED:
                    yield from self._executed(state, at, one, list(self._called(place)))

    def _executed(
        self, state: _State, at: float, words: list[bytes], calls: list[list[bytes]]
    ) -> Iterator[Event]:
        what, owner, verbs = command(words), owner_of(words), [one[0].upper() for one in calls]
        if state.holder and state.ends <= at:
            yield Event(at=state.ends, what="expire", owner=state.holder, node=self.number)
            state.holder = FREE
        if state.waits and state.votes_from <= at:
            yield Event(at=state.votes_from, what="vouch", node=self.number)
            state.waits = False
        if what == "acquire" and b"SET" not in verbs:
            return  # it has no vote for this client, and changes nothing (R12)
        if what == "release" and b"DEL" in verbs:
            state.holder = FREE
        # An acquire that sets the key does not ask for its value behind that.
        elif b"SET" in verbs and b"GET" not in verbs[verbs.index(b"SET") :]:
            state.holder = owner
        for verb, one in zip(verbs, calls, strict=True):
            if verb == b"PEXPIRE" or (verb == b"SET" and state.holder == owner):
                state.ends = at + int(one[one.index(b"PX") + 1 if verb == b"SET" else 2]) / 1000
        yield Event(at=at, what=EXECUTED[what], owner=owner, node=self.number, holder=state.holder)

    def _called(self, place: int) -> Iterator[list[bytes]]:
        """Yield what the script at a place has called for the key."""
        for shown in self.shown[place + 1 :]:
            if not shown.by_script:
                return
            if shown.words[1:2] == [KEY]:
                yield shown.words


async def contend(*, seconds: float) -> Recorded:
    """Have three clients want the name for some time; meanwhile one server restarts empty."""
    noted: list[Event] = []
    rng, loop = Random(1), asyncio.get_running_loop()
    ends = loop.time() + seconds

    def note(what: str, owner: bytes, node: str) -> None:
        number = nodes.urls.index(node) + 1 if node else 0
        noted.append(Event(at=time.time(), what=what, owner=owner, node=number))

    async def client(number: int, urls: Sequence[str]) -> None:
        async with LockManager(urls, ttl=TTL, restart_quarantine=TTL, holder=f"c{number}") as manager:
            while loop.time() < ends:
                async with manager.lock(NAME) as lease:
                    # Long enough for extensions, now and then.
                    await asyncio.sleep(1.2 * TTL if rng.random() < LONG else rng.uniform(0.0, 0.02))
                    if lease.held:
                        note("until", lease._holding.owner, "")
                await asyncio.sleep(rng.uniform(0.0, 0.05))

    async with local_nodes(3) as nodes:
        monitors = [Monitor(number, port) for number, port in enumerate(nodes.ports, 1)]
        watching = [asyncio.create_task(monitor.run()) for monitor in monitors]
        for monitor in monitors:
            await monitor.watching.wait()
        with listening(note):
            async with asyncio.TaskGroup() as clients:
                for number in range(3):
                    clients.create_task(client(number, nodes.urls))
                await asyncio.sleep(seconds / 2)
                await nodes.restart(0)
        await asyncio.sleep(SETTLING)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    return recorded(noted, monitors)


def recorded(clients: Sequence[Event], monitors: Sequence[Monitor]) -> Recorded:
    """Return what clients and servers have done, in its order."""
    events = [*clients, *(event for monitor in monitors for event in monitor.events())]
    return Recorded(len(monitors), sorted(events, key=lambda event: event.at))
