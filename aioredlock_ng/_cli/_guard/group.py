"""Processes, their groups, the terminal, and the clock: for the guard and its parent."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Final, NamedTuple

CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock of the lock's validity, which goes on while the machine is suspended."""


def now() -> float:
    """Return the time of the clock of the lock's validity."""
    return time.clock_gettime(CLOCK)


def group_lives(group: int) -> bool:
    """Whether a process group has a member that is not a zombie.

    A zombie counts for `os.killpg`, and may stay for good: in a container, the first process often
    does not reap what it inherits.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # other users' processes, which may be hidden from us
    known = processes()
    return not known or any(process.group == group and not process.dead for process in known.values())


class Process(NamedTuple):
    """A process, as ``/proc`` shows it."""

    state: bytes
    parent: int
    group: int
    session: int

    @property
    def dead(self) -> bool:
        """Whether it is a zombie, or just ending."""
        return self.state in b"ZX"


def processes() -> dict[int, Process]:
    """Return all processes, one after the other, not at one moment; none where there is no ``/proc``.

    Nor where it is another pid namespace's, as after ``unshare --pid --fork`` alone: there its numbers
    are not those that we send signals to.
    """
    try:
        is_ours = os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115 (pathlib takes 10 ms)
    except OSError:
        return {}
    found: dict[int, Process] = {}
    for number in filter(str.isdigit, os.listdir("/proc") if is_ours else ()):  # noqa: PTH208 (likewise)
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            with open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123 (likewise)
                state, *ids = file.read().rpartition(b") ")[2].split()[:4]
            found[int(number)] = Process(state, *map(int, ids))
    return found


def pass_terminal(terminal: int, giver: int, taker: int) -> bool:
    """Make `taker` the terminal's foreground group if `giver` is; False if it is not.

    The caller ignores SIGTTOU.
    """
    with contextlib.suppress(OSError):
        if os.tcgetpgrp(terminal) == giver:
            os.tcsetpgrp(terminal, taker)
            return True
    return False


def take_terminal_back(terminal: int, lent_to: int, home: int) -> None:
    """Give the terminal back to `home` if no living group has it.

    The group that it was lent to may have passed it on, as shells do, to one that is gone as well.
    """
    with contextlib.suppress(OSError):
        owner = os.tcgetpgrp(terminal)
        if owner != home and (owner == lent_to or not group_lives(owner)):
            os.tcsetpgrp(terminal, home)


def has_terminal(terminal: int, group: int) -> bool:
    """Whether the terminal's foreground group is `group`."""
    try:
        return os.tcgetpgrp(terminal) == group
    except OSError:
        return False


def open_terminal() -> int:
    """Open the controlling terminal; -1, which is no descriptor, when there is none."""
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return -1


ADOPT: Final = 36
"""``PR_SET_CHILD_SUBREAPER`` of Linux: orphans among the descendants become our children."""


def prctl(option: int, value: int) -> None:
    """Ask the kernel for something that only Linux knows, and only its C library can ask for."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own."""
    prctl(ADOPT, 1)


def strays(group: int) -> list[int]:
    """Return the living descendants of this process in its session, but not in `group` nor in its own."""
    known = processes()
    session, groups = os.getsid(0), (group, os.getpgrp())
    return [
        pid
        for pid, process in known.items()
        if process.session == session
        and process.group not in groups
        and not process.dead
        and _descends(pid, os.getpid(), known)
    ]


def _descends(pid: int, ancestor: int, known: dict[int, Process]) -> bool:
    """Whether a process has another one among its parents, as far as they are known."""
    seen: set[int] = set()  # numbers are used again: what was read one after the other may look like a circle
    while pid not in seen and (process := known.get(pid)) is not None:
        if process.parent == ancestor:
            return True
        seen.add(pid)
        pid = process.parent
    return False
