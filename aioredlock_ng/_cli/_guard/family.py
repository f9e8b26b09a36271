"""Descendants of the command that have left its process group (Linux).

A shell with job control, ``timeout``, or another ``run`` give what they start a group of its own.  The
guard adopts whoever loses its parent, so that all of them can be found: by their parents, up to the guard.
Those with a session of their own are daemons, which are meant to stay.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final, NamedTuple

from .group import process_numbers

ADOPT: Final = 36
"""``PR_SET_CHILD_SUBREAPER`` of Linux: orphans among the descendants become our children."""


class Process(NamedTuple):
    """A line of ``/proc``."""

    state: bytes
    parent: int
    group: int
    session: int


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)


def strays(group: int) -> list[int]:
    """Return the living descendants of this process in its session, but not in `group` nor in its own."""
    processes = _processes()
    ours = {os.getpid()}
    session, own_group = os.getsid(0), os.getpgrp()
    found = []
    for pid in sorted(processes, key=lambda pid: _depth(pid, processes)):
        process = processes[pid]
        if process.parent in ours:
            ours.add(pid)
            stays = process.session != session or process.group in (group, own_group)
            if not stays and process.state not in b"ZX":
                found.append(pid)
    return found


def _depth(pid: int, processes: dict[int, Process]) -> int:
    """Return how many known ancestors a process has; parents come before their children."""
    seen = {pid}
    while (process := processes.get(pid)) is not None and process.parent not in seen:
        pid = process.parent
        seen.add(pid)
    return len(seen)


def _processes() -> dict[int, Process]:
    """Read all processes; none where there is no ``/proc`` of ours."""
    found: dict[int, Process] = {}
    for name in process_numbers():
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 (likewise)
            state, parent, group, session = file.read().rpartition(b") ")[2].split()[:4]
            found[int(name)] = Process(state, int(parent), int(group), int(session))
    return found
