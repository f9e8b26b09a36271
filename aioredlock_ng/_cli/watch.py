"""``aioredlock-ng watch``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .common import add_node_options

if TYPE_CHECKING:
    from .common import Subcommands


def add(commands: Subcommands) -> None:
    """Add the parser."""
    parser = commands.add_parser("watch")
    add_node_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    raise NotImplementedError
