"""What `run` does: wait for the lock, run the command under it, release it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Final, final

from .. import (
    Lease,
    LockError,
    LockManager,
    LockTakenError,
    LossReason,
    QuorumUnavailableError,
    ReleaseOutcome,
)
from ..events import Extended, Lost, Refused
from ._guard.child import own_environment
from .common import LOST, UNAVAILABLE
from .run_command import Ended, GuardedCommand
from .run_plan import Plan, say

FORWARDED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1,
                    signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH)  # fmt: skip
"""Signals that are passed on to the command."""

HARMLESS: Final = (signal.SIGCONT, signal.SIGWINCH)
"""Those of them that do not end the waiting for the lock."""

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
class Job:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._shown = ascii(plan.name)
        self._lease: Lease | None = None
        self._command: GuardedCommand | None = None
        self._signal: int | None = None
        """The signal that ended the waiting."""
        self._signalled = asyncio.Event()
        self.interrupted = False
        """Whether a Ctrl-C ended the command, which our own caller has not got."""
        self._killed = False  # the command, by the guard or in its place
        self._gone = False  # the lock, from the nodes, within what was thought to be its validity
        self._complained = False

    # -- hooks ---------------------------------------------------------------------------------

    def on_extended(self, event: Extended) -> None:
        """Tell the guard."""
        if self._command is not None and self._lease is not None:
            self._command.keep_until(self._lease.valid_until)

    def on_lost(self, event: Lost) -> None:
        """Keep in mind that the validity of the lock says nothing any more."""
        self._gone = event.reason is LossReason.REFUSED

    def on_refused(self, event: Refused) -> None:
        """Say once why it takes long when no other holder is the reason."""
        if not event.taken and self._plan.patience is None and not self._complained:
            self._complained = True
            say(f"lock {self._shown}: too few nodes answer; still trying")

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
            self._signalled.set()

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
            return await self._run_under(lease, manager)  # no await since the signals were looked at
        except LockTakenError:
            return plan.taken_code
        except QuorumUnavailableError as error:
            say(str(error))
            return UNAVAILABLE
        finally:
            await manager.aclose()

    async def _wait_for_lock(self, manager: LockManager) -> Lease | None:
        """Acquire; None when a signal came first."""
        acquiring = asyncio.create_task(self._acquire(manager))
        signalled = asyncio.create_task(self._signalled.wait())
        await asyncio.wait((acquiring, signalled), return_when=asyncio.FIRST_COMPLETED)
        if self._signal is None:
            signalled.cancel()
            return acquiring.result()
        acquiring.cancel()
        with contextlib.suppress(asyncio.CancelledError, LockError):
            await (await acquiring).release()
        return None

    async def _acquire(self, manager: LockManager) -> Lease:
        began = manager.clock.now()
        await manager.start()  # connecting takes the time it takes: no wait means none for the lock
        patience = self._plan.patience
        if patience is not None:
            patience = max(0.0, began + patience - manager.clock.now())
        try:
            lock = manager.lock(self._plan.name, blocking_timeout=patience, at_least=self._plan.at_least)
            return await lock.acquire()
        except LockTakenError as error:
            if self._plan.taken_code != 0:  # a zero says that this is as good as any end
                say(await self._describe_holder(manager, error.retry_after))
            raise

    async def _describe_holder(self, manager: LockManager, retry_after: float | None) -> str:
        nodes = await manager.inspect(self._plan.name)
        (holder, _), *_ = Counter(node.holder for node in nodes if node.held).most_common(1) or [(None, 0)]
        by = f"held by {ascii(holder)[1:-1]}" if holder else "taken"
        rest = "" if retry_after is None else f", and free in {retry_after:.1f} s unless that extends it"
        return f"lock {self._shown} is {by}{rest}; the command was not started"

    # -- the command ---------------------------------------------------------------------------

    async def _run_under(self, lease: Lease, manager: LockManager) -> int:
        try:
            code = await self._run_command(lease, manager)
        finally:
            held = lease.held
            report = await lease.release()
        if held and 2 * report.count(ReleaseOutcome.NOT_HELD) > len(report.nodes):
            say(
                f"lock {self._shown} was gone before the command ended: another holder may have run meanwhile"
            )
            return LOST
        return code

    async def _run_command(self, lease: Lease, manager: LockManager) -> int:
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
            say(f"no process can be started: {error.strerror}")
            return OS_ERROR
        self._lease, self._command = lease, command
        self._share_terminal()
        enforcing = asyncio.create_task(self._enforce(lease, manager, command))
        try:
            return await self._attend(lease, manager, command)
        finally:
            enforcing.cancel()
            self._command = None
            command.close()

    def _environment(self, lease: Lease) -> dict[str, str]:
        environment = own_environment()
        environment.pop("REDLOCK_FENCE", None)  # it could be that of a `run` around this one
        environment |= {"REDLOCK_NAME": self._plan.name, "REDLOCK_TTL": f"{self._plan.ttl:.15g}"}
        if lease.fence is not None:
            environment["REDLOCK_FENCE"] = str(lease.fence)
        return environment

    def _share_terminal(self) -> None:
        """Go on when the terminal is the command's, and refuse to be suspended: the lock would run out."""
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTSTP, self._hear, ["stopped"])

    async def _attend(self, lease: Lease, manager: LockManager, command: GuardedCommand) -> int:
        """Hear the guard's reports and return the exit code."""
        async for words in command.reports():
            if words[0] == "ended":
                code, lost, gone, lent = words[1:]
                ended = Ended(code=int(code), lost=lost == "1", gone=float(gone), lent=lent == "1")
                return self._judge(lease, ended)
            if words[0] == "failed":
                return self._not_started(int(words[1]))
            if words[0] == "unable":
                say(f"no process can be started: {os.strerror(int(words[1]))}")
                return OS_ERROR
            if words[0] == "late":
                say(f"lock {self._shown} was lost, or as good as over, before the command could be started")
                return LOST
            self._hear(words)
        if command.pid is None:
            say("the guard process ended before it could start the command")
            return LOST if lease.lost.is_set() else OS_ERROR
        await command.killed()
        if not self._killed:
            say("the guard process was killed, and therefore the command, too")
        return self._judge(
            lease, Ended(code=-signal.SIGKILL, lost=lease.lost.is_set(), gone=manager.clock.now())
        )

    def _judge(self, lease: Lease, ended: Ended) -> int:
        over = ended.gone - lease.valid_until
        lost = ended.lost or self._gone
        if ended.lost and not lease.lost.is_set():  # else it has been logged, with what the nodes said
            say(f"lock {self._shown}: no majority of the nodes extended it in time")
        if over > 0:
            say(
                f"the command outlived the validity of lock {self._shown} by {over:.3f} s: "
                "another holder may have run meanwhile"
            )
        elif self._gone:
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
                say("not suspended: the lock would run out meanwhile")
            case "waits":
                say("the command waits for the terminal: bring it to the foreground (fg)")
            case "left":
                say(
                    "the command has left processes behind, which are being ended before the lock is released"
                )
            case "denied":
                say("signals to the command are not permitted: it may outlive a lost lock")
            case "killed":
                self._killed = True

    async def _enforce(self, lease: Lease, manager: LockManager, command: GuardedCommand) -> None:
        """Tell the guard of a loss; do its work if it was stopped."""
        await lease.lost.wait()
        command.end()
        # At least so long: the guard may have answered, unheard, while this process stood still.
        wait = self._plan.margin / 2
        while wait > 0:
            await asyncio.sleep(min(wait, TICK))
            wait = lease.valid_until - self._plan.margin / 2 - manager.clock.now()
        if not self._killed and command.kill():
            self._killed = True
            say("the guard process does not answer, and is killed with the command")
