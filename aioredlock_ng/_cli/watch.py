"""``aioredlock-ng watch``."""

from __future__ import annotations

import argparse
import asyncio
import functools
import signal
from typing import TYPE_CHECKING, Final

from .common import (
    SIGNALLED,
    UsageError,
    add_node_options,
    clients_quarantine,
    closing,
    duration,
    make_manager,
    until_signal,
)

if TYPE_CHECKING:
    from .. import LockManager
    from .common import Subcommands

_SHORTEST: Final = 0.1
"""Seconds between two looks: every look walks through all keys of all nodes."""


def add(commands: Subcommands) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "watch",
        help="show the status repeatedly",
        description="Shows what `status` shows, repeatedly, until it is interrupted. On a terminal a lock "
        "that readers share has one line for all of them. A fair lock has one line with the number of its "
        "waiters (for the first 16 fair locks by name; each costs a round trip).",
    )
    parser.add_argument(
        "--interval",
        type=duration,
        default=1.0,
        metavar="TIME",
        help="polling interval (default: %(default)s s)",
    )
    add_node_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from ._terminal import quiet

    if arguments.interval < _SHORTEST:
        raise UsageError(f"--interval must be at least {_SHORTEST:g} seconds, got {arguments.interval:g}")
    manager, quarantine = make_manager(arguments), clients_quarantine()
    with quiet():
        showing = until_signal(_show(manager, arguments.interval, quarantine))
        ended_by = asyncio.run(closing(manager, showing))
    # Ctrl-C is the ordinary end, and so is a reader that left.
    return SIGNALLED + signal.SIGTERM if ended_by == signal.SIGTERM else 0


async def _show(manager: LockManager, interval: float, quarantine: float | None) -> None:
    from .._view.overview import look
    from ._overview import as_lines
    from ._terminal import output, screen

    with output() as stream, screen(stream) as show:
        while True:
            overview = await look(manager, quarantine=quarantine, queues=True)
            show(functools.partial(as_lines, overview))
            await asyncio.sleep(interval)
