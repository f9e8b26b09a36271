"""States in which a server runs and grants nothing, how to bring it there, and how to bring it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers import eventually

USER: Final = "locks"
PASSWORD: Final = "pa55-of-the-locks"
OTHER_PASSWORD: Final = "0ther-pa55"


class Server:
    """A server, seen by its operator: over a connection that was there before anything happened."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = redis.Redis.from_url(url, single_connection_client=True, retry=Retry(NoBackoff(), 0))
        self._blocked: asyncio.Task[Any] | None = None
        self("ACL SETUSER", USER, "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")

    def __call__(self, *words: str | float) -> Any:
        """Send a command and return the reply."""
        return self._client.execute_command(*words)

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def disconnect_others(self) -> None:
        """End all connections but our own."""
        for kind in ("normal", "pubsub"):  # waiters for a lock listen to its releases
            self("CLIENT KILL", "TYPE", kind, "SKIPME", "yes")

    @property
    def connections(self) -> int:
        """The number of connections it has had, those included for which there was no room."""
        info = self("INFO", "stats")
        return int(info["total_connections_received"] + info["rejected_connections"])

    def block(self, *words: str) -> None:
        """Send a command that takes long, over a connection of its own."""

        def run() -> None:
            with redis.Redis.from_url(self.url, socket_timeout=None, retry=Retry(NoBackoff(), 0)) as client:
                try:
                    client.execute_command(*words)
                except redis.ResponseError as error:
                    assert "killed" in str(error)  # noqa: PT017 (what else it may say is a failure)

        self._blocked = asyncio.create_task(asyncio.to_thread(run))

    async def unblocked(self) -> None:
        """Wait until that command is done, if there was one."""
        if self._blocked is not None:
            await self._blocked

    def says(self, word: str, *words: str) -> bool:
        """Return whether it refuses a command with this word."""
        try:
            self(*words)
        except redis.ResponseError as error:
            return word in f"{type(error).__name__} {error}".upper()
        return False


Act = Callable[[Server], object]


def says(*words: str | float) -> Act:
    """Return what sends a server one command."""
    return lambda server: server(*words)


@dataclass(frozen=True)
class State:
    """One such state."""

    name: str
    enter: Act
    leave: Act
    reason: str  # in the votes: a pattern
    check: str  # what a diagnosis calls it
    _: KW_ONLY
    entered: Callable[[Server], bool] = lambda _: True
    logs_in: bool = True  # whether the URLs name the user and its password
    extends: bool = False  # whether a lease that is there is extended and released all the same

    async def comes_over(self, server: Server) -> None:
        """Bring a server into this state."""
        self.enter(server)
        await eventually(lambda: self.entered(server), what=self.name)

    async def leaves(self, server: Server) -> None:
        """Bring it back."""
        self.leave(server)
        await server.unblocked()

    def __repr__(self) -> str:
        return self.name


def _load(server: Server) -> None:
    server("CONFIG SET", "loading-process-events-interval-bytes", 1024)
    server("DEBUG", "POPULATE", 4000, "key", 100)
    server("CONFIG SET", "key-load-delay", 4000)  # microseconds per key
    server.block("DEBUG", "RELOAD")


def _be_busy(server: Server) -> None:
    server("CONFIG SET", "lua-time-limit", 20)  # milliseconds
    server.block("EVAL", "while true do end", "0")


def _then_alone(*words: str | float) -> Act:
    def enter(server: Server) -> None:
        server(*words)
        server.disconnect_others()

    return enter


_FULL: Final = "CONFIG SET", "maxclients"
_PASSWORD: Final = "CONFIG SET", "requirepass"
_USER: Final = "ACL SETUSER", USER


def _is_loading(server: Server) -> bool:
    return bool(server("INFO", "persistence")["loading"] == 1)


def _is_busy(server: Server) -> bool:
    return server.says("BUSY", "PING")


_END_OF_LOAD: Final = says("CONFIG SET", "key-load-delay", 0)
_OTHER: Final = _then_alone(*_USER, "resetpass", f">{OTHER_PASSWORD}")
_NO_SCRIPTS: Final = says(*_USER, "-evalsha", "-eval")
_SCRIPTS: Final = says(*_USER, "+evalsha", "+eval")
_ROOM: Final = says("CONFIG SET", "maxmemory", 0)
_MASTER: Final = says("REPLICAOF", "NO", "ONE")

STATES: Final = (
    State("OOM", says("CONFIG SET", "maxmemory", 1), _ROOM, "OOM", "writes", extends=True),
    State("READONLY", says("REPLICAOF", "127.0.0.1", 1), _MASTER, "slave", "role"),
    State("LOADING", _load, _END_OF_LOAD, "(?i)loading", "writes", entered=_is_loading),
    State("BUSY", _be_busy, says("SCRIPT KILL"), "(?i)busy", "writes", entered=_is_busy),
    State("WRONGPASS", _OTHER, says(*_USER, "resetpass", f">{PASSWORD}"), "username-password", "reachable"),
    State(
        "NOAUTH", _then_alone(*_PASSWORD, OTHER_PASSWORD), says(*_PASSWORD, ""), "(?i)authentication",
        "reachable", logs_in=False,
    ),
    State("NOPERM", _NO_SCRIPTS, _SCRIPTS, "no permissions", "rights"),
    State("maxclients", _then_alone(*_FULL, 1), says(*_FULL, 1000), "max number of clients", "clients"),
)  # fmt: skip
