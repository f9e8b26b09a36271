"""``aioredlock-ng run``."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ._terminal import logged_by
from .common import FAILED, OS_ERROR, TIMES, UsageError, add_node_options, add_time, make_manager

if TYPE_CHECKING:
    from .run_job import Plan

DESCRIPTION: Final = "Wait for the lock NAME, run COMMAND while holding it, and release it."

TTL: Final = 10.0
"""Seconds a lock lives without extension: the default of `LockManager`."""

KILL_AFTER_SHARE: Final = 0.25
"""Share of the ttl between SIGTERM and SIGKILL, by default."""

MAX_PERMITS: Final = 256
MAX_CODE: Final = 255
USAGE_LINE: Final = (
    "%(prog)s [-q] [-n | -w TIME] [-s | -x | --permits N | --fair] [-E CODE] [--at-least TIME] [--ttl TIME] "
    "[--kill-after TIME] [nodes ...] NAME -- COMMAND ..."
)

EPILOG: Final = f"""\
The command runs in its own process group.  Signals (HUP, INT, QUIT, TERM, USR1, USR2, CONT, WINCH) are
forwarded to it; before that the first six end the wait for the lock.  Its environment contains REDLOCK_NAME,
REDLOCK_TTL (seconds) and, where locks have fences, REDLOCK_FENCE; with --shared also REDLOCK_MODE=read, with
--exclusive REDLOCK_MODE=write, with --permits REDLOCK_SLOT.

{TIMES}

exit code:
  the command's; 128 + N when signal N ended the command, or the wait for the lock
  1 (-E)  the lock is taken            75  the lock was lost, and the command was ended
  2       wrong usage                 126  the command cannot be executed
  69      too few nodes answer        127  the command was not found
  71      cannot start a process

When the lock cannot be extended any more, the command gets SIGTERM and, if it still runs, SIGKILL.  SIGKILL
comes before the validity of the lock ends, by a margin of a twentieth of the ttl (at most 1 s); SIGTERM
comes at least --kill-after earlier.  A small process, the guard, does this, even if this process is killed,
frozen or busy.  Processes that the command leaves behind are ended, too, before the lock is released; on
systems other than Linux only those in its process group.

Limits: a process that starts its own session (setsid, a daemon) is not ended, nor one that belongs to
another user (sudo), that hangs in the kernel, or whose machine is paused.  The command also continues while
its guard and this process are both frozen.  When both are killed (SIGKILL), Linux kills the command, but not
its children.  When only the guard is killed or frozen, processes that have left the command's process group
(timeout, job control) are not found.  If the command ran longer than the lock was valid, a line says by how
many seconds.
A deleted lock (release, DEL, FLUSHALL) can have another holder before the command is ended.
Where that matters, let the resource to which the command writes check a fence.

examples:
  aioredlock-ng run -q -n -E 0 --at-least 60 nightly -- /usr/local/bin/report
                                      in the crontab of many hosts: one runs it, the others exit
  aioredlock-ng run -w 60 deploy -- sh -c './migrate && ./restart'
  aioredlock-ng run --shared catalogue -- ./serve-copy
  aioredlock-ng run --exclusive catalogue -- ./rebuild
                                      many serve at the same time, but none while one rebuilds
  aioredlock-ng run --permits 4 gpu -- sh -c 'CUDA_VISIBLE_DEVICES=$REDLOCK_SLOT exec ./train'
                                      four at the same time, each on its own device
  aioredlock-ng run --fair printer -- lp report.pdf
                                      one after the other, in the order of their start
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage, parser.epilog = USAGE_LINE, EPILOG
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "-n", "--nonblock", action="store_true", help="try once: do not wait for a lock that is taken"
    )
    add_time(waiting, "-w", "--wait", help="wait at most this long (default: for ever)")
    _add_modes(parser)
    quiet = "for cron: report only errors, and not that the lock is taken"
    parser.add_argument("-q", "--quiet", action="store_true", help=quiet)
    parser.add_argument(
        "-E",
        "--conflict-exit-code",
        type=_number(0, MAX_CODE, "an exit code is"),
        default=FAILED,
        metavar="CODE",
        help="exit code when the lock is taken (default: %(default)s); with 0 nothing is reported, either",
    )
    add_time(
        parser,
        "--at-least",
        default=0.0,
        help="keep the lock for at least this long, counted from the request, even if the command ends "
        "sooner; so a host whose clock is behind does not run a cron job again (default: 0)",
    )
    add_time(
        parser,
        "--ttl",
        default=TTL,
        help="time after which the lock expires if it is not extended, because this host is dead or cut "
        f"off (default: {TTL:g} s); it is extended for as long as the command runs",
    )
    add_time(
        parser,
        "--kill-after",
        help="time from SIGTERM to SIGKILL when the lock is lost, less than half of the ttl "
        "(default: a quarter of the ttl)",
    )
    add_node_options(parser)
    parser.add_argument("name", metavar="NAME", help="the name of the lock")


def _add_modes(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a reader or a writer of it."""
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "-s",
        "--shared",
        dest="mode",
        action="store_const",
        const="read",
        help="hold a read lock, as flock -s: commands with --shared run at the same time",
    )
    mode.add_argument(
        "-x",
        "--exclusive",
        dest="mode",
        action="store_const",
        const="write",
        help="hold a write lock: the command runs alone, as it does without this option, but commands "
        "with --shared that come later wait behind it",
    )
    mode.add_argument(
        "--permits",
        type=_number(1, MAX_PERMITS, "permits are"),
        metavar="N",
        help="hold one of N permits (at most 256): up to N commands run at the same time, each with its "
        "own slot, numbered from 0",
    )
    parser.add_argument(
        "--fair",
        action="store_true",
        help="wait in a queue: commands with --fair run one after the other, first come, first served; "
        "`aioredlock-ng status NAME` shows the queue",
    )


def _number(least: int, most: int, kind: str) -> Callable[[str], int]:
    """Return what reads an option that is a number."""

    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if least <= (value := int(text)) <= most:
                return value
        raise argparse.ArgumentTypeError(f"{kind} a number from {least} to {most}, got {text!r}")

    return read


def _plan(arguments: argparse.Namespace) -> Plan:
    ttl = max(arguments.ttl, arguments.at_least) if arguments.ttl > 0 else arguments.ttl
    kill_after = arguments.ttl * KILL_AFTER_SHARE if arguments.kill_after is None else arguments.kill_after
    if not arguments.child or not arguments.child[0]:
        raise UsageError("run: no command: give it after --, as in: aioredlock-ng run NAME -- COMMAND")
    if ttl > 0 and kill_after >= ttl / 2:
        raise UsageError(
            f"run: --kill-after must be less than half of the ttl ({ttl:g} s), got {kill_after:g} s: "
            "give a longer --ttl"
        )
    if (arguments.mode is not None or arguments.permits) and arguments.at_least:
        raise UsageError("run: --at-least cannot be combined with --shared, --exclusive or --permits")
    if arguments.fair and (arguments.mode is not None or arguments.permits or arguments.at_least):
        raise UsageError(
            "run: --fair is for a lock with one holder: it cannot be combined with --shared, "
            "--exclusive, --permits or --at-least"
        )
    from .run_job import Plan  # and clients: wrong usage needs none

    return Plan(
        name=arguments.name,
        mode=arguments.mode,
        permits=arguments.permits,
        fair=arguments.fair,
        command=tuple(arguments.child),
        ttl=ttl,
        kill_after=kill_after,
        patience=0.0 if arguments.nonblock else arguments.wait,
        taken_code=arguments.conflict_exit_code,
        at_least=arguments.at_least,
        quiet=arguments.quiet,
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    plan = _plan(arguments)
    import asyncio

    from .. import ConfigurationError
    from ._guard.child import fill_standard_descriptors
    from .run_job import Job, say

    make = functools.partial(make_manager, arguments)
    try:
        plan.lock(make(ttl=plan.ttl))  # it says what is wrong with the name, or the times
    except ValueError as error:
        raise UsageError(f"run: {error}") from None
    fill_standard_descriptors()
    job = Job(plan)
    try:
        with logged_by(lines := _Lines(say, quiet=plan.quiet), level=lines.level):
            code = asyncio.run(job.run(make))
    except ConfigurationError as error:
        raise UsageError(f"run: {error}") from None
    except OSError as error:  # as without descriptors; a traceback's 1 would say that the lock is taken
        say(f"cannot continue: {error.strerror or error}")
        return OS_ERROR
    if job.interrupted:
        _interrupt_our_group()
    return code


def _interrupt_our_group() -> None:
    """Do what Ctrl-C would have done, had the command not had the terminal: end us, and the script around us.

    A shell goes on with its script unless it gets the signal, too, and sees that the command died of it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.killpg(0, signal.SIGINT)


class _Lines(logging.Handler):
    """Writes what the library logs the way everything else is written here.

    On a terminal also for what it waits, where that takes long, lest it seem to hang.
    """

    def __init__(self, say: Callable[[str], None], *, quiet: bool) -> None:
        watched = sys.stderr is not None and sys.stderr.isatty()
        super().__init__(logging.ERROR if quiet else logging.INFO if watched else logging.WARNING)
        self._say = say

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or str(record.msg).startswith("still waiting")

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())
