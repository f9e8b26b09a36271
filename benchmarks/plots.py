"""Plots of a report, as SVG: the same figures give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("svg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from benchmarks.cycles import ONCE
from benchmarks.peers import PEERS
from benchmarks.questions import (
    distance,
    faults,
    held,
    hot_name,
    open_loop,
    processes,
    single,
    sizes,
    throughput,
    uncontended,
)
from benchmarks.report import QUANTILES, Report, Row

STYLE: Final = {
    "svg.hashsalt": "aioredlock_ng",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "figure.facecolor": "white",
}
COLOURS: Final = dict(
    zip(
        PEERS,
        (
            *("#0072b2", "#56b4e9", "#004c70", "#d55e00", "#cc79a7", "#7f3fbf"),
            *("#8c510a", "#e69f00", "#009e73", "#000000", "#777777", "#b8a800"),
        ),
        strict=True,
    )
)
"""First of all those of Okabe and Ito, which colour-blind people tell apart."""
DASHED: Final = ("ours-fenced", "floor", "floor-c", "asyncio.Lock")
FINE: Final = 50
"""A logarithmic axis that spans less than that has ticks between the powers of ten."""
PANEL: Final = (3.3, 2.7)
"""Inches."""


def draw(report: Report, folder: Path) -> list[Path]:
    """Draw all plots that the report has figures for, and return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    with mpl.rc_context(STYLE):
        for name, figure in plots(report):
            figure.text(0.01, 0.005, source(report), fontsize=6.5, color="#666666")
            drawn.append(folder / f"{name}.svg")
            figure.savefig(drawn[-1], metadata={"Date": None})
    return drawn


def plots(report: Report) -> Iterable[tuple[str, Figure]]:
    """Make them, with their names."""
    makers: dict[str, Callable[[list[Row]], Figure]] = {
        throughput.TABLE: lambda rows: throughput_bars([row for row in rows if row["names"] == ONCE]),
        single.THROUGHPUT: throughput_bars,
        open_loop.TABLE: open_loop_lines,
        processes.TABLE: process_lines,
        faults.TABLE: fault_spans,
        held.TABLE: held_growth,
        distance.TABLE: distance_lines,
        sizes.LATENCY: lambda rows: by_nodes(rows, "p50_us", "p50 of a cycle in µs"),
        sizes.THROUGHPUT: lambda rows: by_nodes(rows, "cycles_per_s", "cycles per second, many tasks"),
    }
    names = (
        *("throughput", "single", "open_loop", "processes", "faults"),
        *("held", "distance", "sizes_latency", "sizes_throughput"),
    )
    if curves := [curve for curve in report.curves if curve["curve"] == uncontended.TABLE]:
        yield (
            "uncontended",
            distributions(curves, [("loop", "{}, one task")], 1e6, "acquire and release in µs"),
        )
    if curves := [curve for curve in report.curves if curve["curve"] == hot_name.TABLE]:
        for loop in unique(curves, "loop"):
            mine = [curve for curve in curves if curve["loop"] == loop]
            by = [("processes", "processes: {}"), ("section_ms", "section of {:g} ms")]
            yield f"hot_name_{loop}", distributions(mine, by, 1e3, f"wait in ms ({loop})")
    for name, (table, make) in zip(names, makers.items(), strict=True):
        if rows := report.tables.get(table):
            yield name, make(rows)


def source(report: Report) -> str:
    """Say where the figures come from."""
    block = report.environments[0]
    return f"{block['server']}, {block['python']}, {block['cpus']} CPUs; all peers took turns within one run"


# -- what they share -------------------------------------------------------------------------------------


def briefly(trouble: object) -> str:
    """Return the name of an error without its module and its message."""
    name, colon, _ = str(trouble).partition(":")
    return name.rpartition(".")[2] if colon else name


def unique(rows: Sequence[Row], key: str) -> list[Any]:
    """Return the values in the order in which they come."""
    return list(dict.fromkeys(row[key] for row in rows))


def panels(rows: int, columns: int, *, height: float = PANEL[1], sharex: Any = False) -> tuple[Figure, Any]:
    """Return a figure with a grid of axes."""
    figure = Figure(figsize=(PANEL[0] * columns + 1.5, height * rows + 0.3), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0.03, 1, 0.97))
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex)


def counted(number: int, what: str) -> str:
    """Return so many of them, in words."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def line_of(peer: str) -> dict[str, Any]:
    """Return how a peer's line looks, in all plots."""
    return {"color": COLOURS[peer], "label": peer, "linestyle": "--" if peer in DASHED else "-"}


def logarithmic(axis: Any) -> None:
    """Let an axis have a logarithmic scale, with plain numbers."""
    axis.axes.set_xscale("log") if axis.axis_name == "x" else axis.axes.set_yscale("log")
    low, high = axis.get_data_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < FINE * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.7g}"))
    axis.set_minor_formatter(NullFormatter())


def legend(figure: Figure) -> None:
    """Put one legend beside all panels."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    names = [*(peer for peer in PEERS if peer in handles), *(name for name in handles if name not in PEERS)]
    figure.legend([handles[name] for name in names], names, loc="outside right upper")


def points(rows: Sequence[Row], x: str, y: str) -> tuple[list[float], list[float]]:
    """Return the coordinates of the rows that have both."""
    both = [(row[x], row[y]) for row in rows if row.get(x) and row.get(y)]
    return [left for left, _ in both], [right for _, right in both]


def curves_by(axes: Axes, rows: Sequence[Row], x: str, y: str, **style: Any) -> None:
    """Draw a line per peer."""
    for peer in unique(rows, "peer"):
        of_peer = [row for row in rows if row["peer"] == peer]
        axes.plot(*points(of_peer, x, y), **{**line_of(peer), "marker": "o", **style})


# -- the plots -------------------------------------------------------------------------------------------


def distributions(curves: Sequence[Row], by: Sequence[tuple[str, str]], unit: float, label: str) -> Figure:
    """Empirical distributions: a line per peer, a panel per case; by one key in a row, by two in a grid."""
    *down, (across, title) = by
    values, rows = unique(curves, across), unique(curves, down[0][0]) if down else [None]
    figure, grid = panels(len(rows), len(values), sharex=True)
    for line, row in zip(grid, rows, strict=True):
        for axes, value in zip(line, values, strict=True):
            for curve in curves:
                if curve[across] == value and (not down or curve[down[0][0]] == row):
                    x = [max(seconds * unit, 1e-3) for seconds in curve["quantiles"]]
                    axes.step(x, QUANTILES, where="post", **line_of(curve["peer"]))
            logarithmic(axes.xaxis)
            axes.set_ylim(0, 1.01)
            axes.set_title(title.format(value) + (f", {down[0][1].format(row)}" if down else ""), fontsize=9)
        line[0].set_ylabel("share of acquisitions")
    for axes in grid[-1]:
        axes.set_xlabel(label)
    legend(figure)
    return figure


def throughput_bars(rows: list[Row]) -> Figure:
    """Bars of cycles per second, a panel per number of tasks; each has its own scale, from 0."""
    loops, tasks = unique(rows, "loop"), unique(rows, "tasks")
    figure, grid = panels(len(loops), len(tasks), height=2.4)
    for line, loop in zip(grid, loops, strict=True):
        for axes, number in zip(line, tasks, strict=True):
            bars(axes, [row for row in rows if row["loop"] == loop and row["tasks"] == number])
            axes.set_title(f"{counted(number, 'task')}, {loop}", fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("cycles per second")
    for line in grid:
        for axes in line[1:]:
            axes.set_yticklabels([])
    return figure


def bars(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw one panel of them."""
    rows = rows[::-1]
    values = [row["cycles_per_s"] or 0.0 for row in rows]
    drawn = axes.barh([row["peer"] for row in rows], values, color=[COLOURS[row["peer"]] for row in rows])
    told = [f"{row['cycles_per_s']:,.0f}" if row["cycles_per_s"] else briefly(row["trouble"]) for row in rows]
    axes.bar_label(drawn, told, padding=2, fontsize=7)
    axes.margins(x=0.25)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def open_loop_lines(rows: list[Row]) -> Figure:
    """p50 and p99 by rate."""
    loops = unique(rows, "loop")
    figure, grid = panels(len(loops), 2, sharex=True)
    for line, loop in zip(grid, loops, strict=True):
        for axes, key in zip(line, ("p50_us", "p99_us"), strict=True):
            curves_by(axes, [row for row in rows if row["loop"] == loop], "rate", key)
            logarithmic(axes.xaxis)
            logarithmic(axes.yaxis)
            axes.set_title(f"{key[:3]}, {loop}", fontsize=9)
        line[0].set_ylabel("µs from the intended start")
    for axes in grid[-1]:
        axes.set_xlabel("requests per second (Poisson)")
    legend(figure)
    return figure


def process_lines(rows: list[Row]) -> Figure:
    """Hand-offs per second, and commands for each, by the number of processes."""
    loops = unique(rows, "loop")
    figure, grid = panels(len(loops), 2, sharex=True)
    for line, loop in zip(grid, loops, strict=True):
        for axes, key, label in zip(
            line,
            ("handoffs_per_s", "commands_per_handoff"),
            ("hand-offs per second", "commands per hand-off"),
            strict=True,
        ):
            curves_by(axes, [row for row in rows if row["loop"] == loop], "processes", key)
            logarithmic(axes.xaxis)
            logarithmic(axes.yaxis)
            axes.set_xticks(unique(rows, "processes"))
            axes.set_ylabel(label)
            axes.set_title(loop, fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("processes that want one name")
    legend(figure)
    return figure


def fault_spans(rows: list[Row]) -> Figure:
    """From p50 to p99: healthy above, with the fault below."""
    loops, kinds = unique(rows, "loop"), unique(rows, "one_node")
    figure, grid = panels(len(loops), len(kinds), height=2.2, sharex=True)
    for line, loop in zip(grid, loops, strict=True):
        for axes, fault in zip(line, kinds, strict=True):
            spans(axes, [row for row in rows if row["loop"] == loop and row["one_node"] == fault])
            logarithmic(axes.xaxis)
            axes.set_title(f"one of five nodes {fault}, {loop}", fontsize=9)
        for axes in line[1:]:
            axes.set_yticklabels([])
    for axes in grid[-1]:
        axes.set_xlabel("cycle in ms: p50 (dot) to p99")
    legend(figure)
    return figure


def spans(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw one panel of them."""
    peers = [row["peer"] for row in rows][::-1]
    for row in rows:
        height = peers.index(row["peer"])
        for key, name, up, colour in (
            ("healthy_", "healthy", 0.14, "#999999"),
            ("", "with the fault", -0.14, "#d55e00"),
        ):
            low, high = row[f"{key}p50_us"], row[f"{key}p99_us"]
            if low is None:
                axes.text(0.98, height + up, str(row["trouble"]), color=colour, fontsize=7, va="center",
                          ha="right", transform=axes.get_yaxis_transform())  # fmt: skip
                continue
            axes.plot([low / 1000, high / 1000], [height + up] * 2, color=colour)
            axes.plot([low / 1000], [height + up], "o", color=colour, label=name)
    axes.set_yticks(range(len(peers)), peers)
    axes.set_ylim(-0.6, len(peers) - 0.4)


def held_growth(rows: list[Row]) -> Figure:
    """Memory and CPU by the number of leases, with a line of slope 1."""
    loops = unique(rows, "loop")
    rows = [row | {"megabytes": (row.get("bytes_per_lease") or 0) * row["leases"] / 1e6} for row in rows]
    figure, grid = panels(len(loops), 2, sharex=True)
    for line, loop in zip(grid, loops, strict=True):
        of_loop = [row for row in rows if row["loop"] == loop]
        for axes, key, label in zip(
            line,
            ("megabytes", "cpu_share_of_a_core"),
            ("memory in MB", "CPU, share of one core"),
            strict=True,
        ):
            curves_by(axes, of_loop, "leases", key)
            x, y = points([row for row in of_loop if row["peer"] == of_loop[0]["peer"]], "leases", key)
            if len(x) > 1:
                axes.plot([min(x), max(x)], [y[-1] * min(x) / max(x), y[-1]],
                          color="#aaaaaa", linestyle=":", label="linear")  # fmt: skip
            logarithmic(axes.xaxis)
            logarithmic(axes.yaxis)
            axes.set_ylabel(label)
            axes.set_title(loop, fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("held leases, ttl 10 s")
    legend(figure)
    return figure


def distance_lines(rows: list[Row]) -> Figure:
    """The p50 of an acquire, in round trips."""
    loops, tasks = unique(rows, "loop"), unique(rows, "tasks")
    figure, grid = panels(len(loops), len(tasks), sharex=True)
    for line, loop in zip(grid, loops, strict=True):
        for axes, number in zip(line, tasks, strict=True):
            mine = [row for row in rows if row["loop"] == loop and row["tasks"] == number]
            curves_by(axes, mine, "round_trip_ms", "acquire_p50_in_round_trips")
            logarithmic(axes.xaxis)
            logarithmic(axes.yaxis)
            axes.axhline(1, color="#aaaaaa", linestyle=":")
            axes.set_xticks(unique(rows, "round_trip_ms"))
            axes.set_title(f"{counted(number, 'task')}, {loop}", fontsize=9)
        line[0].set_ylabel("p50 of an acquire, in round trips")
    for axes in grid[-1]:
        axes.set_xlabel("injected round trip in ms")
    legend(figure)
    return figure


def by_nodes(rows: list[Row], key: str, label: str) -> Figure:
    """A line per peer, over the number of nodes."""
    loops = unique(rows, "loop")
    figure, grid = panels(1, len(loops))
    for axes, loop in zip(grid[0], loops, strict=True):
        curves_by(axes, [row for row in rows if row["loop"] == loop], "nodes", key)
        axes.set_xticks(unique(rows, "nodes"))
        logarithmic(axes.yaxis)
        axes.set_title(loop, fontsize=9)
        axes.set_xlabel("nodes")
    grid[0][0].set_ylabel(label)
    legend(figure)
    return figure
