"""Real servers that have run for some seconds: what they tell of what they may have forgotten (R12b)."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import redis

from aioredlock_ng import LockManager, _scripts
from aioredlock_ng._core.quarantine import BY_USE, Claim, Incarnation, parse, wait_ms
from tests.servers import EACH_ARM, open_nodes

META: Final = b"aged:{meta}"
QUARANTINE: Final = 1_000
"""Milliseconds."""
AGE: Final = 5.2
"""Seconds that a server has run: a quarantine of 2 s, the 2 s by which its age may be wrong, and a margin."""


def _by_script(server: redis.Redis) -> None:
    server.eval("return redis.call('FLUSHALL')", 0)


def _evicting(server: redis.Redis) -> None:
    server.config_set("maxmemory-policy", "allkeys-random")
    server.config_set("maxmemory", server.info("memory")["used_memory"] + 2**20)
    for number in range(64):
        server.set(f"evicted {number}", b"x" * 2**16)
    assert server.info("stats")["evicted_keys"] > 0
    server.config_set("maxmemory", 0)


def _asked_for_its_data(server: redis.Redis) -> None:
    """Do what a replica does first."""
    port = server.connection_pool.connection_kwargs["port"]
    with socket.create_connection(("127.0.0.1", port)) as replica:
        replica.sendall(b"PSYNC ? -1\r\n")
        assert replica.recv(1) == b"+"


FORGETFUL: Final[dict[str, tuple[Callable[[redis.Redis], Any], str]]] = {
    "nothing": (lambda server: server.ping(), ""),
    "flushall": (lambda server: server.flushall(), "FLUSHALL was called"),
    "flushdb": (lambda server: server.flushdb(), "FLUSHDB was called"),
    "script": (_by_script, "FLUSHALL was called"),
    "swapdb": (lambda server: server.execute_command("SWAPDB", 0, 1), "SWAPDB was called"),
    "replicaof": (lambda server: server.execute_command("REPLICAOF", "NO", "ONE"), "REPLICAOF was called"),
    "resetstat": (lambda server: server.config_resetstat(), "CONFIG RESETSTAT was called"),
    "evicting": (_evicting, "it has evicted keys"),
    "psync": (_asked_for_its_data, "PSYNC was called"),
}
"""Events of a server, and what it says of them."""


@pytest.fixture(scope="module", params=EACH_ARM[:2])
def aged(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Give the URL of a server for each thing that may happen, and of three more; all have run for long."""
    with open_nodes(request.param, len(FORGETFUL) + 3) as nodes:
        time.sleep(AGE)
        yield dict(zip([*FORGETFUL, "a", "b", "c"], nodes.urls, strict=True))


def greet(server: redis.Redis) -> tuple[Incarnation, float, str]:
    """Greet a server as the first client; return its record, its time in ms, and what it says."""
    claim = Claim(born_ms=2**53, how=BY_USE, label=b"us")
    words = (b"n", 3, QUARANTINE, b"", 0, bytes(claim), 0, 10**9, b"", 0, b"us", b"001")
    reply: Any = server.eval(_scripts.GREET.source, 2, META, b"aged:{members}", *words)
    record = parse(reply[2])
    assert record is not None
    return record, reply[3] / 1000, reply[7].decode()


@pytest.mark.parametrize("what", FORGETFUL)
def test_a_server_tells_what_may_have_cost_it_locks(aged: dict[str, str], what: str) -> None:
    """Of whatever kind it is: it votes at once only if there was nothing."""
    happen, doubt = FORGETFUL[what]
    with contextlib.closing(redis.Redis.from_url(aged[what])) as server:
        happen(server)
        record, now_ms, told = greet(server)
    assert told == doubt
    if doubt:
        assert now_ms + wait_ms(QUARANTINE) - 1 <= record.ready_ms <= now_ms + wait_ms(QUARANTINE) + 1
    else:
        assert record.ready_ms <= now_ms


async def test_the_first_lock_on_servers_that_have_run_for_long(aged: dict[str, str]) -> None:
    """It is acquired at once, by a manager with a quarantine."""
    urls = [aged[name] for name in "abc"]
    async with (
        LockManager(urls, prefix="first", restart_quarantine=2, ttl=2, node_timeout=1) as manager,
        manager.lock("a", blocking_timeout=0) as lease,
    ):
        assert lease.fence
