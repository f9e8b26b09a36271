"""The floor in C (`floor.c`), compiled when it is opened; its cycles block the process."""
# ruff: noqa: D102 (`benchmarks.peers` says what they are for)

from __future__ import annotations

import ctypes
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final
from urllib.parse import urlsplit

from benchmarks.peers.wire import compiled, load_scripts, packed, sizes_of_answers
from benchmarks.slices import numbered


@final
class Peer:
    """Blocking sockets; instead of `cycle` it has the slice `latency` itself."""

    def __init__(self, urls: Sequence[str]) -> None:
        load_scripts(urls)
        self._cycles = compiled(Path(__file__).with_name("floor.c")).cycles
        places = [(url.hostname or "", url.port or 6379) for url in map(urlsplit, urls)]
        self._sockets = [socket.create_connection(place) for place in places]
        self._answers = sizes_of_answers(self._sockets[0])
        self._fds = (ctypes.c_int * len(places))(*(each.fileno() for each in self._sockets))

    async def open(self) -> None:
        """Nothing is left to do."""

    async def latency(
        self, *, prefix: str, count: int, seconds: float, first: int = 0, names: int | None = None
    ) -> dict[str, Any]:
        commands = [packed(numbered(prefix, first + i, names)) for i in range(count)]
        (acquire, release), (granted, released) = map(len, commands[0]), self._answers
        acquires, releases = (b"".join(words) for words in zip(*commands, strict=True))
        times = [(ctypes.c_double * count)() for _ in range(2)]
        sent = (acquires, acquire, granted, releases, release, released)
        cpu = time.process_time()
        if self._cycles(len(self._fds), self._fds, count, *sent, *times):
            raise RuntimeError("a node did not answer, or said something else")
        cpu = time.process_time() - cpu
        return {"acquires": list(times[0]), "cycles": list(times[1]), "cpu": cpu / count}

    async def close(self) -> None:
        for each in self._sockets:
            each.close()
