"""A key in its last millisecond is still another's: `PTTL` says 0 then, which must not be read as "free".

Time stands still while a script runs, so a script that first lets the key end now shows that millisecond at
will.  Real servers only: masters in memory have no such state, and Valkey deletes such a key at once.
"""

from __future__ import annotations

from typing import Final

import pytest
import redis

from aioredlock_ng._core.command import Command, Proof
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node.packing import words
from aioredlock_ng._node.pipe import untagged
from tests.conformance.rules import TAG
from tests.conformance.stage import EXPECTED, KEEP, SENTINEL, TTL, counters, locks
from tests.conformance.tools import OTHERS, OURS
from tests.servers import make_fresh

ENDING_NOW: Final = b"""
do
  local time = redis.call('TIME')
  local now = string.format('%%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  redis.call('SET', KEYS[%d], '%b', 'PXAT', now)
  assert(redis.call('GET', KEYS[%d]) and redis.call('PTTL', KEYS[%d]) == 0, 'not the last millisecond')
end
"""
"""Puts a key of another's where it ends with this very millisecond."""


@pytest.fixture
def client(shared_sets):
    """Give a client of a Redis server with nothing but a sentinel."""
    nodes = shared_sets("path")
    make_fresh(nodes)
    with redis.Redis.from_url(nodes.urls[0]) as made:
        if "valkey_version" in made.info("server"):
            pytest.skip("the server on PATH is a Valkey, which deletes a key that is put to end now")
        made.set(SENTINEL, EXPECTED)
        yield made


def run_at_the_end_of(key: int, command: Command, client: redis.Redis) -> object:
    """Run a command's script when the key of that number, counted from 1, is in its last millisecond."""
    _, source, *rest = words(command, in_full=True)
    if command.proof is Proof.STAMPED:
        rest += [EXPECTED, b"0", b""]
    before = ENDING_NOW % (key, OTHERS, key, key)
    return untagged(client.execute_command("EVAL", before + source, *rest, TAG), TAG)


def mutex(names: str, *, fenced: bool) -> Primitive:
    """Return the primitive over some names of one letter."""
    return Primitive(
        MUTEX,
        tuple(names),
        tuple(locks(names)),
        counters=tuple(counters(names)) if fenced else (),
        sentinel=SENTINEL,
        fence_ttl=KEEP,
    )


@pytest.mark.parametrize(
    ("names", "key", "fenced"),
    [("a", 1, True), ("ab", 1, True), ("ab", 2, True), ("ab", 1, False), ("ab", 2, False)],
)
def test_an_acquire_does_not_take_it(client, names, key, fenced):
    """It is refused with the shortest wait there is, and the key stays another's (R5, R13).

    One name without a fence is no case: that is a plain SET NX, which the server itself refuses.
    """
    acquire = mutex(names, fenced=fenced).acquire(OURS, TTL, 1 if fenced else 0)
    answer = run_at_the_end_of(key, acquire, client)
    assert answer[:2] == [0, 1] if isinstance(answer, list) else answer == 1
    assert OURS not in client.mget(locks("ab"))


@pytest.mark.parametrize("key", [1, 2])
def test_a_release_tells_of_it(client, key):
    """What is another's is not free yet: the wait is the shortest there is, not none."""
    command = mutex("ab", fenced=False).release(OURS, TTL)
    answer = run_at_the_end_of(key, command, client)
    assert isinstance(answer, list)
    assert answer[:2] == [0, 1]
