"""From facts to findings: what all nodes together say, and everything in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from ..._core.command import Silence
from ..._core.fencing import RAISE_AHEAD_MS
from ..._core.members import COMPARE, COMPARE_FIRST, not_in_list
from ..._core.quarantine import UNKNOWN_IDENTITY
from ..._core.quorum import majority
from ..._core.quorum_view import ONE_SERVER_EACH, SEVERAL_SERVERS
from .checks import check_access, check_info, check_latency, check_locking, check_notices, check_tls
from .facts import NOT_ASKED, ClockReading, Facts, NodeFacts
from .findings import Finding, Said, allow, error, explained, finding, ok, unchecked, warning

FEW: Final = 3
"""Nodes from which on one may fail; fewer have no quarantine by default, since they cannot do without."""

CLOCK_WARNING: Final = 5.0
"""Seconds between a node's clock and the middle one that are worth a warning."""

CLOCK_ERROR: Final = RAISE_AHEAD_MS / 1000
"""Seconds from which on a node may be unable to agree with the others on a fence (R10)."""

_SLEW: Final = "synchronise the clocks of all nodes with NTP, by slewing instead of stepping"

_INIT: Final = "wait until it ends; if no lock can be alive, `aioredlock-ng init` ends it at once"

_FIRST_USE: Final = "once used, it has no vote for the restart quarantine, if one is set"

_ALIKE: Final = "set the same restart_quarantine in all clients: the longest one applies to all"


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Say what is well and what is not: about all nodes together first, then node by node."""
    findings = [finding(None, "quorum", _quorum(facts)), *_identity(facts)]
    if quarantine := _quarantine(facts):
        findings.append(finding(None, "quarantine", quarantine))
    for node in facts.nodes:
        if node.down:
            check, advice = explained(node.down, "reachable", facts.prefix)
            findings.append(finding(node, check, error(node.down, advice)))
            continue
        checks: dict[str, Said | None] = {
            "incarnation": _incarnation(node, facts),
            **check_info(node, facts.prefix),
            "access": check_access(node),
            "tls": check_tls(node),
            "latency": check_latency(node, facts.node_timeout),
            "notices": check_notices(node, facts.prefix),
            "clock": _clock(node, facts),
        }
        findings += [
            finding(node, "reachable", ok("connected and logged in")),
            *check_locking(node, facts.prefix),
            *(finding(node, check, said) for check, said in checks.items() if said),
        ]
    return tuple(findings)


# -- the nodes ---------------------------------------------------------------------------------------


def _quorum(facts: Facts) -> Said:
    size = len(facts.nodes)
    voting = sum(not (node.down or node.failures or node.without_vote) for node in facts.nodes)
    waiting = sum(node.without_vote and node.waits and not node.failures for node in facts.nodes)
    needed = majority(size)
    if voting < needed <= voting + waiting:
        message = (
            f"{voting} of {size} nodes can grant a lock now, {needed} are needed: {waiting} more will be "
            "able to"
        )
        return warning(f"{message}, at once or after the restart quarantine", _advice_on_waiting(facts))
    if voting < needed:
        message = f"{voting} of {size} nodes can grant a lock, {needed} are needed: no lock can be acquired"
        return error(message, "see below what prevents the others")
    if size < FEW:
        message = (
            f"{size} node{'s' * (size > 1)}: none may fail, and a restart without data can lead to two "
            "holders"
        )
        return warning(message, "use three or five independent servers")
    if size % 2 == 0:
        lost = size - needed
        message = f"{size} nodes tolerate {lost} failure{'s' * (lost > 1)}, no more than {size - 1} would"
        return warning(message, "use an odd number of nodes")
    spare = voting - needed if voting == size else f"{voting - needed or 'no'} more"
    return ok(f"{voting} of {size} nodes can grant locks; {spare} may fail")


def _identity(facts: Facts) -> Iterator[Finding]:
    known = [node for node in facts.nodes if node.run_id is not None]
    twice = [(one, two) for one, two in combinations(known, 2) if one.run_id == two.run_id]
    for one, two in twice:
        message = f"nodes {one.name} and {two.name} are the same server, which would vote twice (A4)"
        yield finding(None, "identity", error(message, "name N different servers in the node list"))
    for node in facts.nodes:
        if node.other_run_ids:
            yield finding(node, "identity", error(SEVERAL_SERVERS, ONE_SERVER_EACH))
    for stranger in facts.strangers:
        yield finding(None, "identity", error(not_in_list(stranger), COMPARE))
    unknown = [node.name for node in facts.nodes if node.run_id is None and not node.down]
    if unknown:
        message = f"could not be checked: whether {', '.join(unknown)} are different servers"
        yield finding(None, "identity", warning(message, allow("+info")))
    elif not twice:
        yield finding(None, "identity", ok("no two nodes are the same server"))


# -- a node that loses its memory (R12) --------------------------------------------------------------


def _quarantine(facts: Facts) -> Said | None:
    """Compare the quarantines of all nodes with each other, and with this client's own."""
    known = {node.name: node.quarantine for node in facts.nodes if node.readable_incarnation}
    if facts.quarantine is None or (not known and facts.fencing):
        return None  # they were not looked at, or there was nothing to be seen
    longest, shortest = max(known.values(), default=0.0), min(known.values(), default=0.0)
    if shortest < longest:
        each = ", ".join(f"{name}: {seconds:g} s" for name, seconds in known.items())
        return warning(f"the nodes' restart quarantines differ: {each}", _ALIKE)
    if longest > facts.quarantine > 0:
        message = f"the restart quarantine is {longest:g} s, this client asks for {facts.quarantine:g} s"
        return warning(message, _ALIKE)
    if longest:
        return ok(f"a node that has lost its data has no vote for {longest:g} s")
    if len(facts.nodes) < FEW:
        return ok("off, which is the default with fewer than three nodes")
    return warning(
        "the restart quarantine is off: a node that restarts empty votes at once, so two clients may hold "
        "the same lock (A2)",
        "set the same restart_quarantine in all clients, to the longest ttl or more",
    )


def _advice_on_waiting(facts: Facts) -> str:
    """Return what to do about nodes that have no vote: an `init` may stop the clients of another list."""
    if _strays(facts) or any(node.belongs_elsewhere for node in facts.nodes):
        return COMPARE
    return COMPARE_FIRST if any(node.replaces for node in facts.nodes) else _INIT


def _strays(facts: Facts) -> bool:
    """Whether a node is known by another size."""
    incarnations = [node.readable_incarnation for node in facts.nodes]
    return any(incarnation.size != len(facts.nodes) for incarnation in incarnations if incarnation)


def _incarnation(node: NodeFacts, facts: Facts) -> Said | None:
    """Look at what the node knows of itself; None where nothing rests on that, or another finding says it."""
    if isinstance(node.incarnation, Silence):
        untold = node.incarnation is not NOT_ASKED and not node.failures
        return unchecked(node.incarnation, "+get") if untold else None
    incarnation, size, advice = node.readable_incarnation, len(facts.nodes), _advice_on_waiting(facts)
    if node.incarnation is None:
        return warning(
            f"no incarnation record: not used so far, restarted without data, or flushed; {_FIRST_USE}",
            advice,
        )
    if incarnation is None:
        return warning(
            "the incarnation record was written by another version of this package or by another program, "
            "and is left as it is",
            "expected while clients of another version run (docs/operate/upgrades.md); if another "
            "program wrote it, stop all clients, then delete it",
        )
    if incarnation.size != size:
        nodes = "1 node" if incarnation.size == 1 else f"{incarnation.size} nodes"
        return error(
            f"the node belongs to a quorum of {nodes}, this client has {size}: no lock can be acquired (A4); "
            f"{incarnation.claim}",
            advice,
        )
    if node.of_another_server:
        return warning(
            f"another server's incarnation record: restarted with old data, or failed over; {_FIRST_USE}",
            advice,
        )
    if node.votes_in is not None:
        return warning(f"restart quarantine: the node has no vote for another {node.votes_in:.1f} s", advice)
    if incarnation.identity == UNKNOWN_IDENTITY or isinstance(node.info, Silence):
        return warning(
            "the server does not report its identity: a restart with old data, or a failover, cannot be "
            "detected (A2)",
            allow("+info"),
        )
    return ok("a restart, flush or failover of the node will be detected")


# -- clocks (A1, R10, R14) ---------------------------------------------------------------------------


def _clock(node: NodeFacts, facts: Facts) -> Said:
    """Compare a node's clock with the middle one of all."""
    if node.distrusted:
        return warning("the node's clock seems to have jumped: the node has no vote for now", _SLEW)
    if isinstance(node.clock, Silence):
        return unchecked(node.clock, "+time")
    readings = [other.clock for other in facts.nodes if isinstance(other.clock, ClockReading)]
    middle = sorted(readings, key=lambda clock: clock.offset)[(len(readings) - 1) // 2]
    apart = node.clock.offset - middle.offset
    unsure = node.clock.uncertainty + (0.0 if node.clock is middle else middle.uncertainty)
    message = f"{apart:+.3f} s (± {unsure:.3f} s) from the median of the nodes' clocks"
    least = abs(apart) - unsure
    if least < CLOCK_WARNING:
        return ok(message)
    if facts.fencing and least >= CLOCK_ERROR:
        message += ": nodes this far apart may be unable to agree on a fence, and then this node has no vote"
        return error(message, _SLEW)
    message += ": a clock this far off is likely to be set, and a step forward ends locks early (A1)"
    if facts.fencing:
        message += f"; from {CLOCK_ERROR:g} s on, nodes may be unable to agree on a fence"
    return warning(message, _SLEW)
