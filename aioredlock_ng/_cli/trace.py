"""``aioredlock-ng trace``."""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

from .common import (
    FORMAT,
    SIGNALLED,
    UsageError,
    add_node_options,
    closing,
    duration,
    make_manager,
    until_signal,
)

if TYPE_CHECKING:
    from .. import LockManager
    from .._view.changes import Event, Picture
    from ._terminal import Line
    from .common import Subcommands

_SHORTEST: Final = 0.05
_LONGEST: Final = 60.0
"""Seconds between two looks."""

_STYLES: Final = {"expired": "warning", "silent": "warning", "differs": "warning"}


def add(commands: Subcommands) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "trace",
        help="follow one lock and print what happens to it",
        description="Follows one lock and prints a line for each thing that happens: granted, extended, "
        "handed over, released (a forced release looks the same), expired; processes that join or leave the "
        "queue; nodes that are silent, or differ. It polls the nodes and reports what a majority of "
        "them shows: changes shorter than the polling interval, and hand-offs between tasks of one "
        "process, may be missed. Ends with Ctrl-C (exit code 130), or after --for (0).",
    )
    parser.add_argument("name", metavar="NAME", help="the lock, whether it is held or not")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument(
        "--interval",
        type=duration,
        default=0.2,
        metavar="TIME",
        help="polling interval; each time every node gets two requests (default: %(default)s s)",
    )
    parser.add_argument("--for", dest="seconds", type=duration, metavar="TIME", help="stop after this time")
    add_node_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from .. import ConfigurationError
    from ._terminal import output, quiet

    if not _SHORTEST <= arguments.interval <= _LONGEST:
        allowed = f"between {_SHORTEST:g} and {_LONGEST:g} seconds"
        raise UsageError(f"--interval must be {allowed}, got {arguments.interval:g}")
    manager, ended_by = make_manager(arguments), None
    with quiet(), output() as stream:
        try:
            following = until_signal(_follow(manager, arguments, stream), arguments.seconds)
            ended_by = asyncio.run(closing(manager, following))
        except (ConfigurationError, ValueError) as error:
            raise UsageError(str(error)) from None
    return 0 if ended_by is None else SIGNALLED + ended_by  # as shells have it


async def _follow(manager: LockManager, arguments: argparse.Namespace, stream: TextIO) -> None:
    """Look again and again, and print what has happened meanwhile."""
    from .._view.changes import events, look_at
    from ._terminal import write

    before: Picture | None = None
    while True:
        at, _, _, now = await look_at(manager, arguments.name)
        now = now if before is None else now.on(before)
        happened = events(before, now)
        if happened and arguments.json:
            stream.writelines(_as_json(event, at) + "\n" for event in happened)
            stream.flush()
        elif happened:
            write([_as_line(event, at) for event in happened], stream)
        before = now
        await asyncio.sleep(arguments.interval)


def _as_json(event: Event, at: float) -> str:
    from .._view.values import event_as_json

    fields = event_as_json(event, at)
    return json.dumps(
        {"version": FORMAT, "command": "trace", "event": fields.pop("what"), **fields}, allow_nan=False
    )


def _as_line(event: Event, at: float) -> Line:
    from ._overview import label, moment
    from ._terminal import Line, printable

    words = []
    if event.node is not None:
        words.append(printable(event.node))
        words += [printable(event.reason)] if event.reason else []
    elif event.what != "free":
        handed = f"{label(event.before)} → " if event.what == "handed over" else ""
        words.append(handed + label(event.holder))
        words += [event.kind] if event.kind else []
        words += [f"slot {event.slot}"] if event.slot is not None else []
        words += [f"place {event.place}"] if event.place is not None else []
        words += [f"since {moment(event.since, at)}"] if event.since is not None else []
        words += [f"{event.ttl:.1f} s left"] if event.ttl is not None else []
    local = datetime.fromtimestamp(at, UTC).astimezone()
    clock = f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}"
    return Line(f"{clock}  {event.what:<11}  {', '.join(words)}".rstrip(), _STYLES.get(event.what, ""))
