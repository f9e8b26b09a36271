"""The example for cron: started on many hosts at once, the job is done once."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

from tests.cli.runs import PATIENCE
from tests.environments.interpreters import ROOT
from tests.servers import Nodes, without_quarantine_set

EXAMPLE = ROOT / "examples" / "cron_singleton.py"
HOSTS = 5


def outcomes(commands: list[list[str]], nodes: Nodes) -> list[tuple[int, str, str]]:
    """Start commands at once; return exit codes and outputs, sorted."""
    ours = {"REDLOCK_URLS": ",".join(nodes.urls), "PYTHONPATH": str(ROOT)}
    environment = without_quarantine_set() | ours
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
        for command in commands
    ]
    outputs = [process.communicate(timeout=PATIENCE) for process in processes]
    return sorted((process.returncode, *output) for process, output in zip(processes, outputs, strict=True))


def test_the_program_does_the_job_once(shared_nodes: Nodes) -> None:
    """Five at once: one prints its report, and four end without a word and without an error."""
    command = [sys.executable, "-W", "error", str(EXAMPLE)]
    *others, doer = outcomes([command] * HOSTS, shared_nodes)
    assert others == [(0, "", "")] * (HOSTS - 1)
    assert (doer[0], doer[2]) == (0, "")
    assert re.fullmatch(r"the nightly report, by \S+:\d+\n", doer[1])


def test_its_crontab_line_does_the_job_once(shared_nodes: Nodes) -> None:
    """The line in its docstring, with a command that is there."""
    (words,) = re.findall(r"0 3 \* \* \*  aioredlock-ng (run .*)", EXAMPLE.read_text())
    arguments = shlex.split(words.replace("/usr/local/bin/nightly", "echo the nightly report"))
    command = [sys.executable, "-m", "aioredlock_ng", *arguments]
    *others, doer = outcomes([command] * HOSTS, shared_nodes)
    assert others == [(0, "", "")] * (HOSTS - 1)
    assert doer == (0, "the nightly report\n", "")
