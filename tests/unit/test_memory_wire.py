"""The way between a master in memory and a client: what TCP promises, and what a bad network does.

On virtual time.  Connections are used by hand where the bytes are in question, else through managers.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import hiredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioredlock_ng import LockManager, NodeState, QuorumUnavailableError, Vote
from aioredlock_ng._node.redis_node import HEARTBEAT
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_wire import MAX_LOSSES, RETRANSMISSION, Goodbye, Lane, Wire
from tests.listening import Listener, listen_in_memory
from tests.unit.worlds import PLAIN, PREFIX, TIMEOUT, count, locks, make, opened, sim, virtual

LATENCY = 0.1
"""Seconds one way."""

LONG = 60.0
"""Seconds after which everything has come that ever will."""


def one_way() -> tuple[MemoryNode, Wire, Listener]:
    """Return a master, its first wire, and a connection."""
    node = MemoryNode(latency=LATENCY)
    wire = node.wires[0]
    return node, wire, listen_in_memory(node, wire)


def pack(*words: bytes) -> bytes:
    """Return a command as it is sent."""
    return hiredis.pack_command(words)  # type: ignore[arg-type]  # the stub says a tuple of one


def executed(node: MemoryNode) -> list[int]:
    """Return the numbers that were set, in order."""
    return [int(words[2]) for words in node.executed if words[0] == b"SET"]


def set_(listener: Listener, *numbers: int) -> None:
    """Send commands that set numbers, each in a write of its own."""
    for number in numbers:
        listener.send(b"SET", b"key", b"%d" % number)


# -- laws of TCP -----------------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 40)),
        st.tuples(st.just("cut"), st.sampled_from([(True, True), (True, False), (False, True)])),
        st.tuples(st.just("mend"), st.sampled_from([(True, True), (True, False), (False, True)])),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.05, 0.3, 2.0])),
        st.tuples(st.just("loss"), st.sampled_from([0.0, 0.3, 1.0])),
        st.tuples(st.just("delay"), st.sampled_from([0.0, 0.5])),
        st.tuples(st.just("freeze"), st.booleans()),
    ),
    max_size=40,
)


@pytest.mark.heavy
@settings(max_examples=300, derandomize=True)
@given(steps=steps, seed=st.integers(0, 1000))
def test_bytes_arrive_in_order_and_once(steps: list[tuple[str, Any]], seed: int) -> None:
    """Whatever is delayed, lost or cut meanwhile, and wherever a command is split: nothing is overtaken,
    skipped or repeated, in either direction, and nothing gets through what is cut.
    """
    drawn = random.Random(seed)

    @virtual
    async def main() -> None:
        node = MemoryNode(latency=lambda: drawn.choice((0.0, 0.01, 0.4)))
        wire = node.wires[0]
        listener = listen_in_memory(node, wire)
        number = 0
        for what, how in steps:
            if what == "send":
                number += 1
                data = pack(b"SET", b"key", b"%d" % number) + pack(b"PING", b"%d" % number)
                listener.transport.write(data[:how])
                listener.transport.write(data[how:])
            elif what == "wait":
                before = executed(node), len(listener.told)
                await asyncio.sleep(how)
                assert not wire.requests_cut or executed(node) == before[0]
                assert not wire.replies_cut or len(listener.told) == before[1]
            elif what == "loss":
                wire.lose(how, "some")
            elif what == "delay":
                wire.extra = how
            elif what == "freeze":
                (node.freeze if how else node.thaw)()
            else:
                getattr(wire, what)(requests=how[0], replies=how[1])
        wire.mend()
        node.thaw()
        await asyncio.sleep(LONG)
        assert executed(node) == list(range(1, number + 1))
        assert [int(one) for one in listener.told if one != b"OK"] == executed(node)
        assert not listener.lost

    main()


@virtual
async def test_mending_one_direction_leaves_the_other_alone() -> None:
    """What is under way where nothing was cut comes when it would have come; what is cut stays cut."""
    node, wire, listener = one_way()
    began = sim().time()
    set_(listener, 1)
    await asyncio.sleep(1.5 * LATENCY)
    wire.cut(replies=False)
    wire.mend()
    await asyncio.sleep(LATENCY)
    assert listener.times == pytest.approx([began + 2 * LATENCY])
    wire.cut()
    set_(listener, 2)
    wire.mend(replies=False)
    await asyncio.sleep(1)
    assert executed(node) == [1, 2]
    assert len(listener.told) == 1


@virtual
async def test_lost_messages_come_later_never_not_at_all() -> None:
    """Each loss costs a retransmission, which takes twice as long each time; there is a limit to bad luck."""
    node, wire, listener = one_way()
    wire.lose(1.0, "all")
    began = sim().time()
    set_(listener, 1)
    await asyncio.sleep(2 * LONG)
    late = RETRANSMISSION * (2**MAX_LOSSES - 1)
    assert listener.times == [pytest.approx(began + 2 * (LATENCY + late))]
    wire.lose(0.0, "none")
    began = sim().time()
    set_(listener, 2)
    await asyncio.sleep(1)
    assert listener.times[1] == pytest.approx(began + 2 * LATENCY)
    assert executed(node) == [1, 2]


@virtual
async def test_nothing_arrives_before_its_time() -> None:
    """What was sent later comes later, unless something slow before it holds it up."""
    delays = iter((1.0, 1.0, 5.0, 1.0, 1.0))
    wire = MemoryNode(latency=lambda: next(delays)).wires[0]
    came: list[tuple[bytes | Goodbye, float]] = []
    began = sim().time()
    lane = Lane(wire, lambda what: came.append((what, sim().time() - began)), requests=True)
    for number in range(5):
        lane.send(b"%d" % number)
        await asyncio.sleep(2.0 if number == 3 else 0.5)
    await asyncio.sleep(LONG)
    assert came == [(b"0", 1.0), (b"1", 1.5), (b"2", 6.0), (b"3", 6.0), (b"4", 6.0)]
    lane.close()


@virtual
async def test_extra_delay_counts_once_in_each_direction() -> None:
    """It is added to the latency of what is sent while it lasts."""
    _, wire, listener = one_way()
    wire.extra = 1.0
    began = sim().time()
    set_(listener, 1)
    await asyncio.sleep(LONG)
    assert listener.times == [pytest.approx(began + 2 * (LATENCY + 1.0))]


# -- cut: bytes ------------------------------------------------------------------------------------


@virtual
async def test_requests_that_are_held_up_are_executed_late() -> None:
    """Nothing is executed until the way is mended, then all of it, in order; replies were never cut."""
    node, wire, listener = one_way()
    wire.cut(replies=False)
    set_(listener, 1, 2, 3)
    await asyncio.sleep(LONG)
    assert (executed(node), listener.told) == ([], [])
    wire.mend()
    mended = sim().time()
    await asyncio.sleep(LONG)
    assert executed(node) == [1, 2, 3]
    assert listener.times == pytest.approx([mended + 2 * LATENCY] * 3)


@virtual
async def test_replies_that_are_held_up_come_late() -> None:
    """The node executes as ever, and the client hears nothing until the way is mended."""
    node, wire, listener = one_way()
    wire.cut(requests=False)
    set_(listener, 1, 2, 3)
    await asyncio.sleep(LONG)
    assert (executed(node), listener.told) == ([1, 2, 3], [])
    wire.mend()
    mended = sim().time()
    await asyncio.sleep(LONG)
    assert listener.times == pytest.approx([mended + LATENCY] * 3)


@virtual
async def test_what_was_under_way_at_the_cut_waits_too() -> None:
    """A cut stops what has left but not arrived."""
    node, wire, listener = one_way()
    set_(listener, 1)
    await asyncio.sleep(LATENCY / 2)
    wire.cut()
    await asyncio.sleep(LONG)
    assert executed(node) == []
    wire.mend()
    await asyncio.sleep(1)
    assert executed(node) == [1]


@virtual
async def test_what_was_lost_before_a_cut_is_sent_again_when_it_is_mended() -> None:
    """It does not wait for the time at which it would have come: then a reset could not take it back."""
    node, wire, listener = one_way()
    wire.lose(1.0, "all")
    set_(listener, 1)
    wire.lose(0.0, "none")
    wire.cut()
    await asyncio.sleep(RETRANSMISSION)
    wire.mend()
    await asyncio.sleep(1.5 * LATENCY)
    assert executed(node) == [1]


@virtual
async def test_a_cut_of_one_client_leaves_others_alone() -> None:
    """Each wire is a way of its own, and so are the first, which all share, and each connection."""
    node = MemoryNode(latency=LATENCY)
    cut, other = listen_in_memory(node, node.wire()), listen_in_memory(node, node.wire())
    shared = listen_in_memory(node)
    node.wires[1].cut()
    set_(cut, 1)
    set_(other, 2)
    set_(shared, 3)
    await asyncio.sleep(1)
    assert executed(node) == [2, 3]
    assert [len(one.told) for one in (cut, other, shared)] == [0, 1, 1]


# -- ends of connections ---------------------------------------------------------------------------


@pytest.mark.parametrize("cut_at", ["before it is sent", "before the reset", "behind the reset"])
@virtual
async def test_a_reset_takes_back_what_is_held_up(cut_at: str) -> None:
    """A client that resets a connection sends nothing again: no ghost lock, however long the cut lasts (R5).

    Also when the reset itself has left already, and is lost.
    """
    node, wire, listener = one_way()
    if cut_at == "before it is sent":
        wire.cut()
    set_(listener, 1)
    await asyncio.sleep(LATENCY / 4)
    if cut_at == "before the reset":
        wire.cut()
    listener.transport.abort()
    await asyncio.sleep(LATENCY / 4)
    wire.cut()
    await asyncio.sleep(LONG)
    wire.mend()
    await asyncio.sleep(LONG)
    assert executed(node) == []
    assert listener.lost
    assert wire.lanes == []


@pytest.mark.parametrize(("end", "numbers"), [("abort", [1]), ("close", [1, 2, 3])])
@virtual
async def test_a_reset_takes_back_what_was_lost_and_would_be_sent_again(end: str, numbers: list[int]) -> None:
    """An orderly end is no reset: what is lost then comes later, and what came behind it behind it."""
    node, wire, listener = one_way()
    set_(listener, 1)
    wire.lose(1.0, "all")
    set_(listener, 2)
    wire.lose(0.0, "none")
    set_(listener, 3)
    getattr(listener.transport, end)()
    await asyncio.sleep(2 * LATENCY)
    assert executed(node) == [1]
    await asyncio.sleep(60)
    assert executed(node) == numbers


@virtual
async def test_a_reset_does_not_take_back_what_gets_through() -> None:
    """What had left arrives before it."""
    node, wire, listener = one_way()
    set_(listener, 1)
    listener.transport.abort()
    await asyncio.sleep(1)
    assert executed(node) == [1]
    assert node._connections == wire.lanes == []


@virtual
async def test_a_plain_close_leaves_a_ghost_behind() -> None:
    """What was sent into a cut is executed when it is mended, long after the client has gone.

    That is why connections are given up by a reset, never by a plain close (R5, `SO_LINGER`).
    """
    node, wire, listener = one_way()
    wire.cut()
    set_(listener, 1)
    listener.transport.close()
    await asyncio.sleep(LONG)
    assert listener.lost
    assert executed(node) == []
    wire.mend()
    await asyncio.sleep(1)
    assert executed(node) == [1]
    assert node._connections == wire.lanes == []


@virtual
async def test_a_reset_behind_a_close_takes_it_all_back() -> None:
    """A client that waits for an orderly end no longer (`Link.aclose`) leaves no ghost either."""
    node, wire, listener = one_way()
    wire.cut()
    set_(listener, 1)
    listener.transport.close()
    listener.transport.abort()
    wire.mend()
    await asyncio.sleep(1)
    assert executed(node) == []
    assert wire.lanes == []


@virtual
async def test_a_lost_reset_is_repeated_when_the_client_asks() -> None:
    """A client that is cut off does not hear of the server's reset; whatever it sends later tells it."""
    node, wire, listener = one_way()
    wire.cut()
    node.disconnect()
    await asyncio.sleep(1)
    wire.mend()
    await asyncio.sleep(1)
    assert not listener.lost
    set_(listener, 1)
    await asyncio.sleep(1)
    assert listener.lost
    assert (executed(node), listener.told) == ([], [])
    assert wire.lanes == []


@virtual
async def test_a_server_that_resets_takes_back_its_replies() -> None:
    """What it has said into a cut is never heard."""
    node, wire, listener = one_way()
    wire.cut(requests=False)
    set_(listener, 1)
    await asyncio.sleep(1)
    node.disconnect()
    await asyncio.sleep(1)
    wire.mend()
    await asyncio.sleep(1)
    set_(listener, 2)
    await asyncio.sleep(1)
    assert (executed(node), listener.told, listener.lost) == ([1], [], True)


@virtual
async def test_replies_come_before_the_reset_behind_them() -> None:
    """A reset travels like all else: what the server said before it is heard."""
    node, _, listener = one_way()
    set_(listener, 1)
    await asyncio.sleep(1.5 * LATENCY)
    node.disconnect()
    assert not listener.lost
    await asyncio.sleep(1)
    assert listener.told == [b"OK"]
    assert listener.lost


@virtual
async def test_a_server_whose_client_vanished_hears_of_it_when_it_speaks() -> None:
    """A half-open connection stays, with its subscriptions, until a message to it is answered by a reset."""
    node, wire, listener = one_way()
    await listener.subscribe(b"channel")
    wire.cut()
    listener.transport.abort()
    wire.mend()
    await asyncio.sleep(LONG)
    assert len(node._connections) == 1
    assert node.execute([b"PUBLISH", b"channel", b""]) == b":1\r\n"
    await asyncio.sleep(1)
    assert node._connections == []
    assert node.execute([b"PUBLISH", b"channel", b""]) == b":0\r\n"


@virtual
async def test_wires_keep_nothing_of_connections_that_have_ended() -> None:
    """Whichever side ends them, and in whichever order: no lane is left that would be mended for ever."""
    node, wire, _ = one_way()
    for end in (MemoryNode.disconnect, MemoryNode.crash):
        listener = listen_in_memory(node, wire)
        end(node)
        listener.transport.close()
    await asyncio.sleep(1)
    assert wire.lanes == node._connections == []


# -- breaks ----------------------------------------------------------------------------------------


@virtual
async def test_a_break_before_a_command_is_its_end() -> None:
    """It is not executed, nor is what follows; what came before it is answered."""
    node, wire, listener = one_way()
    set_(listener, 1)
    await asyncio.sleep(1)
    wire.break_before()
    set_(listener, 2, 3)
    await asyncio.sleep(1)
    assert (executed(node), listener.told, listener.lost) == ([1], [b"OK"], True)


@virtual
async def test_a_break_after_a_command_takes_its_answer() -> None:
    """It is executed but not answered; what follows is not executed."""
    node, wire, listener = one_way()
    wire.break_after()
    set_(listener, 1, 2)
    await asyncio.sleep(1)
    assert (executed(node), listener.told, listener.lost) == ([1], [], True)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@virtual
async def test_a_break_ends_what_came_in_the_same_write(after: bool) -> None:
    """Nothing behind it is executed; the next connection is whole."""
    node, wire, listener = one_way()
    (wire.break_after if after else wire.break_before)()
    listener.transport.write(pack(b"SET", b"key", b"1") + pack(b"SET", b"key", b"2"))
    await asyncio.sleep(1)
    assert (executed(node), listener.told, listener.lost) == ([1] if after else [], [], True)
    second = listen_in_memory(node, wire)
    set_(second, 3, 4)
    await asyncio.sleep(1)
    assert second.told == [b"OK", b"OK"]


# -- managers --------------------------------------------------------------------------------------


def acquires(node: MemoryNode) -> int:
    """Return how many acquires a node has executed."""
    return count(node, "acquire")


@virtual
async def test_held_up_requests_are_silence_and_leave_nothing() -> None:
    """A round through cut ways fails; what arrives when they are mended is undone behind it (R5)."""
    nodes = [MemoryNode() for _ in range(3)]
    async with opened(nodes) as manager:
        for node in nodes[:2]:
            node.wires[0].cut(replies=False)
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("a", blocking=False).acquire()
        assert [vote.vote for vote in caught.value.votes] == [Vote.SILENT, Vote.SILENT, Vote.GRANTED]
        assert [acquires(node) for node in nodes] == [0, 0, 1]
        for node in nodes[:2]:
            node.wires[0].mend()
        await asyncio.sleep(1)
        assert [acquires(node) for node in nodes] == [1, 1, 1]
        assert [locks(node) for node in nodes] == [()] * 3


@virtual
async def test_held_up_replies_are_silence() -> None:
    """The nodes grant what no client hears of: votes are SILENT, and the release is executed, too."""
    nodes = [MemoryNode() for _ in range(3)]
    async with opened(nodes) as manager:
        for node in nodes:
            node.wires[0].cut(requests=False)
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("a", blocking=False).acquire()
        assert [vote.vote for vote in caught.value.votes] == [Vote.SILENT] * 3
        assert [acquires(node) for node in nodes] == [1] * 3
        await asyncio.sleep(TIMEOUT)
        assert [locks(node) for node in nodes] == [()] * 3


@pytest.mark.parametrize("executed_first", [False, True], ids=["before", "after"])
@virtual
async def test_what_breaks_is_released_by_the_ledger(executed_first: bool) -> None:
    """The connection breaks under an acquire: SILENT, and the next one begins with its release (R5)."""
    node = MemoryNode(latency=0.001)
    wire = node.wire()
    async with opened([wire], fencing=False, restart_quarantine=0, extension=PLAIN) as manager:
        await asyncio.sleep(HEARTBEAT / 2)  # so that it is the acquire that breaks it
        (wire.break_after if executed_first else wire.break_before)()
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("a", blocking=False).acquire()
        assert caught.value.votes[0].vote is Vote.SILENT
        assert "reset by the server" in caught.value.votes[0].reason
        assert acquires(node) == executed_first
        assert (node.get(PREFIX + b"a") is not None) == executed_first
        await asyncio.sleep(1)
        assert node.get(PREFIX + b"a") is None
        assert count(node, "release") >= 1


@virtual
async def test_a_way_that_is_cut_during_the_handshake_is_cut() -> None:
    """No client is connected through it before it is mended."""
    node = MemoryNode(latency=0.1)
    opening = asyncio.create_task(node.open(lambda *_: None, node.wires[0]))
    await asyncio.sleep(0.05)
    node.wires[0].cut()
    await asyncio.sleep(1)
    assert not opening.done()
    node.wires[0].mend()
    link, _ = await opening
    await link.aclose(1.0)


@pytest.mark.parametrize("direction", ["requests", "replies"])
@virtual
async def test_no_client_connects_through_a_cut_way(direction: str) -> None:
    """It times out by `connect_timeout`, again and again, and succeeds when the way is mended."""
    node = MemoryNode(latency=LATENCY)
    wire = node.wire()
    wire.cut(requests=direction == "requests", replies=direction == "replies")
    manager = make([wire], connect_timeout=1.0)
    async with manager:
        await asyncio.sleep(1.0)
        standing = manager.statistics().nodes[0]
        assert standing.state is NodeState.DOWN
        assert "no answer to connect and login within 1 s" in standing.reason
        await asyncio.sleep(LONG)
        assert node._connections == []
        wire.mend()
        await asyncio.sleep(2)
        assert manager.statistics().nodes[0].state is NodeState.UP


@virtual
async def test_a_dead_server_behind_a_cut_is_mute_too() -> None:
    """No server is there to refuse the connection, as far as the client can see; afterwards one is."""
    node = MemoryNode()
    node.crash()
    node.wires[0].cut()
    async with make([node], connect_timeout=0.5) as manager:
        await asyncio.sleep(1)
        assert "no answer to connect" in manager.statistics().nodes[0].reason
        node.wires[0].mend()
        await asyncio.sleep(2)
        assert "refused" in manager.statistics().nodes[0].reason


@virtual
async def test_each_client_has_its_own_way() -> None:
    """Two processes with wires of their own, and one without: a cut is one client's only."""
    nodes = [MemoryNode(latency=0.001) for _ in range(3)]
    wires = [node.wire() for node in nodes]
    async with opened(nodes) as shared, opened(wires, seed=2) as cut_off:
        for wire in wires:
            wire.cut()
        async with shared.lock("a") as lease:
            assert [vote.vote for vote in lease.votes].count(Vote.GRANTED) >= 2
        assert await tries(cut_off) == [Vote.SILENT] * 3
        for wire in wires:
            wire.mend()
        await asyncio.sleep(2)
        async with cut_off.lock("a"):
            pass


async def tries(manager: LockManager) -> list[Vote]:
    """Return the votes of one try that fails."""
    with pytest.raises(QuorumUnavailableError) as caught:
        await manager.lock("a", blocking=False).acquire()
    return [vote.vote for vote in caught.value.votes]


# -- what the master itself does -------------------------------------------------------------------


@virtual
async def test_refusals_are_silence_with_a_reason() -> None:
    """An error is no answer to the question (R1); it stands in the vote, until the node is told otherwise."""
    nodes = [MemoryNode() for _ in range(3)]
    async with opened(nodes) as manager:
        for node in nodes[1:]:
            node.refuse("BUSY Redis is busy running a script.")
        with pytest.raises(QuorumUnavailableError) as caught:
            await manager.lock("a", blocking=False).acquire()
        assert [vote.vote for vote in caught.value.votes] == [Vote.GRANTED, Vote.SILENT, Vote.SILENT]
        assert all("BUSY" in vote.reason for vote in caught.value.votes[1:])
        assert [locks(node) for node in nodes[1:]] == [()] * 2
        for node in nodes:
            node.refuse("")
        await asyncio.sleep(2)
        async with manager.lock("a"):
            pass


@virtual
async def test_start_brings_back_the_dead_alone() -> None:
    """With the data that a crash has kept, as a new process; to one that runs nothing happens."""
    node = MemoryNode()
    node.set(b"key", b"value")
    first = node.identity
    node.start()
    assert node.identity == first
    node.crash(keep_data=True)
    assert not node.answers
    node.start()
    assert node.answers
    assert node.get(b"key") == b"value"
    assert node.identity != first


@virtual
async def test_a_clock_says_how_fast_it_goes() -> None:
    """As it was told, and it goes by that."""
    node = MemoryNode()
    assert node.clock_rate == 1.0
    node.set_clock_rate(2.0)
    assert node.clock_rate == 2.0
    node.set(b"key", b"value", 4.0)
    await asyncio.sleep(1)
    assert node.ttl(b"key") == pytest.approx(2.0)
