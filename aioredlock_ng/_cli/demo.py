"""``aioredlock-ng demo``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from ._terminal import quiet
from .common import FAILED, UNAVAILABLE

DESCRIPTION: Final = """\
Starts five local nodes and several processes that increment one counter in a plain file under one lock.
Meanwhile kills, freezes and restarts nodes, and freezes a holder; then checks the counter.  Takes about 12
seconds.

Exit code 0 when no increment was lost and no two holders overlapped."""


def add_options(_: argparse.ArgumentParser) -> None:
    """Add no option."""


def run(_: argparse.Namespace) -> int:
    """Run the command."""
    from .. import _demo
    from ..testing.local_nodes import NoServerError, ServerStartError

    try:
        with quiet():
            return _demo.run(sys.stdout)
    except NoServerError as error:
        print(f"aioredlock-ng demo: {error}", file=sys.stderr)
        return UNAVAILABLE
    except (_demo.DemoError, ServerStartError) as error:
        print(f"aioredlock-ng demo: {error}", file=sys.stderr)
        return FAILED
