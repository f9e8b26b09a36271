"""What `run` is asked for, and how it speaks."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Final, final

from .. import ExtensionPolicy, Lock, LockManager, Mode

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
    """What is to be run, and how; times in seconds."""

    name: str
    command: tuple[str, ...]
    ttl: float
    """At least `at_least`: so long the keys of a host that dies stay."""
    kill_after: float
    """From SIGTERM to SIGKILL.  Below half of the ttl."""
    patience: float | None
    """How long the lock is waited for; None: for ever."""
    taken_code: int
    """The exit code when the lock is taken."""
    at_least: float = 0.0
    """For how long the lock stays taken, also when the command ends sooner."""
    mode: Mode | None = None
    """Whether others read beside it, or it writes; None for a mutex."""
    permits: int | None = None
    """How many may run at once; None for a mutex."""
    fair: bool = False
    """Whether it stands in line for the mutex."""

    def lock(self, manager: LockManager, patience: float | None = None) -> Lock:
        """Describe the lock."""
        if self.permits:
            return manager.semaphore(self.name, permits=self.permits, blocking_timeout=patience)
        if self.mode is None:
            return manager.lock(self.name, blocking_timeout=patience, at_least=self.at_least, fair=self.fair)
        lock = manager.rwlock(self.name, blocking_timeout=patience)
        return lock.read() if self.mode == "read" else lock.write()

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
