"""Faults of the processes of a run; `faults` is about its nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from tests.simulation.processes import Process


class Victim(Protocol):
    """A client of a run."""

    process: Process

    def stop_when_asking(self, seconds: float) -> None:
        """Stop it for so long as soon as it has asked for a lock, before it can hear an answer."""

    def cancel(self, task: int) -> None:
        """Cancel what one of its tasks is doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFault(ABC):
    """Something that goes wrong with one client."""

    at: float
    client: int
    lasts: float = 0.0

    @abstractmethod
    def strike(self, victim: Victim, until: float) -> None:
        """Let it happen; what lasts ends at the true time `until`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(ProcessFault):
    """The process is stopped for a while (SIGSTOP), as by a debugger or a machine that is too busy.

    `asking`: not at once, but with its next question on the way.
    """

    asking: bool

    def strike(self, victim: Victim, until: float) -> None:
        """As in `ProcessFault`."""
        if self.asking:
            victim.stop_when_asking(self.lasts)
        else:
            victim.process.stop(until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend(ProcessFault):
    """The process's machine is suspended for a while: timers stand still, too (R2)."""

    def strike(self, victim: Victim, until: float) -> None:
        """As in `ProcessFault`."""
        victim.process.suspend(until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(ProcessFault):
    """The process is killed (SIGKILL)."""

    def strike(self, victim: Victim, until: float) -> None:
        """As in `ProcessFault`."""
        victim.process.kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class WallStep(ProcessFault):
    """Set the time of day of the process's machine."""

    seconds: float

    def strike(self, victim: Victim, until: float) -> None:
        """As in `ProcessFault`."""
        victim.process.wall_offset += self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(ProcessFault):
    """One task's operation is cancelled, wherever it is."""

    task: int

    def strike(self, victim: Victim, until: float) -> None:
        """As in `ProcessFault`."""
        victim.cancel(self.task)
