"""Secrets on the command line, in its child processes, in looks from outside, and in copies.

``tests/behaviour/test_secrets.py`` shows reprs, logs, errors, events and tracebacks.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng import LockTakenError
from aioredlock_ng.__main__ import main
from aioredlock_ng.testing import LocalNodes
from tests.cli.runs import open_runs
from tests.servers import until
from tests.unit.tasks import virtual
from tests.unit.worlds import world

USER: Final = "user-of-the-tests"
PASSWORD: Final = "pa55-of-the-tests"
LOGIN: Final = f"{USER}:{PASSWORD}"
SECRETS: Final = (PASSWORD, USER)

OWNER: Final = re.compile("[0-9a-f]{40}")


@pytest.fixture
def nodes(make_nodes: Callable[..., LocalNodes]) -> LocalNodes:
    """Give three servers that ask for a user and a password."""
    user = f"{USER} on >{PASSWORD} ~* &* +@all"
    url = f"redis://{LOGIN}@127.0.0.1:{{port}}"
    return make_nodes(3, options={"requirepass": PASSWORD, "user": user.split()}, url=url)


def leaks(*texts: str) -> list[str]:
    """Return the texts that have a secret in them."""
    return [text for text in texts if any(secret in text for secret in SECRETS) or OWNER.search(text)]


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["--nodes", "REDLOCK_URLS"])
def test_what_the_commands_print(
    nodes: LocalNodes,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While a lock is held, and with a node dead: tables, JSON and log lines name nodes by their address."""
    caplog.set_level(logging.DEBUG)
    urls = ",".join(nodes.urls)
    monkeypatch.delenv("REDLOCK_URLS", raising=False)
    if how == "REDLOCK_URLS":
        monkeypatch.setenv("REDLOCK_URLS", urls)
    where = ["--nodes", urls] if how == "--nodes" else []
    hold = f"from aioredlock_ng.__main__ import main; main({['status', '--json', *where]!r})"
    commands = [["run", "-n", *where, "held", "--", sys.executable, "-c", hold]]
    commands += [[name, *json_, *where] for name in ("status", "doctor") for json_ in ([], ["--json"])]
    commands += [["init", *where], ["status", "held", *where]]
    assert main(commands[0]) == 0
    for command in commands[1:]:
        main(command)
    nodes.kill(0)
    for command in commands[1:]:
        main(command)
    output = capsys.readouterr()
    assert output.out.count("127.0.0.1") > len(commands)
    assert not leaks(output.out, output.err, caplog.text)


@pytest.mark.heavy
def test_what_a_commands_processes_show(nodes: LocalNodes, tmp_path: Path) -> None:
    """With --nodes neither the guard nor the command sees a URL; from REDLOCK_URLS both inherit it.

    The arguments of `run` itself are for all users of the machine to read: the help says so.
    """
    look = "import json,os,sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", look]
    with open_runs(tmp_path, nodes) as runs:
        for given in (True, False):
            reader, writer = os.pipe()
            where = ["--nodes", ",".join(nodes.urls)] if given else []
            env = {"REDLOCK_URLS": ""} if given else {}
            run = runs.start("-n", *where, f"job {given}", "--", *command, env=env, stdin=reader)
            until(lambda run=run: "\n" in run.out or run.process.poll() is not None, "it says")
            environment = json.loads(run.out)
            lines = {pid: line for pid, line in runs.processes().items() if pid != run.process.pid}
            os.close(reader)
            os.close(writer)
            assert run.wait() == 0
            assert len(lines) == 2, "the guard and the command"
            assert not leaks(*lines.values(), run.err)
            fence = environment.pop("REDLOCK_FENCE")
            assert fence.isdigit()
            inherited = [name for name, value in environment.items() if leaks(value)]
            assert inherited == ([] if given else ["REDLOCK_URLS"])


@virtual
async def test_what_is_pickled_has_no_owner_value() -> None:
    """Reports of a manager can travel between processes; an object that holds a lock cannot."""
    async with world(3) as w:
        lock = w.manager.lock("held")
        lease = await lock.acquire()
        with pytest.raises(LockTakenError) as caught:
            await w.manager.lock("held", blocking=False).acquire()
        told = [
            w.manager.statistics(),
            await w.manager.inspect("held"),
            await w.manager.survey(),
            lease.votes,
        ]
        secret = lease._holding.owner[:20]
        for value in (*told, caught.value):
            assert secret not in pickle.dumps(value)
            assert secret.decode() not in "".join(traceback.format_exception(caught.value))
        for holder in (w.manager, lock, lease):
            with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
                pickle.dumps(holder)
        await lease.release()
