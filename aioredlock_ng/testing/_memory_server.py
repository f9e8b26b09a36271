"""The server of a `MemoryNode`: commands and scripts, without any connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from .. import _scripts
from ._memory_batches import BATCHES
from ._memory_data import CommandError, Hash, NodeClock
from ._memory_election import ELECTION
from ._memory_fair import FAIR
from ._memory_process import Client, MemoryProcess
from ._memory_read_write import READ_WRITE
from ._memory_resp import encode
from ._memory_scripts import SCRIPTS
from ._memory_slots import SLOTS


@final
class MemoryServer(MemoryProcess):
    """What a `MemoryNode` connects to: a process that loads scripts and executes commands.

    Args:
        clients: tells how many are connected.
        clock: its wall clock.
        new_identity: draws a name for each process.
    """

    def __init__(
        self, clients: Callable[[], int], *, clock: NodeClock, new_identity: Callable[[], str]
    ) -> None:
        super().__init__(clock, new_identity)
        self._clients = clients
        self._scripts: set[bytes] = set()

    # -- the process ---------------------------------------------------------------------------

    def new_process(self) -> None:
        """Have another identity and no script: what a restart does to everything but the data."""
        super().new_process()
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
            return b"".join(encode(_LISTENING[verb](self, client, channel)) for channel in args)
        command = _COMMANDS.get(verb)
        if command is None:
            return f"-ERR unknown command '{verb.decode()}'\r\n".encode()
        try:
            with self.clock.one_moment():
                return encode(command(self, args))
        except CommandError as error:
            return f"-{error}\r\n".encode()

    def run_script(self, digest: bytes, count: bytes, *args: bytes) -> Any:
        """Run a loaded script; the first `count` of `args` are its keys, the last one is its tag (R15)."""
        if digest not in self._scripts:
            raise CommandError("NOSCRIPT No matching script. Please use EVAL.")
        keys = int(count)
        *argv, tag = args[keys:]
        answer = _SCRIPTS[digest](self, list(args[:keys]), argv)
        return [tag, *answer] if isinstance(answer, list) else [tag, answer]


def _set(server: MemoryServer, args: list[bytes]) -> str | None:
    key, value, *options = args
    if (b"NX" in options and server.exists(key)) or (b"XX" in options and not server.exists(key)):
        return None
    server.set(key, value, int(options[options.index(b"PX") + 1]) if b"PX" in options else None)
    return "OK"


def _type(server: MemoryServer, args: list[bytes]) -> str:
    if not server.exists(args[0]):
        return "none"
    value = server.data[args[0]][0]
    types = {bytes: "string", dict: "zset", Hash: "hash"}
    return types.get(type(value), "list")


def _scan(server: MemoryServer, args: list[bytes]) -> list[Any]:
    """Return all keys at once: a server may find more than the COUNT that it is asked for."""
    pattern = args[args.index(b"MATCH") + 1] if b"MATCH" in args else b"*"
    return [b"0", server.matching(pattern)]


_SCRIPTS: Final = SCRIPTS | BATCHES | READ_WRITE | SLOTS | FAIR | ELECTION

_COMMANDS: Final[dict[bytes, Callable[[MemoryServer, list[bytes]], Any]]] = {
    b"SET": _set,
    b"GET": lambda server, args: server.get(args[0]),
    b"DEL": lambda server, args: sum(map(server.delete, args)),
    b"PTTL": lambda server, args: server.pttl(args[0]),
    b"SCAN": _scan,
    b"TYPE": _type,
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
