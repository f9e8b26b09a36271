"""The server of a `MemoryNode`: commands and scripts, without any connection."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, final

from .. import _scripts
from .._core.quarantine import NO_CLAIM, Incarnation, read_claim
from . import _memory_lua
from ._memory_commands import COMMANDS
from ._memory_connection import MemoryConnection
from ._memory_data import CommandError, MemoryProcess, encode

_SHIPPED: Final = {script.digest: script.source for script in _scripts.ALL}


@final
class MemoryServer(MemoryProcess):
    """The server of a `MemoryNode`: a process that loads scripts and executes commands."""

    # -- the process ---------------------------------------------------------------------------

    def new_process(self) -> None:
        """Have another identity and no script: what a restart does to everything but the data."""
        super().new_process()
        self._commands = _memory_lua.Commands(self)
        self._scripts: dict[bytes, bytes] = {}

    def load(self, source: bytes) -> bytes:
        """Do ``SCRIPT LOAD``; return the digest."""
        _memory_lua.compiled(source)
        digest = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        self._scripts[digest] = source
        return digest

    def load_all(self) -> None:
        """Load all scripts of this package, as the handshake does."""
        self._scripts.update(_SHIPPED)

    def flush_scripts(self) -> None:
        """Do ``SCRIPT FLUSH``."""
        self._scripts.clear()

    # -- commands ------------------------------------------------------------------------------

    def execute(self, words: list[bytes], client: MemoryConnection | None = None) -> bytes:
        """Execute one command of a client and return the reply: as RESP2, but for what only RESP3 has."""
        verb, *args = words
        if client is not None and verb in _LISTENING:
            return b"".join(encode(_LISTENING[verb](self, client, channel)) for channel in args)
        command = _COMMANDS.get(verb)
        if command is None:
            return f"-ERR unknown command '{verb.decode()}'\r\n".encode()
        try:
            with self.clock.one_moment():
                return encode(command(self, *args))
        except CommandError as error:
            return f"-{error}\r\n".encode()

    def run_script(self, digest: bytes, count: bytes, *words: bytes) -> Any:
        """Run a loaded script; the first `count` words are its keys."""
        source = self._scripts.get(digest)
        if source is None:
            raise CommandError("NOSCRIPT No matching script. Please use EVAL.")
        if self.pristine and digest == _scripts.GREET.digest:
            self._make_incarnation(*words)
        return self._commands.run(_memory_lua.compiled(source), int(count), words)

    def _make_incarnation(
        self, key: bytes, _members: bytes, _nonce: bytes, size: bytes, quarantine_ms: bytes, *words: bytes
    ) -> None:
        """Be ready to vote before the first greeting: there was never a lock here, nor a fence (R12)."""
        _restart, _restart_floor, claim, *_ = words
        if int(size) and not self.exists(key):
            incarnation = Incarnation(
                identity=(self.run_id + self.replid).encode(),
                floor=0,
                ready_ms=0,
                size=int(size),
                quarantine_ms=int(quarantine_ms),
                claim=read_claim(claim) or NO_CLAIM,
            )
            self.set(key, bytes(incarnation))


_COMMANDS: Final[dict[bytes, Callable[..., Any]]] = {
    **COMMANDS,
    b"PING": lambda _, *words: words[0] if words else "PONG",
    b"EVALSHA": MemoryServer.run_script,
    b"EVAL": lambda server, source, *words: server.run_script(server.load(source), *words),
    b"SCRIPT": lambda server, _load, source: server.load(source),  # only SCRIPT LOAD
}

_LISTENING: Final = {b"SUBSCRIBE": MemoryServer.subscribe, b"UNSUBSCRIBE": MemoryServer.unsubscribe}
"""The commands that concern the client's own connection; every channel is confirmed by a push."""
