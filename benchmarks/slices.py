"""What a worker measures in one turn: all peers' cycles are started, timed and counted by the same code.

A slice takes a peer and returns figures; times are seconds of the monotonic clock, which the processes of
one machine share.  Nothing but the standard library here: workers live in foreign environments.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.peers import Body

Figures = dict[str, Any]

clock = time.monotonic

SAMPLES: Final = 5000
"""Waits that a slice returns at most: order statistics at equal distances."""

TICK: Final = 0.001
"""Seconds: what epoll waits at least, if it waits at all."""

BATCH: Final = 100
"""Leases that are acquired at once."""


class Peer(Protocol):
    """What the adapters implement; only those with a watchdog have the last two."""

    async def cycle(self, name: str, body: Body) -> None:
        """Acquire, await the body, release."""

    async def hold(self, name: str) -> Any:
        """Acquire, and let the watchdog extend."""

    async def drop(self, held: Any) -> None:
        """Release what is held."""


def thinned(values: Sequence[float], most: int = SAMPLES) -> list[float]:
    """Return at most so many of the values, in order: the least, the greatest, and evenly between them."""
    ordered = sorted(values)
    if len(ordered) <= most:
        return ordered
    return [ordered[round(i * (len(ordered) - 1) / (most - 1))] for i in range(most)]


def schedule(rate: float, seconds: float, seed: int | None) -> Iterator[float]:
    """Return when requests are due, in seconds: at random (Poisson), or evenly without a seed."""
    chance = None if seed is None else random.Random(seed)
    due = 0.0
    for number in itertools.count(1):
        due = number / rate if chance is None else due + chance.expovariate(rate)
        if due >= seconds:
            return
        yield due


def numbered(prefix: str, number: int, names: int | None) -> str:
    """Return the name of a cycle: a new one, or the next of so many `names` in turn."""
    return f"{prefix}:{number if names is None else number % names:03}"


async def latency(
    peer: Peer, *, prefix: str, count: int, seconds: float, first: int = 0, names: int | None = None
) -> Figures:
    """One task without contention: the time to acquire, and with the release; CPU per cycle.

    Each cycle has a name of its own; with `names` so many are used in turn, from the `first` one on.
    """
    acquires, cycles = [], []
    acquired = 0.0

    async def body() -> None:
        nonlocal acquired
        acquired = clock()

    cpu, ends = time.process_time(), clock() + seconds
    for i in range(count):
        began = clock()
        await peer.cycle(numbered(prefix, first + i, names), body)
        ended = clock()
        acquires.append(acquired - began)
        cycles.append(ended - began)
        if ended > ends:
            break
    cpu = time.process_time() - cpu
    return {"acquires": acquires, "cycles": cycles, "cpu": cpu / len(cycles)}


async def throughput(
    peer: Peer,
    *,
    prefix: str,
    tasks: int,
    seconds: float,
    spread: float = 0.0,
    names: int | None = None,
    least: int = 0,
) -> Figures:
    """Many tasks, each with names of its own: cycles per second, acquires, CPU per cycle.

    Each cycle has a name of its own; with `names` each task uses so many in turn.  The tasks begin one after
    the other within `spread` seconds: else tasks that wait for far nodes do so in step.  Each does `least`
    cycles, however long they take.
    """
    acquires: list[float] = []

    async def task(number: int) -> None:
        i = 0

        async def body() -> None:
            acquires.append(clock() - asked)

        if spread:
            await asyncio.sleep(spread * number / tasks)
        while (asked := clock()) < ends or i < least:
            await peer.cycle(numbered(f"{prefix}:{number}", i, names), body)
            i += 1

    cpu, began = time.process_time(), clock()
    ends = began + seconds
    await asyncio.gather(*map(task, range(tasks)))
    cpu, elapsed = time.process_time() - cpu, clock() - began
    done = len(acquires)
    return {"rate": done / elapsed, "cpu": cpu / done, "done": done, "acquires": thinned(acquires)}


async def passed(seconds: float) -> None:
    """Wait; less than a millisecond, which the loops' timers round up, passes in turns of the loop."""
    if seconds == 0 or seconds >= TICK:
        await asyncio.sleep(seconds)
        return
    until = clock() + seconds
    while clock() < until:  # noqa: ASYNC110 (no event tells of time)
        await asyncio.sleep(0)


async def hot(peer: Peer, *, name: str, tasks: int, seconds: float, section: float, at: float) -> Figures:
    """Many tasks, one name: acquisitions per second, and how long each waited.

    It begins `at` that time, for the other processes begin then, too.  What is asked for before the end
    is waited for, and counts among the waits.
    """
    waits: list[float] = []
    inside = in_time = 0

    async def task() -> None:
        async def body() -> None:
            nonlocal inside, in_time
            now = clock()
            waits.append(now - asked)
            in_time += now < ends
            inside += 1
            try:
                if inside > 1:
                    raise AssertionError(f"{inside} tasks hold {name!r}")
                await passed(section)
            finally:
                inside -= 1

        while (asked := clock()) < ends:
            await peer.cycle(name, body)

    await asyncio.sleep(at - clock())
    ends = at + seconds
    await asyncio.gather(*(task() for _ in range(tasks)))
    return {"rate": in_time / seconds, "done": len(waits), "waits": thinned(waits)}


async def share(
    peer: Peer,
    *,
    name: str,
    at: float,
    seconds: float,
    section: float,
    pause: float,
    counter: str,
    give_up: bool = False,
) -> Figures:
    """One task that wants a name which other processes want, too: how often it was had before the end.

    Each time the number in the file `counter` is read, and written back greater by one after `section`:
    two at once would lose an increment.  Before the next try it waits, twice `pause` at most.  What is asked
    for before the end is waited for, and is `done`, too; or it is given up, as a wait that may last is.
    """
    file, had, done, inside = Path(counter), 0, 0, False

    async def body() -> None:
        nonlocal had, done, inside
        had, inside = had + (clock() < at + seconds), True
        number = int(file.read_text())  # noqa: ASYNC240 (a few bytes of a warm file)
        await asyncio.sleep(section)
        with file.open("r+") as told:  # noqa: ASYNC230 (likewise; it is never empty)
            told.write(f"{number + 1:09}")
        done, inside = done + 1, False

    async def cycles() -> None:
        while clock() < at + seconds:
            await peer.cycle(name, body)
            await asyncio.sleep(random.uniform(0, 2 * pause))

    await asyncio.sleep(at - clock())
    task = asyncio.create_task(cycles())
    await asyncio.wait({task}, timeout=seconds if give_up else None)
    if not (task.done() or inside):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return {"had": had, "done": done}


async def open_loop(peer: Peer, *, prefix: str, rate: float, seconds: float, seed: int | None) -> Figures:
    """Requests that come whether or not the others are done: each one's time counts from when it was due."""
    times, cycles, late = [], [], []

    async def body() -> None:
        """Nothing to do."""

    async def request(number: int, due: float) -> None:
        began = clock()
        await peer.cycle(f"{prefix}:{number}", body)
        ended = clock()
        times.append(ended - due)
        cycles.append(ended - began)
        late.append(began - due)

    began = clock()
    async with asyncio.TaskGroup() as group:
        for number, due in enumerate(schedule(rate, seconds, seed)):
            if (pause := began + due - clock()) > 0:
                await asyncio.sleep(pause)
            group.create_task(request(number, began + due))
    return {"times": thinned(times), "cycles": thinned(cycles), "late": thinned(late), "done": len(times)}


async def held(peer: Peer, *, prefix: str, count: int, seconds: float) -> Figures:
    """Leases held with the watchdog: the CPU it takes, as a share of one core, and the tasks."""
    tasks = len(asyncio.all_tasks())
    leases, acquired_in = await _acquired(peer, prefix, count)
    await asyncio.sleep(min(1.0, seconds))  # whatever the acquires left to do
    cpu, began = time.process_time(), clock()
    await asyncio.sleep(seconds)
    share = (time.process_time() - cpu) / (clock() - began)
    tasks = len(asyncio.all_tasks()) - tasks
    await _dropped(peer, leases)
    return {"cpu": share, "tasks": tasks, "acquired_in": acquired_in}


async def memory(peer: Peer, *, prefix: str, count: int, seconds: float) -> Figures:
    """Bytes that a held lease takes of Python's memory."""
    await _dropped(peer, (await _acquired(peer, prefix, BATCH))[0])  # queues and tables have grown
    gc.collect()
    tracemalloc.start()
    try:
        leases, _ = await _acquired(peer, prefix, count)
        await asyncio.sleep(min(1.0, seconds))  # the late answers, too, are in
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    await _dropped(peer, leases)
    return {"bytes": size / count}


async def _acquired(peer: Peer, prefix: str, count: int) -> tuple[list[Any], float]:
    began, leases = clock(), []
    for first in range(0, count, BATCH):
        names = (f"{prefix}:{i}" for i in range(first, min(first + BATCH, count)))
        leases += await asyncio.gather(*map(peer.hold, names))
    return leases, clock() - began


async def _dropped(peer: Peer, leases: Sequence[Any]) -> None:
    for first in range(0, len(leases), BATCH):
        await asyncio.gather(*map(peer.drop, leases[first : first + BATCH]))


SLICES: Final[dict[str, Callable[..., Awaitable[Figures]]]] = {
    function.__name__: function for function in (latency, throughput, hot, share, open_loop, held, memory)
}
