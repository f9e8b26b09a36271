"""Keys and marks without a user, looked for while a run goes on (R5, R6, R22)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aioredlock_ng import NodeState
from tests.simulation.commands import Seat, client_of, keys_and_seats, line, marks
from tests.simulation.plan import wire_of
from tests.simulation.wires import Wire

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.world import World

LOOK: Final = 0.25
"""Seconds between looks."""

SETTLING: Final = 1.2
"""Seconds in which a node that is reached again has been sent the recorded releases: two heartbeats."""

WAKING: Final = 0.5
"""Seconds in which a process that stood still has caught up."""

UNDER_WAY: Final = 0.1
"""Seconds that a message takes at most where nothing holds it up."""

_Orphan: TypeAlias = tuple[int, bytes, Seat]
_Mark: TypeAlias = tuple[int, bytes, bytes]


class Orphans:
    """Looks for keys of living processes whose owner values those have done with.

    A key may stay while its node cannot be reached, and until the recorded releases are repeated.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[_Orphan, float] = {}
        self._marks: set[_Mark] = set()
        self._in_line: set[tuple[int, str, int]] = set()

    def look(self) -> None:
        """Note keys that have had no use for too long, and marks that no call takes away; each once."""
        if not self._world.plan.faults:  # else a call may have died with its process, or not be heard
            self._look_at_marks()
            self._look_at_lines()
        now = self._world.now
        self._since = {one: self._since.get(one, now) for one in self._found()}
        for one, since in self._since.items():
            if now - since > SETTLING:
                node, key, (owner, slot) = one
                of = "" if slot is None else f", slot {slot},"
                self._world.leak(
                    f"node {node} has had {key!a}{of} of client {client_of(owner)} for {SETTLING} s in which"
                    " it was reached, and no client holds or asks for it"
                )
                self._since[one] = math.inf

    def _look_at_marks(self) -> None:
        """Note marks of writers that do not wait any more, and did not at the last look."""
        seats = {seat for client in self._world.clients.values() for seat in client.seats_in_use()}
        found = {
            (number, key, what)
            for number, node in enumerate(self._world.nodes)
            for key, what in marks(node)
            if what.startswith(b"w") and what[1:] not in seats
        }
        self._marks = self._leak_twice(found, self._marks, "has the mark {1!a} at {0!a}, and no call waits")

    def _look_at_lines(self) -> None:
        """Note seats of clients that neither hold nor want the lock, and did not at the last look (R28)."""
        world = self._world
        found = {
            (number, name, client)
            for number, node in enumerate(world.nodes)
            for name, client in line(node)
            if not world.clients[client].contends(name)
        }
        text = "has client {1} in line for {0!r}, and no call of its waits"
        self._in_line = self._leak_twice(found, self._in_line, text)

    def _leak_twice(self, found: set[Any], before: set[Any], text: str) -> set[Any]:
        """Note what was found at the last look, too; return what is to be looked for at the next one."""
        for number, *rest in sorted(found & before):
            self._world.leak(f"node {number} {text.format(*rest)}")
        return found - before

    def _found(self) -> Iterator[_Orphan]:
        """Find keys that are of no use, on nodes that could have been reached."""
        world = self._world
        used: set[bytes] | None = None
        for number, node in enumerate(world.nodes):
            for key, seat in keys_and_seats(node):
                if used is None:
                    used = {one for client in world.clients.values() for one in client.owners_in_use()}
                client = world.clients[client_of(seat.owner)]
                if (seat.owner not in used or self._strays(client, seat)) and self._reached(client, number):
                    yield number, key, seat

    def _strays(self, client: Client, seat: Seat) -> bool:
        """Whether a holder of another slot has that one, too, and each extension takes it back (R25)."""
        held = client.record.slots().get(seat.owner)
        return held is not None and held != seat.slot and client.extends

    def _reached(self, client: Client, number: int) -> bool:
        """Whether a client can repeat its recorded releases to a node."""
        world, process = self._world, client.process
        node = world.nodes[number]
        return (
            process.alive
            and process.went_on_at + WAKING < world.now
            and node.answers
            and not node.refusal
            and not world.excused(number)
            and client.state_of(number) is NodeState.UP
            and _is_whole(node.wires[wire_of(client.number)], world.now)
        )


def _is_whole(wire: Wire, now: float) -> bool:
    """Whether messages go through, and none is sent again or late."""
    return not (wire.requests_cut or wire.replies_cut or wire.extra or wire.loss) and all(
        0 <= now - sent.sent_at < UNDER_WAY for lane in wire.lanes for sent in lane.under_way
    )
