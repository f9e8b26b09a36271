"""The calls of one user's client: those of one owner in sequence, and not too many at once (R17)."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, final

import anyio

from .._core.command import Command, Purpose, Reply

MAX_CALLS: Final = 256
"""Calls of one client that may be under way, or wait for that; beyond it the node is SILENT."""

MAX_RELEASES: Final = 1024
"""The same for releases, which may wait for their acquire's call, too; beyond it they go to the ledger."""

MAX_EXTENSIONS: Final = 2048
"""The same for extensions and repairs, so that no burst of others costs a held lease."""

LAST_CALLS: Final = 10.0
"""Seconds for which the calls that are left when a node is closed may be made, at most."""

MAX_IDLE_WAITS: Final = 2
"""Waits in a row in which no call ends, before the rest is cancelled: perhaps the loop stood still, not the
server."""

_KEEPING: Final = (Purpose.EXTEND, Purpose.REPAIR)

_URGENT: Final = (*_KEEPING, Purpose.RELEASE, Purpose.RAISE)
"""The commands on which a lease rests that is held, or won: they go before acquires."""

Call: TypeAlias = "asyncio.Task[Reply]"

AT_ONCE: Final = 32
"""Calls of one client that are made at once: enough to keep a loop busy."""


@final
class CallLimiter:
    """Lets a limited number of calls through at a time: `urgent` ones first, each first in, first out (R13).

    A pool makes a connection for every call that finds none idle, and beyond its limit it refuses calls: also
    those on which a held lease rests.  And the more calls are made at once, the longer each of them takes,
    until none is answered in time.
    """

    __slots__ = ("_free", "_others", "_urgent")

    def __init__(self, free: int) -> None:
        self._free = free
        self._urgent: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._others: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    async def enter(self, *, urgent: bool, within: float) -> Place:
        """Wait for a place; it is free again `within` seconds, also if the call takes longer."""
        loop = asyncio.get_running_loop()
        if self._free:
            self._free -= 1
        else:
            future: asyncio.Future[None] = loop.create_future()
            line = self._urgent if urgent else self._others
            line[future] = None
            try:
                await future
            except asyncio.CancelledError:
                line.pop(future, None)
                # It was let in at the same moment: the next one has its place.
                if not future.cancelled():
                    self.leave()
                raise
        return Place(self, loop, within)

    def leave(self) -> None:
        """Let the next one through."""
        for line in (self._urgent, self._others):
            while line:
                future, _ = line.popitem(last=False)
                if not future.done():
                    future.set_result(None)
                    return
        self._free += 1


@final
class Place:
    """The place of a call that is being made."""

    __slots__ = ("_call_limiter", "_left", "_timer")

    def __init__(self, call_limiter: CallLimiter, loop: asyncio.AbstractEventLoop, within: float) -> None:
        self._call_limiter = call_limiter
        self._left = False
        self._timer = loop.call_later(within, self.leave)

    def leave(self) -> None:
        """Make room for the next one; once."""
        if not self._left:
            self._left = True
            self._timer.cancel()
            self._call_limiter.leave()


@final
class Calls:
    """Makes the calls by `execute`, at most `at_once` at a time; each is a task.

    A call gives its place up after `longest` seconds.
    """

    def __init__(self, execute: Callable[[Command], Coroutine[Any, Any, Reply]], *, at_once: int) -> None:
        self._execute = execute
        self.longest = 0.0
        self._last: dict[bytes, Call] = {}  # of each owner
        self._count: Counter[int] = Counter()  # by the limit that they count for
        self._queued: set[asyncio.Task[Any]] = set()  # those that wait for a place
        self._call_limiter = CallLimiter(at_once)
        self._ended = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        """All tasks of the client, those of its calls and others."""

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def has_room(self, purpose: Purpose) -> bool:
        """Whether one more call for this purpose may be started."""
        limit = _limit(purpose)
        return self._count[limit] < limit

    def start(self, command: Command) -> Call:
        """Start the call, behind the owner's call before it."""
        owner, limit = command.owner, _limit(command.purpose)
        call = self.spawn(self._make(command, self._last.get(owner) if owner else None))
        self._count[limit] += 1
        if owner:
            self._last[owner] = call

        def forget(ended: Call) -> None:
            self._ended += 1
            self._count[limit] -= 1
            if self._last.get(owner) is ended:
                del self._last[owner]

        call.add_done_callback(forget)
        return call

    async def end(self, timeout: float) -> None:
        """Make the calls that wait, while some end within `timeout` seconds; then cancel the rest."""
        idle_waits = 0
        with anyio.move_on_after(LAST_CALLS):
            while self.tasks and idle_waits < MAX_IDLE_WAITS:
                before = self._ended
                await asyncio.wait(set(self.tasks), timeout=timeout)
                idle_waits = idle_waits + 1 if self._ended == before else 0
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(set(self.tasks))

    async def _make(self, command: Command, before: Call | None) -> Reply:
        # A pool keeps no order: the owner's call before this one has to end first, in whatever way.
        if before is not None:
            await asyncio.wait((before,))
        call = asyncio.current_task()
        assert call is not None, "a call is a task"
        self._queued.add(call)
        try:
            place = await self._call_limiter.enter(urgent=command.purpose in _URGENT, within=self.longest)
        finally:
            self._queued.discard(call)
        try:
            return await self._execute(command)
        finally:
            place.leave()

    def cancel_if_queued(self, call: Call) -> bool:
        """Cancel a call that still waits for a place, and would be late; False: it does not wait.

        A call that waits for its owner's call before it stays: what follows must not overtake that one.
        """
        queued = call in self._queued
        if queued:
            call.cancel()
        return queued


def _limit(purpose: Purpose) -> int:
    """Return how many calls for this purpose, and those that are counted with it, may be under way."""
    if purpose in _KEEPING:
        return MAX_EXTENSIONS
    return MAX_RELEASES if purpose is Purpose.RELEASE else MAX_CALLS
