"""A name that something else has: at once an error that says what, if it costs the quorum (R19)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from aioredlock_ng import ConfigurationError, Lock, LockManager, LockTakenError, QuorumUnavailableError, Vote
from aioredlock_ng.testing import MemoryNode
from tests.unit.tasks import cycle, in_task, sim, within
from tests.unit.traces import PREFIX, count, counter, locks
from tests.unit.worlds import LATENCY, TIMEOUT, TTL, each, world

KEY = PREFIX + b"a"

LOCKS: dict[str, Callable[[LockManager], Lock]] = {
    "mutex": lambda manager: manager.lock("a"),
    "read lock": lambda manager: manager.rwlock("a").read(),
    "write lock": lambda manager: manager.rwlock("a").write(),
}


UNKNOWN = "lock 'a' is requested as a mutex, but its keys hold something that is not a lock of this package"
TYPES = (b"zset", b"list", b"hash")


def spoil(*nodes: MemoryNode, key: bytes = KEY) -> None:
    """Have a list under a key."""
    each(nodes).set(key, None, 1000.0)


async def refused(lock: Lock) -> ConfigurationError:
    """See that a call ends at once in an error that says what is in its way; return it."""
    with pytest.raises(ConfigurationError) as caught:
        async with within(TTL):
            await lock.acquire()
    return caught.value


def called(monkeypatch: pytest.MonkeyPatch, type_: bytes | None) -> None:
    """Have the nodes call what is no string by another type; None: refuse to tell."""
    execute = MemoryNode.execute

    def answer(self: MemoryNode, words: list[bytes], *rest: Any) -> bytes:
        found = execute(self, words, *rest)
        if words[0] != b"TYPE" or found == b"+none\r\n":
            return found
        return b"+%b\r\n" % type_ if type_ is not None else b"-NOPERM this user has no permissions\r\n"

    monkeypatch.setattr(MemoryNode, "execute", answer)


@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
@pytest.mark.parametrize("wanted", LOCKS)
async def test_what_costs_the_quorum_is_named(wanted: str, fencing: bool) -> None:
    """The error names the wanted kind, the one that is there, and the nodes; no key of ours is left."""
    async with world(fencing=fencing) as w:
        spoil(*w.nodes[:2])
        began = sim().time()
        error = await refused(LOCKS[wanted](w.manager))
        assert sim().time() - began < TIMEOUT
        assert str(error) == (
            f"lock 'a' is requested as a {wanted}, but on 2 of 3 nodes the key 'redlock:a' holds a list, "
            "which is not a lock of this package"
        )
        refusal = error.__cause__
        assert isinstance(refusal, QuorumUnavailableError)
        assert [vote.vote for vote in refusal.votes] == [Vote.SILENT, Vote.SILENT, Vote.GRANTED]
        await asyncio.sleep(0.1)
        assert [locks(node) for node in w.nodes] == [(KEY,), (KEY,), ()]
        assert [count(node, "TYPE") > 0 for node in w.nodes] == [True, True, False]


@pytest.mark.parametrize(
    ("type_", "key", "words"),
    [
        (b"hash", KEY, ".* holds a hash, .*"),
        (b"ReJSON-RL", KEY, ".* holds a ReJSON-RL, .*"),
        (b"evil\x1b", KEY, r".* holds a evil\\x1b, .*"),
        (None, KEY, UNKNOWN),
        *((type_, counter("a"), ".*on 3 of 3 nodes the key 'redlock:fence:.*") for type_ in TYPES),
    ],
)
async def test_a_type_is_named_as_the_server_calls_it(
    type_: bytes | None, key: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of modules, too; nothing hostile gets into a message, and nothing is guessed.  A
    counter of any other type is no lock: nor a sorted set, which under the lock's own key would be readers.
    """
    called(monkeypatch, type_)
    async with world() as w:
        spoil(*w.nodes, key=key)
        assert re.fullmatch(words, str(await refused(w.manager.lock("a"))))


@pytest.mark.parametrize("wanted", LOCKS)
async def test_a_minority_does_not_matter(wanted: str) -> None:
    """The others are enough; no type is asked for."""
    async with world(5) as w:
        spoil(*w.nodes[:2])
        await cycle(LOCKS[wanted](w.manager))
        assert not any(count(node, "TYPE") for node in w.nodes)


async def test_what_is_gone_when_it_is_looked_at_is_waited_for() -> None:
    """Another try may help, and does."""
    async with world() as w:
        spoil(*w.nodes)
        acquiring = in_task(w.manager.lock("a").acquire)
        while not count(w.nodes[0], "release"):
            await asyncio.sleep(LATENCY / 4)
        each(w.nodes).delete(KEY)
        end = await acquiring
        assert end.error is None
        assert count(w.nodes[0], "TYPE") == 2


async def test_readers_and_writers_are_no_other_kind() -> None:
    """Whatever the words of the failure: what TYPE calls a string or a sorted set may be a lock (R19)."""
    async with world() as w, w.process() as other, other.rwlock("a").read():
        with pytest.raises(LockTakenError):
            await w.manager.lock("a", blocking_timeout=1).acquire()
        assert not any(count(node, "TYPE") for node in w.nodes)
