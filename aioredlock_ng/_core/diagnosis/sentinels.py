"""Whether a node that loses its memory would be noticed, and kept from voting (R12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..command import Silence
from ..quarantine import UNKNOWN_IDENTITY, Sentinel, parse
from .facts import NOT_ASKED, Facts, NodeFacts
from .findings import Finding, Level, allow, bad, ok, unchecked

FEW: Final = 3
"""Nodes from which on one may fail; fewer have no quarantine by default, since they cannot do without."""

INIT: Final = "wait for it; if no lock can be alive, `aioredlock-ng init` ends it"
"""The advice on a quarantine that goes on."""

COMPARE: Final = "give all clients the same nodes: compare their lists (the README says how to change them)"
"""The advice where a node is known by another size, and an `init` would stop the clients that know it so."""

_FIRST_USE: Final = "from its first use on it has no vote for the restart quarantine, if there is one"

_ALIKE: Final = "set restart_quarantine alike in all clients: the longest one holds for all"


def sentinel_of(node: NodeFacts) -> Sentinel | None:
    """Return a node's sentinel, if there is one that can be read."""
    return parse(node.sentinel) if isinstance(node.sentinel, bytes) else None


def quarantine_of(node: NodeFacts) -> float:
    """Return how long a node has no vote after it has lost its memory, in seconds; 0 when that is unknown."""
    sentinel = sentinel_of(node)
    return sentinel.quarantine_ms / 1000 if sentinel else 0.0


def waits(node: NodeFacts) -> bool:
    """Whether a node without a vote will have one: a quarantine goes on, or begins with its first use."""
    return node.votes_in is not None or node.sentinel is None or _of_another_server(node)


def told(node: NodeFacts, size: int) -> bool:
    """Whether it is known from the facts why the node has no vote."""
    sentinel = sentinel_of(node)
    return node.distrusted or node.strayed or waits(node) or (sentinel is not None and sentinel.size != size)


def _of_another_server(node: NodeFacts) -> bool:
    """Whether another process wrote the sentinel, or the data came from elsewhere; a replica's must."""
    sentinel = sentinel_of(node)
    if sentinel is None or isinstance(node.info, Silence) or "run_id" not in node.info:
        return False
    if node.info.get("role") == "slave":
        return False
    identity = node.info["run_id"] + node.info.get("master_replid", "")
    return sentinel.identity != identity.encode()


def check_quarantine(facts: Facts) -> Iterator[Finding]:
    """Compare the quarantines of all nodes with each other, and with this client's own."""
    known = {node.name: quarantine_of(node) for node in facts.nodes if sentinel_of(node)}
    if facts.quarantine is None or (not known and facts.fencing):
        return  # nobody has looked, or there was nothing to be seen
    longest, shortest = max(known.values(), default=0.0), min(known.values(), default=0.0)

    def finding(level: Level, message: str, advice: str) -> Finding:
        return bad(None, "quarantine", level, message, advice)

    if shortest < longest:
        each = ", ".join(f"{name}: {seconds:g} s" for name, seconds in known.items())
        yield finding("warning", f"the nodes' restart quarantines differ: {each}", _ALIKE)
    elif longest > facts.quarantine > 0:
        message = f"the restart quarantine is {longest:g} s, this client asks for {facts.quarantine:g} s"
        yield finding("warning", message, _ALIKE)
    elif longest:
        yield ok(None, "quarantine", f"a node that has lost its memory has no vote for {longest:g} s")
    elif len(facts.nodes) < FEW:
        yield ok(None, "quarantine", "off, as by default with fewer than three nodes")
    else:
        yield finding(
            "warning",
            "the restart quarantine is off: a node that restarts empty votes at once, so that two clients "
            "may hold one lock (A2)",
            "set restart_quarantine to the longest ttl or more, alike in all clients",
        )


def advice_on_waiting(facts: Facts) -> str:
    """Return what to do about nodes that have no vote yet."""
    return COMPARE if _strays(facts) or any(node.strayed for node in facts.nodes) else INIT


def _strays(facts: Facts) -> bool:
    """Whether a node is known by another size."""
    return any(known.size != len(facts.nodes) for known in map(sentinel_of, facts.nodes) if known)


def check_sentinel(node: NodeFacts, facts: Facts) -> Finding | None:
    """Look at what the node knows of itself; None where nothing rests on that, or is told elsewhere."""
    if isinstance(node.sentinel, Silence):
        untold = node.sentinel is not NOT_ASKED and not node.failures
        return unchecked(node, "sentinel", node.sentinel, "+get") if untold else None
    level: Level = "warning"
    sentinel, size, advice = sentinel_of(node), len(facts.nodes), advice_on_waiting(facts)
    if node.sentinel is None:
        message = f"it has none: not used yet, restarted empty, or flushed; {_FIRST_USE}"
    elif sentinel is None:
        message = "it was written by another version of this package, or by something else, and is left alone"
        advice = "use one version in all clients; delete what is not ours while none of them runs"
    elif sentinel.size != size:
        level = "error"
        nodes = "1 node" if sentinel.size == 1 else f"{sentinel.size} nodes"
        message = f"it belongs to a quorum of {nodes}, here are {size}: no lock can be acquired (A4)"
        message = f"{message}; {sentinel.claim}"
    elif _of_another_server(node):
        message = f"another server's: restarted with old data, or failed over; {_FIRST_USE}"
    elif node.votes_in is not None:
        closed = node.strayed and not _strays(facts)
        left = f"for another {node.votes_in:.1f} s"
        message = f"restart quarantine: the node has no vote {left}"
        if closed:
            message = f"a node of this quorum was another's: no new lock {left}"
    elif sentinel.identity == UNKNOWN_IDENTITY or isinstance(node.info, Silence):
        message = (
            "the server does not tell who it is: a restart with old data, or a failover, goes unnoticed (A2)"
        )
        advice = allow("+info")
    else:
        return ok(node, "sentinel", "the node would be known again after a restart, flush or failover")
    return bad(node, "sentinel", level, message, advice)
