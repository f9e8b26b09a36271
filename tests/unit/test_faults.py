"""Faults as data: each begins and ends as it says, at its own node alone.  On virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
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
"""Arguments of kinds besides the time and the node."""


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
"""The differences when it is over."""


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
