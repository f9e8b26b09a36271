"""What happens at its time while a block runs, and is over when the block is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

End: TypeAlias = Callable[[], None]
"""What ends something that has begun."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Act:
    """One thing that happens.

    Args:
        what: for messages.
        at: seconds from the beginning of the block.
        lasts: seconds until its end; None: until the end of the block.
        begin: lets it begin, and returns what ends it.
    """

    what: object
    at: float
    lasts: float | None
    begin: Callable[[], End]


@final
@dataclass(slots=True)
class _Stage:
    """What goes on, and what has gone wrong with it."""

    loop: asyncio.AbstractEventLoop
    ends: dict[Act, End] = field(default_factory=dict)
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def announce(self, act: Act) -> None:
        """Let it begin in time."""
        self.timers.append(self.loop.call_later(act.at, self._begin, act))

    def clear(self) -> None:
        """Let end what has not yet, and nothing more begin."""
        for timer in self.timers:
            timer.cancel()
        for act in list(self.ends):
            self._end(act)

    def _begin(self, act: Act) -> None:
        with self._noting(act):
            self.ends[act] = act.begin()
            if act.lasts is not None:
                self.timers.append(self.loop.call_later(act.lasts, self._end, act))

    def _end(self, act: Act) -> None:
        with self._noting(act):
            self.ends.pop(act)()

    @contextlib.contextmanager
    def _noting(self, act: Act) -> Iterator[None]:
        """Keep what is raised: out of a timer it would end up in the loop's handler, where no test looks."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (whatever it is)
            error.add_note(f"raised by {act.what}")
            self.failures.append(error)


@contextlib.asynccontextmanager
async def playing(acts: Sequence[Act]) -> AsyncIterator[None]:
    """Let things happen while the block runs; its end raises what they have raised, or notes it."""
    stage = _Stage(asyncio.get_running_loop())
    for act in acts:
        stage.announce(act)
    try:
        yield
    except BaseException as error:
        stage.clear()
        for failure in stage.failures:
            error.add_note(f"{failure!r} was {failure.__notes__[-1]}")
        raise
    stage.clear()
    if len(stage.failures) > 1:
        raise ExceptionGroup("faults have failed", stage.failures)
    for failure in stage.failures:
        raise failure
