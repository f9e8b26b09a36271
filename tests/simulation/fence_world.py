"""One run of the search: model nodes and clients under an adversary; one seed decides everything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

from aioredlock_ng._core.fencing import SHIFT
from aioredlock_ng._core.quarantine import NO_VOW, parse
from aioredlock_ng._core.quorum import majority

from .fence_client import Attempt, Client, Connection, Phase
from .fence_node import SIZES, Claim, ModelNode
from .fence_rules import KEEP_MS, SHIPPING, Rules

NAMES: Final = ("x", "y")

EPOCH_US: Final = 1_700_000_000_000_000
"""When every run begins; a run's own times count from here."""

HOUR_US: Final = 3_600_000_000

STEPS: Final = 250
"""Steps of one run, and as many for every two nodes more: an act, a fault, or a message that arrives."""

TRAITS: Final = (
    "several names",
    "clocks apart",
    "wall clocks apart",
    "wall clocks late",
    "contention",
    "hasty",
    "repeat",
)
"""What a run may be like, besides the kinds of faults that it has."""

UNTIMED: Final = ("expire a hold", "expire a name", "init", "ask for a longer quarantine")
"""Faults that end exclusion, by hand: off where it is checked."""


class ViolationError(Exception):
    """The search has found what must not be."""


class OrderError(ViolationError):
    """One fence twice, or fences against the order of time."""


class LawError(ViolationError):
    """A node's counter did not rise: no harm yet, but what the proof rests on is gone."""


class ExclusionError(ViolationError):
    """Two holders at one time."""


class World:
    """One run.

    Args:
        seed: decides everything else.
        rules: what is searched.
        timed: whether holds end by time alone, so that there must be one holder at a time.
        trace: whether to keep a record of all that happens, in `log`.
    """

    def __init__(
        self, seed: int, *, rules: Rules = SHIPPING, size: int, timed: bool = False, trace: bool = False
    ) -> None:
        self.random = draw = random.Random(f"{seed} {size} {timed}")
        self.rules = rules
        self.size = size
        self.timed = timed
        self.counts: Counter[str] = Counter()
        self.log: list[str] | None = [] if trace else None
        self.now_us = EPOCH_US
        self.steps = 0
        self.owners = 0
        self.later: list[tuple[int, Callable[[], None]]] = []
        """What the adversary will do, and at which step."""
        self.tokens: list[Connection] = []
        """One for every message that is under way; a connection's next message goes first."""
        share = draw.choice((0.15, 0.3, 0.5))
        self.kinds = [kind for kind in FAULTS if not (timed and kind in UNTIMED) and draw.random() < share]
        self.traits = {trait for trait in TRAITS if draw.random() < 1 / 2}
        self.replies_first = draw.choice((0.5, 0.9))
        self._fault_rate = draw.choice((0.005, 0.015, 0.04))
        self._act_rate = draw.choice((0.08, 0.15))
        self._idleness = draw.choice((0, 0.02, 0.1))
        self._tick_us = draw.choice((1, 100, 1000, 5000))
        self.ttl_ms = draw.choice((1000, 10_000, 60_000))
        wanted = self.ttl_ms if timed or draw.random() < 1 / 2 else 0
        self.quarantine_ms = rules.quarantine(wanted)
        self._won: dict[str, list[tuple[int, int, int]]] = {name: [] for name in NAMES}
        """For each name the fences that were made, with the steps of beginning and end."""
        self._rivals = ""
        self._held: dict[str, list[Attempt]] = {name: [] for name in NAMES}
        self.nodes = [
            ModelNode(rules, self.counts, size=size, offset_us=offset) for offset in self._clock_offsets()
        ]
        if not timed or draw.random() < 1 / 2:
            _init(self)
        self.clients = [self._client(number) for number in range(1, 2 + draw.randrange(1, 3))]

    def _clock_offsets(self) -> list[int]:
        draw = self.random
        spread = draw.choice((0, 1000, 5_000_000))
        offsets = [draw.randrange(-spread, spread + 1) for _ in range(self.size)]
        if "clocks apart" in self.traits and draw.random() < 1 / 2:
            far = draw.choice((15_000_000, 400_000_000, HOUR_US)) * draw.choice((-1, 1))
            offsets = [offset + far * (draw.random() < 1 / 3) for offset in offsets]
        return offsets

    def _client(self, number: int) -> Client:
        draw = self.random
        offset = 0
        if "wall clocks late" in self.traits:
            offset = -HOUR_US
        elif "wall clocks apart" in self.traits:
            offset = draw.choice((-HOUR_US, -10_000_000, 0, HOUR_US))
        return Client(self, number, wall_offset_us=offset, keep_ms=draw.choice(self.rules.keep_ms))

    @property
    def fences(self) -> int:
        """How many fences were made."""
        return sum(map(len, self._won.values()))

    @property
    def seconds(self) -> float:
        """Seconds since the run began: the clients' own, suspend-safe clock."""
        return (self.now_us - EPOCH_US) / 1_000_000

    def chance(self, trait: str) -> bool:
        """Say whether to do, now and then, what only some runs do."""
        return trait in self.traits and self.random.random() < 1 / 8

    def note(self, client: int, node: int, command: Callable[..., Any], args: object, reply: object) -> None:
        """Record what a node did."""
        if self.log is not None:
            clock = self.nodes[node].now_us
            self.log.append(
                f"{self.steps:4} {self.seconds:.6f} node {node} ({clock}) for client {client}:"
                f" {command.__name__}{args} -> {reply}"
            )

    # -- running -------------------------------------------------------------------------------

    def run(self, steps: int = 0) -> None:
        """Run to the end, or for so many steps; raises `ViolationError`."""
        steps = steps or STEPS * (self.size + 1) // 2
        self.now_us += self.random.choice((0, 3, 8, 15, 30, 2 * self.ttl_ms // 1000)) * 1_000_000
        draw = self.random.random
        for self.steps in range(1, steps + 1):
            self.now_us += 1 + int(draw() * self._tick_us)
            chance = draw()
            if self.later and self.later[0][0] <= self.steps:
                self.later.pop(0)[1]()
            elif chance < self._fault_rate:
                self._fault()
            elif chance < self._act_rate or not self.tokens:
                self._act(self.random.choice(self.clients))
            else:
                self._deliver()
        for node in self.nodes:
            if node.broken_law:
                raise LawError(node.broken_law)
        if self._rivals and self.timed:
            raise ExclusionError(self._rivals)

    def _deliver(self) -> None:
        tokens = self.tokens
        index = int(self.random.random() * len(tokens))
        tokens[index], tokens[-1] = tokens[-1], tokens[index]
        connection = tokens[-1]
        if connection.blocked_until <= self.steps:
            tokens.pop()
            connection.carry(self.nodes[connection.node])

    def put_off(self, what: Callable[[], None], steps: int) -> None:
        """Let the adversary do it after so many steps."""
        self.later = sorted([*self.later, (self.steps + steps, what)], key=itemgetter(0))

    def in_between(self, attempt: Attempt) -> None:
        """Give the adversary its chance while an attempt has not made its fence."""
        chance = self.random.random()
        if chance < 0.1 and "pause a client" in self.kinds:
            _pause(self, attempt.client)
        elif chance > 0.8 and "relapse" in self.kinds and attempt.phase is Phase.ASKING:
            _relapse(self, attempt.client)

    def _fault(self) -> None:
        if self.random.random() < 1 / 4:
            _keep(self)
        if self.kinds:
            kind = self.random.choice(self.kinds)
            if self.log is not None:
                self.log.append(f"{self.steps:4} {self.seconds:.6f} {kind}")
            FAULTS[kind](self)

    def _act(self, client: Client) -> None:
        draw, attempt = self.random.random, client.attempt
        if draw() < self._idleness:
            self.now_us += round(self.ttl_ms * 1000 * draw())
        if attempt is None:
            if draw() < (1 / 3 if "contention" in self.traits else 1 / 10) or not self._busy:
                self._begin(client)
        elif attempt.phase is Phase.HELD:
            chance = draw()
            if chance < 0.15:
                attempt.extend()
            elif chance < 0.3:
                attempt.end(attempt.fence)
            elif chance < 0.35:
                attempt.forget()
        elif client.paused_until < self.steps and draw() < (1 / 4 if "hasty" in self.traits else 1 / 20):
            attempt.impatient()
        for connection in client.connections:
            if not connection.greeting and (connection.vow is NO_VOW or draw() < 0.02):
                connection.greet(connection.vow.sentinel if self.chance("repeat") else b"")

    @property
    def _busy(self) -> bool:
        """Whether another attempt would be in the way of one that is under way, or held."""
        return any(client.attempt and client.paused_until < self.steps for client in self.clients)

    def _begin(self, client: Client) -> None:
        self.owners += 1
        if "several names" in self.traits:
            names = self.random.choice((("x",), ("y",), ("x", "y")))
        else:
            names = ("x",)
        if self.random.random() < 1 / 2:
            client.seen = 0  # not another attempt, but another acquisition
        owner = self.rules.new_owner(client.number, self.owners)
        client.begin(Claim(owner=owner, names=names, ttl_ms=self.ttl_ms, keep_ms=client.keep_ms))

    # -- checking ------------------------------------------------------------------------------

    def won(self, attempt: Attempt) -> None:
        """Check a fence against all others, and a holder against its rivals."""
        fence, began = attempt.fence, attempt.began
        if self.log is not None:
            self.log.append(f"{self.steps:4} {self.seconds:.6f} CERTIFIED {attempt.claim}: {fence}")
        for name in attempt.claim.names:
            for other, since, until in self._won[name]:
                if other == fence:
                    raise OrderError(f"{name}: {fence} twice, {since}..{until} and {began}..{self.steps}")
                if until < began and other > fence:
                    raise OrderError(f"{name}: {other} {since}..{until}, then {fence} {began}..{self.steps}")
            self._won[name].append((fence, began, self.steps))
            held = [other for other in self._held[name] if other.valid]
            self._held[name] = [*held, attempt]
            if held and attempt.valid:
                self.counts["two holders at once"] += 1
                self._rivals = f"{name}: two holders at step {self.steps}, {held[0].claim}, {attempt.claim}"


# -- faults ----------------------------------------------------------------------------------------


def _node(world: World) -> ModelNode:
    node = world.random.choice(world.nodes)
    node.look(world.now_us)
    return node


def _expire_hold(world: World) -> None:
    _node(world).data.holds.pop(world.random.choice(NAMES), None)


def _expire_name(world: World) -> None:
    name = world.random.choice(NAMES)
    for node in world.nodes:
        node.data.holds.pop(name, None)


def _pass_time(world: World) -> None:
    world.now_us += round(world.ttl_ms * 1000 * world.random.choice((0.1, 0.5, 0.99, 1.0, 1.02)))


def _pass_long(world: World) -> None:
    """Let time pass until counters expire, to the moment or a little later."""
    world.now_us += KEEP_MS * 1000 + world.random.choice((0, 1000, 1_000_000, 100_000_000))


def _pass_short(world: World) -> None:
    """Let nearly as much time pass, so that some counters do and some do not."""
    world.now_us += world.random.choice((10_000_000, 12_000_000, 100_000_000, KEEP_MS * 1000 - 1_000_000))


def _cut(world: World) -> None:
    client = world.random.choice(world.clients)
    client.reconnect(world.random.randrange(world.size), late=False)


def _cut_late(world: World) -> None:
    client = world.random.choice(world.clients)
    node = world.random.randrange(world.size)
    client.connections[node].blocked_until = world.steps + world.random.randrange(1, 100)
    client.reconnect(node, late=True)


def _partition(world: World) -> None:
    until = world.steps + world.random.randrange(1, 100)
    client = world.random.choice(world.clients)
    for connection in client.connections:
        if world.random.random() < 1 / 2:
            connection.blocked_until = until


def _freeze(world: World) -> None:
    until = world.steps + world.random.randrange(1, 100)
    node = world.random.randrange(world.size)
    for client in world.clients:
        client.connections[node].blocked_until = until


def _pause(world: World, client: Client | None = None) -> None:
    """Let all messages of a client wait, and its holds end."""
    client = client or world.random.choice(world.clients)
    until = client.paused_until = world.steps + world.random.randrange(10, 120)
    for connection in client.connections:
        connection.blocked_until = until
    if not world.timed and client.attempt is not None:
        for node in world.nodes:
            for name in client.attempt.claim.names:
                node.data.holds.pop(name, None)


def _relapse(world: World, client: Client | None = None) -> None:
    """Pause a client, let others go on, and bring a node back to the state that the client knows."""
    client = client or world.random.choice(world.clients)
    node = world.random.choice(world.nodes)
    if client.attempt is not None and client.attempt.granted:
        node = world.nodes[world.random.choice(client.attempt.granted)]
    kept = node.data.copy()
    _pause(world, client)

    def relapse() -> None:
        node.restart(kept)
        _restarted(world, node)

    for connection in client.connections:
        connection.blocked_until += 40
    world.put_off(relapse, client.paused_until + world.random.randrange(40) - world.steps)


def _restarted(world: World, node: ModelNode) -> None:
    for connection in world.tokens:
        if world.nodes[connection.node] is node:
            connection.requests.clear()  # of connections that were cut before: no connection survives
    number = world.nodes.index(node)
    for client in world.clients:
        client.reconnect(number, late=False)


def _restart_empty(world: World) -> None:
    node = _node(world)
    node.restart()
    _restarted(world, node)


def _keep(world: World) -> None:
    for node in world.nodes:
        node.look(world.now_us)
        node.keep()


def _restart_old(world: World) -> None:
    """Restart with an older state, one that still knows of an attempt under way if there is one."""
    node = _node(world)
    under_way = {client.attempt.claim.owner for client in world.clients if client.attempt}
    known = [data for data in node.kept if any(owner in under_way for owner, _ in data.holds.values())]
    node.restart(world.random.choice(known or node.kept or (node.data,)))
    _restarted(world, node)


def _restart_most(world: World) -> None:
    """Restart a majority, as a power failure does: empty, or with what the disks have."""
    for node in world.random.sample(world.nodes, majority(world.size)):
        node.look(world.now_us)
        node.restart(world.random.choice((None, world.random.choice((*node.kept, node.data)))))
        _restarted(world, node)


def _flush(world: World) -> None:
    _node(world).flush()


def _flush_all(world: World) -> None:
    for node in world.nodes:
        node.flush()


def _restart_client(world: World) -> None:
    world.random.choice(world.clients).restart()


def _push(world: World) -> None:
    connection = world.random.choice(world.random.choice(world.clients).connections)
    connection.greet(connection.vow.sentinel)


def _longer(world: World) -> None:
    world.random.choice(world.clients).terms.adopt(2 * world.ttl_ms)


def _init(world: World) -> None:
    """State that no lock can be alive, whether it is true or not: each its own floor, then all the greatest."""
    floors = []
    for node in world.nodes:
        node.look(world.now_us)
        known = parse(node.initialise(world.quarantine_ms, 0))
        floors.append(known.floor if known else 0)

    def agree() -> None:
        for node in world.nodes:
            node.look(world.now_us)
            node.initialise(world.quarantine_ms, max(floors))

    if world.random.random() < 1 / 4:
        world.put_off(agree, world.random.randrange(1, 60))
    else:
        world.now_us += min((max(floors) - min(floors) >> SHIFT) + 1, 5000) * 1000
        agree()


FAULTS: Final[dict[str, Callable[[World], None]]] = {
    "expire a hold": _expire_hold,
    "expire a name": _expire_name,
    "pass time": _pass_time,
    "pass a long time": _pass_long,
    "pass less": _pass_short,
    "cut": _cut,
    "cut, and come late": _cut_late,
    "partition": _partition,
    "freeze": _freeze,
    "pause a client": _pause,
    "relapse": _relapse,
    "restart empty": _restart_empty,
    "restart with an older state": _restart_old,
    "restart most": _restart_most,
    "flush": _flush,
    "flush all": _flush_all,
    "restart a client": _restart_client,
    "push": _push,
    "ask for a longer quarantine": _longer,
    "init": _init,
}

assert SIZES, "there is something to search"
