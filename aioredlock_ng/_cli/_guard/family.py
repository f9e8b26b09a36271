"""Descendants of the command that have left its process group (Linux).

A shell with job control, ``timeout``, or another ``run`` give what they start a group of its own.  The
guard adopts each process that loses its parent, so that all of them can be found: by their parents, up
to the guard.  Those with a session of their own are daemons, which are meant to stay.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from .group import Process, processes

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
