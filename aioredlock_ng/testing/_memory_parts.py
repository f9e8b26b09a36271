"""What several scripts do alike, for a master in memory: as the files of `_scripts/parts`."""

from __future__ import annotations

from .._core.fencing import kept_ms, raised, reading
from ._memory_process import MemoryProcess


def longest_wait(server: MemoryProcess, keys: list[bytes]) -> int:
    """Return how long the keys that are there will stay: as `release.lua` and `acquire.lua` say it."""
    lefts = [left for left in map(server.pttl, keys) if left != -2]  # noqa: PLR2004 (not there)
    return -1 if -1 in lefts else max((max(left, 1) for left in lefts), default=0)


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
