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
from aioredlock_ng.testing._memory_data import NodeClock
from aioredlock_ng.testing._memory_process import MemoryProcess
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

    @property
    def identity(self) -> bytes:
        """Its identity."""
        return (self.server.run_id + self.server.replid).encode()

    def ms(self, moment: float) -> int:
        """Return a moment as the server's time in ms."""
        return self.server.time_us() // 1000 + round((moment - self.now) * 1000)

    def greet(
        self, age: float, *, quarantine_ms: int = QUARANTINE, born: float | None = None, lost_by: bytes = b""
    ) -> Incarnation:
        """Greet it when it has run for `age` seconds, as a quorum whose first use was at `born`."""
        self.now = self.started + age
        claim = Claim(born_ms=self.ms(self.now if born is None else born), how=BY_USE, label=b"us")
        words = (b"n", 3, quarantine_ms, b"", 0, bytes(claim), 0, lost_by, b"001")
        sent = [word if isinstance(word, bytes) else b"%d" % word for word in words]
        with self.server.clock.one_moment():
            reply = self.server.run_script(_scripts.GREET.digest, b"1", META, *sent)
        self.doubt = reply[-1]
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
    """Although its age is told in whole seconds; nor when a client with a longer quarantine comes."""
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


def test_a_server_that_is_younger_than_its_quorum_waits_in_full() -> None:
    """However long it has run: its clock may have been set forward since, as when a machine boots."""
    server = Server()
    record = server.greet(3600, born=server.started - 1)
    assert record.ready_ms == server.ms(server.now) + wait_ms(QUARANTINE)
    assert server.doubt == b"it was started after the first use of its quorum"
    # One that was started before the first use of the quorum has all of it.
    server = Server()
    assert server.greet(3600, born=server.started + MARGIN).ready_ms < server.ms(server.now)


def test_a_server_whose_record_was_deleted_waits_in_full() -> None:
    """A client has seen the record there: so keys were deleted by hand."""
    server = Server()
    record = server.greet(3600, lost_by=server.identity)
    assert record.ready_ms == server.ms(server.now) + wait_ms(QUARANTINE)
    assert Server().greet(3600, lost_by=b"another server").ready_ms < server.ms(server.now)


def _servers() -> list[MemoryNode]:
    """Return three servers that are started now."""
    nodes = [MemoryNode(latency=LATENCY) for _ in range(3)]
    for node in nodes:
        node.restart()
    return nodes


async def test_the_first_use_of_servers_that_have_run_for_long_does_not_wait() -> None:
    """No `init` is needed, and the first fences are agreed on."""
    nodes = _servers()
    await asyncio.sleep(65)
    async with opened(nodes, restart_quarantine=60) as manager:
        for _ in range(2):
            async with manager.lock("a", blocking_timeout=0) as lease:
                assert lease.fence
        assert manager.statistics().raised == 0


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


async def test_young_servers_wait_for_the_rest_and_say_why(caplog: pytest.LogCaptureFixture) -> None:
    """One of them was flushed, and waits in full."""
    nodes = _servers()
    nodes[2].flush()
    await asyncio.sleep(40)
    async with opened(nodes, restart_quarantine=60) as manager:
        with pytest.raises(QuorumUnavailableError):
            await manager.lock("a").try_acquire()
        votes_in = [node.votes_in for node in manager.statistics().nodes]
        assert votes_in == pytest.approx([22.6, 22.6, 60.6], abs=1.0)
        reasons = [node.reason for node in manager.statistics().nodes]
        young = "it has run for less than its quarantine"
        assert [reason.endswith(young) for reason in reasons] == [True, True, False]
        assert reasons[2].endswith(" s: FLUSHALL was called")
        began = sim().time()
        async with manager.lock("a", blocking_timeout=30):
            assert 20 < sim().time() - began < 24
    assert f"(FLUSHALL was called; {young})" in caplog.text
