"""The demo's worker processes, seen from the demo: starting, ordering, freezing, hearing, ending."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

from .history import Section

_STDERR_SHOWN: Final = 2000
"""Characters of a failed worker's last words that are shown."""


class DemoError(RuntimeError):
    """The demo could not be run to its end."""


@final
class Worker:
    """One process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, stderr: Path) -> None:
        self.name = name
        self.process = process
        self.ready = False
        self.inside: dict[str, Any] | None = None
        """What it said when it waited inside for an order."""
        self._stderr = stderr

    def order(self, line: str) -> None:
        """Send it an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    def freeze(self) -> None:
        """Stop it where it stands (SIGSTOP)."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self.process.send_signal(signal.SIGCONT)

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.returncode is not None

    def check(self) -> None:
        """Raise if it failed.

        Raises:
            DemoError: with what it wrote to its standard error.
        """
        if self.process.returncode:
            words = self._stderr.read_text(errors="replace")[-_STDERR_SHOWN:]
            raise DemoError(f"{self.name} ended with code {self.process.returncode}:\n{words}")


@final
class Crew:
    """All workers; leaving its ``async with`` ends those that are left, each by its own process id."""

    def __init__(self, directory: Path, counter: Path, urls: Sequence[str]) -> None:
        self._directory = directory
        self._counter = counter
        self._urls = urls
        self._listeners: list[asyncio.Task[None]] = []
        self.workers: list[Worker] = []
        self.sections: list[Section] = []
        """What all workers have reported so far, in the order of the reports."""
        self._standings: dict[tuple[str, str], str] = {}
        """How a worker last saw a node."""

    async def start(self, mode: str, name: str) -> Worker:
        """Start a process; `mode` as in `worker`."""
        path = self._directory / f"{name}.stderr"
        with path.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"{__package__}.worker",
                mode,
                name,
                self._counter,
                *self._urls,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                # A process group of its own: Ctrl-C is for the demo, which then ends its workers. Not a
                # session of its own: should the demo be killed, the kernel wakes and ends a frozen one.
                process_group=0,
            )
        worker = Worker(name, process, path)
        self.workers.append(worker)
        self._listeners.append(asyncio.create_task(self._listen(worker)))
        return worker

    async def _listen(self, worker: Worker) -> None:
        assert worker.process.stdout is not None
        async for line in worker.process.stdout:
            facts = json.loads(line)
            kind = facts.pop("kind")
            if kind == "section":
                self.sections.append(Section(**facts))
            elif kind == "inside":
                worker.inside = facts
            elif kind == "node":
                self._standings[worker.name, facts["node"]] = facts["state"]
            else:
                worker.ready = True
        await worker.process.wait()

    def standings(self, node: str) -> set[str]:
        """Return how the workers that run see a node."""
        return {self._standings.get((w.name, node), "") for w in self.workers if not w.ended}

    def check(self) -> None:
        """Raise `DemoError` if a worker failed."""
        for worker in self.workers:
            worker.check()

    def heard_out(self) -> bool:
        """Whether every worker has ended and everything it said was read."""
        return all(listener.done() for listener in self._listeners)

    async def __aenter__(self) -> Crew:
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:  # all of them before the first await, which Ctrl-C may interrupt
            if not worker.ended:
                with contextlib.suppress(ProcessLookupError):
                    worker.process.kill()  # works on a frozen process, too
        await asyncio.gather(*self._listeners)
        for worker in self.workers:
            assert worker.process.stdin is not None
            worker.process.stdin.close()
            with contextlib.suppress(OSError):  # an order that it did not live to read
                await worker.process.stdin.wait_closed()
