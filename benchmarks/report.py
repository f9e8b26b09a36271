"""What every benchmark shares: the environment block, JSON lines, Markdown tables, percentiles."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from textwrap import shorten
from typing import Any, Final, final

from redis import Redis

LIBRARIES = ("redis", "hiredis", "uvloop")
LOAD_PER_CORE: Final = 1.0
"""At the start of a run whose figures are published, at most."""

Row = dict[str, Any]


def machine() -> Row:
    """Return how many cores there are, and how busy they are."""
    return {"cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}


def why_unpublished(load: float, cpus: int) -> str | None:
    """Return why figures that were made at this load are not to be published, or None if they are."""
    if load <= cpus * LOAD_PER_CORE:
        return None
    return (
        f"Not published: the load is {load:.1f}, and the limit {cpus * LOAD_PER_CORE:g} (for {cpus} cores). "
        "Run it again when the machine is quiet, leave out --markdown and --plots, or add --anyway."
    )


def environment(urls: Sequence[str], **settings: Any) -> Row:
    """Return what the figures depend on."""
    with Redis.from_url(urls[0]) as client:
        info: Any = client.info("server")
    name = info.get("server_name", "redis")
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        **machine(),
        "server": f"{name} {info.get(f'{name}_version', info['redis_version'])}",
        "nodes": len(urls),
        **{library: version(library) for library in LIBRARIES},
        **settings,
    }


def percentile(values: Iterable[float], share: float) -> float:
    """Return the least value that `share` of them do not exceed."""
    return percentile_of(sorted(values), share)


def percentile_of(ordered: Sequence[float], share: float) -> float:
    """Return the same of values in order."""
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


QUANTILES: Final = (*(i / 100 for i in range(1, 100)), 0.995, 0.999, 1.0)
"""The shares for which a distribution is kept."""


def quantiles(values: Iterable[float]) -> list[float]:
    """Return the percentiles of `values` that `QUANTILES` lists."""
    ordered = sorted(values)
    return [percentile_of(ordered, share) for share in QUANTILES]


def ratio(values: Sequence[float], base: Sequence[float]) -> float:
    """Return the median of the ratios of what was measured side by side: noise that both saw falls out."""
    return statistics.median(value / other for value, other in zip(values, base, strict=True))


@final
class Report:
    """Rows by question; the first line of the JSON is the environment."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        if path is not None:
            path.write_text("")
        self.tables: dict[str, list[Row]] = {}
        self.curves: list[Row] = []
        self.environments: list[Row] = []

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read what another run wrote as JSON lines."""
        report = cls()
        for line in map(json.loads, path.read_text().splitlines()):
            if "environment" in line:
                report.environment(line["environment"])
            elif "curve" in line:
                report.curves.append(line)
            else:
                report.add(line.pop("question"), **line)
        return report

    def environment(self, block: Row) -> None:
        """Note where the rows that follow come from."""
        self.environments.append(block)
        self._write({"environment": block})

    @property
    def server(self) -> str:
        """The server of the latest environment."""
        return str(self.environments[-1]["server"])

    def add(self, question: str, **row: Any) -> None:
        """Add a row to the table of `question`."""
        self.tables.setdefault(question, []).append(row)
        self._write({"question": question, **row})

    def curve(self, name: str, values: Iterable[float], **of: Any) -> None:
        """Add the distribution of `values`, for the plot `name`."""
        line = {"curve": name, **of, "quantiles": quantiles(values)}
        self.curves.append(line)
        self._write(line)

    def _write(self, line: Row) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                print(json.dumps(line), file=file)

    def markdown(self) -> str:
        """Return everything as Markdown."""
        blocks = [" · ".join(f"{key} {value}" for key, value in block.items()) for block in self.environments]
        for question, rows in self.tables.items():
            columns = list(rows[0])
            lines = [f"**{question}**", "", _line(columns), _line("---" for _ in columns)]
            lines += [_line(_shown(row.get(column)) for column in columns) for row in rows]
            blocks.append("\n".join(lines))
        return "\n\n".join(blocks)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else shorten(str(value), 60)


BEGIN, END = "<!-- figures: written by `python -m benchmarks --markdown` -->", "<!-- end of the figures -->"


def write_markdown(path: Path, tables: str) -> None:
    """Write tables to a file; where it has the markers, between them."""
    text = path.read_text() if path.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    path.write_text(f"{before}{begin}\n\n{tables}\n\n{end}{after}" if end else f"{tables}\n")
