"""From facts to findings.  Nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from ..command import Silence
from ..quorum import majority
from .checks import check_access, check_info, check_latency, check_locking
from .facts import ClockReading, Facts, NodeFacts
from .findings import Finding, allow, bad, ok, unchecked
from .reasons import explained

CLOCK_WARNING: Final = 5.0
"""Seconds between two nodes' clocks that are worth a warning."""

FEW: Final = 3
"""Nodes from which on one may fail."""


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Say what is well and what is not: about all nodes together first, then node by node."""
    findings = [_quorum(facts), *_identity(facts)]
    clocks = _clocks(facts)
    for number, node in enumerate(facts.nodes):
        if node.down:
            check, advice = explained(node.down, "reachable", facts.prefix)
            findings.append(bad(node, check, "error", node.down, advice))
            continue
        findings += [
            ok(node, "reachable", "connected and logged in"),
            *check_locking(node, facts.prefix),
            *check_info(node),
            check_access(node),
            check_latency(node, facts.node_timeout),
            clocks[number],
        ]
    return tuple(findings)


def _quorum(facts: Facts) -> Finding:
    size = len(facts.nodes)
    voting = sum(not (node.down or node.failures) for node in facts.nodes)
    needed = majority(size)
    if voting < needed:
        message = f"{voting} of {size} nodes can grant a lock, {needed} are needed: none can be had"
        return bad(None, "quorum", "error", message, "see below what keeps the others from it")
    if size < FEW:
        message = f"{size} node{'s' * (size > 1)}: none may fail, and an empty restart can make two holders"
        return bad(None, "quorum", "warning", message, "use three or five independent servers")
    if size % 2 == 0:
        message = f"{size} nodes survive {size - needed} failures, as {size - 1} would"
        return bad(None, "quorum", "warning", message, "use an odd number of nodes")
    spare = voting - needed if voting == size else f"{voting - needed or 'no'} more"
    return ok(None, "quorum", f"{voting} of {size} nodes can grant locks; {spare} may fail")


def _identity(facts: Facts) -> Iterator[Finding]:
    known = [node for node in facts.nodes if node.run_id is not None]
    twice = [(one, two) for one, two in combinations(known, 2) if one.run_id == two.run_id]
    for one, two in twice:
        message = f"nodes {one.name} and {two.name} are one server, which would vote twice (A4)"
        yield bad(None, "identity", "error", message, "name N different servers in the node list")
    unknown = [node.name for node in facts.nodes if node.run_id is None and not node.down]
    if unknown:
        message = f"could not be checked: whether {', '.join(unknown)} are different servers"
        yield bad(None, "identity", "warning", message, allow("+info"))
    elif not twice:
        yield ok(None, "identity", "no two nodes are the same server")


def _clocks(facts: Facts) -> dict[int, Finding]:
    """Compare every node's clock with the middle one of all; by the nodes' numbers."""
    readings = [node.clock for node in facts.nodes if isinstance(node.clock, ClockReading)]
    middle = sorted(readings, key=lambda clock: clock.offset)[(len(readings) - 1) // 2] if readings else None
    findings = {}
    for number, node in enumerate(facts.nodes):
        if isinstance(node.clock, Silence):
            findings[number] = unchecked(node, "clock", node.clock, "+time")
        else:
            assert middle is not None, "there is one reading at least"
            unsure = node.clock.uncertainty + (0.0 if node.clock is middle else middle.uncertainty)
            findings[number] = _clock(node, node.clock.offset - middle.offset, unsure)
    return findings


def _clock(node: NodeFacts, apart: float, unsure: float) -> Finding:
    message = f"{apart:+.3f} s (± {unsure:.3f} s) from the middle of the nodes' clocks"
    if abs(apart) - unsure < CLOCK_WARNING:
        return ok(node, "clock", message)
    return bad(
        node,
        "clock",
        "warning",
        f"{message}: a lock needs clocks of equal speed, not of equal time, but one that is so far off is "
        "likely to be set, and a step forward ends locks early (A1)",
        "let NTP keep all nodes' clocks, slewing them instead of stepping",
    )
