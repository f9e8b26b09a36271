"""A process that has imported all but the project, and forks for each run of pytest: see `check`.

Starting Python, pytest and what the package is built on takes longer than most tests that notice a mutation.
Here it is done once.  Nothing of the project is imported before the fork, so that each run has the code that
stands there by then, and leaves nothing to the next.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

UNUSED: Final = tuple(f"-pno:{plugin}" for plugin in ("cacheprovider", "hypothesispytest", "anyio", "valkey"))
"""Options without which plugins are imported that take as long as all the rest."""

LIBRARIES: Final = ("anyio._backends._asyncio", "hiredis", "hypothesis.stateful", "redis.asyncio")

_PAUSE: Final = 0.005
"""Seconds between two looks whether a run has ended."""


def main() -> None:
    """Run pytest for each line of stdin: its arguments, a file for its output, and a time limit in seconds.

    Each is answered with a line: the exit status, or null for a run that had to be ended.
    """
    _warm_up()
    for line in sys.stdin:
        print(json.dumps(_run(**json.loads(line))), flush=True)


def _warm_up() -> None:
    """Import pytest with its plugins, which it does when asked for its markers, and what else is needed."""
    options = ("--noconftest", "-pno:aioredlock_ng", "-oasyncio_default_fixture_loop_scope=function")
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        status = pytest.main(["--markers", "-c", os.devnull, *options, *UNUSED])
    assert status == 0, status
    for library in LIBRARIES:
        importlib.import_module(library)
    assert not (ours := _project()), f"imported too early: {ours}"
    assert threading.active_count() == 1, "a fork would lose the other threads"
    gc.collect()
    gc.freeze()  # so that collections do not copy the pages that are shared


def _project() -> list[str]:
    """Return the modules of the project that have been imported, but for this one."""
    root = Path(__file__).resolve().parents[2]
    return [
        name
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "aioredlock_ng"
        or (name != "__main__" and Path(getattr(module, "__file__", None) or "/").is_relative_to(root))
    ]


def _run(arguments: Sequence[str], output: str, limit: float) -> int | None:
    """Run pytest in a fork; return its exit status, or None if it had to be ended."""
    if (child := os.fork()) != 0:
        return _status(child, limit)
    nothing = os.open(os.devnull, os.O_RDONLY)
    told = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor, own in ((0, nothing), (1, told), (2, told)):
        os.dup2(own, descriptor)
    importlib.invalidate_caches()
    raise SystemExit(pytest.main([*UNUSED, *arguments]))


def _status(child: int, limit: float) -> int | None:
    """Wait for a fork, and end it if it takes too long."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_PAUSE)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    main()
