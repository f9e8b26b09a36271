"""Hostile names: each touches its own keys and no others, and none reaches a log or terminal as it is."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioredlock_ng import LockManager, LockTakenError
from aioredlock_ng._admin.look import scan
from aioredlock_ng._core.keyspace import RESERVED_NAMES
from aioredlock_ng._settings.options import MAX_NAME_BYTES
from aioredlock_ng.testing import MemoryNode, SimLoop
from tests.unit.tasks import virtual
from tests.unit.worlds import make, world

# Among them look-alikes (U+0430 is Cyrillic), two normal forms of é, and what means something to Redis, to
# its protocol, to patterns, to shells, to Python's formatting and to terminals.
HOSTILE: Final = (
    "a\0b", "a\nb", "a\r\nb", "\r\n*1\r\n$8\r\nFLUSHALL\r\n", "{", "}", "{}", "{a}", "*", "?", "[a-z]",
    "[^a]", "\\", "\\*", "a*", "a:", "a:b:", "a:b:c", " ", " a", "a ", "..", "../a", "/", "-n", "$1", "%s",
    "%(name)s", "{0}", "fence:", "fence", "fence:redlock:a", "{meta", "meta}", "x{meta}", "xfence:{a}",
    "redlock:", "redlock:a", "redlock:{meta}", "redlock:fence:{redlock:a}", "\u202eabc", "\u200b", "\ufeffa",
    "\x1b[2J\x1b]0;x\x07", "\x9b2J", "é", "e\u0301", "\u0430", "a", "Å", "\u212b", "x" * MAX_NAME_BYTES,
    "ä" * (MAX_NAME_BYTES // 2),
)  # fmt: skip

NAMES: Final = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(min_size=1, max_size=40),
    st.text(alphabet="a:{}*?[]\\\r\n\0 fencemt", min_size=1, max_size=12),
).filter(lambda name: len(name.encode(errors="surrogatepass")) <= MAX_NAME_BYTES)

SETTINGS: Final = settings(max_examples=150, derandomize=True)


def is_usable(name: str) -> bool:
    """Say whether a lock may have this name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return not name.startswith(RESERVED_NAMES)


def own_keys(name: str, prefix: str = "redlock:") -> set[bytes]:
    """Return the keys that are the name's own: the lock's and its counter's."""
    lock = (prefix + name).encode()
    return {lock, prefix.encode() + b"fence:{" + lock + b"}"}


def keys_of(words: tuple[bytes, ...]) -> set[bytes]:
    """Return the keys or channels that a command names."""
    if words[0] in (b"EVALSHA", b"EVAL"):
        return set(words[3 : 3 + int(words[2])])
    return {words[1]}


def touched_by(name: str, prefix: str = "redlock:") -> set[bytes]:
    """Live through all that can be done with a name; returns the keys and channels that a node was asked for.

    Checks on the way that what the node has come to hold is among them.
    """
    touched: set[bytes] = set()

    async def live() -> None:
        node = MemoryNode()
        async with make([node], prefix=prefix) as manager, make([node], prefix=prefix, seed=2) as other:
            lease = await manager.lock(name).acquire()
            await lease.extend(20)
            with pytest.raises(LockTakenError):
                await other.lock(name, blocking_timeout=1).acquire()
            (seen,) = await manager.inspect(name)
            assert seen.ours
            await lease.release()
            lease = await manager.lock(name).acquire()
            await manager.force_release(name)
            await lease.release()
            touched.update(*(keys_of(words) for words in node.executed if words[0] not in NO_KEYS))
            assert set(node.keys) <= touched

    SimLoop.run(live())
    return touched


NO_KEYS: Final = (b"PING", b"SCAN", b"TIME", b"INFO", b"HELLO")


@pytest.mark.heavy
@SETTINGS
@given(NAMES, NAMES)
@example("a", "fence:redlock:a")
@example("a:b", "a:")
@example("é", "e\u0301")
def test_a_name_touches_its_own_keys_and_no_other_names(one: str, other: str) -> None:
    """Acquire, extend, contend, inspect, release, force: the lock, its counter and the record, no more."""
    if not is_usable(one):
        with pytest.raises(ValueError, match=r"reserved|UTF-8"):
            LockManager(["redis://any"]).lock(one)
        return
    touched = touched_by(one)
    assert touched == own_keys(one) | {b"redlock:{meta}"}
    assert len(touched) == 3
    if is_usable(other) and other != one:
        assert not own_keys(other) & touched


@virtual
async def test_names_that_look_alike_are_held_at_once() -> None:
    """All hostile names are locked at the same time, each by a lease of its own, and each is found again."""
    async with world(1) as w:
        leases = [await w.manager.lock(name, blocking=False).acquire() for name in HOSTILE]
        for name in HOSTILE:
            (seen,) = await w.manager.inspect(name)
            assert seen.ours
        survey = await w.manager.survey()
        assert {lock.name for lock in survey.locks} == set(HOSTILE)
        assert [lock.name for lock in (await w.manager.survey("*")).locks] == ["*"]
        for lease in leases:
            await lease.release()


@given(st.binary(max_size=30))
@SETTINGS
def test_a_search_is_for_the_prefix_and_nothing_else(prefix: bytes) -> None:
    """Every byte of the prefix that means something in a pattern is escaped in the SCAN."""
    pattern = scan(prefix).args[2]
    assert pattern.endswith(b"*")
    literal, escaped = bytearray(), False
    for byte in pattern[:-1]:
        if escaped or byte != ord("\\"):
            assert escaped or byte not in b"*?[]"
            literal.append(byte)
        escaped = not escaped and byte == ord("\\")
    assert bytes(literal) == prefix
