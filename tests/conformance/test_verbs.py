"""The commands that scripts call, and their numbers, errors and replies: in memory as on real servers.

The scripts themselves are the same in both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest
import redis

from tests.conformance.masters import WRONG, Master, MemoryMaster, RealMaster, Value
from tests.conformance.tools import close, kind_of
from tests.servers import EACH_ARM
from tests.unit.tasks import virtual

STEPS: Final = 3000
KEYS: Final = (b"a", b"b", b"c")
MEMBERS: Final = (b"x", b"y", b"z", b"")
TTLS_MS: Final = (100_000, 200_000, 400_000)
"""Longer than a test takes, and further apart."""
CLOSE: Final = (40_000, 2 * TTLS_MS[-1])  # milliseconds that may pass, and what is a time

CALL: Final = b"return redis.call(unpack(ARGV))"


def kind(error: Exception) -> str:
    """Return the first word of an error; redis-py leaves out ``ERR``."""
    word = kind_of(str(error))
    return word if word.isupper() else "ERR"


def said_by(master: Master, *words: bytes) -> Any:
    """Send a command; return what is said, an error by its kind."""
    try:
        return master.raw(*words)
    except redis.ResponseError as error:
        return kind(error)


def some_value(random: Random) -> Value:
    """Return something that may be under a key."""
    members = [member for member in MEMBERS if random.random() < 0.6]
    return random.choice(
        (
            None,
            WRONG,
            b"%d" % random.randrange(10),
            b"text",
            {member: random.randrange(-5, 5) for member in members},
            {member: b"%d" % random.randrange(10) for member in members},
        )
    )


def some_command(random: Random) -> list[bytes]:
    """Return one of the commands that scripts call."""
    pick: Callable[..., bytes] = lambda *words: random.choice(words)  # noqa: E731
    key, member, ttl = pick(*KEYS), pick(*MEMBERS), b"%d" % random.choice(TTLS_MS)
    score, place = b"%d" % random.randrange(-5, 5), [b"%d" % random.choice((0, 0, 1, 2, -1)) for _ in "12"]
    options = random.choice(([], [b"PX", ttl], [b"NX"], [b"XX"], [b"NX", b"PX", ttl], [b"PX", ttl, b"GET"]))
    return random.choice(
        (
            [b"SET", key, member, *options],
            [b"SET", key, member, b"PX", pick(b"0", b"-1", b"1.5", b"1e3", b"")],
            [b"GET", key],
            [b"DEL", key, pick(*KEYS)],
            [b"PTTL", key],
            [b"PEXPIRE", key, pick(ttl, ttl, ttl, b"0", b"-5", b"1.5", b"x")],
            [b"TYPE", key],
            [b"ZADD", key, *random.choice(([], [], [b"NX"], [b"XX"])), pick(score, score, b"x"), member],
            [b"ZREM", key, member, pick(*MEMBERS)],
            [b"ZSCORE", key, member],
            [b"ZRANK", key, member],
            [pick(b"ZRANGE", b"ZREVRANGE"), key, *place, *random.choice(([], [b"WITHSCORES"]))],
            [b"ZREMRANGEBYSCORE", key, b"-inf", score],
            [b"HGET", key, member],
            [b"HSET", key, member, score],
            [b"HDEL", key, member, pick(*MEMBERS)],
            [b"PUBLISH", key, member],
            [b"PUBSUB", b"NUMSUB", key, pick(*KEYS)],
            [b"NOSUCH", key],
        )
    )


@pytest.fixture(params=EACH_ARM)
def real(request, shared_sets):
    """Give one empty real server."""
    with contextlib.closing(RealMaster(shared_sets(request.param), 0)) as master:
        yield master


def test_random_commands_do_the_same(real):
    """After each of them the answers and all keys are the same, whether a script or a client sends it."""

    @virtual
    async def play():
        random, both, done = Random(1), (MemoryMaster(), real), set()
        for number in range(STEPS):
            if random.random() < 0.15:
                entry = random.choice(KEYS), some_value(random) or None, random.choice((None, 100.0, 200.0))
                for master in both:
                    master.put([entry])
            command = some_command(random)
            words = command
            if command[0] not in (b"SET", b"GET", b"DEL", b"PTTL", b"TYPE") or random.random() < 0.7:
                words = [b"EVAL", CALL, b"0", *command]
            said, wanted = (said_by(master, *words) for master in both)
            assert close(said, wanted, *CLOSE), f"step {number}: {words}: in memory {said}, really {wanted}"
            states = [master.look(KEYS) for master in both]
            assert close(*states, *CLOSE), f"step {number}: {words}: {states}"
            done.add((command[0], isinstance(wanted, str) and wanted in ("ERR", "WRONGTYPE")))
        assert {verb for verb, failed in done if not failed} >= {b"ZADD", b"HSET", b"PEXPIRE", b"ZRANGE"}
        assert {verb for verb, failed in done if failed} >= {b"SET", b"GET", b"ZADD", b"NOSUCH", b"PEXPIRE"}

    play()


PROGRAMS: Final = [
    "return 3.99",
    "return -3.99",
    "return {1, 2, nil, 4}",
    "return {1, {2, {}}, false, true, 'x'}",
    "return {}",
    "return nil",
    "return false",
    "return true",
    "return {ok = 'FINE'}",
    "return {err = 'MINE it is wrong'}",
    "return redis.call('SET', 's', 1)",
    "return redis.call('GET', 'z')",
    "return redis.pcall('GET', 'z')",
    "return redis.pcall('GET', 'z').err",
    "return {pcall(redis.call, 'GET', 'z')}",
    "local ok, why = pcall(redis.call, 'GET', 'z'); return {tostring(ok), type(why), why.err}",
    "redis.call('SET', 's', 12345678901234567); return redis.call('GET', 's')",
    "redis.call('SET', 's', 1e15 + 0.5); return redis.call('GET', 's')",
    "redis.call('SET', 's', 2^53 - 1); return redis.call('GET', 's')",
    "redis.call('SET', 's', -7); return redis.call('GET', 's')",
    "return 'n' .. 2^53",
    "return 'n' .. 123456789012345",
    "return tostring(1700000000000 / 1000)",
    "return redis.call('ZSCORE', 'z', 'none')",
    "return redis.call('GET', 'none') == false and 'nothing' or 'nil'",
    "return redis.call('SET', 's', 1, 'NX')",
    "redis.call('SET', 's', 1, 'PX', 60000); return redis.call('PTTL', 's') > 50000",
    "return type(redis.call('TIME')[1])",
    "return type(redis.pcall('NOSUCH'))",
    "unknown = 1",
    "return unknown",
    "string.format = nil",
    "return #KEYS .. #ARGV .. KEYS[1] .. ARGV[2]",
    "return nil + 1",
    "error('mine')",
    "error({err = 'MINE it is wrong'})",
    "return unpack({1, 2})",
]


def test_scripts_are_answered_the_same(real):
    """Numbers, nil, statuses and errors on their way into a script and out of it."""

    @virtual
    async def ask():
        for lua in PROGRAMS:
            answers = []
            for master in (MemoryMaster(), real):
                master.flush()
                master.put([(b"z", {b"m": 1}, None)])
                answers.append(said_by(master, b"EVAL", lua.encode(), b"1", b"k", b"x", b"y"))
            assert answers[0] == answers[1], lua
            assert type(answers[0]) is type(answers[1]), lua

    ask()
