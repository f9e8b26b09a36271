"""``aioredlock-ng release``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from .._view.overview import look
from .._view.releasing import Agreed, Outcome, gone, release, too_few
from .._view.values import lock_as_json
from ._overview import described_holders, lock_lines
from ._terminal import Line, ask, printable, show, write
from .common import FAILED, UNAVAILABLE, UsageError, add_node_options, make_manager

DESCRIPTION: Final = """\
Shows the holder of the lock NAME, or all its readers, asks for confirmation, and deletes the lock on all
nodes.

Use it for locks that are never released: one without expiry, or one with a long ttl whose holder is dead.
A holder that is alive is not notified.  It continues until its next extension is refused, and meanwhile
another client may acquire the lock.  Fences continue to grow: a resource that checks them refuses the
earlier holder.

When the lock has another holder, or other readers, by the time you answer, it is not deleted.

Exit code 0 when a majority of the nodes has deleted it, or when it was free; 1 when it was not deleted;
69 when too few nodes answered."""

_QUESTION: Final = "The holder is not notified. Delete the lock on all nodes? [y/N] "
_YES: Final = ("y", "yes")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_node_options(parser)
    parser.add_argument("name", metavar="NAME", help="the name of the lock")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if not (arguments.yes or (sys.stdin is not None and sys.stdin.isatty())):
        raise UsageError(
            "release: the standard input is not a terminal, so there is no way to ask: give --yes"
        )
    outcome = _release(arguments)
    error = None if outcome.refused in ("", "free") else outcome.detail
    if error is not None:
        print(f"aioredlock-ng release: {error}", file=sys.stderr)
    nodes = [
        {"node": node.node, "done": gone(node), "reason": "" if gone(node) else node.reason}
        for node in outcome.nodes
    ]
    fields = {"lock": lock_as_json(outcome.lock), "nodes": nodes}
    show(arguments, fields, _lines(outcome) if error is None else (), error)
    if outcome.refused == "too few" or (outcome.nodes and not outcome.done):
        return UNAVAILABLE
    return 0 if error is None else FAILED


def _lines(outcome: Outcome) -> list[Line]:
    """Return a line for the lock, and one for each node that was not reached."""
    lock = outcome.lock
    name = f"lock {printable(lock.name)}"
    if outcome.refused == "free":
        return [Line(f"{name} is free", "ok")]
    holder = f", held by {printable(lock.holder)}" if lock.holder is not None else ""
    if lock.shared or lock.permits:
        holder = f", held by {described_holders(lock)}"
    text = f"{name}{holder}: deleted on {outcome.deleted} of {len(outcome.nodes)} nodes"
    left = [f"  {printable(node.node)}  {printable(node.reason)}" for node in outcome.nodes if not gone(node)]
    return [Line(text, "ok" if outcome.done else "error"), *(Line(each, "warning") for each in left)]


def _release(arguments: argparse.Namespace) -> Outcome:
    agreed = None
    if not arguments.yes:
        manager = make_manager(arguments)
        seen = ask(manager, look(manager, (arguments.name,)))
        if seen.survey is None:
            raise UsageError(seen.problem)
        # Without a majority the lock is not known well enough for a question.
        if (few := too_few(seen)) is not None:
            return few
        (lock,) = seen.survey.locks
        # The question may be open for hours: what is agreed to is the end of this holder's lock.
        agreed = Agreed.of(lock)
        if lock.state != "free":
            # Beside the output, which may be for a program.
            write(lock_lines(seen.survey), sys.stderr)
            print(_QUESTION, end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in _YES:
                return Outcome(lock=lock, refused="called off", detail="nothing was changed")
    manager = make_manager(arguments)
    return ask(manager, release(manager, arguments.name, agreed))
