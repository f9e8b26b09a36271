"""From facts to findings.  Nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from ..quorum import majority
from .checks import check_access, check_info, check_latency, check_locking
from .clocks import check_clocks
from .facts import Facts
from .findings import Finding, allow, bad, ok
from .notices import check_notices
from .reasons import explained
from .sentinels import FEW, advice_on_waiting, check_quarantine, check_sentinel, waits


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Say what is well and what is not: about all nodes together first, then node by node."""
    findings = [_quorum(facts), *_identity(facts), *check_quarantine(facts)]
    clocks = check_clocks(facts)
    for number, node in enumerate(facts.nodes):
        if node.down:
            check, advice = explained(node.down, "reachable", facts.prefix)
            findings.append(bad(node, check, "error", node.down, advice))
            continue
        sentinel, notices = check_sentinel(node, facts), check_notices(node, facts.prefix)
        findings += [
            ok(node, "reachable", "connected and logged in"),
            *check_locking(node, facts.prefix),
            *([sentinel] if sentinel else ()),
            *check_info(node, facts.prefix),
            check_access(node),
            check_latency(node, facts.node_timeout),
            *([notices] if notices else ()),
            clocks[number],
        ]
    return tuple(findings)


def _quorum(facts: Facts) -> Finding:
    size = len(facts.nodes)
    voting = sum(not (node.down or node.failures or node.without_vote) for node in facts.nodes)
    waiting = sum(node.without_vote and waits(node) and not node.failures for node in facts.nodes)
    needed = majority(size)
    if voting < needed <= voting + waiting:
        message = f"{voting} of {size} nodes can grant a lock now, {needed} are needed: {waiting} more will"
        advice = advice_on_waiting(facts)
        return bad(None, "quorum", "warning", f"{message}, at once or after the restart quarantine", advice)
    if voting < needed:
        message = f"{voting} of {size} nodes can grant a lock, {needed} are needed: none can be acquired"
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
