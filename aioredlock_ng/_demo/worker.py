"""The demo's processes: each adds to the counter under the lock, and reports every section it was in.

    python -m aioredlock_ng._demo.worker {count|slow|hold} NAME COUNTER URL …

It prints a JSON list per line, ``[kind, facts]``.  The end of its standard input is the order to come to an
end, or to write; so it never outlives the demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, final

from .. import Lock, LockLostError, LockManager, RetryPolicy
from .verdict import Section

TTL: Final = 2.0
"""Seconds: short, so that the demo need not wait long for a frozen holder; a busy machine still keeps it."""

LONG: Final = 1.2 * TTL
"""Seconds of a slow section: without extensions it would outlive its lease."""

TASKS: Final = 3
"""Tasks of one process that count."""

_PAUSE: Final = 0.001
"""Seconds between read and write."""

_THINK: Final = 0.1
"""Seconds, at most, between two sections of one task."""

_LAST: Final = 5.0
"""Seconds that a worker has for coming to an end: without the demo there are no nodes, and no lock."""

_WORDS_SHOWN: Final = 2000
"""Bytes of a failed worker's last words."""


async def main() -> None:
    """Do what the command line says."""
    mode, name, path, *urls = sys.argv[1:]
    counter, retry = Counter(Path(path)), RetryPolicy(base=0.01, cap=0.1)
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def come_to_an_end() -> None:
        loop.remove_reader(sys.stdin)
        told.set()
        limit.reschedule(loop.time() + _LAST)

    loop.add_reader(sys.stdin, come_to_an_end)  # nothing but its end is ever to be read
    async with (
        asyncio.timeout(None) as limit,
        LockManager(urls, ttl=TTL, restart_quarantine=TTL, retry=retry, holder=name) as manager,
    ):
        lock = manager.lock("counter")
        if mode == "count":
            async with asyncio.TaskGroup() as tasks:
                for _ in range(TASKS):
                    tasks.create_task(count(told, lock, name, counter))
        else:
            await visit(lock, name, counter, LONG if mode == "slow" else None)


async def count(told: asyncio.Event, lock: Lock[Any], name: str, counter: Counter) -> None:
    """Add to the counter until told to come to an end."""
    while not told.is_set():
        await visit(lock, name, counter, _PAUSE)
        await asyncio.sleep(random.uniform(0, _THINK))


@final
class Counter:
    """A number in a plain file; adding to it is not atomic, which is the point."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> int:
        """Return the number; 0 while a process without the lock writes."""
        return int(self.path.read_text() or 0)

    def write(self, value: int) -> None:
        """Replace the number."""
        self.path.write_text(str(value))


async def visit(lock: Lock[Any], name: str, counter: Counter, pause: float | None) -> None:
    """Take the lock, read the number, pause, write it plus one, report.

    Without a pause it waits to be told, and gives the event loop no turn: the demo freezes the process right
    there, and when it goes on nothing comes before the write but the check.  Check and write are two steps,
    too: frozen between them it would write late, and only a resource that compares fences can refuse that.
    """
    asked = time.monotonic()
    try:
        async with lock as lease:
            now = time.monotonic()
            section = Section(worker=name, waited=now - asked, entered=now, until=now + lease.remaining)
            value = counter.read()
            if pause is None:
                report("inside", {"value": value, "valid_for": lease.remaining})
                sys.stdin.read()
            else:
                await asyncio.sleep(pause)
            lease.check()
            counter.write(value + 1)
            section.wrote, section.until = True, time.monotonic()
    except LockLostError:
        section.lost = True
    section.extensions = lease.extensions
    report("section", asdict(section))


def report(kind: str, facts: dict[str, Any]) -> None:
    """Tell the demo something."""
    print(json.dumps([kind, facts]), flush=True)  # noqa: T201 (standard output is the pipe)


# -- seen from the demo ------------------------------------------------------------------------------


class DemoError(RuntimeError):
    """The demo could not be run to its end."""


@final
class Crew:
    """All workers; leaving its ``async with`` ends those that are left, each by its own process id."""

    def __init__(self, counter: Counter, urls: Sequence[str]) -> None:
        self._arguments = (str(counter.path), *urls)
        self._listeners: dict[str, asyncio.Task[None]] = {}
        self.processes: dict[str, Process] = {}
        self.sections: list[Section] = []
        """What all workers have reported so far, in the order of the reports."""
        self.inside: dict[str, Any] = {}
        """What the holder said when it waited inside."""

    async def start(self, mode: str, name: str) -> None:
        """Start a process; `mode` as in its command line."""
        # A process group of its own: Ctrl-C is for the demo, which then ends its workers. Not a session of
        # its own: should the demo be killed, the kernel wakes and ends a frozen one.
        command = (sys.executable, "-m", __name__, mode, name, *self._arguments)
        self.processes[name] = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, process_group=0
        )
        self._listeners[name] = asyncio.create_task(self._listen(name, self.processes[name]))

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

    def of(self, name: str) -> list[Section]:
        """Return the sections of one worker."""
        return [section for section in self.sections if section.worker == name]

    @property
    def running(self) -> list[str]:
        """The workers that were not heard to their end."""
        return [name for name, task in self._listeners.items() if not task.done()]

    def check(self) -> None:
        """Raise `DemoError` if a worker has failed; with its last words."""
        for task in self._listeners.values():
            if task.done():
                task.result()

    def tell(self, name: str) -> None:
        """Give a worker its one order."""
        stdin = self.processes[name].stdin
        assert stdin is not None
        stdin.close()

    async def __aenter__(self) -> Crew:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes.values():  # before the first await, which Ctrl-C may interrupt
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # works on a frozen one, too
        await asyncio.gather(*self._listeners.values(), return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
