"""``aioredlock-ng doctor``."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .._view.overview import unavailable_for
from .._view.values import availability
from ._terminal import Line, ask, printable, show
from .common import (
    FAILED,
    QUARANTINE_VARIABLE,
    UNAVAILABLE,
    add_node_options,
    add_quarantine_option,
    make_manager,
    quarantine_of,
    with_quarantine,
)

if TYPE_CHECKING:
    from .. import Finding, LockManager

DESCRIPTION: Final = """\
Checks the state and the configuration of all nodes, and acquires, extends and releases locks with random
names on each of them, as clients with the same nodes do.  Each check is ok, a warning or an error; for
warnings and errors it says what to do.

Exit code 69 when no majority could grant a lock now, else 1 when there is an error, else 0."""

_FURTHER: Final = (
    "See also: status, watch, trace NAME, dashboard. For metrics: contrib.prometheus, contrib.opentelemetry."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-q", "--quiet", action="store_true", help="show only warnings and errors")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_node_options(parser)
    add_quarantine_option(parser, f"default: {QUARANTINE_VARIABLE}, else the one on the nodes")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    quarantine = quarantine_of(arguments)
    manager = make_manager(arguments, **({} if quarantine is None else with_quarantine(quarantine)))
    findings, wait = ask(manager, _diagnose(manager, quarantine))
    if any(finding.check == "quorum" and finding.level == "error" for finding in findings):
        wait = math.inf  # up, but refusing what locks ask for
    shown = [finding for finding in findings if not arguments.quiet or finding.level != "ok"]
    count: Counter[str] = Counter(finding.level for finding in findings)
    fields = {
        **availability(wait),
        "errors": count["error"],
        "warnings": count["warning"],
        "ok": count["ok"],
        "findings": [dataclasses.asdict(finding) for finding in shown],
    }
    show(arguments, fields, _lines(shown, count, quiet=arguments.quiet) if shown else ())
    return UNAVAILABLE if wait else FAILED if count["error"] else 0


async def _diagnose(manager: LockManager, quarantine: float | None) -> tuple[tuple[Finding, ...], float]:
    return await manager.diagnose(), unavailable_for(manager, quarantine)


def _folded(findings: Sequence[Finding]) -> list[tuple[str, Finding]]:
    """Return each finding with the heading that it stands under; one that all nodes have comes once."""
    of_nodes = [
        (each.node, dataclasses.replace(each, node=None)) for each in findings if each.node is not None
    ]
    size = len({node for node, _ in of_nodes})
    count = Counter(same for _, same in of_nodes)
    together = [("all nodes", each) for each in findings if each.node is None]
    common = [(f"each of {size} nodes", same) for same, number in count.items() if number == size > 1]
    return [*together, *common, *((node, each) for node, each in of_nodes if not count[each] == size > 1)]


def _lines(findings: Sequence[Finding], count: Counter[str], *, quiet: bool) -> list[Line]:
    """Return the findings: of all nodes together, what is the same on each, and then node by node."""
    lines: list[Line] = []
    last: object = findings  # no node's name
    for node, finding in _folded(findings):
        if node != last:
            last = node
            lines += [Line(""), Line(printable(node), "head")]
        message = printable(finding.message)
        lines.append(Line(f"  {finding.level:8} {finding.check}: {message}", finding.level))
        if finding.advice:
            lines.append(Line(f"           {printable(finding.advice)}"))
    worst = "error" if count["error"] else "warning" if count["warning"] else "ok"
    summary = f"{count['error']} errors, {count['warning']} warnings, {count['ok']} checks ok"
    further = [] if quiet else [Line(""), Line(_FURTHER)]
    return [*lines[1:], *further, Line(""), Line(summary, worst)]
