"""Validity is never overstated: a majority of real keys outlives every held lease by the drift (R3, R8).

Masters in memory behind links of random speed, under the shipping manager, on virtual time.  After
every event and every few milliseconds: the Q-th largest of the keys' real expiries is compared with
what the lease claims.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from aioredlock_ng import ExtensionPolicy, Lease, LockLostError, LockNotAcquiredError, QuorumUnavailableError
from aioredlock_ng.testing import MemoryNode, SimLoop
from tests.unit.worlds import make

KEY = b"redlock:res"
RIVAL = b"rival"

LOOK_EVERY = 0.003
"""Seconds between looks at the claim; events are looked at besides."""

REDIS_ROUNDS = 0.0005 + 1e-6
"""Seconds: an extension leaves a key alone whose PTTL, in whole milliseconds, is long enough.  That
half of a millisecond is what the drift's expiry precision pays for; an acquire needs none of it."""


def majority(size: int) -> int:
    """Return how many of the masters are a majority."""
    return size // 2 + 1


def drift(ttl: float) -> float:
    """Return what the Redlock page takes off a ttl."""
    return 0.01 * ttl + 0.002


@dataclass(frozen=True, kw_only=True)
class World:
    """One run: how fast each message travels, and what happens while the lease is held."""

    ttl: float
    node_timeout: float
    latencies: tuple[tuple[float, ...], ...]
    """For each master the seconds that its messages take one way, over and over."""
    rivals: tuple[float, ...] = ()
    """Seconds for which the first masters hold a rival's key at the beginning."""
    acts: tuple[tuple[Any, ...], ...] = ()
    every: float = 1 / 3
    seed: int = 0


@dataclass
class Watch:
    """Compares the lease's claim with the masters' keys; also a hook, so that it looks at every event."""

    world: World
    nodes: list[MemoryNode]
    lease: Lease | None = None
    ttls: set[float] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def on_extended(self, event: object) -> None:
        """Look at the claim in the very moment it moved."""
        self.counts["extended"] += 1
        self.look()

    def on_lost(self, event: object) -> None:
        """Count."""
        self.counts["lost"] += 1

    def real_expiries(self) -> list[float]:
        """Return when the lease's key ends on each master, latest first; never where it is not."""
        assert self.lease is not None
        owner = self.lease._holding.owner
        ends = []
        for node in self.nodes:
            value, expiry = node._server.data.get(KEY, (None, None))
            ends.append(expiry if value == owner and expiry is not None else -math.inf)
        return sorted(ends, reverse=True)

    def look(self) -> None:
        """Note a claim that goes beyond what a majority of the masters backs."""
        lease = self.lease
        if lease is None or not lease.held:
            return
        self.counts["looked"] += 1
        now = asyncio.get_running_loop().time()
        backed = self.real_expiries()[majority(len(self.nodes)) - 1]
        slack = REDIS_ROUNDS if lease.extensions else 1e-9
        claim = lease.valid_until + drift(min(self.ttls))
        if claim > backed + slack:
            self.violations.append(f"at {now:.6f}: {lease!r} claims {claim:.6f}, backed until {backed:.6f}")
        if now >= lease.valid_until:
            self.violations.append(f"at {now:.6f}: {lease!r} is held after {lease.valid_until:.6f}")

    async def look_on(self) -> None:
        """Look every few milliseconds."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY)


async def act(watch: Watch, lease: Lease, what: str, argument: Any) -> None:
    """Do one thing of a world's list."""
    if what == "sleep":
        await asyncio.sleep(argument)
    elif what == "extend":
        watch.ttls.add(argument or watch.world.ttl)
        try:
            await lease.extend(argument)
        except QuorumUnavailableError:
            watch.counts["unknown"] += 1
    else:
        getattr(watch.nodes[argument], what)()
    watch.look()


def live(world: World) -> Watch:
    """Run a world and return what was seen."""
    return SimLoop.run(_live(world))


async def _live(world: World) -> Watch:
    nodes = [MemoryNode(latency=partial(next, itertools.cycle(each))) for each in world.latencies]
    for node, seconds in zip(nodes, world.rivals, strict=False):
        node.set(KEY, RIVAL, seconds)
    watch = Watch(world, nodes, ttls={world.ttl})
    manager = make(
        nodes,
        seed=world.seed,
        ttl=world.ttl,
        node_timeout=world.node_timeout,
        connect_timeout=5.0,
        extension=ExtensionPolicy(every=world.every, grace=0.02),
        hooks=[watch],
    )
    looking = asyncio.create_task(watch.look_on())
    async with manager:
        try:
            lease = watch.lease = await manager.lock("res", blocking_timeout=2.0).acquire()
        except LockNotAcquiredError:
            watch.counts["not acquired"] += 1
        else:
            watch.counts["acquired"] += 1
            watch.look()
            with contextlib.suppress(LockLostError):
                for what in world.acts:
                    await act(watch, lease, *what)
                    lease.check()
            await lease.release()
            watch.look()
    looking.cancel()
    return watch


# -- random worlds -----------------------------------------------------------------------------------


def random_world(seed: int) -> World:
    """Return a world that is always the same one; rivals hold a minority at most, so the lock can be had."""
    draw = random.Random(seed)
    size = draw.choice([1, 2, 3, 3, 4, 5, 5, 5, 6, 7])
    slowest = draw.choice([0.002, 0.02, 0.03, 0.12, 0.3])
    acts = [
        lambda: ("sleep", draw.uniform(0.002, 1.0)),
        lambda: ("sleep", draw.uniform(0.002, 0.2)),
        lambda: ("extend", draw.choice([None, 0.4, 0.7, 1.5, 3.0])),
        *(lambda what=what: (what, draw.randrange(size)) for what in ("freeze", "thaw", "disconnect")),
    ]
    return World(
        ttl=draw.choice([0.35, 0.5, 1.0, 2.0]),
        node_timeout=draw.choice([0.05, 0.1, 0.2, 0.3]),
        latencies=tuple(
            tuple(draw.uniform(0, slowest) for _ in range(draw.randrange(1, 8))) for _ in range(size)
        ),
        rivals=tuple(draw.uniform(0, 3) for _ in range(size - majority(size))),
        acts=tuple(draw.choice(acts)() for _ in range(draw.randrange(20))),
        every=draw.choice([0.05, 1 / 3, 0.6]),
        seed=seed,
    )


@pytest.mark.campaign
def test_validity_is_backed_by_a_majority_of_real_keys() -> None:
    """Whatever the latencies, frozen masters and cut links: `valid_until` <= Q-th latest expiry − drift, in
    500 worlds, in which leases are won, refused, renewed, left unknown and lost.
    """
    total: Counter[str] = Counter()
    for world in map(random_world, range(500)):
        watch = live(world)
        assert watch.violations == [], world
        total += watch.counts
    assert total["acquired"] > 100, total
    for kind in ("looked", "not acquired", "extended", "unknown", "lost"):
        assert total[kind] > 10, total


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7])
def test_the_claim_is_tight(size: int) -> None:
    """With no latency at all nothing but the drift is given away: the claim is as long as it may be."""
    world = World(ttl=1.0, node_timeout=0.1, latencies=((0.0,),) * size, acts=(("sleep", 0.01),))
    watch = live(world)
    assert watch.counts["acquired"] == 1
    assert watch.violations == []
    assert watch.lease is not None
    assert watch.lease.valid_until == pytest.approx(1000.0 + 1.0 - drift(1.0))
