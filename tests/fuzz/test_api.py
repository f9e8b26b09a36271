"""The public API against a simple model: whatever is called in whatever order, while nodes come and go."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aioredlock_ng import LossReason, QuorumUnavailableError
from aioredlock_ng.testing import lose
from tests.fuzz.model import check_error
from tests.fuzz.profile import no_hurry, profile
from tests.fuzz.world import LONGEST, TTL, Shape, World

pytestmark = no_hurry

NAMES = ("a", "b", "c")

names = st.one_of(
    st.sampled_from(NAMES).map(lambda name: (name,)),
    st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True).map(tuple),
)
ttls = st.sampled_from([0.5, 1.0, TTL, TTL, LONGEST])
indexes = st.integers(0, 10)
shapes = st.builds(
    Shape,
    size=st.sampled_from([1, 2, 3, 3, 4, 5]),
    fenced=st.booleans(),
    quarantine=st.sampled_from([0.0, LONGEST]),
    extends=st.booleans(),
    on_lost=st.sampled_from(["cancel", "raise"]),
    latency=st.sampled_from([0.0, 0.001, 0.02]),
)


class Api(RuleBasedStateMachine):
    """Several processes that lock, extend, lose and release; nothing happens to the nodes here."""

    world: World | None = None

    @initialize(shape=shapes)
    def begin(self, shape: Shape) -> None:
        """Open the world."""
        self.world = World(shape)

    @property
    def w(self) -> World:
        """The world."""
        assert self.world is not None
        return self.world

    def pick(self, things: list[Any], index: int) -> Any:
        """Pick one of what there is."""
        return things[index % len(things)]

    def teardown(self) -> None:
        """End in order: see `World.end`."""
        if self.world is not None:
            try:
                self.world.end()
            finally:
                self.world.close()

    # -- acquiring -----------------------------------------------------------------------------

    @rule(
        at=indexes, names=names, ttl=ttls, how=st.sampled_from(["wait", "wait", "ever"]), body=st.booleans()
    )
    def acquire(self, at: int, names: tuple[str, ...], ttl: float, how: str, body: bool) -> None:
        """Begin to wait for a lock; it may be had at once, later, or never."""
        self.w.call(self.pick(self.w.processes, at), names, ttl, how=how, body=body)
        self.w.pass_time(0.1)

    @rule(at=indexes, names=names, ttl=ttls, how=st.sampled_from(["once", "try"]))
    def attempt(self, at: int, names: tuple[str, ...], ttl: float, how: str) -> None:
        """Try once; where nothing is in the way, that must succeed."""
        process = self.pick(self.w.processes, at)
        free = self.w.free(process, names)
        call = self.w.call(process, names, ttl, how=how, body=False)
        self.w.pass_time(1.0)
        assert call not in self.w.calls, "a single try ends within its time"
        assert call.grant is not None or not free, f"{names} were free"

    @precondition(lambda self: self.w.calls)
    @rule(index=indexes)
    def cancel(self, index: int) -> None:
        """Cancel a task that waits, or is inside."""
        call = self.pick(self.w.calls, index)
        call.cancelled = True
        call.task.cancel()
        self.w.pass_time(0.2)

    @rule(at=indexes, names=names, after=st.sampled_from([0, 0.0005, 0.001, 0.0015, 0.003, 0.05]))
    def acquire_and_cancel(self, at: int, names: tuple[str, ...], after: float) -> None:
        """Cancel an acquire while its commands are on their way."""
        call = self.w.call(self.pick(self.w.processes, at), names, TTL, how="wait", body=True)
        self.w.pass_time(after)
        if call in self.w.calls:
            call.cancelled = True
            call.task.cancel()
            self.w.pass_time(0.2)

    # -- holding -------------------------------------------------------------------------------

    @precondition(lambda self: self.w.leases)
    @rule(index=indexes, ttl=st.none() | ttls)
    def extend(self, index: int, ttl: float | None) -> None:
        """Extend, for longer or for shorter: validity never gets shorter by it."""
        grant = self.pick(self.w.leases, index)
        before = grant.lease.valid_until
        grant.ttls.append(ttl or max(grant.ttls))
        error = self.w.ends_in(grant.lease.extend(ttl))
        if error is not None:
            check_error(error, grant.lease.names)
            if isinstance(error, QuorumUnavailableError):
                assert grant.lease.held, error
            else:  # from its deadline on a lease is lost, though validity lasts for a grace
                assert grant.lease.lost.is_set() or not grant.lease.held, error
        else:
            assert grant.lease.held
            assert grant.lease.valid_until >= before

    @precondition(lambda self: self.w.leases)
    @rule(index=indexes, wait=st.booleans())
    def release(self, index: int, wait: bool) -> None:
        """Release, or be cancelled at it: the releases leave in any case."""
        grant = self.pick(self.w.leases, index)
        task = self.w.loop.create_task(grant.lease.release())
        self.w.pass_time(0)
        self.w.model.forget(grant)
        if not wait:
            task.cancel()
        self.w.pass_time(0.2)
        assert not grant.lease.held
        if task.done() and not task.cancelled():
            report = task.result()
            assert [one.node for one in report.nodes] == [node.name for node in self.w.nodes]

    @precondition(lambda self: self.w.leases)
    @rule(index=indexes)
    def drop(self, index: int) -> None:
        """Drop a lease without releasing it: that warns, and it is released all the same."""
        grant = self.pick(self.w.leases, index)
        grant.call.grant = None
        self.w.model.forget(grant)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            released = grant.lease._holding.released
            grant.call.task = grant.lease = None
            gc.collect()
            assert released or [one.category for one in warned] == [ResourceWarning]
        self.w.pass_time(0.2)

    @precondition(lambda self: any(call.grant and call.orders for call in self.w.calls))
    @rule(index=indexes, how=st.sampled_from(["end", "raise"]))
    def end_body(self, index: int, how: str) -> None:
        """Let a body end, in order or with an error of its own."""
        call = self.pick([call for call in self.w.calls if call.grant and call.orders], index)
        if not call.orders.done():
            call.orders.set_result(how)
        self.w.pass_time(0.2)

    @precondition(lambda self: self.w.model.grants)
    @rule(index=indexes, reason=st.sampled_from([LossReason.REFUSED, LossReason.EXPIRED]))
    def lose(self, index: int, reason: LossReason) -> None:
        """Take a lease away from its holder, which must hear of it once."""
        grant = self.pick(self.w.model.grants, index)

        async def take() -> None:
            lose(grant.call.process.manager, grant.lease.name, reason)

        if grant.lease.held and not grant.lease.lost.is_set():
            self.w.run(take())
            assert grant.lease.lost.is_set()
            assert not grant.lease.held
        self.w.pass_time(0)

    # -- looking, closing, time ----------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0005, 0.02, 0.3, 1.0, TTL * 0.97, TTL * 1.1, 2 * LONGEST]))
    def advance(self, seconds: float) -> None:
        """Let time pass: a moment, to the deadline, past the ttl."""
        self.w.pass_time(seconds)

    @rule(at=indexes)
    def close_and_open(self, at: int) -> None:
        """Let a process end in order, and another one begin."""
        process = self.pick(self.w.processes, at)
        self.w.run(process.manager.aclose())
        self.w.run(process.manager.aclose())
        for grant in [grant for grant in self.w.model.grants if grant.call.process is process]:
            assert not grant.lease.held
            self.w.model.forget(grant)
        self.w.pass_time(0)
        assert not [call for call in self.w.calls if call.process is process and not call.grant]
        self.w.processes.remove(process)
        self.w.open()
        self.w.reap()

    @invariant()
    def all_holds(self) -> None:
        """After every step: see the model."""
        if self.world is not None:
            self.w.inside(self.look)
            assert not self.w.stray, self.w.stray

    def look(self) -> None:
        """Look at everything."""
        self.w.model.check()
        for process in self.w.processes:
            self.w.model.check_statistics(process)


@pytest.mark.campaign
def test_no_order_of_calls_breaks_a_promise() -> None:
    """Any calls by any process in any order, over nodes that live: exclusion, fences, validity, figures and
    errors are as the model says, a free lock is had at the first try, and nothing is left behind.
    """
    run_state_machine_as_test(Api, settings=profile(45, stateful_step_count=40))
