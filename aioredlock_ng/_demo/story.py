"""What happens in the demo, in order, and what it came to.

The faults stay within what the lock promises to survive: a majority of the nodes is always there, and
a node that forgets votes which may still count has none until they do not (R12).  The holder that is frozen
breaks A3, on purpose.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO, final

from ..testing.local_nodes import LocalNodes, local_nodes
from .crew import Crew, DemoError, Worker
from .history import Section, Verdict, hand_overs, judge
from .screen import Screen, open_screen
from .worker import TASKS, TTL

__all__ = ["DemoError", "run"]

NODES: Final = 5
WORKERS: Final = 4
HOLDER: Final = "the frozen holder"
TERMINATED: Final = 128 + signal.SIGTERM

PLANNED: Final = 11.0
"""Seconds the story takes on an idle machine; what the progress bar is measured against."""

PATIENCE: Final = 10.0
"""Seconds that one thing may be waited for; everything here normally takes less than three."""

LONG: Final = 1.2 * TTL
"""Seconds of the long critical section: without extensions it would outlive its lease."""

_LOOK: Final = 0.02
"""Seconds between looks at the workers."""

_DRAW: Final = 0.1
"""Seconds between drawings of the progress bar."""


def run(stream: TextIO) -> int:
    """Run the demo, speaking to `stream`; 0 when the lock held, 1 when it did not.

    Raises:
        NoServerError: there is no server to start; the message says how to get one.
        ServerStartError: a server did not start.
        DemoError: something else kept the demo from its end.
    """
    terminated = False

    async def main() -> int:
        story, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert story is not None

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            story.cancel()

        loop.add_signal_handler(signal.SIGTERM, terminate)
        with open_screen(stream) as screen:
            verdict = await play(screen)
        stream.writelines(line + "\n" for line in verdict.lines())
        stream.flush()
        return 0 if verdict.holds else 1

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if terminated:
            return TERMINATED
        raise


async def play(screen: Screen) -> Verdict:
    """Start nodes and workers, play every chapter, end everything, and judge."""
    with tempfile.TemporaryDirectory(prefix="aioredlock-demo-") as name:
        directory = Path(name)
        counter = directory / "counter"
        counter.write_text("0")
        async with local_nodes(NODES) as nodes, Crew(directory, counter, nodes.urls) as crew:
            stage = Stage(screen, nodes, crew)
            await _open(stage)
            for chapter in (_healthy, _faulty_minority, _frozen_holder, _restart_and_last_kill):
                await chapter(stage)
            await _close(stage)
        return judge(crew.sections, seen=int(counter.read_text()), frozen=[HOLDER])


@final
class Stage:
    """What the chapters act on."""

    def __init__(self, screen: Screen, nodes: LocalNodes, crew: Crew) -> None:
        self.nodes = nodes
        self.crew = crew
        self._screen = screen
        self._started = time.monotonic()
        self._drawn = 0.0
        self._told = 0  # sections that `count_for` has spoken of

    def say(self, line: str) -> None:
        """Say something, with the time since the start."""
        self._screen.say(f"[{time.monotonic() - self._started:5.2f} s] {line}")

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something.

        Raises:
            DemoError: it did not come, or a worker failed.
        """
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise DemoError(f"not within {PATIENCE:.0f} s: {what}")
            await self._look()

    async def wait(self, seconds: float) -> None:
        """Let the workers work."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await self._look()

    async def _look(self) -> None:
        self.crew.check()
        if (now := time.monotonic()) - self._drawn > _DRAW:
            self._drawn = now
            written = sum(section.wrote for section in self.crew.sections)
            self._screen.progress(min(1.0, (now - self._started) / PLANNED), f"{written} increments")
        await asyncio.sleep(_LOOK)

    async def count_for(self, seconds: float) -> None:
        """Let the workers work, and say how far they came."""
        await self.wait(seconds)
        self.tell_progress()

    def tell_progress(self) -> None:
        """Say how far the workers came since the last time."""
        new = self.crew.sections[self._told :]
        self._told += len(new)
        written = sum(section.wrote for section in new)
        self.say(f"    {written} increments; the lock went from process to process {hand_overs(new)} times")


async def _open(stage: Stage) -> None:
    ports = ", ".join(map(str, stage.nodes.ports))
    stage.say(f"{NODES} nodes run on ports {ports}; a majority is {NODES // 2 + 1}")
    for number in range(1, WORKERS + 1):
        await stage.crew.start("count", f"worker {number}")
    await stage.until(lambda: all(w.ready for w in stage.crew.workers), "the workers are ready")
    stage.say(f"{WORKERS} processes with {TASKS} tasks each add 1 to a number in a file, again and again:")
    stage.say(f'    read, pause, write, under manager.lock("counter", ttl={TTL:g})')


async def _healthy(stage: Stage) -> None:
    await stage.count_for(1.0)


async def _faulty_minority(stage: Stage) -> None:
    """Two of five nodes are gone; with every vote of the others, a lease is extended past its ttl."""
    stage.nodes.kill(0)
    stage.say("node 1 killed: 4 of 5 are left")
    await stage.count_for(0.8)
    stage.nodes.pause(1)
    stage.say("node 2 frozen: it still takes connections, and answers nothing; 3 of 5 are left")
    await stage.wait(0.3)
    before = len(stage.crew.sections)
    stage.crew.workers[0].order(f"long {LONG:g}")
    await stage.until(lambda: _longest(stage.crew.sections[before:]) >= LONG, "the long section has ended")
    long = max(stage.crew.sections[before:], key=lambda s: s.left - s.entered)
    seconds = long.left - long.entered
    stage.say(f"{long.worker} was inside for {seconds:.2f} s; its lease was extended {long.extensions} times")
    stage.tell_progress()
    stage.nodes.resume(1)
    stage.say("node 2 goes on: 4 of 5")
    await stage.count_for(0.6)


def _longest(sections: list[Section]) -> float:
    return max((section.left - section.entered for section in sections), default=0.0)


async def _frozen_holder(stage: Stage) -> None:
    """A holder sleeps through the end of its lease, wakes, and wants to write what it read before."""
    holder = await stage.crew.start("hold", HOLDER)
    await stage.until(lambda: holder.inside, "the holder has the lock")
    assert holder.inside is not None
    holder.freeze()
    value, valid_for = holder.inside["value"], holder.inside["valid_for"]
    stage.say(f"another process took the lock and read {value}; frozen before its write (SIGSTOP)")
    stage.say(f"    its lease is valid for {valid_for:.2f} s, nobody extends it, everybody waits")
    # Nobody else can have been inside since; whatever is reported late was inside before.
    inside_at = time.monotonic()
    await stage.until(lambda: _first_after(stage, inside_at), "the lock passes on")
    first = _first_after(stage, inside_at)
    assert first is not None
    stage.say(f"the lock passed on to {first.worker} after {first.entered - inside_at:.2f} s")
    await stage.count_for(0.6)
    missed = sum(section.wrote and section.entered > inside_at for section in stage.crew.sections)
    holder.order("write")
    holder.resume()
    await stage.until(lambda: _sections_of(stage, holder), "the holder has left its critical section")
    if _sections_of(stage, holder)[0].wrote:
        stage.say(f"it goes on (SIGCONT) AND WRITES {value + 1}: {missed} increments are undone")
    else:
        stage.say("it goes on (SIGCONT), is told to write, and calls lease.check() first: LockLostError")
        stage.say(f"    its write of {value + 1} would have undone {missed} increments")


def _first_after(stage: Stage, moment: float) -> Section | None:
    later = [section for section in stage.crew.sections if section.entered > moment]
    return min(later, key=lambda section: section.entered, default=None)


def _sections_of(stage: Stage, worker: Worker) -> list[Section]:
    return [section for section in stage.crew.sections if section.worker == worker.name]


async def _restart_and_last_kill(stage: Stage) -> None:
    """A node comes back empty, keeps still while votes that it forgot may count, and then counts again."""
    crew, url = stage.crew, stage.nodes.urls[0]
    began = time.monotonic()
    await stage.nodes.restart(0)
    stage.say("node 1 is back, empty: whatever it voted for is forgotten")
    stage.say(
        f"    restart quarantine: it has no vote for {TTL:g} s, in which the old ones could still count"
    )
    await stage.until(lambda: crew.standings(url) == {"up"}, "everybody asks for node 1's vote again")
    stage.say(f"node 1 votes again {time.monotonic() - began:.1f} s after its return: 5 of 5")
    stage.tell_progress()
    stage.nodes.kill(4)
    stage.say("node 5 killed: 4 of 5 are left, node 1 among them")
    await stage.count_for(0.8)


async def _close(stage: Stage) -> None:
    for worker in stage.crew.workers:
        if not worker.ended:
            worker.order("stop")
    await stage.until(stage.crew.heard_out, "the workers have ended")
    stage.crew.check()
    stage.say("all processes have ended")
