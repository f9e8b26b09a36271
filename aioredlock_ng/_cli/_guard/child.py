"""The command's process: how it is started, signalled, and seen to end."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable
from typing import Final, NoReturn

from .group import group_lives, prctl, strays

DEATH_SIGNAL: Final = 1
"""``PR_SET_PDEATHSIG`` of Linux: the signal a process gets when its parent dies."""

ENDING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Signals that ask a process to end; a stopped one has to be woken to hear of it."""

IGNORED_BY_GUARD: Final = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGPIPE,
                           signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)  # fmt: skip
"""Signals that the guard ignores: it ends after the command."""

OF_PYTHON: Final = tuple(
    getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ") if hasattr(signal, name)
)
"""Signals that every Python ignores, and that its children should not."""


def own_environment() -> dict[str, str]:
    """Return the environment as it was given to this process.

    Under the C locale, which cron has, Python sets LC_CTYPE at its start (PEP 538); the command would
    inherit that.
    """
    environment = dict(os.environ)
    with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as file:  # noqa: PTH123 (as above)
        if not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0")):
            environment.pop("LC_CTYPE", None)
    return environment


def fill_standard_descriptors() -> None:
    """Put something under closed standard descriptors, so that no pipe or socket gets their numbers.

    It is not inherited: what is closed here is closed for the command.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 (standard error)
        pass
    os.close(descriptor)


def execute(command: list[str], environment: dict[str, str]) -> int:
    """Become `command`, found on PATH as execvp(3) does; return the error number if that cannot be."""
    name, *rest = command
    folders = [""] if "/" in name else environment.get("PATH", os.defpath).split(":")
    paths = [os.path.join(folder, name) for folder in folders]  # noqa: PTH118 (pathlib takes 10 ms)
    files = [path for path in paths if os.path.isfile(path)] or paths  # noqa: PTH113 (likewise)
    path = next((file for file in files if os.access(file, os.X_OK)), files[0])
    try:
        os.execve(path, command, environment)  # noqa: S606 (no shell: that is the point)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            return error.errno or errno.EIO
        # A script without a first line that says whose: the shell's.
        os.execve("/bin/sh", ["/bin/sh", path, *rest], environment)  # noqa: S606 (likewise)


class Dispositions:
    """The signals' dispositions: as they were at the start, for the command; ignored, for the guard."""

    def __init__(self) -> None:
        handled = {*IGNORED_BY_GUARD, signal.SIGCHLD}
        inherited = {number for number in handled if signal.getsignal(number) is signal.SIG_IGN}
        self._ignored = inherited - set(OF_PYTHON)
        for number in IGNORED_BY_GUARD:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # an ignored one would leave nothing to wait for
        self._changed = handled | set(OF_PYTHON)
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    @staticmethod
    def hold() -> None:
        """Hold all signals back, until `restore` or `release`."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    def release(self) -> None:
        """Let the signals in again, in the guard."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask - {signal.SIGCHLD})

    def restore(self) -> None:
        """Give the command what was there at the start; what was held back reaches it now."""
        for number in self._changed:
            signal.signal(number, signal.SIG_IGN if number in self._ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


class Child:
    """The command's process, and the group that it leads."""

    def __init__(self, command: list[str], dispositions: Dispositions) -> None:
        """Fork; the child does nothing before `go`."""
        self._gate, opener = os.pipe()
        self._failure, failed = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(opener)  # the gate opens, or breaks with the guard
            self._become(command, failed, dispositions)
        os.close(self._gate)
        os.close(failed)
        self._opener = opener
        self.code: int | None = None
        """The exit code, below 0 for a signal; None while it lives."""
        self.errno = 0
        """Why it could not be executed; 0 if it could."""
        self.denied = False
        os.setpgid(self.pid, self.pid)

    def _become(self, command: list[str], failed: int, dispositions: Dispositions) -> NoReturn:
        try:
            guard = os.getppid()
            if os.read(self._gate, 1) and _end_with_parent(guard):
                environment = own_environment()
                dispositions.restore()
                os.write(failed, b"%d" % execute(command, environment))
        finally:
            os._exit(127)  # not read: what failed has been reported

    def go(self) -> None:
        """Let it execute the command."""
        os.write(self._opener, b"!")
        os.close(self._opener)

    def learn(self) -> None:
        """Read why the command could not be executed, if so; call it after the end."""
        self.errno = int(os.read(self._failure, 16) or 0)

    def poll(self) -> int | None:
        """Take its end from the kernel; or return by which signal it was stopped."""
        stopped = None
        try:
            while (found := os.waitpid(-1, os.WNOHANG | os.WUNTRACED)) != (0, 0):  # adopted ones as well
                pid, status = found
                if pid == self.pid and os.WIFSTOPPED(status):
                    stopped = os.WSTOPSIG(status)
                elif pid == self.pid:
                    self.code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            pass  # there is no child any more
        return stopped

    def lives(self) -> bool:
        """Whether any process of the group is left, or of those that went out from it.

        The number cannot belong to another group: it is taken as long as the group has a member, and was
        until a moment ago.
        """
        return self.code is None or group_lives(self.pid) or bool(strays(self.pid))

    def send(self, number: int) -> None:
        """Send a signal to the group; one that asks for its end wakes it, too."""
        self._signal(os.killpg, self.pid, number)
        if self._has_left_group():
            self._signal(os.kill, self.pid, number)

    def end(self, number: int) -> None:
        """Send a signal to the group, and to all that went out from it."""
        self.send(number)
        for pid in strays(self.pid):
            self._signal(os.kill, pid, number)

    def _signal(self, kill: Callable[[int, int], None], target: int, number: int) -> None:
        for each in (number, signal.SIGCONT) if number in ENDING else (number,):
            try:
                kill(target, each)
            except ProcessLookupError:
                return
            except PermissionError:
                self.denied = True

    def _has_left_group(self) -> bool:
        """Whether the process has gone over to another group, from the one that it leads."""
        with contextlib.suppress(ProcessLookupError):
            return self.code is None and os.getpgid(self.pid) != self.pid
        return False


def _end_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when the guard dies (Linux); False when it is dead already."""
    prctl(DEATH_SIGNAL, signal.SIGKILL)
    return os.getppid() == parent
