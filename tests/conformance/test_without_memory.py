"""A server without memory left: holders that are in go on and leave, and none comes in (R8)."""

from __future__ import annotations

import contextlib
from typing import Final

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from aioredlock_ng import _scripts
from aioredlock_ng._node.pipe import without_request_id
from tests.conformance.rules import TAG
from tests.conformance.stage import KEEP_MS, TTL_MS, beside, counters, locks, queues
from tests.conformance.tools import OTHERS, OURS

KEYS: Final = [*locks("a"), *counters("a"), *queues("a")]
LOCK, COUNTER, QUEUE = KEYS
ASK: Final = {b"read": _scripts.READ, b"write": _scripts.WRITE}

each_mode = pytest.mark.parametrize("mode", ASK)


@pytest.fixture
def client(any_nodes):
    """Give a connection to one empty server, which has all memory again in the end."""
    with contextlib.closing(redis.Redis.from_url(any_nodes.urls[0])) as made:
        yield made
        made.config_set("maxmemory", 0)


@pytest.fixture
def run(client):
    """Give a function that runs a script."""

    def run(script, *args, keys=KEYS):
        try:
            return without_request_id(
                client.execute_command("EVAL", script.source, len(keys), *keys, *args, TAG), TAG
            )
        except OutOfMemoryError:
            return "OOM"

    return run


@each_mode
@pytest.mark.parametrize("others_stay_longer", [False, True])
def test_a_holder_goes_on_and_leaves(client, run, mode, others_stay_longer):
    """Extended, also where its key need not live longer, and downgraded; a release frees memory."""
    code, fence, *_ = run(ASK[mode], OURS, 30_000, 1, 1, KEEP_MS, b"")
    assert code == 1
    if others_stay_longer and mode == b"read":
        assert run(_scripts.READ, OTHERS, 10 * TTL_MS, 1, 1, KEEP_MS, b"")[0] == 1
    client.config_set("maxmemory", 1)
    assert run(_scripts.RW_EXTEND, OURS, TTL_MS, fence, KEEP_MS, mode) == 1
    left = client.pttl(LOCK) if mode == b"write" else client.zscore(LOCK, OURS) - client.time()[0] * 1000
    assert 31_000 < left <= TTL_MS + 1000
    assert run(_scripts.RW_EXTEND, OURS, TTL_MS, fence, KEEP_MS, b"read") == 1
    assert client.zscore(LOCK, OURS)
    assert run(_scripts.RW_RELEASE, OURS, fence, KEEP_MS, b"1", b"read")[0] == 1
    assert client.zscore(LOCK, OURS) is None


@each_mode
def test_none_comes_in(client, run, mode):
    """However often it asks, nothing is kept that would take memory."""
    assert run(_scripts.READ, OTHERS, TTL_MS, 1, 1, KEEP_MS, b"")[0] == 1
    client.config_set("maxmemory", 1)
    for seat in (b"", b"7"):
        answer = run(ASK[mode], OURS, TTL_MS, 1, 1, KEEP_MS, seat)
        assert answer == "OOM" or answer[0] == 0
    assert client.zscore(LOCK, OURS) is None
    assert not client.exists(QUEUE)
    client.delete(LOCK)
    assert run(ASK[mode], OURS, TTL_MS, 1, 1, KEEP_MS, b"") == "OOM"
    assert not client.exists(LOCK)


def test_permits_go_on_and_none_is_given(client, run):
    """An extension and a release need no memory, also where the key need not live longer."""
    pool = {"keys": [LOCK, *beside("a", b"slots")]}

    def ask(owner, ttl):
        return run(_scripts.SLOTS_ACQUIRE, owner, ttl, 1, 1, KEEP_MS, 4, 0, 4, **pool)

    _, fence, _, slot = ask(OURS, 30_000)
    assert (slot, ask(OTHERS, 10 * TTL_MS)[3]) == (0, 1)
    client.config_set("maxmemory", 1)
    assert ask(b"a" * 40 + b":third", TTL_MS) == "OOM"
    assert client.hkeys(LOCK) == [b"0", b"1"]
    assert run(_scripts.SLOTS_EXTEND, OURS, TTL_MS, fence, KEEP_MS, 0, **pool) == 1
    ends = int((client.hget(LOCK, "0") or b"0").partition(b":")[0])
    assert ends > client.time()[0] * 1000 + 31_000
    assert run(_scripts.SLOTS_RELEASE, OURS, fence, KEEP_MS, b"1", 4, 0, **pool)[0] == 1
    assert client.hkeys(LOCK) == [b"1"]
