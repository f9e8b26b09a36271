"""A master in memory has a wall clock of its own, and comes back with what data a test likes."""

from __future__ import annotations

import math

import pytest

from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing.sim_loop import EPOCH
from tests.unit.tasks import sim

KEY = b"redlock:a"
ACQUIRE = [b"SET", KEY, b"owner", b"NX", b"PX", b"10000"]


def clock_of(node: MemoryNode) -> float:
    """Return the time of day that a node's TIME tells."""
    _, _, seconds, _, microseconds, _ = node.execute([b"TIME"]).split(b"\r\n")
    return int(seconds) + int(microseconds) / 1_000_000


def ahead(node: MemoryNode) -> float:
    """Return the seconds by which a node's clock differs from the true time of day, to the microsecond."""
    return round(clock_of(node) - EPOCH - sim().clock.now(), 6)


# -- the clock -----------------------------------------------------------------------------------


Step = tuple[str, float, float, float | None]

STORIES: dict[str, tuple[float, list[Step]]] = {
    "a clock is right at first, also while the machine is suspended": (
        0, [("advance", 3.25, 0, 6.75), ("suspend", 6, 0, 0.75), ("suspend", 0.75, 0, None)],
    ),
    "one that is ahead lets keys live as long": (
        3600, [("advance", 9.999, 3600, 0.001), ("advance", 0.002, 3600, None)],
    ),
    "so does one that is behind": (
        -3600, [("advance", 9.999, -3600, 0.001), ("advance", 0.002, -3600, None)],
    ),
    "a step forward ends keys early": (5, [("step_clock", 9, 14, 1), ("step_clock", 1.5, 15.5, None)]),
    "a step back keeps them longer": (
        0, [("step_clock", -60, -60, 70), ("advance", 69.5, -60, 0.5), ("advance", 1, -60, None)],
    ),
    "at another rate a clock does not jump, but drifts, and keys end by it": (
        1, [
            ("set_clock_rate", 1.5, 1, 10), ("advance", 4, 3, 4), ("step_clock", -2, 1, 6),
            ("set_clock_rate", 0.5, 1, 6), ("advance", 8, -3, 2), ("set_clock_rate", 1, -3, 2),
            ("advance", 1.9, -3, 0.1), ("advance", 0.2, -3, None),
        ],
    ),
    "at rate 0 no key ever ends": (0, [("set_clock_rate", 0, 0, 10), ("advance", 3600, -3600, 10)]),
    "a restart does not set it right, nor does a freeze stop it": (
        7, [("set_clock_rate", 2, 7, 10), ("freeze", 0, 7, 10), ("advance", 1, 8, 8), ("restart", 0, 8, None),
            ("advance", 1, 9, None)],
    ),
}  # fmt: skip
"""By how much the clock is ahead at first; what is done, by how much it is ahead then, and the key's ttl."""


@pytest.mark.parametrize("story", STORIES)
async def test_stories(story: str) -> None:
    """Each node's clock is its own: another one goes on as it was, and so does a key without an end."""
    offset, steps = STORIES[story]
    node, other = MemoryNode(clock_offset=offset), MemoryNode(clock_offset=1.0)
    node.execute(ACQUIRE)
    for what, how, off, ttl in steps:
        does = getattr(sim() if what in ("advance", "suspend") else node, what)
        does() if what in ("freeze", "restart") else does(how)
        assert (ahead(node), ahead(other)) == (off, 1.0), what
        assert node.ttl(KEY) == (ttl if ttl is None else pytest.approx(ttl)), what
        assert (node.get(KEY) is None) == (ttl is None)


async def test_impossible_clocks_are_refused() -> None:
    """A clock that goes backwards, or is set to no time at all, is a mistake in the test; nothing changes."""
    node = MemoryNode()
    for rate in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="rate"):
            node.set_clock_rate(rate)
    for seconds in (math.inf, math.nan):
        for use in (node.step_clock, lambda offset: MemoryNode(clock_offset=offset)):
            with pytest.raises(ValueError, match="number of seconds"):
                use(seconds)
    assert ahead(node) == 0


# -- the data --------------------------------------------------------------------------------------


async def test_what_a_crash_leaves() -> None:
    """A crash takes the data along unless it keeps them; what is kept goes on ageing meanwhile."""
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


async def test_a_restart_from_an_older_state() -> None:
    """Writes after the snapshot are forgotten; a key that has expired since does not come back."""
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
