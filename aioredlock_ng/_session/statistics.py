"""Putting together what a manager tells of itself."""

from __future__ import annotations

from collections.abc import Sequence

from .._node import Node
from .._statistics import MAX_LEASES, Counters, LeaseStatistics, ManagerStatistics, NodeStatistics
from .runtime import Runtime


def statistics_of(nodes: Sequence[Node], counters: Counters, runtime: Runtime | None) -> ManagerStatistics:
    """Return the statistics of a manager over `nodes`; it has no runtime before its first use."""
    return ManagerStatistics(
        nodes=tuple(
            NodeStatistics.of(node.name, node.standing, runtime.clock_of(i) if runtime else None)
            for i, node in enumerate(nodes)
        ),
        held=runtime.holdings.held if runtime else 0,
        leases=_leases(runtime) if runtime else (),
        waiting=len(runtime.pauses) if runtime else 0,
        acquired=counters.acquired,
        handed_on=counters.handed_on,
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
        conflict=runtime.availability.conflict if runtime else None,
    )


def _leases(runtime: Runtime) -> tuple[LeaseStatistics, ...]:
    """List what is held now; any thread may ask."""
    held = [holding for holding in tuple(runtime.holdings.all) if holding.held]
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
