"""What the Lua files of an election do, for a master in memory (R31, R32)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from .. import _scripts
from ._memory_parts import sentinel_matches
from ._memory_process import MemoryProcess

_ANNOUNCED: Final = re.compile(rb"([0-9]+):")

_READ_BYTES: Final = 1024
"""How much of an announcement `observe.lua` returns."""

_NOT_THERE: Final = -2
"""What ``PTTL`` says of a key that is not there."""


def _announce(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    term, label, keep_ms = argv
    stands = _ANNOUNCED.match(server.get(keys[0]) or b"")
    known = 0 if stands is None else int(stands[1])
    if known > int(term):
        return 0
    server.set(keys[0], b"%b:%b" % (term, label), int(keep_ms))
    if known < int(term):
        server.publish(keys[0], b"")
    return 1


def _observe(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[Any]:
    lock, announced, sentinel = keys
    votes = sentinel_matches(server, sentinel, argv)
    held = server.pttl(lock) != _NOT_THERE
    return [int(votes), int(held), (server.get(announced) or b"")[:_READ_BYTES]]


ELECTION: Final[dict[bytes, Callable[[MemoryProcess, list[bytes], list[bytes]], Any]]] = {
    _scripts.ANNOUNCE.digest: _announce,
    _scripts.OBSERVE.digest: _observe,
}
