"""What the floors are made of: the bytes of the plain mode, which only lack a name, and bare connections."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import subprocess
import tempfile
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import final

import hiredis
from redis import Redis

from aioredlock_ng import _scripts
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.pipe import REQUEST_IDS, words
from benchmarks.peers import TTL

OWNER = b"%040x:1763640000000:host.example.org:12345" % (1 << 159)


@cache
def _forms() -> list[bytes]:
    """Return an acquire and its release, the package's own words, with places for the key and its length."""
    key = b"a key that stands for all"
    mutex = Primitive(MUTEX, ("any",), (key,))
    commands = words(mutex.acquire(OWNER, TTL)), (*words(mutex.release(OWNER, TTL)), REQUEST_IDS[0])
    place = b"$%d\r\n%b\r\n"
    return [
        hiredis.pack_command(command).replace(b"%", b"%%").replace(place % (len(key), key), place)
        for command in commands
    ]


def packed(name: str) -> tuple[bytes, bytes]:
    """Return an acquire and its release as they go over the wire."""
    key = b"redlock:" + name.encode()
    acquire, release = _forms()
    return acquire % (len(key), key), release % (len(key), key)


def compiled(source: Path) -> ctypes.CDLL:
    """Compile C to a library, and load it."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/{source.stem}.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        return ctypes.CDLL(library)


def sizes_of_answers(connection: socket.socket) -> list[int]:
    """Return how long a node's answers to an acquire and to its release are."""
    sizes = []
    for question in packed("warm"):
        connection.sendall(question)
        sizes.append(len(connection.recv(4096)))
    return sizes


def load_scripts(urls: Sequence[str]) -> None:
    """Let the nodes know what the release calls by its digest."""
    for url in urls:
        with Redis.from_url(url) as client:
            client.script_load(_scripts.RELEASE.source)


@final
class Link(asyncio.Protocol):
    """A connection: rounds that wait for replies, first in, first out; a busy one gets one write per turn."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._rounds: deque[Round] = deque()
        self._out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what to write to."""
        self.transport = transport

    def put(self, data: bytes, round_: Round) -> None:
        """Send to the node."""
        self._rounds.append(round_)
        if len(self._rounds) == 1:
            self.transport.write(data)
            return
        if not self._out:
            round_.loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        self.transport.write(b"".join(self._out))
        self._out.clear()

    def data_received(self, data: bytes) -> None:
        """Hand the replies over."""
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._rounds.popleft().take(reply)


@final
class Round:
    """One command to all nodes: done when a majority has answered."""

    __slots__ = ("done", "left", "loop")

    def __init__(self, links: Sequence[Link], data: bytes) -> None:
        self.loop = asyncio.get_running_loop()
        self.done, self.left = self.loop.create_future(), len(links) // 2 + 1
        for link in links:
            link.put(data, self)

    def take(self, reply: object) -> None:
        """Count an answer."""
        assert reply == b"OK" or reply == [REQUEST_IDS[0], 1, 0, 0], reply
        self.left -= 1
        if self.left == 0:
            self.done.set_result(None)
