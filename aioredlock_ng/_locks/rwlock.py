"""The read-write lock, as users see it: a description of a read lock and a write lock (R20 to R23)."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack, final

from .._kinds.primitive import Primitive
from .._session.lifecycle import Lifecycle
from .._settings.options import (
    Renamed,
    Request,
    Seconds,
    TimeLimits,
    checked_blocking,
    not_negative,
    refuse_unknown,
    shows,
)
from ..errors import printable
from . import ASYNC_WITH, WITH, Uncopied, instead
from .lease import Lease
from .lock import Lock


@final
@instead("`async with manager.rwlock(…).read() as lease:`, or `.write()`", "__await__", *WITH, *ASYNC_WITH)
class ReadWriteLock(Renamed, Uncopied):
    """Readers together, or a writer alone; made by `LockManager.rwlock`, reusable and shareable as `Lock` is.

    A writer excludes `LockManager.lock` of the same names, too, and readers exclude it.
    """

    __slots__ = ("_life", "_read", "_request", "_write")

    def __init__(self, life: Lifecycle, read: Primitive, write: Primitive, request: Request) -> None:
        self._life = life
        self._read = read
        self._write = write
        self._request = request

    def __repr__(self) -> str:
        return f"<ReadWriteLock {printable(self.names)} ttl={self._request.ttl:g}s>"

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names, sorted and without duplicates."""
        return self._read.names

    def _limited(
        self,
        *,
        blocking: bool | None = None,
        blocking_timeout: Seconds | None = None,
        quorum_timeout: Seconds | None = None,
    ) -> Request:
        """Return the request, with the time limits of this call if it has any."""
        request = self._request
        if blocking is not None or blocking_timeout is not None:
            limit = checked_blocking(blocking is not False, blocking_timeout)
            request = replace(request, blocking_timeout=limit)
        if quorum_timeout is not None:
            request = replace(request, quorum_timeout=not_negative("quorum_timeout", quorum_timeout))
        return request

    @shows(TimeLimits, _limited)
    def read(self, **limits: Unpack[TimeLimits]) -> Lock:
        """Describe a read lock: many hold it at once, each with a lease and an expiry of its own.

        The time limits are those of `LockManager.lock`; by default as `LockManager.rwlock` was given them.
        ``blocking=True`` alone waits for ever.

        While a writer waits, new readers wait behind it.  A reader's fence is greater than the earlier
        writer's and smaller than the later one's; readers between two writers share it, or, seldom, a later
        one's is greater (R21).  A task that holds the lock gets `WouldDeadlockError` from `acquire`.
        """
        refuse_unknown("ReadWriteLock.read()", TimeLimits, limits)
        return Lock(self._life, self._read, self._limited(**limits))

    @shows(TimeLimits, _limited)
    def write(self, *, since: Lease | None = None, **limits: Unpack[TimeLimits]) -> Lock:
        """Describe a write lock: one holder alone.

        Args:
            since: a read lease of the same names, to be let go before this one is entered.  Then
                `Lease.unchanged` of the new lease tells whether no writer with a fence came between the two
                (R23): one of a manager without fencing, or of another library, is not seen.

        Raises:
            TypeError: `since` is no lease.
            ValueError: it is not a read lease of these names, or a manager of the two has ``fencing=False``.
        """
        refuse_unknown("ReadWriteLock.write()", TimeLimits, limits)
        request = self._limited(**limits)
        if since is None:
            return Lock(self._life, self._write, request)
        if not isinstance(since, Lease):
            raise TypeError(f"since must be a read lease, got {since!r}")
        if since.mode != "read" or since.names != self.names:
            raise ValueError(f"since must be a read lease of {printable(self.names)}, got {since!r}")
        if not (fence := since._holding.fence) or not self._write.fenced:  # noqa: SLF001 (`fence` raises)
            raise ValueError(
                f"since needs fences, and this manager has none (fencing=False): got {since!r} for {self!r}"
            )
        return Lock(self._life, self._write, request, since=fence)
