"""One run: nodes, processes and faults on one virtual time, and its history.

run(draw(4711)).history
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aioredlock_ng._core.quorum import majority
from tests.simulation.client import Client
from tests.simulation.commands import (
    Held,
    Seat,
    client_of,
    command,
    holders,
    keys_and_owners,
    line,
    lock_keys,
    marks,
    owner_of,
    single_about,
)
from tests.simulation.faults import BreakAfter, BreakBefore, ClockStep, Relapse, WireFault
from tests.simulation.history import Claim, Effect, Happening, History, Operation, Remark
from tests.simulation.orphans import LOOK, UNDER_WAY, Orphans
from tests.simulation.plan import AnyFault, ClientPlan, Plan, wire_of
from tests.simulation.process_faults import ProcessFault
from tests.simulation.processes import BusyWaitError, Timeline
from tests.simulation.processes import run as run_processes
from tests.simulation.resources import Resources
from tests.simulation.wires import WiredNode, revive

AGREEABLE: Final = 9.0
"""Seconds that the clocks of nodes may be apart which agree on fences: 10 (R10), less what they drift."""

SEAT_LIFE: Final = 2.5
"""Seconds after which a node has dropped the seats of those that it hears no more of (R28)."""

SETTLING: Final = 0.5
"""Seconds after all clients are done in which the last answers come."""


@dataclass(slots=True)
class Run:
    """The result of a plan."""

    plan: Plan
    history: History
    counts: Counter[str]
    """Counts of the events."""
    digest: str
    """Of every command that a node executed and every operation: equal for equal runs."""


class World:
    """Everything of one run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.timeline = Timeline()
        self._began = self.timeline.now
        self.history = History(nodes=plan.nodes, clients=plan.processes)
        self.resources = Resources(self.history)
        self.counts: Counter[str] = Counter()
        self._set_back: dict[int, float] = {}  # since when a node has neither older data nor an older clock
        self._over = False  # what killed processes do while they are buried does not count
        self._digest = hashlib.blake2b(digest_size=16)
        self.nodes = [self._node(i) for i in range(plan.nodes)]
        for _ in range(self.history.clients):
            for node in self.nodes:
                node.wire()
        self.clients = {one.number: self._client(one) for one in plan.clients}
        self.timeline.watch(Orphans(self).look, every=LOOK)

    def _node(self, number: int) -> WiredNode:
        least, more = self.plan.latency
        rng = random.Random(f"{self.plan.seed} network {number}")
        node = WiredNode(
            f"node-{number}",
            latency=lambda: least + rng.expovariate(1 / more),
            clock_offset=self.plan.node_offsets[number],
            network=self.timeline,
        )
        node.set_clock_rate(self.plan.node_rates[number])
        execute = node.execute
        node.execute = lambda words, client=None: self._executed(number, node, words, execute, client)  # type: ignore[method-assign]
        return node

    def _client(self, plan: ClientPlan) -> Client:
        return Client(self, plan, [node.wires[wire_of(plan.number)] for node in self.nodes])

    # -- what is written down --------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The true time."""
        return self.timeline.now

    def leak(self, what: str) -> None:
        """Note what should not be there."""
        if not self._over:
            self.history.leaks.append(Remark(at=self.now, what=what))

    def complain(self, what: str) -> None:
        """Note what a process must not meet."""
        if not self._over:
            self.history.complaints.append(Remark(at=self.now, what=what))

    def record(self, operation: Operation) -> None:
        """Note an operation."""
        if self._over:
            return
        self.history.operations.append(operation)
        self.counts[f"{operation.kind} {operation.outcome}"] += 1
        if operation.mode != "lock":
            self.counts[f"{operation.mode}: {operation.kind} {operation.outcome}"] += 1
        self._digest.update(repr(operation).encode())

    def claim(self, claim: Claim) -> None:
        """Note a claim."""
        if not self._over:
            self.counts["readers together"] += not claim.alone and any(
                not other.alone and other.until > claim.since and set(other.names) & set(claim.names)
                for other in self.history.claims
            )
            self.counts["permits together"] += claim.slot is not None and any(
                other.slot is not None and other.until > claim.since and other.since < claim.until
                for other in self.history.claims
            )
            self.history.claims.append(claim)

    def _executed(self, number: int, node: WiredNode, words: list[bytes], execute: Any, client: Any) -> bytes:
        """Execute a command at a node, and write down what it changes at the keys of locks."""
        keys = lock_keys(words)
        before = [holders(node, key) for key in keys]
        answer: bytes = execute(words, client)
        self._digest.update(b"%.9f %d %b %b" % (self.now, number, b" ".join(words), answer))
        for key, old in zip(keys, before, strict=True):
            new = holders(node, key)
            if new != old:
                self._note_effects(
                    number, single_about(words, key, {seat.owner for seat in (*old, *new)}), key, old, new
                )
        return answer

    def _note_effects(
        self, number: int, words: list[bytes], key: bytes, old: dict[Seat, Held], new: dict[Seat, Held]
    ) -> None:
        """Write down what a command has changed for each holder of a lock."""
        owner, now = owner_of(words), self.nodes[number]._server.clock.now()
        if not old and any(seat.owner != owner for other in self.nodes for seat in holders(other, key)):
            self.counts["granted while another owner has it elsewhere"] += 1
        for seat in {**old, **new}:
            before, after = old.get(seat), new.get(seat)
            if before == after:
                continue
            had, has = (
                None if one is None or one.ends is None else one.ends - now for one in (before, after)
            )
            self.history.effects.append(
                Effect(
                    at=self.now,
                    node=number,
                    client=client_of(owner),
                    command=command(words),
                    owner=owner,
                    key=key,
                    before=None if before is None else seat.owner,
                    after=None if after is None else seat.owner,
                    ttl_before=had,
                    ttl_after=has,
                    shares=any(one is not None and one.shares for one in (before, after)),
                    slot=seat.slot,
                )
            )

    # -- its course ------------------------------------------------------------------------------

    def run(self) -> Run:
        """Let it happen."""
        plan = self.plan
        for fault in plan.faults:
            self.timeline.call_at(self._began + fault.at, self._strike, fault)
        try:
            self._pass(until=self._began + plan.duration)
            self._heal()
            deadline = self.now + plan.evening
            while self.now < deadline and any(not one.main.done() for one in self._living()):
                self._pass(until=self.now + SETTLING)
                if all(one.served for one in self._living()):
                    self._mend(self.nodes)
            if self.history.healed_at is not None:
                self._look_for_leftovers()
        except BusyWaitError as error:
            self.complain(str(error))
        finally:
            self._bury()
        self.history.ended = self.now
        self._digest.update(repr(self.history).encode())
        return Run(plan, self.history, self.counts, self._digest.hexdigest())

    def _pass(self, *, until: float) -> None:
        order = random.Random(f"{self.plan.seed} order {until}")
        run_processes(self.timeline, [one.process for one in self.clients.values()], order, until=until)

    def _living(self) -> Sequence[Client]:
        return [one for one in self.clients.values() if one.process.alive]

    def _strike(self, fault: AnyFault) -> None:
        ends = min(self.now + fault.lasts, self._began + self.plan.duration)
        node = client = None
        if isinstance(fault, ProcessFault):
            client = fault.client
            if client not in self.clients or not self.clients[client].process.alive:
                return
            fault.strike(self.clients[client], ends)
        else:
            node = fault.node
            if isinstance(fault, WireFault) and fault.client is not None:
                client = fault.client - wire_of(0)
            end = fault.begin(self.nodes)
            if not isinstance(fault, BreakBefore | BreakAfter):  # they wait for a command
                self.timeline.call_at(ends, end)
            since = self._set_back.get(fault.node, -math.inf)
            if isinstance(fault, Relapse):
                self._set_back[fault.node] = max(ends, since)
            elif (
                isinstance(fault, ClockStep) and fault.seconds < 0
            ):  # its keys live longer than the ledger repeats releases
                self._set_back[fault.node] = max(self.now, since) - fault.seconds
        self.counts[f"fault {type(fault).__name__}"] += 1
        self.history.happenings.append(
            Happening(
                at=self.now,
                until=ends if fault.lasts else None,
                node=node,
                client=client,
                what=in_words(fault),
            )
        )

    def _heal(self) -> None:
        """End what is wrong, but for a minority that stays down for now, and let all clients finish."""
        rng = random.Random(f"{self.plan.seed} last")
        most = len(self.nodes) - majority(len(self.nodes)) if self.plan.faults else 0
        few = rng.sample(self.nodes, rng.randint(0, most))
        self._mend([node for node in self.nodes if node not in few])
        for node in few:
            node.crash(keep_data=True)
        for client in self._living():
            client.go_home()
        if self._nodes_can_agree():
            self.history.healed_at = self.now
        else:
            self.counts["never healed: clocks too far apart"] += 1

    def _mend(self, nodes: Sequence[WiredNode]) -> None:
        for node in nodes:
            revive(node)
            node.thaw()
            node.refuse("")
            for wire in node.wires:
                wire.breaks.clear()
                wire.mend()

    def _nodes_can_agree(self) -> bool:
        """Whether a majority has about one time: else it may be unable to agree on a fence for ever (R10)."""
        times = sorted(node._server.clock.now() for node in self.nodes if node.answers)
        quorum = majority(len(self.nodes))
        spans = [last - first for first, last in zip(times, times[quorum - 1 :], strict=False)]
        return not self.plan.fencing or min(spans) < AGREEABLE

    def _look_for_leftovers(self) -> None:
        """See that ended clients leave nothing, and no key for longer than its ttl (R5, R6)."""
        for client in self._living():
            if not client.main.done() or client.main.exception() is not None:
                self.leak(f"client {client.number} has not come to its end: {client.main!r}")
                continue
            for task in asyncio.all_tasks(client.process.loop):
                self.leak(f"client {client.number} has left a task: {task!r}")
            self._count(client)
            for what in self.left_of(client.number):
                self.leak(what)
        self._look_for_the_undone()
        self.counts["stale write refused"] += sum(not write.accepted for write in self.history.writes)
        self._pass(until=self.now + self.plan.ttl * 1.1)
        for number, node in enumerate(self.nodes):
            for key, owner in keys_and_owners(node):
                self.leak(f"node {number} has {key!a} of client {client_of(owner)} beyond its ttl")
            for key, what in marks(node):
                if not self.excused(number):
                    self.leak(f"node {number} has the mark {what!a} at {key!a} beyond its second")
        if "fair" in self.plan.modes:
            self._look_for_lines()

    def _look_for_lines(self) -> None:
        """See that seats end (R28)."""
        self._pass(until=self.now + SEAT_LIFE)
        for number, node in enumerate(self.nodes):
            for name, client in line(node):
                if not self.excused(number, SEAT_LIFE):
                    self.leak(f"node {number} has client {client} in line for {name!r} beyond its life")

    def _look_for_the_undone(self) -> None:
        """See that what was granted to a try that was no win has been released, not left to expire (R5)."""
        won = {Seat(claim.owner, claim.slot) for claim in self.history.claims}
        winners = {seat.owner for seat in won}
        keys: Counter[Seat] = Counter()
        for effect in self.history.effects:
            seat = Seat(effect.owner, effect.slot)
            if seat not in won:
                keys[seat] += (effect.before is None) - (effect.after is None)
        for seat, left in keys.items():
            strays = seat.owner in winners
            self.counts[f"{'a stray slot' if strays else 'granted, not won, and'} released"] += left <= 0
            if left > 0 and not self.plan.faults:  # else a node may forget a key, or be out of reach for long
                client = client_of(seat.owner)
                self.leak(
                    f"{left} keys of a try of client {client} that did not win them were left to expire"
                )
        if not self.plan.faults:
            self._look_for_strays()

    def _look_for_strays(self) -> None:
        """See that slots beside the one that was won went back at once (R25)."""
        won = {claim.owner: claim for claim in self.history.claims if claim.slot is not None}
        given: dict[tuple[int, Seat], float] = {}
        for effect in self.history.effects:
            claim, place = won.get(effect.owner), (effect.node, Seat(effect.owner, effect.slot))
            if claim is None or effect.slot == claim.slot:
                continue
            if effect.before is None:
                given[place] = max(effect.at, claim.since)
            elif effect.after is None and effect.at > given[place] + UNDER_WAY:
                self.leak(
                    f"node {effect.node} had slot {effect.slot} of client {claim.client} beside another"
                )

    def left_of(self, client: int) -> list[str]:
        """Return in words what keys the nodes have that a client has made."""
        return [
            f"node {number} has {key!a} of client {client}"
            for number, node in enumerate(self.nodes)
            for key, owner in keys_and_owners(node)
            if client_of(owner) == client and not self.excused(number)
        ]

    def excused(self, node: int, life: float = 0.0) -> bool:
        """Whether a node may have keys that are not released: of older data, or of a clock set back."""
        return self.now < self._set_back.get(node, -math.inf) + max(life, 1.1 * self.plan.ttl)

    def _count(self, client: Client) -> None:
        self.counts.update(client.hooks.counts)
        statistics = client.statistics
        for what in ("certified", "raised", "uncertified", "topped_up", "quarantined", "steps"):
            self.counts[what] += getattr(statistics, what)

    def _bury(self) -> None:
        """End the loops: those of the killed, too, whose code must not run any more."""
        for client in self.clients.values():
            client.record.close()
        self._over = True
        for client in self.clients.values():
            loop = client.process.loop
            for node in self.nodes:
                node.wires[wire_of(client.number)].cut()
            for task in asyncio.all_tasks(loop):
                task.cancel()
                loop.set_exception_handler(lambda *_: None)
            while left := asyncio.all_tasks(loop):
                loop.run_until_complete(asyncio.wait(left, timeout=60.0))
            loop.close()


def run(plan: Plan) -> Run:
    """Run a plan."""
    return World(plan).run()


def in_words(fault: AnyFault) -> str:
    """Return a fault in words: its kind, and what is special about it."""
    fields = {
        name: getattr(fault, name)
        for name in fault.__dataclass_fields__
        if name not in ("at", "lasts", "node", "client")
    }
    shown = [
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in fields.items()
    ]
    return " ".join([type(fault).__name__, *shown])
