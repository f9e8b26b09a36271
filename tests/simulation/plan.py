"""The plan that one seed decides: the nodes, the processes, their work, and everything that goes wrong.

Each part is drawn from a stream of its own, and faults are drawn as a list: leaving out a client or a fault
leaves all the rest as it was, so that a failing run can be made smaller.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tests.simulation import faults as f
from tests.simulation.history import Mode
from tests.simulation.process_faults import Cancel, Kill, ProcessFault, Stop, Suspend, WallStep
from tests.simulation.wires import WiredNode
from tests.unit.traces import PREFIX

SIZES: Final = (1, 2, 3, 3, 3, 4, 5, 5, 5, 7)
"""Numbers of nodes, the usual ones more often."""

MAX_FAULTS: Final = 12

UNDISTURBED: Final = 0.15
"""Share of the runs without any fault: there nothing may be left to expire."""

STORMY: Final = 0.2
"""Share of the runs with many faults of few kinds."""

UNTIMED_EVERY: Final = 4
"""In one run of this many clocks jump and keys are evicted: there only fences protect (A1, A2)."""

MIXES: Final[tuple[tuple[Mode, ...], ...]] = (
    ("lock",),
    ("lock",),
    ("read", "write", "lock"),
    ("read", "read", "read", "write"),
    (*("read",) * 8, "write"),
    ("read", "read", "write", "write", "write", "lock"),
)
"""As what the calls of a run want their names; those of a third of the runs by `LockManager.lock` alone."""

POOL: Final = "pool"
"""The semaphore of a run."""

PERMITS: Final = (1, 2, 2, 3, 3, 4)
"""Numbers of its permits."""

SHARING: Final = 0.35
"""Share of the runs in which calls want permits; in half of these nothing else."""

IN_LINE: Final = 0.3
"""Share of the runs in which calls want fair locks; in half of these plain ones, too, of the same names."""

FEWER: Final = 0.25
"""Share of the clients for which it may have fewer permits than for others (R26)."""

AnyFault: TypeAlias = f.Fault | ProcessFault

DRIFT: Final = 0.003
"""A clock's error of rate: two of them stay within the drift that is allowed for (R3)."""


def wire_of(client: int) -> int:
    """Return the number of a client's own way to each node; the first is that of clients without one."""
    return client + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction(f.Fault):
    """All nodes lose the key of one lock, as by an administrator's deletion (A2); counters stay."""

    name: str

    def begin(self, nodes: Sequence[WiredNode]) -> f.End:
        """As in `Fault`."""
        for node in nodes:
            node.delete(PREFIX + self.name.encode())
        return lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """One process: a manager, and tasks that lock."""

    number: int
    tasks: int
    rate: float
    """The rate of its clocks."""
    wall_offset: float
    """Seconds that its time of day is ahead."""
    extends: bool
    """Whether its watchdog extends leases."""
    permits: int
    """The permits that the semaphore has for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run, as drawn."""

    seed: int
    nodes: int
    node_rates: tuple[float, ...]
    node_offsets: tuple[float, ...]
    latency: tuple[float, float]
    """Of one message: at least, and on average above that; seconds."""
    fencing: bool
    ttl: float
    quarantine: float
    names: tuple[str, ...]
    duration: float
    """Seconds until everything is healed."""
    timed: bool
    """Whether clocks keep time, and nodes remember (A1, A2), so that there must never be two holders."""
    processes: int
    """The number of clients that were drawn: faults go by their numbers, whichever is left out."""
    clients: tuple[ClientPlan, ...]
    faults: tuple[AnyFault, ...]
    stubborn: bool = False
    """Whether holders go on when their lease is lost: what A3 forbids."""
    crowded: bool = False
    """Whether each process has many tasks, which ask and leave in step, often for one name (R42, R43)."""
    modes: tuple[Mode, ...] = ("lock",)
    """As what calls want their names: each as one of these, all equally often."""

    @property
    def bound(self) -> float:
        """Seconds after which all clients get in when everything is healed.

        Where something went wrong: the wait of nodes that forgot, keys of clients that were killed, giving up
        connections that are mute.
        """
        if not self.undisturbed:
            return self.evening
        return 0.5 if "fair" not in self.modes or self.in_order else 2.0  # others tell none in line (R28)

    @property
    def evening(self) -> float:
        """Seconds in which all clients come to the end when everything is healed."""
        if not self.undisturbed:
            return 2 * self.quarantine + 2 * self.ttl + 10.0
        return 3.0 if "fair" not in self.modes or self.in_order else 9.0

    @property
    def in_order(self) -> bool:
        """Whether all that want a name stand in line for it (R28)."""
        return set(self.modes) <= {"fair", "permit"} and "fair" in self.modes

    @property
    def undisturbed(self) -> bool:
        """Whether nothing goes wrong at all."""
        return self.timed and not self.faults

    def cut(self, *, clients: tuple[int, ...] | None = None, faults: tuple[int, ...] | None = None) -> Plan:
        """Return the same run with only these clients and faults, by their numbers."""
        kept = self.clients if clients is None else tuple(self.clients[i] for i in clients)
        left = self.faults if faults is None else tuple(self.faults[i] for i in faults)
        return replace(self, clients=kept, faults=left)


def draw(
    seed: int,
    *,
    quarantine: float | None = None,
    stubborn: bool = False,
    crowded: bool = False,
    mixed: bool = True,
    permits: bool | None = None,
    fair: bool | None = None,
) -> Plan:
    """Draw the run of a seed; the first two options break an assumption in it.

    Where it is not `mixed`, names are wanted by `LockManager.lock` alone, and all else is the same; with
    `permits`, those of a semaphore are wanted, too, or never; None: in some of the runs.  Likewise
    `fair` locks.
    """
    rng = random.Random(f"{seed} topology")
    nodes = rng.choice(SIZES)
    ttl = rng.choice((1.0, 2.0, 3.0))
    timed = seed % UNTIMED_EVERY != 0
    names = tuple("abcdefghijkl"[: rng.choice((1, 3, 12, 12))] if crowded else "abc"[: rng.randint(1, 3)])
    duration = rng.uniform(6.0, 18.0)
    clients = tuple(
        _client(seed, i, timed=timed, crowded=crowded) for i in range(rng.randint(2, 3 if crowded else 4))
    )
    plan = Plan(
        seed=seed,
        nodes=nodes,
        node_rates=tuple(1 + rng.uniform(-DRIFT, DRIFT) for _ in range(nodes)),
        node_offsets=tuple(rng.uniform(-2.0, 2.0) for _ in range(nodes)),
        latency=(rng.uniform(0.0001, 0.002), rng.uniform(0.0001, 0.003)),
        fencing=rng.random() < 0.7,
        ttl=ttl,
        quarantine=ttl * rng.uniform(1.0, 1.5) if quarantine is None else quarantine,
        names=names,
        duration=duration,
        timed=timed,
        processes=len(clients),
        clients=clients,
        faults=(),
        stubborn=stubborn,
        crowded=crowded,
        modes=_modes(seed, permits=permits, fair=fair) if mixed else MIXES[0],
    )
    return replace(plan, faults=_faults(plan))


def _modes(seed: int, *, permits: bool | None, fair: bool | None) -> tuple[Mode, ...]:
    modes = random.Random(f"{seed} modes").choice(MIXES)
    line = random.Random(f"{seed} line")
    if line.random() < IN_LINE if fair is None else fair:
        alone, one = line.random() < 0.5, ("fair",)
        modes = one if alone else (*modes, *one * len(modes))
    rng = random.Random(f"{seed} sharing")
    if not (rng.random() < SHARING if permits is None else permits):
        return modes
    permit: tuple[Mode, ...] = ("permit",)
    return permit if rng.random() < 0.5 else modes + permit * len(modes)


def _client(seed: int, number: int, *, timed: bool, crowded: bool) -> ClientPlan:
    rng = random.Random(f"{seed} client {number}")
    most, of_permits = (
        random.Random(f"{seed} permits").choice(PERMITS),
        random.Random(f"{seed} permits {number}"),
    )
    fewer = of_permits.random() < FEWER
    error = DRIFT if timed else 2 * DRIFT
    return ClientPlan(
        number=number,
        tasks=rng.randint(4, 9) if crowded else rng.randint(1, 3),
        rate=1 + rng.uniform(-error, error),
        wall_offset=rng.uniform(-5.0, 5.0),
        extends=rng.random() < 0.8,
        permits=of_permits.randint(1, most) if fewer else most,
    )


# -- faults ------------------------------------------------------------------------------------

ERRORS: Final = (
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY You can't write against a read only replica.",
)

_Draw: TypeAlias = Callable[[random.Random, Plan, float, int, int], AnyFault]


def _short(rng: random.Random) -> float:
    """Draw seconds: mostly less than a ttl, now and then much longer."""
    return min(rng.expovariate(1 / 0.8), 6.0)


def _way(rng: random.Random, client: int) -> int | None:
    """Draw which way to a node it is: one client's, see `wire_of`, or that of all."""
    return wire_of(client) if rng.random() < 0.5 else None


def _partition(rng: random.Random, _plan: Plan, at: float, node: int, client: int) -> AnyFault:
    requests, replies = rng.choice(((True, True), (True, False), (False, True)))
    way = _way(rng, client)
    return f.Partition(at=at, node=node, lasts=_short(rng), client=way, requests=requests, replies=replies)


def _delay(rng: random.Random, _plan: Plan, at: float, node: int, client: int) -> AnyFault:
    seconds = rng.uniform(0.005, 0.2)
    return f.Delay(at=at, node=node, lasts=_short(rng), client=_way(rng, client), seconds=seconds)


def _loss(rng: random.Random, _plan: Plan, at: float, node: int, client: int) -> AnyFault:
    share = rng.uniform(0.05, 0.5)
    return f.Loss(at=at, node=node, lasts=_short(rng), client=_way(rng, client), share=share)


def _step(rng: random.Random, plan: Plan, at: float, node: int, _client: int) -> AnyFault:
    """Draw a step back, which makes keys live longer; forward ones only where time is not kept (A1)."""
    seconds = rng.choice((0.5, 5.0, 3600.0)) if not plan.timed and rng.random() < 0.8 else -1.0
    return f.ClockStep(at=at, node=node, seconds=seconds * rng.uniform(0.5, 1.0))


def _rate(rng: random.Random, plan: Plan, at: float, node: int, _client: int) -> AnyFault:
    """Draw a rate: far off only where time is not kept (A1)."""
    error = DRIFT if plan.timed else 0.5
    return f.ClockRate(at=at, node=node, lasts=_short(rng), rate=1 + rng.uniform(-error, error))


def _eviction(rng: random.Random, plan: Plan, at: float, node: int, client: int) -> AnyFault:
    """Draw one where exclusion is not promised; elsewhere all connections are reset."""
    if plan.timed:
        return f.Disconnect(at=at, node=node)
    names = (*plan.names, *[POOL] * len(plan.names)) if "permit" in plan.modes else plan.names
    return Eviction(at=at, node=node, name=rng.choice(names))


_DRAWN: Final[dict[str, _Draw]] = {
    "stall": lambda rng, _p, at, node, _c: f.Stall(at=at, node=node, lasts=_short(rng)),
    "restart empty": lambda rng, _p, at, node, _c: f.Restart(at=at, node=node, lasts=_short(rng) / 2),
    "restart with data": lambda rng, _p, at, node, _c: f.Restart(
        at=at, node=node, lasts=_short(rng) / 2, keep_data=True
    ),
    "relapse": lambda rng, _p, at, node, _c: f.Relapse(at=at, node=node, lasts=_short(rng)),
    "flush": lambda _r, _p, at, node, _c: f.FlushData(at=at, node=node),
    "eviction": _eviction,
    "flush scripts": lambda _r, _p, at, node, _c: f.FlushScripts(at=at, node=node),
    "refusal": lambda rng, _p, at, node, _c: f.Refusal(
        at=at, node=node, lasts=_short(rng), error=rng.choice(ERRORS)
    ),
    "disconnect": lambda _r, _p, at, node, _c: f.Disconnect(at=at, node=node),
    "break before": lambda rng, _p, at, node, c: f.BreakBefore(at=at, node=node, client=_way(rng, c)),
    "break after": lambda rng, _p, at, node, c: f.BreakAfter(at=at, node=node, client=_way(rng, c)),
    "partition": _partition,
    "delay": _delay,
    "loss": _loss,
    "clock step": _step,
    "clock rate": _rate,
    "stop": lambda rng, _p, at, _n, c: Stop(
        at=at, client=c, lasts=2 * _short(rng), asking=rng.random() < 0.5
    ),
    "suspend": lambda rng, _p, at, _n, c: Suspend(at=at, client=c, lasts=_short(rng)),
    "kill": lambda _r, _p, at, _n, c: Kill(at=at, client=c),
    "wall step": lambda rng, _p, at, _n, c: WallStep(at=at, client=c, seconds=rng.uniform(-5.0, 5.0)),
    "cancel": lambda rng, p, at, _n, c: Cancel(at=at, client=c, task=rng.randrange(p.clients[c].tasks)),
}
"""The function that draws each kind of fault, from: a stream, the plan, when, which node, which client."""

KINDS: Final = tuple(_DRAWN)


def _faults(plan: Plan) -> tuple[AnyFault, ...]:
    """Draw the faults; first which kinds there are in this run at all, so that rare ones meet often."""
    swarm = random.Random(f"{plan.seed} kinds")
    sort = swarm.random()
    if sort < UNDISTURBED:
        return ()
    if sort > 1 - STORMY:
        kinds, number = swarm.sample(KINDS, 3), 2 * MAX_FAULTS
    else:
        kinds, number = [kind for kind in KINDS if swarm.random() < 0.4], swarm.randint(1, MAX_FAULTS)
    faults: list[AnyFault] = []
    killed: set[int] = set()
    for i in range(number if kinds else 0):
        rng = random.Random(f"{plan.seed} fault {i}")
        kind = rng.choice(kinds)
        at, node = rng.uniform(0.1, plan.duration * 0.95), rng.randrange(plan.nodes)
        client = rng.randrange(len(plan.clients))
        if kind == "kill":
            if len(killed | {client}) >= len(plan.clients):
                continue  # one client must be left to find out whether there is life
            killed.add(client)
        faults.append(_DRAWN[kind](rng, plan, at, node, client))
    return tuple(sorted(faults, key=lambda fault: fault.at))
