"""``aioredlock-ng run`` on a terminal: its command can ask, Ctrl-C is the command's, Ctrl-Z does no harm."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from aioredlock_ng.sync import SyncLockManager
from tests.cli.runs import RUN, Runs
from tests.cli.shown import Shown, showing
from tests.servers import ask, until

LEADER = (
    "import fcntl, os, sys, termios; "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""A program that takes its standard input for its controlling terminal and becomes another one."""


READY = "import os, signal as s, time; s.signal(s.SIGINT, s.SIG_DFL); os.write(2, b'ready'); time.sleep(60)"
SLEEPER = (sys.executable, "-I", "-S", "-c", READY)
"""A command that dies of Ctrl-C from the moment it is ready; a shell that is about to fork forgets it."""


Terminal = Callable[[str], Shown]


@pytest.fixture
def terminal(runs: Runs) -> Iterator[Terminal]:
    """Return a function that runs a script for sh on a terminal, at whose keyboard we are."""
    with contextlib.ExitStack() as stack:

        def start(script: str) -> Shown:
            command = [sys.executable, "-I", "-S", "-c", LEADER, "sh", "-c", script]
            return stack.enter_context(showing(command, runs.environment, rows=24, cwd=runs.directory))

        yield start


def line(*command: str) -> str:
    """Return a run of a command as a line for sh."""
    return shlex.join([*RUN, "job", "--", *command])


ASK = line("sh", "-c", 'echo question; read x; echo "answer $x"; exit 3')
ASK_TERMINAL = line("sh", "-c", 'echo question; read x </dev/tty; echo "answer $x $(cat)"')
PAGER = shlex.join(["sh", "-c", 'read text; echo question; read x </dev/tty; echo "answer $x after $text"'])


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        pytest.param(f'{ASK}; echo "code $?"', ("answer one", "code 3"), id="by itself"),
        pytest.param(f"echo fed | {ASK_TERMINAL}", ("answer one fed",), id="fed from a pipe, like a pager"),
        pytest.param(f"{line('yes', 'page')} | {PAGER}", ("answer one after page",), id="a pager behind it"),
    ],
)
def test_the_command_can_ask_and_the_shell_can_ask_again(
    script: str, shown: tuple[str, ...], terminal: Terminal
) -> None:
    """It reads from the terminal, which afterwards is the caller's as before."""
    shell = terminal(f'{script}; read y; echo "again $y"')
    shell.read_until("question")
    shell.type("one\n")
    for words in shown:
        shell.read_until(words)
    shell.type("two\n")
    shell.read_until("again two")
    assert shell.finish() == 0
    assert "aioredlock-ng run:" not in shell.output


def test_it_says_for_what_it_waits(terminal: Terminal, runs: Runs) -> None:
    """A person reads it on a terminal; in a script's log two lines for each run would be noise."""
    with SyncLockManager(runs.nodes.urls, holder="another") as manager, manager.lock("job"):
        shell = terminal(line("true"))
        shell.read_until("aioredlock-ng run: still waiting for lock 'job' after 2.")
        shell.read_until("is held by another")
    assert shell.finish() == 0


PIPED = '"$@" | sleep 60'


@pytest.mark.parametrize(
    ("script", "shown", "code"),
    [
        (f'trap "echo trapped" INT; {line("sh", "-c", PIPED, "sh", *SLEEPER)}; echo "code $?"',
         {"trapped": True, "code 130": True}, (0,)),
        (f"for i in 1 2; do {line(*SLEEPER)}; echo next; done; echo after",
         {"next": False, "after": False}, (-signal.SIGINT, 128 + signal.SIGINT)),
    ],
    ids=["that goes on", "that does not care"],
)  # fmt: skip
def test_ctrl_c_ends_an_ordinary_command(
    script: str, shown: dict[str, bool], code: tuple[int, ...], terminal: Terminal
) -> None:
    """One that does not care is ended with all of its group, and with the script around it."""
    shell = terminal(script)
    shell.read_until("ready")
    shell.type("\x03")
    assert shell.finish() in code
    assert {words: words in shell.output for words in shown} == shown
    assert (shell.output.count("ready"), "aioredlock-ng run:" in shell.output) == (1, False)


def test_ctrl_c_ends_the_waiting(terminal: Terminal, runs: Runs) -> None:
    """Only the run itself has the terminal then."""
    for url in runs.nodes.urls:
        ask(url, "SET", "redlock:job", "another")
    shell = terminal(f'trap : INT; {line("echo", "started")}; echo "code $?"')
    shell.read_until("key without expiry")  # it has asked, and waits
    shell.type("\x03")
    shell.read_until("code 130")
    assert shell.finish() == 0
    assert "started" not in shell.output
    assert "Traceback" not in shell.output


@pytest.mark.parametrize(("keys", "more"), [("\x03", ""), ("\x1a", ""), ("\x1a", " </dev/null")], ids=ascii)
def test_what_is_typed_at_a_command_that_goes_on(
    keys: str, more: str, terminal: Terminal, runs: Runs
) -> None:
    """Ctrl-C is the command's own: it gets one SIGINT, from the terminal itself, and may do what it likes.

    Ctrl-Z does not stop it: nothing could wake it, and its lock would run out, so it goes on at once, with a
    message.  Nor does it stop the run when that still has the terminal, because the command reads something
    else.
    """
    stops = keys == "\x1a"
    trap = "trap : TSTP; " if stops else ""
    shell = terminal(f'{trap}{line(*runs.stamper("stamps"))}{more}; echo "code $?"')
    until(lambda: runs.words("stamps"), "the command runs")
    shell.type(keys)
    if stops:
        shell.read_until("not suspended")
    else:
        until(lambda: "SIGINT" in runs.words("stamps"), "the command gets SIGINT")
    os.kill(runs.stamps("stamps")[0].pid, signal.SIGTERM)
    shell.read_until("code 7")
    assert shell.finish() == 0
    assert stops or runs.words("stamps") == ["start", "SIGINT", "SIGTERM"]


def test_it_may_speak_while_the_terminal_is_the_commands(terminal: Terminal) -> None:
    """Also where a terminal stops background processes that write to it (``stty tostop``)."""
    shell = terminal(f'stty tostop; {line("sh", "-c", "sleep 60 & exit 3")}; echo "code $?"')
    shell.read_until("left processes behind")
    shell.read_until("code 3")
    assert shell.finish() == 0


def test_a_background_command_waits_for_the_foreground(terminal: Terminal) -> None:
    """Started with ``&`` it may not read; a line says how it can, and it does after ``fg``."""
    ask = line("sh", "-c", 'read x; echo "answer $x"; exit 3')
    shell = terminal(
        f'set -m; {ask} 2>err & until grep -q "waits for the terminal" err 2>/dev/null; do sleep 0.02; done; '
        'echo "now"; fg; echo "code $?"'
    )
    shell.read_until("now")
    shell.type("one\n")
    shell.read_until("answer one")
    shell.read_until("code 3")
    assert shell.finish() == 0
