"""``aioredlock-ng acl``."""

from __future__ import annotations

import argparse
from typing import Final

from .._core.rights import ADMIN_RIGHTS, KIND_RIGHTS, acl_line, rights_for
from ._terminal import output
from .common import add_prefix_option

DESCRIPTION: Final = """\
Prints the command that makes a user with the least rights for locks of some kinds, to be given to each node
after its user and its password (locks, secret) have been replaced.  `doctor` checks these rights."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    kinds = f"kinds of locks, separated by commas: {', '.join(KIND_RIGHTS)} (default: all)"
    parser.add_argument("--kinds", type=_kinds, default=KIND_RIGHTS, help=kinds)
    admin = "also the rights of doctor, init, and status without names"
    parser.add_argument("--admin", action="store_true", help=admin)
    add_prefix_option(parser)


def _kinds(text: str) -> list[str]:
    """Read kinds of locks."""
    kinds = text.split(",")
    if unknown := [kind for kind in kinds if kind not in KIND_RIGHTS]:
        raise argparse.ArgumentTypeError(f"kinds are {', '.join(KIND_RIGHTS)}, got {unknown[0]!r}")
    return kinds


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    rights = rights_for(arguments.kinds, ADMIN_RIGHTS if arguments.admin else "")
    with output() as stream:
        print(acl_line(arguments.prefix.encode(), rights), file=stream)
    return 0
