"""A node that is reached by connection, on virtual time: the shipping code over masters in memory."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from typing import Any

import pytest

from aioredlock_ng._core.command import Command, Purpose, Silence
from aioredlock_ng._core.quorum_view import QuorumView
from aioredlock_ng._kinds.mutex import MUTEX
from aioredlock_ng._kinds.primitive import Primitive
from aioredlock_ng._node import NodeEnv, NodeState, base
from aioredlock_ng._node.handshake import Identity
from aioredlock_ng._node.link import Link
from aioredlock_ng._node.packing import words
from aioredlock_ng._node.pipe import MAX_IN_FLIGHT, RESERVED_FOR_RELEASES
from aioredlock_ng._node.redis_node import GIVE_UP_AFTER, HEARTBEAT, RECONNECT, RESP3_LOOK, RedisNode
from aioredlock_ng.testing import MemoryNode, SimLoop, _memory_data, _memory_server, memory_node

KEY = b"redlock:a"
NAME = Primitive(MUTEX, ("a",), (KEY,))
LATENCY = 0.001
CONNECT_TIMEOUT = 1.0


def owner(number: int) -> bytes:
    """Return an owner value."""
    return b"%040x:host" % number


def simulated(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on virtual time; an error that the loop only reports fails it too."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        reported: list[dict[str, Any]] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
            await test(*args, **kwargs)

        SimLoop.run(main())
        assert reported == []

    return run


def now() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


class Recorder:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.awaited = True
        self.replies: list[object] = []
        self.on_told: Callable[[], None] = lambda: None
        self._done = asyncio.Event()

    def on_reply(self, node: int, reply: object) -> None:
        """Write it down."""
        self.replies.append(reply)
        self.on_told()
        self._done.set()

    @property
    def reply(self) -> Any:
        """The only reply."""
        (reply,) = self.replies
        return reply

    async def wait(self) -> Any:
        """Wait for the reply."""
        await self._done.wait()
        return self.reply


class Running:
    """A node under test."""

    def __init__(self, node: RedisNode) -> None:
        self.node = node
        self.changes: list[tuple[float, NodeState, str]] = []
        self.on_change: Callable[[], None] = lambda: None

    def changed(self, node: object) -> None:
        """Write down a change of state."""
        assert node is self.node
        self.changes.append((now(), self.node.standing.state, self.node.standing.reason))
        self.on_change()

    @property
    def states(self) -> list[str]:
        """The states that it went through."""
        return [state.value for _, state, _ in self.changes]

    def send(self, command: Command) -> Recorder:
        """Submit a command and return its sink."""
        sink = Recorder()
        self.node.submit(command, sink, 0)
        return sink

    async def reach(self, state: NodeState, within: float = 10.0) -> None:
        """Wait until the node is in `state`."""
        deadline = now() + within
        while self.node.standing.state is not state:
            assert now() < deadline, f"{self.node} is not {state} within {within} s"
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def running(
    node: Any, *, seed: int = 0, quorum_view: QuorumView | None = None
) -> AsyncIterator[Running]:
    """Run a node for as long as the block lasts."""
    it = Running(node)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    env = NodeEnv(
        clock=loop.clock,
        random=Random(seed),
        node_timeout=0.1,
        connect_timeout=CONNECT_TIMEOUT,
        on_change=it.changed,
        quorum_view=quorum_view,
    )
    node.bind(env)
    task = asyncio.create_task(node.run())
    try:
        await node.settled.wait()
        yield it
        assert not task.done() or node._closed, "a node runs until it is closed or cancelled"
    finally:
        await node.aclose()
        task.cancel()
        await asyncio.wait((task,))
    assert task.cancelled() or task.exception() is None, "run() raises nothing"


class Door:
    """An endpoint that notes every attempt to connect, and may be told what to do."""

    def __init__(self, server: MemoryNode, *, role: str = "master") -> None:
        self._inner = memory_node._MemoryEndpoint(server, server.wires[0])
        self.name, self.address = self._inner.name, self._inner.address
        self.role = role
        self.resp3 = True
        """Whether further connections speak RESP3; if not, that may change."""
        self.attempts: list[float] = []
        self.links: list[Link] = []

    async def connect(self, timeout: float, on_failure: Any) -> tuple[Link, Identity]:
        """Connect to the master in memory."""
        self.attempts.append(now())
        link, identity = await self._inner.connect(timeout, on_failure)
        link.resp3, link.resp3_in_doubt = self.resp3, not self.resp3
        self.links.append(link)
        return link, Identity(identity.run_id, self.role)

    def look_elsewhere(self) -> None:
        """Know of one server alone."""


def verbs(server: MemoryNode) -> list[str]:
    """Return what the server executed: SET, or the script's purpose with its owner's number."""
    scripts = {words(NAME.release(b"", 0))[1]: "release", words(NAME.extend(b"", 1))[1]: "extend"}
    said = []
    for said_words in server.executed:
        script = said_words[0] == b"EVALSHA"
        what, value = (scripts[said_words[1]], said_words[4]) if script else ("set", said_words[2])
        said.append(f"{what} {int(value.partition(b':')[0], 16)}")
    return said


@simulated
async def test_a_connection_that_fell_back_to_resp2_is_replaced_once_resp3_works() -> None:
    """A peer that hung up at HELLO 3 is tried again about once a minute, on a connection of its own."""
    server = MemoryNode(latency=LATENCY)
    door = Door(server)
    door.resp3 = False
    async with running(RedisNode(door)) as it:
        await asyncio.sleep(10 * RESP3_LOOK)
        assert it.states == ["up"], "what works is kept"
        assert not it.node.can_hear
        assert 7 <= len(door.attempts) <= 21
        assert all(link._transport.aborted for link in door.links[1:]), "no further one is left"
        door.resp3 = True
        await asyncio.sleep(1.6 * RESP3_LOOK)
        assert it.node.can_hear
        assert it.states == ["up", "down", "up"]
        made = len(door.attempts)
        await asyncio.sleep(10 * RESP3_LOOK)
        assert len(door.attempts) == made


# -- connecting ----------------------------------------------------------------------------------


@simulated
async def test_a_node_comes_up_and_tells_its_identity() -> None:
    """Connected, it is UP, knows the server's name for itself, and soon how far away it is."""
    server = MemoryNode(latency=LATENCY)
    node = server.link()
    assert (node.standing.state, node.standing.run_id) == (NodeState.CONNECTING, None)
    async with running(node) as it:
        assert it.states == ["up"]
        assert (node.standing.run_id, node.standing.round_trip) == (server.identity[0], None)
        await asyncio.sleep(1.2 * HEARTBEAT)
        assert node.standing.round_trip == pytest.approx(2 * LATENCY)
        await asyncio.sleep(60)
        assert it.states == ["up"]
    assert it.states == ["up", "down"]
    assert it.changes[-1][2] == "closed"


@pytest.mark.parametrize("seed", range(5))
@simulated
async def test_reconnecting_backs_off_with_jitter_up_to_a_cap(seed: int) -> None:
    """Each wait is drawn from the upper half of an interval that doubles until it reaches the cap."""
    server = MemoryNode(latency=LATENCY)
    server.crash()
    door = Door(server)
    async with running(RedisNode(door), seed=seed) as it:
        assert (it.node.standing.state, it.changes[0][2]) == (
            NodeState.DOWN,
            f"{server.name} refused the connection",
        )
        await asyncio.sleep(20)
        waits = [later - earlier for earlier, later in zip(door.attempts, door.attempts[1:], strict=False)]
        bounds = [min(RECONNECT.cap, RECONNECT.base * 2.0**attempt) for attempt in range(len(waits))]
        assert len(waits) >= 20 / RECONNECT.cap
        assert all(b / 2 <= wait + 1e-9 and wait <= b + 1e-9 for wait, b in zip(waits, bounds, strict=True))
        assert len({round(wait, 6) for wait in waits}) == len(waits), "jittered"
        assert it.states == ["down"], "one change, however many attempts"


@simulated
async def test_clients_do_not_reconnect_in_step() -> None:
    """Two nodes with different random numbers try at different moments."""
    server = MemoryNode()
    server.crash()
    doors = [Door(server), Door(server)]
    async with running(RedisNode(doors[0]), seed=1), running(RedisNode(doors[1]), seed=2):
        await asyncio.sleep(10)
    assert not set(doors[0].attempts[1:]) & set(doors[1].attempts[1:])


@simulated
async def test_a_node_that_returns_is_up_within_the_cap_and_the_back_off_begins_anew() -> None:
    """After a connection that worked the first wait is short again."""
    server = MemoryNode(latency=LATENCY)
    server.crash()
    door = Door(server)
    async with running(RedisNode(door)) as it:
        await asyncio.sleep(20)
        server.restart()
        returned = now()
        await it.reach(NodeState.UP)
        assert now() - returned <= RECONNECT.cap + 0.01
        await asyncio.sleep(HEARTBEAT)
        server.disconnect()
        lost = now()
        await it.reach(NodeState.DOWN)
        await it.reach(NodeState.UP)
        assert now() - lost <= RECONNECT.base + 0.01
        assert it.states == ["down", "up", "down", "up"]


@simulated
async def test_a_server_that_does_not_answer_the_handshake_is_down() -> None:
    """Connecting to a frozen server succeeds; only an answer proves life, and it is waited for in time."""
    server = MemoryNode(latency=LATENCY)
    server.freeze()
    began = now()
    async with running(server.link()) as it:
        assert now() - began == pytest.approx(CONNECT_TIMEOUT)
        assert it.node.standing.state is NodeState.DOWN
        assert it.node.standing.reason == "no answer to connect and login within 1 s"
        server.thaw()
        await it.reach(NodeState.UP, within=CONNECT_TIMEOUT + RECONNECT.cap)


@simulated
async def test_a_replica_has_no_vote() -> None:
    """A server that is no master is not asked, and is looked at again with the same back-off."""
    door = Door(MemoryNode(latency=LATENCY), role="slave")
    async with running(RedisNode(door)) as it:
        await asyncio.sleep(5)
        assert it.node.standing.state is NodeState.DOWN
        assert it.node.standing.reason == "the server is a slave, not a master"
        assert "up" not in it.states
        reply = it.send(NAME.acquire(owner(1), 10)).reply
        assert reply == Silence("the server is a slave, not a master", sent=False)
        assert 10 <= len(door.attempts) <= 30
        assert all(link.lost.done() for link in door.links), "no connection is kept open"
        door.role = "master"
        await it.reach(NodeState.UP)


@simulated
async def test_a_master_that_says_readonly_is_left() -> None:
    """The connection that met READONLY is dropped, and the next one sees what the server has become."""
    server = MemoryNode(latency=LATENCY)
    door = Door(server)

    def readonly(*_: object) -> None:
        raise _memory_data.CommandError("READONLY You can't write against a read only replica.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_memory_server._COMMANDS, b"SET", readonly)
        async with running(RedisNode(door)) as it:
            door.role = "slave"
            reply = await it.send(NAME.acquire(owner(1), 10)).wait()
            assert reply.reason.startswith("READONLY")
            await it.reach(NodeState.DOWN)
            await asyncio.sleep(1)
            assert it.node.standing.reason == "the server is a slave, not a master"


# -- commands ------------------------------------------------------------------------------------


@simulated
async def test_commands_of_one_turn_leave_in_one_write() -> None:
    """Whichever task submits them: what a turn of the loop collected is one write at its end."""
    server = MemoryNode(latency=LATENCY)
    door = Door(server)
    async with running(RedisNode(door)) as it:
        transport = door.links[0]._transport
        written: list[bytes] = []
        write = transport.write
        transport.write = lambda data: (written.append(data), write(data))

        async def acquire(number: int) -> None:
            it.send(NAME.acquire(owner(number), 10))

        await asyncio.gather(*(acquire(number) for number in range(50)))
        it.send(NAME.release(owner(0), 10))
        await asyncio.sleep(0.01)
        written = [data for data in written if b"PING" not in data]  # the first heartbeat
        assert len(written) == 2, "one for the turn of the fifty tasks, one for the release"
        assert written[0].count(b"SET") == 50


@simulated
async def test_commands_take_effect_in_the_order_of_their_submission() -> None:
    """A release can never overtake its acquire."""
    server = MemoryNode(latency=Random(3).random)  # every message takes another time
    async with running(server.link()) as it:
        for number in range(20):
            it.send(NAME.acquire(owner(number), 10))
            await asyncio.sleep(0.01)
            it.send(NAME.release(owner(number), 10))
        await asyncio.sleep(5)
        assert verbs(server) == [f"{what} {n}" for n in range(20) for what in ("set", "release")]
        assert server.keys == ()


@pytest.mark.parametrize("state", ["connecting", "down", "suspect", "closed"])
@simulated
async def test_an_acquire_that_cannot_be_sent_is_silence_at_once(state: str) -> None:
    """The answer comes before submit returns, says why, and that nothing has to be undone."""
    server = MemoryNode(latency=LATENCY)
    node = server.link()
    if state == "connecting":
        sink = Recorder()
        node.submit(NAME.acquire(owner(1), 10), sink, 7)
        assert sink.reply == Silence("not connected yet", sent=False)
        return
    async with running(node) as it:
        if state == "down":
            server.crash()
        elif state == "suspect":
            server.freeze()
        else:
            await node.aclose()
        await it.reach(NodeState(state) if state != "closed" else NodeState.DOWN)
        for command in (NAME.acquire(owner(1), 10), NAME.extend(owner(1), 10), NAME.top_up(owner(1), 10)):
            reply = it.send(command).reply
            assert reply == Silence(node.standing.reason, sent=False)
            assert reply.reason
        assert node.standing.owed == 0
        server.thaw()
        await asyncio.sleep(2)
        assert verbs(server) == []


@simulated
async def test_a_release_that_cannot_be_sent_is_owed() -> None:
    """Its caller hears at once that it did not leave; the node is told when it is back."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        await it.send(NAME.acquire(owner(1), 60)).wait()
        server.disconnect()
        await it.reach(NodeState.DOWN)
        sink = it.send(NAME.release(owner(1), 60))
        assert isinstance(sink.reply, Silence)
        assert it.node.standing.owed == 1
        await it.reach(NodeState.UP)
        await asyncio.sleep(0.01)
        assert server.keys == ()
        assert it.node.standing.owed == 0
        assert sink.replies[1:] == [[1, 0, 0]]  # and its caller what it said


@simulated
async def test_a_lost_connection_fails_what_was_in_flight_on_it_and_nothing_else() -> None:
    """Every caller hears once, oldest first; later commands go over the next connection."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        answered = it.send(NAME.acquire(owner(1), 10))
        await answered.wait()
        server.freeze()
        heard: list[int] = []
        lost = [it.send(NAME.acquire(owner(number), 10)) for number in (2, 3, 4)]
        for number, sink in enumerate(lost):
            sink.on_told = functools.partial(heard.append, number)
        await asyncio.sleep(0.01)
        assert it.node.standing.in_flight >= 3
        server.disconnect()
        server.thaw()
        await it.reach(NodeState.DOWN)
        assert heard == [0, 1, 2]
        assert [sink.reply for sink in lost] == [Silence("connection lost: reset by the server")] * 3
        assert it.node.standing.in_flight == 0
        await it.reach(NodeState.UP)
        assert await it.send(NAME.acquire(owner(5), 10)).wait() is None  # owner 1 holds it
        assert answered.replies == [b"OK"]
        assert all(len(sink.replies) == 1 for sink in lost)
        assert verbs(server) == ["set 1", "set 5"]


@simulated
async def test_scripts_that_a_server_forgot_are_sent_again_unseen() -> None:
    """SCRIPT FLUSH between two commands changes no answer."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        await it.send(NAME.acquire(owner(1), 10)).wait()
        server.flush_scripts()
        began = now()
        assert await it.send(NAME.extend(owner(1), 20)).wait() == 1
        assert now() - began == pytest.approx(4 * LATENCY), "two round trips, and no wait between them"
        assert server.ttl(KEY) == pytest.approx(20, abs=0.1)
        server.flush_scripts()
        assert await it.send(NAME.release(owner(1), 20)).wait() == [1, 0, 0]
        assert server.keys == ()


@simulated
async def test_the_backlog_is_bounded() -> None:
    """At the bound acquires are silent, releases have room of their own, then the ledger."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        await asyncio.sleep(0.1)  # the first heartbeat is answered
        server.freeze()
        sink = Recorder()
        for number in range(MAX_IN_FLIGHT):
            it.node.submit(NAME.acquire(owner(number), 10), sink, 0)
        assert sink.replies == []
        refused = it.send(NAME.acquire(owner(MAX_IN_FLIGHT), 10)).reply
        assert refused == Silence(f"more than {MAX_IN_FLIGHT} commands in flight", sent=False)
        for number in range(RESERVED_FOR_RELEASES):
            it.node.submit(NAME.release(owner(number), 10), sink, 0)
        assert (sink.replies, it.node.standing.owed) == ([], 0)
        last = it.send(NAME.release(owner(MAX_IN_FLIGHT), 10))
        limit = MAX_IN_FLIGHT + RESERVED_FOR_RELEASES
        assert last.reply == Silence(f"more than {limit} commands in flight", sent=False)
        assert it.node.standing.owed == 1
        server.thaw()
        await asyncio.sleep(2 * HEARTBEAT)
        assert len(sink.replies) == MAX_IN_FLIGHT + RESERVED_FOR_RELEASES
        assert (it.node.standing.in_flight, it.node.standing.owed) == (0, 0)
        assert server.keys == ()


@simulated
async def test_a_plain_vote_needs_room_for_its_look_at_the_sentinel() -> None:
    """Where only the SET fits, it is sent and undone as ever, but does not count (R12, R15)."""
    server = MemoryNode(latency=LATENCY)
    sentinel = b"redlock:{meta}"
    probed = Primitive(MUTEX, ("b",), (b"redlock:b",), sentinel=sentinel)
    async with running(server.link(), quorum_view=QuorumView(sentinel, size=1, quarantine_ms=0)) as it:
        await asyncio.sleep(0.1)  # greeted
        server.freeze()
        sink = Recorder()
        for number in range(MAX_IN_FLIGHT - 1 - it.node.standing.in_flight):
            it.node.submit(NAME.acquire(owner(number), 10), sink, 0)
        vote = it.send(probed.acquire(owner(MAX_IN_FLIGHT), 10))
        assert it.node.standing.in_flight == MAX_IN_FLIGHT
        assert vote.replies == []
        server.thaw()
        assert "could not be read: too many commands in flight" in (await vote.wait()).reason
        assert server.get(b"redlock:b") == owner(MAX_IN_FLIGHT), "it was sent"
        it.send(probed.release(owner(MAX_IN_FLIGHT), 10))
        await asyncio.sleep(2 * HEARTBEAT)
        assert server.get(b"redlock:b") is None


# -- heartbeat -----------------------------------------------------------------------------------


@simulated
async def test_a_frozen_node_is_suspect_then_given_up() -> None:
    """It is noticed within three heartbeats, loses its vote, and after some more its connection is reset."""
    server = MemoryNode(latency=LATENCY)
    door = Door(server)
    async with running(RedisNode(door)) as it:
        await asyncio.sleep(3.3)
        server.freeze()
        frozen = now()
        in_flight = it.send(NAME.acquire(owner(1), 10))
        await it.reach(NodeState.SUSPECT)
        assert now() - frozen <= 2 * HEARTBEAT + 0.01
        assert it.node.standing.reason.startswith("no answer for ")
        assert in_flight.replies == []
        await it.reach(NodeState.DOWN)
        assert now() - frozen <= (GIVE_UP_AFTER + 1) * HEARTBEAT + 0.01
        assert it.node.standing.reason == f"no answer for {GIVE_UP_AFTER * HEARTBEAT:.3g} s"
        assert in_flight.reply == Silence(f"no answer for {GIVE_UP_AFTER * HEARTBEAT:.3g} s")
        assert door.links[0]._transport.aborted, "reset, not closed: what is still on its way is taken back"
        await asyncio.sleep(3)
        server.thaw()
        await it.reach(NodeState.UP)
        assert it.states == ["up", "suspect", "down", "down", "up"], "down for one reason, then for another"
        it.send(NAME.release(owner(1), 10))
        await asyncio.sleep(2 * HEARTBEAT)
        assert server.keys == (), "what had arrived before was executed late, and is undone"


@simulated
async def test_an_idle_connection_to_a_frozen_node_is_noticed_too() -> None:
    """Nothing was asked by any caller: the heartbeat is enough."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        await asyncio.sleep(3.3)
        server.freeze()
        frozen = now()
        await it.reach(NodeState.SUSPECT)
        assert now() - frozen <= 2 * HEARTBEAT + 0.01
        await it.reach(NodeState.DOWN)
        assert now() - frozen <= (GIVE_UP_AFTER + 2) * HEARTBEAT + 0.01


@simulated
async def test_a_suspect_that_answers_is_up_at_once() -> None:
    """The first sign of life gives the vote back, on the same connection and before the next look."""
    server = MemoryNode(latency=LATENCY)
    door = Door(server)
    async with running(RedisNode(door)) as it:
        server.freeze()
        await it.reach(NodeState.SUSPECT)
        server.thaw()
        thawed = now()
        await it.reach(NodeState.UP)
        assert now() - thawed <= 3 * LATENCY
        assert len(door.links) == 1
        assert await it.send(NAME.acquire(owner(1), 10)).wait() == b"OK"


@simulated
async def test_a_suspect_is_still_sent_releases() -> None:
    """They stand behind the acquire on the same connection, so the late grant is undone as it comes."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        server.freeze()
        acquired = it.send(NAME.acquire(owner(1), 10))
        await it.reach(NodeState.SUSPECT)
        released = it.send(NAME.release(owner(1), 10))
        assert released.replies == []
        await asyncio.sleep(0.01)
        server.thaw()
        assert await acquired.wait() == b"OK"
        assert await released.wait() == [1, 0, 0]
        assert verbs(server) == ["set 1", "release 1"]
        assert server.keys == ()


@simulated
async def test_a_busy_node_is_not_suspect() -> None:
    """Answers of any kind are signs of life, even while heartbeats wait behind a long queue."""
    server = MemoryNode(latency=0.2)
    async with running(server.link()) as it:
        for number in range(200):
            it.send(NAME.acquire(owner(number), 10))
            await asyncio.sleep(0.05)
        assert it.states == ["up"]


@simulated
async def test_a_heartbeats_wrong_nonce_drops_the_connection() -> None:
    """Then replies do not belong to their requests any more: nothing that comes counts."""
    server = MemoryNode(latency=LATENCY)
    door = Door(server)
    async with running(RedisNode(door)) as it:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(_memory_server._COMMANDS, b"PING", lambda *_: b"0000000000000000")
            await asyncio.sleep(1.01 * HEARTBEAT)
            assert it.node.standing.state is NodeState.DOWN
            assert "cannot belong to" in it.node.standing.reason
        assert door.links[0]._transport.aborted
        await it.reach(NodeState.UP)
        await asyncio.sleep(10)
        assert it.states[:2] == ["up", "down"]
        assert it.states[-1] == "up"
        assert len(it.states) < 12, "a server that answers wrong is not asked again and again at once"


@simulated
async def test_heartbeats_never_repeat_a_nonce() -> None:
    """A reply that is one beat late is told from the right one."""
    server = MemoryNode(latency=LATENCY)
    nonces: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_memory_server._COMMANDS, b"PING", lambda _, nonce: (nonces.append(nonce), nonce)[1])
        async with running(server.link()):
            await asyncio.sleep(20 * HEARTBEAT)
    assert len(nonces) >= 18
    assert len(set(nonces)) == len(nonces)


@simulated
async def test_an_answer_of_the_wrong_shape_counts_nothing_and_its_acquire_is_undone() -> None:
    """The connection is dropped, the acquire unanswered, so that its release is recorded and repeated."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(_memory_server._COMMANDS, b"SET", lambda *_: 7)
            sink = it.send(NAME.acquire(owner(1), 2))
            reply = await sink.wait()
        assert isinstance(reply, Silence)
        assert reply.sent
        it.send(NAME.release(owner(1), 2))
        assert it.node.standing.owed == 1
        await it.reach(NodeState.UP)
        await asyncio.sleep(0.5)
        assert it.node.standing.owed == 1
        await asyncio.sleep(2)
        assert it.node.standing.owed == 0


# -- the ledger ----------------------------------------------------------------------------------


@simulated
async def test_an_unacknowledged_release_is_the_first_thing_on_the_new_connection() -> None:
    """It leaves before an acquire that is submitted the very moment the node is up again."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        await it.send(NAME.acquire(owner(1), 60)).wait()
        server.freeze()
        released = it.send(NAME.release(owner(1), 60))
        await asyncio.sleep(0.01)
        server.disconnect()
        server.thaw()
        acquired: list[Recorder] = []

        def acquire_at_once() -> None:
            if it.node.standing.state is NodeState.UP:
                acquired.append(it.send(NAME.acquire(owner(2), 60)))

        it.on_change = acquire_at_once
        await it.reach(NodeState.DOWN)
        assert isinstance(released.reply, Silence)
        assert it.node.standing.owed == 1
        await it.reach(NodeState.UP)
        assert await acquired[0].wait() == b"OK"
        assert verbs(server) == ["set 1", "release 1", "set 2"]
        assert it.node.standing.owed == 0
        await asyncio.sleep(5)
        assert verbs(server) == ["set 1", "release 1", "set 2"], "an acknowledged release is not repeated"


@simulated
async def test_a_release_is_repeated_once_when_its_acquire_was_answered() -> None:
    """It was executed before the connection died: "was not held" settles it."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        await it.send(NAME.acquire(owner(1), 60)).wait()
        server.wires[0].break_after()
        released = it.send(NAME.release(owner(1), 60))
        await asyncio.sleep(1.5 * LATENCY)
        assert verbs(server) == ["set 1", "release 1"]
        await asyncio.sleep(10)
        silence, late = released.replies
        assert isinstance(silence, Silence)
        assert late == [0, 0, 0]
        assert verbs(server) == ["set 1", "release 1", "release 1"]


@pytest.mark.parametrize("when", ["queued", "down", "up again"])
@simulated
async def test_the_release_of_an_unanswered_acquire_is_repeated_for_its_ttl(when: str) -> None:
    """Whenever the release came: the acquire may be executed behind it until the ttl has passed."""
    server = MemoryNode(latency=LATENCY)
    ttl = 6.0
    async with running(server.link()) as it:
        server.freeze()
        acquired = it.send(NAME.acquire(owner(1), ttl))
        if when == "queued":
            it.send(NAME.release(owner(1), ttl))
        await asyncio.sleep(0.01)
        server.disconnect()
        server.thaw()
        await it.reach(NodeState.DOWN)
        died = now()
        assert isinstance(acquired.reply, Silence)
        assert acquired.reply.sent
        if when == "down":
            it.send(NAME.release(owner(1), ttl))
        await it.reach(NodeState.UP)
        if when == "up again":
            await asyncio.sleep(0.7)
            assert verbs(server) == [], "perhaps it is held: only a release is repeated"
            it.send(NAME.release(owner(1), ttl))
        await asyncio.sleep(died + ttl / 2 - now())
        assert len(verbs(server)) >= 3
        server.set(KEY, owner(1), ttl)  # the network delivers the acquire after all
        await asyncio.sleep(1.1 * HEARTBEAT)
        assert server.keys == (), "a ghost does not outlive a heartbeat"
        repeated = len(verbs(server))
        assert it.node.standing.owed == 0
        await asyncio.sleep(ttl)
        assert len(verbs(server)) == repeated
        assert set(verbs(server)) == {"release 1"}


@simulated
async def test_the_repetitions_end_with_the_ttl() -> None:
    """When no key of the owner can be left, nothing is sent for it any more."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        server.freeze()
        it.send(NAME.acquire(owner(1), 3))
        it.send(NAME.release(owner(1), 3))
        await asyncio.sleep(0.01)
        server.disconnect()
        server.thaw()
        await asyncio.sleep(3 + 2 * HEARTBEAT)
        repeated = len(verbs(server))
        assert 4 <= repeated <= 8
        assert it.node.standing.owed == 0
        await asyncio.sleep(10)
        assert len(verbs(server)) == repeated


@simulated
async def test_an_acquire_that_was_never_sent_leaves_no_record() -> None:
    """It cannot be executed later: "was not held" settles it."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        server.crash()
        await it.reach(NodeState.DOWN)
        assert it.send(NAME.acquire(owner(1), 60)).reply.sent is False
        it.send(NAME.release(owner(1), 60))
        server.restart()
        await it.reach(NodeState.UP)
        await asyncio.sleep(5)
        assert verbs(server) == ["release 1"]
        assert it.node.standing.owed == 0


@simulated
async def test_acquires_and_extensions_are_never_sent_again_on_a_new_connection() -> None:
    """Only releases survive a connection."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        await it.send(NAME.acquire(owner(1), 60)).wait()
        server.freeze()
        sinks = [it.send(NAME.extend(owner(1), 90)), it.send(NAME.top_up(owner(1), 90))]
        sinks.append(it.send(NAME.acquire(owner(2), 60)))
        await asyncio.sleep(0.01)
        server.disconnect()
        server.thaw()
        await asyncio.sleep(5)
        assert all(isinstance(sink.reply, Silence) for sink in sinks)
        assert verbs(server) == ["set 1"]


@simulated
async def test_a_release_that_met_an_error_is_repeated_until_it_works() -> None:
    """An error reply is no acknowledgement."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        await it.send(NAME.acquire(owner(1), 60)).wait()
        with pytest.MonkeyPatch.context() as patch:

            def busy(*_: object) -> None:
                raise _memory_data.CommandError("BUSY Redis is busy running a script.")

            patch.setitem(_memory_server._COMMANDS, b"EVALSHA", busy)
            reply = await it.send(NAME.release(owner(1), 60)).wait()
            assert reply.reason.startswith("BUSY")
            assert it.node.standing.owed == 1
            await asyncio.sleep(2)
            assert server.keys == (KEY,)
        await asyncio.sleep(1.1 * HEARTBEAT)
        assert server.keys == ()
        assert it.node.standing.owed == 0


@simulated
async def test_what_a_node_dropped_from_its_ledger_is_counted() -> None:
    """The ledger is bounded, and its losses show in the node's standing."""
    server = MemoryNode(latency=LATENCY)
    server.crash()
    async with running(server.link()) as it:
        for number in range(16384 + 5):
            it.send(NAME.release(owner(number), 60))
        assert (it.node.standing.owed, it.node.standing.dropped) == (16384, 5)


# -- closing -------------------------------------------------------------------------------------


@simulated
async def test_what_is_queued_when_a_node_is_closed_still_leaves() -> None:
    """A release of the same turn is written, and the server executes it after the close."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        await it.send(NAME.acquire(owner(1), 60)).wait()
        released = it.send(NAME.release(owner(1), 60))
        await it.node.aclose()
        assert isinstance(released.reply, Silence)
        await asyncio.sleep(0.1)
    assert verbs(server) == ["set 1", "release 1"]
    assert server.keys == ()


@simulated
async def test_what_is_owed_is_sent_once_more_when_a_node_is_closed() -> None:
    """A release that waits for its next heartbeat does not wait for ever."""
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        server.freeze()
        it.send(NAME.acquire(owner(1), 60))
        it.send(NAME.release(owner(1), 60))
        await asyncio.sleep(0.01)
        server.disconnect()
        server.thaw()
        await it.reach(NodeState.DOWN)
        await it.reach(NodeState.UP)
        await asyncio.sleep(0.01)
        server.set(KEY, owner(1), 60)  # executed late
        await it.node.aclose()
        await asyncio.sleep(0.1)
    assert server.keys == ()


@simulated
async def test_a_closed_node_answers_everything_with_silence() -> None:
    """A caller that comes too late is told so, and the node stays closed."""
    server = MemoryNode(latency=LATENCY)
    door = Door(server)
    async with running(RedisNode(door)) as it:
        in_flight = it.send(NAME.acquire(owner(1), 60))
        await it.node.aclose()
        await it.node.aclose()
        assert in_flight.reply == Silence("the manager is closed")
        for command in (NAME.acquire(owner(2), 60), NAME.release(owner(2), 60)):
            assert it.send(command).reply == Silence("closed", sent=False)
        await asyncio.sleep(5)
        assert it.node.standing.state is NodeState.DOWN, "a closed node does not connect again"
        assert len(door.attempts) == 1


@simulated
async def test_states_are_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """Going down is a warning with its reason, coming up is not, and no owner value is in either."""
    caplog.set_level(logging.DEBUG)
    server = MemoryNode(latency=LATENCY)
    async with running(server.link()) as it:
        it.send(NAME.acquire(owner(0xABCDEF), 10))
        server.disconnect()
        await it.reach(NodeState.DOWN)
        await it.reach(NodeState.UP)
    levels = [record.levelname for record in caplog.records if record.name == "aioredlock_ng"]
    assert levels == ["INFO", "WARNING", "INFO", "INFO"]
    assert "connection lost" in caplog.text
    assert "abcdef" not in caplog.text


@simulated
async def test_other_commands_are_answered_like_any() -> None:
    """Looking and administering go the same way, without an owner and without a record."""
    server = MemoryNode(latency=LATENCY)
    server.set(KEY, b"another", 10)
    command = Command(
        Purpose.OTHER, owner=b"", fits=lambda reply: isinstance(reply, int), keys=(KEY,), verb=b"DEL"
    )
    async with running(server.link()) as it:
        assert await it.send(command).wait() == 1
        server.crash()
        await it.reach(NodeState.DOWN)
        assert isinstance(it.send(command).reply, Silence)
        assert it.node.standing.owed == 0


@simulated
async def test_a_node_that_is_down_for_ever_new_reasons_does_not_fill_memory() -> None:
    """Reasons are logged once, so they are kept: a limited number of them."""
    async with running(MemoryNode().link()) as it:
        for number in range(10 * base.MAX_LOGGED_REASONS):
            it.node._become(NodeState.DOWN, f"reason {number}")
        assert len(it.node._logged) == base.MAX_LOGGED_REASONS
