"""``aioredlock-ng watch``."""

from __future__ import annotations

import argparse
import asyncio
import functools
import signal
from typing import TYPE_CHECKING, Final

from .._view.overview import look
from ._overview import as_lines
from ._terminal import ask, output, screen
from .common import (
    SIGNALLED,
    UsageError,
    add_node_options,
    add_time,
    clients_quarantine,
    make_manager,
    until_signal,
)

if TYPE_CHECKING:
    from .. import LockManager

DESCRIPTION: Final = """\
Shows what `status` shows, repeatedly, until it is interrupted.  On a terminal a lock that readers share has
one line for all of them.  A fair lock has one line with the number of its waiters (for the first 16 fair
locks by name; each costs a round trip)."""

_SHORTEST: Final = 0.1
"""Seconds between two looks: every look walks through all keys of all nodes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_time(parser, "--interval", default=1.0, help="polling interval (default: %(default)s s)")
    add_node_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.interval < _SHORTEST:
        raise UsageError(f"--interval must be at least {_SHORTEST:g} seconds, got {arguments.interval:g}")
    manager, quarantine = make_manager(arguments), clients_quarantine()
    ended_by = ask(manager, until_signal(_show(manager, arguments.interval, quarantine)))
    # Ctrl-C is the ordinary end, and so is a reader that left.
    return SIGNALLED + signal.SIGTERM if ended_by == signal.SIGTERM else 0


async def _show(manager: LockManager, interval: float, quarantine: float | None) -> None:
    with output() as stream, screen(stream) as show:
        while True:
            overview = await look(manager, quarantine=quarantine, queues=True)
            show(functools.partial(as_lines, overview))
            await asyncio.sleep(interval)
