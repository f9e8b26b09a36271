"""Log lines, most of them from the background, where nothing could take an exception."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("aioredlock_ng")


debugging = functools.partial(log.isEnabledFor, logging.DEBUG)
"""Whether lines that only a debugger of locks wants are logged; no function of ours, for the hot path."""


def report(
    level: int,
    message: str,
    *args: object,
    lock: Sequence[str] = (),
    node: str | None = None,
    fence: int | None = None,
    kind: str | None = None,
    exc_info: BaseException | tuple[type[BaseException], BaseException, TracebackType | None] | None = None,
) -> None:
    """Log, whatever a user's filter or handler does: a failing one must not cost a lock.

    Every record has the attributes ``lock`` (its names, separated by commas), ``kind`` (of that lock, as in
    `events.Acquired`), ``node`` and ``fence``, None where it is not about one, so that a handler's format may
    name them.
    """
    names = ", ".join(map(_one_line, lock)) or None
    extra = {"lock": names, "kind": kind, "node": node, "fence": fence or None}
    with suppress(Exception):
        log.log(level, message, *args, extra=extra, exc_info=exc_info, stacklevel=2)


def _one_line(name: str) -> str:
    """Return a lock's name as it is, unless it could end a line or disguise it."""
    return name if name.isprintable() else ascii(name)[1:-1]
