"""``aioredlock-ng doctor`` and `LockManager.diagnose` on real servers with real faults."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from aioredlock_ng import Finding, LockManager
from aioredlock_ng.__main__ import main
from aioredlock_ng._core.rights import ACL_RIGHTS, ADMIN_RIGHTS, NOTICE_RIGHTS, acl_line
from aioredlock_ng._kinds import KINDS
from aioredlock_ng.testing import LocalNodes
from tests.redis_sentinels import running_sentinel
from tests.servers import Nodes, answers, ask, eventually, with_rights

MakeNodes = Callable[..., LocalNodes]
PATIENT = 1.0
"""Node timeout, in seconds: no node of these tests is to be too slow."""


async def diagnose(*nodes: Any, **options: Any) -> list[Finding]:
    """Return what is wrong with nodes."""
    manager = LockManager(nodes, **({"node_timeout": PATIENT} | options))
    try:
        return [finding for finding in await manager.diagnose() if finding.level != "ok"]
    finally:
        await manager.aclose()


def brief(
    findings: list[Finding], *, but: str = "persistence quarantine"
) -> list[tuple[str | None, str, str]]:
    """Return node, check and level, without what every node of these tests has."""
    return [(one.node, one.check, one.level) for one in findings if one.check not in but.split()]


def left(nodes: Nodes) -> list[list[bytes]]:
    """Return the keys on every node, but for incarnation records."""
    return [
        [key for key in ask(url, "KEYS", "*") if not key.endswith((b"{meta}", b"{members}"))]
        for url in nodes.urls
    ]


def doctor(capsys: pytest.CaptureFixture[str], urls: list[str], *arguments: str) -> tuple[int, str]:
    """Run the command and return its exit code and output; it says nothing else."""
    code = main(["doctor", "--nodes", ",".join(urls), "--node-timeout", str(PATIENT), *arguments])
    output, errors = capsys.readouterr()
    assert errors == ""
    return code, output


# -- the command -------------------------------------------------------------------------------------


def test_five_healthy_nodes_are_fine(shared_nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0; a finding of all nodes comes once, with advice; a summary; nothing is left on a node."""
    code, output = doctor(capsys, shared_nodes.urls)
    assert code == 0
    assert output.count("  ok       role: master\n") == 1
    assert "\n           set a restart_quarantine; " in output
    assert re.search(r"\n0 errors, 6 warnings, \d+ checks ok\n\Z", output)
    assert left(shared_nodes) == [[]] * 5
    assert [ask(url, "PUBSUB CHANNELS", "*") for url in shared_nodes.urls] == [[]] * 5


def test_for_programs_it_is_json(nodes3: LocalNodes, capsys: pytest.CaptureFixture[str]) -> None:
    """The findings with their five fields, and how many there are of each kind; no node at all is 69."""
    nodes3.kill(1)
    code, output = doctor(capsys, nodes3.urls, "--json")
    shown = json.loads(output)
    findings = shown["findings"]
    assert code == 1
    assert (shown["errors"], shown["warnings"] + shown["ok"]) == (1, len(findings) - 1)
    assert all(set(one) == {"node", "check", "level", "message", "advice"} for one in findings)
    (error,) = [one for one in findings if one["level"] == "error"]
    assert (error["node"], error["check"]) == (nodes3.urls[1], "reachable")
    assert "start the server" in error["advice"]
    for i in (0, 2):
        nodes3.kill(i)
    code, output = doctor(capsys, nodes3.urls)
    assert (code, output.count("error    reachable: ")) == (69, 3)
    assert "0 of 3 nodes can grant a lock" in output


def test_quiet_leaves_out_what_is_ok(nodes3: LocalNodes, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing at all when all is well, as cron likes it; else what is not, and the counts."""
    assert main(["init", "--nodes", ",".join(nodes3.urls), "--restart-quarantine", "60"]) == 0
    capsys.readouterr()
    assert doctor(capsys, nodes3.urls, "--quiet") == (0, "")
    code, output = doctor(capsys, nodes3.urls, "-q", "--json")
    shown = json.loads(output)
    assert (code, shown["findings"], shown["errors"], shown["ok"] > 30) == (0, [], 0, True)
    ask(nodes3.urls[1], "CONFIG SET", "maxmemory-policy", "allkeys-lru")
    code, output = doctor(capsys, nodes3.urls, "-q")
    lines = output.splitlines()
    assert (code, lines[0], lines[1].split(":")[0]) == (1, nodes3.urls[1], "  error    eviction")
    assert re.fullmatch(r"1 errors, 0 warnings, \d\d checks ok", lines[-1])
    assert "  ok  " not in output


# -- what is found -----------------------------------------------------------------------------------


def test_nodes_of_another_quorum(nodes5: LocalNodes, capsys: pytest.CaptureFixture[str]) -> None:
    """Three of five: an error of each, with what to do, and no lock for clients with this list.

    It is said once, unless the nodes were claimed in different seconds.
    """
    for url in nodes5.urls[:3]:  # as if all had been claimed in one
        incarnation = ask(url, "GET", "redlock:{meta}")
        ask(
            url, "SET", "redlock:{meta}", re.sub(rb":[0-9]+:(init|use):", rb":1700000000000:\1:", incarnation)
        )
    code, output = doctor(capsys, nodes5.urls[:3])
    assert code == 69
    assert (
        output.count("error    incarnation: the node belongs to a quorum of 5 nodes, this client has 3") == 1
    )
    assert output.count("give all clients the same nodes: compare their lists") == 1
    assert output.index("each of 3 nodes") < output.index("this client has 3")
    assert "run `aioredlock-ng init`" not in output, "it would stop the clients of the five"
    assert "0 of 3 nodes can grant a lock, 2 are needed: no lock can be acquired" in output


async def test_a_node_that_evicts_is_logged_at_connect(
    nodes3: LocalNodes, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for the one node; not where nothing rests on what it remembers."""
    ask(nodes3.urls[1], "CONFIG SET", "maxmemory-policy", "volatile-lru")
    options: dict[str, Any]
    for options in ({}, {"fencing": False}):
        async with LockManager(nodes3.urls, node_timeout=PATIENT, **options) as manager, manager.lock("a"):
            pass
    lines = [record.getMessage() for record in caplog.records if "maxmemory-policy" in record.getMessage()]
    assert len(lines) == 1
    assert f":{nodes3.ports[1]}: its maxmemory-policy is volatile-lru" in lines[0]


@pytest.fixture
def rights(make_nodes: MakeNodes) -> Callable[[str], list[str]]:
    """Return a function that gives three nodes' URLs for a user with these rights."""
    nodes = make_nodes(3)

    def give(granted: str) -> list[str]:
        return [with_rights(url, f"~redlock:* &redlock:* {granted}") for url in nodes.urls]

    return give


async def test_the_rights_that_locking_needs_are_enough(rights: Callable[[str], list[str]]) -> None:
    """Nothing is an error then; what cannot be checked says by which right it could, and with it can."""
    findings = await diagnose(*rights(ACL_RIGHTS))
    assert {one.level for one in findings} == {"warning"}
    unchecked = {one.check: one.advice for one in findings if "could not be checked" in one.message}
    assert set(unchecked) == {"access"}
    assert "+acl|getuser" in unchecked["access"]
    findings = await diagnose(*rights(f"{ACL_RIGHTS} {ADMIN_RIGHTS}"))
    assert brief(findings) == []
    manager = LockManager(rights(f"{ACL_RIGHTS} {ADMIN_RIGHTS}"))
    async with manager, manager.lock("a"):
        assert [lock.name for lock in (await manager.survey()).locks] == ["a"]


@pytest.mark.heavy
@pytest.mark.parametrize(
    "right", [right for right in ACL_RIGHTS.split() if right not in ("-@all", "+auth", "+client|setname")]
)
async def test_a_missing_right_is_an_error(right: str, rights: Callable[[str], list[str]]) -> None:
    """Whichever of the rights is taken away: the finding has the line that grants them all.

    Where locks work without it, or locks of other kinds, it is a warning with that right.
    """
    less = rights(f"{ACL_RIGHTS} {right.replace('+', '-', 1)}")
    checks = ("rights", "info", "writes", "quorum", "notices")
    findings = [one for one in await diagnose(*less) if one.check in checks]
    found = {(one.check, one.level) for one in findings}
    named = all(right in one.advice.replace(",", "").split() for one in findings)
    if right in ("+hello", "+script|exists"):
        assert found == set()  # a connection speaks RESP2, or loads all scripts
    elif right in ("+info", *NOTICE_RIGHTS.split()):
        assert (found, named) == ({("info" if right == "+info" else "notices", "warning")}, True)
    elif right in ("+ping", "+eval", "+type"):
        assert (found, named) == ({("rights", "warning")}, True)
    elif needed_by := {kind.noun for kind in KINDS if right in kind.rights.split()}:
        assert (found, named) == ({("rights", "warning")}, True)
        assert all(needed_by.issuperset(one.message.split(":")[0].split(", ")) for one in findings)
    else:
        assert found == {("rights", "error"), ("quorum", "error")}
        assert all(acl_line(b"redlock:") in one.advice for one in findings if one.check == "rights")


@pytest.mark.parametrize("command", ["INFO", "PING", "EVAL"])
async def test_a_command_with_another_name_is_a_missing_right(command: str, make_nodes: MakeNodes) -> None:
    """Locks do without it."""
    nodes = make_nodes(3, options={"rename-command": [command, "HIDDEN"]})
    async with LockManager(nodes.urls, node_timeout=PATIENT) as manager:
        await eventually(lambda: manager.available)
        async with manager.lock("a") as lease:
            await lease.extend()
    findings = [one for one in await diagnose(*nodes.urls) if one.check not in ("persistence", "quarantine")]
    assert "error" not in {one.level for one in findings}
    refused = [one for one in findings if f"'{command}'" in one.message]
    assert {one.node for one in refused} == set(nodes.urls)
    assert all(f"+{command.lower()}" in one.advice or "by hand" in one.advice for one in refused)


async def of_no_use(nodes: LocalNodes) -> None:
    """Let the default user do nothing, where other machines reach the servers."""
    for url in nodes.urls:
        ask(url, "ACL SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all")
        ask(url, "CONFIG SET", "bind", "0.0.0.0")
        ask(url, "ACL SETUSER", "default", "-@all")


async def full(nodes: LocalNodes) -> None:
    """Let the memory of the first be full."""
    ask(nodes.urls[0], "CONFIG SET", "maxmemory", "1")


async def newer(nodes: LocalNodes) -> None:
    """Let the first have an incarnation record of another version of this package."""
    ask(nodes.urls[0], "SET", "redlock:{meta}", "2:new")


async def unwritten(nodes: LocalNodes) -> None:
    """Let the last snapshot of the first have failed, so that it refuses every SET."""
    directory = ask(nodes.urls[0], "CONFIG GET", "dir")["dir"]
    (Path(directory) / "dump.rdb").mkdir()  # nothing can be renamed to that
    ask(nodes.urls[0], "BGSAVE")
    await eventually(lambda: b"rdb_last_bgsave_status:err" in ask(nodes.urls[0], "INFO persistence"))


async def busy(nodes: LocalNodes) -> None:
    """Let the first run a script without end; it answers nothing but how to end it."""
    BUSY.append(socket.create_connection(("127.0.0.1", nodes.ports[0])))
    BUSY[-1].sendall(b'EVAL "while true do end" 0\r\n')
    await eventually(lambda: not answers(nodes.ports[0], within=0.2))


async def replicated(nodes: LocalNodes) -> None:
    """Let the first be a replica of the second, which then has its data's name from elsewhere."""
    ask(nodes.urls[0], "REPLICAOF", "127.0.0.1", nodes.ports[1])
    await eventually(lambda: b"master_link_status:up" in ask(nodes.urls[0], "INFO replication"), within=30)
    await eventually(lambda: b"connected_slaves:1" in ask(nodes.urls[1], "INFO replication"))


BUSY: list[socket.socket] = []
LOCAL, OPEN = {"protected-mode": "no"}, {"protected-mode": "no", "bind": "0.0.0.0"}
CLUSTER, PASSWORD = {"cluster-enabled": "yes"}, {"requirepass": "s3cret"}
FSYNC = {fsync: {"appendonly": "yes", "appendfsync": fsync} for fsync in ("always", "everysec")}
REPLICA = ["replicas warning", "role error", "incarnation warning"]
HASHED = {"prefix": "{redlock}:"}
LOGIN = ["quorum error"] + ["reachable error"] * 3


@pytest.mark.parametrize(
    ("options", "damage", "ours", "found", "words"),
    [
        pytest.param(PASSWORD, None, {}, LOGIN, "user and the password", id="a password that is missing"),
        pytest.param({"lua-time-limit": 50}, busy, {}, ["writes error"], "BUSY SCRIPT KILL", id="busy"),
        pytest.param({}, replicated, {"node_timeout": 5}, REPLICA, "independent master", id="a replica"),
        pytest.param(LOCAL, None, {}, [], "", id="reached by its own machine alone"),
        pytest.param(LOCAL, of_no_use, {}, [], "", id="reached, but not without a login"),
        pytest.param(OPEN, None, {}, ["access error"] * 3, "firewall", id="open to any machine"),
        pytest.param(FSYNC["always"], None, {}, [], "", id="a file that is written through"),
        pytest.param(FSYNC["everysec"], None, {}, ["persistence warning"] * 3, "", id="a file"),
        pytest.param({"save": "3600 1"}, unwritten, {}, ["writes error"], "MISCONF snapshots", id="MISCONF"),
        pytest.param({}, full, {}, ["writes error"], "OOM memory", id="OOM"),
        pytest.param(
            {}, newer, {}, ["incarnation warning"], "another version", id="a newer incarnation record"
        ),
        pytest.param(
            CLUSTER, None, {}, ["mode error"] * 3 + ["quorum error"], "prefix='{redlock}:'", id="a cluster"
        ),
        pytest.param(CLUSTER, None, HASHED, ["mode error"], "CLUSTERDOWN", id="a cluster without slots"),
        pytest.param(
            {}, None, {"node_timeout": 0.00002}, ["latency warning"], "raise node_timeout", id="far"
        ),
    ],
)
async def test_what_a_servers_state_comes_to(
    *, options: Any, damage: Any, ours: Any, found: list[str], words: str, make_nodes: MakeNodes
) -> None:
    """The error, of which node, and what would help; a record of another version stays as it is."""
    nodes = make_nodes(3, options=options)
    urls = nodes.urls
    if damage is not None:
        await damage(nodes)
        if damage is of_no_use:
            urls = [url.replace("redis://", "redis://locks:secret@") for url in urls]
    findings = await diagnose(*urls, **ours)
    but = "quarantine" if "appendonly" in options else "persistence quarantine"
    seen = sorted(f"{check} {level}" for _, check, level in brief(findings, but=but))
    assert set(found) <= set(seen) if ours or damage is newer else found == seen, seen
    said = " ".join(one.message + one.advice for one in findings)
    assert not [word for word in words.split() if word not in said]
    assert damage is None or {one.node for one in findings if one.check in ("writes", "role")} <= {urls[0]}
    while BUSY:
        BUSY.pop().close()
    assert damage is not newer or ask(urls[0], "GET", "redlock:{meta}") == b"2:new"


async def test_a_redis_sentinel_is_no_node(tmp_path: Path, nodes3: LocalNodes) -> None:
    """By URL and by client: it knows masters, and holds no locks."""
    with running_sentinel(tmp_path / "sentinel") as port:
        async with Redis(port=port) as client:
            for node in (f"redis://127.0.0.1:{port}", client):
                findings = await diagnose(
                    *nodes3.urls, node, nodes3.urls[0].replace("127.0.0.1", "localhost")
                )
                wrong = {(one.check, one.level) for one in findings if str(port) in str(one.node)}
                assert ("mode", "error") in wrong, findings
                assert "Sentinel" in "".join(one.advice for one in findings)
                assert (None, "identity", "error") in brief(findings)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("redis://does-not-exist.invalid", ("host name", "no answer")),  # where the resolver itself hangs
        (None, ("rediss://", "TLS")),
    ],
    ids=["no such host", "TLS where there is none"],
)
async def test_a_node_that_cannot_be_talked_to(
    wrong: str | None, words: tuple[str, str], nodes3: LocalNodes
) -> None:
    """It is the DNS, or a slip of the pen; a plain server under rediss:// does not understand a word."""
    url = wrong or nodes3.urls[2].replace("redis://", "rediss://")
    findings = await diagnose(*nodes3.urls[:2], url, connect_timeout=5)
    (error,) = [one for one in findings if one.level == "error"]
    assert (error.node, error.check) == (url, "reachable")
    assert words[0] in error.advice or words[1] in error.message
