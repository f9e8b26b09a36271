"""Has TLC check that what was recorded is a behaviour of the model of the mutex (RedlockTrace.tla).

``python -m tests.model.traces --seeds 5000`` does it by hand.
"""

from __future__ import annotations

import argparse
import heapq
import re
import string
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.simulation.campaign import silence
from tests.simulation.commands import client_of
from tests.simulation.faults import ClockStep, Relapse
from tests.simulation.plan import Plan, draw

from .models import MODELS
from .recorder import EXECUTED, FREE, NAME, Event, Recorded, record
from .tlc import output

BATCH: Final = 50
"""Seeds whose traces TLC is given at a time."""


WORDS: Final = {
    "ask": "a",
    "extend": "e",
    "unsent": "n",
    "win": "w",
    "until": "u",
    "release": "r",
    "forget": "f",
    "done": "d",
    "acquire": "A",
    "extended": "E",
    "repair": "P",
    "released": "R",
    "expire": "X",
    "lose": "L",
    "restart": "S",
    "vouch": "V",
}
"""The words of RedlockTrace.tla, and their letters."""

LONGEST: Final = 4.0
"""Seconds until everything is healed; faults are as dense as that."""

TASKS: Final = 2
"""Tasks of a process, at most: they share one contender, and so add little to what nodes see."""

AROUND: Final = 12
"""Lines that are shown before and behind the one that a trace is stuck at."""

DIGITS: Final = string.digits + string.ascii_lowercase + string.ascii_uppercase
UNKNOWN: Final = DIGITS[-1]
NOBODY: Final = len(DIGITS) - 2
"""Holds a key with an owner value that no client has asked with: no trace of that is accepted."""


@dataclass(frozen=True)
class Trace:
    """The events of one name, in words of the model."""

    origin: str
    nodes: int
    clients: int
    lines: Sequence[str]

    @property
    def text(self) -> str:
        """The trace in TLA+."""
        return '"' + "".join(self.lines) + '"'


def trace(origin: str, recorded: Recorded) -> Trace:
    """Return the trace of what was recorded: each attempt becomes a client of the model (see there)."""
    events = [event for event in recorded.events if event.owner in ({FREE} | recorded.asked)]
    last = {
        owner: place for place, event in enumerate(events) for owner in (event.owner, event.holder or FREE)
    }
    left = _left(recorded)
    numbers: dict[bytes, int] = {}
    free: list[int] = []
    clients, lines = 0, list[str]()
    for place, event in enumerate(events):
        if event.what == "ask":
            if not free:
                clients += 1
                heapq.heappush(free, clients)
            numbers[event.owner] = heapq.heappop(free)
        lines.append(_line(event, numbers))
        for owner in {event.owner, event.holder or FREE} & numbers.keys() - left:
            if last[owner] == place:
                lines.append(_line(Event(at=event.at, what="done", owner=owner), numbers))
                heapq.heappush(free, numbers[owner])
    return Trace(origin, recorded.nodes, clients, lines)


def _left(recorded: Recorded) -> set[bytes]:
    """Return the attempts that were not released, or not everywhere, since their processes were killed."""
    latest = {(e.owner, e.node): e.what for e in recorded.events if e.what in EXECUTED.values()}
    released = {event.owner for event in recorded.events if event.what == "release"}
    left = {owner for (owner, _), what in latest.items() if what != "released"}
    return {owner for owner in left | (recorded.asked - released) if client_of(owner) in recorded.killed}


def _line(event: Event, numbers: dict[bytes, int]) -> str:
    """Return an event as RedlockTrace.tla reads it: its word, client, node, and the holder of the key."""
    client = numbers[event.owner] if event.owner else 0
    holder = UNKNOWN
    if event.holder is not None:
        holder = DIGITS[numbers.get(event.holder, NOBODY) if event.holder else 0]
    return WORDS[event.what] + DIGITS[client] + DIGITS[event.node] + holder


def plan_of(seed: int, *, crowded: bool = False) -> Plan | None:
    """Draw a run of one mutex that the model can follow; None: clocks jump in it (A1, A2).

    A node that comes back with older data may have keys that were released since: the model has none.  Where
    a clock is set back, keys live for longer than clients repeat their releases (R5).
    """
    plan = draw(seed, crowded=crowded, mixed=False, permits=False, fair=False)
    if not plan.timed:
        return None
    pace = LONGEST / plan.duration
    some = (fault for fault in plan.faults if not isinstance(fault, (ClockStep, Relapse)))
    faults = tuple(replace(fault, at=fault.at * pace) for fault in some)
    clients = tuple(replace(client, tasks=min(client.tasks, TASKS)) for client in plan.clients)
    return replace(plan, names=(NAME,), duration=LONGEST, clients=clients, faults=faults)


def traces(seeds: Iterable[int], *, crowded: bool = False) -> Iterator[Trace]:
    """Simulate; yield the traces of the runs in which clocks keep time."""
    with silence():
        for seed in seeds:
            if (plan := plan_of(seed, crowded=crowded)) is not None:
                yield trace(f"seed {seed}", record(plan))


def rejected(given: Sequence[Trace], folder: Path) -> list[Trace]:
    """Return the traces that are no behaviours of the model."""
    by_size: dict[int, list[Trace]] = defaultdict(list)
    for one in given:
        by_size[one.nodes].append(one)
    wrong: list[Trace] = []
    for nodes, some in by_size.items():
        said = _check(nodes, some, folder)
        accepted = {int(number) for number in re.findall(r'<<"accepted", (\d+)>>', said)}
        assert "Model checking completed" in said, said[-2000:]
        wrong += [one for number, one in enumerate(some, 1) if number not in accepted]
    return wrong


_UNBOUNDED: Final = "1000000"


def stuck(one: Trace, folder: Path) -> str:
    """Return the lines around the one that TLC cannot read, and the state of the model before it."""
    said = _check(one.nodes, [one], folder, deadlock=True)
    last = said.rpartition("\nState ")[2].partition("\n\n")[0]
    at = int(re.findall(r"/\\ at = (\d+)", last)[-1])
    lines = [
        f"{'>' if n == at else ' '} {n} {line}" for n, line in enumerate(one.lines, 1) if abs(n - at) < AROUND
    ]
    return "\n".join([one.origin, *lines, last])


def _check(nodes: int, some: Sequence[Trace], folder: Path, *, deadlock: bool = False) -> str:
    constants = {
        "Nodes": f"1..{nodes}",
        "Clients": f"1..{max(one.clients for one in some)}",
        **dict.fromkeys(("Attempts", "Extensions", "Faults"), _UNBOUNDED),
        **dict.fromkeys(MODELS["Redlock"].variants, "FALSE"),
        "Texts": "<<" + ",\n".join(one.text for one in some) + ">>",
    }
    return output(
        "RedlockTrace",
        constants,
        folder,
        specification="TraceSpec",
        jvm=("-XX:TieredStopAtLevel=1",),  # so short a run is over before better code is compiled
        deadlock=deadlock,
    )


def main() -> None:
    """Simulate and check many seeds; exit with 1 if a trace is rejected."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.traces", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--crowded", action="store_true", help="processes of many tasks that ask in step")
    given = parser.parse_args()
    began, found, lines, wrong = time.monotonic(), 0, 0, list[Trace]()
    for first in range(given.start, given.start + given.seeds, BATCH):
        last = min(first + BATCH, given.start + given.seeds)
        some = list(traces(range(first, last), crowded=given.crowded))
        found += len(some)
        lines += sum(len(one.lines) for one in some)
        with tempfile.TemporaryDirectory(prefix="trace-") as folder:
            these = rejected(some, Path(folder))
            for one in these:
                print(f"rejected: {stuck(one, Path(folder))}", flush=True)
        took = time.monotonic() - began
        print(f"{last - given.start} seeds, {found:,} traces of {lines:,} lines, {took:.0f} s", flush=True)
        wrong += these
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
