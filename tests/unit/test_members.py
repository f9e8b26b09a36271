"""Clients whose lists of nodes disagree: noticed by both, and the older one goes on (A4, R12c)."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from aioredlock_ng import (
    ConfigurationError,
    Lease,
    LockError,
    LockManager,
    NodeState,
    QuorumUnavailableError,
)
from aioredlock_ng._cli._overview import as_lines
from aioredlock_ng._core.members import COMPARE, USED, read_members
from aioredlock_ng._view.overview import look
from aioredlock_ng._view.values import overview_as_json as as_json
from aioredlock_ng.events import Hooks, Misconfigured
from tests.simulation.wires import Wire, WiredNode
from tests.unit.worlds import LATENCY, ROUND_TRIP, make

QUARANTINE = 6.5
HEARTBEATS = 1.1
"""Two of them, in seconds."""
LONG = 30.0
"""A quarantine within which more than one thing can happen."""
SETTLED = 7.0
"""Seconds after which a server that others use cannot be one that was in this list before."""


class Told(Hooks):
    """Keeps the events about wrong lists."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def on_misconfigured(self, event: Misconfigured) -> None:
        """Keep it."""
        self.reasons.append(event.reason)


def _servers(number: int) -> list[WiredNode]:
    return [WiredNode(latency=LATENCY) for _ in range(number)]


async def use(manager: LockManager, name: str = "a") -> None:
    """Acquire and release a lock at once."""
    async with manager.lock(name, blocking_timeout=0):
        pass


@contextlib.asynccontextmanager
async def using(
    nodes: Sequence[Any], *, label: str = "us", hooks: Told | None = None, quarantine: float = QUARANTINE
) -> AsyncIterator[LockManager]:
    """Give a manager over nodes, which its first use starts."""
    manager = make(
        nodes,
        restart_quarantine=quarantine,
        ttl=quarantine or QUARANTINE,
        holder=label,
        hooks=[hooks or Told()],
    )
    async with contextlib.aclosing(manager):
        yield manager


async def test_two_lists_that_differ_in_a_node_are_both_noticed() -> None:
    """The one that came first gets an event and goes on; the other is refused, with the first one's name."""
    a, b, x, y = _servers(4)
    first, second = Told(), Told()
    async with using((a, b, x), label="first", hooks=first) as ours:
        await use(ours)
        await asyncio.sleep(3)
        async with using((a, b, y), label="second", hooks=second) as theirs:
            with pytest.raises(ConfigurationError, match=r"another server in its place.*says client first"):
                await use(theirs)
            await asyncio.sleep(SETTLED)
            await use(ours)
            assert [reason for reason in first.reasons if "has a server that this list lacks" in reason]
            assert all(y.identity[0] in reason and "second" in reason for reason in first.reasons)
            assert len(second.reasons) == 1
            assert x.identity[0] in second.reasons[0]
            # Both name the server that they lack, and the second one has no vote anywhere.
            for manager, server, says in ((ours, y, "not used so far, says client second"),
                                          (theirs, x, "says client first")):  # fmt: skip
                (stranger,) = manager.statistics().strangers
                assert server.identity[0] in stranger
                assert says in stranger
            assert (ours.statistics().quorum_margin, theirs.statistics().quorum_margin) == (1, -2)
            *shared, late = theirs.statistics().nodes
            assert {node.state for node in shared} == {"up"}
            assert (late.state, late.votes_in) == ("quarantined", None)
            assert "another server in its place" in late.reason
            # Until no lock of the first client can be alive.
            await ours.aclose()
            await asyncio.sleep(4)
            with pytest.raises(ConfigurationError):
                await use(theirs)
            await asyncio.sleep(QUARANTINE)
            a.freeze()
            await use(theirs)
            assert theirs.statistics().strangers == ()
            a.thaw()


async def test_two_starts_over_slow_nodes_warn_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A node that another client does not use so far waits for one that answers late, and nothing more."""
    servers = _servers(5)
    theirs, ours = [[server.wire() for server in servers] for _ in range(2)]
    async with using(servers) as before:
        await use(before)
    await asyncio.sleep(2 * QUARANTINE)
    theirs[4].extra = 30 * LATENCY
    for wire, trips in zip(ours, (1, 1, 1, 2, 0), strict=True):
        wire.extra = trips * ROUND_TRIP
    caplog.clear()
    async with using(theirs) as first, using(ours) as second:
        await use(first)
        await use(second)
        await asyncio.sleep(HEARTBEATS)
        assert [node.state for node in second.statistics().nodes] == [NodeState.UP] * len(servers)
    assert caplog.messages == []


async def test_a_server_that_joins_a_list_later_is_held_back(caplog: pytest.LogCaptureFixture) -> None:
    """The client runs: it goes on with the others.  `init` would give both servers a vote."""
    a, b, x, y, *others = _servers(6)
    async with using((y, *others)) as elsewhere:
        await use(elsewhere)
    wire, told = y.wire(), Told()
    wire.cut()
    async with using((a, b, x)) as ours:
        await use(ours)
        await asyncio.sleep(1)
        async with using((a, b, wire), hooks=told) as theirs:
            await use(theirs, "b")
            await asyncio.sleep(2 * SETTLED)
            wire.mend()
            for _ in range(20):
                await use(ours)
                await use(theirs, "b")
                await asyncio.sleep(1)
            (line,) = [one for one in caplog.messages if "clients used another server a moment ago" in one]
            assert f"node {y.name} has no vote" in line
            assert line.endswith(f"; if no server was replaced, {COMPARE}")
            assert not any("init" in one for one in caplog.messages if y.name in one)
            assert len(told.reasons) == 1
            assert x.identity[0] in told.reasons[0]
            *shared, late = theirs.statistics().nodes
            assert late.belongs_elsewhere
            assert not any(node.belongs_elsewhere for node in shared)


async def test_two_clients_that_begin_together_are_both_refused() -> None:
    """Within two heartbeats: none of them came first.  Later they exclude each other, or one is refused."""
    a, b, x, y = _servers(4)
    async with using((a, b, x)) as one, using((y, b, a)) as other:
        await asyncio.gather(use(one, "b"), use(other, "c"), return_exceptions=True)
        await asyncio.sleep(HEARTBEATS)
        for manager in (one, other):
            with pytest.raises(ConfigurationError):
                await use(manager)


async def test_what_a_node_has_told_outlives_it() -> None:
    """The first client holds by x and b, of which the second one reaches none; a has reported x, and ends."""
    a, b, x, y = _servers(4)
    wires = [a.wire(), b.wire(), x.wire()]
    async with using(wires) as ours, using((a, b, y)) as theirs:
        await use(ours)
        await asyncio.sleep(HEARTBEATS)
        wires[1].cut()
        lease = await ours.lock("held").acquire()
        with pytest.raises(ConfigurationError):
            await use(theirs)
        a.crash()
        for _ in range(20):
            with pytest.raises((ConfigurationError, QuorumUnavailableError)):
                await use(theirs, "held")
            await asyncio.sleep(0.1)
        wires[1].mend()
        await lease.release()


@pytest.mark.parametrize("list_", ["first", "second"])
async def test_a_look_shows_which_servers_the_list_lacks(list_: str) -> None:
    """With either list; with the one that came second nothing can be locked, and `init` would be wrong."""
    a, b, x, y = _servers(4)
    async with using((a, b, x), label="first") as ours, using((a, b, y), label="second") as theirs:
        await use(ours)
        await asyncio.sleep(HEARTBEATS)
        with pytest.raises(ConfigurationError):
            await use(theirs)
        await asyncio.sleep(HEARTBEATS)
        came_first = list_ == "first"
        async with using((a, b, x if came_first else y)) as reader:
            overview = await look(reader)
            assert (overview.unavailable_for, overview.up) == ((0, 3) if came_first else (math.inf, 2))
            lines = [line.text for line in as_lines(overview) if line.style == "error"]
            assert len(lines) == (2 if came_first else 4)
            stranger, does, *more = lines if came_first else lines[1:]
            assert (y if came_first else x).identity[0] in stranger
            assert f"says client {'second' if came_first else 'first'}" in stranger
            assert does.startswith("give all clients the same nodes")
            assert all(text == "2 of 3 nodes are up: no lock can be acquired" for text in more)
            assert as_json(overview)["strangers"] == reader.statistics().strangers
            assert stranger.endswith(as_json(overview)["strangers"][0])
            if not came_first:
                with pytest.raises(ConfigurationError, match="nothing was changed"):
                    await reader.init()


@pytest.mark.parametrize("list_", ["first", "second"])
async def test_a_diagnosis_names_the_server_that_the_list_lacks(list_: str) -> None:
    """Of the list that differs from that of the clients; without one of its own it finds nothing."""
    a, b, x, y = _servers(4)
    async with using((a, b, x), label="first") as ours:
        await use(ours)
        await asyncio.sleep(2 * SETTLED)  # else y may be the one that x was a moment ago
        async with using((a, b, x if list_ == "first" else y)) as doctor:
            findings = [one for one in await doctor.diagnose() if one.check == "identity"]
            wrong = [one.message for one in findings if one.level == "error"]
            assert len(wrong) == (list_ == "second")
            assert all(x.identity[0] in message and "says client first" in message for message in wrong)


@pytest.mark.parametrize("after", [0.3, 2.0, 4.0])
async def test_a_reader_takes_a_restarted_server_for_no_other(after: float) -> None:
    """Clients have spoken of it by its former identity until a moment ago: that is no other list."""
    servers = _servers(3)
    async with using(servers) as ours:
        await use(ours)
        await asyncio.sleep(SETTLED)
        servers[2].restart()
        await asyncio.sleep(after)
        await use(ours)
        async with using(servers, label="reader") as reader:
            overview = await look(reader)
            assert (overview.unavailable_for, overview.up, overview.disagreement) == (0, 2, ())
            assert [one for one in await reader.diagnose() if one.level == "error"] == []
            await reader.init()


@dataclass
class _Client:
    """A manager, and its ways to the servers, by letters."""

    manager: LockManager
    wires: dict[str, Wire]
    leases: list[Lease] = field(default_factory=list)

    async def goes(self, *, off: str = "", to: str = "") -> None:
        """Lose a server, and come to reach another one."""
        for letter in off:
            self.wires[letter].cut()
        await asyncio.sleep(3)
        for letter in to:
            self.wires[letter].mend()
        await asyncio.sleep(2)

    async def tries(self) -> bool:
        """Try to acquire the lock, and keep it; return whether it did."""
        try:
            self.leases.append(await self.manager.lock("a", blocking_timeout=0).acquire())
        except (LockError, ConfigurationError):
            return False
        return True


@contextlib.asynccontextmanager
async def _two_lists(*cut: tuple[str, str]) -> AsyncIterator[tuple[_Client, _Client]]:
    """Give clients with the lists a, b, x and a, b, y; the links that are named are broken at first."""
    servers = dict(zip("abxy", _servers(4), strict=True))
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for client, list_ in (("first", "abx"), ("second", "aby")):
            wires = {letter: servers[letter].wire() for letter in list_}
            for letter in list_:
                if (client, letter) in cut:
                    wires[letter].cut()
            manager = await stack.enter_async_context(
                using(list(wires.values()), label=client, quarantine=LONG)
            )
            clients.append(_Client(manager, wires))
        yield clients[0], clients[1]
        for one in clients:
            for wire in one.wires.values():
                wire.mend()
            for lease in one.leases:
                await lease.release()


async def test_a_server_that_a_client_has_lost_counts_at_one_that_it_comes_to_reach() -> None:
    """The first client used a and x; then it tells b of both, and b tells the second client."""
    async with _two_lists(("first", "b"), ("second", "a")) as (first, second):
        await use(first.manager)
        await first.goes(off="ax", to="b")
        assert not await second.tries()
        await first.goes(off="b", to="ax")
        assert await first.tries()
        assert not await second.tries()


async def test_a_first_use_is_told_at_once() -> None:
    """Not with the next heartbeat: the memory of a shared node may be lost before that."""
    servers = _servers(3)
    async with using(servers) as ours:
        await use(ours)
        for server in servers:
            (key,) = (key for key in server.keys if key.endswith(b"members}"))
            told = read_members(server.get(key) or b"", now_ms=0, asked_at=0.0, size=3)
            used = {member.identity[:40].decode() for member in told if member.state == USED}
            assert used == {one.identity[0] for one in servers}
