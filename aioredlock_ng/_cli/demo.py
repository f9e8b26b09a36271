"""``aioredlock-ng demo``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .common import FAILED, UNAVAILABLE

if TYPE_CHECKING:
    from .common import Subcommands


def add(commands: Subcommands) -> None:
    """Add the parser."""
    parser = commands.add_parser(
        "demo",
        help="show how a lock survives failures of five real local nodes",
        description="Starts five local nodes and several processes that increment one counter in a plain "
        "file under one lock. Meanwhile kills, freezes and restarts nodes, and freezes a holder; then "
        "checks the counter. Takes about 12 seconds. Exit code 0 when no increment was lost and no "
        "two holders overlapped.",
    )
    parser.set_defaults(run=_run)


def _run(_: argparse.Namespace) -> int:
    from .._demo import DemoError, run
    from ..testing.local_nodes import NoServerError, ServerStartError
    from ._terminal import quiet

    try:
        with quiet():
            return run(sys.stdout)
    except NoServerError as error:
        print(f"aioredlock-ng demo: {error}", file=sys.stderr)
        return UNAVAILABLE
    except (DemoError, ServerStartError) as error:
        print(f"aioredlock-ng demo: {error}", file=sys.stderr)
        return FAILED
