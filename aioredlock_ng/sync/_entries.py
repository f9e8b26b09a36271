"""Which blocks the calling code is inside of (R27): those that its thread has entered in its context.

Neither would do alone.  A thread of a pool enters a block for one request, in a context of that request, and
goes on with the next one.  And a context that has entered a block may be copied to another thread.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Final, final
from weakref import WeakValueDictionary

from .. import Lease, _locks

_NUMBERS: Final = itertools.count(1)

_OPEN: Final[WeakValueDictionary[int, Entry]] = WeakValueDictionary()
"""All blocks by their numbers, until they are left and collected, as one is that an interrupt has ended."""

_ENTERED: Final[ContextVar[tuple[int, ...]]] = ContextVar("aioredlock_ng_entered", default=())
"""The numbers of the blocks that were entered in this context, or in one that it was copied from."""


@final
class Entry:
    """One entry into a ``with``, from the moment it asks for the lock until it has been left."""

    __slots__ = ("__weakref__", "generator", "lease", "number", "thread")

    lease: Lease

    def __init__(self, generator: object = None) -> None:
        self.generator = generator  # that has entered it, if one has
        self.thread = threading.current_thread()
        self.number = next(_NUMBERS)  # stands for it in the loop, which must not keep it alive
        _OPEN[self.number] = self
        _ENTERED.set((self.number, *(number for number in _ENTERED.get() if number in _OPEN)))

    def left(self) -> None:
        """Forget it now: Python would swallow what a signal handler raises while a weak reference ends."""
        _OPEN.pop(self.number, None)


def inside() -> tuple[int, ...]:
    """Return the numbers of the blocks that the calling code is inside of, the innermost first."""
    here = threading.current_thread()
    blocks = map(_OPEN.get, _ENTERED.get())
    return tuple(block.number for block in blocks if block is not None and block.thread is here)


def idle() -> tuple[int, ...]:
    """Return the numbers of the blocks of this thread, and of threads that have ended."""
    others = {*threading.enumerate()} - {threading.current_thread()}
    blocks = [each() for each in _OPEN.valuerefs()]
    return tuple(block.number for block in blocks if block is not None and block.thread not in others)


def generator_around(frame: FrameType) -> object:
    """Return what stands for the generator whose ``with`` or exit stack calls `frame`; None: other code."""
    while frame.f_code.co_filename == contextlib.__file__ and frame.f_back is not None:
        frame = frame.f_back
    return _locks.generator_of(frame)


def leaving(blocks: Sequence[Entry], generator: object) -> Entry:
    """Return which of these blocks, in the order in which they were entered, the calling code leaves.

    A generator, which may be ended in another thread, leaves the last one that it has entered.  Other code
    leaves the last one that it is inside of; else, since helpers leave in another context than they entered,
    the oldest.

    Raises:
        RuntimeError: there is none.
    """
    if not blocks:
        raise RuntimeError("__exit__ of a lock that was not entered, or was already left")
    own = inside()
    mine = [block for block in blocks if block.number in own]
    known = [block for block in (blocks if generator else mine) if block.generator == generator]
    return (known or mine or blocks[:1])[-1]
