"""What a diagnosis says of sentinels, quarantines, clocks and fences: tables, and masters in memory."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aioredlock_ng import Finding, _scripts
from aioredlock_ng._admin.doctor.facts import ClockReading, Facts, NodeFacts
from aioredlock_ng._admin.doctor.judge import judge
from aioredlock_ng._core.command import Silence
from aioredlock_ng._core.quarantine import Sentinel
from aioredlock_ng._node.handshake import Identity
from aioredlock_ng.testing import MemoryNode
from tests.unit.test_diagnosis import NOPERM, healthy, not_ok
from tests.unit.worlds import make, opened, virtual, world

ME = b"0" * 80


def sentinel(*, size: int = 3, quarantine: float = 60.0, identity: bytes = ME) -> bytes:
    """Return a sentinel without anything special."""
    milliseconds = round(quarantine * 1000)
    return bytes(Sentinel(identity=identity, floor=1, ready_ms=0, size=size, quarantine_ms=milliseconds))


def known(number: int, **facts: Any) -> NodeFacts:
    """Return a node without fault that has a sentinel, but for the given facts."""
    return healthy(number, **({"sentinel": sentinel()} | facts))


def judged(
    *nodes: NodeFacts, quarantine: float = 60.0, fencing: bool = True, others: int = 2
) -> tuple[Finding, ...]:
    """Judge nodes for a client with this quarantine; with one, some healthy ones stand beside it."""
    if len(nodes) == 1:
        nodes = (*nodes, *(known(number) for number in range(2, 2 + others)))
    facts = Facts(nodes=nodes, prefix=b"redlock:", node_timeout=0.1, fencing=fencing, quarantine=quarantine)
    return judge(facts)


def found(findings: tuple[Finding, ...], check: str) -> list[Finding]:
    """Return what one check came to, where that is not ok."""
    return [finding for finding in findings if finding.check == check and finding.level != "ok"]


# -- one node ----------------------------------------------------------------------------------------


def test_a_node_that_is_known_again_is_fine() -> None:
    """Its sentinel is this quorum's, and its server tells its identity: every check is ok."""
    findings = judged(*map(known, range(3)))
    assert not_ok(findings) == []
    assert [one.check for one in findings if one.node is None] == ["quorum", "identity", "quarantine"]
    assert sum(one.check == "sentinel" for one in findings) == 3


@pytest.mark.parametrize(
    ("facts", "level", "words", "advice"),
    [
        pytest.param({"sentinel": None}, "warning", "not used yet, restarted empty", "aioredlock-ng init",
                     id="missing"),
        pytest.param({"info": {"run_id": "1" * 40, "master_replid": "0" * 40}}, "warning", "another server's",
                     "aioredlock-ng init", id="another server's"),
        pytest.param({"sentinel": b"2:x"}, "warning", "another version", "one version", id="unknown format"),
        pytest.param({"sentinel": sentinel(size=5)}, "error", "a quorum of 5 nodes, here are 3",
                     "compare their lists", id="another N"),
        pytest.param({"votes_in": 12.345}, "warning", "no vote for another 12.3 s", "wait for it; if no lock",
                     id="quarantined"),
        pytest.param({"sentinel": sentinel(identity=b"-")}, "warning", "does not tell its identity", "+info",
                     id="identity unknown"),
        pytest.param({"sentinel": NOPERM}, "warning", "could not be checked: NOPERM", "+get", id="denied")
    ]
)  # fmt: skip
def test_one_fault_is_one_finding(facts: Any, level: str, words: str, advice: str) -> None:
    """A node whose sentinel differs from a healthy one's: the finding says what and what to do."""
    (finding,) = found(judged(known(1, **facts)), "sentinel")
    assert (finding.node, finding.level) == ("node 1", level)
    assert words in finding.message
    assert advice in finding.advice


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param({"sentinel": sentinel(size=5)}, id="another size"),
        pytest.param({"strayed": True, "votes_in": 60.0, "without_vote": True}, id="taken back"),
    ],
)
@pytest.mark.parametrize(
    "waiting",
    [
        pytest.param({"sentinel": None}, id="missing"),
        pytest.param({"votes_in": 12.3}, id="quarantined"),
        pytest.param({"info": {"run_id": "1" * 40, "master_replid": "0" * 40}}, id="another server's"),
    ],
)
def test_init_is_never_the_advice_where_a_node_is_another_quorums(stray: Any, waiting: Any) -> None:
    """It would stop the clients that know the node by the other size (R12a)."""
    findings = judged(known(1, **stray), known(2, **waiting, without_vote=True), known(3))
    assert found(findings, "sentinel")
    assert not any("init" in finding.advice for finding in findings)
    assert any("compare their lists" in finding.advice for finding in findings)


def test_without_info_a_restart_with_old_data_goes_unnoticed() -> None:
    """Also when others, with the right to ask, have written the sentinel."""
    findings = judged(known(1, info=NOPERM))
    assert [(check, level) for _, check, level in not_ok(findings)] == [
        ("sentinel", "warning"),
        ("info", "warning"),
    ]


def test_what_is_told_elsewhere_is_not_told_again() -> None:
    """A node that refuses everything refuses its sentinel, too."""
    failures = (("vote", "CLUSTERDOWN Hash slot not served"),)
    findings = judged(known(1, sentinel=Silence("CLUSTERDOWN Hash slot not served"), failures=failures))
    assert [check for _, check, _ in not_ok(findings)] == ["mode"]


# -- all nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "own", "level", "words"),
    [
        ((60, 60, 60), 60, "ok", "no vote for 60 s"),
        (
            (60, 60, 60),
            0,
            "ok",
            "no vote for 60 s",
        ),  # this client has none of its own: it takes what there is
        ((90, 90, 90), 60, "warning", "is 90 s, this client asks for 60 s"),
        ((60, 90, 60), 60, "warning", "differ: node 0: 60 s, node 1: 90 s, node 2: 60 s"),
        ((0, 60, 60), 60, "warning", "differ: node 0: 0 s"),
        ((0, 0, 0), 0, "warning", "is off: a node that restarts empty votes at once"),
        ((0, 0), 0, "ok", "off, as by default"),
        ((30,), 30, "ok", "no vote for 30 s"),
    ],
)
def test_the_quarantines_of_all(stored: tuple[float, ...], own: float, level: str, words: str) -> None:
    """They are compared with each other and with the client's own; none at all is a choice with a price."""
    size = len(stored)
    nodes = [known(i, sentinel=sentinel(quarantine=q, size=size)) for i, q in enumerate(stored)]
    (finding,) = [one for one in judged(*nodes, quarantine=own, others=0) if one.check == "quarantine"]
    assert (finding.node, finding.level) == (None, level)
    assert words in finding.message
    assert bool(finding.advice) is (level != "ok")


def test_plain_locks_without_quarantine_are_told_so() -> None:
    """There is no sentinel then; with one of them it is unknown where none can be read."""
    nodes = list(map(healthy, range(3)))
    (finding,) = found(judged(*nodes, quarantine=0.0, fencing=False), "quarantine")
    assert "is off" in finding.message
    assert found(judged(*nodes, quarantine=0.0), "quarantine") == []


@pytest.mark.parametrize(
    ("waiting", "down", "level"),
    [
        (1, 0, "ok"),
        (2, 0, "warning"),
        (3, 0, "warning"),
        (2, 1, "warning"),
        (1, 2, "error"),
        (1, 1, "warning"),
    ],
)
def test_a_quorum_that_has_to_wait(waiting: int, down: int, level: str) -> None:
    """Nodes in quarantine, or not used yet, cannot grant a lock now; that is no error if they soon will."""
    nodes = [known(i, down="gone") for i in range(down)]
    reasons: list[Any] = [{"votes_in": 9.0}, {"sentinel": None}, {"info": {"run_id": "x"}}]
    nodes += [known(i, without_vote=True, **reasons[i]) for i in range(down, down + waiting)]
    nodes += [known(i) for i in range(down + waiting, 3)]
    finding = judged(*nodes)[0]
    assert (finding.check, finding.level) == ("quorum", level)
    if level == "warning":
        assert "more will, at once or after the restart quarantine" in finding.message


@pytest.mark.parametrize("check", ["persistence", "replicas"])
def test_what_the_quarantine_covers_is_no_fault(check: str) -> None:
    """Restarts without data and failovers cost a vote for a while; without a quarantine, a lock."""
    info = {"aof_enabled": "0", "connected_slaves": "1"}
    assert found(judged(known(1, info=info)), check) == []
    uncovered = sentinel(quarantine=0)
    (finding,) = found(judged(known(1, info=info, sentinel=uncovered), quarantine=0), check)
    assert (finding.level, "restart_quarantine" in finding.advice) == ("warning", True)


def test_what_it_does_not_cover_stays_an_error() -> None:
    """An evicted lock, or the counter of a fence alone, goes unnoticed."""
    (finding,) = found(judged(known(1, info={"maxmemory_policy": "volatile-lru"})), "eviction")
    assert (finding.level, "counters of fences" in finding.message) == ("error", True)


# -- clocks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("apart", "unsure", "fencing", "level", "words"),
    [
        (4.9, 0.0, True, "ok", ""),
        (5.0, 0.0, True, "warning", "from 10 s on"),
        (-9.9, 0.0, True, "warning", "(A1)"),
        (10.0, 0.0, True, "error", "may be unable to agree on a fence"),
        (-11.0, 0.0, True, "error", "may be unable to agree on a fence"),
        (10.5, 1.0, True, "warning", "from 10 s on"),
        (3600.0, 0.0, False, "warning", "(A1)"),
    ],
)
def test_clocks_apart(apart: float, unsure: float, fencing: bool, level: str, words: str) -> None:
    """From 5 s on a warning, from 10 s on nodes may not agree on fences; in doubt the less."""
    clock = ClockReading(offset=1e9 + apart, uncertainty=unsure)
    middle = {"clock": ClockReading(offset=1e9, uncertainty=0)}
    findings = judged(known(1, clock=clock), known(2, **middle), known(3, **middle), fencing=fencing)
    (finding,) = [one for one in findings if (one.node, one.check) == ("node 1", "clock")]
    assert finding.level == level
    assert words in finding.message


def test_a_clock_that_seems_to_have_jumped() -> None:
    """The node has no vote until that is settled."""
    (finding,) = found(judged(known(1, distrusted=True, without_vote=True)), "clock")
    assert (finding.level, "no vote for now" in finding.message) == ("warning", True)


# -- gathering ---------------------------------------------------------------------------------------


@virtual
async def test_a_trial_does_what_fenced_locks_do() -> None:
    """Every script that a manager uses, with counters; no key is left, not even a counter."""
    async with world(3, restart_quarantine=60) as w:
        findings = await w.manager.diagnose()
        assert {check for _, check, level in not_ok(findings)} == {"access"}
        for node in w.nodes:
            done = [words[1] for words in node.executed if words[0] == b"EVALSHA"]
            tried = [_scripts.ACQUIRE, _scripts.RELEASE] * 2
            tried += [_scripts.RAISE, _scripts.EXTEND, _scripts.TOP_UP, _scripts.INSPECT]
            tried += [_scripts.READ, _scripts.WRITE] * 2 + [_scripts.RW_RELEASE] * 3
            tried += [_scripts.RW_RAISE, _scripts.RW_EXTEND, _scripts.RW_TOP_UP, _scripts.INSPECT]
            tried += [_scripts.SLOTS_ACQUIRE, _scripts.SLOTS_TOP_UP, _scripts.INSPECT, _scripts.SLOTS_RELEASE]
            tried += [_scripts.FAIR_ACQUIRE] * 3 + [_scripts.QUEUE] + [_scripts.FAIR_RELEASE] * 2
            assert sorted(done) == sorted(script.digest for script in tried)
            assert node.keys == (b"redlock:{meta}",)


@virtual
async def test_a_trial_does_what_plain_locks_do() -> None:
    """The Redlock page's SET; nothing is raised, and no counter is made."""
    async with world(3, fencing=False, restart_quarantine=0) as w:
        findings = await w.manager.diagnose()
        assert {check for _, check, _ in not_ok(findings)} == {"access", "persistence", "quarantine"}
        for node in w.nodes:
            scripts = {words[1] for words in node.executed if words[0] == b"EVALSHA"}
            assert not scripts & {_scripts.ACQUIRE.digest, _scripts.RAISE.digest}
            assert not node.keys


@virtual
async def test_nodes_in_quarantine_are_diagnosed() -> None:
    """No error: they will vote; what needs no vote is tried, and nothing is left."""
    nodes = [MemoryNode() for _ in range(3)]
    for node in nodes:
        node.restart()
    async with opened(nodes, restart_quarantine=60) as manager:
        findings = await manager.diagnose()
        assert [one.level for one in findings if one.level == "error"] == []
        assert {check for _, check, _ in not_ok(findings)} == {"quorum", "sentinel", "access"}
        assert "3 more will, at once or after the restart quarantine" in findings[0].message
        for node in nodes:
            executed = {words[1] for words in node.executed if words[0] == b"EVALSHA"}
            tried = [_scripts.TOP_UP, _scripts.RELEASE, _scripts.INSPECT]
            tried += [_scripts.RW_TOP_UP, _scripts.RW_RELEASE]
            tried += [_scripts.SLOTS_TOP_UP, _scripts.SLOTS_RELEASE]
            assert executed == {script.digest for script in tried}
            assert node.keys == (b"redlock:{meta}",)


@virtual
async def test_nodes_that_are_not_used_yet_are_left_alone() -> None:
    """A client that only diagnoses writes no sentinel."""
    nodes = [MemoryNode() for _ in range(3)]
    for node in nodes:
        node.restart()
    manager = make(nodes, restart_quarantine=60)
    findings = await manager.diagnose()
    await manager.aclose()
    assert {(check, level) for _, check, level in not_ok(findings) if check in ("quorum", "sentinel")} == {
        ("quorum", "warning"),
        ("sentinel", "warning"),
    }
    assert [one.level for one in findings if one.level == "error"] == []
    assert [node.keys for node in nodes] == [()] * 3


@virtual
async def test_nodes_of_another_quorum_are_an_error() -> None:
    """For each of them, in spite of what start() says."""
    nodes = [MemoryNode() for _ in range(3)]
    async with make(nodes):
        pass
    manager = make(nodes[:1])
    findings = await manager.diagnose()
    await manager.aclose()
    assert [(one.node, one.check) for one in findings if one.level == "error"] == [
        (None, "quorum"),
        (nodes[0].name, "sentinel"),
    ]


@virtual
async def test_a_node_whose_clock_has_jumped() -> None:
    """While that is not settled it is told so; then it is in quarantine."""
    async with world(3, restart_quarantine=60) as w:
        await asyncio.sleep(3)
        for node in w.nodes[1:]:
            node.freeze()  # so that no node can acquit our own clock
        w.nodes[0].step_clock(30)
        await asyncio.sleep(0.6)
        assert not w.manager._life.session.clocks.trusted(0)  # type: ignore[union-attr]
        for node in w.nodes[1:]:
            node.thaw()
        findings = await w.manager.diagnose()
        assert [one.level for one in findings if (one.node, one.check) == (w.nodes[0].name, "clock")] == [
            "warning"
        ]


@pytest.mark.parametrize(
    ("policy", "options", "warnings"),
    [
        ("allkeys-lru", {}, 1),
        ("noeviction", {}, 0),
        (None, {}, 0),
        ("volatile-ttl", {"fencing": False, "restart_quarantine": 0}, 0),
    ],
)
def test_a_node_that_evicts_is_a_warning_at_connect(policy, options, warnings, caplog):
    """Once for each node and manager, however often it is connected."""

    async def main() -> None:
        nodes = [MemoryNode(), MemoryNode(), MemoryNode()]
        manager = make(nodes, **options)
        endpoint = manager._life.nodes[1]._endpoint  # type: ignore[attr-defined]
        connect = endpoint.connect

        async def connect_to_evicting(*arguments: Any) -> Any:
            link, identity = await connect(*arguments)
            return link, Identity(identity.run_id, identity.role, policy)

        endpoint.connect = connect_to_evicting
        async with manager:
            nodes[1].disconnect()
            await asyncio.sleep(5)
            nodes[1].crash(keep_data=True)
            nodes[1].restart()
            await asyncio.sleep(5)

    with caplog.at_level(logging.WARNING, "aioredlock_ng"):
        virtual(main)()
    told = [record.getMessage() for record in caplog.records if "maxmemory-policy" in record.getMessage()]
    assert len(told) == warnings
    assert all("CONFIG SET maxmemory-policy noeviction" in message for message in told)
