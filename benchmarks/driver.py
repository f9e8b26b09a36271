"""Workers as the runner sees them, and how they take turns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, final

from benchmarks.environments import ROOT
from benchmarks.report import ratio
from benchmarks.worker import LINE

START_TIMEOUT: Final = 60.0
"""Seconds for a worker to import and connect, on whatever machine."""

Figures = dict[str, Any]
Turn = Callable[[], Awaitable[Figures]]
K = TypeVar("K")


class TroubleError(Exception):
    """A peer did not do what it was asked; the message is what the tables show."""


@final
class Worker:
    """A process with one peer (`benchmarks.worker`), which is started again when it was killed."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._place: Figures = {}

    async def open(self, peer: str, urls: Sequence[str], **options: Any) -> None:
        """Let it use these nodes, with these options beside those of `PEERS`.

        Raises:
            TroubleError: the peer cannot.
        """
        self._place = {"peer": peer, "urls": list(urls), "options": options}
        if self._process is None:
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, cwd=ROOT, limit=LINE
            )
        await self._do(self._process, "open", START_TIMEOUT, self._place)

    async def do(self, what: str, *, limit: float, **arguments: Any) -> Figures:
        """Let it measure and return the figures; when it takes longer than `limit` it is killed.

        Raises:
            TroubleError: it was, or the peer failed.
        """
        if self._process is None:
            await self.open(self._place["peer"], self._place["urls"], **self._place["options"])
        assert self._process is not None
        return await self._do(self._process, what, limit, arguments)

    async def close(self, limit: float) -> None:
        """Let it leave the nodes in order, if it can."""
        if self._process is not None:
            with contextlib.suppress(TroubleError):
                await self._do(self._process, "close", limit, {})

    async def _do(
        self, process: asyncio.subprocess.Process, what: str, limit: float, arguments: Figures
    ) -> Figures:
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        try:
            async with asyncio.timeout(limit):
                process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
                line = await process.stdout.readline()
        except TimeoutError:
            await self.end()
            raise TroubleError(f"> {limit:.3g} s") from None
        except ConnectionError:
            pass
        if not line:
            await self.end()
            raise TroubleError("the worker died")
        figures: Figures = json.loads(line)
        if "error" in figures:
            raise TroubleError(figures["error"])
        return figures

    async def end(self) -> None:
        """Kill it."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@final
@dataclass(slots=True)
class Turns:
    """What one peer's turns gave, in their order; with `trouble` it has none from then on."""

    figures: list[Figures] = field(default_factory=list)
    trouble: str | None = None

    def all(self, key: str) -> list[float]:
        """Return the values of all turns together."""
        return [value for figures in self.figures for value in figures[key]]

    def each(self, read: Callable[[Figures], float]) -> list[float]:
        """Return one value per turn."""
        return list(map(read, self.figures))

    def to(self, base: Turns | None, read: Callable[[Figures], float]) -> float | None:
        """Return the median of the ratios to what `base` did in the same turns, if both did."""
        if base is None:
            return None
        both = [(mine, other) for mine, other in zip(self.each(read), base.each(read), strict=False) if other]
        return ratio(*zip(*both, strict=True)) if both else None


@final
@dataclass(slots=True)
class Taken(Generic[K]):
    """All turns of one case."""

    of: dict[K, Turns]

    def __getitem__(self, key: K) -> Turns:
        return self.of[key]

    def get(self, key: K) -> Turns | None:
        """Return the turns of a peer that may not be here."""
        return self.of.get(key)


async def take_turns(
    turns: Mapping[K, Turn], *, seconds: float, at_least: int, warm: bool = False
) -> Taken[K]:
    """Let every peer have a turn, again and again, each time another one first, until the time is over.

    With `warm` each has one before that is not kept: connections are made, and tables grow.
    """
    if warm:
        before = await take_turns(turns, seconds=0, at_least=1)
        stuck = {key: turns for key, turns in before.of.items() if turns.trouble is not None}
        rest = {key: turn for key, turn in turns.items() if key not in stuck}
        taken = await take_turns(rest, seconds=seconds, at_least=at_least)
        return Taken(taken.of | stuck)
    taken = Taken({key: Turns() for key in turns})
    ends, number = time.monotonic() + seconds, 0
    while number < at_least or time.monotonic() < ends:
        going = [key for key in turns if taken[key].trouble is None]
        if not going:
            break
        first = number % len(going)
        for key in going[first:] + going[:first]:
            try:
                taken[key].figures.append(await turns[key]())
            except TroubleError as trouble:
                taken[key].trouble = str(trouble)
        number += 1
    return taken
