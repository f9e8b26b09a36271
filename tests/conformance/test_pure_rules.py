"""What the Lua scripts compute is what the rules of the core say, to the last digit (R10–R12)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import redis

from aioredlock_ng import _scripts
from aioredlock_ng._core.claims import BY_INIT, BY_USE, Claim
from aioredlock_ng._core.fencing import MAX_BLOCK, floor_at, granted, raised, reading
from aioredlock_ng._core.quarantine import Sentinel, greeted, initialised, taken_back
from tests.conformance.rules import run_at, some_fence, some_time
from tests.conformance.stage import EXPECTED, KEEP_MS, SENTINEL, TTL_MS, counters, locks
from tests.conformance.tools import OURS
from tests.servers import Nodes

TRIES = 1500

KEYS = [*locks("a"), *counters("a"), SENTINEL]
LOCK, COUNTER = KEYS[:2]


@pytest.fixture
def client(any_nodes: Nodes) -> Iterator[redis.Redis[bytes]]:
    """Give a connection to one empty server."""
    with contextlib.closing(redis.Redis.from_url(any_nodes.urls[0])) as made:
        yield made


def stored_or_nothing(random: Random, now_us: int) -> int | None:
    """Return what a counter may be."""
    return random.choice((None, some_fence(random, now_us), some_fence(random, now_us)))


def put(client: redis.Redis[bytes], key: bytes, value: Any) -> None:
    """Set a key, or delete it."""
    if value is None:
        client.delete(key)
    else:
        client.set(key, value)


@pytest.mark.heavy
def test_acquires_follow_the_rules(client: redis.Redis[bytes]) -> None:
    """The fence for random counters, floors, ballots, blocks and times is exact, and stored in full."""
    random = Random(1)
    client.set(SENTINEL, EXPECTED)
    for _ in range(TRIES):
        now_us = some_time(random)
        stored, floor, ballot = stored_or_nothing(random, now_us), *(some_fence(random, now_us) for _ in "xx")
        put(client, COUNTER, stored)
        client.delete(LOCK)
        block = random.choice((1, 1, 2, random.randint(1, MAX_BLOCK), MAX_BLOCK))
        args = (OURS, TTL_MS, ballot, block, KEEP_MS, EXPECTED, floor, b"")
        reply = run_at(client, now_us, _scripts.ACQUIRE, KEYS, *args)
        now_ms = now_us // 1000
        fence = granted(reading(stored, floor=floor, now_ms=now_ms), ballot, now_ms, block)
        assert (reply, client.get(COUNTER)) == ([1, fence, now_us], b"%d" % fence), (stored, floor, *args)


@pytest.mark.heavy
def test_raises_follow_the_rules(client: redis.Redis[bytes]) -> None:
    """The answer, and the counter then: raised, refused, or above already."""
    random, answers = Random(2), set()
    client.set(SENTINEL, EXPECTED)
    client.set(LOCK, OURS)
    for _ in range(TRIES):
        now_us = some_time(random)
        stored, floor, fence = stored_or_nothing(random, now_us), *(some_fence(random, now_us) for _ in "xx")
        put(client, COUNTER, stored)
        reply = run_at(client, now_us, _scripts.RAISE, KEYS, OURS, fence, KEEP_MS, EXPECTED, floor, b"")
        after = raised(reading(stored, floor=floor, now_ms=now_us // 1000), fence, now_us // 1000)
        wanted = -2 if after is None else 1 if after == fence else -3
        kept = stored if after is None else after
        assert (reply, client.get(COUNTER)) == (wanted, None if kept is None else b"%d" % kept), (
            stored,
            floor,
            fence,
        )
        answers.add(reply)
    assert answers == {1, -2, -3}


def some_sentinel(random: Random, now_us: int, identity: bytes) -> bytes | None:
    """Return what may be under a sentinel's key."""
    if random.random() < 0.1:
        return random.choice((None, b"", b"2:newer"))
    return bytes(
        Sentinel(
            identity=random.choice((identity, identity, identity, b"x" * 80, b"-")),
            floor=random.choice((floor_at(now_us), some_fence(random, now_us))),
            ready_ms=random.choice((0, max(0, now_us // 1000 + random.randint(-200_000, 200_000)))),
            size=random.choice((5, 5, 5, 5, 3)),
            quarantine_ms=random.choice((0, 1, random.randrange(86_400_001))),
            closed_ms=random.choice((0, now_us // 1000 + random.randint(-200_000, 200_000))),
            claim=some_claim(random),
        )
    )


def some_claim(random: Random) -> Claim:
    """Return what may be in a sentinel, or a client's."""
    label = random.choice((b"", b"host:1", b"a %s: b", "ünï".encode()))
    return Claim(born_ms=random.choice((0, 1, 1 << 44)), how=random.choice((BY_INIT, BY_USE)), label=label)


@pytest.mark.heavy
def test_greetings_follow_the_rules(client: redis.Redis[bytes]) -> None:
    """The sentinel after a greeting at any time, over any sentinel before, is the same byte for byte."""
    random = Random(3)
    for _ in range(TRIES):
        now_us = some_time(random)
        identity = run_at(client, now_us, _scripts.GREET, [b"other"], b"", 5, 0, b"", 0, b"", 0)[3]
        stored = some_sentinel(random, now_us, identity)
        put(client, SENTINEL, stored)
        quarantine_ms = random.choice((0, 1, 60_000, random.randrange(86_400_001)))
        restart = random.choice((b"", stored or b"", EXPECTED))
        floor = random.choice((0, floor_at(now_us + random.randrange(-(10**9), 10**9))))
        claim = some_claim(random)
        lift = random.choice((0, floor_at(now_us + random.randrange(-(10**7), 10**7))))
        args = (b"nonce", 5, quarantine_ms, restart, floor, bytes(claim), lift)
        reply = run_at(client, now_us, _scripts.GREET, [SENTINEL], *args)
        wanted = greeted(
            stored,
            identity=identity,
            now_us=now_us,
            size=5,
            quarantine_ms=quarantine_ms,
            restart=restart,
            restart_floor=floor,
            claim=claim,
            lift=lift,
        )
        assert reply == [b"nonce", wanted, now_us, identity, b"master", b""], (stored, args)
        assert client.get(SENTINEL) == wanted


@pytest.mark.heavy
def test_initialisations_follow_the_rules(client: redis.Redis[bytes]) -> None:
    """The sentinel after it, too."""
    random = Random(4)
    identity = run_at(client, some_time(random), _scripts.GREET, [b"other"], b"", 5, 0, b"", 0, b"", 0)[3]
    for _ in range(TRIES):
        now_us = some_time(random)
        stored = some_sentinel(random, now_us, identity)
        put(client, SENTINEL, stored)
        floor = random.choice(
            (0, floor_at(now_us + random.randint(-(10**6), 10**6)), some_fence(random, now_us))
        )
        quarantine_ms, size = random.choice((0, 60_000, random.randrange(86_400_001))), random.choice((1, 5))
        reply = run_at(client, now_us, _scripts.INIT, [SENTINEL], size, quarantine_ms, floor, b"a %s: b")
        wanted = initialised(
            stored,
            identity=identity,
            now_us=now_us,
            size=size,
            quarantine_ms=quarantine_ms,
            floor=floor,
            label=b"a %s: b",
        )
        assert (reply, client.get(SENTINEL) or b"") == (wanted, wanted), (stored, quarantine_ms, floor)


@pytest.mark.heavy
def test_taking_back_follows_the_rules(client: redis.Redis[bytes]) -> None:
    """The sentinel after it, over any sentinel before, that was seen or not."""
    random = Random(5)
    identity = run_at(client, some_time(random), _scripts.GREET, [b"other"], b"", 5, 0, b"", 0, b"", 0)[3]
    for _ in range(TRIES):
        now_us = some_time(random)
        stored, claim = some_sentinel(random, now_us, identity), some_claim(random)
        put(client, SENTINEL, stored)
        seen = random.choice((stored, stored, stored, EXPECTED)) or b""
        quarantine_ms = random.choice((0, 60_000, random.randrange(86_400_001)))
        args = (b"nonce", 5, quarantine_ms, seen, bytes(claim), b"none:*", b"none:fence:{", b"none:leader:{")
        reply = run_at(client, now_us, _scripts.TAKE_BACK, [SENTINEL], *args)
        wanted = taken_back(
            stored,
            seen=seen,
            left_ms=0,
            identity=identity,
            now_us=now_us,
            size=5,
            quarantine_ms=quarantine_ms,
            claim=claim,
        )
        assert reply == [b"nonce", wanted, now_us, identity, b"master", b""], (stored, args)
        assert (client.get(SENTINEL) or b"") == wanted
