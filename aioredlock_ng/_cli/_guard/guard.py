"""The guard itself: hears orders, looks after the command, and ends it in time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Sequence
from typing import Final

from .child import Child, Dispositions, fill_standard_descriptors
from .group import adopt_orphans, has_terminal, now, open_terminal, pass_terminal, take_terminal_back

TICK: Final = 0.25
"""Seconds: it looks at the clock at least this often, since timers stand still during a suspend."""

CLOSE_TICK: Final = 0.02
"""Seconds between two looks at processes that are not its own children, whose end is not reported."""

LINGER: Final = 0.1
"""Seconds that the rest of a group may outlive its leader unasked: after Ctrl-C all end, in any order."""


class Guard:
    """Hears orders, looks after the child, and ends it in time."""

    def __init__(self, orders: int, reports: int, *, until: float, kill_after: float, margin: float) -> None:
        self._orders = orders
        self._reports = reports
        self._until = until
        self._kill_after = kill_after
        self._margin = margin
        self._unread = b""
        self._told = False  # that the lock is lost, or that no more orders will come
        self._deaf = False
        self._signals: list[int] = []  # to be passed on
        self._lost = False  # while the command lived
        self._left_at: float | None = None  # when the leader was seen to have left its group
        self._kill_at: float | None = None  # when to send SIGKILL; None before SIGTERM
        self._said: set[str] = set()
        self._wants_terminal = False
        self._lent = False
        self._terminal = open_terminal()
        self._bell, ringer = os.pipe()
        for descriptor in (self._bell, ringer, orders, reports):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)

    def run(self, command: list[str], home: int, dispositions: Dispositions) -> None:
        """Run the command; `home` is the process group that the terminal comes from and goes back to."""
        adopt_orphans()
        # After all that takes time: what is started would have to be ended at once.
        self._hear()
        if self._told or now() >= self._term_at:
            self._report("late")
            return
        dispositions.hold()
        try:
            child = Child(command, dispositions)
        except OSError as error:
            self._report(f"unable {error.errno}")
            return
        self._report(f"started {child.pid}")
        if os.isatty(0) and os.isatty(1):  # else a pager that reads what it writes may need it more
            self._lent = pass_terminal(self._terminal, home, child.pid)
        child.go()
        dispositions.release()
        while True:
            self._wait(child)
            self._look(child)
            self._hear()
            if not child.lives():
                break
            self._lend(home, child)
            self._act(child, now())
        gone = now()
        if self._lent:
            take_terminal_back(self._terminal, child.pid, home)
        child.learn()
        if child.errno:
            self._report(f"failed {child.errno}")
        else:
            self._report(f"ended {child.code} {int(self._lost)} {gone!r} {int(self._lent)}")
        if self._deaf and self._lost:  # said last: to write may block, as into a pipe without a reader
            say("the process that held the lock is gone, so the command was ended")

    @property
    def _term_at(self) -> float:
        return self._until - self._kill_after - self._margin

    def _report(self, line: str, *, once: bool = False) -> None:
        if once and line in self._said:
            return
        self._said.add(line)
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._reports, line.encode() + b"\n")

    def _wait(self, child: Child) -> None:
        """Wait for an order, an end, a moment; at most a tick."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        if not self._deaf:
            poll.register(self._orders, select.POLLIN)
        tick = CLOSE_TICK
        if child.code is None:
            due = self._term_at if self._kill_at is None else self._kill_at
            if (left := due - now()) > 0:
                tick = min(TICK, left)
        poll.poll(int(tick * 1000) + 1)
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 512)

    def _look(self, child: Child) -> None:
        """See whether the command ended or was stopped."""
        stopped = child.poll()
        if child.code is not None and self._left_at is None:
            self._left_at = now()
            self._lost = self._lost or self._left_at >= self._until  # it may have run beyond
        if stopped == signal.SIGTSTP and has_terminal(self._terminal, child.pid):
            child.send(signal.SIGCONT)  # nothing else could wake it: the shell knows of our group only
            self._report("stopped")
        elif stopped in (signal.SIGTTIN, signal.SIGTTOU):
            self._wants_terminal = True

    def _hear(self) -> None:
        """Take the orders that have come."""
        while not self._deaf:
            try:
                data = os.read(self._orders, 4096)
            except BlockingIOError:
                return
            if not data:
                self._deaf = self._told = True
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                word, _, number = line.partition(b" ")
                if word == b"until":
                    self._until = max(self._until, float(number))
                elif word == b"signal":
                    self._signals.append(int(number))
                else:
                    self._told = True

    def _act(self, child: Child, moment: float) -> None:
        """Pass signals on, and end what has to be ended."""
        for number in self._signals:
            child.send(number)
        self._signals.clear()
        over = self._told or moment >= self._term_at
        self._lost = self._lost or (over and child.code is None)
        left = self._left_at is not None and moment >= self._left_at + LINGER
        if self._kill_at is None and (over or left):
            if left:
                self._report("left")
            child.end(signal.SIGTERM)
            self._kill_at = min(moment + self._kill_after, self._until - self._margin)
        if self._kill_at is not None and moment >= self._kill_at:
            child.end(signal.SIGKILL)
            self._report("killed", once=True)
        if child.denied:
            self._report("denied", once=True)

    # -- the terminal --------------------------------------------------------------------------

    def _lend(self, home: int, child: Child) -> None:
        """Give the terminal to a child that was stopped for want of it, as soon as it is ours to give."""
        if not self._wants_terminal:
            return
        if has_terminal(self._terminal, child.pid) or pass_terminal(self._terminal, home, child.pid):
            self._lent = True
            self._wants_terminal = False
            child.send(signal.SIGCONT)
        else:
            self._report("waits", once=True)


def say(message: str) -> None:
    """Write a line for people."""
    with contextlib.suppress(OSError):
        os.write(2, f"aioredlock-ng run: {message}\n".encode())


def main(arguments: Sequence[str]) -> None:
    """Start from the command line that the module's docstring describes."""
    fill_standard_descriptors()
    dispositions = Dispositions()
    orders, reports, until, kill_after, margin, home, *command = arguments
    for descriptor in (int(orders), int(reports)):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 (it takes no keyword)
    guard = Guard(
        int(orders), int(reports), until=float(until), kill_after=float(kill_after), margin=float(margin)
    )
    guard.run(command, int(home), dispositions)
