"""Log lines from the background, where nobody could take an exception."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

log = logging.getLogger("aioredlock_ng")


def report(level: int, message: str, *args: object, **options: Any) -> None:
    """Log, whatever a user's filter or handler does: a failing one must not cost a lock."""
    with suppress(Exception):
        log.log(level, message, *args, **options)
