"""``aioredlock-ng run``: what the command gets, and what it gives back."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any

import pytest

from aioredlock_ng import _clock
from aioredlock_ng.__main__ import _parser, main
from aioredlock_ng._cli._guard import group
from aioredlock_ng._cli.run import _plan
from aioredlock_ng._cli.run_job import Plan
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


def test_another_clients_longer_quarantine_is_not_told(runs: Runs) -> None:
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


def test_at_least_takes_the_place_of_a_shorter_ttl() -> None:
    """The command is stopped as long before the end as without it."""
    own, child = _parser().parse_args(["run", "job"]), {"child": ["true"]}
    short, long = (
        _plan(argparse.Namespace(**(vars(own) | child | {"at_least": time}))) for time in (0.0, 300.0)
    )
    assert (short.ttl, short.kill_after, short.at_least) == (10.0, 2.5, 0.0)
    assert (long.ttl, long.kill_after, long.at_least) == (300.0, 2.5, 300.0)
    assert long.extension.grace * long.ttl == pytest.approx(long.kill_after + long.margin)


# -- what the command gets -------------------------------------------------------------------------


def test_it_gets_its_arguments_untouched(runs: Runs) -> None:
    """Empty ones, options, a second ``--``, bytes that are no text, and hundreds of them."""
    arguments: list[str | bytes] = ["", "-n", "--", "run", "a b", "'\"$x", b"\xff\xfe", "ü\n"]
    arguments += [str(i) for i in range(300)]
    seen = shown(runs, *arguments)
    assert [bytes.fromhex(argument) for argument in seen["args"]] == [os.fsencode(a) for a in arguments]


def test_it_sees_the_lock_in_its_environment(runs: Runs) -> None:
    """Name, ttl and its own fence, not that of a run around it; from run to run the fence grows."""
    fences = [1 << 53]
    for _ in range(2):
        environment = shown(runs, env={"REDLOCK_FENCE": str(fences[0]), "OTHER": "kept"})["env"]
        assert (environment["REDLOCK_NAME"], environment["REDLOCK_TTL"]) == ("job", "10")
        assert environment["OTHER"] == "kept"
        fences.append(int(environment["REDLOCK_FENCE"]))
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


def test_it_leads_a_process_group_and_gets_no_descriptor_of_ours(runs: Runs) -> None:
    """The three standard ones, whose input is its own, and whatever else the caller left open for it."""
    seen = shown(runs)
    assert (seen["group"], len(seen["fds"])) == (True, 4)
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as stdin:
        inherited = shown(runs, pass_fds=(read_end,))["fds"]
        assert (read_end in inherited, len(inherited)) == (True, 5)
        os.write(write_end, b"a line\n")
        os.close(write_end)
        assert runs.finish("job", "--", "cat", stdin=stdin) == (0, "a line\n", "")


@pytest.mark.parametrize("closed", ["0<&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_descriptors_stay_closed(closed: str, runs: Runs) -> None:
    """No pipe or socket of ours gets their numbers, and the command finds closed what was closed."""
    note = runs.directory / "note"
    listing = f"for i in 0 1 2; do [ -e /proc/$$/fd/$i ] && echo $i >>{note}; done; exit 3"
    code, _, err = runs.finish(
        "job", "--", "sh", "-c", listing, via=["sh", "-c", f'exec "$@" {closed}', "sh"]
    )
    assert (code, err) == (3, "")
    left_open = [i for i in "012" if f"{i}{'<' if i == '0' else '>'}&-" not in closed]
    assert note.read_text().split() == left_open if left_open else not note.exists()
    assert runs.holders("redlock:job") == 0


def test_nothing_of_ours_is_behind_a_closed_descriptor(runs: Runs) -> None:
    """A message or a question to a closed descriptor must not end in a socket of the run or its guard."""
    look = (
        "guard=$PPID; run=$(cut -d' ' -f4 /proc/$guard/stat); "
        "for pid in $guard $run; do for i in 0 2; do readlink /proc/$pid/fd/$i; done; done"
    )
    _, out, _ = runs.finish("job", "--", "sh", "-c", look, via=["sh", "-c", 'exec "$@" 0<&- 2>&-', "sh"])
    assert out.split() == ["/dev/null"] * 4


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


@pytest.mark.parametrize("ttl", [0.2, 1, 10, 60, 86400])
@pytest.mark.parametrize("share", [0, 0.25, 0.499])
def test_there_is_time_to_extend_before_sigterm(ttl: float, share: float) -> None:
    """Whatever is asked: a third of the undisturbed time passes before each extension."""
    plan = Plan(name="job", command=("x",), ttl=ttl, kill_after=share * ttl, patience=None, taken_code=1)
    undisturbed = 0.99 * ttl - plan.kill_after - plan.margin
    assert undisturbed > 0.4 * ttl
    assert plan.extension.every * ttl == pytest.approx(undisturbed / 3)
    assert plan.extension.max_extensions is None
    assert plan.extension.grace * ttl <= plan.kill_after + plan.margin + 1e-9


def test_a_long_command_keeps_its_lock(runs: Runs) -> None:
    """It is extended for as long as the command runs, here over two ttls, with the longest kill time."""
    run = runs.start("--ttl", "1", "--kill-after", "0.499", "job", "--", *runs.stamper("stamps", 2.3))
    assert run.wait() == 0
    assert runs.words("stamps") == ["start", "stop"]
    assert run.err == ""
    assert ask(runs.nodes.urls[0], "EXISTS", "redlock:job") == 0
