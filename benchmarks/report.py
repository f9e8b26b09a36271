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
from typing import Any, final

from redis import Redis

LIBRARIES = ("redis", "hiredis", "uvloop")

Row = dict[str, Any]


def environment(urls: Sequence[str], **settings: Any) -> Row:
    """Return what the figures depend on."""
    with Redis.from_url(urls[0]) as client:
        info: Any = client.info("server")
    name = info.get("server_name", "redis")
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "server": f"{name} {info.get(f'{name}_version', info['redis_version'])}",
        "nodes": len(urls),
        **{library: version(library) for library in LIBRARIES},
        **settings,
    }


def percentile(values: Iterable[float], share: float) -> float:
    """Return the least value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ratio(values: Sequence[float], base: Sequence[float]) -> float:
    """Return the median of the ratios of what was measured side by side: noise that both saw falls out."""
    return statistics.median(value / other for value, other in zip(values, base, strict=True))


@final
class Report:
    """Rows by question; the first line of the JSON is the environment."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("w") if path else None
        self._tables: dict[str, list[Row]] = {}
        self._environments: list[Row] = []

    def environment(self, block: Row) -> None:
        """Note where the rows that follow come from."""
        self._environments.append(block)
        self._write({"environment": block})

    @property
    def server(self) -> str:
        """The server of the latest environment."""
        return str(self._environments[-1]["server"])

    def add(self, question: str, **row: Any) -> None:
        """Add a row to the table of `question`."""
        self._tables.setdefault(question, []).append(row)
        self._write({"question": question, **row})

    def _write(self, line: Row) -> None:
        if self._file is not None:
            print(json.dumps(line), file=self._file, flush=True)

    def markdown(self) -> str:
        """Return everything as Markdown."""
        blocks = [
            " · ".join(f"{key} {value}" for key, value in block.items()) for block in self._environments
        ]
        for question, rows in self._tables.items():
            columns = list(rows[0])
            lines = [f"**{question}**", "", _line(columns), _line("---" for _ in columns)]
            lines += [_line(_shown(row.get(column)) for column in columns) for row in rows]
            blocks.append("\n".join(lines))
        return "\n\n".join(blocks)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
