"""Servers that answer and refuse to write: no memory left, no replica, a bad disk, a missing right."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from aioredlock_ng import LockManager, NodeState, QuorumUnavailableError
from tests.nodes.tools import state, up
from tests.servers import ask, eventually

Refuse = Callable[[str], contextlib.AbstractContextManager[str]]


@contextlib.contextmanager
def full(url: str) -> Iterator[str]:
    """Let the server have less memory than it has taken."""
    ask(url, "CONFIG", "SET", "maxmemory", 1)
    yield "command not allowed when used memory > 'maxmemory'"
    ask(url, "CONFIG", "SET", "maxmemory", 0)


@contextlib.contextmanager
def alone(url: str) -> Iterator[str]:
    """Have it want a replica."""
    ask(url, "CONFIG", "SET", "min-replicas-to-write", 1)
    yield "NOREPLICAS Not enough good replicas to write"
    ask(url, "CONFIG", "SET", "min-replicas-to-write", 0)


@contextlib.contextmanager
def on_a_bad_disk(url: str) -> Iterator[str]:
    """Have it fail to save what it has: something else is where its file would be."""
    for option, value in {"save": "3600 1", "stop-writes-on-bgsave-error": "yes"}.items():
        ask(url, "CONFIG", "SET", option, value)
    options = ask(url, "CONFIG GET", "d*")
    file = Path(options["dir"], options["dbfilename"])
    file.mkdir()
    ask(url, "BGSAVE")
    yield "configured to save RDB snapshots"
    file.rmdir()
    ask(url, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")


@contextlib.contextmanager
def without_the_right(url: str) -> Iterator[str]:
    """Take a right from the user whose connections are there already."""
    ask(url, "ACL", "SETUSER", "default", "-set")
    yield "the user in its URL needs +set"
    ask(url, "ACL", "SETUSER", "default", "+set")


WAYS: Final[list[Refuse]] = [full, alone, on_a_bad_disk, without_the_right]


PLAIN: Final = {"fencing": False, "restart_quarantine": 0}
"""With these nothing rests on incarnation records."""


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of a node's state since the last time."""
    found = [record.getMessage() for record in caplog.records if record.getMessage().startswith("node ")]
    caplog.clear()
    return found


@pytest.mark.parametrize(
    "way",
    [WAYS[0], *(pytest.param(way, marks=pytest.mark.heavy) for way in WAYS[1:])],
    ids=lambda way: way.__name__,
)
@pytest.mark.parametrize("incarnations", [True, pytest.param(False, marks=pytest.mark.heavy)])
async def test_a_node_that_refuses_writes_is_not_up(nodes3, caplog, way, incarnations):
    """A process that asks for no lock notices, too; the log has a line for the change, and for its end."""
    caplog.set_level(logging.INFO, logger="aioredlock_ng")
    async with LockManager(nodes3.urls, **({} if incarnations else PLAIN)) as manager:
        await up(manager)
        async with manager.lock("used"):
            pass
        lines(caplog)
        with contextlib.ExitStack() as refusing:
            words = [refusing.enter_context(way(url)) for url in nodes3.urls[:2]]
            await eventually(lambda: state(manager, 0) == state(manager, 1) == NodeState.READ_ONLY)
            statistics = manager.statistics()
            assert all(node.reason.startswith("refuses writes: ") for node in statistics.nodes[:2])
            assert all(word in node.reason for word, node in zip(words, statistics.nodes, strict=False))
            assert not any(
                " script: " in node.reason or node.reason.endswith(".") for node in statistics.nodes
            )
            assert statistics.quorum_margin == -1
            assert not manager.available
            with pytest.raises(QuorumUnavailableError):
                await manager.lock("res", blocking_timeout=0.5).acquire()
            told = sorted(lines(caplog))
            assert [" is read-only: refuses writes: " in line for line in told] == [True, True]
        await up(manager)
        assert manager.available
        assert [line.endswith(" is up") for line in lines(caplog)] == [True, True]
        async with manager.lock("res"):
            pass
