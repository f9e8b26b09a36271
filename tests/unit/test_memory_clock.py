"""A master in memory has a wall clock of its own, and comes back with what data a test likes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from aioredlock_ng._scripts import INSPECT
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_data import NodeClock
from aioredlock_ng.testing._memory_server import MemoryServer
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.unit.worlds import sim, virtual, world

KEY = b"redlock:a"
ACQUIRE = [b"SET", KEY, b"owner", b"NX", b"PX", b"10000"]


def clock_of(node: MemoryNode) -> float:
    """Return the time of day that a node's TIME tells."""
    _, _, seconds, _, microseconds, _ = node.execute([b"TIME"]).split(b"\r\n")
    return int(seconds) + int(microseconds) / 1_000_000


def facts_of(node: MemoryNode) -> dict[str, str]:
    """Return what INFO tells."""
    lines = node.execute([b"INFO"]).decode().split("\r\n")
    return dict(line.split(":") for line in lines if ":" in line)


def ahead(node: MemoryNode) -> float:
    """Return the seconds by which a node's clock differs from the true time of day, to the microsecond."""
    return round(clock_of(node) - EPOCH - sim().clock.now(), 6)


# -- the clock -----------------------------------------------------------------------------------


@virtual
async def test_a_clock_is_right_at_first() -> None:
    """Time passes on a node as on any clock, also while the client's machine is suspended."""
    node = MemoryNode()
    assert ahead(node) == 0
    node.execute(ACQUIRE)
    sim().advance(3.25)
    assert (ahead(node), node.ttl(KEY)) == (0, 6.75)
    sim().suspend(6.0)
    assert (ahead(node), node.ttl(KEY)) == (0, 0.75)
    sim().suspend(0.75)
    assert node.keys == ()


@virtual
async def test_a_clock_that_is_off_lets_keys_live_as_long() -> None:
    """A node an hour ahead or behind tells another time, but a ttl is a ttl."""
    for offset in (3600.0, -3600.0):
        node = MemoryNode(clock_offset=offset)
        assert ahead(node) == offset
        node.execute(ACQUIRE)
        sim().advance(9.999)
        assert node.get(KEY) == b"owner"
        sim().advance(0.002)
        assert node.get(KEY) is None
        assert ahead(node) == offset


@virtual
async def test_a_step_forward_ends_keys_early() -> None:
    """A node's clock is set forward: what would have ended by then is gone at once."""
    node = MemoryNode(clock_offset=5.0)
    node.execute(ACQUIRE)
    node.set(b"for ever", b"")
    node.step_clock(9.0)
    assert (ahead(node), node.ttl(KEY)) == (14.0, 1.0)
    node.step_clock(1.5)
    assert (ahead(node), node.keys) == (15.5, (b"for ever",))


@virtual
async def test_a_step_back_keeps_keys_longer() -> None:
    """A node's clock is set back: a key stays by as much."""
    node = MemoryNode()
    node.execute(ACQUIRE)
    node.step_clock(-60.0)
    assert (ahead(node), node.ttl(KEY)) == (-60.0, 70.0)
    sim().advance(69.5)
    assert node.keys == (KEY,)
    sim().advance(1.0)
    assert node.keys == ()


@virtual
async def test_a_rate_makes_a_clock_drift() -> None:
    """A clock at another rate does not jump; from then on it gains or loses, and keys end by it."""
    node = MemoryNode(clock_offset=1.0)
    node.execute(ACQUIRE)
    node.set_clock_rate(1.5)
    assert ahead(node) == 1.0
    sim().advance(4.0)
    assert (ahead(node), node.ttl(KEY)) == (3.0, 4.0)
    node.step_clock(-2.0)
    node.set_clock_rate(0.5)
    assert (ahead(node), node.ttl(KEY)) == (1.0, 6.0)
    sim().advance(8.0)
    assert (ahead(node), node.ttl(KEY)) == (-3.0, 2.0)
    node.set_clock_rate(1.0)
    sim().advance(1.9)
    assert (ahead(node), node.keys) == (-3.0, (KEY,))
    sim().advance(0.2)
    assert node.keys == ()


@virtual
async def test_a_clock_may_stand_still() -> None:
    """At rate 0 no key of a node ever ends."""
    node = MemoryNode()
    node.execute(ACQUIRE)
    node.set_clock_rate(0.0)
    sim().advance(3600.0)
    assert (ahead(node), node.ttl(KEY)) == (-3600.0, 10.0)


@virtual
async def test_a_clock_is_the_machines() -> None:
    """Neither a restart nor older data sets a node's clock right, nor does a freeze stop it."""
    node = MemoryNode(clock_offset=7.0)
    node.set_clock_rate(2.0)
    state = node.snapshot()
    node.freeze()
    sim().advance(1.0)
    node.restart(from_=state)
    assert ahead(node) == 8.0
    sim().advance(1.0)
    assert ahead(node) == 9.0


def test_a_command_takes_no_time() -> None:
    """As with Redis: whatever reads the clock in it, also twice, reads the same."""
    clock = NodeClock(map(float, itertools.count()).__next__)  # a second passes whenever it is read
    server = MemoryServer(lambda: 0, clock=clock, new_identity=str)
    server.execute([b"SET", b"key", b"value", b"PX", b"5000"])
    assert server.execute([b"PTTL", b"key"]) == b":4000\r\n"
    assert server.execute([b"PTTL", b"key"]) == b":3000\r\n"


@virtual
async def test_clocks_are_each_nodes_own() -> None:
    """Setting one node's clock leaves its neighbours' alone."""
    nodes = [MemoryNode(), MemoryNode(clock_offset=1.0)]
    nodes[0].step_clock(5.0)
    nodes[0].set_clock_rate(3.0)
    sim().advance(1.0)
    assert [ahead(node) for node in nodes] == [7.0, 1.0]


@virtual
async def test_impossible_clocks_are_refused() -> None:
    """A clock that goes backwards, or is set to no time at all, is a mistake in the test; nothing changes."""
    node = MemoryNode()
    for rate in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="rate"):
            node.set_clock_rate(rate)
    for seconds in (math.inf, math.nan):
        with pytest.raises(ValueError, match="number of seconds"):
            node.step_clock(seconds)
        with pytest.raises(ValueError, match="number of seconds"):
            MemoryNode(clock_offset=seconds)
    assert ahead(node) == 0


def test_a_rate_needs_a_now() -> None:
    """Outside of a loop there is no time from which on a clock could go at another rate: it says so."""
    node = MemoryNode("a")
    with pytest.raises(RuntimeError, match="clock of a goes by the running loop: call set_clock_rate in a"):
        node.set_clock_rate(2.0)
    with pytest.raises(ValueError, match=r"rate .*-1\.0"):
        node.set_clock_rate(-1.0)
    assert node.clock_rate == 1.0


@pytest.mark.parametrize(
    ("latency", "error"),
    [
        (-0.001, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        ("1", TypeError),
        (True, TypeError),
    ],
)
def test_impossible_latencies_are_refused(latency: Any, error: type[Exception]) -> None:
    """A message that arrives before it is sent, or never, is a mistake in the test."""
    with pytest.raises(error, match=f"latency .*{latency!r}|latency .*{latency}"):
        MemoryNode(latency=latency)
    for possible in (0, 0.5, lambda: 0.5):
        assert MemoryNode(latency=possible).latency is possible


# -- the data --------------------------------------------------------------------------------------


@virtual
async def test_what_a_crash_leaves() -> None:
    """A crash takes the data along unless told to keep it; what is kept goes on ageing meanwhile."""
    node = MemoryNode()
    for keep_data, left in ((False, ()), (True, (b"b", b"c"))):
        node.set(b"a", b"1", 1.0)
        node.set(b"b", b"2", 9.0)
        node.set(b"c", b"3")
        node.crash(keep_data=keep_data)
        sim().advance(2.0)
        node.restart()
        assert node.keys == left
    assert (node.get(b"b"), node.ttl(b"b"), node.ttl(b"c")) == (b"2", 7.0, None)
    node.restart()
    assert node.keys == ()


@virtual
async def test_a_restart_from_an_older_state() -> None:
    """What was written after the snapshot is forgotten, and what has expired since does not come back."""
    node = MemoryNode()
    node.set(b"a", b"1", 5.0)
    node.set(b"b", b"old")
    state = node.snapshot()
    for _ in range(2):  # the state can be used again
        node.set(b"b", b"new")
        node.set(b"c", b"3")
        node.crash(keep_data=True)
        node.restart(from_=state)
        assert (node.keys, node.get(b"b"), node.ttl(b"a")) == ((b"a", b"b"), b"old", 5.0)
    sim().advance(5.0)
    node.restart(from_=state)  # one that runs dies first
    assert node.keys == (b"b",)


@virtual
async def test_a_restart_is_another_process() -> None:
    """Every restart brings two new names, whatever data it has; INFO tells them, and so does `identity`."""
    node, seen = MemoryNode(), set()
    for restart in (lambda: node.crash(keep_data=True), node.crash, node.flush_scripts):
        restart()
        node.restart()
        assert node.identity == (facts_of(node)["run_id"], facts_of(node)["master_replid"])
        seen.update(node.identity)
    node.restart(from_=node.snapshot())
    seen.update(node.identity)
    assert len(seen) == 8
    assert all(len(name) == 40 and int(name, 16) for name in seen)


@virtual
async def test_a_flush_takes_the_data_only() -> None:
    """After FLUSHALL the process is the same, and connections and scripts are still there."""
    inspect = [b"EVALSHA", INSPECT.digest, b"2", KEY, KEY, b"9", b"tag"]
    async with world(3) as w:
        node = w.nodes[0]
        node.execute(ACQUIRE)
        assert b"owner" in node.execute(inspect)
        before = node.identity, list(node._connections)
        node.flush()
        assert node.keys == ()
        assert (node.identity, node._connections) == before
        assert before[1]
        assert node.execute(inspect) == b"*4\r\n$3\r\ntag\r\n$-1\r\n:-2\r\n$-1\r\n"
