"""Scripts on a real server at a time that a test chooses, and numbers at which something could go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import redis

from aioredlock_ng._core.command import Script
from aioredlock_ng._core.fencing import FLOOR_AHEAD_MS, MAX_BLOCK, RAISE_AHEAD_MS, START_LAG_MS, at
from aioredlock_ng._node.pipe import untagged
from tests.conformance.tools import kind_of

TAG: Final = b"123"
"""What the scripts are told to begin their answers with."""

_CLOCK: Final = b"redis.call('TIME')"

_SPANS: Final = b"local MARK, AWAITED, TURN = 1000, 250, 25"

LAST_MS: Final = 2**43 - 20_000
"""The last millisecond whose fences fit a double, with room for what may be ahead of it."""


def source_at(script: Script, now_us: int, spans: tuple[int, int, int] | None = None) -> bytes:
    """Return a script that takes `now_us` for the time, and `spans` for those of a mark and a turn (ms)."""
    source = script.source.replace(_CLOCK, b"{'%d', '%d'}" % divmod(now_us, 1_000_000))
    if spans is None or b"MARK" not in source:
        return source
    assert _SPANS in source, script
    return source.replace(_SPANS, b"local MARK, AWAITED, TURN = %d, %d, %d" % spans)


def run_at(
    client: redis.Redis[bytes],
    now_us: int,
    script: Script,
    keys: Sequence[bytes],
    *args: bytes | int,
    spans: tuple[int, int, int] | None = None,
) -> Any:
    """Run a script at that time; an error is its kind."""
    source = source_at(script, now_us, spans)
    try:
        reply = client.execute_command("EVAL", source, len(keys), *keys, *args, TAG)
    except redis.ResponseError as error:
        return kind_of(str(error))
    return untagged(reply, TAG)


def some_time(random: Random) -> int:
    """Return some microsecond between 2026 and 2248."""
    first = 1_767_225_600_000
    now_ms = random.choice((first + random.randrange(10**9), random.randrange(first, LAST_MS), LAST_MS))
    return now_ms * 1000 + random.choice((0, 1, 500, 999))


def some_fence(random: Random, now_us: int) -> int:
    """Return a number that is close to a limit, or any that a double holds."""
    ahead_ms = random.choice((-START_LAG_MS, -1000, -1, 0, 1, RAISE_AHEAD_MS, FLOOR_AHEAD_MS))
    limit = at(now_us // 1000 + ahead_ms) + random.randint(-2, 2)
    return random.choice((limit, limit, limit, random.randrange(3), random.randrange(2**53 - MAX_BLOCK)))
