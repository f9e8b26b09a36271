"""``aioredlock-ng trace``."""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

from .._view.changes import Event, Picture, events, look_at
from .._view.values import event_as_json
from ._overview import label, moment
from ._terminal import Line, ask, output, printable, write
from .common import FORMAT, SIGNALLED, UsageError, add_node_options, add_time, make_manager, until_signal

if TYPE_CHECKING:
    from .. import LockManager

DESCRIPTION: Final = """\
Follows one lock and prints a line for each thing that happens: granted, extended, handed over, released (a
forced release looks the same), expired; processes that join or leave the queue; nodes that are silent, or
differ.  It polls the nodes and reports what a majority of them shows: changes shorter than the polling
interval, and hand-offs between tasks of one process, may be missed.

Ends with Ctrl-C (exit code 130), or after --for (0)."""

_SHORTEST: Final = 0.05
_LONGEST: Final = 60.0
"""Seconds between two looks."""

_STYLES: Final = {"expired": "warning", "silent": "warning", "differs": "warning"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("name", metavar="NAME", help="the lock, whether it is held or not")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    interval = "polling interval; each time every node gets two requests (default: %(default)s s)"
    add_time(parser, "--interval", help=interval, default=0.2)
    add_time(parser, "--for", help="stop after this time", dest="seconds")
    add_node_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if not _SHORTEST <= arguments.interval <= _LONGEST:
        allowed = f"between {_SHORTEST:g} and {_LONGEST:g} seconds"
        raise UsageError(f"--interval must be {allowed}, got {arguments.interval:g}")
    manager = make_manager(arguments)
    ended_by = None  # where its output is not read any more
    with output() as stream:
        ended_by = ask(manager, until_signal(_follow(manager, arguments, stream), arguments.seconds))
    return 0 if ended_by is None else SIGNALLED + ended_by  # as shells have it


async def _follow(manager: LockManager, arguments: argparse.Namespace, stream: TextIO) -> None:
    """Look again and again, and print what has happened meanwhile."""
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
    fields = event_as_json(event, at)
    return json.dumps(
        {"version": FORMAT, "command": "trace", "event": fields.pop("what"), **fields}, allow_nan=False
    )


def _as_line(event: Event, at: float) -> Line:
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
