"""The way between a master in memory and a client: what TCP promises, and what a bad network does.

On virtual time.  Connections are used by hand where the bytes are in question, else through managers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import hiredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioredlock_ng import LockManager, QuorumUnavailableError, Vote
from tests.listening import Listener, listen_in_memory
from tests.simulation.wires import WiredNode
from tests.unit.tasks import virtual
from tests.unit.traces import PREFIX, count
from tests.unit.worlds import PLAIN, opened

LATENCY = 0.1
"""Seconds one way."""

LONG = 60.0
"""Seconds after which everything has come that ever will."""


def one_way() -> tuple[WiredNode, Any, Listener]:
    """Return a master, its first wire, and a connection."""
    node = WiredNode(latency=LATENCY)
    wire = node.wires[0]
    return node, wire, listen_in_memory(node, wire)


def pack(*words: bytes) -> bytes:
    """Return a command as it is sent."""
    return hiredis.pack_command(words)  # type: ignore[arg-type]  # the stub says a tuple of one


def executed(node: WiredNode) -> list[int]:
    """Return the numbers that were set, in order."""
    return [int(words[2]) for words in node.executed if words[0] == b"SET"]


def set_(listener: Listener, *numbers: int) -> None:
    """Send commands that set numbers, each in a write of its own."""
    for number in numbers:
        listener.send(b"SET", b"key", b"%d" % number)


# -- laws of TCP -----------------------------------------------------------------------------------

WAYS = st.sampled_from([(True, True), (True, False), (False, True)])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 40)),
        st.tuples(st.sampled_from(["cut", "mend"]), WAYS),
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
        node = WiredNode(latency=lambda: drawn.choice((0.0, 0.01, 0.4)))
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


STORIES = {
    "each loss costs a retransmission, which takes twice as long each time; bad luck has a limit": (
        "lose 1, set 1, wait 12.5, heard 0, wait 0.2, heard 1, lose 0, set 2, wait 0.19, heard 1, wait 0.02, "
        "heard 2"
    ),
    "a reset takes back what is held up: no ghost lock, however long the cut lasts (R5)": (
        "cut, set 1, wait 0.025, abort, wait 0.025, cut, wait 60, mend, wait 60, executed, lost, no lane"
    ),
    "also where the cut is between the two": (
        "set 1, wait 0.025, cut, abort, wait 0.025, cut, wait 60, mend, wait 60, executed, lost, no lane"
    ),
    "and where the reset has left, and is lost": (
        "set 1, wait 0.025, abort, wait 0.025, cut, wait 60, mend, wait 60, executed, lost, no lane"
    ),
    "a reset takes back what was lost and would be sent again": (
        "set 1, lose 1, set 2, lose 0, set 3, abort, wait 0.2, executed 1, wait 60, executed 1"
    ),
    "an orderly end does not: what is lost comes later, and what came behind it behind it": (
        "set 1, lose 1, set 2, lose 0, set 3, close, wait 0.2, executed 1, wait 60, executed 1 2 3"
    ),
    "a reset does not take back what gets through": "set 1, abort, wait 1, executed 1, no connection",
    "a plain close leaves a ghost behind, which is why connections are given up by a reset (R5)": (
        "cut, set 1, close, wait 60, lost, executed, mend, wait 1, executed 1, no connection"
    ),
    "a reset behind a close takes it all back": "cut, set 1, close, abort, mend, wait 1, executed, no lane",
    "a client that is cut off does not hear of a reset; whatever it sends later tells it": (
        "cut, disconnect, wait 1, mend, wait 1, alive, set 1, wait 1, lost, executed, heard 0, no lane"
    ),
    "a server that resets takes back its replies": (
        "cut replies, set 1, wait 1, disconnect, wait 1, mend, wait 1, set 2, wait 1, executed 1, heard 0, "
        "lost"
    ),
    "replies come before the reset behind them": "set 1, wait 0.15, disconnect, alive, wait 1, heard 1, lost",
    "a break before a command is its end": (
        "set 1, wait 1, break before, set 2 3, wait 1, executed 1, heard 1, lost"
    ),
    "a break after a command takes its answer": "break after, set 1 2, wait 1, executed 1, heard 0, lost",
    "a break before what came in the same write": (
        "break before, write 1 2, wait 1, executed, heard 0, lost, connect, set 3 4, wait 1, heard 2"
    ),
    "a break after it": (
        "break after, write 1 2, wait 1, executed 1, heard 0, lost, connect, set 3 4, wait 1, heard 2"
    ),
}


@pytest.mark.parametrize("story", STORIES)
async def test_stories(story: str) -> None:
    """The commands that the master executed, the replies at the client, and whether it knows of its end."""
    node, wire, listener = one_way()
    for step in STORIES[story].split(", "):
        what, *how = step.split()
        if what == "wait":
            await asyncio.sleep(float(how[0]))
        elif what == "connect":
            listener = listen_in_memory(node, wire)
        elif what in CHECKS:
            assert CHECKS[what](node, wire, listener, *how), step
        else:
            STEPS[what](node, wire, listener, *how)


STEPS: dict[str, Callable[..., object]] = {
    "set": lambda _, __, listener, *numbers: set_(listener, *map(int, numbers)),
    "write": lambda _, __, listener, *numbers: listener.transport.write(
        b"".join(pack(b"SET", b"key", number.encode()) for number in numbers)
    ),
    "cut": lambda _, wire, __, only="": wire.cut(requests=only != "replies", replies=only != "requests"),
    "mend": lambda _, wire, __, only="": wire.mend(requests=only != "replies", replies=only != "requests"),
    "lose": lambda _, wire, __, share: wire.lose(float(share), "some"),
    "delay": lambda _, wire, __, seconds: setattr(wire, "extra", float(seconds)),
    "break": lambda _, wire, __, when: getattr(wire, f"break_{when}")(),
    "abort": lambda _, __, listener: listener.transport.abort(),
    "close": lambda _, __, listener: listener.transport.close(),
    "disconnect": lambda node, *_: node.disconnect(),
}
CHECKS: dict[str, Callable[..., bool]] = {
    "executed": lambda node, _, __, *numbers: executed(node) == [*map(int, numbers)],
    "heard": lambda _, __, listener, number: len(listener.told) == int(number),
    "lost": lambda _, __, listener: listener.lost,
    "alive": lambda _, __, listener: not listener.lost,
    "no": lambda node, wire, _, what: wire.lanes == [] and (what == "lane" or node._connections == []),
}


# -- managers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_breaks_is_released_by_the_ledger(when: str) -> None:
    """The connection breaks under an acquire: SILENT, and the next one begins with its release (R5)."""
    node = WiredNode(latency=0.001)
    wire = node.wire()
    async with opened([wire], fencing=False, restart_quarantine=0, extension=PLAIN) as manager:
        await asyncio.sleep(0.25)  # so that it is the acquire that breaks it
        getattr(wire, f"break_{when}")()
        assert await tries(manager, "reset by the server") == [Vote.SILENT]
        assert count(node, "acquire") == (when == "after") == (node.get(PREFIX + b"a") is not None)
        await asyncio.sleep(1)
        assert node.get(PREFIX + b"a") is None
        assert count(node, "release") >= 1


async def tries(manager: LockManager, reason: str = "") -> list[Vote]:
    """Return the votes of one try that fails, the silent ones for a reason."""
    with pytest.raises(QuorumUnavailableError) as caught:
        await manager.lock("a", blocking=False).acquire()
    assert all(reason in vote.reason for vote in caught.value.votes if vote.vote is Vote.SILENT)
    return [vote.vote for vote in caught.value.votes]
