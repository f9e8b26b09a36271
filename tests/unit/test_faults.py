"""Faults as data: each begins and ends as it says, alone and together with others.  On virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import hiredis
import pytest

from tests.listening import Listener, listen_in_memory
from tests.simulation.faults import (
    BreakAfter,
    BreakBefore,
    ClockRate,
    ClockStep,
    Delay,
    Disconnect,
    End,
    Fault,
    FlushData,
    FlushScripts,
    Loss,
    Partition,
    Refusal,
    Relapse,
    Restart,
    Stall,
)
from tests.simulation.wires import WiredNode
from tests.unit.tasks import sim

BUSY = "BUSY Redis is busy running a script."


ARGUMENTS: dict[type[Fault], dict[str, Any]] = {
    ClockRate: {"rate": 2.0},
    ClockStep: {"seconds": 5.0},
    Delay: {"seconds": 0.2},
    Loss: {"share": 0.5},
    Refusal: {"error": BUSY},
}
"""What kinds need besides the time and the node."""


@contextlib.asynccontextmanager
async def play(nodes: Sequence[WiredNode], faults: Iterable[Fault]) -> AsyncIterator[None]:
    """Let faults happen while the block runs; those that wait for a command end with the block."""
    waiting: list[End] = []

    def begin(fault: Fault) -> None:
        end = fault.begin(nodes)
        if isinstance(fault, BreakBefore | BreakAfter):
            waiting.append(end)
        else:
            sim().call_later(fault.lasts, end)

    timers = [sim().call_later(fault.at, begin, fault) for fault in faults]
    yield
    for timer in timers:
        timer.cancel()
    for end in waiting:
        end()


def make(kind: type[Fault], **options: Any) -> Fault:
    """Make a fault of a kind."""
    return kind(**{"at": 1.0, "node": 0, "lasts": 2.0, **ARGUMENTS.get(kind, {}), **options})


Look = dict[str, Any]


async def look(node: WiredNode) -> Look:
    """Look at a node, as a client sees it by one PING and as it is; the connection is left in the lurch."""
    listener = listen_in_memory(node)
    listener.send(b"PING")
    await asyncio.sleep(0.01)
    return {
        "answer": heard(listener),
        "data": node.get(b"key"),
        "process": node.identity,
        "rate": node.clock_rate,
        "ahead": round(node._server.clock.now() - sim().time(), 6),
        "scripts": bool(node._server._scripts),
    }


def heard(listener: Listener) -> str:
    """Say what has come within 10 ms: PONG, an error's first word, reset, or nothing."""
    if not listener.told:
        return "reset" if listener.lost else "nothing"
    reply = listener.told[0]
    return str(reply).split()[0] if isinstance(reply, hiredis.ReplyError) else reply.decode()


DURING: dict[type[Fault], dict[str, Any]] = {
    BreakAfter: {"answer": "reset"},
    BreakBefore: {"answer": "reset"},
    ClockRate: {"rate": 2.0, "ahead": 0.51},
    ClockStep: {"ahead": 5.0},
    Delay: {"answer": "nothing"},
    Disconnect: {},
    FlushData: {"data": None},
    FlushScripts: {"scripts": False},
    Loss: {"answer": "nothing"},
    Partition: {"answer": "nothing"},
    Refusal: {"answer": "BUSY"},
    Relapse: {},
    Restart: {"answer": "nothing", "data": None},
    Stall: {"answer": "nothing"},
}
"""Each kind, and what differs half a second after it began."""

AFTERWARDS: dict[type[Fault], dict[str, Any]] = {
    ClockRate: {"ahead": 2.0},
    ClockStep: {"ahead": 5.0},
    FlushData: {"data": None},
    FlushScripts: {"scripts": False},
    Relapse: {"process": "another", "scripts": False},
    Restart: {"process": "another", "scripts": False, "data": None},
}
"""What differs when it is over."""


async def prepared() -> tuple[list[WiredNode], Look]:
    """Return two nodes with a key and scripts, and how the first one is before anything goes wrong."""
    nodes = [WiredNode(), WiredNode()]
    for node in nodes:
        node.set(b"key", b"value")
        node._server.load_all()
    return nodes, await look(nodes[0])


def differs(was: Look, now: Look) -> Look:
    """Return what is not as it was."""
    changed = {name: value for name, value in now.items() if value != was[name]}
    return changed | ({"process": "another"} if "process" in changed else {})


@pytest.mark.parametrize("kind", DURING, ids=lambda kind: kind.__name__)
async def test_a_fault_begins_and_ends_as_it_says(kind: type[Fault]) -> None:
    """Nothing before its time, what its docstring says while it lasts, all well afterwards; and never
    anything at another node.
    """
    nodes, was = await prepared()
    other = await look(nodes[1])
    share = {"share": 1.0} if kind is Loss else {}
    async with play(nodes, [make(kind, **share)]):
        await asyncio.sleep(0.9)
        assert differs(was, await look(nodes[0])) == {}
        await asyncio.sleep(0.59)
        during = await look(nodes[0])
        assert differs(was, during) == pytest.approx(DURING[kind])
        assert differs(other, await look(nodes[1])) == {}
        await asyncio.sleep(2)
        assert differs(was, await look(nodes[0])) == pytest.approx(AFTERWARDS.get(kind, {}))
    assert differs(was, await look(nodes[0])) == pytest.approx(AFTERWARDS.get(kind, {}))
    assert differs(other, await look(nodes[1])) == {}


# -- several at once -------------------------------------------------------------------------------


def on(kind: type[Fault], at: float, lasts: float, **options: Any) -> Fault:
    """Make a fault of the first node."""
    return kind(at=at, node=0, lasts=lasts, **options)


def wire(attribute: str) -> Callable[[WiredNode], Any]:
    """Return what shows how the first way to a node is."""
    return lambda node: getattr(node.wires[0], attribute)


answers, rate = attrgetter("answers"), attrgetter("clock_rate")
YES, NO = True, False

OVERLAPS: dict[str, tuple[Fault, Fault, Callable[[WiredNode], Any], list[Any]]] = {
    "stall": (on(Stall, 1, 2), on(Stall, 2, 2), answers, [YES, NO, NO, NO, YES]),
    "stall within": (on(Stall, 1, 3), on(Stall, 2, 1), answers, [YES, NO, NO, NO, YES]),
    "restart": (on(Restart, 1, 2), on(Restart, 2, 2), answers, [YES, NO, NO, NO, YES]),
    "one behind the other": (on(Stall, 1, 1), on(Stall, 2, 1), answers, [YES, NO, NO, YES, YES]),
    "stall of one that is down": (on(Restart, 1, 2), on(Stall, 2, 5), answers, [YES, NO, NO, YES, YES]),
    "relapse of a stalled one": (on(Stall, 1, 3), on(Relapse, 0, 2), answers, [YES, NO, YES, YES, YES]),
    "restart of a stalled one": (on(Stall, 1, 3), on(Restart, 2, 1), answers, [YES, NO, NO, YES, YES]),
    "relapse of one that is down": (
        on(Restart, 1, 3),
        on(Relapse, 0, 2),
        lambda node: (node.answers, node.get(b"key")),
        [(YES, b"value"), (NO, None), (NO, b"value"), (NO, b"value"), (YES, b"value")],
    ),
    "refusal within": (
        on(Refusal, 1, 3, error="BUSY"),
        on(Refusal, 2, 1, error="LOADING"),
        lambda node: node.refusal,
        ["", "BUSY", "LOADING", "BUSY", ""],
    ),
    "refusal": (
        on(Refusal, 1, 2, error="BUSY"),
        on(Refusal, 2, 2, error="LOADING"),
        lambda node: node.execute([b"PING"]),
        [b"+PONG\r\n", b"-BUSY\r\n", b"-LOADING\r\n", b"-LOADING\r\n", b"+PONG\r\n"],
    ),
    "rate": (on(ClockRate, 1, 2, rate=2.0), on(ClockRate, 2, 2, rate=3.0), rate, [1, 2, 3, 3, 1]),
    "rate within": (on(ClockRate, 1, 3, rate=2.0), on(ClockRate, 2, 1, rate=1.0), rate, [1, 2, 1, 2, 1]),
    "loss": (on(Loss, 1, 2, share=0.2), on(Loss, 2, 2, share=0.1), wire("loss"), [0, 0.2, 0.1, 0.1, 0]),
    "delay": (on(Delay, 1, 2, seconds=1), on(Delay, 2, 2, seconds=2), wire("extra"), [0, 1, 3, 2, 0]),
    "the same twice": (
        on(Delay, 1, 2, seconds=1),
        on(Delay, 1, 2, seconds=1),
        wire("extra"),
        [0, 2, 2, 0, 0],
    ),
    "partition": (
        on(Partition, 1, 2),
        on(Partition, 2, 2, client=0),
        lambda node: node.wires[0].requests_cut and node.wires[0].replies_cut,
        [NO, YES, YES, YES, NO],
    ),
    "partition of one direction each": (
        on(Partition, 1, 2, requests=False),
        on(Partition, 2, 2, replies=False),
        lambda node: (node.wires[0].requests_cut, node.wires[0].replies_cut),
        [(NO, NO), (NO, YES), (YES, YES), (YES, NO), (NO, NO)],
    ),
}
"""Two faults, what is looked at, and how it is after 0.5 s, 1.5 s and so on."""


@pytest.mark.parametrize("name", OVERLAPS)
async def test_faults_of_one_node_go_on_side_by_side(name: str) -> None:
    """The end of one is not the end of the other, and when the last one is over all is as it was."""
    first, second, shown, expected = OVERLAPS[name]
    node = WiredNode()
    node.set(b"key", b"value")
    seen = []
    async with play([node], [first, second]):
        await asyncio.sleep(0.5)
        for _ in expected:
            seen.append(shown(node))
            await asyncio.sleep(1.0)
    assert seen == expected


async def test_a_fault_of_one_client_is_of_no_other() -> None:
    """Each way by its number; without one, all ways that there are."""
    node = WiredNode()
    for _ in range(2):
        node.wire()
    async with play([node], [Partition(at=1.0, node=0, lasts=1.0, client=1), Partition(at=3.0, node=0)]):
        await asyncio.sleep(1.5)
        assert [wire.requests_cut for wire in node.wires] == [False, True, False]
        await asyncio.sleep(1)
        assert not any(wire.requests_cut for wire in node.wires)
    end = Partition(at=0.0, node=0).begin([node])
    assert all(wire.requests_cut for wire in node.wires)
    end()
