"""Futures that tasks wait for: True when what is awaited has come, False when the waiting is over."""

from __future__ import annotations

import asyncio


def ring(future: asyncio.Future[bool]) -> None:
    """Tell who waits, unless that is over, that it has come."""
    if not future.done():
        future.set_result(True)


def give_up(future: asyncio.Future[bool]) -> None:
    """End the waiting, unless it is over."""
    if not future.done():
        future.set_result(False)
