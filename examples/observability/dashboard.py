"""Writes the dashboard for Grafana: `python examples/observability/dashboard.py > grafana/redlock.json`.

It is made of a table, since what is written by hand in JSON nobody reads.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final, NamedTuple


class Panel(NamedTuple):
    """One picture."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """What is asked, and what each line is called."""
    kind: str = "timeseries"
    why: str = ""


def _rate(metric: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"


def _lines(title: str, unit: str, query: str, legend: str, why: str = "") -> Panel:
    return Panel(title, unit, ((query, legend),), why=why)


def _quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', 'le, label')})"


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "The quorum",
        (
            Panel(
                "Node failures tolerated",
                "none",
                (("min(redlock_quorum_margin)", ""),),
                kind="stat",
                why="0: the next one ends all locking. Less: nothing can be locked.",
            ),
            Panel(
                "Nodes without a vote", "none", (("max by (node) (redlock_node_quarantined)", "{{node}}"),)
            ),
            Panel(
                "Clients with another list of nodes",
                "none",
                (
                    ("max(redlock_strangers)", "servers that a list lacks"),
                    ("max(redlock_conflict)", "refused"),
                ),
                why="0: all clients have the same nodes. Else compare their lists: `aioredlock-ng status`.",
            ),
            _lines("Nodes that are up", "none", "min by (node) (redlock_node_up)", "{{node}}"),
            _lines("Round trip", "s", "max by (node) (redlock_node_round_trip_seconds)", "{{node}}"),
            _lines("Clocks", "s", "max by (node) (redlock_node_clock_offset_seconds)", "{{node}}"),
            _lines("Releases pending", "none", "sum by (node) (redlock_node_pending_releases)", "{{node}}"),
        ),
    ),
    (
        "Locks",
        (
            Panel(
                "Acquires",
                "ops",
                (
                    (
                        _rate("redlock_acquire_duration_seconds_count", "label, outcome"),
                        "{{label}} {{outcome}}",
                    ),
                ),
            ),
            Panel(
                "How long an acquire takes",
                "s",
                (
                    (_quantile(0.5, "redlock_acquire_duration_seconds"), "{{label}} half"),
                    (_quantile(0.99, "redlock_acquire_duration_seconds"), "{{label}} 99 %"),
                ),
            ),
            Panel(
                "How long leases are held",
                "s",
                ((_quantile(0.99, "redlock_hold_duration_seconds"), "{{label}} 99 %"),),
            ),
            _lines("Held now", "none", "sum by (label, kind) (redlock_held)", "{{label}} {{kind}}"),
            Panel("Waiting now", "none", (("sum(redlock_waiting)", "calls"),)),
            Panel(
                "Lost",
                "none",
                (("sum by (label, reason) (increase(redlock_losses_total[5m]))", "{{label}} {{reason}}"),),
                why="Each is work that was cancelled, or must be refused by its fence.",
            ),
        ),
    ),
    (
        "Contention",
        (
            _lines(
                "Calls that wait",
                "ops",
                _rate("redlock_waits_total", "label, behind"),
                "{{label}} {{behind}}",
            ),
            _lines(
                "Refused attempts",
                "ops",
                _rate("redlock_refused_total", "label, reason"),
                "{{label}} {{reason}}",
            ),
            _lines(
                "Handed off within a process", "ops", _rate("redlock_handed_off_total", "label"), "{{label}}"
            ),
            _lines("Calls ahead in the queue", "none", "max by (label) (redlock_calls_ahead)", "{{label}}"),
            _lines("Extensions", "ops", _rate("redlock_extensions_total", "outcome"), "{{outcome}}"),
            Panel(
                "Clocks that jumped, loops that stood still, quorums lost",
                "none",
                (
                    ("sum by (node) (increase(redlock_clock_steps_total[5m]))", "{{node}}"),
                    ("sum by (instance) (increase(redlock_loop_stalls_total[5m]))", "{{instance}}"),
                    ("sum by (instance) (increase(redlock_quorum_lost_total[5m]))", "{{instance}}, quorum"),
                ),
            ),
        ),
    ),
)

WIDTH, HEIGHT, ACROSS = 8, 7, 3

STEPS: Final = (("red", None), ("orange", 0), ("green", 1))
"""The colours of the margin of a quorum, each from its number on."""


def panels() -> list[dict[str, Any]]:
    """Lay the pictures out, three in a row."""
    found: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        place = {"h": 1, "w": WIDTH * ACROSS, "x": 0, "y": y}
        found.append({"type": "row", "title": title, "gridPos": place, "collapsed": False, "panels": []})
        y += 1
        for number, panel in enumerate(row):
            place = {
                "h": HEIGHT,
                "w": WIDTH,
                "x": number % ACROSS * WIDTH,
                "y": y + number // ACROSS * HEIGHT,
            }
            found.append(_picture(panel, place))
        y += -(-len(row) // ACROSS) * HEIGHT
    for number, each in enumerate(found, 1):
        each["id"] = number
    return found


def _picture(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    targets = [
        {"refId": chr(ord("A") + number), "datasource": source, "expr": query, "legendFormat": legend}
        for number, (query, legend) in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "stat":
        steps = [
            {"color": "red", "value": None},
            {"color": "orange", "value": 0},
            {"color": "green", "value": 1},
        ]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.why,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }


def dashboard() -> dict[str, Any]:
    """Return the whole."""
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "title": "Redlock",
        "uid": "redlock",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels(),
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    sys.stdout.write("\n")
