"""A batch is its locks one by one, in order and at one time: the same answers, the same keys then (R42)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.command import Script
from aioredlock_ng._node.pipe import untagged
from aioredlock_ng.testing._memory_data import NodeClock
from aioredlock_ng.testing._memory_server import MemoryServer
from tests.conformance.batches import KEYS, some_batch
from tests.conformance.conftest import RealMaster
from tests.conformance.rules import TAG, run_at, some_time
from tests.conformance.tools import kind_of
from tests.servers import EACH_ARM, Nodes, make_fresh

TRIES: Final = 400
TOLERANCE_MS: Final = 20_000


class Memory:
    """A master in memory, whose clock stands still."""

    def __init__(self) -> None:
        self.server = MemoryServer(lambda: 0, clock=NodeClock(lambda: 0.0), new_identity=lambda: "x" * 40)
        self.server.load_all()

    def run(self, script: Script, keys: Sequence[bytes], *args: bytes | int) -> Any:
        """Run a script."""
        words = [arg if isinstance(arg, bytes) else b"%d" % arg for arg in args]
        reader = hiredis.Reader()
        reader.feed(self.server.execute([b"EVALSHA", script.digest, b"%d" % len(keys), *keys, *words, TAG]))
        reply = reader.gets()
        return kind_of(str(reply)) if isinstance(reply, hiredis.ReplyError) else untagged(reply, TAG)


@given(st.randoms())
def test_a_batch_in_memory_is_its_locks_one_by_one(random: Random) -> None:
    """Whatever is under the keys, whatever is asked: to the last digit."""
    memory = Memory()
    entries, batch = some_batch(random, memory.server.time_us())
    ends = []
    for way in (batch.at_once, batch.one_by_one):
        memory.server.flush_all()
        for key, value, ttl in entries:
            if value is not None:
                stored = None if isinstance(value, str) else value
                memory.server.set(key, stored, None if ttl is None else ttl * 1000)
        ends.append((way(memory.run), memory.server.data))
        memory.server.data = {}
    assert ends[0] == ends[1]


def close(left: Any, right: Any) -> bool:
    """Return whether answers, or what is under keys, are equal, but for time that has passed."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(close, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right) < TOLERANCE_MS / 1000
    if isinstance(left, int) and isinstance(right, int) and 1000 < min(abs(left), abs(right)) < 10**9:
        return abs(left - right) < TOLERANCE_MS
    return type(left) is type(right) and left == right


def without_get(script: Script) -> Script:
    """Return a script whose SET fails where it is asked for what was there, as Redis 6.0 does."""
    return Script(script.name, script.source.replace(b"keep_ms, 'GET')", b"keep_ms, 'UNKNOWN')"))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "tells", [True, False], ids=["set tells what was there", "set does not, as in Redis 6.0"]
)
@pytest.mark.parametrize("arm", EACH_ARM)
def test_a_batch_is_its_locks_one_by_one(arm: str, tells: bool, shared_sets: Callable[[str], Nodes]) -> None:
    """The same on real servers, at times until 2248."""
    make_fresh(nodes := shared_sets(arm))
    random, seen = Random(5), Counter[str]()
    with contextlib.closing(RealMaster(nodes, 0)) as real:
        for _ in range(TRIES):
            now_us = some_time(random)
            entries, batch = some_batch(random, now_us)

            def run(script: Script, keys: Sequence[bytes], *args: bytes | int, now_us: int = now_us) -> Any:
                script = script if tells else without_get(script)
                return run_at(real, now_us, script, keys, *args)

            ends = []
            for way in (batch.at_once, batch.one_by_one):
                real.put(entries)
                ends.append((way(run), real.look(KEYS)))
            assert close(*ends), f"{batch}\nwith {entries}:\n{ends[0]}\n{ends[1]}"
            seen.update(f"{batch.what} {answer}" for answer in ends[0][0] if not isinstance(answer, list))
    assert {f"{what} WRONGTYPE" for what in ("acquire", "extend", "release")} <= set(seen)
    assert {f"extend {code}" for code in (1, 0, -1, 11, 10, 9)} <= set(seen)
    assert {"acquire no vote", "acquire 0", "release 1"} <= set(seen)
