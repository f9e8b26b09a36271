"""``aioredlock-ng init``."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ._terminal import Line, ask, printable, show
from .common import (
    FAILED,
    QUARANTINE_VARIABLE,
    UNAVAILABLE,
    UsageError,
    add_node_options,
    add_quarantine_option,
    make_manager,
    quarantine_of,
    with_quarantine,
)

if TYPE_CHECKING:
    from .. import NodeInitialisation

DESCRIPTION: Final = """\
States that no lock can be alive under the prefix, so that all nodes may vote at once.

A node without data, or with the data of another server, has no vote for the restart quarantine: it may
have lost a lock that is still held.  Only you know that new nodes have lost no such lock.  Run it

  - before the first use of fresh nodes, or of a new prefix;
  - with --force after a change of the list of nodes, when all clients have been stopped for the longest
    ttl: until then a client refuses to work when its list differs from that of the clients before it.

It first looks for locks on the nodes (SCAN), and for nodes that belong to a quorum of another size.  When it
finds one, or cannot find out, it changes nothing.  It cannot see locks that the nodes have lost: if one is
alive, two clients may hold it at once.  Fences continue to grow in any case.

Exit code 0 when all nodes were initialised; 69 when some were not, or too few answered: run it again when
they can be reached; 1 when nothing was changed for another reason; 2 when the nodes cannot form one
quorum."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="skip the checks for locks and for another quorum: you know that none of them is in use",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_node_options(parser)
    add_quarantine_option(parser, f"default: {QUARANTINE_VARIABLE}; else 60 with three nodes or more, else 0")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from .. import LockNotAcquiredError, QuorumUnavailableError

    manager = make_manager(arguments, **with_quarantine(quarantine_of(arguments)))
    nodes: Sequence[NodeInitialisation] = ()
    refusal, code = None, 0
    try:
        nodes = ask(manager, manager.init(force=arguments.force))
    except UsageError as error:
        raise UsageError(f"{error} (--force)") if "force it" in str(error) else error from None
    except LockNotAcquiredError as error:
        # Too few nodes answered, which the votes show: no reason to force it, but to run it again.
        unreached = isinstance(error, QuorumUnavailableError) and error.votes
        refusal, code = (str(error), UNAVAILABLE) if unreached else (f"{error} (or --force)", FAILED)
        print(f"aioredlock-ng init: {refusal}", file=sys.stderr)
    show(arguments, {"nodes": [dataclasses.asdict(node) for node in nodes]}, _lines(nodes), refusal)
    return code if all(node.done for node in nodes) else UNAVAILABLE


def _lines(nodes: Sequence[NodeInitialisation]) -> list[Line]:
    """Return a line for each node, and what to do about those that were left out."""
    lines = []
    for node in nodes:
        what = "initialised" if node.done else f"not initialised: {printable(node.reason)}"
        lines.append(Line(f"{printable(node.node)}  {what}", "ok" if node.done else "error"))
    return lines
