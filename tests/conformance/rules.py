"""Scripts at a time that a test chooses, and numbers at which something could go wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from random import Random
from typing import Any, Final

import redis

from aioredlock_ng._core.command import Script
from aioredlock_ng._core.fencing import FLOOR_AHEAD_MS, MAX_BLOCK, RAISE_AHEAD_MS, START_LAG_MS, at
from aioredlock_ng._node.pipe import without_request_id
from tests.conformance.masters import Master, MemoryMaster, RealMaster
from tests.conformance.tools import kind_of
from tests.servers import SharedSets

TAG: Final = b"123"
"""The tag with which scripts begin their answers."""

_CLOCK: Final = b"redis.call('TIME')"

LAST_MS: Final = 2**43 - 20_000
"""The last millisecond whose fences fit a double, with room for what may be ahead of it."""


@contextmanager
def one_of(arm: str, shared_sets: SharedSets) -> Iterator[Master]:
    """Give one empty master: in memory, or of an arm of real servers."""
    if arm == "memory":
        yield MemoryMaster()
        return
    with closing(RealMaster(shared_sets(arm), 0)) as master:
        yield master


def run_at(master: Master, now_us: int, script: Script, keys: Sequence[bytes], *args: bytes | int) -> Any:
    """Run a script that takes `now_us` for the time; an error is its kind."""
    source = script.source.replace(_CLOCK, b"{'%d', '%d'}" % divmod(now_us, 1_000_000))
    words = [arg if isinstance(arg, bytes) else b"%d" % arg for arg in args]
    try:
        reply = master.raw(b"EVAL", source, b"%d" % len(keys), *keys, *words, TAG)
    except redis.ResponseError as error:
        return kind_of(str(error))
    return without_request_id(reply, TAG)


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
