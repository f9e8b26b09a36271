"""The guard alone, and the moments that no real run hits on purpose."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aioredlock_ng import LockManager, NodeInspection
from aioredlock_ng._cli import run_job
from aioredlock_ng._cli._guard.group import group_lives, now
from aioredlock_ng._cli.common import LOST
from aioredlock_ng._cli.run_job import GUARD, GuardedCommand, Job
from aioredlock_ng.testing import MemoryNode
from tests.cli.test_ended_runs import plan_of
from tests.servers import until


def guarded(*words: str, valid: float = 60.0) -> GuardedCommand:
    """Start a command under a guard, with a lock that is valid for some seconds; the margin is 0.1 s."""
    plan = plan_of(command=words, ttl=2.0, kill_after=1.0)
    return GuardedCommand(plan, until=now() + valid, environment=dict(os.environ))


async def heard(command: GuardedCommand) -> list[list[str]]:
    """Hear all reports, to the end."""
    reports = [words async for words in command.reports()]
    command.close()
    return reports


@pytest.mark.parametrize("why", ["no time left", "extended", "lost", "holder died"])
async def test_a_lock_without_time_left_starts_nothing(why: str, tmp_path: Path) -> None:
    """The guard came up when the command would have to be ended at once, or its end overtook the start."""
    command = guarded(
        "touch", str(tmp_path / "started"), valid=1.05 if why[-4:] in ("left", "nded") else 60.0
    )
    if why == "extended":  # what it was started with is not the last word
        command.keep_until(now() + 60)
    elif why == "lost":
        command.end()
    elif why == "holder died":
        command.close()
    reports = [words[0] async for words in command.reports()]
    if why != "holder died":
        command.close()
    assert reports == (["started", "ended"] if why == "extended" else ["late"])
    assert (tmp_path / "started").exists() is (why == "extended")


async def test_a_signal_before_the_start_reaches_the_command() -> None:
    """It is kept until there is a process to get it."""
    command = guarded("sleep", "60")
    command.pass_on(signal.SIGUSR1)
    reports = await heard(command)
    assert [words[0] for words in reports] == ["started", "ended"]
    assert reports[-1][1:3] == [str(-signal.SIGUSR1), "0"]


async def test_an_idle_guard_sleeps() -> None:
    """However long its command runs: it wakes up some times in a second, and is no busy loop."""
    command = guarded("sleep", "60")

    def wakeups() -> int:
        status = Path(f"/proc/{command._guard.pid}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    async for words in command.reports():
        if words[0] == "started":
            before = wakeups()
            await asyncio.sleep(1)
            assert wakeups() - before < 50
            command.end()
    command.close()


async def test_orders_to_a_guard_that_stands_still_do_not_block() -> None:
    """Thousands of them fill its pipe; the holder of the lock goes on, and can still kill the command."""
    command = guarded("sleep", "60")
    async for words in command.reports():
        if words[0] == "started":
            os.kill(command._guard.pid, signal.SIGSTOP)
            for _ in range(10_000):
                command.pass_on(signal.SIGCONT)
            assert command.kill()
    await command.killed()
    command.close()


def reports_of(*via: str, command: tuple[str, ...]) -> list[bytes]:
    """Run a bare guard over a command by way of another program; return the words of what it reports."""
    orders, reports = os.pipe(), os.pipe()
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 20) for descriptor in (orders[0], reports[1])]
    words = (*map(str, high), repr(now() + 60), "1", "0.1", "0", *command)
    guard = (sys.executable, "-I", "-S", str(GUARD), *words)
    subprocess.run([*via, *guard], pass_fds=high, check=True, timeout=30)
    said = os.read(reports[0], 1000).split()
    for descriptor in (*orders, *reports, *high):
        os.close(descriptor)
    return said


def test_a_process_that_cannot_be_started_is_reported() -> None:
    """The guard could be started, but the command not, for want of what the system has too little of."""
    few = ("sh", "-c", 'ulimit -n 7; exec "$@"', "sh")  # enough for the guard, too few for its child
    assert reports_of(*few, command=("true",)) == [b"unable", b"%d" % errno.EMFILE]


LEAVER = """
import os, sys, time
read_end, write_end = os.pipe()
if not (other := os.fork()):
    os.setpgid(0, 0)
    os.write(write_end, b"!")
    time.sleep(60)
os.read(read_end, 1)
if sys.argv[1] == "leaves one behind" and not os.fork():
    time.sleep(60)
os.setpgid(0, other)
open(sys.argv[2], "w").close()
time.sleep(60)
"""
"""A command that goes over to the process group of a child of its own."""


@pytest.mark.parametrize("how", ["leaves one behind", "leaves none"])
async def test_a_command_that_leaves_its_group_is_signalled(how: str, tmp_path: Path) -> None:
    """Itself, whether or not its group still has a process to be signalled."""
    command = guarded(sys.executable, "-I", "-S", "-c", LEAVER, how, str(tmp_path / "left"))
    reports = []
    async for words in command.reports():
        reports.append(words)
        if words[0] == "started":
            until((tmp_path / "left").exists, "it has left its group")
            other = next(pid for pid in children(int(words[1])) if os.getpgid(pid) == pid)
            command.pass_on(signal.SIGUSR1)
    command.close()
    assert reports[-1][:2] == ["ended", str(-signal.SIGUSR1)]
    assert not runs(other), "what is left of it was ended"


def runs(pid: int) -> bool:
    """Say whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


def program(text: str, tmp_path: Path) -> tuple[str, ...]:
    """Return a command for bash, which can do without a terminal for its jobs.

    `$note` starts a program that notes its pid and sleeps, `$wait` waits for the note.
    """
    (tmp_path / "note").write_text(f"echo $$ >{tmp_path}/pid; exec sleep 60")
    wait = f"while ! [ -s {tmp_path}/pid ]; do sleep 0.01; done"
    return ("bash", "-c", text.replace("$note", f"sh {tmp_path}/note").replace("$wait", wait))


@pytest.mark.parametrize(
    ("text", "expected", "lives"),
    [
        pytest.param("timeout 60 $note; true", None, False, id="timeout"),
        pytest.param("set -m; $note & wait", None, False, id="job control"),
        pytest.param("sh -c 'timeout 60 $note & exit'; exec sleep 60", None, False, id="its parent is gone"),
        pytest.param("set -m; $note & $wait; exit 5", ["left", "ended"], False, id="in the background"),
        pytest.param("setsid $note & $wait; exit 5", ["ended"], True, id="a daemon means to stay"),
    ],
)
async def test_what_left_the_group_ends_with_the_lock(
    text: str, expected: list[str] | None, lives: bool, tmp_path: Path
) -> None:
    """Lost, or given back: the group of its own that `timeout` and a shell's jobs have does not save them."""
    command, reports = guarded(*program(text, tmp_path)), []
    async for words in command.reports():
        reports.append(words)
        if words[0] == "started":
            until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "it runs")
            if expected is None:
                command.end()
    command.close()
    assert reports[-1][2] == str(int(expected is None))
    assert expected is None or [words[0] for words in reports[1:]] == expected
    pid = int((tmp_path / "pid").read_text())
    assert runs(pid) is lives
    if lives:
        os.kill(pid, signal.SIGKILL)


NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
"""A pid namespace that sees the ``/proc`` of the one around it."""


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0,
    reason="no pid namespace may be made here",
)
@pytest.mark.parametrize("text", ["exit 5", "sleep 60 & exit 5"], ids=["alone", "with a rest"])
def test_another_namespaces_processes_are_not_taken_for_its_own(text: str) -> None:
    """Their numbers mean other processes here, or none: neither are they waited for, nor is a rest missed."""
    # The guard leads its group; the second process is one that others may be children of.
    inside = ("bash", "-c", 'set -m; "$@" & wait $!', "bash")
    words = reports_of(*NAMESPACE, *inside, command=("sh", "-c", text))
    assert words[0] == b"started"
    assert (b"left" in words) == ("&" in text)
    assert words[words.index(b"ended") + 1] == b"5"


def children(parent: int) -> list[int]:
    """Return the children of a process."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def test_a_group_of_zombies_is_dead() -> None:
    """They may stay unreaped, as in many containers: that must not look like a command that lives on."""
    with subprocess.Popen(["sleep", "60"], process_group=0) as process:
        assert group_lives(process.pid)
        process.kill()
        until(lambda: not group_lives(process.pid), "the killed one counts as gone")
        os.killpg(process.pid, 0)  # although the kernel still knows its group
    assert not group_lives(process.pid)


async def test_a_signal_at_the_very_win_is_not_lost(tmp_path: Path) -> None:
    """It comes when the lock is won and its wait has not ended yet: nothing starts or stays held."""
    job = Job(plan_of(command=("touch", str(tmp_path / "started"))))
    nodes = [MemoryNode() for _ in range(3)]

    class AtTheWin:
        def on_acquired(self, _: object) -> None:
            asyncio.get_running_loop().call_soon(job._caught, signal.SIGTERM)  # as signals come

    def make(**options: Any) -> LockManager:
        options["hooks"] = [*options["hooks"], AtTheWin()]
        return LockManager(nodes, **options)

    assert await job.run(make) == 128 + signal.SIGTERM

    assert not (tmp_path / "started").exists()
    async with LockManager(nodes) as manager:
        inspections: tuple[NodeInspection, ...] = await manager.inspect("job")
    assert [node.held for node in inspections] == [False] * 3


async def test_a_guard_that_is_too_slow_kills_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The lock is lost before it is up, as on a very slow machine: there is no command, and none is named."""
    slow = tmp_path / "slow.py"
    slow.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(run_job, "GUARD", slow)
    job, nodes = Job(plan_of(ttl=1.0, kill_after=0.2)), [MemoryNode() for _ in range(3)]

    class ThenDown:
        def on_acquired(self, _: object) -> None:
            for node in nodes:
                node.freeze()

    def make(**options: Any) -> LockManager:
        options["hooks"] = [*options["hooks"], ThenDown()]
        return LockManager(nodes, **options)

    assert await job.run(make) == LOST
    err = capfd.readouterr().err
    assert "lock 'job' was lost before the guard process could start the command" in err
    assert "kill" not in err
