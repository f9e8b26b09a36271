"""For the tests of ``aioredlock-ng run``: starts it, reads what its command stamped, finds what is left."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.environments.interpreters import ROOT
from tests.servers import Nodes, ask, until, without_quarantine_set

RUN: Final = (sys.executable, "-m", "aioredlock_ng", "run")

PATIENCE: Final = 60.0
"""Seconds until something that must happen, with no deadline of its own, counts as not happening."""

Cli: TypeAlias = Callable[..., tuple[object, str, str]]
"""Runs a command line in this process: its exit code, and both outputs."""

CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock of the validity of locks, and of the stamps."""

STAMPER: Final = """
import os, signal, sys, time
path, seconds, manners = sys.argv[1:]
clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def stamp(word):
    os.write(file, f"{word} {os.getpid()} {time.clock_gettime(clock)!r}\\n".encode())
def caught(number, _):
    stamp(signal.Signals(number).name)
    if manners == "meek" and number == signal.SIGTERM:
        os._exit(7)
for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "CONT", "WINCH"):
    signal.signal(getattr(signal, "SIG" + name), caught)
end = time.monotonic() + float(seconds)
stamp("start")
while time.monotonic() < end:
    stamp("beat")
    time.sleep(0.005)
stamp("stop")
"""
"""A command that writes down when it lived and which signals it got; only a meek one heeds SIGTERM."""


@dataclass(frozen=True)
class Stamp:
    """One line of a stamping command."""

    word: str
    pid: int
    at: float


@dataclass
class Run:
    """One ``aioredlock-ng run``."""

    process: subprocess.Popen[bytes]
    out_path: Path
    err_path: Path

    @property
    def out(self) -> str:
        """The standard output so far."""
        return self.out_path.read_text(errors="surrogateescape")

    @property
    def err(self) -> str:
        """The standard error so far."""
        return self.err_path.read_text(errors="surrogateescape")

    def wait(self) -> int:
        """Wait for its end and return the exit code."""
        return self.process.wait(PATIENCE)

    def send(self, number: int) -> None:
        """Send a signal to the process that holds the lock, and to it alone."""
        self.process.send_signal(number)


@dataclass
class Runs:
    """Starts runs, all over the same nodes, and knows their processes."""

    directory: Path
    nodes: Nodes
    started: list[Run] = field(default_factory=list)

    def start(
        self,
        *arguments: str | bytes,
        env: dict[str, str] | None = None,
        via: Sequence[str] = (),
        **options: Any,
    ) -> Run:
        """Start one; `via` is what starts it in our place."""
        number = len(self.started)
        paths = self.directory / f"out{number}", self.directory / f"err{number}"
        with paths[0].open("wb") as out, paths[1].open("wb") as err:
            options = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err} | options
            process = subprocess.Popen(
                [*via, *RUN, *arguments], cwd=self.directory, env=self.environment | (env or {}), **options
            )
        run = Run(process, *paths)
        self.started.append(run)
        return run

    def finish(self, *arguments: str | bytes, **options: Any) -> tuple[int, str, str]:
        """Start one and wait for its end; return the exit code, and both outputs."""
        run = self.start(*arguments, **options)
        return run.wait(), run.out, run.err

    @property
    def environment(self) -> dict[str, str]:
        """Their environment; the directory marks their processes."""
        return environment(self.nodes, TMPDIR=str(self.directory))

    def stamper(self, name: str, seconds: float = 60.0, manners: str = "meek") -> list[str]:
        """Return a command that stamps into the file `name`."""
        return [sys.executable, "-I", "-S", "-c", STAMPER, str(self.directory / name), str(seconds), manners]

    def stamps(self, name: str) -> list[Stamp]:
        """Return the stamps in the file `name`."""
        path = self.directory / name
        *lines, _ = path.read_text().split("\n") if path.exists() else [""]  # the last may be half a line
        return [Stamp(word, int(pid), float(at)) for word, pid, at in map(str.split, lines)]

    def words(self, name: str) -> list[str]:
        """Return what was stamped, without the beats."""
        return [stamp.word for stamp in self.stamps(name) if stamp.word != "beat"]

    def processes(self) -> dict[int, str]:
        """Return all living processes of the runs: pid and command line."""
        return processes_of(self.directory)

    def guard(self) -> int:
        """Return the process id of the guard, of which there must be one."""
        (pid,) = [pid for pid, line in self.processes().items() if "/_guard " in line.split("import os")[0]]
        return pid

    def key_ends(self, key: str) -> float:
        """Return when a majority of the nodes will not have a key any more, on the clock of the stamps.

        No validity of the lock lasts as long.
        """
        now = time.clock_gettime(CLOCK)
        left = sorted(ask(url, "PTTL", key) for url in self.nodes.urls)
        return now + left[len(left) // 2] / 1000

    def holders(self, key: str) -> int:
        """Return how many nodes have a key."""
        return sum(ask(url, "EXISTS", key) for url in self.nodes.urls)


def environment(nodes: Nodes, **more: str) -> dict[str, str]:
    """Return the environment of a command over nodes."""
    ours = {"REDLOCK_URLS": ",".join(nodes.urls), "PYTHONPATH": str(ROOT)}
    return without_quarantine_set() | ours | more


def processes_of(directory: Path) -> dict[int, str]:
    """Return all living processes for which a directory is that of temporary files: pid and command line.

    They are known by their environment, which they inherit, or by their working directory: servers
    write over their environment to show what they do.
    """
    found = {}
    mark = b"TMPDIR=" + os.fsencode(directory)
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # not ours, or gone
            inherited = mark in (path / "environ").read_bytes().split(b"\0")
            if inherited or (path / "cwd").readlink().is_relative_to(directory):
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


@contextlib.contextmanager
def open_runs(directory: Path, nodes: Nodes) -> Iterator[Runs]:
    """Give a `Runs`; at the end every process must be gone, or must go when its run is killed."""
    runs = Runs(directory, nodes)
    try:
        yield runs
    finally:
        for run in runs.started:
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait()
        until(lambda: not runs.processes(), what="every process of the runs is gone")
