"""``aioredlock-ng status``."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from .common import (
    UNAVAILABLE,
    UsageError,
    add_node_options,
    clients_quarantine,
    closing,
    document,
    make_manager,
)

if TYPE_CHECKING:
    from .common import Subcommands


def add(commands: Subcommands) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "status",
        help="show the nodes and the locks, each with its holder and since when",
        description="Shows the nodes, and every lock under the prefix: its kind, its holder, since when it "
        "is held (by the holder's clock), how long it lives unless it is extended, and on how many "
        "nodes. Readers that share a lock have a line each, the first 100 of them. For fair locks "
        "that are named, the queue is shown in its order. To find the locks, all keys of the nodes "
        "are searched (SCAN). Exit code 0, or 69 when no majority of the nodes answered, or none "
        "could grant a lock now.",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="show only these locks, also free ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_node_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from .._view.overview import look
    from .._view.values import overview_as_json
    from ._overview import as_lines
    from ._terminal import output, quiet, write

    manager, quarantine = make_manager(arguments), clients_quarantine()
    with quiet():
        try:
            seen = look(manager, arguments.names, quarantine=quarantine, queues=bool(arguments.names))
            overview = asyncio.run(closing(manager, seen))
        except ValueError as error:
            raise UsageError(str(error)) from None
    if overview.survey is None:
        raise UsageError(overview.problem)
    with output() as stream:
        if arguments.json:
            print(document("status", overview_as_json(overview)), file=stream)
        else:
            write(as_lines(overview), stream)
    fine = overview.answered >= overview.quorum and overview.unavailable_for == 0
    return 0 if fine else UNAVAILABLE
