"""Model clients: connections that keep order, attempts with a certificate, leases (R5, R8–R10, R12)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng._core.fencing import floor_at
from aioredlock_ng._core.quarantine import NO_INCARNATION
from aioredlock_ng._core.quorum import majority
from aioredlock_ng._core.quorum_view import QuorumView
from aioredlock_ng._core.slots import ANY
from aioredlock_ng._core.validity import valid_until

from .fence_node import FOREIGN, NO_VOTE, WITHOUT_VOTE, Claim, ModelNode

if TYPE_CHECKING:
    from .fence_world import World

OnReply = Callable[[int, Any], None]
"""Takes the node's number and its reply; None when there will be none."""

Message = tuple[Callable[..., Any], tuple[Any, ...], OnReply]


def _nobody(_node: int, _reply: object) -> None:
    """Take a reply that is not waited for."""


class Connection:
    """One client's connection to one node: first in, first out, both ways."""

    def __init__(self, client: Client, node: int) -> None:
        self._client = client
        self.node = node
        self.requests: deque[Message] = deque()
        self.replies: deque[tuple[OnReply, Any]] = deque()
        self.expected = NO_INCARNATION
        self._heard_us = 0
        """What time the node had when it was last greeted; a restart of its quarantine goes by it."""
        self.cut = False
        self.greeting = False
        self.blocked_until = 0
        """The step until which nothing gets through."""

    def send(self, command: Callable[..., Any], args: tuple[Any, ...], on_reply: OnReply = _nobody) -> None:
        """Queue a command of `ModelNode`."""
        self.requests.append((command, args, on_reply))
        self._client.world.tokens.append(self)

    def greet(self, restart: bytes = b"") -> None:
        """Present the client, as on connecting and with every heartbeat."""
        self.greeting = True
        args = (self._client.quorum_view.quarantine_ms, restart, floor_at(self._heard_us) if restart else 0)
        self.send(ModelNode.greet, args, self._on_greeted)

    def _on_greeted(self, _node: int, reply: tuple[bytes, int, bytes] | None) -> None:
        self.greeting = False
        if reply is None:
            return
        incarnation, now_us, identity = reply
        self._heard_us = now_us
        view, eligibility = self._client.quorum_view, self._client.world.rules.eligibility
        found = eligibility(incarnation, identity=identity, now_us=now_us, role="master", size=view.size)
        view.adopt(found.quarantine_ms)
        self.expected = found.expected

    def carry(self, node: ModelNode) -> None:
        """Bring the next request to the node, or the next reply back; requests that are behind, too."""
        world = self._client.world
        if self.replies and (not self.requests or world.random.random() < world.replies_first):
            on_reply, reply = self.replies.popleft()
            on_reply(self.node, reply)
        elif self.requests:
            command, args, on_reply = self.requests.popleft()
            node.look(world.now_us)
            reply = command(node, *args)
            if command is ModelNode.acquire:  # what stands between a grant and the next one takes longer
                world.now_us += args[0].block
            if not self.cut:
                self.replies.append((on_reply, reply))
                world.tokens.append(self)

    def fail(self, *, late: bool) -> None:
        """End: no sink gets a reply any more; what was sent is lost, or comes to the node late."""
        self.cut = True
        waiting = [on_reply for on_reply, _ in self.replies] + [message[2] for message in self.requests]
        self.replies.clear()
        if not late:
            self.requests.clear()
        for on_reply in waiting:
            on_reply(self.node, None)


class Phase(Enum):
    """Where an attempt stands."""

    ASKING = "asking"
    RAISING = "raising"
    HELD = "held"
    OVER = "over"


class Attempt:
    """A try to acquire, and the lease that it wins."""

    def __init__(self, client: Client, claim: Claim) -> None:
        world = client.world
        self.client = client
        self._world = world
        self.claim = claim
        self.phase = Phase.ASKING
        self.began = world.steps
        self.asked_at = world.seconds
        self.valid_until = 0.0
        self.won_at = 0
        self.fence = 0
        self.number = 0
        """The fence of the lease that has it now: of a block one after the other."""
        self.since: int | None = None
        """The fence of a read lease, for a writer that asks whether another one came since (R23)."""
        self._told: dict[int, int] = {}
        """What nodes say with a grant: where the counter stood before; of a semaphore which slot it is."""
        self._answered: set[int] = set()
        self._fences: dict[int, int] = {}
        self._times_ms: dict[int, int] = {}
        self._waiting = set(range(world.size))
        self._round = 0

    def ask(self) -> None:
        """Ask all nodes that have a vote, as far as this client knows."""
        client = self.client
        ballot = self._world.rules.ballot(client.seen, client.wall_ms)
        for connection in list(client.connections):
            if connection.expected is NO_INCARNATION:
                self._on_granted(connection.node, None)
                continue
            connection.send(ModelNode.acquire, (self.claim, ballot, connection.expected), self._on_granted)
            if self._world.chance("repeat"):  # a proxy on the way may send a command again
                connection.send(ModelNode.acquire, (self.claim, ballot, connection.expected))

    def _on_granted(self, node: int, reply: tuple[int, int, int] | None) -> None:
        fence, time_ms, before = reply or (0, 0, 0)
        if fence == NO_VOTE:
            self.client.distrust(node)
        if self.phase not in (Phase.ASKING, Phase.RAISING):
            if fence > 0 and self.phase is Phase.HELD:
                self._told[node] = before
                self._give_back({node})
            return
        if fence > 0:
            self._fences[node], self._times_ms[node], self._told[node] = fence, time_ms, before
            self.client.seen = max(self.client.seen, fence)  # a hint; with more of it clients meet more often
            if self.phase is Phase.RAISING and self._world.rules.moves:
                self.fence = max(self.fence, fence)
        if self.phase is Phase.ASKING:
            self._waiting.discard(node)
            if reply is not None:
                self._answered.add(node)
        if fence > 0:
            self._give_back({node})
        self.consider()

    def impatient(self) -> None:
        """Wait no longer for nodes that have not answered."""
        self._waiting.clear()
        self.consider()

    def consider(self) -> None:
        """Win with a certificate; once all have answered: one more round, or give up."""
        world, reads = self._world, not self.claim.alone
        answered = world.size if self._waiting else len(self._answered)
        quorum = world.rules.quorum(world.size, answered, reads)
        counting = self._of_the_slot(quorum)
        fence = world.rules.certified(counting.values(), quorum)
        if reads and world.rules.reads_with is not None:
            fence = world.rules.reads_with(list(self._fences.values()), quorum)
        if fence is not None:
            self._win(fence)
        elif self._waiting:
            if self._fences:
                world.in_between(self)
        elif self.phase is Phase.ASKING and len(counting) >= quorum:
            granted = [(fence, self._times_ms[node]) for node, fence in counting.items()]
            self._raise(world.rules.agreeable(granted))
        else:
            if self.phase is Phase.RAISING:
                world.counts["an attempt was lost without a certificate"] += 1
            self.end(0)

    def _of_the_slot(self, quorum: int) -> dict[int, int]:
        """Return the counters of grants that count: of a semaphore those of the won slot (R24, R25)."""
        if not self.claim.permits:
            return self._fences
        rules = self._world.rules
        slot, most = rules.most_granted(self._told[node] for node in self._fences)
        if self.claim.slot is None and slot != ANY and most >= quorum:
            self.claim = replace(self.claim, slot=slot)
            self._give_back(set(self._fences))
        if self.claim.slot is None:
            return {}
        if rules.certifies_any:
            return self._fences
        return {node: fence for node, fence in self._fences.items() if not self._is_stray(node)}

    def _is_stray(self, node: int) -> bool:
        return self.claim.slot is not None and self._told.get(node, self.claim.slot) != self.claim.slot

    def _give_back(self, nodes: set[int]) -> None:
        """Have nodes that granted another slot than the one that was won drop it, and take that one (R25)."""
        for node in nodes:
            if self._is_stray(node) and not self._world.rules.by_node:
                self._world.counts["a stray slot given back"] += 1
                self.client.connections[node].send(ModelNode.repair, (self.claim, 0))

    def _at(self, node: int) -> Claim:
        """Return the claim as it is extended at a node."""
        if not self._world.rules.by_node or node not in self._told or self.claim.slot is None:
            return self.claim
        return replace(self.claim, slot=self._told[node])

    def _raise(self, fence: int) -> None:
        self.phase, self.fence = Phase.RAISING, fence
        connections = self.client.connections
        # One that has not answered yet may well grant: its raise is queued behind that.  Not of a reader: it
        # may grant above the fence, which a raise does not tell (R21).
        unknown = 0 if self.claim.alone else fence
        below = [node for node in range(self._world.size) if self._fences.get(node, unknown) < fence]
        self._waiting = set(below)
        self._world.in_between(self)
        for node in below:
            args = (self.claim, fence, connections[node].expected)
            connections[node].send(ModelNode.raise_, args, self._on_raised)

    def _on_raised(self, node: int, reply: int | None) -> None:
        if reply is not None:
            self._world.counts[_RAISED[reply]] += 1
        if self.phase is not Phase.RAISING:
            return
        if reply == 1:
            self._fences[node] = self.fence
            if self.claim.slot is not None:
                self._told[node] = self.claim.slot
        self._waiting.discard(node)
        self.consider()

    def _win(self, fence: int) -> None:
        self._world.counts[
            "certified at once" if self.phase is Phase.ASKING else "certified after a raise"
        ] += 1
        self.fence = fence
        last, end = self.client.given
        uses_on = self._world.rules.uses_on and last < end
        self.number = last + 1 if uses_on else fence - self.claim.block + 1
        self.client.given = self.number, end if uses_on else fence
        self.valid_until = valid_until(self.asked_at, self.claim.ttl_ms / 1000)
        self.phase, self.won_at = Phase.HELD, self._world.steps
        self._world.won(self)
        if self.since is not None:
            befores = list(self._told.values())
            if self._world.rules.unchanged(befores, self.since, majority(self._world.size)):
                self._world.unchanged(self)
        if self._world.seconds >= self.valid_until:
            self.end(fence)

    @property
    def granted(self) -> dict[int, int]:
        """The nodes that are known to have granted, with their counters."""
        return self._fences

    @property
    def valid(self) -> bool:
        """Whether the client believes that it holds the lock."""
        return self.phase is Phase.HELD and self._world.seconds < self.valid_until

    # -- the lease -----------------------------------------------------------------------------

    @property
    def left(self) -> bool:
        """Whether the block has a number for another lease (R43)."""
        return self.valid and self.number < self.fence

    def hand_off(self) -> None:
        """Give the lock to another task of this client, with the next number."""
        self.number += 1
        self.client.given = self.number, self.client.given[1]
        self._world.handed_off(self)

    def extend(self) -> None:
        """Ask for another ttl, and top up nodes that have lost our keys if a majority grants."""
        self._round += 1
        number, asked_at = self._round, self._world.seconds
        granted: set[int] = set()
        missing: set[int] = set()

        def on_extended(node: int, reply: int | None) -> None:
            if reply is None or self.phase is not Phase.HELD or number != self._round:
                return
            if reply == 1:
                granted.add(node)
            elif reply in (0, WITHOUT_VOTE):
                missing.add(node)
            if not self.valid and not (self._world.rules.revives and not self.claim.alone):
                self.end(self.fence)
            elif len(granted) >= majority(self._world.size):
                until = valid_until(asked_at, self.claim.ttl_ms / 1000)
                self.valid_until = max(self.valid_until, until)
                self._world.holds_on(self)
                self._world.counts["extended"] += reply == 1
                self._repair(missing)

        for connection in list(self.client.connections):
            args = (self._at(connection.node), self.fence, connection.expected)
            connection.send(ModelNode.extend, args, on_extended)

    def _repair(self, missing: set[int]) -> None:
        for node in missing:
            self.client.connections[node].send(ModelNode.repair, (self.claim, self.fence))
        missing.clear()

    def downgrade(self) -> None:
        """Be a reader from now on, and have the nodes follow (R23)."""
        self.claim = replace(self.claim, mode="read")
        self._world.counts["downgraded"] += 1
        self.extend()

    def end(self, fence: int) -> None:
        """Release everywhere; with `fence` 0 it never was a lease (R5)."""
        if fence and not self.claim.alone:
            self.client.last_read[self.claim.names] = fence
        self.forget()
        for connection in list(self.client.connections):
            connection.send(ModelNode.release, (self.claim, fence))

    def forget(self) -> None:
        """Be over without another word, as when the client dies."""
        self.phase = Phase.OVER
        if self.client.attempt is self:
            self.client.attempt = None


_RAISED: Final = {
    1: "a raise was granted",
    0: "a raise came too late",
    -1: "a raise found no vote",
    -2: "a raise was refused by the clock",
    -3: "a raise was refused by a counter above it",
}

assert FOREIGN + WITHOUT_VOTE != 0, "the answers of an extension are kept apart"


class Client:
    """A process that locks; of its attempts and leases one is in hand at a time."""

    def __init__(self, world: World, number: int, *, wall_offset_us: int, keep_ms: int) -> None:
        self.world = world
        self.number = number
        self._wall_offset_us = wall_offset_us
        self.keep_ms = keep_ms
        self.quorum_view = QuorumView(b"", world.size, world.quarantine_ms)
        self.seen = 0
        self.last_read: dict[tuple[str, ...], int] = {}
        """The fences of its last read leases, by their names."""
        self.given = (0, 0)
        """The last fence that it gave to a lease, and the last of that block."""
        self.attempt: Attempt | None = None
        self.paused_until = 0
        """The step until which the adversary keeps its messages."""
        self.connections: list[Connection] = []
        for node in range(world.size):
            self.connections.append(Connection(self, node))
            self.connections[node].greet()

    @property
    def wall_ms(self) -> int:
        """Its wall clock, which nothing depends on."""
        return (self.world.now_us + self._wall_offset_us) // 1000

    def begin(self, claim: Claim, *, follows: bool = False) -> None:
        """Try to acquire; a writer that `follows` asks whether another one came since its last read."""
        self.attempt = Attempt(self, claim)
        if follows and claim.mode == "write":
            self.attempt.since = self.last_read.get(claim.names)
        self.attempt.ask()

    def reconnect(self, node: int, *, late: bool) -> None:
        """Lose the connection to `node`, and greet on the next one."""
        before, after = self.connections[node], Connection(self, node)
        self.connections[node] = after
        if self.world.rules.forgets_records or before.expected is NO_INCARNATION:
            after.greet()
        else:
            after.expected = before.expected
        before.fail(late=late)

    def distrust(self, node: int) -> None:
        """Take note that a node has not the expected record any more, and ask again."""
        connection = self.connections[node]
        connection.expected = NO_INCARNATION
        if not connection.greeting:
            connection.greet()

    def restart(self) -> None:
        """Die, and come back as another process with nothing in mind."""
        if self.attempt is not None:
            self.attempt.forget()
        self.seen = 0
        self.last_read.clear()
        self.quorum_view = QuorumView(b"", self.world.size, self.world.quarantine_ms)
        for node in range(self.world.size):
            self.reconnect(node, late=self.world.random.random() < 1 / 2)
