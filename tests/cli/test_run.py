"""``aioredlock-ng run``: what the command gets, and what it gives back."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import pytest

from aioredlock_ng import _clock
from aioredlock_ng.__main__ import main
from aioredlock_ng._cli._guard import group
from aioredlock_ng.sync import SyncLockManager
from tests.cli.runs import Runs
from tests.servers import ask

SHOW = (
    "import json, os, sys; "
    "print(json.dumps({'args': [os.fsencode(a).hex() for a in sys.argv[1:]], 'env': dict(os.environ), "
    "'fds': sorted(int(fd) for fd in os.listdir('/proc/self/fd')), "
    "'group': os.getpgrp() == os.getpid()}))"
)
"""A program that tells what it was given; one more descriptor than it got is open, for the listing."""

IGNORING = (
    "import os, signal, sys; "
    "signal.signal(getattr(signal, sys.argv[1]), signal.SIG_IGN); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)
"""A program that becomes another one, which ignores a signal.  Not all shells pass that on."""


def shown(runs: Runs, *arguments: str | bytes, **options: Any) -> dict[str, Any]:
    """Run a program that tells what it was given."""
    code, out, err = runs.finish("job", "--", sys.executable, "-c", SHOW, *arguments, **options)
    assert (code, err) == (0, "")
    return json.loads(out)


# -- the exit code ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 255", 255), ("kill $$", 143)])
def test_the_exit_code_is_the_commands(end: str, code: int, runs: Runs) -> None:
    """Or 128 and the number of its signal, as in a shell; nothing is said, and the lock is free at once."""
    assert runs.finish("job", "--", "sh", "-c", f"echo done; {end}") == (code, "done\n", "")
    assert runs.holders("redlock:job") == 0


def test_another_clients_longer_quarantine_is_no_news(runs: Runs) -> None:
    """It holds, and `doctor` says so: no news for cron's mail at every run."""
    urls = ",".join(runs.nodes.urls)
    assert main(["init", "--nodes", urls, "--restart-quarantine", "300"]) == 0
    assert runs.finish("job", "--", "true") == (0, "", "")


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("no-such-command", 127, ": command not found"),
        ("./script", 126, " cannot be executed: Permission denied"),
        ("./folder", 126, " cannot be executed: Permission denied"),
    ],
)
def test_a_command_that_cannot_be_run(command: str, code: int, says: str, runs: Runs) -> None:
    """The lock is released at once, and the line says what was not found, or is no program."""
    (runs.directory / "folder").mkdir()
    (runs.directory / "script").write_text("#!/bin/sh\n")
    assert runs.finish("job", "--", command, "x") == (code, "", f"aioredlock-ng run: '{command}'{says}\n")
    assert runs.holders("redlock:job") == 0


def test_too_few_descriptors_do_not_look_like_a_taken_lock(runs: Runs) -> None:
    """Whatever it is that they are missing for, it is said without a traceback, and the code is not 1."""
    for limit in range(6, 10):
        via = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"]
        code, out, err = runs.finish("-n", "job", "--", "echo", "started", via=via)
        assert code in (69, 71)
        assert out == ""
        assert "Too many open files" in err
        assert "Traceback" not in err


@pytest.mark.parametrize("name", ["script", "-n"])
def test_a_script_without_a_first_line_is_the_shells(name: str, runs: Runs) -> None:
    """As a shell and flock(1) do it; its name may begin with a dash."""
    script = runs.directory / name
    script.write_text('echo "$0 $1 ${#}"\n')
    script.chmod(0o755)
    path = f"{runs.directory}:{os.environ['PATH']}"
    assert runs.finish("job", "--", name, "a b", env={"PATH": path}) == (0, f"{script} a b 1\n", "")


# -- not again in a while --------------------------------------------------------------------------


def test_the_lock_stays_taken_for_a_while(runs: Runs) -> None:
    """Though the command has ended: another host finds it taken, and its holder's name."""
    assert runs.finish("--at-least", "1m", "job", "--", "true") == (0, "", "")
    left = [ask(url, "PTTL", "redlock:job") for url in runs.nodes.urls]
    assert all(0 < ms <= 60_000 for ms in left)
    code, out, err = runs.finish("-n", "job", "--", "echo", "again")
    assert (code, out) == (1, "")
    assert "is held by" in err


def test_quietly_only_errors_are_said(runs: Runs) -> None:
    """Not that the lock is taken, nor that one node is down: cron sends each line by mail."""
    with SyncLockManager(runs.nodes.urls) as manager, manager.lock("job"):
        assert runs.finish("-q", "-n", "job", "--", "true") == (1, "", "")
    nodes = ",".join([*runs.nodes.urls[:2], "redis://127.0.0.1:1"])
    new = ("--quiet", "--nodes", nodes, "--prefix", "new:")
    assert runs.finish(*new, "job", "--", "true", env={"REDLOCK_RESTART_QUARANTINE": "0"}) == (0, "", "")
    code, out, err = runs.finish("-q", "-w", "0.1", "--nodes", "redis://127.0.0.1:1", "job", "--", "true")
    assert (code, out, err.count("\n")) == (69, "", 1)


# -- what the command gets -------------------------------------------------------------------------


def test_what_it_gets(runs: Runs) -> None:
    """Its arguments untouched: options, a second ``--``, bytes that are no text, hundreds of them.

    In its environment name, ttl and its own fence, not that of a run around it; from run to run it grows.
    It leads a process group.  It has the three standard descriptors, and what else the caller left open.
    """
    arguments: list[str | bytes] = ["", "-n", "--", "run", "a b", "'\"$x", b"\xff\xfe", "ü\n"]
    arguments += [str(i) for i in range(300)]
    fences, (read_end, write_end) = [1 << 53], os.pipe()
    around = {"REDLOCK_FENCE": str(fences[0]), "OTHER": "kept"}
    with os.fdopen(read_end) as stdin:
        for inherited in ((), (read_end,)):
            seen = shown(runs, *arguments, env=around, pass_fds=inherited)
            assert [bytes.fromhex(each) for each in seen["args"]] == [os.fsencode(each) for each in arguments]
            environment = seen["env"]
            assert [environment[name] for name in ("REDLOCK_NAME", "REDLOCK_TTL", "OTHER")] == [
                "job", "10", "kept",
            ]  # fmt: skip
            fences.append(int(environment["REDLOCK_FENCE"]))
            assert (seen["group"], len(seen["fds"])) == (True, 4 + len(inherited))
            assert set(inherited) <= set(seen["fds"])
        os.write(write_end, b"a line\n")
        os.close(write_end)
        assert runs.finish("job", "--", "cat", stdin=stdin) == (0, "a line\n", "")
    assert 0 < fences[1] < fences[2] < fences[0]
    code, out, _ = runs.finish("--ttl", "2.5", "a b", "--", "sh", "-c", 'echo "$REDLOCK_NAME" $REDLOCK_TTL')
    assert (code, out) == (0, "a b 2.5\n")


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C.UTF-8"}], ids=["none", "its own"])
def test_its_locale_is_the_callers(given: dict[str, str], runs: Runs) -> None:
    """Under cron's empty locale Python sets LC_CTYPE for itself; the command does not see that."""
    locales = dict.fromkeys(("LC_ALL", "LANG"), "")
    code, out, _ = runs.finish("job", "--", "env", env=locales | given)
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("LC_CTYPE=")] == [
        f"{name}={value}" for name, value in given.items()
    ]


@pytest.mark.parametrize("closed", ["0", "2", "012"])
def test_closed_standard_descriptors_stay_closed(closed: str, runs: Runs) -> None:
    """The command finds closed what was closed.  No pipe or socket of ours gets these numbers.

    A message or a question to a closed descriptor must not end in a socket of the run or its guard.
    """
    note, ours = runs.directory / "note", runs.directory / "ours"
    listing = (
        f"for i in 0 1 2; do [ -e /proc/$$/fd/$i ] && echo $i >>{note}; done; "
        "guard=$PPID; run=$(cut -d' ' -f4 /proc/$guard/stat); "
        f"for i in {' '.join(closed)}; do readlink /proc/$guard/fd/$i /proc/$run/fd/$i >>{ours}; done; exit 3"
    )
    closing = " ".join(f"{i}{'<' if i == '0' else '>'}&-" for i in closed)
    via = ["sh", "-c", f'exec "$@" {closing}', "sh"]
    code, _, err = runs.finish("job", "--", "sh", "-c", listing, via=via)
    assert (code, err) == (3, "")
    left_open = [i for i in "012" if i not in closed]
    assert note.read_text().split() == left_open if left_open else not note.exists()
    assert set(ours.read_text().split()) == {"/dev/null"}
    assert runs.holders("redlock:job") == 0


@pytest.mark.parametrize("number", ["CHLD", "HUP", "PIPE", None])
def test_signals_that_the_caller_ignores_stay_ignored(number: str | None, runs: Runs) -> None:
    """A caller that ignores SIGCHLD changes nothing for us, nohup holds for the command, too; no other is."""
    via = [] if number is None else [sys.executable, "-I", "-S", "-c", IGNORING, f"SIG{number}"]
    code, out, err = runs.finish("job", "--", "grep", "-E", "SigIgn|SigBlk", "/proc/self/status", via=via)
    assert (code, err) == (0, "")
    blocked, ignored = (int(line.split()[1], 16) for line in sorted(out.splitlines()))
    hidden = number in ("PIPE", None)  # Python hides the former
    assert (blocked, ignored) == (0, 0 if hidden else 1 << getattr(signal, f"SIG{number}") - 1)
    assert runs.finish("job", "--", "sh", "-c", "exit 3", via=via)[0] == 3


def test_processes_left_behind_are_ended(runs: Runs) -> None:
    """Processes left in its group would run without the lock: they end before the release."""
    stamper = runs.stamper("left", manners="stubborn")
    wait = f"while ! [ -s {runs.directory}/left ]; do sleep 0.01; done"
    command = ["sh", "-c", f'"$@" & {wait}; exit 5', "sh", *stamper]
    code, _, err = runs.finish("--ttl", "2", "job", "--", *command)
    assert code == 5
    assert err.count("\n") == 1
    assert "left processes behind" in err
    assert runs.words("left")[:2] == ["start", "SIGTERM"]
    assert runs.words("left")[-1] != "stop"
    assert runs.processes() == {}
    assert runs.holders("redlock:job") == 0


# -- time ------------------------------------------------------------------------------------------


def test_the_guard_reads_the_clock_of_the_locks() -> None:
    """It cannot import the package: its own choice of the clock must be the same."""
    assert group.CLOCK == _clock._CLOCK
    before = _clock.SystemClock().now()
    assert before <= group.now() <= _clock.SystemClock().now()


def test_a_long_command_keeps_its_lock(runs: Runs) -> None:
    """It is extended for as long as the command runs, here over two ttls, with the longest kill time."""
    run = runs.start("--ttl", "1", "--kill-after", "0.499", "job", "--", *runs.stamper("stamps", 2.3))
    assert run.wait() == 0
    assert runs.words("stamps") == ["start", "stop"]
    assert run.err == ""
    assert ask(runs.nodes.urls[0], "EXISTS", "redlock:job") == 0
