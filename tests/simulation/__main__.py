"""Simulate the shipping code under faults, from the command line.

python -m tests.simulation --seeds 20000                 a campaign
python -m tests.simulation --replay 4711                 one run: its history as text, and what it broke
python -m tests.simulation --replay 4711 --shrink        the same with as few faults and clients as possible
python -m tests.simulation --seeds 300 --quarantine 0    what the restart quarantine is for
python -m tests.simulation --seeds 2000 --crowded        many tasks in each process, which ask in step
python -m tests.simulation --seeds 2000 --permits        permits of a semaphore in every run
python -m tests.simulation --seeds 2000 --fair           fair locks in every run
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from tests.simulation.campaign import Figures, shared_campaign
from tests.simulation.plan import draw
from tests.simulation.replay import report, shown, smallest
from tests.simulation.shrink import Cut, whole


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many runs")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, help="processes; default: one per processor")
    parser.add_argument(
        "--again-every", type=int, default=1, help="run one seed in this many a second time; 0: none"
    )
    parser.add_argument("--quarantine", type=float, help="seconds, in place of what is drawn")
    parser.add_argument("--stubborn", action="store_true", help="holders go on when their lease is lost")
    parser.add_argument("--crowded", action="store_true", help="processes of many tasks that ask in step")
    parser.add_argument("--unmixed", action="store_true", help="mutexes alone, without readers and writers")
    parser.add_argument(
        "--permits", action="store_true", default=None, help="permits of a semaphore in every run"
    )
    parser.add_argument("--fair", action="store_true", default=None, help="fair locks in every run")
    parser.add_argument("--replay", type=int, metavar="SEED", help="show one run")
    parser.add_argument("--clients", type=_numbers, help="only these of its clients: 0,2")
    parser.add_argument("--faults", type=_numbers, help="only these of its faults: 0,3,4 (or nothing: '')")
    parser.add_argument("--shrink", action="store_true", help="leave out what is not needed to break it")
    parser.add_argument(
        "--between", type=float, nargs=2, metavar="SECONDS", help="show what was between these two times"
    )
    return parser


def main() -> None:
    """Run from the command line."""
    asked = _parser().parse_args()
    options: dict[str, Any] = {
        "quarantine": asked.quarantine,
        "stubborn": asked.stubborn,
        "crowded": asked.crowded,
        "mixed": not asked.unmixed,
        "permits": asked.permits,
        "fair": asked.fair,
    }
    if asked.replay is None:
        _campaign(asked, options)
    else:
        _replay(asked, options)


def _campaign(asked: argparse.Namespace, options: dict[str, Any]) -> None:
    figures = Figures()
    seeds = range(asked.start, asked.start + asked.seeds)
    campaign = shared_campaign(seeds, jobs=asked.jobs, again_every=asked.again_every, **options)
    # The figures so far are worth having.
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(campaign):
        for figures in campaign:
            last = f"; last: seed {figures.failures[-1].seed}" if figures.failures else ""
            print(f"\r{figures.runs} runs, {figures.failed} with violations{last}", end="", flush=True)
    print(f"\n{figures}")
    if figures.failures:
        print(report(figures.failures[0], **options))
        raise SystemExit(1)


def _replay(asked: argparse.Namespace, options: dict[str, Any]) -> None:
    plan = draw(asked.replay, **options)
    every = whole(plan)
    cut = Cut(
        every.clients if asked.clients is None else asked.clients,
        every.faults if asked.faults is None else asked.faults,
    )
    if asked.shrink:
        cut = smallest(plan, cut)
    print(shown(plan, cut, options, between=asked.between))


if __name__ == "__main__":
    main()
