"""What the handlers of both servers do under the lock."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

FOLDER = Path(os.environ["MARKS"])
"""Shared by all servers: a file per key that a request is inside for."""


async def be_inside(key: str, seconds: float) -> None:
    """Fail if another request is inside for `key`; stay for a while."""
    mark = FOLDER / key
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # FileExistsError: two at once
    try:
        await asyncio.sleep(seconds)
    finally:
        mark.unlink()
