"""``aioredlock-ng release``."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from .common import FAILED, UNAVAILABLE, UsageError, add_node_options, closing, document, make_manager

if TYPE_CHECKING:
    from .. import LockInspection, NodeInspection, Survey
    from .._dashboard.overview import Overview
    from ._terminal import Line
    from .common import Subcommands

_DESCRIPTION: Final = """\
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

_UNCHANGED: Final = "nothing was changed"


def add(commands: Subcommands) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "release",
        help="delete a lock, even if it is held: shows its holders and asks first",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_node_options(parser)
    parser.add_argument("name", metavar="NAME", help="the name of the lock")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from ._terminal import output, quiet, write

    if not (arguments.yes or (sys.stdin is not None and sys.stdin.isatty())):
        raise UsageError(
            "release: the standard input is not a terminal, so there is no way to ask: give --yes"
        )
    with quiet():
        outcome = _release(arguments)
    if outcome.error is not None:
        print(f"aioredlock-ng release: {outcome.error}", file=sys.stderr)
    with output() as stream:
        if arguments.json:
            print(document("release", outcome.as_json(), outcome.error), file=stream)
        else:
            write(outcome.as_lines(), stream)
    return outcome.code


@final
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What there was, and what has become of it."""

    lock: LockInspection
    """As it was seen first."""
    code: int
    error: str | None = None
    """Why nothing was changed."""
    nodes: Sequence[NodeInspection] = ()
    """What each node said to the deletion."""

    @property
    def deleted(self) -> int:
        """How many nodes have deleted it, or did not have it."""
        from .._dashboard.releasing import gone

        return sum(map(gone, self.nodes))

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        from .._dashboard.releasing import gone, why_not
        from .._dashboard.wire import lock_as_json

        nodes = [{"node": node.node, "done": gone(node), "reason": why_not(node)} for node in self.nodes]
        return {"lock": lock_as_json(self.lock), "nodes": nodes}

    def as_lines(self) -> list[Line]:
        """Return it for people: a line for the lock, and one for each node that was not reached."""
        from .._dashboard.releasing import gone, why_not
        from ._overview import described_holders
        from ._terminal import Line, printable

        name = f"lock {printable(self.lock.name)}"
        if self.error is not None:
            return []
        if not self.nodes:
            return [Line(f"{name} is free", "ok")]
        holder = f", held by {printable(self.lock.holder)}" if self.lock.holder is not None else ""
        if self.lock.shared or self.lock.permits:
            holder = f", held by {described_holders(self.lock)}"
        text = f"{name}{holder}: deleted on {self.deleted} of {len(self.nodes)} nodes"
        return [
            Line(text, "error" if self.code else "ok"),
            *(
                Line(f"  {printable(node.node)}  {printable(why_not(node))}", "warning")
                for node in self.nodes
                if not gone(node)
            ),
        ]


def _release(arguments: argparse.Namespace) -> _Outcome:
    from .._dashboard.releasing import Agreed, gone
    from ._overview import lock_lines
    from ._terminal import write

    seen, survey = _look(arguments)
    (lock,) = survey.locks
    if seen.answered < seen.quorum:
        error = f"{seen.answered} of {len(seen.nodes)} nodes answered, {seen.quorum} are needed: {_UNCHANGED}"
        return _Outcome(lock=lock, code=UNAVAILABLE, error=error)
    if lock.state == "free":
        return _Outcome(lock=lock, code=0)
    if not arguments.yes:
        write(lock_lines(survey), sys.stderr)
        if not _confirmed():
            return _Outcome(lock=lock, code=FAILED, error=_UNCHANGED)
        # The question may have been open for hours: what was agreed to is the end of this holder's lock.
        (now,) = _look(arguments)[1].locks
        if not Agreed.of(lock).covers(now):
            return _Outcome(
                lock=lock, code=FAILED, error=f"the lock has changed hands meanwhile: {_UNCHANGED}"
            )
    manager = make_manager(arguments)
    nodes = asyncio.run(closing(manager, manager.force_release(arguments.name)))
    code = 0 if sum(map(gone, nodes)) >= seen.quorum else UNAVAILABLE
    return _Outcome(lock=lock, code=code, nodes=nodes)


def _look(arguments: argparse.Namespace) -> tuple[Overview, Survey]:
    from .._dashboard.overview import look

    manager = make_manager(arguments)
    try:
        overview = asyncio.run(closing(manager, look(manager, (arguments.name,))))
    except ValueError as error:
        raise UsageError(f"release: {error}") from None
    if overview.survey is None:
        raise UsageError(f"release: {overview.problem}")
    return overview, overview.survey


def _confirmed() -> bool:
    """Ask, beside the output, which may be for a program."""
    print(_QUESTION, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in _YES
