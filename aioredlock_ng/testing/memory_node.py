"""A master in a dict: speaks RESP, in memory, with the same answers as a real server.

The connection, the pipe, the reconnecting and the ledger in front of it are the shipping code; only
the socket and the server behind it are not there.  What it answers is verified against real servers
by the conformance tests.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

from .. import _scripts
from .._node import Node
from .._node.connection import Identity
from .._node.link import Link
from .._node.pipe import Entry
from .._node.redis_node import RedisNode
from ._memory_connection import MemoryConnection
from .sim_loop import EPOCH

Latency: TypeAlias = float | Callable[[], float]
"""Seconds from one end of a connection to the other, or what draws them for each message."""

INSPECTED_BYTES: Final = 1024
"""How much of a value `inspect.lua` returns."""

EXECUTED_KEPT: Final = 1_000_000
"""Commands that a master remembers having executed; when there are more, the older half is forgotten."""

_numbers = itertools.count(1)


class _CommandError(Exception):
    """An error reply."""


_WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"


@final
class MemoryNode:
    """One master; give it to any number of managers of one event loop.

    Args:
        name: for messages; default ``memory-1`` and so on.
        latency: one-way, in seconds.
    """

    def __init__(self, name: str | None = None, *, latency: Latency = 0.0) -> None:
        number = next(_numbers)
        self.name = f"memory-{number}" if name is None else name
        self.latency = latency
        self.executed: list[tuple[bytes, ...]] = []
        """The commands executed, but for heartbeats, in order: the last `EXECUTED_KEPT` at most."""
        self._run_id = f"{number:040x}"
        self._data: dict[bytes, tuple[bytes | None, float | None]] = {}  # value (None: a list), expiry
        self._scripts: set[bytes] = set()
        self._connections: list[MemoryConnection] = []
        self._frozen = False
        self._running = True

    def __repr__(self) -> str:
        state = "frozen" if self._frozen else "running" if self._running else "down"
        return f"<MemoryNode {self.name} {state}, {len(self._data)} keys>"

    def link(self) -> Node:
        """Return one manager's node over this master; a manager calls it itself."""
        return RedisNode(_MemoryEndpoint(self))

    # -- what tests do to it -------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop answering, like a process that got SIGSTOP: what arrives waits."""
        self._frozen = True

    def thaw(self) -> None:
        """Go on, and execute what has arrived meanwhile."""
        self._frozen = False
        for connection in list(self._connections):
            connection.work()

    def crash(self) -> None:
        """Die: connections are reset and nobody answers until `restart`.  The data is gone."""
        self._running = False
        self._data.clear()
        self._scripts.clear()
        self.disconnect()

    def restart(self) -> None:
        """Come back, empty, as a new process."""
        if self._running:
            self.crash()
        self._running, self._frozen = True, False
        self._run_id = f"{next(_numbers):040x}"

    def disconnect(self) -> None:
        """Reset every connection; the server itself goes on."""
        for connection in list(self._connections):
            connection.reset()

    def flush_scripts(self) -> None:
        """Forget all scripts, as ``SCRIPT FLUSH`` does."""
        self._scripts.clear()

    def get(self, key: bytes) -> bytes | None:
        """Return the value under `key`, if any."""
        self._expire(key)
        entry = self._data.get(key)
        if entry is None:
            return None
        if entry[0] is None:
            raise _CommandError(_WRONG_TYPE)
        return entry[0]

    def ttl(self, key: bytes) -> float | None:
        """Return the seconds `key` has left; None when it is not there or has no expiry."""
        left = self._pttl(key)
        return None if left < 0 else left / 1000

    def set(self, key: bytes, value: bytes | None, ttl: float | None = None) -> None:
        """Put `value` under `key` for `ttl` seconds; None stands for a value of the wrong type."""
        self._data[key] = (value, None if ttl is None else self._now() + ttl)

    def delete(self, key: bytes) -> bool:
        """Delete `key`; False when it was not there."""
        self._expire(key)
        return self._data.pop(key, None) is not None

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys that are there, sorted."""
        for key in list(self._data):
            self._expire(key)
        return tuple(sorted(self._data))

    # -- the server ----------------------------------------------------------------------------

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _expire(self, key: bytes) -> None:
        entry = self._data.get(key)
        if entry is not None and entry[1] is not None and entry[1] <= self._now():
            del self._data[key]

    def _pttl(self, key: bytes) -> int:
        self._expire(key)
        entry = self._data.get(key)
        if entry is None:
            return -2
        return -1 if entry[1] is None else round((entry[1] - self._now()) * 1000)

    def execute(self, words: list[bytes]) -> bytes:
        """Execute one command and return the reply as RESP2 bytes."""
        verb, *rest = words
        if verb != b"PING":
            self.executed.append(tuple(words))
            if len(self.executed) > EXECUTED_KEPT:
                del self.executed[: EXECUTED_KEPT // 2]
        try:
            return _encode(_COMMANDS[verb](self, rest))
        except KeyError:
            return f"-ERR unknown command '{verb.decode()}'\r\n".encode()
        except _CommandError as error:
            return f"-{error}\r\n".encode()

    def _set(self, args: list[bytes]) -> Any:
        key, value, *options = args
        self._expire(key)
        if b"NX" in options and key in self._data:
            return None
        ttl = int(options[options.index(b"PX") + 1]) / 1000 if b"PX" in options else None
        self.set(key, value, ttl)
        return "OK"

    def _evalsha(self, args: list[bytes]) -> Any:
        digest, count, *rest = args
        if digest not in self._scripts:
            raise _CommandError("NOSCRIPT No matching script. Please use EVAL.")
        keys, argv = rest[: int(count)], rest[int(count) :]
        return _SCRIPTS[digest](self, keys, argv)

    def _eval(self, args: list[bytes]) -> Any:
        return self._evalsha([self._load(args[0]), *args[1:]])

    def _load(self, source: bytes) -> bytes:
        digest = next(script.digest for script in _scripts.ALL if script.source == source)
        self._scripts.add(digest)
        return digest

    def _wait(self, keys: list[bytes]) -> int:
        """Return how long the keys that are there will stay: as `release.lua` and `acquire.lua` say it."""
        lefts = [left for left in map(self._pttl, keys) if left != -2]  # noqa: PLR2004 (not there)
        return -1 if -1 in lefts else max((max(left, 1) for left in lefts), default=0)

    def _acquire(self, keys: list[bytes], argv: list[bytes]) -> int:
        wait = self._wait(keys)
        if wait == 0:
            for key in keys:
                self.set(key, argv[0], int(argv[1]) / 1000)
        return wait

    def _extend(self, keys: list[bytes], argv: list[bytes]) -> int:
        missing = False
        for key in keys:
            holder = self.get(key)
            if holder is not None and holder != argv[0]:
                return -1
            missing = missing or holder is None
        if missing:
            return 0
        for key in keys:
            if self._pttl(key) < int(argv[1]):
                self.set(key, argv[0], int(argv[1]) / 1000)
        return 1

    def _top_up(self, keys: list[bytes], argv: list[bytes]) -> int:
        if any(self.get(key) not in (None, argv[0]) for key in keys):
            return -1
        for key in keys:
            if self._pttl(key) < int(argv[1]):
                self.set(key, argv[0], int(argv[1]) / 1000)
        return 0

    def _release(self, keys: list[bytes], argv: list[bytes]) -> list[int]:
        deleted, others, failure = 0, [], None
        for key in keys:
            try:
                if self.get(key) == argv[0]:
                    deleted += self.delete(key)
                else:
                    others.append(key)
            except _CommandError as error:
                failure = error
        if failure is not None:
            raise failure
        return [deleted, self._wait(others)]

    def _inspect(self, keys: list[bytes], argv: list[bytes]) -> list[Any]:
        value = self.get(keys[0])
        return [None if value is None else value[:INSPECTED_BYTES], self._pttl(keys[0])]

    def _scan(self, args: list[bytes]) -> list[Any]:
        """Return all keys at once: a server may find more than the COUNT that it is asked for."""
        pattern = args[args.index(b"MATCH") + 1] if b"MATCH" in args else b"*"
        matches = re.compile(_regex_of(pattern), re.DOTALL).fullmatch
        return [b"0", [key for key in self.keys if matches(key)]]

    def _time(self) -> list[bytes]:
        microseconds = round((EPOCH + self._now()) * 1_000_000)
        return [b"%d" % part for part in divmod(microseconds, 1_000_000)]

    def _info(self) -> bytes:
        facts = {"redis_version": "7.0.0", "run_id": self._run_id, "role": "master", "connected_slaves": "0"}
        facts |= {"maxmemory": "0", "maxmemory_policy": "noeviction", "aof_enabled": "0"}
        facts |= {"connected_clients": str(len(self._connections)), "maxclients": "10000"}
        return "".join(f"{name}:{value}\r\n" for name, value in facts.items()).encode()

    # -- connections ---------------------------------------------------------------------------

    def delay(self) -> float:
        """Return the seconds that the next message takes."""
        return self.latency() if callable(self.latency) else self.latency

    @property
    def answers(self) -> bool:
        """Whether the server executes what arrives."""
        return self._running and not self._frozen

    async def open(self, on_failure: Callable[[Entry, str], None]) -> tuple[Link, Identity]:
        """Accept a connection, once the handshake is answered."""
        while True:
            if not self._running:
                raise ConnectionRefusedError(f"{self.name} refused the connection")
            await asyncio.sleep(2 * self.delay())
            if self.answers:
                break
            await asyncio.sleep(_FROZEN_LOOK)
        self._scripts.update(script.digest for script in _scripts.ALL)
        connection = MemoryConnection(self)
        self._connections.append(connection)
        link = Link(connection, on_failure)
        connection.set_protocol(link)
        return link, Identity(self._run_id, "master")

    def forget(self, connection: MemoryConnection) -> None:
        """Drop a connection that has ended."""
        if connection in self._connections:
            self._connections.remove(connection)


_FROZEN_LOOK: Final = 0.01
"""Seconds between a client's looks whether a frozen server has answered its handshake."""

_COMMANDS: Final[dict[bytes, Callable[[MemoryNode, list[bytes]], Any]]] = {
    b"SET": MemoryNode._set,  # noqa: SLF001
    b"GET": lambda node, args: node.get(args[0]),
    b"DEL": lambda node, args: sum(map(node.delete, args)),
    b"PTTL": lambda node, args: node._pttl(args[0]),  # noqa: SLF001
    b"SCAN": MemoryNode._scan,  # noqa: SLF001
    b"TIME": lambda node, _: node._time(),  # noqa: SLF001
    b"INFO": lambda node, _: node._info(),  # noqa: SLF001
    b"PING": lambda _, args: args[0] if args else "PONG",
    b"EVALSHA": MemoryNode._evalsha,  # noqa: SLF001
    b"EVAL": MemoryNode._eval,  # noqa: SLF001
    b"SCRIPT": lambda node, args: node._load(args[1]),  # noqa: SLF001 (only SCRIPT LOAD)
}

_SCRIPTS: Final[dict[bytes, Callable[[MemoryNode, list[bytes], list[bytes]], Any]]] = {
    _scripts.ACQUIRE.digest: MemoryNode._acquire,  # noqa: SLF001
    _scripts.EXTEND.digest: MemoryNode._extend,  # noqa: SLF001
    _scripts.TOP_UP.digest: MemoryNode._top_up,  # noqa: SLF001
    _scripts.RELEASE.digest: MemoryNode._release,  # noqa: SLF001
    _scripts.INSPECT.digest: MemoryNode._inspect,  # noqa: SLF001
}


def _regex_of(pattern: bytes) -> bytes:
    """Translate a glob-style pattern; sets in brackets are not understood here."""
    parts = re.findall(rb"\\.|.", pattern, re.DOTALL)
    wild = {b"*": b".*", b"?": b"."}
    return b"".join(wild.get(part) or re.escape(part[-1:]) for part in parts)


def _encode(reply: Any) -> bytes:
    """Encode a reply as RESP2: str is a status, bytes a bulk string."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, str):
        return b"+%b\r\n" % reply.encode()
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    return b"*%d\r\n" % len(reply) + b"".join(map(_encode, reply))


@final
class _MemoryEndpoint:
    """See `Endpoint`."""

    def __init__(self, server: MemoryNode) -> None:
        self._server = server
        self.name = server.name
        self.address: tuple[object, ...] = (id(server),)

    async def connect(
        self, timeout: float, on_failure: Callable[[Entry, str], None]
    ) -> tuple[Link, Identity]:
        async with asyncio.timeout(timeout):
            return await self._server.open(on_failure)
