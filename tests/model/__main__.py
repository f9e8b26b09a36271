"""Checks models by hand: ``python -m tests.model Semaphore --large``; prints a table in Markdown."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from .models import MODELS, run


def main() -> None:
    """Check the named models, or all; exit with 1 if an invariant is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; default all")
    parser.add_argument("--large", action="store_true", help="within the large bounds: minutes to hours")
    parser.add_argument("--temporal", action="store_true", help="the temporal properties, not the invariants")
    parser.add_argument("--variant", help="a wrong variant of one model: prints its counterexample")
    given = parser.parse_args()
    for name in given.names:
        if name not in MODELS:
            parser.error(f"there is no model {name!r}")
    print("| model | bounds | states | depth | seconds | violated |\n| --- | --- | --- | --- | --- | --- |")
    failed = False
    for name in given.names or MODELS:
        if given.temporal and not MODELS[name].properties:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="model-") as folder:
            found = run(
                name,
                variant=given.variant,
                large=given.large,
                temporal=given.temporal,
                folder=Path(folder),
                workers=os.cpu_count() or 1,
            )
        took = time.monotonic() - began
        bounds = "large" if given.large else "small"
        bounds += ", temporal" if given.temporal else ""
        print(
            f"| {name} | {bounds} | {found.states:,} | {found.depth} | {took:.0f} | {found.broken or '–'} |"
        )
        if found.broken is not None:
            failed = True
            print(found.text)
    sys.exit(failed)


if __name__ == "__main__":
    main()
