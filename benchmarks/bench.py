"""What a question is asked with: the settings, the workers, the report."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from aioredlock_ng.testing import LocalNodes, local_nodes
from benchmarks.driver import START_TIMEOUT, Taken, TroubleError, Turn, Worker, take_turns
from benchmarks.environments import FOLDER, UnavailableError, command_of
from benchmarks.peers import PEERS, Spec
from benchmarks.report import Report

NODES: Final = 5
"""Where a question does not ask for another number."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much is measured; times in seconds."""

    peers: tuple[str, ...] = tuple(PEERS)
    seconds: float = 30.0
    """For each question and loop; its cases share them."""
    least: int = 4
    """Turns of each peer, at least, however long they take."""
    limit: float = 5.0
    """How much longer than it should a turn may take."""
    cycles: int = 40
    """Uncontended cycles in one turn."""
    slice: float = 0.4
    """A turn of many tasks."""
    hot: float = 1.0
    """A turn with a hot name: longer than any wait, if possible."""
    tasks: tuple[int, ...] = (1, 10, 100, 1000)
    growth: tuple[int, ...] = (100, 1000, 10_000)
    """Tasks, of which the first number is what the others are compared with."""
    single: tuple[int, ...] = (1, 10, 100)
    """Tasks, with one server."""
    rates: tuple[float, ...] = (100, 500, 2000)
    sections: tuple[float, ...] = (0, 0.0001, 0.001, 0.01)
    contenders: int = 20
    """Tasks that want the hot name."""
    processes: tuple[int, ...] = (1, 4)
    """That they are spread over."""
    crowds: tuple[int, ...] = (1, 4, 20, 100, 300)
    """Processes of one task each, with one name."""
    crowd: int = 100
    """Tasks, where nodes are far, or of other numbers."""
    held: tuple[int, ...] = (0, 100, 1000, 10_000)
    window: float = 10.0
    """Over which the watchdog's CPU is measured."""
    settle: float = 1.0
    """Between a fault and the first turn."""
    trips: tuple[float, ...] = (0.0005, 0.002, 0.02)
    nodes: tuple[int, ...] = (1, 3, 5, 7, 9)
    micro: tuple[str, ...] = ()
    """Options for pyperf."""
    server: str | None = None
    environments: Path = FOLDER


QUICK: Final = Settings(
    seconds=0.5,
    least=2,
    limit=2,
    slice=0.1,
    hot=0.3,
    tasks=(1, 100),
    growth=(100, 500),
    single=(1, 100),
    rates=(200,),
    sections=(0.001,),
    crowds=(1, 8),
    held=(0, 100, 500),
    window=1.0,
    trips=(0.02,),
    nodes=(3, 5),
    micro=("-p2", "-n2", "-w1", "--min-time=0.005"),
)
"""All questions in two minutes: to see that everything works."""


@final
@dataclass(slots=True)
class Bench:
    """A run with one kind of event loop; its workers live as long as it does."""

    settings: Settings
    report: Report
    loop: str
    _pool: dict[tuple[str, int], Worker] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)

    def say(self, what: str) -> None:
        """Tell the user what is going on."""
        print(f"[{self.loop}] {what}", file=sys.stderr, flush=True)

    def peers(self, fits: Callable[[Spec], bool], question: str = "") -> list[str]:
        """Return the peers, of those that were asked for, that a question can be asked."""
        there = [peer for peer in self.settings.peers if peer not in self._missing]
        return [peer for peer in there if PEERS[peer].only in ("", question) and fits(PEERS[peer])]

    @contextlib.asynccontextmanager
    async def open(
        self, peers: Sequence[str], urls: Sequence[str], *, copies: int = 1, first: int = 0
    ) -> AsyncIterator[dict[str, list[Worker]]]:
        """Give workers of each peer, warm, over these nodes; a peer that cannot be had is left out, and told.

        A peer's workers are numbered from `first`; the same ones cannot be open twice.
        """
        opened: dict[str, list[Worker]] = {}
        peers = [peer for peer in peers if peer not in self._missing]
        try:
            together = await asyncio.gather(
                *(self._opened(peer, urls, range(first, first + copies)) for peer in peers),
                return_exceptions=True,
            )
            for peer, outcome in zip(peers, together, strict=True):
                if isinstance(outcome, UnavailableError | TroubleError):
                    self._missing.add(peer)
                    self.say(f"!!! {peer.upper()} IS LEFT OUT: {outcome}")
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    opened[peer] = outcome
            yield opened
        finally:
            for workers in opened.values():
                await asyncio.gather(*(worker.close(self.settings.limit) for worker in workers))

    @contextlib.asynccontextmanager
    async def over(
        self, peers: Sequence[str], number: int = NODES, *, copies: int = 1
    ) -> AsyncIterator[tuple[LocalNodes, dict[str, list[Worker]]]]:
        """Give so many nodes, and workers of each peer over them, as `open` does."""
        async with (
            local_nodes(number, server=self.settings.server) as nodes,
            self.open(peers, nodes.urls, copies=copies) as workers,
        ):
            yield nodes, workers

    async def _opened(self, peer: str, urls: Sequence[str], numbers: range) -> list[Worker]:
        command = await command_of(peer, self.loop, self.settings.environments)
        workers = [self._pool.setdefault((peer, i), Worker(*command)) for i in numbers]
        for i, worker in zip(numbers, workers, strict=True):
            await worker.open(peer, urls)
            await worker.do("latency", limit=START_TIMEOUT, prefix=f"warm:{peer}:{i}", count=10, seconds=1.0)
        return workers

    async def turns(self, turns: Mapping[Any, Turn], *, cases: int, warm: bool = False) -> Taken[Any]:
        """Take turns for this case's share of the seconds."""
        settings = self.settings
        return await take_turns(turns, seconds=settings.seconds / cases, at_least=settings.least, warm=warm)

    async def close(self) -> None:
        """End the workers."""
        await asyncio.gather(*(worker.end() for worker in self._pool.values()))
        self._pool.clear()
