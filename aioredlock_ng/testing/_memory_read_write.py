"""What the Lua files of a read-write lock do, for a master in memory (R20 to R23)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from .. import _scripts
from .._core.fencing import granted, kept_ms, raised, shared
from ._memory_data import CommandError
from ._memory_parts import counted, foreign_and_label, longest, raise_all, sentinel_matches
from ._memory_process import MemoryProcess
from ._memory_readers import MARK_MS, READERS, WRITER, ReadWriteEntry


def _parted(
    server: MemoryProcess, keys: list[bytes], *, fenced: bool
) -> tuple[list[ReadWriteEntry], list[bytes]]:
    """Return the names, and the counters if there are fences."""
    n = len(keys) // (3 if fenced else 2)
    entries = [ReadWriteEntry(server, key, queue) for key, queue in zip(keys[:n], keys[-n:], strict=True)]
    return entries, keys[n:-n]


def _counted(server: MemoryProcess, counters: list[bytes], floor: int) -> int:
    """Return the greatest counter as it counts; 0 without fences."""
    return max((counted(server, counter, floor) for counter in counters), default=0)


def _opened(
    server: MemoryProcess, keys: list[bytes], argv: list[bytes]
) -> tuple[list[ReadWriteEntry], list[bytes], int] | None:
    """Return the names, the counters and the floor; None where this node has no vote."""
    _, _, ballot, _, _, _, *stamp = argv
    floor = 0
    if stamp:
        *keys, sentinel = keys
        if not sentinel_matches(server, sentinel, stamp):
            return None
        floor = int(stamp[1])
    return *_parted(server, keys, fenced=ballot != b"0"), floor


def _read(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[int]:
    owner, ttl, ballot, _, keep_ms, seat, *_ = argv
    time_us = server.time_us()
    now_ms = time_us // 1000
    if (opened := _opened(server, keys, argv)) is None:
        return [-1, 0, time_us]
    entries, counters, floor = opened
    others = [each for each in entries if each.reads_until(owner) is None]  # but for a repeated command
    waits = [longest([each.kept_out(), each.taken(reads=True)]) for each in others]
    if wait := longest(waits):
        _mark(others, waits, READERS if seat else b"")
        return [0, wait, time_us]
    for each in others:
        each.read_on(owner, int(ttl))
        each.prune()
        each.take_turn()
    missing = not all(map(server.exists, counters))
    fence = shared(_counted(server, counters, floor), int(ballot), now_ms, missing=missing)
    for counter in counters:
        server.set(counter, b"%d" % fence, kept_ms(fence, now_ms, int(keep_ms)))
    return [1, fence if counters else 0, time_us]


def _write(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[int]:
    owner, ttl, ballot, _, keep_ms, seat, *_ = argv
    time_us = server.time_us()
    if (opened := _opened(server, keys, argv)) is None:
        return [-1, 0, time_us, 0]
    entries, counters, floor = opened
    waits = [longest([each.taken(owner), each.turns_away()]) for each in entries]
    if wait := longest(waits):
        _mark(entries, waits, WRITER + seat if seat else b"")
        return [0, wait, time_us, 0]
    repeated = all(each.writer == owner for each in entries)
    if len(entries) == 1 and not repeated:  # before the counter is looked at, which may be of another type
        server.set(entries[0].key, owner, int(ttl))
    before = _counted(server, counters, floor)
    fence = before if repeated else granted(before, int(ballot), time_us // 1000)
    for each in entries if not repeated else ():
        server.set(each.key, owner, int(ttl))
    for counter in counters if not repeated else ():
        server.set(counter, b"%d" % fence, kept_ms(fence, time_us // 1000, int(keep_ms)))
    for each in entries if seat else ():
        each.unmark(WRITER + seat)
    return [1, fence if counters else 0, time_us, before]


def _mark(entries: list[ReadWriteEntry], waits: list[int], mark: bytes) -> None:
    """Leave a mark, if it is one, at the names that have to be waited for."""
    for each, wait in zip(entries, waits, strict=True):
        if mark and wait:
            each.mark(mark, MARK_MS)


def _raise(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    *keys, sentinel = keys
    owner, fence, keep_ms, mode, *stamp = argv
    if not sentinel_matches(server, sentinel, stamp):
        return -1
    entries, counters = _parted(server, keys, fenced=True)
    reads = mode == b"read"
    for each in entries:
        mine = False
        with suppress(CommandError):
            mine = each.reads_until(owner) is not None if reads else each.writer == owner
        if not mine:
            return 0
    if raised(0, int(fence), server.time_us() // 1000) is None:
        return -2
    return 1 if raise_all(server, counters, int(fence), int(stamp[1]), keep_ms) or reads else -3


def _extend(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    owner, ttl_ms, fence, keep_ms, mode, *stamp = argv
    without_vote, floor, ttl, reads = 0, 0, int(ttl_ms), mode == b"read"
    if stamp:
        *keys, sentinel = keys
        if sentinel_matches(server, sentinel, stamp):
            floor = int(stamp[1])
        else:
            without_vote = 10
    entries, counters = _parted(server, keys, fenced=int(fence) > 0)
    ends = [each.reads_until(owner) if reads else None for each in entries]
    missing = False
    for each, until in zip(entries, ends, strict=True):
        if until is None:
            if each.taken(owner, reads=reads):
                return without_vote - 1
            missing = missing or each.writer != owner
    if missing:
        return without_vote
    for each, until in zip(entries, ends, strict=True):
        if until is not None:
            each.prune()
            each.read_on(owner, ttl)
        elif reads:
            _downgrade(each, owner, ttl)
        else:
            each.prolong(ttl)
    raise_all(server, counters, int(fence), floor, keep_ms)
    return without_vote + 1


def _downgrade(entry: ReadWriteEntry, owner: bytes, ttl: int) -> None:
    """Make a reader of the writer (R23)."""
    left = max(entry.server.pttl(entry.key), ttl)
    entry.server.delete(entry.key)
    entry.read_on(owner, left)
    entry.give_turn()
    entry.tell(entry.key)


def _top_up(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> int:
    owner, ttl_ms, fence, keep_ms, mode = argv
    entries, counters = _parted(server, keys, fenced=int(fence) > 0)
    ttl, reads = int(ttl_ms), mode == b"read"
    if any(each.taken(None if reads else owner, reads=reads) for each in entries):
        return -1
    for each in entries:
        if reads:
            each.read_on(owner, ttl)
        elif server.pttl(each.key) < ttl:
            server.set(each.key, owner, ttl)
    raise_all(server, counters, int(fence), 0, keep_ms)
    return 0


def _release(server: MemoryProcess, keys: list[bytes], argv: list[bytes]) -> list[int | bytes]:
    owner, fence, keep_ms, loud, mode, *seat = argv
    entries, counters = _parted(server, keys, fenced=int(fence) > 0)
    given, told, failure = 0, 0, None
    waits: list[int] = []
    others: list[bytes] = []
    for i, each in enumerate(entries):
        if seat and each.unmark(WRITER + seat[0]):
            each.tell(each.key)
        try:
            mine, freed = _give_back(each, owner)
        except CommandError as error:
            failure = error
            continue
        if mine:
            given += 1
            told = max(told, each.tell(freed) if loud and freed else 0)
            with suppress(CommandError):
                raise_all(server, counters[i : i + 1], int(fence), 0, keep_ms)
            continue
        if each.writer is not None:
            others.append(each.writer)
        reads = mode == b"read"
        waits += [each.taken(reads=reads), each.kept_out() if reads else each.turns_away()]
        told = max(told, server.listening(each.key if reads else each.queue) if loud else 0)
    if failure is not None:
        raise failure
    return [given, longest(waits), told, *foreign_and_label(others)]


def _give_back(entry: ReadWriteEntry, owner: bytes) -> tuple[bool, bytes]:
    """Give back what is the owner's; say whether anything was, and which channel is to hear of it."""
    if entry.writer == owner:
        entry.server.delete(entry.key)
        entry.give_turn()
        return True, entry.key
    if entry.writer is not None:
        return False, b""
    was_in, others_read = entry.read_no_more(owner)
    return was_in, b"" if others_read else entry.queue


READ_WRITE: Final[dict[bytes, Callable[[MemoryProcess, list[bytes], list[bytes]], Any]]] = {
    _scripts.READ.digest: _read,
    _scripts.WRITE.digest: _write,
    _scripts.RW_RAISE.digest: _raise,
    _scripts.RW_EXTEND.digest: _extend,
    _scripts.RW_TOP_UP.digest: _top_up,
    _scripts.RW_RELEASE.digest: _release,
}
