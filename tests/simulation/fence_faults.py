"""What the adversary of `fence_world` can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.fencing import SHIFT
from aioredlock_ng._core.quarantine import parse
from aioredlock_ng._core.quorum import majority

from .fence_client import Attempt, Client
from .fence_node import ModelNode, knows
from .fence_rules import KEEP_MS

if TYPE_CHECKING:
    from .fence_world import World

NAMES: Final = ("x", "y")

GREETED_WITHIN: Final = 60
"""Steps in which a client has most likely greeted a node that has restarted."""

UNTIMED: Final = ("expire a hold", "expire a name", "expire all", "init", "ask for a longer quarantine")
"""Faults that end exclusion, by hand: off where it is checked."""


def _node(world: World) -> ModelNode:
    node = world.random.choice(world.nodes)
    node.look(world.now_us)
    return node


def _expire_all(world: World) -> None:
    for node in world.nodes:
        node.expire(*NAMES)


def _expire_name(world: World) -> None:
    name = world.random.choice(NAMES)
    for node in world.nodes:
        node.expire(name)


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


def pause(world: World, client: Client | None = None) -> None:
    """Let all messages of a client wait, and its holds end."""
    client = client or world.random.choice(world.clients)
    until = client.paused_until = world.steps + world.random.randrange(10, 120)
    for connection in client.connections:
        connection.blocked_until = until
    if not world.timed and client.attempt is not None:
        for node in world.nodes:
            node.expire(*client.attempt.claim.names)


def relapse(world: World, client: Client | None = None) -> None:
    """Pause a client, let others go on, and bring a node back to the state that the client knows."""
    client = client or world.random.choice(world.clients)
    node = world.random.choice(world.nodes)
    if client.attempt is not None and client.attempt.granted:
        node = world.nodes[world.random.choice(list(client.attempt.granted))]
    kept = node.snapshot()
    pause(world, client)

    def come_back() -> None:
        if not world.timed:
            _expire_all(world)
        node.restart(kept)
        _restarted(world, node)

    world.put_off(come_back, client.paused_until - world.steps)
    _hide_some(world, client, node)
    client.paused_until += GREETED_WITHIN
    for connection in client.connections:
        connection.blocked_until += GREETED_WITHIN


def ahead(world: World, attempt: Attempt) -> list[int]:
    """Return the nodes that have not answered, and will answer with a greater counter than others did."""
    least, name = min(attempt.granted.values()), attempt.claim.names[0]
    counters = [node.counter(name) for node in world.nodes]
    return [
        number for number in range(world.size) if number not in attempt.granted and counters[number] >= least
    ]


def _hide_some(world: World, client: Client, but: ModelNode) -> None:
    """Keep all other clients from a minority of the nodes while `client` is paused, those ahead first."""
    numbers = world.random.sample(range(world.size), world.size)
    if client.attempt is not None and client.attempt.granted:
        numbers = ahead(world, client.attempt) + numbers
    for number in numbers[: world.size - majority(world.size)]:
        for other in world.clients:
            if other is not client and world.nodes[number] is not but:
                other.connections[number].blocked_until = client.paused_until


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


def keep(world: World) -> None:
    """Let all nodes write a snapshot."""
    for node in world.nodes:
        node.look(world.now_us)
        node.keep()


def _restart_old(world: World) -> None:
    """Restart with an older state, one that still knows of an attempt under way if there is one."""
    node = _node(world)
    under_way = [client.attempt.claim.owner for client in world.clients if client.attempt]
    known = [data for data in node.kept if knows(data, under_way, NAMES)]
    node.restart(world.random.choice(known or node.kept or (node.snapshot(),)))
    _restarted(world, node)


def _restart_most(world: World) -> None:
    """Restart a majority, as a power failure does: empty, or with what the disks have."""
    for node in world.random.sample(world.nodes, majority(world.size)):
        node.look(world.now_us)
        node.restart(world.random.choice((None, world.random.choice((*node.kept, node.snapshot())))))
        _restarted(world, node)


def _flush_all(world: World) -> None:
    for node in world.nodes:
        node.flush()


def _restart_quarantine(world: World) -> None:
    connection = world.random.choice(world.random.choice(world.clients).connections)
    connection.greet(connection.expected.incarnation)


def initialise(world: World) -> None:
    """State that no lock can be alive, true or not.

    As `_admin/initialise` does it: each node takes a floor of its own, then all of them the greatest.
    """
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
    "expire a hold": lambda world: _node(world).expire(world.random.choice(NAMES)),
    "expire a name": _expire_name,
    "expire all": _expire_all,
    "pass time": _pass_time,
    "pass a long time": _pass_long,
    "pass less": _pass_short,
    "cut": _cut,
    "cut, and come late": _cut_late,
    "partition": _partition,
    "freeze": _freeze,
    "pause a client": pause,
    "relapse": relapse,
    "restart empty": _restart_empty,
    "restart with an older state": _restart_old,
    "restart most": _restart_most,
    "flush": lambda world: _node(world).flush(),
    "flush all": _flush_all,
    "restart a client": lambda world: world.random.choice(world.clients).restart(),
    "restart of a quarantine": _restart_quarantine,
    "ask for a longer quarantine": lambda world: world.random.choice(world.clients).quorum_view.adopt(
        2 * world.ttl_ms
    ),
    "init": initialise,
}
