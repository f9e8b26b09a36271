"""``aioredlock-ng run --shared``, ``--exclusive``, ``--permits`` and ``--fair``: what runs beside what."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from aioredlock_ng._core.keyspace import SEATS, TICKETS, mark_key
from aioredlock_ng.sync import SyncLockManager
from tests.cli.runs import Cli, Runs
from tests.servers import Nodes, ask, until

TELL = ("sh", "-c", 'echo "${REDLOCK_MODE-none}" "${REDLOCK_SLOT-none}" "$REDLOCK_FENCE"')


@pytest.mark.parametrize(
    ("options", "beside", "shown"),
    [
        ("--fair", lambda m: m.semaphore("another", permits=1), ["none", "none"]),
        ("--shared", lambda m: m.rwlock("job").read(), ["read", "none"]),
        ("--exclusive", lambda m: m.rwlock("another").read(), ["write", "none"]),
        ("--permits 2", lambda m: m.semaphore("job", permits=2), ["none", "the other"]),
    ],
)
def test_a_command_runs_beside_others(options: str, beside: Any, shown: list[str], runs: Runs) -> None:
    """Those that its kind lets in; it sees its mode and its slot, not those of a run around this one."""
    with SyncLockManager(runs.nodes.urls) as manager, beside(manager) as lease:
        around = {"REDLOCK_MODE": "another's", "REDLOCK_SLOT": "7"}
        code, out, err = runs.finish("-n", *options.split(), "job", "--", *TELL, env=around)
        mode, slot, fence = out.split()
        if "permits" in options:
            slot = {1 - lease.slot: "the other"}.get(int(slot), slot)
        assert (code, err, [mode, slot]) == (0, "", shown)
        assert (int(fence) == lease.fence) is (options == "--shared"), "readers share one fence"
    until(lambda: not runs.holders("redlock:job"), "nothing is left")


def write(nodes: Nodes) -> None:
    """Wait for the readers to leave, and write."""
    with SyncLockManager(nodes.urls) as another, another.rwlock("job").write():
        pass


def line(nodes: Nodes) -> None:
    """Have others stand in line for a lock that is free."""
    seats = """
    local now = redis.call('TIME')
    for i = 1, 400 do
      redis.call('ZADD', KEYS[1], i, i)
      redis.call('ZADD', KEYS[2], now[1] * 1000 + 600000, i)
    end
    redis.call('PEXPIRE', KEYS[1], 600000)
    redis.call('PEXPIRE', KEYS[2], 600000)
    """
    keys = [mark_key(b"redlock:", mark, b"redlock:job") for mark in (TICKETS, SEATS)]
    for url in nodes.urls:
        ask(url, "EVAL", seats, 2, *keys)


@pytest.mark.parametrize(
    ("held", "options", "why"),
    [
        (lambda m: [m.lock("job", fair=True)], "--fair", "held by me, and expires in "),
        (lambda m: [m.rwlock("job").read()] * 3, "", "held by 3 readers, and expires in "),
        (lambda m: [m.rwlock("job").read()] * 3, "-x", "held by 3 readers, and expires in "),
        (lambda m: [m.semaphore("job", permits=2)] * 2, "--permits 2", "held by the holders of 2 permits"),
        (lambda m: [m.rwlock("job").read()], "-s", "reserved for a waiting writer"),
        (lambda _: [], "--fair", "reserved for the next waiter in its queue"),
    ],
)
def test_one_that_does_not_wait_says_why(
    *, held: Any, options: str, why: str, shared_nodes: Nodes, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which holders are in its way, or who is before it."""
    monkeypatch.setenv("REDLOCK_URLS", ",".join(shared_nodes.urls))
    with SyncLockManager(shared_nodes.urls, holder="me") as manager:
        leases, threads = [lock.acquire() for lock in held(manager)], []
        if "writer" in why:
            threads.append(threading.Thread(target=write, args=[shared_nodes]))
            threads[0].start()
            mark = "redlock:queue:{redlock:job}"
            until(lambda: all(ask(url, "EXISTS", mark) for url in shared_nodes.urls), "the writer waits")
        if not leases:
            line(shared_nodes)
        code: object = 0
        while code == 0:  # between two tries of a writer that is slow its mark may end
            code, out, err = cli("run", "-n", "-E", "7", *options.split(), "job", "--", "true")
        assert (code, out) == (7, "")
        assert re.fullmatch(f"aioredlock-ng run: lock 'job' is {why}.*; the command was not started\n", err)
        for lease in leases:
            lease.release()
        for thread in threads:
            thread.join()
