"""``aioredlock-ng status``."""

from __future__ import annotations

import argparse
from typing import Final

from .._view.values import overview_as_json
from ._choice import add_choice, look_for
from ._overview import as_lines
from ._terminal import ask, show
from .common import UNAVAILABLE, UsageError, add_node_options, clients_quarantine, make_manager

DESCRIPTION: Final = """\
Shows the nodes, and every lock under the prefix: its kind, its holder, since when it is held (by the holder's
clock), how long it lives unless it is extended, and on how many nodes.  Readers that share a lock have a line
each, the first 100 of them.  So have the processes in the queue of a fair lock, in their order, and waiting
writers, of the locks that are named, or else of the first 16 that can have some.  To find the locks, all
keys of the nodes are searched (SCAN), but not for plain names.

Exit code 0, or 69 when no majority of the nodes answered, or none could grant a lock now."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_choice(parser, "show only these locks, also free ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_node_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    manager, quarantine = make_manager(arguments), clients_quarantine()
    overview = ask(manager, look_for(manager, arguments, quarantine=quarantine, queues=True))
    if overview.survey is None:
        raise UsageError(overview.problem)
    show(arguments, overview_as_json(overview), as_lines(overview))
    fine = overview.answered >= overview.quorum and overview.unavailable_for == 0
    return 0 if fine else UNAVAILABLE
