"""Which blocks the calling code is inside of (R27): by the frames on its stack, not by its thread.

A thread of a pool begins a generator and goes on with something else, and another thread ends it; with
greenlets, many stacks share one thread.  So a block belongs to the frame whose ``with`` it is: code is
inside of the block if that frame is on its stack.

A function may enter the block for its caller: an ``__enter__``, a `contextlib.contextmanager`, an
`ExitStack`. Then code of the caller is inside, too.  But a worker thread that calls such a function, and
goes on with other work, is not.  What tells them apart is the context: frameworks run such calls in a
copy of it.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import sys
import threading
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Final, final
from weakref import ref

from .. import Lease

_CONTEXTLIB: Final = contextlib.__file__

_YIELDS: Final = (dis.opmap["YIELD_VALUE"], dis.opmap["RESUME"])
"""The instructions at which a generator is suspended."""

_BEFORE_WITH: Final = dis.opmap.get("BEFORE_WITH")
"""The instruction that calls ``__enter__`` for a ``with``; before Python 3.14."""

_LOAD_SPECIAL: Final = None if _BEFORE_WITH else dis.opmap.get("LOAD_SPECIAL")
"""The one before that call; since Python 3.14."""

_ENTERED: Final[ContextVar[tuple[ref[Entry], ...]]] = ContextVar("aioredlock_ng_entered", default=())
"""The blocks that were entered in this context for a caller."""


def _caller(frame: FrameType) -> FrameType:
    """Return the frame for which `frame` enters or leaves a block: itself, unless that is all it does."""
    while (back := frame.f_back) is not None:
        code = frame.f_code
        for_caller = code.co_name in ("__enter__", "__exit__") or code.co_filename == _CONTEXTLIB
        generator = code.co_flags & inspect.CO_GENERATOR and back.f_code.co_filename == _CONTEXTLIB
        if not (for_caller or generator):
            break
        frame = back
    return frame


@final
class Entry:
    """One entry into a ``with``, from the moment it asks for the lock until it is left."""

    __slots__ = ("__weakref__", "caller", "entered_at", "frame", "lease", "mark", "thread")

    lease: Lease

    def __init__(self, frame: FrameType) -> None:
        self.frame, self.caller = frame, _caller(frame)
        self.entered_at = frame.f_lasti
        self.thread = threading.get_ident()
        self.mark = object()
        """What stands for it in the loop, which must not keep the block alive, nor its lease."""
        if self.caller is not frame:  # those that were left in another context are gone by now
            _ENTERED.set((*(each for each in _ENTERED.get() if each() is not None), ref(self)))

    def around(self, stack: Collection[FrameType]) -> bool:
        """Whether code with that stack is inside of it."""
        return self.frame in stack or (self.caller in stack and ref(self) in _ENTERED.get())

    def was_interrupted(self, frame: FrameType) -> bool:
        """Whether its ``with`` has ended without leaving it, as far as code of `frame` can tell.

        A signal handler may raise when ``__exit__`` is called, before its first line.  The ``with`` has ended
        if its frame runs the same one again, or if its frame has ended.
        """
        if self.thread != threading.get_ident() or not self._by_statement():
            return False
        if self.frame is frame:
            return self.entered_at == frame.f_lasti
        if self.frame.f_code.co_code[self.frame.f_lasti] in _YIELDS:  # before 3.13 `clear` would end it
            return False
        try:
            self.frame.clear()
        except RuntimeError:  # it runs, on this stack or on that of a greenlet
            return False
        return True

    def _by_statement(self) -> bool:
        """Whether a ``with`` has entered it.  What a call of ``__enter__`` has may outlive its frame."""
        code, at = self.frame.f_code.co_code, self.entered_at
        return code[at] == _BEFORE_WITH or code[at - 2] == _LOAD_SPECIAL

    def left(self) -> None:
        """Note in the context that it has ended."""
        if self.caller is not self.frame:
            _ENTERED.set(tuple(each for each in _ENTERED.get() if each() is not self))


def leaving(blocks: Sequence[Entry], frame: FrameType) -> Entry:
    """Return which of these blocks, in the order in which they were entered, `frame` leaves.

    The last one that it has entered; else the last one for the same caller, or of the same thread; else the
    oldest.

    Raises:
        RuntimeError: there is none.
    """
    if not blocks:
        raise RuntimeError("__exit__ of a lock that was not entered, or was already left")
    caller, thread = _caller(frame), threading.get_ident()
    own = [block for block in blocks if block.frame is frame]
    callers = [block for block in blocks if block.caller is caller]
    threads = [block for block in blocks if block.thread == thread]
    return (own or callers or threads or blocks[:1])[-1]


@final
class Entries:
    """The blocks of one manager.  It keeps none of them alive: one that an interrupt orphans is collected."""

    def __init__(self) -> None:
        self._blocks: dict[int, ref[Entry]] = {}

    def add(self, block: Entry) -> None:
        """Note a block that is entered; it is forgotten when it is dropped."""
        number, blocks = id(block), self._blocks
        blocks[number] = ref(block, lambda _: blocks.pop(number, None))

    def discard(self, block: Entry) -> None:
        """Forget a block that was left."""
        self._blocks.pop(id(block), None)

    def _all(self) -> list[Entry]:
        return [block for each in list(self._blocks.values()) if (block := each()) is not None]

    def around(self, frame: FrameType | None) -> tuple[object, ...]:
        """Return the marks of the blocks that the code of `frame` is inside of."""
        if not self._blocks:
            return ()
        stack = _stack(frame)
        return tuple(block.mark for block in self._all() if block.around(stack))

    def of_thread(self, frame: FrameType | None) -> tuple[object, ...]:
        """Return the marks of the blocks that this thread is in, or has suspended in a generator, say."""
        thread, stack = threading.get_ident(), _stack(frame)
        others = _stacks_but(thread)
        return tuple(
            block.mark
            for block in self._all()
            if block.around(stack)
            or (block.thread == thread and block.frame not in others and block.caller not in others)
        )

    def idle(self) -> tuple[object, ...]:
        """Return the marks of the blocks whose code no other thread runs."""
        others = _stacks_but(threading.get_ident())
        return tuple(
            block.mark for block in self._all() if block.frame not in others and block.caller not in others
        )


def _stack(frame: FrameType | None) -> set[FrameType]:
    found: set[FrameType] = set()
    while frame is not None:
        found.add(frame)
        frame = frame.f_back
    return found


def _stacks_but(thread: int) -> set[FrameType]:
    """Return the frames that all other threads are in."""
    found: set[FrameType] = set()
    for number, frame in sys._current_frames().items():  # noqa: SLF001 (documented)
        if number != thread:
            found |= _stack(frame)
    return found
