"""New kinds of locks: a relay, a kind of this test, is used like any lock; rates share no slots of others."""

from __future__ import annotations

from dataclasses import replace

from aioredlock_ng import Lock, LockManager, _scripts
from aioredlock_ng._core.command import Script
from aioredlock_ng._kinds.answers import fits_grant, fits_release, read_grant, read_release
from aioredlock_ng._kinds.kind import Kind, Operation
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.semaphore import semaphore
from aioredlock_ng.testing import MemoryNode
from tests.unit.worlds import TTL, make

REST = 60_000
"""Milliseconds for which a holder of a relay is not granted it again, unless another one has had it."""


def edited(script: Script, name: str, old: bytes, new: bytes) -> Script:
    """Return a mutex's script with another line."""
    assert script.source.count(old) == 1
    return Script(name, script.source.replace(old, new))


NOT_TWICE = b"""
if call('GET', 'last:' .. KEYS[1]) == string.match(ARGV[1], '[^:]*$') then
  return {ARGV[8], 0, call('PTTL', 'last:' .. KEYS[1]), us}
end
local n, mine ="""

REMEMBER = (
    b"""redis.call('DEL', KEYS[i])
      redis.call('SET', 'last:' .. KEYS[i], string.match(ARGV[1], '[^:]*$'), 'PX', %d)"""
    % REST
)

ACQUIRE = Operation(
    script=edited(_scripts.ACQUIRE, "relay_acquire", b"local n, mine =", NOT_TWICE),
    fits=fits_grant,
    read=read_grant,
)

RELAY = replace(
    MUTEX,
    name="relay",
    noun="relay",
    passes_on=False,
    batched=False,
    acquire=ACQUIRE,
    release=Operation(
        script=edited(_scripts.RELEASE, "relay_release", b"redis.call('DEL', KEYS[i])", REMEMBER),
        fits=fits_release,
        read=read_release,
    ),
)
"""A mutex that no holder has twice in a row."""


RATE = replace(semaphore(3), name="rate", letter=b"q", shares_with=frozenset({"rate"}))
"""A kind with slots of its own."""


def of(kind: Kind, manager: LockManager) -> Lock:
    """Describe a lock of a kind, as a method of `LockManager` would."""
    request = manager.lock("baton", ttl=TTL)._request
    return Lock(manager._life, manager._primitives.for_names(kind, ("baton",)), request)


def relay(manager: LockManager) -> Lock:
    """Describe a relay."""
    return of(RELAY, manager)


async def test_a_new_kind_is_used_like_any_other() -> None:
    """A majority grants it with a fence; it is extended, refused, and waited for across processes."""
    nodes = [MemoryNode() for _ in range(3)]
    async with make(nodes, holder="first") as one, make(nodes, holder="second") as other:
        async with relay(one) as lease:
            await lease.extend()
            assert await relay(other).try_acquire() is None
        assert await relay(one).try_acquire() is None, "it has had it"
        async with relay(other) as later:
            assert later.fence > lease.fence
        async with relay(one) as again:
            assert again.fence > later.fence


async def test_kinds_with_slots_do_not_share_them() -> None:
    """A semaphore and another kind exclude each other under one name, though both have room."""
    nodes = [MemoryNode() for _ in range(3)]
    async with make(nodes) as one, make(nodes) as other:
        for first, second in ((RATE, semaphore(3)), (semaphore(3), RATE)):
            async with of(first, one):
                assert await of(second, other).try_acquire() is None
                async with of(first, other):
                    pass
            async with of(second, other):
                pass
