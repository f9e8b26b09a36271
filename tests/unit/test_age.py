"""A node that proves that it has forgotten nothing: its record is dated back (R12b)."""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng import NodeState, QuorumUnavailableError, _scripts
from aioredlock_ng._core.fencing import floor_at
from aioredlock_ng._core.quarantine import BY_USE, Claim, Incarnation, parse, wait_ms
from aioredlock_ng.testing import MemoryNode
from aioredlock_ng.testing._memory_data import MemoryProcess, NodeClock
from aioredlock_ng.testing._memory_server import MemoryServer
from tests.unit.tasks import sim
from tests.unit.worlds import LATENCY, opened

META: Final = b"redlock:{meta}"
QUARANTINE: Final = 60_000
"""Milliseconds."""
MARGIN: Final = 2.0
"""Seconds by which an age that is counted in whole seconds may be wrong."""


class Server:
    """A server that was started at some moment, and is greeted later."""

    def __init__(self, started: float = 0.5) -> None:
        self.now = self.started = started
        names = itertools.count()
        clock = NodeClock(lambda: self.now)
        self.server = MemoryServer(lambda: 0, clock=clock, new_identity=lambda: f"{next(names):040}")
        self.server.load_all()
        self.server.flush_all()  # not pristine
        self.doubt = b""
        self.remembers_ms = 0

    def ms(self, moment: float) -> int:
        """Return a moment as the server's time in ms."""
        return self.server.time_us() // 1000 + round((moment - self.now) * 1000)

    def greet(
        self, age: float, *, quarantine_ms: int = QUARANTINE, dated_back_ms: int = 10**12, reads: bool = False
    ) -> Incarnation:
        """Greet it when it has run for `age` seconds, in a first use."""
        self.now = self.started + age
        claim = Claim(born_ms=self.ms(self.now), how=BY_USE, label=b"us")
        words = (
            b"n",
            0 if reads else 3,
            quarantine_ms,
            b"",
            0,
            bytes(claim),
            0,
            dated_back_ms,
            b"",
            0,
            b"us",
            b"001",
        )
        sent = [word if isinstance(word, bytes) else b"%d" % word for word in words]
        with self.server.clock.one_moment():
            reply = self.server.run_script(_scripts.GREET.digest, b"2", META, b"redlock:{members}", *sent)
        self.doubt, self.remembers_ms = reply[7:9]
        record = parse(reply[2])
        assert record is not None
        return record


@pytest.mark.parametrize("age", [2.0, 10.5, 62.0, 63.0, 1e6])
def test_the_record_is_dated_back_as_far_as_the_server_remembers(age: float) -> None:
    """As if a client had greeted it at its start: for how long it waits, and from where fences go on."""
    server = Server()
    record = server.greet(age)
    since = server.ms(server.now) - (int(age + 0.5) - 2) * 1000
    assert record.ready_ms == since + wait_ms(QUARANTINE)
    assert record.floor >> 10 == floor_at(since * 1000) >> 10
    left = record.ready_ms - server.ms(server.now)
    assert server.doubt == (b"it has run for less than its quarantine" if left > 0 else b"")


@given(started=st.floats(0, 10), age=st.floats(0, 100), longer=st.sampled_from([0, 1000, 90_000]))
def test_no_record_is_older_than_its_server(started: float, age: float, longer: int) -> None:
    """Although the age has whole seconds; nor when a client with a longer quarantine comes."""
    server = Server(started)
    server.greet(age)
    record = server.greet(age + 1, quarantine_ms=QUARANTINE + longer)
    began = server.ms(started)
    assert record.ready_ms >= began + wait_ms(QUARANTINE + longer)
    assert record.floor >= floor_at(began * 1000)
    assert record.ready_ms <= began + wait_ms(QUARANTINE + longer) + (MARGIN + 1) * 1000


@pytest.mark.parametrize(
    ("old", "new", "doubt"),
    [
        ("uptime_in_seconds", "up", "INFO does not tell its age"),
        ("redis_mode:standalone", "redis_mode:cluster", "it is no stand-alone server"),
        ("redis_mode:standalone", "server_mode:standalone", ""),
        ("redis_mode:standalone\r\n", "", "it is no stand-alone server"),
        ("evicted_keys:0", "evicted_keys:1", "it has evicted keys"),
        ("evicted_keys", "evicted", "it has evicted keys"),
        ("replid2:0", "replid2:f", "it was a replica"),
        ("master_replid2", "replid2", "it was a replica"),
        ("second_repl_offset:-1", "second_repl_offset:1", "it was a replica"),
        ("cmdstat_info", "cmdstat_other", "INFO does not tell which commands were called"),
        *[
            (f"cmdstat_flushall:calls={0 if name == 'flushall' else '0'}", f"cmdstat_{name}:calls=1", told)
            for name, told in (
                ("flushall", "FLUSHALL was called"),
                ("flushdb", "FLUSHDB was called"),
                ("swapdb", "SWAPDB was called"),
                ("debug", "DEBUG was called"),
                ("replicaof", "REPLICAOF was called"),
                ("slaveof", "SLAVEOF was called"),
                ("failover", "FAILOVER was called"),
                ("psync", "PSYNC was called"),
                ("sync", "SYNC was called"),
                ("config", "CONFIG was called"),
                ("config|resetstat", "CONFIG RESETSTAT was called"),
                ("config|get", ""),
                ("get", ""),
            )
        ],
        ("cmdstat_flushall:calls=0", "cmdstat_flushdb:calls=0,rejected_calls=3", ""),
    ],
)
def test_every_condition_is_needed(monkeypatch: pytest.MonkeyPatch, old: str, new: str, doubt: str) -> None:
    """A server that does not say one of them, or that something may have cost it locks, waits in full."""
    info = MemoryProcess.info
    monkeypatch.setattr(MemoryProcess, "info", lambda self: info(self).replace(old.encode(), new.encode()))
    server = Server()
    assert old.encode() in info(server.server)
    record = server.greet(3600)
    waits = record.ready_ms == server.ms(server.now) + wait_ms(QUARANTINE)
    assert (waits, server.doubt.decode()) == (bool(doubt), doubt)


def _servers() -> list[MemoryNode]:
    """Return three servers that are started now."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(3)]
    for node in nodes:
        node.restart()
    return nodes


async def test_a_deleted_record_is_noticed_by_the_clients_that_knew_it() -> None:
    """Someone has deleted all keys by a pattern: the locks may be anyone's, so all nodes wait."""
    nodes = _servers()
    await asyncio.sleep(65)
    async with opened(nodes, restart_quarantine=60) as manager:
        async with manager.lock("a"):
            pass
        for node in nodes:
            for key in node.keys:
                node.delete(key)
        await asyncio.sleep(1)
        assert {node.state for node in manager.statistics().nodes} == {NodeState.QUARANTINED}


@pytest.mark.parametrize("missing", ["down", "known", "young"])
async def test_only_the_first_use_of_all_nodes_is_dated_back(missing: str) -> None:
    """One is down, has a record, or was started lately: an earlier holder may have its vote."""
    nodes = _servers()
    if missing == "known":
        async with opened(nodes, restart_quarantine=60) as earlier, earlier.lock("b", blocking_timeout=70):
            pass
        await asyncio.sleep(70)
        for node in nodes[:2]:
            node.restart()
    await asyncio.sleep(70)
    if missing == "down":
        nodes[2].crash()
    elif missing == "young":
        nodes[2].restart()
    async with opened(nodes, restart_quarantine=60) as manager:
        with pytest.raises(QuorumUnavailableError):
            await manager.lock("a", blocking_timeout=1).acquire()
        votes_in = [node.votes_in for node in manager.statistics().nodes if node.votes_in is not None]
        assert votes_in == pytest.approx([59] * (3 if missing == "young" else 2), abs=2)


async def test_young_servers_wait_for_the_rest() -> None:
    """As long as the youngest of them has to."""
    nodes = _servers()
    await asyncio.sleep(30)
    nodes[2].restart()
    await asyncio.sleep(40)
    async with opened(nodes, restart_quarantine=60) as manager:
        began = sim().time()
        async with manager.lock("a", blocking_timeout=30):
            assert 20 < sim().time() - began < 24
