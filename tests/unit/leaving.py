"""What `test_leftovers` runs: a test that fails and leaves all that it can, and the next one."""

from __future__ import annotations

import multiprocessing
import subprocess
import threading
import time
from typing import Final, NamedTuple

import pytest

from aioredlock_ng.sync import SyncLease, SyncLockManager
from aioredlock_ng.testing import LocalNodes
from tests.servers import Nodes, ask, fastest_arm


class Left(NamedTuple):
    """What the first test has left."""

    urls: list[str]
    lease: SyncLease[int]
    threads: set[threading.Thread]
    nodes: LocalNodes
    processes: tuple[subprocess.Popen[bytes], multiprocessing.Process]


LEFT: Final[list[Left]] = []
PREPARED: Final[list[str]] = []


@pytest.fixture(scope="module")
def prepared() -> str:
    """Give what the tests of a module share."""
    PREPARED.append("")
    return ""


def test_that_fails(shared_nodes: Nodes, prepared: str) -> None:
    """It leaves a manager that holds a lock, servers and child processes, and the shared servers are odd."""
    before = set(threading.enumerate())
    (nodes := LocalNodes(1, server=fastest_arm())).start()
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(3600,))
    child.start()
    sleeper = subprocess.Popen(["sleep", "3600"])
    manager = SyncLockManager(shared_nodes.urls, ttl=3600, connect_timeout=30.0)
    lease = manager.lock("left").acquire()
    LEFT.append(Left(shared_nodes.urls, lease, set(threading.enumerate()) - before, nodes, (sleeper, child)))
    shared_nodes.kill(0)
    shared_nodes.pause(1)
    ask(shared_nodes.urls[2], "SET", "redlock:{meta}", "nothing that a manager reads")
    ask(shared_nodes.urls[3], "CONFIG SET", "maxclients", 1)
    ask(shared_nodes.urls[4], "CLIENT PAUSE", 3_600_000)
    pytest.fail("on purpose")


def test_that_comes_next(shared_nodes: Nodes, prepared: str) -> None:
    """It finds nothing of that, and servers of its own, on which it gets the lock at once."""
    (left,) = LEFT
    assert not left.lease.held
    assert not any(thread.is_alive() for thread in left.threads)
    assert left.nodes.pids == [None]
    sleeper, child = left.processes
    assert sleeper.poll() is not None
    assert not child.is_alive()
    assert len(PREPARED) == 2
    assert set(left.urls).isdisjoint(shared_nodes.urls)
    with SyncLockManager(shared_nodes.urls, connect_timeout=30.0) as manager, manager.lock("left") as lease:
        assert lease.held
