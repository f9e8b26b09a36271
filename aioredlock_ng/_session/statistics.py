"""Puts together the statistics of a manager."""

from __future__ import annotations

from collections.abc import Sequence

from .._node import Node
from .._statistics import MAX_LEASES, Counters, LeaseStatistics, ManagerStatistics, NodeStatistics
from .session import Session


def statistics_of(nodes: Sequence[Node], counters: Counters, session: Session | None) -> ManagerStatistics:
    """Return the statistics of a manager over `nodes`; it has no session before its first use."""
    return ManagerStatistics(
        nodes=tuple(
            NodeStatistics.of(node.name, node.status, session.clock_of(i) if session else None)
            for i, node in enumerate(nodes)
        ),
        held=session.holdings.held if session else 0,
        leases=_leases(session) if session else (),
        waiting=len(session.sleeps) if session else 0,
        acquired=counters.acquired,
        handed_off=counters.handed_off,
        refused=counters.refused,
        gave_up=counters.gave_up,
        extended=counters.extended,
        lost=counters.lost,
        released=counters.released,
        certified=counters.certified,
        raised=counters.raised,
        uncertified=counters.uncertified,
        topped_up=counters.topped_up,
        quarantined=counters.quarantined,
        steps=counters.steps,
        conflict=session.availability.conflict if session else None,
    )


def _leases(session: Session) -> tuple[LeaseStatistics, ...]:
    """Return the leases that are held now; callable from any thread."""
    held = [holding for holding in tuple(session.holdings.all) if holding.held]
    return tuple(
        LeaseStatistics(
            names=holding.names,
            label=holding.label,
            fence=holding.fence or None,
            age=holding.age,
            kind=holding.kind.name,
        )
        for holding in held[-MAX_LEASES:]
    )
