"""``aioredlock-ng release``."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .._view.releasing import Agreed, Outcome, gone, release, too_few
from .._view.values import lock_as_json
from ._choice import add_choice, look_for, named
from ._overview import described_holders, lock_lines
from ._terminal import Line, ask, printable, show, write
from .common import FAILED, UNAVAILABLE, UsageError, add_node_options, make_manager

if TYPE_CHECKING:
    from .. import LockInspection, LockManager

DESCRIPTION: Final = """\
Shows the holder of each lock that is chosen, or all its readers, asks for confirmation, and deletes the locks
on all nodes.  --holder and --older choose a lock with several readers or permits only if all of them match.

Use it for locks that are never released: one without expiry, or one with a long ttl whose holder is dead.
A holder that is alive is not notified.  It continues until its next extension is refused, and meanwhile
another client may acquire the lock.  Fences continue to grow: a resource that checks them refuses the
earlier holder.

When a lock has another holder, or other readers, by the time you answer, it is not deleted.

Exit code 0 when a majority of the nodes has deleted each lock, or when it was free; 1 when one was not
deleted, or there may be more that match; 69 when too few nodes answered."""

_ONE: Final = "The holder is not notified. Delete the lock on all nodes? [y/N] "
_MANY: Final = "The holders are not notified. Delete these {} locks on all nodes? [y/N] "
_YES: Final = ("y", "yes")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_node_options(parser)
    add_choice(parser, "the names of the locks")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if not (arguments.names or arguments.holder or arguments.older):
        raise UsageError("release: no lock is chosen: give its NAME, or --holder or --older")
    if not (arguments.yes or (sys.stdin is not None and sys.stdin.isatty())):
        raise UsageError(
            "release: the standard input is not a terminal, so there is no way to ask: give --yes"
        )
    outcomes, error, short = _release(arguments)
    lines = [] if outcomes else [Line("no lock matches", "ok")]
    locks = []
    for each in outcomes:
        left = "" if each.refused in ("", "free") else each.detail
        about = f"lock {printable(each.lock.name)}: " if len(outcomes) > 1 else ""
        error = "; ".join(filter(None, (error, left and about + left)))
        lines += () if left else _lines(each)
        short = short or each.refused == "too few" or (bool(each.nodes) and not each.done)
        nodes = [
            {"node": node.node, "done": gone(node), "reason": "" if gone(node) else node.reason}
            for node in each.nodes
        ]
        locks.append({"lock": lock_as_json(each.lock), "nodes": nodes, "error": left or None})
    if error:
        print(f"aioredlock-ng release: {error}", file=sys.stderr)
    show(arguments, {"locks": locks}, lines if outcomes or not error else (), error or None)
    return UNAVAILABLE if short else FAILED if error else 0


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


def _release(arguments: argparse.Namespace) -> tuple[list[Outcome], str, bool]:
    """Release what is chosen; return what became of each lock, and what is wrong beside that.

    Or return why nothing was done, and whether that is for lack of nodes.
    """
    agreed: dict[str, Agreed | None] = dict.fromkeys(arguments.names)
    more = ""
    if not arguments.yes or not named(arguments):
        manager = make_manager(arguments)
        seen = ask(manager, look_for(manager, arguments, whole=True))
        if seen.survey is None:
            raise UsageError(seen.problem)
        # Without a majority the locks are not known well enough for a question.
        if few := too_few(seen):
            return [], few, True
        if seen.survey.truncated:
            more = "there may be more locks that match: the search stopped at its limit"
        locks = [lock for lock in seen.survey.locks if named(arguments) or _may_release(manager, lock)]
        # The question may be open for hours: what is agreed to is the end of these holders' locks.
        agreed = {lock.name: Agreed.of(lock) for lock in locks}
        if not arguments.yes and any(lock.state != "free" for lock in locks):
            # Beside the output, which may be for a program.
            write(lock_lines(dataclasses.replace(seen.survey, locks=tuple(locks))), sys.stderr)
            question = _ONE if len(locks) == 1 else _MANY.format(len(locks))
            print(question, end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in _YES:
                return [], "nothing was changed", False
    manager = make_manager(arguments)
    return ask(manager, _release_all(manager, agreed)), more, False


async def _release_all(manager: LockManager, agreed: Mapping[str, Agreed | None]) -> list[Outcome]:
    return [await release(manager, name, shown) for name, shown in agreed.items()]


def _may_release(manager: LockManager, lock: LockInspection) -> bool:
    """Whether a lock that was found, perhaps another program's, has a name that a lock can have."""
    with contextlib.suppress(ValueError):
        return manager.lock(lock.name) is not None
    return False
