"""What happens in the demo, in order.

The faults stay within what the lock promises to survive: a majority of the nodes is always there, and
a node that forgets votes which may still count has none until they do not (R12).  The holder that is frozen
breaks A3, on purpose.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO, final

from .. import LockManager
from ..testing.local_nodes import LocalNodes, local_nodes
from .verdict import Section, hand_overs, judge
from .worker import TASKS, TTL, Counter, Crew, DemoError

__all__ = ["DemoError", "run"]

NODES: Final = 5
WORKERS: Final = tuple(f"worker {number}" for number in range(1, 5))
SLOW: Final = "the slow worker"
HOLDER: Final = "the frozen holder"
TERMINATED: Final = 128 + signal.SIGTERM

PLANNED: Final = 11.0
"""Seconds the story takes on an idle machine; what the progress bar is measured against."""

PATIENCE: Final = 30.0
"""Seconds that one thing may be waited for; everything here normally takes less than three."""

_LOOK: Final = 0.02
"""Seconds between looks at the workers."""

_BAR: Final = 30
"""Cells of the progress bar."""


def run(stream: TextIO) -> int:
    """Run the demo, speaking to `stream`; 0 when the lock held, 1 when it did not.

    Raises:
        NoServerError: there is no server to start; the message says how to get one.
        ServerStartError: a server did not start.
        DemoError: something else kept the demo from its end.
    """

    async def main() -> int:
        story = asyncio.current_task()
        assert story is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, story.cancel)
        screen = Screen(stream)
        try:
            holds, lines = await play(screen)
        finally:
            screen.clear()
        screen.show(*lines)
        return 0 if holds else 1

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        return TERMINATED


async def play(screen: Screen) -> tuple[bool, list[str]]:
    """Start nodes and workers, play every chapter, end everything, and judge."""
    with tempfile.TemporaryDirectory(prefix="aioredlock-demo-") as directory:
        counter = Counter(Path(directory, "counter"))
        counter.write(0)
        async with local_nodes(NODES) as nodes, Crew(counter, nodes.urls) as crew:
            story = Story(screen, nodes, crew)
            await story.workers_begin()
            await story.two_nodes_fail()
            await story.a_holder_is_frozen()
            await story.a_node_forgets()
            await story.workers_end()
        return judge(crew.sections, seen=counter.read(), frozen=HOLDER)


@final
class Story:
    """The chapters, in the order in which they are played."""

    def __init__(self, screen: Screen, nodes: LocalNodes, crew: Crew) -> None:
        self.screen = screen
        self.nodes = nodes
        self.crew = crew
        self.began = time.monotonic()
        self.told = 0  # sections that `count` has spoken of

    async def workers_begin(self) -> None:
        """Several processes count, and all is well."""
        ports = ", ".join(map(str, self.nodes.ports))
        self.say(f"{NODES} nodes run on ports {ports}; a majority is {NODES // 2 + 1}")
        for name in WORKERS:
            await self.crew.start("count", name)
        await self.until(lambda: all(map(self.crew.of, WORKERS)), "all workers count")
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
        await self.crew.start("slow", SLOW)
        await self.until(lambda: self.crew.of(SLOW), "the slow worker has written")
        (section,) = self.crew.of(SLOW)
        seconds, times = section.until - section.entered, section.extensions
        self.say(f"{SLOW} was inside for {seconds:.2f} s; its lease was extended {times} times")
        await self.count()
        self.nodes.resume(1)
        self.say("node 2 continues: 4 of 5")
        await self.count(0.6)

    async def a_holder_is_frozen(self) -> None:
        """A holder sleeps through the end of its lease, wakes, and wants to write what it read before."""
        await self.crew.start("hold", HOLDER)
        await self.until(lambda: self.crew.inside, "the holder has the lock")
        self.crew.processes[HOLDER].send_signal(signal.SIGSTOP)
        frozen_at = time.monotonic()
        value, valid_for = self.crew.inside["value"], self.crew.inside["valid_for"]
        self.say(f"another process took the lock and read {value}; frozen before its write (SIGSTOP)")
        self.say(f"    its lease is valid for {valid_for:.2f} s; it is not extended, and all others wait")

        def later() -> list[Section]:  # not what is reported late: it was inside before
            return [section for section in self.crew.sections if section.entered > frozen_at]

        await self.until(later, "the lock passes on")
        first = min(later(), key=lambda section: section.entered)
        self.say(f"the lock passed on to {first.worker} after {first.entered - frozen_at:.2f} s")
        await self.count(0.6)
        missed = sum(section.wrote for section in later())
        self.crew.tell(HOLDER)
        self.crew.processes[HOLDER].send_signal(signal.SIGCONT)
        await self.until(lambda: self.crew.of(HOLDER), "the holder has left its critical section")
        if self.crew.of(HOLDER)[0].wrote:
            self.say(f"it continues (SIGCONT) AND WRITES {value + 1}: {missed} increments are undone")
        else:
            self.say("it continues (SIGCONT), is told to write, and calls lease.check() first: LockLostError")
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
        """All are told to stop."""
        for name in self.crew.running:
            self.crew.tell(name)
        await self.until(lambda: not self.crew.running, "the workers have ended")
        self.crew.check()
        self.say("all processes have ended")

    # -- how it is told ------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """Say something, with the time since the start."""
        self.screen.show(f"[{time.monotonic() - self.began:5.2f} s] {line}")

    async def count(self, seconds: float = 0.0) -> None:
        """Let the workers work for so long, and say how far they came since the last time."""
        deadline = time.monotonic() + seconds
        await self.until(lambda: time.monotonic() >= deadline, "time passes")
        new = self.crew.sections[self.told :]
        self.told += len(new)
        written = sum(section.wrote for section in new)
        self.say(f"    {written} increments; the lock went from process to process {hand_overs(new)} times")

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something, and show how far the story is.

        Raises:
            DemoError: it did not come, or a worker failed.
        """
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.crew.check()
            if (now := time.monotonic()) > deadline:
                raise DemoError(f"not within {PATIENCE:.0f} s: {what}")
            written = sum(section.wrote for section in self.crew.sections)
            self.screen.draw(min(1.0, (now - self.began) / PLANNED), f"{written} increments")
            await asyncio.sleep(_LOOK)


@final
class Screen:
    """Lines, each out at once; below them, on a terminal, a progress bar that needs nothing installed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        drawable = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._clear_line = "\r\x1b[2K" if drawable else ""
        self._bar = ""

    def show(self, *lines: str) -> None:
        """Show lines that stay."""
        self._stream.write("".join([self._clear_line, *(f"{line}\n" for line in lines), self._bar]))
        self._stream.flush()

    def draw(self, share: float, note: str) -> None:
        """Show how far the story is, from 0 to 1."""
        if self._clear_line:
            cells = round(share * _BAR)
            bar = f"[{'#' * cells}{'.' * (_BAR - cells)}] {share:4.0%} {note}"
            self._bar = bar[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be redrawn
            self.show()

    def clear(self) -> None:
        """Take the bar away."""
        self._bar = ""
        self.show()
