"""A server without memory left: readers and writers that are in go on and leave, and none comes in (R8)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from aioredlock_ng import _scripts
from aioredlock_ng._core.command import Script
from aioredlock_ng._node.pipe import untagged
from tests.conformance.rules import TAG
from tests.conformance.stage import KEEP_MS, TTL_MS, counters, locks, queues
from tests.conformance.tools import OTHERS, OURS
from tests.servers import Nodes

KEYS: Final = [*locks("a"), *counters("a"), *queues("a")]
LOCK, COUNTER, QUEUE = KEYS
MODES: Final = (b"read", b"write")
ASK: Final = {b"read": _scripts.READ, b"write": _scripts.WRITE}


@pytest.fixture
def client(any_nodes: Nodes) -> Iterator[redis.Redis[bytes]]:
    """Give a connection to one empty server, which has all memory again in the end."""
    with contextlib.closing(redis.Redis.from_url(any_nodes.urls[0])) as made:
        yield made
        made.config_set("maxmemory", 0)


@pytest.fixture
def run(client: redis.Redis[bytes]) -> Callable[..., Any]:
    """Give a function that runs a script over one fenced lock."""

    def run(script: Script, *args: bytes | int) -> Any:
        try:
            reply = client.execute_command("EVAL", script.source, len(KEYS), *KEYS, *args, TAG)
        except OutOfMemoryError:
            return "OOM"
        return untagged(reply, TAG)

    return run


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("waits_for_more", [False, True], ids=["alone", "others stay longer"])
def test_a_holder_goes_on_and_leaves(
    client: redis.Redis[bytes], run: Callable[..., Any], mode: bytes, waits_for_more: bool
) -> None:
    """Extended, also where its key need not live longer, and downgraded; a release frees memory."""
    code, fence, *_ = run(ASK[mode], OURS, 30_000, 1, 1, KEEP_MS, b"")
    assert code == 1
    if waits_for_more and mode == b"read":
        assert run(_scripts.READ, OTHERS, 10 * TTL_MS, 1, 1, KEEP_MS, b"")[0] == 1
    client.config_set("maxmemory", 1)
    assert run(_scripts.RW_EXTEND, OURS, TTL_MS, fence, KEEP_MS, mode) == 1
    left = client.pttl(LOCK) if mode == b"write" else client.zscore(LOCK, OURS) - client.time()[0] * 1000
    assert 31_000 < left <= TTL_MS + 1000
    assert run(_scripts.RW_EXTEND, OURS, TTL_MS, fence, KEEP_MS, b"read") == 1
    assert client.zscore(LOCK, OURS)
    assert run(_scripts.RW_RELEASE, OURS, fence, KEEP_MS, b"1", b"read")[0] == 1
    assert client.zscore(LOCK, OURS) is None


@pytest.mark.parametrize("mode", MODES)
def test_none_comes_in(client: redis.Redis[bytes], run: Callable[..., Any], mode: bytes) -> None:
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
