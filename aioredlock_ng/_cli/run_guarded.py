"""The command of `run` under its lock: start it with its guard, hear what that reports, judge the end."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from typing import Final, final

from .. import Clock, Lease, LossReason
from ..events import Extended, Lost
from ._guard.child import own_environment
from .common import LOST
from .run_command import Ended, GuardedCommand
from .run_plan import Plan, say

SIGNALLED: Final = 128
"""Exit code after a signal, as shells have it: this plus the signal's number."""

NOT_FOUND: Final = 127
"""Exit code when there is no such command, as shells have it."""

NOT_EXECUTABLE: Final = 126
"""Exit code when the command cannot be executed, as shells have it."""

OS_ERROR: Final = 71
"""Exit code when no process can be started: ``EX_OSERR`` of sysexits.h."""

TICK: Final = 0.25
"""Seconds: no longer sleep before a deadline, since timers stand still during a suspend."""


@final
class GuardedRun:
    """One run of the command, and the manager's hooks for it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._shown = ascii(plan.name)
        self._lease: Lease | None = None
        self._command: GuardedCommand | None = None
        self.interrupted = False
        """Whether a Ctrl-C ended the command, which our own caller has not got."""
        self._killed = False  # the command, by the guard or in its place
        self._refused = False  # the lock: gone from the nodes within what was thought to be its validity

    # -- while it runs -------------------------------------------------------------------------

    def on_extended(self, event: Extended) -> None:
        """Tell the guard."""
        if self._command is not None and self._lease is not None:
            self._command.keep_until(self._lease.valid_until)

    def on_lost(self, event: Lost) -> None:
        """Keep in mind that the validity of the lock says nothing any more."""
        self._refused = event.reason is LossReason.REFUSED

    def pass_on(self, number: int) -> bool:
        """Send a signal to the command; False when there is none."""
        if self._command is None:
            return False
        self._command.pass_on(number)
        return True

    # -- from its start to its end -------------------------------------------------------------

    async def run(self, lease: Lease, clock: Clock) -> int:
        """Run the command under a lease and return the exit code."""
        plan = self._plan
        try:
            command = GuardedCommand(
                plan.command,
                environment=self._environment(lease),
                until=lease.valid_until,
                kill_after=plan.kill_after,
                margin=plan.margin,
            )
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
        environment = own_environment()
        for name in (
            "REDLOCK_FENCE",
            "REDLOCK_MODE",
            "REDLOCK_SLOT",
        ):  # they could be those of a `run` around this one
            environment.pop(name, None)
        environment |= {"REDLOCK_NAME": self._plan.name, "REDLOCK_TTL": f"{self._plan.ttl:.15g}"}
        if lease.fence is not None:
            environment["REDLOCK_FENCE"] = str(lease.fence)
        if lease.mode is not None:
            environment["REDLOCK_MODE"] = lease.mode
        if lease.slot is not None:
            environment["REDLOCK_SLOT"] = str(lease.slot)
        return environment

    def _share_terminal(self) -> None:
        """Go on when the terminal is the command's, and refuse to be suspended: the lock would run out."""
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTSTP, self._hear, ["stopped"])

    async def _attend(self, lease: Lease, clock: Clock, command: GuardedCommand) -> int:
        """Hear the guard's reports and return the exit code."""
        async for words in command.reports():
            if words[0] == "ended":
                code, lost, gone, lent = words[1:]
                ended = Ended(code=int(code), lost=lost == "1", gone=float(gone), lent=lent == "1")
                return self._judge(lease, ended)
            if words[0] == "failed":
                return self._not_started(int(words[1]))
            if words[0] == "unable":
                say(f"cannot start a process: {os.strerror(int(words[1]))}")
                return OS_ERROR
            if words[0] == "late":
                say(f"lock {self._shown} was lost, or about to expire, before the command could be started")
                return LOST
            self._hear(words)
        if command.pid is None:
            say("the guard process ended before it could start the command")
            return LOST if lease.lost.is_set() else OS_ERROR
        await command.killed()
        if not self._killed:
            say("the guard process was killed, so the command was killed, too")
        return self._judge(lease, Ended(code=-signal.SIGKILL, lost=lease.lost.is_set(), gone=clock.now()))

    def _judge(self, lease: Lease, ended: Ended) -> int:
        over = ended.gone - lease.valid_until
        lost = ended.lost or self._refused
        if ended.lost and not lease.lost.is_set():  # else it has been logged, with what the nodes said
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
        if lost:
            return LOST
        self.interrupted = ended.lent and ended.code == -signal.SIGINT
        return ended.code if ended.code >= 0 else SIGNALLED - ended.code

    def _not_started(self, number: int) -> int:
        name = ascii(self._plan.command[0])
        if number in (errno.ENOENT, errno.ENOTDIR):
            say(f"{name}: command not found")
            return NOT_FOUND
        say(f"{name} cannot be executed: {os.strerror(number)}")
        return NOT_EXECUTABLE

    def _hear(self, words: list[str]) -> None:
        """Pass on to people what the guard reports."""
        match words[0]:
            case "stopped":
                say("not suspended: the lock would expire meanwhile")
            case "waits":
                say("the command waits for the terminal: bring it to the foreground (fg)")
            case "left":
                say("the command left processes behind; they are ended before the lock is released")
            case "denied":
                say("no permission to send signals to the command: it may continue after the lock is lost")
            case "killed":
                self._killed = True

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
            say("the guard process does not answer: killing it and the command")
