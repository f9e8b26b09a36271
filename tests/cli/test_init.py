"""``aioredlock-ng init`` and `LockManager.init` on real servers that were never used before."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aioredlock_ng import (
    ConfigurationError,
    LockManager,
    NodeState,
    QuorumUnavailableError,
)
from aioredlock_ng.__main__ import main
from aioredlock_ng._core.quarantine import Incarnation, parse
from aioredlock_ng.testing import LocalNodes
from tests.behaviour.tools import ALLOWANCE
from tests.cli.runs import Cli
from tests.servers import ask, with_rights

PATIENT = 1.0
"""Node timeout, in seconds: no node of these tests is to be too slow."""

SENTINEL = "redlock:{meta}"

HEARTBEAT = 1.0
"""Seconds within which a running manager must have noticed, and taken a lock; a heartbeat takes 0.5."""


def init(urls: Sequence[str], *arguments: str) -> int:
    """Run the command and return its exit code."""
    return main(["init", "--nodes", ",".join(urls), "--node-timeout", str(PATIENT), *arguments])


def manager_of(urls: Sequence[str], *, restart_quarantine: float = 30.0) -> LockManager:
    """Make a manager of a client that means to wait."""
    return LockManager(urls, node_timeout=0.4, restart_quarantine=restart_quarantine)


def incarnations(urls: Sequence[str]) -> list[Incarnation]:
    """Return what the nodes' incarnation records say."""
    found = [parse(ask(url, "GET", SENTINEL)) for url in urls]
    assert all(found)
    return [incarnation for incarnation in found if incarnation is not None]


async def fence(manager: LockManager) -> int:
    """Take and release a lock; return its fence."""
    async with manager.lock("a", blocking_timeout=5) as lease:
        assert lease.fence is not None
        return lease.fence


# -- what it is for ----------------------------------------------------------------------------------


async def test_fresh_nodes_wait_until_they_are_initialised(
    raw_nodes: Callable[[int], LocalNodes], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, no lock can be acquired; after it, within a heartbeat; all nodes have one floor."""
    urls = raw_nodes(3).urls
    async with manager_of(urls) as manager:
        assert {node.state for node in manager.statistics().nodes} == {NodeState.QUARANTINED}
        with pytest.raises(QuorumUnavailableError, match="restart quarantine"):
            await manager.lock("a").try_acquire() or pytest.fail("a fresh node voted")
        assert await asyncio.to_thread(init, urls, "--restart-quarantine", "40") == 0
        began = time.monotonic()
        first = await fence(manager)
        assert time.monotonic() - began < HEARTBEAT + ALLOWANCE
        assert manager.statistics().certified == 1  # in one round trip: the nodes agree at once
    assert capsys.readouterr().out == "".join(f"{url}  initialised\n" for url in urls)
    known = incarnations(urls)
    assert len({incarnation.floor for incarnation in known}) == 1
    assert first > known[0].floor
    assert {(one.size, one.ready_ms, one.quarantine_ms) for one in known} == {(3, 0, 40_000)}


async def test_a_list_of_nodes_that_has_grown(
    raw_nodes: Callable[[int], LocalNodes], capsys: pytest.CaptureFixture[str]
) -> None:
    """Three nodes become five: refused before, also by `init`, unless it is forced; fences go on growing."""
    urls = raw_nodes(5).urls
    assert await asyncio.to_thread(init, urls[:3]) == 0
    async with manager_of(urls[:3]) as manager:
        before = max([await fence(manager) for _ in range(20)])
    with pytest.raises(ConfigurationError, match="quorum of 3 nodes, this client has 5") as refusal:
        await manager_of(urls).__aenter__()
    assert "aioredlock-ng init" not in str(refusal.value), "it may be this list that is wrong"
    known = [ask(url, "GET", SENTINEL) for url in urls]
    assert await asyncio.to_thread(init, urls) == 2
    err = capsys.readouterr().err
    assert "it belongs to a quorum of 3 nodes, this client has 5; initialised by `init` of " in err
    assert "nothing was changed: if the list of nodes has changed" in err
    assert "--force" in err
    assert [ask(url, "GET", SENTINEL) for url in urls] == known
    assert await asyncio.to_thread(init, urls, "--force") == 0
    async with manager_of(urls) as manager:
        assert await fence(manager) > before
        assert manager.statistics().certified == 1
    assert len({incarnation.floor for incarnation in incarnations(urls)}) == 1
    with pytest.raises(
        ConfigurationError, match="quorum of 5 nodes, this client has 3"
    ):  # whose list is still the old one
        await manager_of(urls[:3]).__aenter__()


# -- what stands against it --------------------------------------------------------------------------


LIST = "redis.call('RPUSH', 'redlock:list', 'x') redis.call('SET', 'redlock:settings', 'x') "
COUNTER = "redis.call('SET', 'redlock:fence:{redlock:a}', '1', 'PX', 60000) "
CROWD = "for i = 1, 1500 do redis.call('SET', 'redlock:' .. i, 'v') end"
SESSION = "redis.call('SET', 'redlock:session', 'x', 'PX', 60000)"


@pytest.mark.parametrize(
    ("there", "right", "says"),
    [
        pytest.param(LIST + COUNTER, "", "", id="what is no lock"),
        pytest.param(LIST + SESSION, "", "lock 'session' is alive", id="what looks like one"),
        pytest.param(CROWD, "", "it is not known whether a lock is alive: more keys", id="crowd"),
        pytest.param("", "-scan", "NOPERM", id="no right to search, on however few nodes"),
    ],
)
def test_what_could_be_a_lock_forbids_it(
    there: str, right: str, says: str, raw_nodes: Callable[[int], LocalNodes], cli: Cli
) -> None:
    """On one node, too; then nothing is changed, unless it is forced."""
    nodes = raw_nodes(3)
    urls = list(nodes.urls)
    if right:
        urls[2] = with_rights(urls[2], f"~redlock:* +@all {right}")
    if there:
        ask(urls[2], "EVAL", there, 0)
    code, _, err = cli("init", "--nodes", ",".join(urls), "--node-timeout", "1")
    assert (code, says in err) == (1 if says else 0, True)
    if says:
        assert [ask(url, "GET", SENTINEL) for url in nodes.urls] == [None] * 3
        assert init(urls, "--force") == 0


@pytest.mark.parametrize("why", ["another version", "no right", "dead"])
def test_a_node_that_cannot_be_initialised(
    why: str, raw_nodes: Callable[[int], LocalNodes], cli: Cli
) -> None:
    """Exit code 69 and the reason; the others are initialised, and it can be run again."""
    nodes = raw_nodes(3)
    urls = list(nodes.urls)
    if why == "dead":
        nodes.kill(1)
    elif why == "no right":  # the script cannot do without the time
        urls[1] = with_rights(urls[1], "~redlock:* +@all -time")
    else:
        ask(urls[1], "SET", SENTINEL, "2:new")
    code, out, _ = cli("init", "--nodes", ",".join(urls), "--node-timeout", "1")
    lines = out.splitlines()
    assert (code, "secret" in out) == (69, False)
    assert [line.endswith("  initialised") for line in lines] == [True, False, True]
    assert lines[1].startswith(f"{nodes.urls[1]}  not initialised: ")
    if why == "another version":
        assert (ask(urls[1], "GET", SENTINEL), why in lines[1]) == (b"2:new", True)
    for _ in nodes.starting([1]):
        time.sleep(0.002)
    if why == "dead":
        assert init(urls) == 0
        assert len({incarnation.floor for incarnation in incarnations(urls)}) == 1


@pytest.mark.parametrize("used", [False, True])
def test_without_a_majority_nothing_is_initialised(
    used: bool, raw_nodes: Callable[[int], LocalNodes], cli: Cli
) -> None:
    """Exit code 69, as with one node that is missing; no word of --force, since a lock may be alive."""
    nodes = raw_nodes(3)
    if used:
        assert init(nodes.urls) == 0
    before = ask(nodes.urls[0], "GET", SENTINEL)
    nodes.kill(1)
    nodes.kill(2)
    code, out, err = cli("init", "--nodes", ",".join(nodes.urls), "--node-timeout", "1")
    assert (code, out) == (69, "")
    assert "1 of 3 nodes can be reached, 2 are needed; nothing was changed" in err
    assert "--force" not in err
    assert ask(nodes.urls[0], "GET", SENTINEL) == before


# -- without servers ---------------------------------------------------------------------------------


# -- for programs ------------------------------------------------------------------------------------


def test_for_programs_it_is_json(raw_nodes: Callable[[int], LocalNodes], cli: Cli) -> None:
    """A part for each node; a refusal is an `error`, which says why, and has no nodes."""
    nodes = raw_nodes(3)

    def init_json(*words: str) -> tuple[object, dict[str, Any]]:
        urls = ("--nodes", ",".join(nodes.urls), "--node-timeout", str(PATIENT))
        code, out, _ = cli("init", "--json", *urls, *words)
        return code, json.loads(out)

    code, shown = init_json()
    done = [{"node": url, "done": True, "reason": ""} for url in nodes.urls]
    assert (code, shown["error"], shown["nodes"]) == (0, None, done)
    ask(nodes.urls[0], "SET", "redlock:alive", "x", "PX", 60_000)
    code, shown = init_json()
    assert (code, shown["nodes"], "lock 'alive' is alive" in shown["error"]) == (1, [], True)
    nodes.kill(2)
    code, shown = init_json("--force")
    last = shown["nodes"][2]
    assert (code, last["node"], last["done"], bool(last["reason"])) == (69, nodes.urls[2], False, True)
