"""Polls the nodes once per interval, and streams the changes to all open pages.

However many streams are open, the nodes are polled once in an interval; and not at all while none is.  A
stream has no queue: it gets what has changed since the look that it heard of, or, where it was too slow
for that, all there is.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, final

from .. import ConfigurationError, LockError
from .._log import report
from .._view.changes import Picture, events, look_at
from .._view.overview import look
from .._view.values import Value, dumped, event_as_json, in_full, nodes_as_json
from . import table as tables

if TYPE_CHECKING:
    from .. import LockManager, Survey
    from .._view.overview import Overview

VERSION: Final = 2
"""Of the stream: a page that was loaded from an older server loads itself again."""

MAX_STREAMS: Final = 100
"""Streams that are open at the same time, at most."""

MAX_FOLLOWED: Final = 16
"""Locks whose own pages are open at the same time, at most: each is two questions more."""

REST: Final = 20
"""The time between two looks, as a multiple of the processor time that the last one took, at least."""

LONGEST_REST: Final = 60.0
"""Seconds between two looks, at most, however long one takes; unless more are asked for."""


KEEP_ALIVE: Final = 15.0
"""Seconds after which a stream without news sends a comment: proxies end what is silent, and a browser that
is gone is found by what cannot be sent to it."""

LINGER: Final = 5.0
"""Seconds for which looking goes on after the last stream, or the last one of a lock, has ended: pages are
loaded again."""

MAX_HISTORY: Final = 500
"""Events of one lock that are kept for pages that are opened later, at most."""

_COUNTERS: Final = ("held", "waiting", "acquired", "refused", "gave_up", "extended", "lost")
HAPPENED: Final = ("granted", "released", "handed over", "extended", "expired")


class TooManyError(Exception):
    """No further stream can be opened, or no page of a further lock; the message says which."""


@final
class Feed:
    """All that the streams of one page show."""

    def __init__(
        self, manager: LockManager, *, interval: float, quarantine: float | None = None, counted: bool = False
    ) -> None:
        """Look through `manager` every `interval` seconds; see `unavailable_for` for `quarantine`.

        With `counted` the page also shows what the manager itself has counted.
        """
        self._manager = manager
        self._interval = self._rest = interval
        self._quarantine = quarantine
        self._counted = counted
        self._streams = 0
        self._left = -math.inf
        """When the last stream was closed, by the loop's clock."""
        self._followed: dict[str, Followed] = {}
        self._looking: asyncio.Task[None] | None = None
        self._number = 0
        """Of the last look."""
        self._last: _Poll | None = None
        """None while no stream is open: what was seen then would say nothing of now."""
        self._looked = asyncio.Event()
        """Set at the next look."""
        self._closed = False
        self.name = secrets.token_hex(4)
        """Tells this feed's looks from those of an earlier process."""

    def open(
        self, name: str | None = None, heard: str = "", allowed: Callable[[], bool] = lambda: True
    ) -> Stream:
        """Open a stream, which also follows the lock `name`; the first one has the nodes looked at.

        `heard` is the ``id`` of the last event that an earlier stream of this page had; the stream ends when
        it is not `allowed` any more.

        Raises:
            TooManyError: as many are open as may be.
        """
        if self._streams >= MAX_STREAMS:
            raise TooManyError(f"{MAX_STREAMS} pages are open: close one")
        followed = None if name is None else self._follow(name)
        self._streams += 1
        self._loop = asyncio.get_running_loop()
        if self._looking is None and not self._closed:
            self._looking = Context().run(self._loop.create_task, self._look_again_and_again())
        return Stream(self, followed, self._numbered(heard), allowed)

    def left(self, followed: Followed | None) -> None:
        """Note that a stream was closed."""
        self._streams -= 1
        self._left = self._loop.time()
        if followed is not None:
            followed.pages -= 1
            followed.left = self._left

    def _numbered(self, heard: str) -> int:
        """Return the number of the look that an ``id`` is of; 0 when it is none of ours."""
        feed, _, number = heard.partition("-")
        ours = feed == self.name and number.isdecimal() and len(number) <= len(str(self._number))
        return int(number) if ours and int(number) <= self._number else 0

    def _follow(self, name: str) -> Followed:
        followed = self._followed.get(name)
        if followed is None:
            if len(self._followed) >= MAX_FOLLOWED:
                self._forget_pages(math.inf)
            if len(self._followed) >= MAX_FOLLOWED:
                raise TooManyError(f"the pages of {MAX_FOLLOWED} locks are open: close one")
            followed = self._followed[name] = Followed(name)
        followed.pages += 1
        return followed

    def _forget_pages(self, before: float) -> None:
        """Follow no longer what no page has shown since then."""
        for name, each in tuple(self._followed.items()):
            if not each.pages and each.left < before:
                del self._followed[name]

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._looked.set()
        if self._looking is not None:
            self._looking.cancel()

    async def heard_of(self, number: int) -> _Poll | None:
        """Return the last look; wait for one that comes after look `number`.  None at the end."""
        while not self._closed and (self._last is None or self._last.number <= number):
            await self._looked.wait()
        return None if self._closed else self._last

    async def look_first(self, followed: Followed, number: int) -> None:
        """Look at a lock whose page was opened after look `number`: until the next it would show nothing."""
        with suppress(ConfigurationError, LockError):  # the next look says so
            await followed.poll(self._manager, number, again=False)

    async def _look_again_and_again(self) -> None:
        loop = asyncio.get_running_loop()
        self._number += 1  # what the first look is compared with is nothing that a stream has heard of
        try:
            while self._streams or loop.time() < self._left + LINGER:
                began = time.thread_time()
                self._forget_pages(loop.time() - LINGER)
                self._last = await self._look()
                looked, self._looked = self._looked, asyncio.Event()
                looked.set()
                used = time.thread_time() - began
                self._rest = max(self._interval, min(LONGEST_REST, REST * used))
                await asyncio.sleep(self._rest)
        finally:
            self._looking = self._last = None
            self._forget_pages(math.inf)

    async def _look(self) -> _Poll:
        self._number += 1
        before = self._last or _NOTHING
        clock = asyncio.get_running_loop().time
        try:
            for followed in tuple(self._followed.values()):
                await followed.poll(self._manager, self._number)
            began = clock()
            overview = await look(
                self._manager, quarantine=self._quarantine, queues=True, limit=tables.MAX_ROWS
            )
            if overview.survey is None:
                return before.problem(self._number, overview.problem)
            missing = [name for name in tables.not_found(overview, before.table) if self._may_be_ours(name)]
            again = await self._manager.survey(*missing) if missing else None
            return await self._found(overview, before, again, clock() - began)
        except (ConfigurationError, LockError) as error:
            return before.problem(self._number, str(error))
        except Exception as error:  # noqa: BLE001 (a page that stands still would be taken for locks that do)
            report(logging.ERROR, "the dashboard could not poll the nodes", exc_info=error)
            return before.problem(self._number, "the nodes could not be polled: the log says why")

    def _may_be_ours(self, name: str) -> bool:
        try:
            self._manager.lock(name)
        except ValueError:
            return False  # another program's key, that no lock can have
        return True

    async def _found(self, overview: Overview, before: _Poll, again: Survey | None, took: float) -> _Poll:
        table = await tables.table(overview, before.table, again, took)
        change = await tables.change(before.table, table)
        happened = change.happened if before.head else {}
        survey, counted = overview.survey, self._manager.statistics() if self._counted else None
        assert survey is not None, "a problem is reported elsewhere"
        head = {
            "version": VERSION,
            "at": survey.at,
            "interval": self._rest,
            **nodes_as_json(overview),
            "up": overview.up,
            "disagreement": overview.disagreement,
            "truncated": table.truncated,
            "total": len(table.rows),
            "waiting": sum(len(queue.waiters) for queue in overview.queues.values()),
            "since_last": {what.replace(" ", "_"): happened.get(what, 0) for what in HAPPENED},
            "manager": None if counted is None else {name: getattr(counted, name) for name in _COUNTERS},
        }
        changes = {"head": head, "locks": change.changed, "gone": change.gone}
        return _Poll(self._number, table, head, as_event("change", changes))


@final
class Stream:
    """The stream of one page."""

    def __init__(
        self, feed: Feed, followed: Followed | None, heard: int, allowed: Callable[[], bool]
    ) -> None:
        self._feed = feed
        self._followed = followed
        self._heard = heard
        self._allowed = allowed
        self._over = self._closed = False

    async def next(self) -> str | None:
        """Wait until there is something new, and return it as server-sent events; None at the end."""
        text = None if self._over else await self._news()
        if text is None or self._allowed():
            return text
        self._over = True
        return as_event("signed-out", {})

    async def _news(self) -> str | None:
        try:
            async with asyncio.timeout(KEEP_ALIVE):
                last = await self._feed.heard_of(self._heard)
        except TimeoutError:
            return ": nothing new\n\n"
        if last is None:
            return None
        text = last.change if self._heard == last.number - 1 else last.whole
        if self._followed is not None:
            await self._feed.look_first(self._followed, last.number)
            text += self._followed.message(self._heard, last.number)
        self._heard = last.number
        # A stream that is opened again says which look it heard of last.
        return f"{text[:-1]}id: {self._feed.name}-{last.number}\n\n"

    def close(self) -> None:
        """Let go of it."""
        if not self._closed:
            self._closed = True
            self._feed.left(self._followed)

    __del__ = close
    """An answer that was never sent."""


@final
class _Poll:
    """The findings of one look, as they are sent."""

    def __init__(
        self, number: int, table: tables.Table, head: Mapping[str, Any], change: str, problem: str = ""
    ) -> None:
        self.number = number
        self.table = table
        self.head = head
        self.change = change
        """For those that heard of the look before."""
        self._problem = problem

    @functools.cached_property
    def whole(self) -> str:
        """For all others: made once, and only if there are such."""
        state = as_event("state", {"head": self.head, "locks": self.table.rows}) if self.head else ""
        return state + self._problem

    def problem(self, number: int, detail: str) -> _Poll:
        """Return the look that found nothing out: what was seen before stays, and is known to be old."""
        problem = as_event("problem", {"detail": detail})
        return _Poll(number, self.table, self.head, problem, problem)


_NOTHING: Final = _Poll(0, tables.NOTHING_YET, {}, "")


@final
class Followed:
    """One lock whose page is open."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pages = 0
        self.left = 0.0
        """When the last page that showed it was closed, by the loop's clock."""
        self._seen: Picture | None = None
        self._lock: Value | None = None
        self._history: deque[tuple[int, Value]] = deque(maxlen=MAX_HISTORY)
        """All that has happened, each with the number of the look that saw it."""
        self._looking = asyncio.Lock()
        """One look and the next are compared: they are made one after the other."""

    async def poll(self, manager: LockManager, number: int, *, again: bool = True) -> None:
        """Look at it, and note what has happened since the last time; not `again`: unless that was done."""
        async with self._looking:
            if self._seen is not None and not again:
                return
            try:
                at, lock, queue, now = await look_at(manager, self.name)
            except ValueError:
                return  # another program's key: no lock of ours can have such a name, and the table shows it
            now = now if self._seen is None else now.on(self._seen)
            self._history += ((number, event_as_json(each, at)) for each in events(self._seen, now))
            self._seen, self._lock = now, in_full(lock, at, queue)

    def message(self, heard: int, last: int) -> str:
        """Return how it is, and what has happened to it since look `heard`, until look `last`."""
        if self._lock is None:
            return ""
        happened = [each for number, each in self._history if heard < number <= last]
        return as_event("lock", {"name": self.name, "lock": self._lock, "happened": happened})


def as_event(name: str, data: object) -> str:
    """Return one server-sent event (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    return f"event: {name}\ndata: {dumped(data)}\n\n"
