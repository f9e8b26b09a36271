"""What the web integrations share: which HTTP answer a lock error is, and names from templates."""

from __future__ import annotations

import math
import string
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, final

from .. import (
    LockError,
    LockLostError,
    LockManager,
    LockTakenError,
    ManagerClosedError,
    QuorumUnavailableError,
)

UNAVAILABLE_RETRY: Final = 1
"""Seconds in the Retry-After of a 503: nodes are tried again within about that time."""

MAX_NAME_BYTES: Final = 1024
"""Bytes of a lock name; a longer one that a request asks for is the request's fault."""

_SMALLEST_TIMEOUT: Final = 1e-6
"""Seconds: a `node_timeout` below any sensible ttl, for checking options without a manager."""


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """The HTTP answer to a request whose lock could not be had, or was lost.

    It tells the client nothing about nodes, holders or names: those are in the log and in the error.
    """

    status: int
    detail: str
    retry_after: int | None
    """Seconds; None when nobody knows."""

    @property
    def headers(self) -> dict[str, str]:
        """The ``Retry-After`` header, if there is one."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def refusal(error: LockError, *, taken: int = HTTPStatus.CONFLICT) -> Refusal | None:
    """Return the answer for a lock error; None for one that is a bug of the server's own."""
    if isinstance(error, LockTakenError):
        # Whole seconds, rounded up: who comes earlier finds it locked. Unless its holder extends it.
        wait = None if error.retry_after is None else max(1, math.ceil(error.retry_after))
        return Refusal(int(taken), "locked by another request", wait)
    if isinstance(error, (QuorumUnavailableError, ManagerClosedError)):
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "locking is unavailable", UNAVAILABLE_RETRY)
    if isinstance(error, LockLostError):
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the lock was lost", UNAVAILABLE_RETRY)
    return None


def check_options(options: dict[str, Any], *, name: str = "any") -> None:
    """Refuse what `LockManager.lock` would refuse, where it is written (a ttl of -1, an empty name, …)."""
    LockManager(["redis://any"], node_timeout=_SMALLEST_TIMEOUT).lock(name, **options)


def check_template(template: str) -> tuple[str, ...]:
    """Refuse a template that is malformed or has a field without a name; return the parameters it names.

    Raises:
        ValueError: says which field.
    """
    names: list[str] = []
    for _, field, spec, _ in string.Formatter().parse(template):
        if field is None:
            continue
        name = field.partition(".")[0].partition("[")[0]
        if not name.isidentifier():
            raise ValueError(
                f"template {template!r}: every field needs the name of a parameter, got {{{field}}}"
            )
        names += [name, *check_template(spec or "")]  # such as {number:{width}}
    return tuple(names)
