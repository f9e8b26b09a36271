"""The command of `run` and its guard, seen from the process that holds the lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from ._guard.group import group_lives, open_terminal, take_terminal_back

GUARD: Final = Path(__file__).with_name("_guard")
"""The folder that is the guard's program."""

POLL: Final = 0.02
"""Seconds between two looks at processes that are not our children."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the command ended, as the guard saw it."""

    code: int
    """The exit code; below 0 for a signal."""
    lost: bool
    """Whether the lock was lost before."""
    gone: float
    """When its process group was seen to be gone, on the suspend-safe clock."""
    lent: bool = False
    """Whether it had the terminal, and so all that is typed there."""


@final
class GuardedCommand:
    """A command that a guard runs and ends in time; see `_guard` for what they say to each other."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: dict[str, str],
        until: float,
        kill_after: float,
        margin: float,
    ) -> None:
        """Start the guard, which starts the command.

        Raises:
            OSError: no process can be started.
        """
        self.pid: int | None = None
        """The command's process and process group, once it is known."""
        for_guard, self._orders = os.pipe()
        self._reports, from_guard = os.pipe()
        times = (repr(until), repr(kill_after), repr(margin))
        try:
            for end in (for_guard, from_guard):
                os.set_inheritable(end, True)  # noqa: FBT003 (it takes no keyword)
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", os.fspath(GUARD), str(for_guard), str(from_guard), *times,
                 str(os.getpgrp()), *command],
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
