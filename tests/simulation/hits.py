"""What the faults of a run strike: what they end, hold up, lose or stop, counted as "hit: …".

An injected fault may strike nothing.  What goes in batches is counted, too (R42).  Nothing here changes what
happens: it looks on, and draws nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioredlock_ng._node.pipe import Parcel
from aioredlock_ng._round.batch import Batch
from aioredlock_ng._round.outbox import Outbox, TakesBatches
from tests.simulation import faults as f
from tests.simulation.commands import keys_and_owners
from tests.simulation.plan import Eviction
from tests.simulation.process_faults import ProcessFault
from tests.simulation.wires import Break, Wire, WiredNode

if TYPE_CHECKING:
    from tests.simulation.client import Client

_BREAKS: Final = {False: "hit: reset before a command", True: "hit: reset after a command"}


@dataclass(frozen=True, slots=True)
class _Look:
    """How the nodes stand at one moment; of that which is struck, more."""

    locks: frozenset[tuple[int, bytes, bytes]]
    on_it: bool
    """Whether there are locks on the one that is struck."""
    identity: tuple[str, str]
    connections: int
    time: float


class Hits:
    """Lets faults happen, and counts what they do to clients and nodes.

    Args:
        nodes: all of a run.
        counts: where it is counted.
    """

    def __init__(self, nodes: Sequence[WiredNode], counts: Counter[str]) -> None:
        self._nodes = nodes
        self._counts = counts
        self._breaks: list[tuple[Wire, Break]] = []
        self._watched: set[Wire] = set()

    def answered(self, answer: bytes) -> None:
        """Count error replies, by their codes: what comes of a `Refusal` and of `FlushScripts`."""
        if answer.startswith(b"-"):
            self._counts[f"hit: answered {answer[1:].split(b' ', 1)[0].decode()}"] += 1

    def begin(self, fault: f.Fault) -> f.End:
        """Let a fault at a node begin; returns what ends it."""
        wires = fault.wires(self._nodes) if isinstance(fault, f.WireFault) else []
        breaks = [len(wire.breaks) for wire in wires]
        before = self._look(fault)
        end = fault.begin(self._nodes)
        self._counts.update(_begun(fault, before, self._look(fault)))
        for wire, known in zip(wires, breaks, strict=True):
            self._breaks += [(wire, one) for one in wire.breaks[known:]]
            if isinstance(fault, f.Delay | f.Loss):
                self._watch(wire)

        def ended() -> None:
            self._counts.update(_lasted(fault, self._nodes[fault.node], wires))
            before = self._look(fault)
            end()
            self._counts.update(_ended(fault, before, self._look(fault)))

        return ended

    def strike(self, fault: ProcessFault, client: Client, until: float) -> None:
        """Let a fault happen to a process."""
        process = client.process
        doing, wall = client.record.doing(), process.wall_offset
        suspended, stopped_until = process.loop.suspended, process.stopped_until
        fault.strike(client, until)
        if not process.alive:
            self._counts[f"hit: killed while {doing}"] += 1
        elif process.loop.suspended > suspended:
            self._counts[f"hit: suspended while {doing}"] += 1
        elif process.stopped_until > stopped_until:
            self._counts[f"hit: stopped while {doing}"] += 1
        elif process.wall_offset != wall:
            self._counts[f"hit: time of day set while {doing}"] += 1

    def count_breaks(self) -> None:
        """Count the connections that commands have broken, before those that met none are taken back."""
        for wire, one in self._breaks:
            if one not in wire.breaks:
                self._counts[_BREAKS[one.after]] += 1

    def _watch(self, wire: Wire) -> None:
        """Count messages that take longer from now on, and those that are lost."""
        if wire in self._watched:
            return
        self._watched.add(wire)
        trip, losses = wire.trip, wire.losses

        def seen_trip() -> float:
            self._counts["hit: message delayed"] += wire.extra > 0
            return trip()

        def seen_losses() -> float:
            seconds = losses()
            self._counts["hit: message lost"] += seconds > 0
            return seconds

        wire.trip, wire.losses = seen_trip, seen_losses  # type: ignore[method-assign]

    def _look(self, fault: f.Fault) -> _Look:
        struck = self._nodes[fault.node]
        locks = [keys_and_owners(node) for node in self._nodes]
        return _Look(
            locks=frozenset((i, key, owner) for i, kept in enumerate(locks) for key, owner in kept),
            on_it=bool(locks[fault.node]),
            identity=struck.identity,
            connections=len(struck._connections),
            time=struck._server.clock.now(),
        )


def count_batches(outbox: Outbox, counts: Counter[str]) -> None:
    """Count the batches of one manager by what they are about, and those that a node cannot be given."""
    make = outbox._batches

    def seen_batches() -> list[Batch]:
        counts["batches sent before an undo"] += outbox._scheduled and bool(outbox._acquires)
        made = make()
        for batch in made:
            number = "several" if len(batch.rounds) > 1 else "one"
            counts[f"batch of {number}: {type(batch).__name__}"] += 1
        return made

    class Seen:
        def __init__(self, node: TakesBatches) -> None:
            self.node = node

        def post(self, batches: Sequence[Parcel], replies: int, index: int) -> bool:
            done = self.node.post(batches, replies, index)
            counts["batch of several: asked one by one"] += not done and any(
                len(batch.rounds) > 1 for batch in batches
            )
            return done

    outbox._batches = seen_batches  # type: ignore[method-assign]
    outbox._takers = [Seen(node) for node in outbox._takers]


def _begun(fault: f.Fault, before: _Look, after: _Look) -> Iterator[str]:
    """Say what the beginning of a fault has changed."""
    ended = before.locks > after.locks
    match fault:
        case f.Restart(keep_data=False) if ended:
            yield "hit: locks lost by a restart"
        case f.FlushData() if ended:
            yield "hit: locks lost by a flush"
        case Eviction() if ended:
            yield "hit: locks evicted"
        case f.ClockStep() if ended:
            yield "hit: locks ended by a clock set ahead"
        case f.ClockStep() if before.on_it and after.time < before.time:
            yield "hit: locks prolonged by a clock set back"
        case f.Disconnect() if before.connections > after.connections:
            yield "hit: connections reset"


def _lasted(fault: f.Fault, node: WiredNode, wires: Sequence[Wire]) -> Iterator[str]:
    """Say what a fault has struck, just before it ends."""
    match fault:
        case f.Stall() if node.frozen and any(connection._arrived for connection in node._connections):
            yield "hit: requests held back by a stall"
        case f.ClockRate() if node.clock_rate == fault.rate and keys_and_owners(node):
            yield "hit: locks at another rate"
        case f.Partition():
            held_back = {
                lane.requests for wire in wires for lane in wire.lanes if lane.cut and lane.under_way
            }
            yield from (
                f"hit: {'requests' if one else 'replies'} held back by a partition" for one in held_back
            )


def _ended(fault: f.Fault, before: _Look, after: _Look) -> Iterator[str]:
    """Say what the end of a fault has changed."""
    match fault:
        case f.Restart(keep_data=True) if after.on_it and after.identity != before.identity:
            yield "hit: locks kept in a restart"
        case f.Relapse() if after.locks - before.locks:
            yield "hit: locks brought back by a relapse"
