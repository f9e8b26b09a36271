"""The guard's turns one by one, on a clock of the test's own: how long it waits, and what it then does.

No process is started: the command is a record of what would be sent to it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aioredlock_ng._cli._guard import guard as module
from aioredlock_ng._cli._guard.child import ENDING, Child
from aioredlock_ng._cli._guard.guard import CLOSE_TICK, LINGER, TICK, Guard

UNTIL, KILL_AFTER, MARGIN = 100.0, 4.0, 1.0
TERM_AT = 95.0
"""Validity ends at 100 s; SIGKILL a second before, SIGTERM four seconds before that."""


class Bench:
    """A guard, its pipes, its clock, and a record in place of its command."""

    def __init__(self) -> None:
        orders_read, self.orders = os.pipe()
        self.reports, reports_write = os.pipe()
        os.set_blocking(self.reports, False)
        before = signal.set_wakeup_fd(-1)
        self.guard = Guard(orders_read, reports_write, until=UNTIL, kill_after=KILL_AFTER, margin=MARGIN)
        ringer = signal.set_wakeup_fd(before)
        self._open = (orders_read, self.orders, self.reports, reports_write, self.guard._bell, ringer)
        self.moment = 0.0
        self.wait = (0.0, [0])
        self.did: list[str] = []
        self.child = SimpleNamespace(code=None, denied=False, pid=4242, poll=lambda: None)
        self.child.send = lambda number: self.did.append(signal.Signals(number).name)
        self.child.end = lambda number: self.did.append(f"all {signal.Signals(number).name}")

    def poll(self) -> Any:
        """Note what is waited for, and how long, and do not wait."""
        watched: list[int] = []

        def poll(milliseconds: float) -> list[object]:
            self.wait = (milliseconds / 1000, watched)
            return []

        return SimpleNamespace(register=lambda descriptor, _: watched.append(descriptor), poll=poll)

    def waits(self, moment: float) -> float:
        """Return the seconds that it waits at a moment."""
        self.moment = moment
        self.guard._wait(self.child)
        return self.wait[0]

    def order(self, data: bytes) -> None:
        """Send orders, and let it hear them."""
        os.write(self.orders, data)
        self.guard._hear()

    def act(self, moment: float) -> list[str]:
        """Let it look and do what is due at a moment; return what it did and said."""
        self.moment = moment
        self.did.clear()
        self.guard._look(self.child)
        self.guard._act(self.child, moment)
        with contextlib.suppress(BlockingIOError):
            self.did += os.read(self.reports, 65536).decode().split()
        return list(self.did)

    def close(self) -> None:
        """Close all that it opened."""
        for descriptor in (*self._open, self.guard._terminal):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Give a guard whose validity, unless it is extended, ends at 100 s."""
    made = Bench()
    monkeypatch.setattr(module, "select", SimpleNamespace(poll=made.poll, POLLIN=select.POLLIN))
    monkeypatch.setattr(module, "now", lambda: made.moment)
    with contextlib.closing(made):
        yield made


# -- how long it waits -------------------------------------------------------------------------------


def test_an_idle_guard_wakes_up_four_times_a_second(bench: Bench) -> None:
    """No more often, however long the command runs: `poll` counts in milliseconds."""
    moment, wakeups = 0.0, 0
    while moment < 10:
        moment += bench.waits(moment)
        wakeups += 1
    assert wakeups == pytest.approx(10 / TICK, rel=0.02)


@pytest.mark.parametrize("left", [0.2, 0.05, 0.0104])
def test_it_wakes_up_when_something_is_due(left: float, bench: Bench) -> None:
    """At SIGTERM, and at SIGKILL; neither before, which would be a busy loop, nor much later."""
    assert left <= bench.waits(TERM_AT - left) <= left + 0.001
    assert bench.act(TERM_AT) == ["all SIGTERM"]
    assert left <= bench.waits(UNTIL - MARGIN - left) <= left + 0.001


def test_it_looks_often_for_what_has_no_parent_here(bench: Bench) -> None:
    """When the command has ended, or should have, only a look shows the end of the others."""
    soon = pytest.approx(CLOSE_TICK, abs=0.0011)
    assert [bench.waits(moment) for moment in (TERM_AT, TERM_AT + 10)] == [soon] * 2
    bench.act(TERM_AT)
    assert bench.waits(UNTIL) == soon
    bench.child.code = 0
    assert bench.waits(0.0) == soon


def test_it_hears_the_bell_and_its_orders(bench: Bench) -> None:
    """Orders until they end: a closed pipe is always ready.  A bell that rang is silenced."""
    ringer = os.dup(bench._open[-1])
    os.write(ringer, b"x" * 100)
    os.close(ringer)
    bench.waits(0.0)
    with pytest.raises(BlockingIOError):
        os.read(bench.guard._bell, 1)
    assert bench.wait[1] == [bench.guard._bell, bench.guard._orders]
    os.close(bench.orders)
    bench.guard._hear()
    bench.waits(0.0)
    assert bench.wait[1] == [bench.guard._bell]


# -- what it does ------------------------------------------------------------------------------------

TERM, KILL = ["all SIGTERM"], ["all SIGKILL", "killed"]
SIGNALS = b"signal %d\nsignal %d\n" % (signal.SIGUSR1, signal.SIGWINCH)


@pytest.mark.parametrize(
    ("orders", "child", "acts", "lost"),
    [
        pytest.param([], {}, {94.999: []}, False, id="before its time"),
        pytest.param(
            [],
            {},
            {95: TERM, 96: [], 98.999: [], 99: KILL, 100: ["all SIGKILL"]},  # what came in between as well
            True,
            id="SIGTERM, then SIGKILL before the end",
        ),
        pytest.param([b"lost\n"], {}, {10: TERM, 13.999: [], 14: KILL}, True, id="a loss that is reported"),
        pytest.param([], {}, {98: TERM, 98.9: [], 99: KILL}, True, id="late, it gives less time"),
        pytest.param(
            [b"until 200.0\nunt", b"il 150.0\n"], {}, {194.9: [], 195: TERM}, True, id="the latest extension"
        ),
        pytest.param([SIGNALS], {}, {1: ["SIGUSR1", "SIGWINCH"], 2: []}, False, id="signals, once each"),
        pytest.param([], {"denied": True}, {1: ["denied"], 2: []}, False, id="not permitted, reported once"),
        pytest.param([], {"look": lambda: signal.SIGTSTP}, {1: []}, False, id="stopped without a terminal"),
        pytest.param([], {"code": 0}, {99.999: [*TERM, *KILL]}, False, id="it ended in time"),
        pytest.param([], {"code": 0}, {100: [*TERM, *KILL]}, True, id="it ended behind the validity"),
        pytest.param([b"lost\n"], {"code": 0}, {10: TERM}, False, id="it ended before the loss"),
        pytest.param(
            [],
            {"code": 0},
            {
                10: [],
                10.09: [],  # the moment that counts is the first
                10 + LINGER - 0.001: [],
                10 + LINGER: [*TERM, "left"],
                10 + LINGER + KILL_AFTER: KILL,
            },
            False,
            id="what is left may linger for a moment",
        ),
    ],
)
def test_what_it_does_when(
    orders: list[bytes], child: dict[str, Any], acts: dict[float, list[str]], lost: bool, bench: Bench
) -> None:
    """By the orders that it has heard, at each moment; and whether the command lived without its lock."""
    vars(bench.child).update(child)
    bench.guard._terminal = -1
    for data in orders:
        bench.order(data)
    if orders == [b"lost\n"] and child:
        acts = dict.fromkeys(acts, TERM)
    assert {moment: bench.act(moment) for moment in acts} == acts
    assert bench.guard._lost is lost


# -- signals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, ProcessLookupError, PermissionError])
def test_only_signals_that_ask_for_an_end_wake_a_stopped_command(error: type[Exception] | None) -> None:
    """A SIGCONT comes with them, and not with others; a group that is gone gets none."""
    child, sent = Child.__new__(Child), []
    child.denied = False

    def kill(target: int, number: int) -> None:
        sent.append((target, number))
        if error is not None:
            raise error

    for number in (*ENDING, signal.SIGUSR1, signal.SIGKILL, signal.SIGWINCH):
        sent.clear()
        child._signal(kill, 7, number)
        woken = [(7, signal.SIGCONT)] if number in ENDING and error is not ProcessLookupError else []
        assert sent == [(7, number), *woken]
    assert child.denied is (error is PermissionError)
