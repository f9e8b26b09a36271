"""The guard's turns one by one, on a clock of the test's own: how long it waits, and what it then does.

No process is started: the command is a record of what would be sent to it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from aioredlock_ng._cli._guard import guard as module
from aioredlock_ng._cli._guard.child import ENDING, IGNORED_BY_GUARD, Child
from aioredlock_ng._cli._guard.guard import CLOSE_TICK, LINGER, TICK, Guard

UNTIL, KILL_AFTER, MARGIN = 100.0, 4.0, 1.0
TERM_AT = 95.0
"""Validity ends at 100 s; SIGKILL a second before, SIGTERM four seconds before that."""


@dataclass
class Command:
    """Stands for the command's process."""

    code: int | None = None
    denied: bool = False
    pid: int = 4242
    stopped: int | None = None
    sent: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    def send(self, number: int) -> None:
        """A signal for the command."""
        self.sent.append(number)

    def end(self, number: int) -> None:
        """A signal for all that came of it."""
        self.ended.append(number)

    def look(self) -> int | None:
        """By which signal it was stopped."""
        return self.stopped


@dataclass
class Bench:
    """A guard, its pipes, its clock, and what it waited for."""

    guard: Guard
    orders: int
    reports: int
    moment: float = 0.0
    waits: list[float] = field(default_factory=list)
    watched: list[list[int]] = field(default_factory=list)

    def order(self, *lines: str) -> None:
        """Send orders, and let it hear them."""
        os.write(self.orders, b"".join(line.encode() + b"\n" for line in lines))
        self.guard._hear()

    def act(self, child: Command, moment: float) -> None:
        """Let it do what is due at a moment."""
        self.moment = moment
        self.guard._act(child, moment)  # type: ignore[arg-type]

    def wait(self, child: Command, moment: float) -> float:
        """Return the milliseconds that it waits at a moment."""
        self.moment = moment
        self.guard._wait(child)  # type: ignore[arg-type]
        return self.waits[-1]

    def look(self, child: Command, moment: float) -> None:
        """Let it see what has become of the command."""
        self.moment = moment
        self.guard._look(child)  # type: ignore[arg-type]

    @property
    def said(self) -> list[str]:
        """What it has reported since the last look."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.reports, 65536).decode().split("\n")[:-1]
        return []


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Give a guard whose validity, unless it is extended, ends at 100 s."""
    orders_read, orders = os.pipe()
    reports, reports_write = os.pipe()
    os.set_blocking(reports, False)
    before = signal.set_wakeup_fd(-1)
    guard = Guard(orders_read, reports_write, until=UNTIL, kill_after=KILL_AFTER, margin=MARGIN)
    ringer = signal.set_wakeup_fd(before)
    made = Bench(guard, orders, reports)

    class Poll:
        """Notes what is waited for, and how long, and does not wait."""

        def __init__(self) -> None:
            made.watched.append([])

        def register(self, descriptor: int, _: int) -> None:
            made.watched[-1].append(descriptor)

        def poll(self, milliseconds: float) -> list[object]:
            made.waits.append(milliseconds)
            return []

    monkeypatch.setattr(module, "select", SimpleNamespace(poll=Poll, POLLIN=select.POLLIN))
    monkeypatch.setattr(module, "now", lambda: made.moment)
    yield made
    for descriptor in (orders_read, orders, reports, reports_write, guard._bell, ringer, guard._terminal):
        with contextlib.suppress(OSError):
            os.close(descriptor)


# -- how long it waits -------------------------------------------------------------------------------


def test_an_idle_guard_wakes_up_four_times_a_second(bench: Bench) -> None:
    """No more often, however long the command runs: `poll` counts in milliseconds."""
    child, wakeups = Command(), 0
    while bench.moment < 10:
        bench.moment += bench.wait(child, bench.moment) / 1000
        wakeups += 1
    assert wakeups == pytest.approx(10 / TICK, rel=0.02)


@pytest.mark.parametrize("left", [0.2, 0.05, 0.0104])
def test_it_wakes_up_when_something_is_due(left: float, bench: Bench) -> None:
    """At SIGTERM, and at SIGKILL; neither before, which would be a busy loop, nor much later."""
    child = Command()
    assert left <= bench.wait(child, TERM_AT - left) / 1000 <= left + 0.001
    bench.act(child, TERM_AT)
    assert child.ended == [signal.SIGTERM]
    assert left <= bench.wait(child, UNTIL - MARGIN - left) / 1000 <= left + 0.001


def test_it_looks_often_for_what_has_no_parent_here(bench: Bench) -> None:
    """When the command has ended, or should have, the end of the others is told by nothing but a look."""
    soon = int(CLOSE_TICK * 1000) + 1
    assert bench.wait(Command(code=0), 0.0) == soon
    child = Command()
    assert bench.wait(child, TERM_AT) == soon
    assert bench.wait(child, TERM_AT + 10) == soon
    bench.act(child, TERM_AT)
    assert bench.wait(child, UNTIL) == soon


def test_it_hears_the_bell_and_its_orders(bench: Bench) -> None:
    """Until they end: a closed pipe is always ready, and would be a busy loop."""
    bench.wait(Command(), 0.0)
    assert bench.watched[-1] == [bench.guard._bell, bench.guard._orders]
    os.close(bench.orders)
    bench.guard._hear()
    bench.wait(Command(), 0.0)
    assert bench.watched[-1] == [bench.guard._bell]


def test_a_bell_that_rang_is_silenced(bench: Bench) -> None:
    """Else every later wait would end at once."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    bench.guard._bell, kept = read, bench.guard._bell
    os.write(write, b"x" * 100)
    bench.wait(Command(), 0.0)
    with pytest.raises(BlockingIOError):
        os.read(read, 1)
    os.close(read)
    os.close(write)
    bench.guard._bell = kept


# -- what it does ------------------------------------------------------------------------------------


def test_nothing_happens_before_its_time(bench: Bench) -> None:
    """A lock with time left leaves the command alone, up to the last moment."""
    child = Command()
    bench.act(child, TERM_AT - 0.001)
    assert (child.sent, child.ended, bench.said) == ([], [], [])


def test_sigterm_then_sigkill_both_before_the_end(bench: Bench) -> None:
    """`kill_after` and the margin before validity ends, and the margin before; SIGTERM once."""
    child = Command()
    bench.act(child, TERM_AT)
    bench.act(child, TERM_AT + 1)
    assert (child.ended, bench.said) == ([signal.SIGTERM], [])
    bench.act(child, UNTIL - MARGIN - 0.001)
    assert child.ended == [signal.SIGTERM]
    bench.act(child, UNTIL - MARGIN)
    assert (child.ended, bench.said) == ([signal.SIGTERM, signal.SIGKILL], ["killed"])
    bench.act(child, UNTIL)  # what came in between is killed, too, and it is told once
    assert (child.ended[2:], bench.said) == ([signal.SIGKILL], [])


def test_a_loss_that_is_told_ends_it_at_once(bench: Bench) -> None:
    """SIGKILL comes `kill_after` later, though validity would allow more."""
    child = Command()
    bench.order("lost")
    bench.act(child, 10.0)
    bench.act(child, 10.0 + KILL_AFTER - 0.001)
    assert child.ended == [signal.SIGTERM]
    bench.act(child, 10.0 + KILL_AFTER)
    assert child.ended == [signal.SIGTERM, signal.SIGKILL]
    assert bench.guard._lost


def test_a_late_guard_gives_less_time(bench: Bench) -> None:
    """It stood still when SIGTERM was due: SIGKILL comes when it must."""
    child = Command()
    bench.act(child, 98.0)
    bench.act(child, 98.9)
    assert child.ended == [signal.SIGTERM]
    bench.act(child, 99.0)
    assert child.ended == [signal.SIGTERM, signal.SIGKILL]


def test_an_extension_moves_the_end_and_an_older_one_does_not(bench: Bench) -> None:
    """The latest moment that it was told of counts, in whatever order and pieces they come."""
    child = Command()
    os.write(bench.orders, b"until 200.0\nunt")
    bench.guard._hear()
    os.write(bench.orders, b"il 150.0\n")
    bench.guard._hear()
    bench.act(child, 194.9)
    assert child.ended == []
    bench.act(child, 195.0)
    assert child.ended == [signal.SIGTERM]


def test_signals_are_passed_on_once_each(bench: Bench) -> None:
    """In their order; they end nothing."""
    child = Command()
    bench.order(f"signal {int(signal.SIGUSR1)}", f"signal {int(signal.SIGWINCH)}")
    bench.act(child, 1.0)
    bench.act(child, 2.0)
    assert (child.sent, child.ended) == ([signal.SIGUSR1, signal.SIGWINCH], [])
    assert not bench.guard._lost


def test_what_is_left_of_a_command_may_linger_for_a_moment(bench: Bench) -> None:
    """After Ctrl-C all end, in any order; what does not is told of and ended, but no lock was lost."""
    child = Command(code=0)
    bench.look(child, 10.0)
    bench.look(child, 10.09)  # the moment that counts is the first
    bench.act(child, 10.0 + LINGER - 0.001)
    assert (child.ended, bench.said) == ([], [])
    bench.act(child, 10.0 + LINGER)
    assert (child.ended, bench.said) == ([signal.SIGTERM], ["left"])
    bench.act(child, 10.0 + LINGER + KILL_AFTER)
    assert (child.ended, bench.said) == ([signal.SIGTERM, signal.SIGKILL], ["killed"])
    assert not bench.guard._lost


@pytest.mark.parametrize(("moment", "lost"), [(UNTIL - 0.001, False), (UNTIL, True)])
def test_an_end_behind_the_validity_is_a_loss(*, moment: float, lost: bool, bench: Bench) -> None:
    """The command may have run without the lock."""
    bench.look(Command(code=0), moment)
    assert bench.guard._lost is lost


@pytest.mark.parametrize(("code", "lost"), [(None, True), (0, False)])
def test_a_loss_counts_while_the_command_lives(*, code: int | None, lost: bool, bench: Bench) -> None:
    """A command that ended before is done, whatever becomes of the lock then."""
    child = Command(code=code)
    bench.look(child, 10.0)
    bench.order("lost")
    bench.act(child, 11.0)
    assert bench.guard._lost is lost


def test_a_signal_that_is_not_permitted_is_told_once(bench: Bench) -> None:
    """It may be another user's process."""
    child = Command(denied=True)
    bench.act(child, 1.0)
    bench.act(child, 2.0)
    assert bench.said == ["denied"]


def test_without_a_terminal_a_stopped_command_is_left_alone(bench: Bench) -> None:
    """As it was stopped, so it can be woken: by a signal."""
    child = Command(stopped=signal.SIGTSTP)
    bench.guard._terminal = -1
    bench.look(child, 1.0)
    assert (child.sent, bench.said) == ([], [])


# -- signals -----------------------------------------------------------------------------------------


def test_only_signals_that_ask_for_an_end_wake_a_stopped_command() -> None:
    """A SIGCONT comes with them, and not with others; a group that is gone gets none."""
    child, sent = Child.__new__(Child), []
    child.denied = False

    def kill(target: int, number: int) -> None:
        sent.append((target, number))

    for number in (*ENDING, signal.SIGUSR1, signal.SIGKILL, signal.SIGWINCH):
        sent.clear()
        child._signal(kill, 7, number)
        woken = [(7, signal.SIGCONT)] if number in ENDING else []
        assert sent == [(7, number), *woken]
    assert not child.denied

    def gone(target: int, number: int) -> None:
        kill(target, number)
        raise ProcessLookupError

    sent.clear()
    child._signal(gone, 7, signal.SIGTERM)
    assert (sent, child.denied) == ([(7, signal.SIGTERM)], False)

    def forbidden(target: int, number: int) -> None:
        raise PermissionError

    child._signal(forbidden, 7, signal.SIGTERM)
    assert child.denied


def test_the_guard_ignores_what_would_end_or_stop_it() -> None:
    """It ends after the command."""
    harmful = {"HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "PIPE", "TSTP", "TTIN", "TTOU"}
    assert {number.name.removeprefix("SIG") for number in IGNORED_BY_GUARD} == harmful
