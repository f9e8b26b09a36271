"""The result of a run of ``chaos.py``: its record is judged, and shown as tables and plots."""

from __future__ import annotations

import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.faults.claims import RULES
from tests.load.chaos_worker import PERMITS
from tests.load.growth import FEWEST, LONG, PILES, SHORT, Tolerance, growing
from tests.simulation.checks import Rule, check
from tests.simulation.history import Claim, History

Result = dict[str, Any]

WINDOW: Final = 60.0  # seconds of claims that are checked at once, …
LONGEST: Final = 60.0  # … and from the question for a lock to the end of its claim, at most

LONG_FROM: Final = 5  # minutes

# What a long run shows as series, for each process.
SERIES: Final = {"rss": "memory in MB", "fds": "descriptors", "tasks": "asyncio tasks", "sockets": "sockets"}
TOLERANCES: Final = {"threads": Tolerance(0, 1), "sockets": Tolerance(0, 4), "object Answer": PILES}
MB: Final = 1e6
COLOURS: Final = 10  # of matplotlib's cycle


class Checker:
    """Checks claims as they come, without keeping all of them."""

    def __init__(self) -> None:
        self.violations: dict[str, None] = {}  # each once, in order
        self._waiting: list[Claim] = []
        self._checked = 0.0  # all claims that began earlier have been seen
        self._context: list[Claim] = []
        self._greatest: dict[tuple[str, bool], Claim] = {}

    def add(self, claim: Claim) -> None:
        """Take a claim that has ended, as all have that began so much earlier than the latest one ended."""
        if claim.since < self._checked:
            self.violations[f"recorded too late to be checked: {claim}"] = None
        self._waiting.append(claim)
        if claim.stopped > self._checked + WINDOW + 2 * LONGEST:
            self.check(claim.stopped - LONGEST)

    def check(self, until: float = float("inf")) -> None:
        """Check what began before some time, beside the claims that may last until then."""
        ready = [claim for claim in self._waiting if claim.since < until]
        claims = {id(claim): claim for claim in (*self._greatest.values(), *self._context, *ready)}
        history = History(nodes=0, clients=0, claims=list(claims.values()))
        for violation in check(history, rules=(*RULES, Rule.PERMITS), bound=0.0):
            self.violations[str(violation)] = None
        for claim in ready:
            for place in claim.places if claim.fence else ():
                key = place, claim.alone
                if key not in self._greatest or (claim.fence or 0) > (self._greatest[key].fence or 0):
                    self._greatest[key] = claim
        # Names that are used once are not remembered for ever.
        oldest = until - 2 * LONGEST
        self._greatest = {
            key: claim
            for key, claim in self._greatest.items()
            if claim.since > oldest or not key[0].startswith("once:")
        }
        self._context = [claim for claim in (*self._context, *ready) if claim.until > oldest]
        self._waiting = [claim for claim in self._waiting if claim.since >= until]
        self._checked = max(self._checked, until)


def judge(record: Path) -> Result:
    """Read a record and say what it shows."""
    checker, stray = Checker(), list[str]()
    minutes: defaultdict[str, Counter[int]] = defaultdict(Counter)
    faults: list[tuple[str, float, float]] = []
    samples: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    counts: defaultdict[str, list[Counter[str]]] = defaultdict(list)
    environment: dict[str, Any] = {}
    first = latest = gap = 0.0
    for what, who, *facts in lines(record):
        if what == "claim":
            kind, since, *_ = facts
            first = first or since
            minutes[kind][int((since - first) // 60)] += 1
            gap, latest = max(gap, since - (latest or since)), max(latest, since)
            checker.add(claim_of(who, facts))
        elif what == "sample":
            at, found, counted = facts
            first = first or at
            gap = max(gap, at - (latest or at))
            samples[str(who)].append({"minute": (at - first) / 60, **found})
            counts[str(who)].append(Counter(counted))
        elif what == "fault":
            faults.append((facts[0], (facts[1] - first) / 60, (facts[2] - first) / 60))
        elif what == "environment":
            environment = facts[0]
        else:
            stray.append(f"{who}: {facts[0]}")
    checker.check()
    length = 1 + max((minute for each in minutes.values() for minute in each), default=0)
    ours = {who: found for who, found in samples.items() if who != "proxies"}
    tolerances = (SHORT if length < LONG_FROM else LONG) | TOLERANCES
    grew = {
        who: growing([one | {"minute": 0.0} for one in found], tolerances)
        for who, found in ours.items()
        if len(found) >= FEWEST
    }
    return {
        "environment": environment,
        "minutes": length,
        "gap": gap,
        "leases": {kind: [minutes[kind][i] for i in range(length)] for kind in sorted(minutes)},
        "counts": {who: dict(found[-1]) for who, found in counts.items()},
        "losses": _losses(samples, counts, length),
        "faults": faults,
        "samples": {who: [_kept(one) for one in found] for who, found in samples.items()},
        "violations": list(checker.violations),
        "stray": stray,
        "growing": {who: found for who, found in grew.items() if found},
        "ok": not (checker.violations or stray or any(grew.values())),
    }


def lines(record: Path) -> Iterator[list[Any]]:
    """Yield the lines of a record; the last one may be cut off."""
    with record.open() as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def claim_of(who: int | str, facts: Sequence[Any]) -> Claim:
    """Return a claim as the checks of the simulation know it."""
    kind, since, until, asked, names, fence, slot, lease = facts
    return Claim(
        client=who if isinstance(who, int) else -1,
        task=0,
        names=tuple(names),
        owner=f"{who}:{lease}".encode(),
        fence=fence,
        asked=asked,
        since=since,
        until=until,
        stopped=max(since, until),
        mode=kind if kind in ("read", "write") else "lock",
        slot=slot,
        permits=0 if slot is None else PERMITS,
    )


def _kept(sample: dict[str, float]) -> dict[str, float]:
    """Leave the numbers of objects out, and all that no one looks at later."""
    return {key: round(value, 3) for key, value in sample.items() if not key.startswith("object ")}


def _losses(
    samples: dict[str, list[dict[str, float]]], counts: dict[str, list[Counter[str]]], length: int
) -> dict[str, list[int]]:
    """Return per minute what the processes' counters of losses and refusals grew by."""
    found: defaultdict[str, list[int]] = defaultdict(lambda: [0] * length)
    for who, series in counts.items():
        before: Counter[str] = Counter()
        for one, counted in zip(samples[who], series, strict=True):
            for reason, number in (counted - before).items():
                found[reason][min(max(int(one["minute"]), 0), length - 1)] += number
            before = counted
    return dict(sorted(found.items()))


def tenths(found: Sequence[dict[str, float]], key: str) -> tuple[float, float]:
    """Return a series' medians in the first and the last tenth."""
    tenth = max(1, len(found) // 10)
    return median(one[key] for one in found[:tenth]), median(one[key] for one in found[-tenth:])


def markdown(result: Result) -> str:
    """Return the figures as tables."""
    leases = {kind: sum(each) for kind, each in result["leases"].items()}
    faults = Counter(what for what, *_ in result["faults"])
    load = sorted(one["load"] for one in result["samples"].get("proxies", [])) or [0.0]
    rows = [
        f"{sum(leases.values()):,} leases, {faults.total()} faults in {result['minutes']} minutes",
        f"longest time without a new lease: {result['gap']:.1f} s",
        f"violations: {len(result['violations'])}, undocumented errors: {len(result['stray'])}",
        f"load of the machine: median {median(load):.1f}, at most {load[-1]:.1f}; {result['environment']}",
        *result["violations"][:9],
        *result["stray"][:9],
        *(f"grew: process {who}: {what}" for who, what in result["growing"].items()),
    ]
    rows += _table(("leases", "number"), ((kind, f"{number:,}") for kind, number in leases.items()))
    rows += _table(("fault", "number"), ((what, f"{number:,}") for what, number in sorted(faults.items())))
    ended = ((reason, f"{sum(each):,}") for reason, each in result["losses"].items())
    rows += _table(("calls that ended without a lock, and leases lost", "number"), ended)
    keys = [*SERIES, "threads"]
    per_process = []
    for who, found in sorted(result["samples"].items()):
        if who != "proxies":
            pairs = [(key, tenths(found, key)) for key in keys]
            cells = (
                f"{a / MB:.1f} → {b / MB:.1f}" if key == "rss" else f"{a:g} → {b:g}" for key, (a, b) in pairs
            )
            per_process.append((who, *cells))
    rows += _table(("process", *SERIES.values(), "threads"), per_process)
    return "\n".join(rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["", *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))]


def draw(result: Result, folder: Path) -> None:
    """Draw the run; needs the dependency group `bench`."""
    import matplotlib as mpl  # type: ignore[import-not-found, unused-ignore]

    # To mypy this is the folder of the same name.
    from benchmarks.plots import STYLE, panels  # type: ignore[attr-defined]

    folder.mkdir(parents=True, exist_ok=True)
    minutes = [i + 0.5 for i in range(result["minutes"])]
    with mpl.rc_context(STYLE | {"svg.fonttype": "none"}):  # letters as letters: half as large
        figure, grid = panels(3, 1, height=3.0, sharex=True)
        figure.set_size_inches(9, 9)
        leases, lost, marks = (line[0] for line in grid)
        for i, (kind, series) in enumerate(result["leases"].items()):
            leases.plot(minutes, series, label=kind, linestyle="-" if i < COLOURS else "--")
        leases.set_yscale("log")
        leases.set_ylabel("leases per minute")
        ends = {reason.partition(": ")[2]: series for reason, series in result["losses"].items()}
        for reason, series in ends.items():
            lost.plot(minutes, series, label=reason)
        lost.set_ylabel("leases lost, calls without a lock,\nper minute")
        whats = sorted({what for what, *_ in result["faults"]}, reverse=True)
        for height, what in enumerate(whats):
            spans = [(began, ended) for kind, began, ended in result["faults"] if kind == what]
            x = [
                round(moment, 3)
                for began, ended in spans
                for moment in (began, max(ended, began + 0.05), float("nan"))
            ]
            marks.plot(x, [height] * len(x), color="#d55e00", linewidth=3, solid_capstyle="butt")
        marks.set_yticks(range(len(whats)), whats, fontsize=6.5)
        marks.set_xlabel("minutes")
        for axes in (leases, lost):
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7)
        _save(figure, folder / "long-run-leases.svg")

        figure, grid = panels(2, 2, height=2.2, sharex=True)
        figure.set_size_inches(9, 4.5)
        for axes, (key, title) in zip(grid.flat, SERIES.items(), strict=True):
            for who in sorted(result["samples"].keys() - {"proxies"}):
                found = result["samples"][who]
                thin = found[:: max(1, len(found) // 120)]
                scale = MB if key == "rss" else 1
                axes.plot([one["minute"] for one in thin], [one[key] / scale for one in thin], label=who)
            axes.set_title(title, fontsize=9)
            axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
        for axes in grid[-1]:
            axes.set_xlabel("minutes")
        grid[0][1].legend(title="process", loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7)
        _save(figure, folder / "long-run-processes.svg")


def _save(figure: Any, path: Path) -> None:
    """Write an SVG with one digit behind the point of a pixel: it is half as large."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    path.write_text(re.sub(r"(\b\d{2,}\.\d)\d+", r"\1", text.getvalue()))
