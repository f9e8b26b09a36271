"""What several scripts do alike, for a master in memory: as the files of `_scripts/parts`."""

from __future__ import annotations

import re
from typing import Final

from .._core.fencing import kept_ms, raised, reading
from ._memory_data import CommandError
from ._memory_process import MemoryProcess

_OWNER_DIGITS: Final = 40
"""With what our values begin: what has its first colon elsewhere is another program's."""

_OURS: Final = re.compile(rb"[0-9a-f]{40}:[0-9]{13}[a-z]?:(?P<label>.*)", re.DOTALL)
"""An owner value of this package, as `release.lua` knows it.

`parse_owner` knows the values of older versions as well, which have no time, and returns the label as text.
"""

_LABEL_BYTES: Final = 1024
"""How much of a label `release.lua` returns."""

_SOME_READERS: Final = b"readers"
"""Stands for the owner value where readers are: no owner value is so short."""


def owner_at(server: MemoryProcess, key: bytes) -> bytes | None:
    """Return the owner value under a mutex's key; what is no owner value where readers are (R19)."""
    try:
        return server.get(key)
    except CommandError:
        server.scores(key)
        return _SOME_READERS


def foreign_and_label(values: list[bytes]) -> list[int | bytes]:
    """Return what a release says of the values in its way."""
    foreign = [int(any(value.find(b":") != _OWNER_DIGITS for value in values))] if values else []
    label = next((match["label"] for match in map(_OURS.fullmatch, values) if match), None)
    return [*foreign, *([] if label is None else [label[:_LABEL_BYTES]])]


def longest_wait(server: MemoryProcess, keys: list[bytes]) -> int:
    """Return how long the keys that are there will stay: as `release.lua` and `acquire.lua` say it."""
    lefts = [left for left in map(server.pttl, keys) if left != -2]  # noqa: PLR2004 (not there)
    return longest([left if left == -1 else max(left, 1) for left in lefts])


def longest(waits: list[int]) -> int:
    """Return the longest of spans, of which -1 is one without end; 0 without any."""
    return -1 if -1 in waits else max(waits, default=0)


def prolong(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> None:
    """Set the keys that are not there, or have less than the new ttl left."""
    for key in keys:
        if server.pttl(key) < int(argv[1]):
            server.set(key, argv[0], int(argv[1]))


def identity(server: MemoryProcess) -> bytes:
    """Return the process and the origin of its data (R12)."""
    return (server.run_id + server.replid).encode()


def sentinel_matches(server: MemoryProcess, sentinel: bytes, stamp: list[bytes]) -> bool:
    """Say whether the sentinel is the one that the client expects (R12)."""
    expected, _, me = stamp
    return expected != b"" and server.get(sentinel) == expected and me in (b"", identity(server))


def counted(server: MemoryProcess, counter: bytes, floor: int) -> int:
    """Return a counter as it counts (R11)."""
    stored = server.get(counter)
    return reading(None if stored is None else int(stored), floor=floor, now_ms=server.time_us() // 1000)


def raise_all(server: MemoryProcess, counters: list[bytes], fence: int, floor: int, keep_ms: bytes) -> bool:
    """Lift counters to a fence, as far as that is allowed; False when one does not stand there then."""
    agreed, now_ms = True, server.time_us() // 1000
    for counter in counters:
        before = counted(server, counter, floor)
        after = raised(before, fence, now_ms) if before < fence else before
        if after is None:
            stored = server.get(counter)
            if stored is not None:
                server.set(counter, stored, kept_ms(before, now_ms, int(keep_ms)))
        else:
            server.set(counter, b"%d" % after, kept_ms(after, now_ms, int(keep_ms)))
        agreed = agreed and after == fence
    return agreed
