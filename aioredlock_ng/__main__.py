"""The command ``aioredlock-ng``, which is ``python -m aioredlock_ng``, too.

Every command is a module of `_cli` of the same name, which is imported when the command is chosen.  Its
`DESCRIPTION` says what it does, `add_options` adds its options to a parser, and `run` takes the parsed
arguments and returns the exit code.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Final, NoReturn, final

from . import __version__
from ._cli.common import FAILED, SIGNALLED, USAGE, OutputError, UsageError, document

COMMANDS: Final = {
    "demo": "show how a lock survives failures of five real local nodes",
    "run": "run a command while holding a lock",
    "status": "show the nodes and the locks, each with its holder and since when",
    "watch": "show the status repeatedly",
    "trace": "follow one lock and print what happens to it",
    "dashboard": "serve a web page that shows nodes and locks live",
    "doctor": "check for settings that make the quorum unsafe, and say what to do about them",
    "acl": "print the command that gives a user of the nodes the rights for locks",
    "init": "state that no lock can be alive: fresh nodes may vote at once",
    "release": "delete a lock, even if it is held: shows its holders and asks first",
}
"""The commands, and what each of them does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; argparse itself exits with 2 on wrong usage."""
    own, child = _split(sys.argv[1:] if argv is None else argv)
    parser = make_parser(own[:1])
    arguments, others = parser.parse_known_args(own)
    if others:
        hint = " (a command goes after --)" if arguments.command == "run" and not child else ""
        parser.error(f"unrecognized arguments{hint}: {' '.join(others)}")
    if arguments.run is None:
        parser.print_help(sys.stderr)
        return USAGE
    arguments.child = child
    try:
        code: int = arguments.run(arguments)
    except UsageError as error:
        print(f"aioredlock-ng: {error}", file=sys.stderr)
        if vars(arguments).get("json"):
            print(document(arguments.command, {}, str(error)))
        return USAGE
    except OutputError as error:
        print(f"aioredlock-ng: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return SIGNALLED + signal.SIGINT
    return code


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part our own arguments from the child's: those of `run` behind the first ``--``."""
    if "run" not in argv[:1] or "--" not in argv:
        return list(argv), []
    at = argv.index("--")
    return list(argv[:at]), list(argv[at + 1 :])


@final
class _Parser(argparse.ArgumentParser):
    """Tells of wrong usage without the passwords in it: cron sends such lines by mail."""

    def error(self, message: str) -> NoReturn:
        super().error(re.sub(r"(://).*|\S*@.*", r"\1…", message, flags=re.DOTALL))


def make_parser(chosen: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of the command line; only the commands `chosen` are imported for their options."""
    parser = _Parser(
        prog="aioredlock-ng",
        description="Distributed locks over independent Redis or Valkey masters.",
        epilog="`aioredlock-ng COMMAND --help` describes each of them.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"%(prog)s {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, does in COMMANDS.items():
        own = commands.add_parser(name, help=does, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name in chosen:
            command = import_module(f"._cli.{name}", __package__)
            own.description = command.DESCRIPTION
            command.add_options(own)
            own.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
