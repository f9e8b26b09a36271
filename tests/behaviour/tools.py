"""Shared by several of these files: looks at the servers, a check for leftovers, child processes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shlex
import sys
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from aioredlock_ng import Lease, LockManager, NodeState, NodeVote, Vote
from tests.servers import Nodes, ask, eventually, lock_keys

WORKER: Final = Path(__file__).with_name("worker.py")

# Seconds that a machine with much other work may be late; what must not be waited for takes longer.
ALLOWANCE: Final = 5.0

# Seconds until something that must happen, with no deadline of its own, counts as not happening.
PATIENCE: Final = 60.0


# -- servers ---------------------------------------------------------------------------------------


def keys(urls: Iterable[str]) -> dict[str, list[bytes]]:
    """Return the locks' keys on each server that has any."""
    found = {url: lock_keys(url) for url in urls}
    return {url: names for url, names in found.items() if names}


async def no_key_left(urls: Iterable[str], *, within: float = ALLOWANCE) -> None:
    """Wait until no server holds a lock's key; releases may still be on their way."""
    urls = list(urls)
    await eventually(lambda: not keys(urls), within=within, what="no key under the prefix is left")


def delete(nodes: Nodes, indexes: Iterable[int], key: str) -> None:
    """Delete a key on some of the servers."""
    for i in indexes:
        assert ask(nodes.urls[i], "DEL", key) == 1


def strike(nodes: Nodes, fault: str, *indexes: int) -> None:
    """Freeze some of the servers, or kill them."""
    for i in indexes:
        nodes.pause(i) if fault == "frozen" else nodes.kill(i)


async def all_up(manager: LockManager, *, within: float = PATIENCE) -> None:
    """Wait until the manager counts every node as up."""

    def up() -> bool:
        return all(node.state is NodeState.UP for node in manager.statistics().nodes)

    await eventually(up, within=within, what=f"every node is up: {manager!r}")


def only_these_silent(votes: Sequence[NodeVote], which: Collection[int]) -> None:
    """Check that these nodes are silent, and say why; another one only if it was slow, on a busy machine."""
    assert all(votes[i].vote is Vote.SILENT and votes[i].reason for i in which), votes
    others = [vote for i, vote in enumerate(votes) if i not in which]
    assert all(vote.vote is not Vote.SILENT or "no answer" in vote.reason for vote in others), votes


def boot_time() -> float:
    """Return the time of the clock that `Lease.valid_until` is read on."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


async def extended(lease: Lease, times: int, *, within: float = PATIENCE) -> None:
    """Wait until a lease has been extended so often in all."""
    await eventually(
        lambda: lease.extensions >= times, within=within, what=f"{times} extensions of {lease!r}"
    )


@contextlib.asynccontextmanager
async def monitor(url: str) -> AsyncIterator[Callable[[], Awaitable[list[str]]]]:
    """Watch every command that a server runs, from the start of the block.

    Yields:
        A function that returns the lines seen up to the moment of its call.
    """
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**22)
    lines: list[str] = []
    marks: dict[str, asyncio.Event] = {}

    async def read() -> None:
        while line := (await reader.readline()).decode(errors="backslashreplace"):
            lines.append(line)
            for mark, seen in marks.items():
                if mark in line:
                    seen.set()

    async def up_to_now() -> list[str]:
        mark = f"mark-{len(marks)}-of-the-monitor"
        seen = marks[mark] = asyncio.Event()
        await asyncio.to_thread(ask, url, "ECHO", mark)
        await asyncio.wait_for(seen.wait(), PATIENCE)
        return list(lines)

    if parts.password:
        writer.write(f"AUTH {parts.password}\r\n".encode())
        assert await reader.readline() == b"+OK\r\n"
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    task = asyncio.create_task(read())
    try:
        yield up_to_now
    finally:
        task.cancel()
        await asyncio.wait((task,))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def monitored_words(line: str) -> tuple[bool, list[str]]:
    """Split a line of MONITOR; the first value tells whether a script ran the command."""
    head, _, words = line.partition("] ")
    return head.endswith("lua"), shlex.split(words)


# -- what is left behind ---------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def quiet() -> AsyncIterator[None]:
    """Fail when the block leaves a task behind, or anything that asyncio or the collector complains of."""
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    complaints: list[dict[str, Any]] = []
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
            gc.collect()
            known = before | {asyncio.current_task()}  # a fixture is torn down in another task
            await eventually(lambda: asyncio.all_tasks() <= known, what="every task has ended")
            gc.collect()
            await asyncio.sleep(0)  # the collector's complaints may be calls of the loop
    finally:
        loop.set_exception_handler(handler)
    assert not complaints, complaints
    assert not warned, [str(warning.message) for warning in warned]


# -- claims ----------------------------------------------------------------------------------------


async def measured(measure: Callable[[], Awaitable[float]], *, at_most: float, what: str) -> float:
    """Measure a ratio, up to three times, until it is within its bound.

    Other processes on a busy machine can spoil one measurement; a broken rule spoils all of them.
    """
    ratios: list[float] = []
    while len(ratios) < 3:
        ratios.append(await measure())
        if ratios[-1] <= at_most:
            break
    print(f"{what}: {', '.join(f'{ratio:.2f}' for ratio in ratios)} (at most {at_most:g})")
    assert ratios[-1] <= at_most, f"{what}: {ratios}"
    return ratios[-1]


# -- child processes -------------------------------------------------------------------------------


@dataclass
class Worker:
    """A run of ``worker.py`` in a process of its own."""

    process: asyncio.subprocess.Process

    async def said(self, word: str, *, within: float = PATIENCE) -> None:
        """Wait for a line of output."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), within)
        if line.decode().strip() != word:
            self.process.kill()
            pytest.fail(f"expected {word!r}, got {line!r} and {(await self.process.communicate())!r}")

    def go(self) -> None:
        """Let it begin, or go on, if it waits for that."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    async def ended(self, *, within: float = PATIENCE) -> tuple[str, str]:
        """Wait for the end of the process and return the rest of its output, and its errors."""
        out, err = await asyncio.wait_for(self.process.communicate(), within)
        return out.decode(), err.decode()


@contextlib.asynccontextmanager
async def worker(task: str, urls: Iterable[str], *arguments: object) -> AsyncIterator[Worker]:
    """Run one of the worker's tasks, in development mode, so that Python complains of all it can."""
    command = ("-W", "always", str(WORKER), task, ",".join(urls), *map(str, arguments))
    async with python(*command) as process:
        yield process


@contextlib.asynccontextmanager
async def python(*arguments: str, development: bool = True) -> AsyncIterator[Worker]:
    """Run Python in a process of its own that ends with the block.

    In `development` mode asyncio is several times as slow.
    """
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *(("-X", "dev") if development else ()), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    try:
        yield Worker(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def told(events: Iterable[object]) -> Counter[str]:
    """Count events by their kind."""
    return Counter(type(event).__name__ for event in events)


class Recorder:
    """A hook object that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __getattr__(self, name: str) -> Callable[[Any], None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return self.events.append
