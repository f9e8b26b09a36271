"""The command ``aioredlock-ng``.

Every subcommand is one function that adds its parser and names the function that runs it.  That one
imports what it needs when it is called, takes the parsed arguments, and returns the exit code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 (it has no public name)

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""

UNAVAILABLE: Final = 69
"""Exit code when something that is needed is not there: ``EX_UNAVAILABLE`` of sysexits.h."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; argparse itself exits with 2 on wrong usage."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aioredlock-ng", description="Distributed locks over independent Redis or Valkey masters."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in _COMMANDS:
        add(commands)
    return parser


def _add_demo(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "demo",
        help="watch a lock over five real local nodes survive what happens to them",
        description="Starts five local nodes and several processes that add to one counter in a plain file "
        "under one lock; kills, freezes and restarts nodes and freezes a holder meanwhile; then counts. "
        "Takes some 12 seconds. Exit code 0 when no increment was lost and no two holders overlapped.",
    )
    parser.set_defaults(run=_demo)


def _demo(_: argparse.Namespace) -> int:
    from ._demo.story import DemoError, run
    from .testing.local_nodes import NoServerError, ServerStartError

    try:
        return run(sys.stdout)
    except NoServerError as error:
        print(f"aioredlock-ng demo: {error}", file=sys.stderr)
        return UNAVAILABLE
    except (DemoError, ServerStartError) as error:
        print(f"aioredlock-ng demo: {error}", file=sys.stderr)
        return 1


_COMMANDS: Final[tuple[Callable[[Subcommands], None], ...]] = (_add_demo,)
