"""Shared by the web integrations: the wait for a lock, its end, the HTTP answer to a lock error."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, final

from .. import (
    ConfigurationError,
    Lease,
    Lock,
    LockError,
    LockLostError,
    LockManager,
    LockTakenError,
    LossReason,
    ManagerClosedError,
    QuorumUnavailableError,
)
from .._locks.template import sample_name
from .._log import report
from .._settings.options import LockedOptions

UNAVAILABLE_RETRY: Final = 1
"""Seconds in the Retry-After of a 503: nodes are tried again within about that time."""

MISCONFIGURED: Final = "locking is unavailable: its nodes or names are misconfigured"
"""The reason, for a client, of a `ConfigurationError` at run time; which it is, and why, is in the log."""

LONGEST_WAIT: Final = 20.0
"""Seconds for which a request waits unless it says otherwise: a server that stops waits for its requests, and
is killed after 30 s by Kubernetes.  The key of a holder that died has gone by then, with the default ttl."""

LOOK_AFTER: Final = 0.5
"""Seconds of waiting after which it is noticed when the client leaves: most waits end earlier."""

GONE: Final = 499
"""The status where the client has left while its request waited, as nginx has it: for logs."""

_SMALLEST_TIMEOUT: Final = 1e-6
"""Seconds: a `node_timeout` below any sensible ttl, for checking options without a manager."""


PERMIT_RETRY: Final = 1
"""Seconds in the Retry-After where all permits are taken: when the next becomes free is not known, and their
leases' ends say little, since each may be given back at any moment."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The response to a request whose lock is taken."""

    status: int = HTTPStatus.CONFLICT
    retry_after: float | None = None
    """Seconds, as the application has it; None: as the lock has it."""
    permits: bool = False

    @property
    def detail(self) -> str:
        """The reason, for the client."""
        return "all permits are taken" if self.permits else "locked by another request"

    def wait(self, until_free: float | None) -> int | None:
        """Return the seconds to tell the client; `until_free` is what the nodes said."""
        wait = self.retry_after
        if wait is None:
            wait = PERMIT_RETRY if self.permits else until_free
        # Whole seconds, rounded up: an earlier request finds it locked. Unless its holder extends it.
        return None if wait is None else max(1, math.ceil(wait))


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """The HTTP answer to a request whose lock could not be acquired, or was lost.

    It tells the client nothing about nodes, holders or names: those are in the log and in the error.
    """

    status: int
    detail: str
    retry_after: int | None
    """Seconds; None when it is not known."""

    @property
    def headers(self) -> dict[str, str]:
        """The ``Retry-After`` header, if there is one."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


LOCKED: Final = Taken()
"""The response for locks that the application takes itself."""


def refusal(error: LockError | ConfigurationError, *, taken: Taken = LOCKED) -> Refusal | None:
    """Return the answer for a lock error; None for one that is a bug of the server's own."""
    if isinstance(error, LockTakenError):
        return Refusal(int(taken.status), taken.detail, taken.wait(error.retry_after))
    if isinstance(error, ConfigurationError):
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, MISCONFIGURED, None)
    if isinstance(error, QuorumUnavailableError) and error.retry_after is not None:
        wait = math.ceil(error.retry_after)
        why = "nodes may have lost locks (restart quarantine)"
        detail = f"locking is unavailable for another {wait} s: {why}"
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail, wait)
    if isinstance(error, (QuorumUnavailableError, ManagerClosedError)):
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "locking is unavailable", UNAVAILABLE_RETRY)
    if isinstance(error, LockLostError):
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the lock was lost", UNAVAILABLE_RETRY)
    return None


def log_refusal(where: str, error: LockError | ConfigurationError) -> None:
    """Log why the requests of a route get no lock, if that is a matter of nodes and not of other requests."""
    if isinstance(error, (QuorumUnavailableError, ConfigurationError)):
        report(logging.WARNING, "%s: %s", where, error, lock=getattr(error, "names", ()))


@final
class ClientGone(Exception):  # noqa: N818 (nothing is wrong)
    """The client has left while its request waited for a lock."""


@asynccontextmanager
async def while_there(left: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Wait for a lock in the block, which is cancelled when `left` returns: the client has gone.

    Raises:
        ClientGone: instead of that cancellation; where the lock was acquired meanwhile, as well.
    """
    watchers: list[asyncio.Task[None]] = []
    context = copy_context()  # middlewares may read from it

    async def watch() -> None:
        await left()
        waiting.reschedule(0)  # a moment that has passed

    def begin() -> None:
        watchers.append(asyncio.create_task(watch(), context=context))

    try:
        async with asyncio.timeout(None) as waiting:
            timer = asyncio.get_running_loop().call_later(LOOK_AFTER, begin, context=context)
            try:
                yield
            finally:
                timer.cancel()
                for watcher in watchers:
                    watcher.cancel()
                    await asyncio.wait([watcher])  # nothing else may read from the request until then
    except TimeoutError:
        if waiting.expired():
            raise ClientGone from None
        raise


def end_last(held: AsyncExitStack, stack: AsyncExitStack) -> None:
    """Have `held` end after everything that `stack` ends: a session that commits at its end, for one."""
    held.push_async_exit(stack.pop_all())
    stack.push_async_exit(held.pop_all())


async def check_at_end(lease: Lease, *outcome: object) -> None:
    """Raise at the end of an endpoint whose lock was lost, while there is no answer yet.

    Exit stacks may call it: with an error of the endpoint as `outcome`, that one goes on.

    Raises:
        LockLostError: it was lost, and not released by the endpoint itself.
    """
    if any(outcome):
        return
    try:
        lease.check()
        if lease.lost.is_set():  # though its time is not quite over
            await lease.extend()  # raises, without I/O
    except LockLostError as loss:
        if loss.reason is not LossReason.RELEASED:
            raise


def complete(keys: tuple[str | Callable[..., object], ...], options: LockedOptions) -> str:
    """Add the defaults of the options of a request's lock; refuse what could not work at any request.

    Returns:
        The default label, by which the lock is called.
    """
    called = label_of(*keys)
    if options.get("label") is None:
        options["label"] = called
    if options.get("blocking", True):
        options.setdefault("blocking_timeout", LONGEST_WAIT)
    check_options(keys, options)
    return called


def taken_of(status_code: int, retry_after: float | None, permits: int | None) -> Taken:
    """Return the response for a taken lock; refuse a status that tells the client nothing went wrong."""
    if not 400 <= status_code <= 599:  # noqa: PLR2004 (HTTP's errors)
        raise ValueError(f"status_code must be an error, 400 to 599, got {status_code!r}")
    if retry_after is not None and not (math.isfinite(retry_after) and retry_after > 0):
        raise ValueError(f"retry_after must be a number of seconds above 0, or None, got {retry_after!r}")
    return Taken(status=status_code, retry_after=retry_after, permits=permits is not None)


def label_of(*keys: str | Callable[..., object]) -> str:
    """Return the default label: the templates, and the names of the functions that make names."""
    labels: list[str] = []
    for key in keys:
        while isinstance(key, functools.partial):
            key = key.func  # noqa: PLW2901 (the function inside)
        labels.append(key if isinstance(key, str) else getattr(key, "__qualname__", type(key).__qualname__))
    return ", ".join(labels)


def lock_or_none(manager: LockManager, names: Iterable[str], options: LockedOptions) -> Lock | None:
    """Describe the lock of a request; None when no lock can have such a name, which is the client's fault.

    Raises:
        TypeError, ValueError: when the options are at fault, which is no client's.
    """
    try:
        return manager._lock_of(*names, **options)  # noqa: SLF001
    except ValueError:
        manager._lock_of("any", **options)  # noqa: SLF001
        return None


def check_options(keys: Iterable[str | Callable[..., object]], options: LockedOptions) -> None:
    """Refuse what the manager would refuse, where it is written (a ttl of -1, an empty name, …)."""
    manager = LockManager(["redis://any"], node_timeout=_SMALLEST_TIMEOUT)
    # Each function makes a name of its own.
    samples = (sample_name(key) if isinstance(key, str) else f"any {n}" for n, key in enumerate(keys))
    manager._lock_of(*samples, **options)  # noqa: SLF001
