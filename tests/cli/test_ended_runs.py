"""How ``aioredlock-ng run`` judges the end of a command, and what it says of it; no process is started."""

from __future__ import annotations

import asyncio
import errno
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from aioredlock_ng import LockManager, LossReason
from aioredlock_ng._cli.run_job import HARMLESS, Ended, GuardedRun, Job, Plan
from aioredlock_ng.testing import MemoryNode

VALID_UNTIL = 100.0
WE = "aioredlock-ng run: "
OUTLIVED = (
    WE + "the command ran for {} s after the validity of lock 'job' had ended: "
    "another holder may have run meanwhile"
)
GONE = WE + "lock 'job' was gone while the command ran: another holder may have run meanwhile"
EARLIER = WE + "lock 'job' was lost; the command ended {} s before its validity did"
UNEXTENDED = WE + "lock 'job': no majority of the nodes extended it in time"


def plan_of(**changes: Any) -> Plan:
    """Plan to run a command that needs no more than a name."""
    plan = {"name": "job", "command": ("true",), "ttl": 10.0, "kill_after": 1.0, "patience": None}
    return Plan(**({"taken_code": 1} | plan | changes))


def judged(
    capsys: pytest.CaptureFixture[str],
    *,
    code: int = 0,
    lost: bool = False,
    gone: float = 50.0,
    refused: bool = False,
    told: bool = False,
    lent: bool = False,
) -> tuple[int, list[str], bool]:
    """Return the exit code, the lines, and whether a Ctrl-C is to be passed on."""
    lease, run = SimpleNamespace(valid_until=VALID_UNTIL, lost=asyncio.Event()), GuardedRun(plan_of())
    if told:
        lease.lost.set()
    if refused:
        run.on_lost(SimpleNamespace(reason=LossReason.REFUSED))  # type: ignore[arg-type]
    exit_code = run._judge(lease, Ended(code=code, lost=lost, gone=gone, lent=lent))  # type: ignore[arg-type]
    return exit_code, capsys.readouterr().err.splitlines(), run.interrupted


@pytest.mark.parametrize(
    ("ended", "code", "lines"),
    [
        *(
            ({"code": code}, shown, [])
            for code, shown in ((0, 0), (7, 7), (255, 255), (-signal.SIGTERM, 143), (-signal.SIGKILL, 137))
        ),
        ({"lost": True, "gone": 98.5}, 75, [UNEXTENDED, EARLIER.format("1.500")]),
        ({"code": 3, "lost": True, "gone": 98.5, "told": True}, 75, [EARLIER.format("1.500")]),
        ({"lost": True, "gone": 100.25}, 75, [UNEXTENDED, OUTLIVED.format("0.250")]),
        ({"lost": True, "gone": 100.25, "refused": True, "told": True}, 75, [OUTLIVED.format("0.250")]),
        ({"lost": True, "gone": 100.0, "told": True}, 75, [EARLIER.format("0.000")]),
        ({"refused": True, "told": True}, 75, [GONE]),
        ({"refused": True, "lost": True, "told": True}, 75, [GONE]),
    ],
)
def test_how_an_end_is_judged(
    ended: dict[str, Any], code: int, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The code is the command's, or 128 and its signal, while the lock is held; after a loss it is 75.

    By how much it ended in time, or too late; of a lock that nodes refused its validity says nothing.
    """
    assert judged(capsys, **ended) == (code, lines, False)


@pytest.mark.parametrize("reason", [reason for reason in LossReason if reason is not LossReason.REFUSED])
def test_other_losses_leave_the_validity_as_it_is(reason: LossReason) -> None:
    """Only a refusal says that the lock is gone from the nodes."""
    run = GuardedRun(plan_of())
    run.on_lost(SimpleNamespace(reason=reason))  # type: ignore[arg-type]
    assert not run._refused


@pytest.mark.parametrize(
    ("code", "lent", "interrupted"),
    [(-signal.SIGINT, True, True), (-signal.SIGINT, False, False), (-signal.SIGTERM, True, False),
     (130, True, False)],
)  # fmt: skip
def test_ctrl_c_is_passed_on_where_the_command_had_the_terminal(
    *, code: int, lent: bool, interrupted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script around us has not got it then."""
    assert judged(capsys, code=code, lent=lent)[2] is interrupted


@pytest.mark.parametrize(
    ("word", "said"),
    [("stopped", "not suspended"), ("waits", "(fg)"), ("left", "left processes behind"),
     ("denied", "no permission")],
)  # fmt: skip
def test_what_the_guard_reports_is_told(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each."""
    GuardedRun(plan_of())._hear([word])
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("size", "forgetful", "code"), [(3, 0, 7), (3, 1, 7), (3, 2, 75), (3, 3, 75), (4, 2, 7), (4, 3, 75)]
)
async def test_a_lock_that_was_gone_at_the_end(
    size: int, forgetful: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """From so many nodes that another one may have had it, though it was thought to be held."""
    nodes = [MemoryNode() for _ in range(size)]
    run = Job(plan_of())

    async def command(*_: object) -> int:
        for node in nodes[:forgetful]:
            node.delete(b"redlock:job")
        return 7

    run._guarded.run = command  # type: ignore[assignment]
    async with LockManager(nodes) as manager:
        lease = await manager.lock("job").acquire()
        assert await run._run_under(lease, manager) == code
    assert ("was gone before the command ended" in capsys.readouterr().err) == (code == 75)


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOENT, 127, "'true': command not found"),
        (errno.ENOTDIR, 127, "'true': command not found"),
        (errno.E2BIG, 126, "'true' cannot be executed: Argument list too long"),
    ],
)
def test_a_command_that_was_not_started(
    number: int, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As shells tell it."""
    assert GuardedRun(plan_of())._not_started(number) == code
    assert capsys.readouterr().err == f"{WE}{words}\n"


def test_only_a_wait_without_end_says_why_it_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    """Once; not while another holder has the lock; not when the wait will end with a reason."""
    run, patient = Job(plan_of()), Job(plan_of(patience=5.0))
    for job, taken, says in ((run, True, 0), (run, False, 1), (run, False, 0), (patient, False, 0)):
        job.on_refused(SimpleNamespace(taken=taken))  # type: ignore[arg-type]
        assert capsys.readouterr().err.count("too few nodes answer; still trying") == says


def test_signals_end_the_waiting_but_for_harmless_ones() -> None:
    """The first one counts; with a command they are the command's."""
    run, passed = Job(plan_of()), []
    for numbers, ends in ((HARMLESS, None), ((signal.SIGTERM, signal.SIGINT), signal.SIGTERM)):
        for number in numbers:
            run._caught(number)
        assert (run._signal, run._signalled.is_set()) == (ends, ends is not None)
    run = Job(plan_of())
    run._guarded._command = SimpleNamespace(pass_on=passed.append)  # type: ignore[assignment]
    run._caught(signal.SIGHUP)
    run._caught(signal.SIGWINCH)
    assert (passed, run._signal) == ([signal.SIGHUP, signal.SIGWINCH], None)
