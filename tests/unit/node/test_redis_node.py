"""A node that is reached by connection, on virtual time: the shipping code over masters in memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any

import pytest

from aioredlock_ng._core.command import Command, Silence
from aioredlock_ng._core.quorum_view import HEARTBEAT, QuorumView
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node import NodeState
from aioredlock_ng._node.handshake import Identity
from aioredlock_ng._node.link import Link
from aioredlock_ng._node.pipe import MAX_IN_FLIGHT
from aioredlock_ng._node.redis_node import GIVE_UP_AFTER, RECONNECT, RESP3_LOOK, Node, NodeEnv
from aioredlock_ng.testing import _memory_server
from aioredlock_ng.testing.memory_node import MemoryEndpoint
from tests.simulation.wires import WiredNode
from tests.unit.node.test_ledger import owner
from tests.unit.node.test_pipe import Recorder
from tests.unit.tasks import cancelled, sim
from tests.unit.traces import sent

KEY = b"redlock:a"
NAME = Primitive(MUTEX, ("a",), (KEY,))
LATENCY = 0.001
CONNECT_TIMEOUT = 1.0


class Awaited(Recorder):
    """A sink whose reply can be waited for."""

    async def wait(self) -> Any:
        """Wait for the reply."""
        while not self.replies:
            await asyncio.sleep(LATENCY / 10)
        return self.reply


class Door:
    """An endpoint that notes every attempt to connect, and does as a test says."""

    clustered, prefix = False, b""

    def __init__(self, server: WiredNode, *, role: str = "master") -> None:
        self._inner = MemoryEndpoint(server, server.wires[0].open)
        self.name, self.address = self._inner.name, self._inner.address
        self.role = role
        self.resp3 = True
        """Whether further connections speak RESP3; if not, that may change."""
        self.attempts: list[float] = []
        self.links: list[Link] = []

    async def connect(self, timeout: float, on_failure: Any) -> tuple[Link, Identity]:
        """Connect to the master in memory."""
        self.attempts.append(sim().time())
        link, identity = await self._inner.connect(timeout, on_failure)
        link.resp3, link.resp3_in_doubt = self.resp3, not self.resp3
        self.links.append(link)
        return link, Identity(identity.run_id, self.role)

    def look_elsewhere(self) -> None:
        """Know of one server alone."""


class Running:
    """A node under test."""

    def __init__(self, server: WiredNode, door: Door) -> None:
        self.server, self.door, self.node = server, door, Node(door)
        self.changes: list[tuple[NodeState, str]] = []
        self.on_change: Callable[[], None] = lambda: None

    def changed(self, node: object) -> None:
        """Write down a change of state."""
        assert node is self.node
        self.changes.append((self.node.status.state, self.node.status.reason))
        self.on_change()

    @property
    def states(self) -> list[str]:
        """The states that it went through."""
        return [state.value for state, _ in self.changes]

    def send(self, command: Command) -> Awaited:
        """Submit a command and return its sink."""
        sink = Awaited()
        self.node.submit(command, sink, 0)
        return sink

    async def reach(self, state: NodeState, within: float = 10.0) -> None:
        """Wait until the node is in `state`."""
        deadline = sim().time() + within
        while self.node.status.state is not state:
            assert sim().time() < deadline, f"{self.node} is not {state} within {within} s"
            await asyncio.sleep(0.001)

    async def break_off(self) -> None:
        """Have the server, which is frozen, reset the connection before it goes on."""
        await asyncio.sleep(0.01)
        self.server.disconnect()
        self.server.thaw()


@contextlib.asynccontextmanager
async def running(
    server: WiredNode | None = None,
    *,
    door: Door | None = None,
    seed: int = 0,
    view: QuorumView | None = None,
) -> AsyncIterator[tuple[Running, WiredNode]]:
    """Run a node over a master in memory for as long as the block lasts."""
    server = server or WiredNode(latency=LATENCY)
    it = Running(server, door or Door(server))
    env = NodeEnv(
        clock=sim().clock, random=Random(seed), node_timeout=0.1, connect_timeout=CONNECT_TIMEOUT,
        on_change=it.changed, quorum_view=view,
    )  # fmt: skip
    it.node.bind(env)
    task = asyncio.create_task(it.node.run())
    try:
        await it.node.tried.wait()
        yield it, server
        assert not task.done() or it.node._closed, "a node runs until it is closed or cancelled"
    finally:
        await it.node.aclose()
        await cancelled(task)
    assert task.cancelled() or task.exception() is None, "run() raises nothing"


def verbs(server: WiredNode) -> list[str]:
    """Return what the server executed, each with its owner's number."""
    return [f"{one.kind} {int(one.owner.partition(b':')[0], 16)}" for one in sent(server)]


@contextlib.contextmanager
def answering(verb: bytes, answer: Callable[..., object]) -> Iterator[None]:
    """Have masters in memory answer to a command in another way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_memory_server._COMMANDS, verb, answer)
        yield


async def test_a_connection_that_fell_back_to_resp2_is_replaced_once_resp3_works() -> None:
    """A peer that hung up at HELLO 3 is tried again about once a minute, on a connection of its own."""
    door = Door(WiredNode(latency=LATENCY))
    door.resp3 = False
    async with running(door=door) as (it, _):
        await asyncio.sleep(10 * RESP3_LOOK)
        assert (it.states, it.node.can_hear) == (["up"], False), "what works is kept"
        assert 7 <= len(door.attempts) <= 21
        assert all(link.transport.aborted for link in door.links[1:]), "no further one is left"
        door.resp3 = True
        await asyncio.sleep(1.6 * RESP3_LOOK)
        assert (it.states, it.node.can_hear) == (["up", "down", "up"], True)
        made = len(door.attempts)
        await asyncio.sleep(10 * RESP3_LOOK)
        assert len(door.attempts) == made


# -- connecting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
async def test_reconnecting_backs_off_with_jitter_up_to_a_cap(seed: int) -> None:
    """Each wait is drawn from the upper half of an interval that doubles until it reaches the cap."""
    server = WiredNode(latency=LATENCY)
    server.crash()
    async with running(server, seed=seed) as (it, _):
        assert it.changes == [(NodeState.DOWN, f"{server.name} refused the connection")]
        await asyncio.sleep(20)
        waits = [later - earlier for earlier, later in itertools.pairwise(it.door.attempts)]
        bounds = [min(RECONNECT.cap, RECONNECT.base * 2.0**attempt) for attempt in range(len(waits))]
        assert len(waits) >= 20 / RECONNECT.cap
        assert all(b / 2 <= wait + 1e-9 and wait <= b + 1e-9 for wait, b in zip(waits, bounds, strict=True))
        assert len({round(wait, 6) for wait in waits}) == len(waits), "jittered"
        assert it.states == ["down"], "one change, however many attempts"


async def test_a_replica_has_no_vote() -> None:
    """A server that is no master is not asked, and is looked at again with the same back-off."""
    door = Door(WiredNode(latency=LATENCY), role="slave")
    async with running(door=door) as (it, _):
        await asyncio.sleep(5)
        assert it.changes == [(NodeState.DOWN, "the server is a slave, not a master")]
        reply = it.send(NAME.acquire(owner(1), 10)).reply
        assert reply == Silence("the server is a slave, not a master", sent=False)
        assert 10 <= len(door.attempts) <= 30
        assert all(link.lost.done() for link in door.links), "no connection is kept open"
        door.role = "master"
        await it.reach(NodeState.UP)


# -- commands ------------------------------------------------------------------------------------


async def test_commands_of_one_turn_leave_in_one_write() -> None:
    """Whichever task submits them: what a turn of the loop collected is one write at its end."""
    async with running() as (it, _):
        pipe = it.door.links[0].pipe
        written: list[bytes] = []
        write = pipe.write
        pipe.write = lambda data: (written.append(data), write(data))

        async def acquire(number: int) -> None:
            it.send(NAME.acquire(owner(number), 10))

        await asyncio.gather(*(acquire(number) for number in range(50)))
        it.send(NAME.release(owner(0), 10))
        await asyncio.sleep(0.01)
        written = [data for data in written if b"PING" not in data]  # the first heartbeat
        assert [data.count(b"SET") for data in written] == [50, 0], "the fifty tasks' turn, and the release"


@pytest.mark.parametrize("state", ["connecting", "down", "suspect", "closed"])
async def test_an_acquire_that_cannot_be_sent_is_silence_at_once(state: str) -> None:
    """The answer comes before submit returns, says why, and that nothing has to be undone."""
    if state == "connecting":
        sink = Awaited()
        WiredNode().link().submit(NAME.acquire(owner(1), 10), sink, 7)
        assert sink.reply == Silence("not connected yet", sent=False)
        return
    async with running() as (it, server):
        if state == "closed":
            await it.node.aclose()
        else:
            (server.crash if state == "down" else server.freeze)()
        await it.reach(NodeState(state) if state != "closed" else NodeState.DOWN)
        for command in (NAME.acquire(owner(1), 10), NAME.extend(owner(1), 10), NAME.repair(owner(1), 10)):
            assert it.send(command).reply == Silence(it.node.status.reason, sent=False)
        assert it.node.status.reason
        assert it.node.status.pending_releases == 0
        server.thaw()
        await asyncio.sleep(2)
        assert verbs(server) == []


STORIES = {
    "a release that cannot be sent is owed: it goes when the node is back, its answer to the caller": (
        "acquire 1 60, disconnect, reach down, release 1 60, owed 1, reach up, wait 0.01, free, owed 0, "
        "heard release 1 unsent 1:0:0"
    ),
    "a lost connection fails what was in flight on it, and nothing else": (
        "acquire 1 10, freeze, acquire 2 10, acquire 3 10, break off, reach down, heard acquire 2 silent, "
        "heard acquire 3 silent, reach up, acquire 5 10, heard acquire 5 nil, heard acquire 1 OK, "
        "executed acquire 1 acquire 5"
    ),
    "a suspect that answers is up at once, and is sent releases, which undo the late grant as it comes": (
        "freeze, acquire 1 10, reach suspect, release 1 10, heard release 1, thaw, wait 0.003, "
        "reach up at once, heard acquire 1 OK, heard release 1 1:0:0, executed acquire 1 release 1"
    ),
    "a release is repeated once where its acquire was answered": (
        "acquire 1 60, wait 0.1, break after, release 1 60, executed acquire 1 release 1, wait 10, "
        "heard release 1 silent 0:0:0, executed acquire 1 release 1 release 1"
    ),
    "an acquire that was never sent leaves no record": (
        "crash, reach down, acquire 1 60, heard acquire 1 unsent, release 1 60, restart, reach up, wait 5, "
        "executed release 1, owed 0"
    ),
    "acquires and extensions are not sent again on a new connection": (
        "acquire 1 60, freeze, extend 1 90, repair 1 90, acquire 2 60, break off, wait 5, "
        "heard extend 1 silent, heard repair 1 silent, heard acquire 2 silent, executed acquire 1"
    ),
    "a release that met an error is repeated until it works": (
        "acquire 1 60, refuse BUSY, release 1 60, heard release 1 silent, owed 1, wait 2, taken, refuse, "
        "wait 0.6, free, owed 0"
    ),
    "what is queued when a node is closed leaves all the same": (
        "acquire 1 60, release 1 60 at once, close, heard release 1 silent, wait 0.1, "
        "executed acquire 1 release 1, free"
    ),
    "what is owed is sent once more when a node is closed, though executed late": (
        "freeze, acquire 1 60, release 1 60, break off, reach down, reach up, wait 0.01, held 1, close, "
        "wait 0.1, free"
    ),
    "a closed node answers everything with silence, and does not connect again": (
        "acquire 1 60 at once, close, close, heard acquire 1 silent, acquire 2 60, heard acquire 2 unsent, "
        "release 2 60, heard release 2 unsent, wait 5, reach down at once, attempts 1"
    ),
}


@pytest.mark.parametrize("story", STORIES)
async def test_stories(story: str) -> None:
    """The answer that each caller got (`unsent` and `silent` are none), and the commands that ran."""
    async with running() as (it, server):
        sinks: dict[str, Recorder] = {}
        for step in STORIES[story].split(", "):
            what, *how = step.split()
            if what in ("acquire", "extend", "repair", "release"):
                sinks[f"{what} {how[0]}"] = it.send(getattr(NAME, what)(owner(int(how[0])), float(how[1])))
                await asyncio.sleep(0 if "once" in how else 3 * LATENCY)
            elif what == "reach":
                await it.reach(NodeState(how[0]), within=0 if "once" in how else 10)
            elif what == "wait":
                await asyncio.sleep(float(how[0]))
            elif step in ("close", "break off"):
                await (it.node.aclose() if what == "close" else it.break_off())
            elif what == "heard":
                assert list(map(said, (reply for _, reply in sinks[" ".join(how[:2])].replies))) == how[2:], (
                    step
                )
            elif what in CHECKS:
                assert CHECKS[what](it, server, *how), step
            else:
                DOES.get(what, lambda server, what=what: getattr(server, what)())(server, *how)


def said(reply: Any) -> str:
    """Return a reply in a word."""
    if isinstance(reply, Silence):
        return "silent" if reply.sent else "unsent"
    return {None: "nil", b"OK": "OK"}.get(reply) if not isinstance(reply, list) else ":".join(map(str, reply))


DOES: dict[str, Callable[..., object]] = {
    "break": lambda server, when: getattr(server.wires[0], f"break_{when}")(),
    "refuse": lambda server, error="": server.refuse(error),
    "held": lambda server, who: server.set(KEY, owner(int(who)), 60),
}
CHECKS: dict[str, Callable[..., bool]] = {
    "owed": lambda it, _, number: it.node.status.pending_releases == int(number),
    "free": lambda _, server: server.keys == (),
    "taken": lambda _, server: server.keys == (KEY,),
    "executed": lambda _, server, *words: " ".join(verbs(server)) == " ".join(words),
    "attempts": lambda it, _, number: len(it.door.attempts) == int(number),
}


async def test_a_plain_vote_needs_room_for_its_look_at_the_incarnation() -> None:
    """Where only the SET fits, it is sent and undone as usual, but does not count (R12, R15)."""
    incarnation = b"redlock:{meta}"
    probed = Primitive(MUTEX, ("b",), (b"redlock:b",), incarnation=incarnation)
    async with running(view=QuorumView(incarnation, size=1, quarantine_ms=0)) as (it, server):
        await asyncio.sleep(0.1)  # greeted
        server.freeze()
        sink = Awaited()
        for number in range(MAX_IN_FLIGHT - 1 - it.node.status.in_flight):
            it.node.submit(NAME.acquire(owner(number), 10), sink, 0)
        vote = it.send(probed.acquire(owner(MAX_IN_FLIGHT), 10))
        assert it.node.status.in_flight == MAX_IN_FLIGHT
        assert vote.replies == []
        server.thaw()
        assert "could not be read: too many commands in flight" in (await vote.wait()).reason
        assert server.get(b"redlock:b") == owner(MAX_IN_FLIGHT), "it was sent"
        it.send(probed.release(owner(MAX_IN_FLIGHT), 10))
        await asyncio.sleep(2 * HEARTBEAT)
        assert server.get(b"redlock:b") is None


# -- heartbeat -----------------------------------------------------------------------------------


async def test_a_frozen_node_is_suspect_then_given_up() -> None:
    """It is noticed within three heartbeats, loses its vote, and after some more its connection is reset."""
    async with running() as (it, server):
        await asyncio.sleep(3.3)
        server.freeze()
        frozen = sim().time()
        in_flight = it.send(NAME.acquire(owner(1), 10))
        await it.reach(NodeState.SUSPECT)
        assert sim().time() - frozen <= 2 * HEARTBEAT + 0.01
        assert it.node.status.reason.startswith("no answer for ")
        assert in_flight.replies == []
        await it.reach(NodeState.DOWN)
        assert sim().time() - frozen <= (GIVE_UP_AFTER + 1) * HEARTBEAT + 0.01
        assert it.node.status.reason == f"no answer for {GIVE_UP_AFTER * HEARTBEAT:.3g} s"
        assert in_flight.reply == Silence(f"no answer for {GIVE_UP_AFTER * HEARTBEAT:.3g} s")
        assert it.door.links[0].transport.aborted, "reset, not closed: what is on its way is taken back"
        await asyncio.sleep(3)
        server.thaw()
        await it.reach(NodeState.UP)
        assert it.states == ["up", "suspect", "down", "down", "up"], "down for one reason, then for another"
        it.send(NAME.release(owner(1), 10))
        await asyncio.sleep(2 * HEARTBEAT)
        assert server.keys == (), "what had arrived before was executed late, and is undone"


async def test_a_busy_node_is_not_suspect() -> None:
    """Answers of any kind are signs of life, even while heartbeats wait behind a long queue."""
    async with running(WiredNode(latency=0.2)) as (it, _):
        for number in range(200):
            it.send(NAME.acquire(owner(number), 10))
            await asyncio.sleep(0.05)
        assert it.states == ["up"]


async def test_a_heartbeats_wrong_nonce_drops_the_connection() -> None:
    """Then replies do not belong to their requests any more: nothing that comes counts."""
    async with running() as (it, _):
        with answering(b"PING", lambda *_: b"0000000000000000"):
            await asyncio.sleep(1.01 * HEARTBEAT)
            assert it.node.status.state is NodeState.DOWN
            assert "cannot belong to" in it.node.status.reason
        assert it.door.links[0].transport.aborted
        await it.reach(NodeState.UP)
        await asyncio.sleep(10)
        assert (it.states[:2], it.states[-1]) == (["up", "down"], "up")
        assert len(it.states) < 12, "a server that answers wrong is not asked again and again at once"


# -- the ledger ----------------------------------------------------------------------------------


async def test_an_unacknowledged_release_is_the_first_thing_on_the_new_connection() -> None:
    """It leaves before an acquire that is submitted the very moment the node is up again."""
    async with running() as (it, server):
        await it.send(NAME.acquire(owner(1), 60)).wait()
        server.freeze()
        released = it.send(NAME.release(owner(1), 60))
        await it.break_off()
        acquired: list[Recorder] = []

        def acquire_at_once() -> None:
            if it.node.status.state is NodeState.UP:
                acquired.append(it.send(NAME.acquire(owner(2), 60)))

        it.on_change = acquire_at_once
        await it.reach(NodeState.DOWN)
        assert isinstance(released.reply, Silence)
        assert it.node.status.pending_releases == 1
        await it.reach(NodeState.UP)
        assert await acquired[0].wait() == b"OK"
        assert verbs(server) == ["acquire 1", "release 1", "acquire 2"]
        assert it.node.status.pending_releases == 0
        await asyncio.sleep(5)
        assert verbs(server) == ["acquire 1", "release 1", "acquire 2"], (
            "an acknowledged release is not repeated"
        )


@pytest.mark.parametrize("when", ["queued", "down", "up again"])
async def test_the_release_of_an_unanswered_acquire_is_repeated_for_its_ttl(when: str) -> None:
    """Whenever the release came: the acquire may be executed behind it until the ttl has passed."""
    ttl = 6.0
    async with running() as (it, server):

        def release(now: str) -> None:
            if when == now:
                it.send(NAME.release(owner(1), ttl))

        server.freeze()
        acquired = it.send(NAME.acquire(owner(1), ttl))
        release("queued")
        await it.break_off()
        await it.reach(NodeState.DOWN)
        died = sim().time()
        assert acquired.reply.sent
        release("down")
        await it.reach(NodeState.UP)
        await asyncio.sleep(0.7)
        assert verbs(server) == [] or when != "up again", "perhaps it is held: only a release is repeated"
        release("up again")
        await asyncio.sleep(died + ttl / 2 - sim().time())
        assert len(verbs(server)) >= 3
        server.set(KEY, owner(1), ttl)  # the network delivers the acquire after all
        await asyncio.sleep(1.1 * HEARTBEAT)
        assert server.keys == (), "a ghost does not outlive a heartbeat"
        assert it.node.status.pending_releases == 0
        repeated = verbs(server)
        await asyncio.sleep(ttl)
        assert verbs(server) == repeated == ["release 1"] * len(repeated)


# -- closing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clustered", "attempts"), [(True, 2), (False, 1)])
@pytest.mark.parametrize("error", ["MOVED 7 10.0.0.2:6379", "CLUSTERDOWN The cluster is down"])
async def test_a_slot_that_is_elsewhere_is_looked_for(error: str, clustered: bool, attempts: int) -> None:
    """This server does not have it any more, or is cut off; by URL there is no other one (R17)."""
    server = WiredNode(latency=LATENCY)
    door = Door(server)
    door.clustered = clustered
    async with running(server, door=door) as (it, _):
        server.refuse(error)
        await it.send(NAME.acquire(owner(1), 10)).wait()
        server.refuse("")
        await it.reach(NodeState.UP)
        await asyncio.sleep(1.0)
        assert len(door.attempts) == attempts
