"""``aioredlock-ng demo``: a counter that would lose increments without the lock, and faults meanwhile.

Several processes add to a number in a plain file under one lock.  The faults stay within what the lock
promises to survive: a majority of the nodes is always there, and a node that forgets votes which may still
count has none until they do not (R12).  The holder that is frozen breaks A3, on purpose.

    python -m aioredlock_ng._demo {count|slow|hold} NAME COUNTER URL …

is one of these processes.  It prints a JSON list per line, ``[kind, facts]``.  The end of its standard input
is the order to come to an end, or to write; so it never outlives the demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self, TextIO

from . import Lock, LockLostError, LockManager, RetryPolicy
from .testing.local_nodes import LocalNodes, local_nodes

NODES: Final = 5
WORKERS: Final = tuple(f"worker {number}" for number in range(1, 5))
TASKS: Final = 3  # of one worker
SLOW: Final = "the slow worker"
HOLDER: Final = "the frozen holder"
TERMINATED: Final = 128 + signal.SIGTERM

# Seconds: short, so that the demo need not wait long for a frozen holder; a busy machine still keeps it.
TTL: Final = 2.0

# Seconds that one thing may be waited for; everything here normally takes less than three.
PATIENCE: Final = 30.0

# Seconds that a worker has for coming to an end: without the demo there are no nodes, and no lock.
_LAST: Final = 5.0

_WORDS_SHOWN: Final = 2000  # bytes of a failed worker's last words


class DemoError(RuntimeError):
    """The demo could not be run to its end."""


@dataclass(slots=True, kw_only=True)
class Section:
    """One pass through the critical section, in seconds on the clock that all processes share."""

    worker: str
    waited: float  # from asking for the lock to acquiring it
    entered: float
    # When it stopped mattering to others: after its write, its lease valid or not.  A holder that wrote
    # nothing claims the counter no longer than its lease was valid: it may have been asleep since.
    until: float
    wrote: bool = False
    extensions: int = 0
    lost: bool = False  # its lease


# -- a worker --------------------------------------------------------------------------------------


async def work(mode: str, name: str, path: str, *urls: str) -> None:
    """Be one process: ``count`` until the end, or visit the critical section once, ``slow`` or ``hold``."""
    loop, ended, counter = asyncio.get_running_loop(), asyncio.Event(), Path(path)

    def come_to_an_end() -> None:
        loop.remove_reader(sys.stdin)
        ended.set()
        limit.reschedule(loop.time() + _LAST)

    async def count(lock: Lock) -> None:
        while not ended.is_set():
            await visit(lock, name, counter, 0.001)
            await asyncio.sleep(random.uniform(0, 0.1))

    loop.add_reader(sys.stdin, come_to_an_end)  # nothing but its end is ever to be read
    retry = RetryPolicy(base=0.01, cap=0.1)
    manager = LockManager(urls, ttl=TTL, restart_quarantine=TTL, retry=retry, holder=name)
    async with asyncio.timeout(None) as limit, manager:
        lock = manager.lock("counter")
        if mode == "count":
            await asyncio.gather(*(count(lock) for _ in range(TASKS)))
        else:  # a slow section would outlive its lease, were it not extended
            await visit(lock, name, counter, 1.2 * TTL if mode == "slow" else None)


async def visit(lock: Lock, name: str, counter: Path, pause: float | None) -> None:
    """Take the lock, read the number, pause, write it plus one, report.

    Without a pause it waits for its order, and gives the event loop no turn: the demo freezes the process
    right there, and when it goes on nothing comes before the write but the check.  Check and write are two
    steps, too: frozen between them it would write late, and only a resource that compares fences can refuse
    that.
    """
    asked = time.monotonic()
    try:
        async with lock as lease:
            now = time.monotonic()
            section = Section(worker=name, waited=now - asked, entered=now, until=now + lease.remaining)
            value = read(counter)
            if pause is None:
                report("inside", {"value": value, "valid_for": lease.remaining})
                sys.stdin.read()
            else:
                await asyncio.sleep(pause)
            lease.check()
            write(counter, value + 1)
            section.wrote, section.until = True, time.monotonic()
    except LockLostError:
        section.lost = True
    section.extensions = lease.extensions
    report("section", asdict(section))


def read(counter: Path) -> int:
    """Return the number in the file; 0 while a process without the lock writes."""
    return int(counter.read_text() or 0)


def write(counter: Path, value: int) -> None:
    """Replace the number; read and write are two steps, which is the point."""
    counter.write_text(str(value))


def report(kind: str, facts: dict[str, Any]) -> None:
    """Send the demo a line."""
    print(json.dumps([kind, facts]), flush=True)  # noqa: T201 (standard output is the pipe)


# -- the story -------------------------------------------------------------------------------------


def run(stream: TextIO) -> int:
    """Run the demo, writing to `stream`; 0 when the lock held, 1 when it did not.

    Raises:
        NoServerError: there is no server to start; the message says how to get one.
        ServerStartError: a server did not start.
        DemoError: something else kept the demo from its end.
    """

    async def main() -> int:
        story = asyncio.current_task()
        assert story is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, story.cancel)
        holds, lines = await play(stream)
        print(*lines, sep="\n", file=stream)
        return 0 if holds else 1

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        return TERMINATED


async def play(stream: TextIO) -> tuple[bool, list[str]]:
    """Start nodes and workers, play every chapter, end everything, and judge."""
    with tempfile.TemporaryDirectory(prefix="aioredlock-demo-") as directory:
        counter = Path(directory, "counter")
        write(counter, 0)
        async with local_nodes(NODES) as nodes, Story(stream, nodes, counter) as story:
            await story.workers_begin()
            await story.two_nodes_fail()
            await story.a_holder_is_frozen()
            await story.a_node_forgets()
            await story.workers_end()
        return judge(story.sections, seen=read(counter), frozen=HOLDER)


class Story:
    """The chapters, in the order in which they are played; its ``async with`` ends the workers."""

    def __init__(self, stream: TextIO, nodes: LocalNodes, counter: Path) -> None:
        self.stream = stream
        self.nodes = nodes
        self.counter = counter
        self.began = time.monotonic()
        self.processes: dict[str, Process] = {}
        self.listeners: list[asyncio.Task[None]] = []
        self.sections: list[Section] = []  # in the order of the reports
        self.counted = 0  # of them, by `count`
        self.inside: dict[str, Any] = {}  # the report of the holder that waits inside

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes.values():  # before the first await, which Ctrl-C may interrupt
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # each by its own process id; works on a frozen one, too
        await asyncio.gather(*self.listeners, return_exceptions=True)

    async def start(self, mode: str, name: str) -> None:
        """Start a worker; `mode` as in its command line."""
        # A process group of its own: Ctrl-C is for the demo, which then ends its workers. Not a session of
        # its own: should the demo be killed, the kernel wakes and ends a frozen one.
        command = (sys.executable, "-m", "aioredlock_ng._demo", mode, name, str(self.counter))
        self.processes[name] = await asyncio.create_subprocess_exec(
            *command, *self.nodes.urls, stdin=PIPE, stdout=PIPE, stderr=STDOUT, process_group=0
        )
        self.listeners.append(asyncio.create_task(self._listen(name, self.processes[name])))

    async def _listen(self, name: str, process: Process) -> None:
        assert process.stdout is not None
        words = b""
        async for line in process.stdout:
            if not line.startswith(b'["'):  # a log line, or why it failed
                words = (words + line)[-_WORDS_SHOWN:]
                continue
            kind, facts = json.loads(line)
            if kind == "section":
                self.sections.append(Section(**facts))
            else:
                self.inside = facts
        if code := await process.wait():
            raise DemoError(f"{name} ended with code {code}:\n{words.decode(errors='replace')}")

    def order(self, name: str) -> None:
        """Give a worker its one order."""
        stdin = self.processes[name].stdin
        assert stdin is not None
        stdin.close()

    def of(self, name: str) -> list[Section]:
        """Return the sections of one worker."""
        return [section for section in self.sections if section.worker == name]

    async def workers_begin(self) -> None:
        """Several processes count, and all is well."""
        ports = ", ".join(map(str, self.nodes.ports))
        self.say(f"{NODES} nodes run on ports {ports}; a majority is {NODES // 2 + 1}")
        for name in WORKERS:
            await self.start("count", name)
        await self.until(lambda: all(map(self.of, WORKERS)), "all workers count")
        each = f"{TASKS} tasks each add 1 to a number in a file, again and again:"
        self.say(f"{len(WORKERS)} processes with {each}")
        self.say(f'    read, pause, write, under manager.lock("counter", ttl={TTL:g})')
        await self.count(1.0)

    async def two_nodes_fail(self) -> None:
        """Two of five nodes are gone; with every vote of the others, a lease is extended past its ttl."""
        self.nodes.kill(0)
        self.say("node 1 killed: 4 of 5 are left")
        await self.count(0.8)
        self.nodes.pause(1)
        self.say("node 2 frozen: it still takes connections, and answers nothing; 3 of 5 are left")
        await self.start("slow", SLOW)
        await self.until(lambda: self.of(SLOW), "the slow worker has written")
        (section,) = self.of(SLOW)
        seconds, times = section.until - section.entered, section.extensions
        self.say(f"{SLOW} was inside for {seconds:.2f} s; its lease was extended {times} times")
        await self.count()
        self.nodes.resume(1)
        self.say("node 2 continues: 4 of 5")
        await self.count(0.6)

    async def a_holder_is_frozen(self) -> None:
        """A holder sleeps through the end of its lease, wakes, and wants to write what it read before."""
        await self.start("hold", HOLDER)
        await self.until(lambda: self.inside, "the holder has the lock")
        self.processes[HOLDER].send_signal(signal.SIGSTOP)
        frozen_at = time.monotonic()
        value, valid_for = self.inside["value"], self.inside["valid_for"]
        self.say(f"another process took the lock and read {value}; frozen before its write (SIGSTOP)")
        self.say(f"    its lease is valid for {valid_for:.2f} s; it is not extended, and all others wait")

        def later() -> list[Section]:  # not what is reported late: it was inside before
            return [section for section in self.sections if section.entered > frozen_at]

        await self.until(later, "the lock passes on")
        first = min(later(), key=lambda section: section.entered)
        self.say(f"the lock passed on to {first.worker} after {first.entered - frozen_at:.2f} s")
        await self.count(0.6)
        missed = sum(section.wrote for section in later())
        self.order(HOLDER)
        self.processes[HOLDER].send_signal(signal.SIGCONT)
        await self.until(lambda: self.of(HOLDER), "the holder has left its critical section")
        if self.of(HOLDER)[0].wrote:
            self.say(f"it continues (SIGCONT) AND WRITES {value + 1}: {missed} increments are undone")
        else:
            self.say("it continues (SIGCONT), is to write, and calls lease.check() first: LockLostError")
            self.say(f"    its write of {value + 1} would have undone {missed} increments")

    async def a_node_forgets(self) -> None:
        """A node comes back empty, keeps still while votes that it forgot may count, and counts again."""
        async with LockManager(self.nodes.urls, ttl=TTL, restart_quarantine=TTL) as observer:
            began = time.monotonic()
            await self.nodes.restart(0)
            self.say("node 1 is back, empty: whatever it voted for is forgotten")
            self.say(f"    restart quarantine: no vote for {TTL:g} s, in which old ones could still count")
            await self.until(lambda: observer.statistics().nodes[0].state == "up", "node 1 votes again")
        self.say(f"node 1 votes again {time.monotonic() - began:.1f} s after its return: 5 of 5")
        await self.count()
        self.nodes.kill(4)
        self.say("node 5 killed: 4 of 5 are left, node 1 among them")
        await self.count(0.8)

    async def workers_end(self) -> None:
        """All are ordered to stop."""
        for name in (*WORKERS, HOLDER):
            self.order(name)
        await self.until(lambda: all(task.done() for task in self.listeners), "the workers have ended")
        self.say("all processes have ended")

    def say(self, line: str) -> None:
        """Write a line, with the time since the start."""
        print(f"[{time.monotonic() - self.began:5.2f} s] {line}", file=self.stream, flush=True)

    async def count(self, seconds: float = 0.0) -> None:
        """Let the workers work for some time, and say how far they came since the last time."""
        await asyncio.sleep(seconds)
        new = self.sections[self.counted :]
        self.counted += len(new)
        written = sum(section.wrote for section in new)
        self.say(f"    {written} increments; the lock went from process to process {hand_overs(new)} times")

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something.

        Raises:
            DemoError: it did not come, or a worker failed.
        """
        deadline = time.monotonic() + PATIENCE
        done = False
        while not done:
            done = bool(condition())
            for task in self.listeners:
                if task.done():
                    task.result()
            if time.monotonic() > deadline:
                raise DemoError(f"not within {PATIENCE:.0f} s: {what}")
            await asyncio.sleep(0.02)


# -- the verdict -----------------------------------------------------------------------------------


def overlaps(sections: Iterable[Section]) -> int:
    """Count the sections that began before an earlier one had ended."""
    count, busy_until = 0, float("-inf")
    for section in sorted(sections, key=lambda s: (s.entered, s.until)):
        count += section.entered < busy_until
        busy_until = max(busy_until, section.until)
    return count


def hand_overs(sections: Iterable[Section]) -> int:
    """Count how often the lock went from one process to another."""
    order = sorted(sections, key=lambda s: s.entered)
    return sum(before.worker != after.worker for before, after in itertools.pairwise(order))


def judge(sections: Sequence[Section], *, seen: int, frozen: str) -> tuple[bool, list[str]]:
    """Return whether the lock did what it promises, and lines that say so.

    Args:
        sections: all sections of the run.
        seen: the counter at the end.
        frozen: the worker that was frozen past its validity, and has to lose its one lease.
    """
    expected, at_once = sum(s.wrote for s in sections), overlaps(sections)
    lost = [s.worker for s in sections if s.lost]
    exclusive = 0 < expected == seen and not at_once
    holds = exclusive and lost == [frozen]
    headline = "The lock held: no process wrote without it, whatever happened to nodes and processes."
    if not holds:
        headline = "Not as planned, although no write was lost: is this machine too busy for this ttl?"
    if not exclusive:
        headline = "THE LOCK DID NOT HOLD."
    return holds, [
        headline,
        f"  increments:          expected {expected}, seen {seen}",
        f"  overlapping holders: {at_once}",
        f"  longest wait:        {max((s.waited for s in sections), default=0.0):.2f} s",
        f"  extensions:          {sum(s.extensions for s in sections)}",
        f"  lost leases:         {len(lost)} (expected 1): {', '.join(lost) or 'none'}",
    ]


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
