"""The end of a command as ``aioredlock-ng run`` judges it and reports it; no process is started."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import signal
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from aioredlock_ng import LockManager, LossReason
from aioredlock_ng._cli.run_job import Job, Plan
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


async def judged(
    capsys: pytest.CaptureFixture[str],
    *said: str,
    refused: bool = False,
    logged: bool = False,
) -> tuple[int, list[str], bool]:
    """Return the exit code, the lines, and whether a Ctrl-C is to be passed on, after reports of a guard."""
    lease, job = SimpleNamespace(valid_until=VALID_UNTIL, lost=asyncio.Event()), Job(plan_of())
    if logged:
        lease.lost.set()
    if refused:
        job.on_lost(SimpleNamespace(reason=LossReason.REFUSED))  # type: ignore[arg-type]

    async def reports() -> AsyncIterator[list[str]]:
        for line in said:
            yield line.split()

    code = await job._attend(lease, None, SimpleNamespace(reports=reports))  # type: ignore[arg-type]
    return code, capsys.readouterr().err.splitlines(), job.interrupted


@pytest.mark.parametrize(
    ("report", "of", "code", "lines"),
    [
        *(
            (f"ended {code} 0 50 0", {}, shown, [])
            for code, shown in ((0, 0), (7, 7), (255, 255), (-signal.SIGTERM, 143), (-signal.SIGKILL, 137))
        ),
        ("ended 0 1 98.5 0", {}, 75, [UNEXTENDED, EARLIER.format("1.500")]),
        ("ended 3 1 98.5 0", {"logged": True}, 75, [EARLIER.format("1.500")]),
        ("ended 0 1 100.25 0", {}, 75, [UNEXTENDED, OUTLIVED.format("0.250")]),
        ("ended 0 1 100.25 0", {"refused": True, "logged": True}, 75, [OUTLIVED.format("0.250")]),
        ("ended 0 1 100.0 0", {"logged": True}, 75, [EARLIER.format("0.000")]),
        ("ended 0 0 50 0", {"refused": True, "logged": True}, 75, [GONE]),
        ("ended 0 1 50 0", {"refused": True, "logged": True}, 75, [GONE]),
        (f"failed {errno.ENOENT}", {}, 127, [f"{WE}'true': command not found"]),
        (f"failed {errno.ENOTDIR}", {}, 127, [f"{WE}'true': command not found"]),
        (f"failed {errno.E2BIG}", {}, 126, [f"{WE}'true' cannot be executed: Argument list too long"]),
        (f"unable {errno.EAGAIN}", {}, 71, [f"{WE}cannot start a process: {os.strerror(errno.EAGAIN)}"]),
    ],
)
async def test_how_an_end_is_judged(
    report: str, of: dict[str, bool], code: int, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The code is the command's, or 128 and its signal, while the lock is held; after a loss it is 75.

    By how much it ended in time, or too late; of a lock that nodes refused its validity says nothing.  A
    command that was not started is reported as by shells.
    """
    assert await judged(capsys, report, **of) == (code, lines, False)


@pytest.mark.parametrize(
    ("report", "interrupted"),
    [("ended -2 0 50 1", True), ("ended -2 0 50 0", False), ("ended -15 0 50 1", False),
     ("ended 130 0 50 1", False), ("ended -2 1 50 1", False)],
)  # fmt: skip
async def test_ctrl_c_is_passed_on_where_the_command_had_the_terminal(
    report: str, interrupted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script around us has not got it then."""
    assert (await judged(capsys, report))[2] is interrupted


async def test_reports_of_the_guard_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each."""
    _, lines, _ = await judged(capsys, "stopped", "waits", "left", "denied", "killed", "ended 0 0 50 0")
    parts = ("not suspended", "(fg)", "left processes behind", "no permission")
    assert all(part in line for part, line in zip(parts, lines, strict=True))


@pytest.mark.parametrize(
    ("size", "forgetful", "code"), [(3, 0, 7), (3, 1, 7), (3, 2, 75), (3, 3, 75), (4, 2, 7), (4, 3, 75)]
)
async def test_a_lock_that_was_gone_at_the_end(
    size: int, forgetful: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a majority of the nodes, so that another one may have had it, though it was thought to be held."""
    nodes = [MemoryNode() for _ in range(size)]
    run = Job(plan_of())

    async def command(*_: object) -> int:
        for node in nodes[:forgetful]:
            node.delete(b"redlock:job")
        return 7

    run._run_under = command  # type: ignore[method-assign]
    assert await run.run(functools.partial(LockManager, nodes)) == code
    assert ("was gone before the command ended" in capsys.readouterr().err) == (code == 75)
