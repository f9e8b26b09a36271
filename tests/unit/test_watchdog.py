"""When the watchdog looks, and when it sleeps: leases just won, leases that have gone, and short ones."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

import pytest

from aioredlock_ng import ExtensionPolicy
from aioredlock_ng._hold.watchdog import TICK, Watchdog
from tests.unit.worlds import LATENCY, World, sim, virtual, world


def watchdog_of(w: World) -> Watchdog:
    """Return the watchdog of a world's manager."""
    session = w.manager._life.session
    assert session is not None
    return session.watchdog


@pytest.mark.parametrize("held_for", [0.0, 4 * TICK], ids=["fresh", "seen"])
@virtual
async def test_a_watchdog_sleeps_when_no_lease_is_left(held_for):
    """A released lease keeps it awake for a tick or two, however long it would have lived."""
    async with world() as w:
        lease = await w.manager.lock("a", ttl=86_400).acquire()
        await asyncio.sleep(held_for)
        assert watchdog_of(w).wakes_at <= sim().clock.now() + TICK
        await lease.release()
        await asyncio.sleep(3 * TICK)
        assert watchdog_of(w).wakes_at == math.inf
        assert not watchdog_of(w).fresh


@virtual
async def test_leases_that_come_and_go_do_not_wake_the_watchdog(monkeypatch):
    """The first one does; it then looks once a tick of its own accord, and finds each one gone."""
    woken: list[float] = []
    wake = Watchdog.wake
    monkeypatch.setattr(Watchdog, "wake", lambda self: (woken.append(sim().time()), wake(self)))
    async with world() as w:
        for _ in range(200):
            async with w.manager.lock("a"):
                pass
            await asyncio.sleep(TICK / 10)
        assert len(woken) == 1
        assert not watchdog_of(w).fresh


@pytest.mark.parametrize("ttl", [0.005, 0.02])
@virtual
async def test_the_shortest_leases_are_extended_in_time(ttl):
    """They are due long before the tick that the watchdog sleeps for, whether or not it has seen them."""
    async with world(latency=LATENCY / 20, node_timeout=0.001) as w, w.manager.lock("long"):
        await asyncio.sleep(1.7 * TICK)
        async with w.manager.lock("a", ttl=ttl, extension=ExtensionPolicy(grace=0.0)) as lease:
            await asyncio.sleep(TICK)
            assert lease.held
            assert lease.extensions > TICK / ttl


@dataclass(slots=True, eq=False)
class Looked:
    """What a watchdog looks at, once."""

    due: float
    at: list[float] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """As in `Watched`."""
        return bool(self.at)

    def look(self, now: float) -> None:
        """As in `Watched`."""
        self.at.append(now)

    def settle(self) -> None:
        """As in `Watched`."""


@virtual
async def test_what_was_won_before_the_watchdog_runs_is_looked_at_in_time():
    """It is not forgotten, and neither is what is due already."""
    clock = sim().clock
    watchdog = Watchdog(clock, lambda *_: None)
    late, soon = Looked(clock.now() - 1.0), Looked(clock.now() + 0.01)
    for each in (late, soon):
        watchdog.fresh[each] = None
        watchdog.wake()  # it does not sleep yet
    task = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0.02)
    assert late.at == pytest.approx([clock.now() - 0.019])
    assert soon.at == pytest.approx([clock.now() - 0.01])
    task.cancel()
    await asyncio.wait([task])
