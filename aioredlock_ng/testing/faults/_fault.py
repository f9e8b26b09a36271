"""What every fault has, how several at one place add up, and what happens at its time while a block runs."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar, final
from weakref import WeakKeyDictionary

from .._arguments import check_amount, check_index
from ..memory_node import MemoryNode

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(ABC):
    """Something that goes wrong with one node.

    Args:
        at: when it begins, in seconds from 0 on.
        node: the number of the node, from 0 on.
        lasts: seconds until it ends, from 0 on; of no meaning for what happens in a moment.

    Raises:
        TypeError: a number is none (`node` and `client` are ints), or `error` is no str.
        ValueError: a value is out of its range, NaN or infinite.
    """

    at: float
    node: int
    lasts: float = 0.0

    def __post_init__(self) -> None:
        check_amount("at", self.at)
        check_amount("lasts", self.lasts)
        check_index("node", self.node, of="nodes")

    def check(self, nodes: Sequence[MemoryNode]) -> None:
        """Check that what it happens to is there.

        Raises:
            ValueError: it is not.
        """
        if self.node not in range(len(nodes)):
            raise ValueError(f"{self}: there are {len(nodes)} nodes, numbered from 0 on")

    @abstractmethod
    def begin(self, nodes: Sequence[MemoryNode]) -> End:
        """Let it begin, and return what ends it."""


_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Layer:
    """What one fault makes of something, on top of how it was before."""

    value: Any


_layers: Final[WeakKeyDictionary[object, dict[str, list[_Layer]]]] = WeakKeyDictionary()
"""By place, and by the name of what goes wrong there: first how it was, then the faults, oldest first."""


def _newest(values: list[_T]) -> _T:
    return values[-1]


def lay(
    place: object,
    name: str,
    *,
    before: _T,
    value: _T,
    put: Callable[[_T], object],
    merge: Callable[[list[_T]], _T] = _newest,
) -> Callable[[], None]:
    """Let something be `value` from now on, and return what takes that away again, whatever else lasts then.

    Args:
        place: where it goes wrong.
        name: what goes wrong there.
        before: how it is; of no meaning while another fault lasts.
        value: what the fault makes of it.
        put: lets it be so.
        merge: returns what comes of what all make of it; the newest counts by default.
    """
    layers = _layers.setdefault(place, {}).setdefault(name, [])
    if not layers:
        layers.append(_Layer(before))
    mine = _Layer(value)
    layers.append(mine)
    put(merge([layer.value for layer in layers]))

    def end() -> None:
        shown = merge([layer.value for layer in layers])
        layers.remove(mine)
        left = merge([layer.value for layer in layers])
        if len(layers) == 1:
            layers.clear()
        if left != shown:
            put(left)

    return end


def lasts(place: object, name: str) -> bool:
    """Say whether a fault that something is put down to has not ended."""
    return bool(_layers.get(place, {}).get(name))
