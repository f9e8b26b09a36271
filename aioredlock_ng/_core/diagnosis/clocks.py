"""Whether the nodes' clocks are near enough to each other, and trusted (A1, R10, R14)."""

from __future__ import annotations

from typing import Final

from ..command import Silence
from ..fencing import RAISE_AHEAD_MS
from .facts import ClockReading, Facts, NodeFacts
from .findings import Finding, bad, ok, unchecked

CLOCK_WARNING: Final = 5.0
"""Seconds between a node's clock and the middle one that are worth a warning."""

CLOCK_ERROR: Final = RAISE_AHEAD_MS / 1000
"""Seconds from which on a node may be unable to agree with the others on a fence (R10)."""

_ADVICE: Final = "let NTP keep all nodes' clocks, slewing them instead of stepping"


def check_clocks(facts: Facts) -> dict[int, Finding]:
    """Compare every node's clock with the middle one of all; by the nodes' numbers."""
    readings = [node.clock for node in facts.nodes if isinstance(node.clock, ClockReading)]
    middle = sorted(readings, key=lambda clock: clock.offset)[(len(readings) - 1) // 2] if readings else None
    findings = {}
    for number, node in enumerate(facts.nodes):
        if node.distrusted:
            findings[number] = bad(
                node,
                "clock",
                "warning",
                "it seems to have jumped: the node has no vote for now",
                _ADVICE,
            )
        elif isinstance(node.clock, Silence):
            findings[number] = unchecked(node, "clock", node.clock, "+time")
        else:
            assert middle is not None, "there is one reading at least"
            unsure = node.clock.uncertainty + (0.0 if node.clock is middle else middle.uncertainty)
            findings[number] = _clock(node, node.clock.offset - middle.offset, unsure, fencing=facts.fencing)
    return findings


def _clock(node: NodeFacts, apart: float, unsure: float, *, fencing: bool) -> Finding:
    message = f"{apart:+.3f} s (± {unsure:.3f} s) from the middle of the nodes' clocks"
    least = abs(apart) - unsure
    if least < CLOCK_WARNING:
        return ok(node, "clock", message)
    if fencing and least >= CLOCK_ERROR:
        message += ": nodes so far apart may be unable to agree on a fence, and then it has no vote"
        return bad(node, "clock", "error", message, _ADVICE)
    why = "one that is so far off is likely to be set, and a step forward ends locks early (A1)"
    if fencing:
        why += f"; from {CLOCK_ERROR:g} s on nodes may be unable to agree on a fence"
    return bad(node, "clock", "warning", f"{message}: {why}", _ADVICE)
