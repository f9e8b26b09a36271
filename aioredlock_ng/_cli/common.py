"""Shared by the commands: exit codes, the options for nodes, and an end by a signal."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Awaitable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from .. import LockManager

T = TypeVar("T")

# Exit codes: 69, 71 and 75 are those of sysexits.h, 126 and more those of shells.
FAILED: Final = 1  # an error was found, the output cannot be written, or it was refused or called off
USAGE: Final = 2
UNAVAILABLE: Final = 69
OS_ERROR: Final = 71  # `run` cannot start a process
LOST: Final = 75  # `run` has lost the lock
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
SIGNALLED: Final = 128  # plus the signal's number

FORMAT: Final = 1
"""Version of the JSON objects: raised when a key goes or changes its meaning; new keys may come without."""

QUARANTINE_VARIABLE: Final = "REDLOCK_RESTART_QUARANTINE"

DEFAULT_TTL: Final = 10.0
"""Seconds: the manager's default, which a shorter quarantine must bring down with it."""

TIMES: Final = "A TIME is a number of seconds, or has units: 90s, 5m, 1h30m."


class UsageError(Exception):
    """The command line asks for something that cannot be; the message says what would be right."""


class OutputError(Exception):
    """The output cannot be written; the message says why."""


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the nodes are."""
    parser.epilog = parser.epilog or TIMES
    group = parser.add_argument_group("nodes")
    group.add_argument(
        "--nodes",
        metavar="URLS",
        help="node URLs (redis://..., redis+sentinel://host,host/service), separated by commas; default: "
        "the environment variable REDLOCK_URLS, which is safer for passwords",
    )
    add_prefix_option(group)
    wait = "how long to wait for the answer of one node (default: %(default)s s)"
    add_time(group, "--node-timeout", help=wait, default=0.1)


def add_prefix_option(group: argparse._ActionsContainer) -> None:
    """Add the option that says under which prefix the locks are."""
    group.add_argument("--prefix", default="redlock:", help="prefix of every key (default: %(default)s)")


def add_quarantine_option(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option that says what the clients' restart quarantine is."""
    add_time(parser, "--restart-quarantine", help=f"the restart_quarantine of your clients ({default})")


def add_time(group: argparse._ActionsContainer, *names: str, help: str, **more: Any) -> None:  # noqa: A002 (argparse's word)
    """Add an option that is a time."""
    group.add_argument(*names, type=duration, metavar="TIME", help=help, **more)


def duration(text: str) -> float:
    """Read an option that is a time; the result is in seconds."""
    from .._settings.options import parse_duration  # `--help` needs none of the settings

    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def document(command: str, fields: Mapping[str, Any], error: str | None = None) -> str:
    """Return the JSON object that a command prints for programs: a head that all have, and its own fields."""
    import json  # here, as what else `--help` does not need

    head = {"version": FORMAT, "command": command, "error": error}
    return json.dumps(head | dict(fields), indent=2, allow_nan=False)


def quarantine_of(arguments: argparse.Namespace) -> float | None:
    """Return the quarantine that is asked for, in seconds, by option or variable; None when by neither.

    Raises:
        UsageError: the variable is no time.
    """
    seconds: float | None = arguments.restart_quarantine
    return clients_quarantine() if seconds is None else seconds


def clients_quarantine() -> float | None:
    """Return the clients' restart quarantine by the variable, in seconds; None when it is not set.

    Raises:
        UsageError: it is no time.
    """
    text = os.environ.get(QUARANTINE_VARIABLE)
    if not text:
        return None
    try:
        return duration(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{QUARANTINE_VARIABLE}: {error}") from None


def with_quarantine(seconds: float | None) -> dict[str, Any]:
    """Return a manager's options for a quarantine, None for its default: no ttl may be longer."""
    short = {"ttl": seconds} if seconds and 0 < seconds < DEFAULT_TTL else {}
    return {"restart_quarantine": seconds} | short


def make_manager(arguments: argparse.Namespace, **options: Any) -> LockManager:
    """Make the manager that the command line asks for; it connects at its first use.

    Unless `options` have a ttl or a quarantine it is there for looking, and its quarantine is 0: any other
    would be written on the nodes, where all clients then wait for it.

    Raises:
        UsageError: no nodes are given, or they cannot be used.
    """
    from .. import LockManager
    from .._settings.specs import split_urls

    if not options.keys() & {"ttl", "restart_quarantine"}:
        options["restart_quarantine"] = 0
    options = {"prefix": arguments.prefix, "node_timeout": arguments.node_timeout} | options
    try:
        if arguments.nodes is not None:
            return LockManager(split_urls(arguments.nodes), **options)
        if not os.environ.get("REDLOCK_URLS", "").strip():
            raise UsageError("no nodes: give --nodes URL,URL,URL or set REDLOCK_URLS")
        return LockManager.from_env(**options)
    except ValueError as error:
        raise UsageError(str(error)) from None


async def closing(manager: LockManager, work: Awaitable[T]) -> T:
    """Await work that uses a manager, and close that."""
    try:
        return await work
    finally:
        await manager.aclose()


async def until_signal(work: Coroutine[None, None, None], seconds: float | None = None) -> int | None:
    """Run it until it ends, its time is up, or SIGINT or SIGTERM comes; return the signal.

    Its errors are raised.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    ended_by: list[int] = []

    def end(number: int) -> None:
        ended_by.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    await asyncio.wait((task,), timeout=seconds)
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.result()
    return ended_by[0] if ended_by else None
