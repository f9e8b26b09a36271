"""Locks that are asked for together have the votes, and leave the nodes, as if each had come alone (R42)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioredlock_ng import ExtensionPolicy, Lease, LockManager
from aioredlock_ng.testing import SimLoop
from tests.simulation.wires import WiredNode, revive
from tests.unit.worlds import LATENCY, make

SIZE: Final = 3

Step = tuple[str, int, int]
"""The action, its task or node, and its manner."""

TASK_STEPS: Final = ("acquire", "release", "extend", "cancel")

NODE_STEPS: Final[dict[str, Callable[[WiredNode], object]]] = {
    "crash": lambda master: master.crash(keep_data=True),
    "start": revive,
    "freeze": WiredNode.freeze,
    "thaw": WiredNode.thaw,
    "disconnect": WiredNode.disconnect,
    "forget": WiredNode.flush_scripts,
    "lose": lambda master: master.wires[0].break_before(),
}

PAUSES: Final = (0.0, LATENCY / 2, LATENCY, 2 * LATENCY, 3 * LATENCY, 0.03, 0.12, 0.6, 4.0)

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(TASK_STEPS), st.integers(0, 7), st.integers(0, 3)),
        st.tuples(st.sampled_from(("acquire", "acquire", "pass")), st.integers(0, 7), st.integers(0, 3)),
        st.tuples(st.sampled_from([*NODE_STEPS]), st.integers(0, SIZE - 1), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, len(PAUSES) - 1)),
    ),
    min_size=4,
    max_size=40,
)


def take_no_batches(node: Any) -> None:
    """Have a node refuse batches, whatever becomes of its connection."""
    become = node._become

    def refuse(*args: Any) -> None:
        become(*args)
        node.post = lambda *_: False

    node._become = refuse


@dataclass
class Play:
    """One run of the steps, and what was seen."""

    manager: LockManager
    masters: list[WiredNode]
    nodes: list[Any]
    seen: list[Any] = field(default_factory=list)
    tasks: dict[int, asyncio.Task[Any]] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)

    async def acquire(self, task: int, how: int) -> None:
        """Have a lock: a task of four names, with two ttls, for some time or at once."""
        lock = self.manager.lock(
            f"n{task % 4}", ttl=(3.0, 10.0)[how % 2], extension=ExtensionPolicy.off(), blocking_timeout=0.3
        )
        try:
            lease = await (lock.try_acquire() if how < 2 else lock.acquire())
        except BaseException as error:
            self.seen.append((task, "not acquired", type(error).__name__, str(error)))
            raise
        if lease is not None:
            self.leases[task] = lease
            holding = lease._holding
            self.seen.append((task, holding.owner, holding.fence, lease.valid_until, lease.votes))

    async def release(self, task: int, _how: int) -> None:
        """Give it back."""
        if (lease := self.leases.get(task)) is not None:
            self.seen.append((task, "released", await lease.release()))

    async def extend(self, task: int, _how: int) -> None:
        """Keep it."""
        if (lease := self.leases.get(task)) is not None and lease.held:
            try:
                await lease.extend()
            finally:
                self.seen.append((task, "extended", lease.valid_until, lease.held, lease.votes))

    def step(self, what: str, which: int, how: int) -> None:
        """Let something happen to a task or a node in this turn of the loop."""
        if what in NODE_STEPS:
            NODE_STEPS[what](self.masters[which])
        elif what == "cancel":
            if which in self.tasks:
                self.tasks[which].cancel()
        elif (which not in self.tasks or self.tasks[which].done()) and (
            what != "acquire" or which not in self.leases
        ):
            run = {"acquire": self.acquire, "release": self.release, "extend": self.extend}[what]
            self.tasks[which] = asyncio.create_task(run(which, how))

    def look(self) -> None:
        """Write down what the nodes have, and what is owed to them."""
        for master, node in zip(self.masters, self.nodes, strict=True):
            ledger = node._ledger
            # Until when depends on when a connection came back, which is a matter of chance for each node.
            owed, unresolved = sorted(ledger._releases), sorted(ledger.unresolved)
            found = [
                # A counter lives from its last use, which a release by itself is, too (R11).
                (key, master.get(key), None if b"fence:{" in key else master.ttl(key))
                for key in master.keys
                if not key.endswith((b"{meta}", b"{members}"))  # they name the process
            ]
            self.seen.append((found, owed, unresolved, node.status.state))


def played(script: list[Step], options: dict[str, Any], *, alone: bool) -> list[Any]:
    """Return what was seen: with batches, or with every lock asked for `alone`."""

    async def main() -> list[Any]:
        masters = [WiredNode(f"m{i}", latency=LATENCY) for i in range(SIZE)]
        manager = make(masters, holder="me", **options)
        nodes: list[Any] = [*manager._life.nodes]
        if alone:
            for node in nodes:
                take_no_batches(node)
        await manager.start()
        play = Play(manager, masters, nodes)
        for what, which, how in script:
            if what != "pass":
                play.step(what, which, how)
                continue
            await asyncio.sleep(PAUSES[how])
            play.look()
        for master in masters:
            revive(master)
            master.thaw()
        await asyncio.sleep(1.0)
        play.look()
        for task in play.tasks.values():
            task.cancel()
        await asyncio.gather(*play.tasks.values(), return_exceptions=True)
        await asyncio.gather(*(lease.release() for lease in play.leases.values()))
        await asyncio.sleep(2.0)
        play.look()
        await manager.aclose()
        play.look()
        return play.seen

    return SimLoop.run(main())


@pytest.mark.parametrize("examples", [20, pytest.param(200, marks=pytest.mark.heavy)])
def test_together_is_as_alone(examples: int) -> None:
    """Tasks ask, extend, give back and are cancelled while nodes come and go, and answers are lost."""

    @settings(max_examples=examples)
    @given(script=steps, fencing=st.booleans(), quarantine=st.sampled_from((0, 60)))
    def compare(script: list[Step], fencing: bool, quarantine: int) -> None:
        options = {"fencing": fencing, "restart_quarantine": quarantine}
        together, alone = (played(script, options, alone=alone) for alone in (False, True))
        assert all(one == other for one, other in zip(together, alone, strict=True))

    compare()
