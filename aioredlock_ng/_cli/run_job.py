"""One `run`: wait for the lock, start the command with its guard, judge its end, release the lock."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from .. import (
    Clock,
    ExtensionPolicy,
    Lease,
    Lock,
    LockError,
    LockManager,
    LockTakenError,
    LossReason,
    Mode,
    NodeInspection,
    QuorumUnavailableError,
    ReleaseOutcome,
)
from ..events import Extended, Lost, Refused
from ._guard.child import own_environment
from ._guard.group import group_lives, open_terminal, take_terminal_back
from .common import LOST, NOT_EXECUTABLE, NOT_FOUND, OS_ERROR, SIGNALLED, UNAVAILABLE

MARGIN_SHARE: Final = 1 / 20
"""Share of the ttl between SIGKILL and the end of validity, for the killed to be really gone."""

MAX_MARGIN: Final = 1.0
"""Seconds; no margin is longer.  Measured: with eight busy processes per core, the end of a small process
takes 0.04 s, of one with 500 MB of memory 0.4 s; on an idle machine 0.001 s and 0.04 s."""

DRIFT: Final = 0.01
"""Share of the ttl that the lock gives up to the drift of clocks."""

MAX_GRACE: Final = 0.45
"""Share of the ttl: the longest grace that `ExtensionPolicy` takes."""


def say(message: str) -> None:
    """Write one line for people to the standard error, if there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"aioredlock-ng run: {message}", file=sys.stderr, flush=True)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Options of `run`; times in seconds."""

    name: str
    command: tuple[str, ...]
    ttl: float
    """At least `at_least`: so long the keys of a host that dies stay."""
    kill_after: float
    """From SIGTERM to SIGKILL.  Below half of the ttl."""
    patience: float | None
    """The longest wait for the lock; None: for ever."""
    taken_code: int
    at_least: float = 0.0
    """For how long the lock stays taken, also when the command ends sooner."""
    mode: Mode | None = None
    permits: int | None = None
    """The number that may run at once; None for a mutex."""
    fair: bool = False
    quiet: bool = False
    """Whether nothing is said that the exit code says, nor what does no harm."""

    def lock(self, manager: LockManager, patience: float | None = None) -> Lock:
        """Describe the lock."""
        return manager._lock_of(  # noqa: SLF001 (it has all kinds)
            self.name,
            mode=self.mode,
            permits=self.permits,
            blocking_timeout=patience,
            at_least=self.at_least,
            fair=self.fair,
        )

    @property
    def margin(self) -> float:
        """From SIGKILL to the end of validity."""
        return min(self.ttl * MARGIN_SHARE, MAX_MARGIN)

    @property
    def extension(self) -> ExtensionPolicy:
        """Extend without bound, thrice in the time in which the command may run undisturbed.

        The lease counts as lost when the guard sends SIGTERM, or, if that is beyond what a policy can
        say, a little later; it is the guard that keeps the deadline.
        """
        grace = (self.kill_after + self.margin) / self.ttl
        return ExtensionPolicy(
            every=(1 - DRIFT - grace) / 3, max_extensions=None, grace=min(grace, MAX_GRACE)
        )


GUARD: Final = Path(__file__).with_name("_guard")
"""The folder that is the guard's program."""

POLL: Final = 0.02
"""Seconds between two looks at processes that are not our children."""


@final
class GuardedCommand:
    """A command that a guard runs and ends in time; see `_guard` for what they say to each other."""

    def __init__(self, plan: Plan, *, until: float, environment: dict[str, str]) -> None:
        """Start the guard, which starts the command; the lock is valid `until` then.

        Raises:
            OSError: no process can be started.
        """
        self.pid: int | None = None
        """The command's process and process group, once it is known."""
        for_guard, self._orders = os.pipe()
        self._reports, from_guard = os.pipe()
        times = (repr(until), repr(plan.kill_after), repr(plan.margin))
        try:
            for end in (for_guard, from_guard):
                os.set_inheritable(end, True)  # noqa: FBT003 (it takes no keyword)
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", os.fspath(GUARD), str(for_guard), str(from_guard), *times,
                 str(os.getpgrp()), *plan.command],
                env=environment,
                # What the caller left open for the command is inherited; what is ours is not inheritable.
                close_fds=False,
                # Out of reach of what is sent to our group, by a terminal or a person.  Not a session of
                # its own: the command's group must be able to get the terminal.
                process_group=0,
            )  # fmt: skip
        except BaseException:
            os.close(self._orders)
            os.close(self._reports)
            raise
        finally:
            os.close(for_guard)
            os.close(from_guard)
        os.set_blocking(self._orders, False)

    # -- orders --------------------------------------------------------------------------------

    def keep_until(self, moment: float) -> None:
        """The lock is valid until then."""
        self._order(f"until {moment!r}")

    def pass_on(self, number: int) -> None:
        """Send a signal to the command's process group."""
        self._order(f"signal {number}")

    def end(self) -> None:
        """The lock is lost: let the command be ended."""
        self._order("lost")

    def _order(self, line: str) -> None:
        # A guard that is gone is noticed by its reports' end.  The pipe of one that stands still may get
        # full, after thousands of orders: the deadline that it knows then is an earlier one.
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._orders, line.encode() + b"\n")

    # -- reports -------------------------------------------------------------------------------

    async def reports(self) -> AsyncIterator[list[str]]:
        """Yield the guard's reports as words, until it ends."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._reports, "rb", 0)
        )
        with contextlib.closing(transport):
            async for line in reader:
                words = line.decode().split()
                if words[0] == "started":
                    self.pid = int(words[1])
                yield words

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the guard, and wait for its end: before it, the command has not ended."""
        os.close(self._orders)
        self._guard.wait()

    def kill(self) -> bool:
        """Kill the command's process group and the guard, unless that has ended."""
        if self._guard.poll() is not None:
            return False
        self._send_kill()
        self._guard.kill()
        return True

    async def killed(self) -> None:
        """Kill what an ended guard has left of the command, and wait until it is gone."""
        if self.pid is None:
            return  # it dies with its guard, before it has executed anything
        while group_lives(self.pid):
            self._send_kill()
            await asyncio.sleep(POLL)
        if (terminal := open_terminal()) >= 0:
            take_terminal_back(terminal, self.pid, os.getpgrp())
            os.close(terminal)

    def _send_kill(self) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


TICK: Final = 0.25
"""Seconds: no longer sleep before a deadline, since timers stand still during a suspend."""

FORWARDED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1,
                    signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH)  # fmt: skip
"""Signals that are passed on to the command."""

HARMLESS: Final = (signal.SIGCONT, signal.SIGWINCH)
"""Those of them that do not end the waiting for the lock."""

SAYS: Final = {
    "stopped": "not suspended: the lock would expire meanwhile",
    "waits": "the command waits for the terminal: bring it to the foreground (fg)",
    "left": "the command left processes behind; they are ended before the lock is released",
    "denied": "no permission to send signals to the command: it may continue after the lock is lost",
}


@final
class Job:
    """One run, and the manager's hooks for it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._shown = ascii(plan.name)
        self._acquiring: asyncio.Task[Lease] | None = None
        self._signal: int | None = None
        """The signal that ended the waiting."""
        self._complained = False
        self._lease: Lease | None = None
        self._command: GuardedCommand | None = None
        self._killed = False  # the command, by the guard or in its place
        self._refused = False  # the lock: gone from the nodes within what was thought to be its validity
        self.interrupted = False
        """Whether a Ctrl-C ended the command, which our own caller has not got."""

    # -- hooks ---------------------------------------------------------------------------------

    def on_refused(self, event: Refused) -> None:
        """Say once why it takes long when no other holder is the reason."""
        if not (event.taken or self._plan.quiet or self._complained) and self._plan.patience is None:
            self._complained = True
            say(f"lock {self._shown}: too few nodes answer; still trying")

    def on_extended(self, event: Extended) -> None:
        """Tell the guard."""
        if self._command is not None and self._lease is not None:
            self._command.keep_until(self._lease.valid_until)

    def on_lost(self, event: Lost) -> None:
        """Keep in mind that the validity of the lock says nothing any more."""
        self._refused = event.reason is LossReason.REFUSED

    # -- signals -------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        """Pass on what is sent to us; what was ignored at our start, as under nohup, stays ignored."""
        loop = asyncio.get_running_loop()
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._caught, number)

    def _caught(self, number: int) -> None:
        if self._command is not None:
            self._command.pass_on(number)
        elif number not in HARMLESS and self._signal is None:
            self._signal = number
            if self._acquiring is not None:
                self._acquiring.cancel()

    def _share_terminal(self) -> None:
        """Go on when the terminal is the command's, and refuse to be suspended: the lock would run out."""
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTSTP, say, SAYS["stopped"])

    # -- the lock ------------------------------------------------------------------------------

    async def run(self, make_manager: Callable[..., LockManager]) -> int:
        """Run the command under the lock and return the exit code."""
        self._catch_signals()
        plan = self._plan
        manager = make_manager(ttl=plan.ttl, extension=plan.extension, hooks=[self])
        try:
            lease = await self._wait_for_lock(manager)
            if lease is None:
                return SIGNALLED + (self._signal or 0)
            try:
                code = await self._run_under(
                    lease, manager.clock
                )  # no await since the signals were looked at
            finally:
                held = lease.held
                report = await lease.release()
            if held and 2 * report.count(ReleaseOutcome.NOT_HELD) > len(report.nodes):
                gone = f"lock {self._shown} was gone before the command ended"
                say(f"{gone}: another holder may have run meanwhile")
                return LOST
            return code
        except LockTakenError:
            return plan.taken_code
        except QuorumUnavailableError as error:
            say(str(error))
            return UNAVAILABLE
        finally:
            await manager.aclose()

    async def _wait_for_lock(self, manager: LockManager) -> Lease | None:
        """Acquire; None when a signal came first, also at the very win."""
        self._acquiring = asyncio.create_task(self._acquire(manager))
        await asyncio.wait((self._acquiring,))
        if self._signal is None:
            return self._acquiring.result()
        with contextlib.suppress(asyncio.CancelledError, LockError):
            await self._acquiring.result().release()
        return None

    async def _acquire(self, manager: LockManager) -> Lease:
        try:
            return await self._plan.lock(manager, self._plan.patience).acquire()
        except LockTakenError as error:
            # A zero says that this is as good as any end.
            if self._plan.taken_code != 0 and not self._plan.quiet:
                say(await self._describe_holder(manager, error.retry_after))
            raise

    async def _describe_holder(self, manager: LockManager, retry_after: float | None) -> str:
        nodes = await manager.inspect(self._plan.name)
        seen = Counter(self._in_the_way(node) for node in nodes if node.held)
        (by, _), *_ = seen.most_common(1) or [("taken", 0)]
        if self._plan.fair and not seen:
            by = "reserved for the next waiter in its queue"
        elif retry_after is not None:
            by += f", and expires in {retry_after:.1f} s unless its holder extends it"
        return f"lock {self._shown} is {by}; the command was not started"

    def _in_the_way(self, node: NodeInspection) -> str:
        """Say what a node has there, in words that go behind "is"."""
        if node.permits:
            return f"held by the holders of {len(node.permits)} permits"
        if not node.readers:
            return f"held by {ascii(node.holder)[1:-1]}" if node.holder else "taken"
        if self._plan.mode == "read":
            return "reserved for a waiting writer"
        number = f"{len(node.readers)}{' or more' if node.more_readers else ''}"
        return f"held by {number} reader{'' if number == '1' else 's'}"

    # -- the command ---------------------------------------------------------------------------

    async def _run_under(self, lease: Lease, clock: Clock) -> int:
        """Run the command under a lease and return the exit code."""
        environment = self._environment(lease)
        try:
            command = GuardedCommand(self._plan, until=lease.valid_until, environment=environment)
        except OSError as error:
            say(f"cannot start a process: {error.strerror}")
            return OS_ERROR
        self._lease, self._command = lease, command
        self._share_terminal()
        enforcing = asyncio.create_task(self._enforce(lease, clock, command))
        try:
            return await self._attend(lease, clock, command)
        finally:
            enforcing.cancel()
            self._command = None
            command.close()

    def _environment(self, lease: Lease) -> dict[str, str]:
        given = {
            "REDLOCK_NAME": self._plan.name,
            "REDLOCK_TTL": f"{self._plan.ttl:.15g}",
            "REDLOCK_FENCE": lease.fence,
            "REDLOCK_MODE": lease.mode,
            "REDLOCK_SLOT": lease.slot if self._plan.permits else None,
        }
        # What this lock does not have could be that of a `run` around this one.
        others = {name: value for name, value in own_environment().items() if name not in given}
        return others | {name: str(value) for name, value in given.items() if value is not None}

    async def _attend(self, lease: Lease, clock: Clock, command: GuardedCommand) -> int:
        """Hear the guard's reports and return the exit code."""
        async for words in command.reports():
            match words:
                case "ended", code, lost, gone, lent:
                    ended = self._judge(lease, int(code), lost=lost == "1", gone=float(gone))
                    self.interrupted = ended == SIGNALLED + signal.SIGINT and int(code) < 0 and lent == "1"
                    return ended
                case "failed", number:
                    return self._not_started(int(number))
                case "unable", number:
                    say(f"cannot start a process: {os.strerror(int(number))}")
                    return OS_ERROR
                case ["late"]:
                    late = "was lost, or about to expire, before the command could be started"
                    say(f"lock {self._shown} {late}")
                    return LOST
                case word, *_:
                    self._killed = self._killed or word == "killed"
                    if word in SAYS:
                        say(SAYS[word])
        return await self._without_report(lease, clock, command)

    async def _without_report(self, lease: Lease, clock: Clock, command: GuardedCommand) -> int:
        """Do what is left to do when the guard has ended before its time, and return the exit code."""
        if command.pid is None:
            if not self._killed:  # else that has been reported
                say("the guard process ended before it could start the command")
            return LOST if lease.lost.is_set() else OS_ERROR
        await command.killed()
        if not self._killed:
            say("the guard process was killed, so the command was killed, too")
        return self._judge(lease, -signal.SIGKILL, lost=lease.lost.is_set(), gone=clock.now())

    def _judge(self, lease: Lease, code: int, *, lost: bool, gone: float) -> int:
        """Return the exit code of a command that ended with `code` (below 0: a signal), and report a loss.

        `lost`: the lock was lost before; `gone`: when the command's group was seen to be gone.
        """
        over = gone - lease.valid_until
        if lost and not lease.lost.is_set():  # else it has been logged, with what the nodes said
            say(f"lock {self._shown}: no majority of the nodes extended it in time")
        if over > 0:
            say(
                f"the command ran for {over:.3f} s after the validity of lock {self._shown} had ended: "
                "another holder may have run meanwhile"
            )
        elif self._refused:
            say(f"lock {self._shown} was gone while the command ran: another holder may have run meanwhile")
        elif lost:
            say(f"lock {self._shown} was lost; the command ended {abs(over):.3f} s before its validity did")
        if lost or self._refused:
            return LOST
        return code if code >= 0 else SIGNALLED - code

    def _not_started(self, number: int) -> int:
        name = ascii(self._plan.command[0])
        if number in (errno.ENOENT, errno.ENOTDIR):
            say(f"{name}: command not found")
            return NOT_FOUND
        say(f"{name} cannot be executed: {os.strerror(number)}")
        return NOT_EXECUTABLE

    async def _enforce(self, lease: Lease, clock: Clock, command: GuardedCommand) -> None:
        """Tell the guard of a loss; do its work if it was stopped."""
        await lease.lost.wait()
        command.end()
        # At least so long: the guard may have answered, unheard, while this process stood still.
        wait = self._plan.margin / 2
        while wait > 0:
            await asyncio.sleep(min(wait, TICK))
            wait = lease.valid_until - self._plan.margin / 2 - clock.now()
        if not self._killed and command.kill():
            self._killed = True
            if command.pid is None:
                say(f"lock {self._shown} was lost before the guard process could start the command")
            else:
                say("the guard process does not answer: killing it and the command")
