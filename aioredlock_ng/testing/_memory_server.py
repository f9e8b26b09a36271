"""The server of a `MemoryNode`: commands, scripts and RESP over its data, without any connection."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Protocol, final

from .. import _scripts
from ._memory_data import CommandError, MemoryData, NodeClock
from ._memory_scripts import SCRIPTS


class Client(Protocol):
    """Somebody who is connected, and can be told what nobody has asked for."""

    def push(self, data: bytes) -> None:
        """Send this, in order with the replies."""


@final
class _Push(tuple[Any, ...]):
    """What RESP3 tells beside the replies."""

    __slots__ = ()


@final
class MemoryServer(MemoryData):
    """The process behind a `MemoryNode` and its data.  Scripts use its methods as Lua uses `redis.call`.

    Args:
        clients: tells how many are connected.
        clock: its wall clock.
        new_identity: draws a name for each process.
    """

    def __init__(
        self, clients: Callable[[], int], *, clock: NodeClock, new_identity: Callable[[], str]
    ) -> None:
        super().__init__(clock)
        self._clients = clients
        self._new_identity = new_identity
        self._scripts: set[bytes] = set()
        self._channels: dict[bytes, dict[Client, None]] = {}
        """Who listens to a channel: first come, first told."""
        self._listening: dict[Client, dict[bytes, None]] = {}
        """To what a client listens."""
        self.new_process()

    # -- the process ---------------------------------------------------------------------------

    def new_process(self) -> None:
        """Have another identity and no script: what a restart does to everything but the data."""
        self.run_id = self._new_identity()
        self.replid = self._new_identity()
        self._scripts.clear()

    def load(self, script: bytes) -> bytes:
        """Do ``SCRIPT LOAD``, of a script that this package has; return the digest."""
        digest = next(known.digest for known in _scripts.ALL if known.source == script)
        self._scripts.add(digest)
        return digest

    def load_all(self) -> None:
        """Load all scripts of this package, as the handshake does."""
        self._scripts.update(script.digest for script in _scripts.ALL)

    def flush_scripts(self) -> None:
        """Do ``SCRIPT FLUSH``."""
        self._scripts.clear()

    def info(self) -> bytes:
        """Return all that ``INFO`` tells."""
        facts = {"redis_version": "7.0.0", "run_id": self.run_id, "role": "master", "connected_slaves": "0"}
        facts |= {"master_replid": self.replid}
        facts |= {"maxmemory": "0", "maxmemory_policy": "noeviction", "aof_enabled": "0"}
        facts |= {"connected_clients": str(self._clients()), "maxclients": "10000"}
        return "".join(f"{name}:{value}\r\n" for name, value in facts.items()).encode()

    # -- commands ------------------------------------------------------------------------------

    def execute(self, words: list[bytes], client: Client | None = None) -> bytes:
        """Execute one command of a client and return the reply: as RESP2, but for what only RESP3 has."""
        verb, *args = words
        if client is not None and verb in _LISTENING:
            return b"".join(_encode(_LISTENING[verb](self, client, channel)) for channel in args)
        command = _COMMANDS.get(verb)
        if command is None:
            return f"-ERR unknown command '{verb.decode()}'\r\n".encode()
        try:
            with self.clock.one_moment():
                return _encode(command(self, args))
        except CommandError as error:
            return f"-{error}\r\n".encode()

    def run_script(self, digest: bytes, count: bytes, *args: bytes) -> Any:
        """Run a loaded script; the first `count` of `args` are its keys, the last one is its tag (R15)."""
        if digest not in self._scripts:
            raise CommandError("NOSCRIPT No matching script. Please use EVAL.")
        keys = int(count)
        *argv, tag = args[keys:]
        answer = SCRIPTS[digest](self, list(args[:keys]), argv)
        return [tag, *answer] if isinstance(answer, list) else [tag, answer]

    def matching(self, pattern: bytes) -> list[bytes]:
        """Return the keys that are there and match a pattern."""
        matches = re.compile(_regex_of(pattern), re.DOTALL).fullmatch
        return [key for key in self.live_keys() if matches(key)]

    # -- channels ------------------------------------------------------------------------------

    def publish(self, channel: bytes, message: bytes) -> int:
        """Tell all who listen to a channel; return how many they are.

        Who publishes and listens is told before the reply, as by Redis 7.0; later ones tell it behind it.
        """
        clients = self._channels.get(channel, {})
        for client in clients:
            client.push(_encode(_Push((b"message", channel, message))))
        return len(clients)

    def subscribe(self, client: Client, channel: bytes) -> _Push:
        """Have a client told what is published on a channel; return what confirms that."""
        self._channels.setdefault(channel, {})[client] = None
        listening = self._listening.setdefault(client, {})
        listening[channel] = None
        return _Push((b"subscribe", channel, len(listening)))

    def unsubscribe(self, client: Client, channel: bytes) -> _Push:
        """Take that back, if it was so."""
        listening = self._listening.get(client, {})
        if channel in listening:
            del listening[channel], self._channels[channel][client]
            if not self._channels[channel]:
                del self._channels[channel]
        return _Push((b"unsubscribe", channel, len(listening)))

    def hang_up(self, client: Client) -> None:
        """Forget a client whose connection has ended."""
        for channel in list(self._listening.get(client, ())):
            self.unsubscribe(client, channel)
        self._listening.pop(client, None)

    def listening(self, channel: bytes) -> int:
        """Return how many listen to a channel."""
        return len(self._channels.get(channel, ()))

    def listeners(self, channels: list[bytes]) -> list[bytes | int]:
        """Do ``PUBSUB NUMSUB``."""
        counts = [(channel, self.listening(channel)) for channel in channels]
        return [part for pair in counts for part in pair]


def _encode(reply: Any) -> bytes:
    """Encode a reply: str is a status, bytes a bulk string."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, str):
        return b"+%b\r\n" % reply.encode()
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    kind = b">" if isinstance(reply, _Push) else b"*"
    return b"%b%d\r\n" % (kind, len(reply)) + b"".join(map(_encode, reply))


def _set(server: MemoryServer, args: list[bytes]) -> str | None:
    key, value, *options = args
    if b"NX" in options and server.exists(key):
        return None
    server.set(key, value, int(options[options.index(b"PX") + 1]) if b"PX" in options else None)
    return "OK"


def _scan(server: MemoryServer, args: list[bytes]) -> list[Any]:
    """Return all keys at once: a server may find more than the COUNT that it is asked for."""
    pattern = args[args.index(b"MATCH") + 1] if b"MATCH" in args else b"*"
    return [b"0", server.matching(pattern)]


def _regex_of(pattern: bytes) -> bytes:
    """Translate a glob-style pattern; sets in brackets are not understood here."""
    parts = re.findall(rb"\\.|.", pattern, re.DOTALL)
    wild = {b"*": b".*", b"?": b"."}
    return b"".join(wild.get(part) or re.escape(part[-1:]) for part in parts)


_COMMANDS: Final[dict[bytes, Callable[[MemoryServer, list[bytes]], Any]]] = {
    b"SET": _set,
    b"GET": lambda server, args: server.get(args[0]),
    b"DEL": lambda server, args: sum(map(server.delete, args)),
    b"PTTL": lambda server, args: server.pttl(args[0]),
    b"SCAN": _scan,
    b"TIME": lambda server, _: [b"%d" % part for part in divmod(server.time_us(), 1_000_000)],
    b"INFO": lambda server, _: server.info(),
    b"PUBLISH": lambda server, args: server.publish(*args),
    b"PUBSUB": lambda server, args: server.listeners(args[1:]),  # only PUBSUB NUMSUB
    b"PING": lambda _, args: args[0] if args else "PONG",
    b"EVALSHA": lambda server, args: server.run_script(*args),
    b"EVAL": lambda server, args: server.run_script(server.load(args[0]), *args[1:]),
    b"SCRIPT": lambda server, args: server.load(args[1]),  # only SCRIPT LOAD
}

_LISTENING: Final = {b"SUBSCRIBE": MemoryServer.subscribe, b"UNSUBSCRIBE": MemoryServer.unsubscribe}
"""The commands that concern the client's own connection; every channel is confirmed by a push."""
