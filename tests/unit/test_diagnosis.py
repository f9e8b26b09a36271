"""What a diagnosis concludes from facts: tables, no nodes; and what it gathers from masters in memory."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from aioredlock_ng import Finding, ManagerClosedError, _scripts
from aioredlock_ng._admin.doctor.facts import (
    BY_CLIENT,
    NO_COMMANDS,
    NOT_ASKED,
    RESP2,
    ClockReading,
    Facts,
    NodeFacts,
)
from aioredlock_ng._admin.doctor.judge import judge
from aioredlock_ng._core.command import Silence
from aioredlock_ng._core.rights import ACL_RIGHTS, READER_RIGHTS, acl_line, glob_escaped
from tests.environments.interpreters import ROOT
from tests.unit.worlds import sim, virtual, world

NOPERM = Silence("NOPERM this user has no permissions to run the 'info' command")
INFO = {
    "redis_version": "7.0.15",
    "redis_mode": "standalone",
    "cluster_enabled": "0",
    "role": "master",
    "connected_slaves": "0",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "connected_clients": "5",
    "maxclients": "10000",
}
CONFIG = {"appendfsync": "always", "bind": "127.0.0.1 -::1", "protected-mode": "yes", "maxclients": "10000"}


def healthy(number: int, **facts: Any) -> NodeFacts:
    """Return a node without fault, but for the given facts; dicts are merged, None leaves a fact out."""
    known: dict[str, Any] = {
        "name": f"node {number}",
        "host": "127.0.0.1",
        "run_id": f"{number:040x}",
        "round_trip": 0.001,
        "info": INFO,
        "config": CONFIG,
        "default_user": frozenset({"on"}),
        "clock": ClockReading(offset=1e9, uncertainty=0.001),
        "deaf": None,
    }
    for name, value in facts.items():
        if isinstance(value, dict):
            merged = known[name] | value
            known[name] = {key: fact for key, fact in merged.items() if fact is not None}
        else:
            known[name] = value
    return NodeFacts(**known)


def judged(*nodes: NodeFacts, node_timeout: float = 0.1) -> tuple[Finding, ...]:
    """Judge nodes; with one, two healthy ones stand beside it."""
    if len(nodes) == 1:
        nodes = (*nodes, healthy(2), healthy(3))
    return judge(Facts(nodes=nodes, prefix=b"redlock:", node_timeout=node_timeout))


def not_ok(findings: tuple[Finding, ...]) -> list[tuple[str | None, str, str]]:
    """Return what is wrong: node, check, level."""
    return [(one.node, one.check, one.level) for one in findings if one.level != "ok"]


def test_nothing_is_wrong_with_healthy_nodes() -> None:
    """Three nodes without fault: every check has run, for all and for each, and each is ok."""
    findings = judged(*map(healthy, range(3)))
    assert not_ok(findings) == []
    every = (
        "reachable rights writes role mode replicas eviction persistence clients version access latency "
        "notices clock"
    )
    assert [(one.node, one.check) for one in findings] == [
        (None, "quorum"),
        (None, "identity"),
        *((f"node {number}", check) for number in range(3) for check in every.split()),
    ]


def one(check: str, level: str, words: str, advice: str, identifier: str, **facts: Any) -> Any:
    """Make a row: what is different at one node, and the only finding that comes of it."""
    return pytest.param(facts, check, level, words, advice, id=identifier)


@pytest.mark.parametrize(
    ("facts", "check", "level", "words", "advice"),
    [
        one("role", "error", "it is a replica", "independent master", info={"role": "slave"}),
        one("role", "warning", "does not tell role", "by hand", info={"role": None}),
        one("replicas", "warning", "2 attached", "without replicas", info={"connected_slaves": "2"}),
        one("mode", "error", "prefix='{redlock}:'", "cluster-enabled no", info={"redis_mode": "cluster"}),
        one("mode", "error", "cluster mode", "cluster-enabled no", info={"cluster_enabled": "1"}),
        one("mode", "error", "sentinel mode", "redis+sentinel", info={"redis_mode": "sentinel"}),
        one("mode", "error", "sentinel mode", "redis+sentinel", info={"redis_mode": None,
            "server_mode": "sentinel"}),
        one("eviction", "error", "which it is not at present", "noeviction",
            info={"maxmemory_policy": "allkeys-lru"}),
        one("eviction", "error", "1000 bytes of maxmemory", "noeviction",
            info={"maxmemory_policy": "volatile-ttl", "maxmemory": "1000"}),
        one("eviction", "warning", "does not tell", "by hand", info={"maxmemory_policy": None}),
        one("persistence", "warning", "no append-only file", "longest ttl", info={"aof_enabled": "0"}),
        one("persistence", "warning", "appendfsync is everysec", "always",
            config={"appendfsync": "everysec"}),
        one("clients", "warning", "9000 of 10000", "maxclients", info={"connected_clients": "9000"}),
        one("clients", "warning", "95 of 100", "maxclients", info={"connected_clients": "95",
            "maxclients": None}, config={"maxclients": "100"}),
        one("clients", "warning", "does not tell", "by hand", info={"connected_clients": None}),
        one("version", "warning", "Redis 5.0.7 has no RESP3", "6.0", info={"redis_version": "5.0.7"}),
        one("version", "warning", "4.0.14 is too old for fences", "6.0", info={"redis_version": "4.0.14"}),
        one("version", "warning", "does not tell", "by hand", info={"redis_version": None}),
        one("latency", "warning", "51.0 ms", "raise node_timeout", round_trip=0.051),
        one("latency", "warning", "could not be measured", "see", round_trip=None),
        one("clock", "warning", "+5.100 s", "NTP", clock=ClockReading(offset=1000000000.0 + 5.1,
            uncertainty=0)),
        one("clock", "warning", "-7.000 s", "NTP", clock=ClockReading(offset=1000000000.0 - 7,
            uncertainty=0)),
        one("clock", "warning", "could not be checked", "+time", clock=NOPERM),
        one("info", "warning", "could not be checked", "+info", info=NOPERM),
        one("persistence", "warning", "could not be checked", "+config|get", config=NOPERM),
        one("access", "warning", "could not be checked", "+acl|getuser", default_user=NOPERM),
        one("access", "error", "reached at 10.0.0.1", "password", host="10.0.0.1", default_user=OPEN),
        one("access", "error", "bind is '*'", "password", config={"bind": "*", "protected-mode": "no"},
            default_user=OPEN),
        one("access", "error", "bind is ''", "password", config={"bind": "", "protected-mode": "no"},
            default_user=OPEN),
        one("access", "error", "protected mode does not apply", "password", config={"bind": "0.0.0.0"},
            info={"redis_version": "6.2.1"}, default_user=OPEN),
        one("notices", "warning", "speaks RESP2", "no protocol=2", deaf=RESP2),
        one("notices", "warning", "tell us of releases (NOPERM",
            "rights +subscribe +unsubscribe +publish +pubsub|numsub, and &redlock:* unless", deaf=NOPERM),
        one("notices", "warning", "not tell others of ours (PUBLISH is", "rights +publish", mute=True),
        one("notices", "warning", "others of ours", "rights +publish, and &redlock:* unless", deaf=BY_CLIENT,
            mute=True),
        one("notices", "warning", "(PUBSUB NUMSUB is refused): of many processes", "rights +pubsub|numsub",
            uncounted=True),
        one("notices", "warning", "(ERR unknown command", "under their names",
            deaf=Silence("ERR unknown command 'UNSUBSCRIBE'")),
        one("rights", "error", "extend: NOPERM", acl_line(b'redlock:'), failures=(("extend",
            "NOPERM this user has no permissions to run the 'pexpire' command"),)),
        one("rights", "warning", "read-write locks: read lock: NOPERM, which other locks do without",
            f'rights {READER_RIGHTS}', lacking=(("read-write locks", "read lock: NOPERM"),)),
        one("writes", "error", "read-write locks: write lock: ERR x, which other locks do without", "log",
            lacking=(("read-write locks", "write lock: ERR x"),)),
        one("writes", "error", "acquire: MISCONF", "snapshots", failures=(("acquire",
            "MISCONF Redis is configured to save RDB snapshots"),)),
        one("writes", "error", "acquire: OOM", "memory", failures=(("acquire",
            "OOM command not allowed when used memory > 'maxmemory'."),)),
        one("writes", "error", "look: BUSY", "SCRIPT KILL", failures=(("look",
            "BUSY Redis is busy running a script."),)),
        one("mode", "error", "acquire: MOVED", "cluster-enabled no", failures=(("acquire",
            "MOVED 1234 10.0.0.9:6379"),)),
        one("role", "error", "acquire: You can't", "independent master", failures=(("acquire",
            "You can't write against a read only replica."),)),
        one("writes", "error", "acquire: command", "free memory", failures=(("acquire",
            "command not allowed when used memory > 'maxmemory'."),)),
        one("writes", "error", "acquire: Redis", "wait", failures=(("acquire",
            "Redis is loading the dataset in memory"),)),
        one("mode", "error", "acquire: 1234", "cluster-enabled no", failures=(("acquire",
            "1234 10.0.0.9:6379"),)),
        one("mode", "error", "acquire: Hash", "cluster-enabled no", failures=(("acquire",
            "Hash slot not served"),)),
        one("writes", "error", "acquire: what", "log", failures=(("acquire", "what"),)),
        one("reachable", "error", "Connect call failed", "start the server",
            down="[Errno 111] Connect call failed ('127.0.0.1', 6379)"),
        one("reachable", "error", "no answer", "hangs", down="no answer to connect and login within 1 s"),
        one("reachable", "error", "Name or service", "DNS", down="Error -2: Name or service not known."),
        one("reachable", "error", "Error -2", "DNS", down="Error -2 connecting to a:1. -2."),
        one("reachable", "error", "Error 111", "start the server", down="Error 111 connecting to a:1. 111."),
        one("reachable", "error", "WRONGPASS", "user and password",
            down="WRONGPASS invalid username-password pair or user is disabled."),
        one("reachable", "error", "certificate", "rediss://",
            down="[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
        one("reachable", "error", "closed", "rediss://", down="Connection closed by server."),
        one("rights", "error", "NOPERM", acl_line(b'redlock:'),
            down="NOPERM this user has no permissions to run the 'script|load' command"),
        one("role", "error", "slave", "independent master", down="the server is a slave, not a master"),
        one("mode", "error", "unknown command", "Sentinel", down="ERR unknown command 'SCRIPT',
            with args beginning with: "),
        one("access", "error", "protected mode", "password",
            down="DENIED Redis is running in protected mode because"),
        one("clients", "error", "max number", "maxclients", down="ERR max number of clients reached"),
        one("writes", "error", "LOADING", "wait", down="LOADING Redis is loading the dataset in memory"),
    ],
)  # fmt: skip
def test_one_fault_is_one_finding(facts, check, level, words, advice):
    """A node that differs from a healthy one in one fact: the one finding says what and what to do."""
    findings = judged(healthy(1, **facts))
    assert not_ok(findings) == [("node 1", check, level)]
    (found,) = [finding for finding in findings if finding.level != "ok"]
    assert words in found.message
    assert advice in found.advice


def test_every_finding_that_is_not_ok_has_an_advice() -> None:
    """Also for a node at which everything is wrong, and of nodes that are silent about everything."""
    worst = healthy(
        1,
        info=dict.fromkeys(INFO),
        default_user=frozenset({"nopass"}),
        host="example.org",
        failures=tuple((f"step {number}", f"reason {number}") for number in range(3)),
        deaf=Silence("a reason of its own"),
        mute=True,
    )
    mute = NodeFacts(name="mute")
    findings = judged(worst, mute, NodeFacts(name="down", down="why not"))
    assert all(finding.advice for finding in findings if finding.level != "ok")
    assert not any(finding.advice for finding in findings if finding.level == "ok")


def notices(**facts: Any) -> list[tuple[str, str, str]]:
    """Return what is said of the notices of a node: level, message and advice."""
    findings = judged(healthy(1, **facts))
    found = [finding for finding in findings if (finding.node, finding.check) == ("node 1", "notices")]
    return [(finding.level, finding.message, finding.advice) for finding in found]


def test_what_is_missing_for_notices_is_told_at_once() -> None:
    """Two faults are one finding, with what helps against both and no right that is there."""
    ((_, message, advice),) = notices(deaf=RESP2, mute=True)
    assert "RESP2) and it does not tell others of ours" in message
    assert advice.endswith("it; give its user the rights +publish, and &redlock:* unless it has all channels")
    ((_, message, advice),) = notices(deaf=NOPERM, mute=True)
    assert "NOPERM" in message
    assert "PUBLISH" in message
    assert advice.count("+publish") == 1
    ((_, _, advice),) = notices(mute=True)
    assert advice == "give its user the rights +publish"  # a user that could subscribe has the channels
    ((_, message, advice),) = notices(mute=True, uncounted=True)
    assert "PUBLISH is refused) and it does not say how many" in message
    assert message.endswith("waiters poll, and get the lock later")
    assert advice == "give its user the rights +publish +pubsub|numsub"
    ((_, _, advice),) = notices(deaf=BY_CLIENT, uncounted=True)
    assert advice == "give its user the rights +pubsub|numsub"


def test_a_client_hears_of_no_release_and_is_fine() -> None:
    """Nodes of both sorts may be mixed: it is said, and no warning."""
    ((level, message, _),) = notices(deaf=BY_CLIENT)
    assert level == "ok"
    assert "its manager's waiters poll" in message


@pytest.mark.parametrize(
    ("deaf", "said"),
    [
        pytest.param(Silence("no answer within 1 s"), [], id="the same reason"),
        pytest.param(None, [], id="nothing was released"),
        pytest.param(NOT_ASKED, [], id="not asked"),
        pytest.param(RESP2, ["warning"], id="a reason of its own"),
    ],
)
def test_notices_are_no_second_finding_of_one_fault(deaf: Silence | None, said: list[str]) -> None:
    """Where locking fails, that is told; of notices only what has nothing to do with it."""
    found = notices(deaf=deaf, failures=(("acquire", "no answer within 1 s"),))
    assert [level for level, _, _ in found] == said


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"host": "localhost"}, id="by name"),
        pytest.param({"host": "::1"}, id="IPv6"),
        pytest.param({"host": None}, id="a socket"),
        pytest.param({"config": {"bind": "* -::*"}}, id="protected from others"),
        pytest.param({"config": {"bind": ""}, "info": {"redis_version": "6.0.0"}}, id="Redis 6 without bind"),
        pytest.param({"config": {"protected-mode": "no"}}, id="bound to its own machine"),
        pytest.param({"default_user": frozenset({"on"}), "host": "10.0.0.1"}, id="a password"),
        pytest.param({"default_user": frozenset({"off", "nopass"}), "host": "10.0.0.1"}, id="turned off"),
        pytest.param({"default_user": frozenset({"on", "nopass", NO_COMMANDS}), "host": "10.0.0.1"},
                     id="may do nothing"),
        pytest.param({"host": None, "config": {"bind": "*", "protected-mode": "no"},
                      "info": {"tcp_port": "0"}}, id="a socket only")
    ]
)  # fmt: skip
def test_what_strangers_cannot_reach_needs_no_password(facts: Any) -> None:
    """Without a password a node is fine as long as no other machine gets to it."""
    assert not_ok(judged(healthy(1, **({"default_user": frozenset({"on", "nopass"})} | facts)))) == []


@pytest.mark.parametrize(
    ("size", "down", "level"),
    [
        (1, 0, "warning"), (2, 0, "warning"), (3, 0, "ok"), (4, 0, "warning"), (5, 0, "ok"),
        (1, 1, "error"), (2, 1, "error"), (3, 1, "ok"), (3, 2, "error"),
        (4, 2, "error"), (5, 2, "ok"), (5, 3, "error")
    ]
)  # fmt: skip
def test_how_many_nodes_there_are(size: int, down: int, level: str) -> None:
    """An odd number from three on is right; too few that can be asked is an error."""
    nodes = [healthy(i, down="gone" if i < down else "") for i in range(size)]
    findings = judge(Facts(nodes=tuple(nodes), prefix=b"", node_timeout=0.1))
    assert (findings[0].check, findings[0].level) == ("quorum", level)


@pytest.mark.parametrize(
    ("size", "down", "words"),
    [
        (3, 0, "3 of 3 nodes can grant locks; 1 may fail"),
        (3, 1, "2 of 3 nodes can grant locks; no more may fail"),
        (5, 1, "4 of 5 nodes can grant locks; 1 more may fail"),
    ],
)
def test_what_has_failed_cannot_fail_again(size: int, down: int, words: str) -> None:
    """How many may still fail counts from those that are left."""
    nodes = tuple(healthy(i, down="gone" if i < down else "") for i in range(size))
    assert judge(Facts(nodes=nodes, prefix=b"", node_timeout=0.1))[0].message == words


def test_one_server_twice_is_named() -> None:
    """Both nodes are named; three times is three pairs."""
    findings = judged(healthy(1), healthy(2), healthy(3, run_id=f"{1:040x}"))
    assert not_ok(findings) == [(None, "identity", "error")]
    assert "node 1 and node 3" in findings[1].message
    assert len(not_ok(judged(*[healthy(i, run_id="x") for i in range(3)]))) == 3


def test_servers_that_do_not_tell_who_they_are() -> None:
    """Whether they are different ones is unknown, and what is known is still compared."""
    findings = judged(healthy(1, run_id=None), healthy(2), healthy(3))
    assert not_ok(findings) == [(None, "identity", "warning")]
    assert "node 1" in findings[1].message
    findings = judged(healthy(1, run_id=None), healthy(2), healthy(2))
    assert [level for _, check, level in not_ok(findings) if check == "identity"] == ["error", "warning"]


def test_an_uncertain_clock_is_not_accused() -> None:
    """An offset that may be as small as allowed is ok: the answer just took long."""
    far = ClockReading(offset=1e9 + 6, uncertainty=0.9)
    unsure = ClockReading(offset=1e9 + 6, uncertainty=1.1)
    assert not_ok(judged(healthy(1, clock=far))) == [("node 1", "clock", "warning")]
    assert not_ok(judged(healthy(1, clock=unsure))) == []


def test_one_clock_of_two_is_accused() -> None:
    """It is unknown which of two is wrong: that they differ is said once."""
    nodes = [healthy(i, clock=ClockReading(offset=1e9 + 60 * i, uncertainty=0)) for i in range(2)]
    assert [check for _, check, _ in not_ok(judged(*nodes))].count("clock") == 1


def test_failures_of_one_kind_are_one_finding() -> None:
    """Three commands that are not allowed need one line of rights; a full memory is another matter."""
    failures = (
        ("acquire", "OOM command not allowed"),
        ("extend", "NOPERM no permissions for 'pexpire'"),
        ("look", "NOPERM no permissions for 'get'"),
    )
    findings = judged(healthy(1, failures=failures))
    assert sorted(check for _, check, _ in not_ok(findings)) == ["rights", "writes"]
    (rights,) = [finding for finding in findings if (finding.check, finding.level) == ("rights", "error")]
    assert "pexpire" in rights.message
    assert "look: NOPERM" in rights.message


def test_a_reason_is_told_once() -> None:
    """What fails for the same reason is named together."""
    failures = (("acquire", "no answer within 1 s"), ("look", "OOM x"), ("extend", "no answer within 1 s"))
    messages = [finding.message for finding in judged(healthy(1, failures=failures)) if finding.advice]
    assert messages == ["acquire, extend: no answer within 1 s", "look: OOM x"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Error 2 connecting to /run/redis/socket. No such file or directory.", "start the server"),
        ("Error 2 connecting to unix socket: /run/redis/socket. No such file", "start the server"),
        ("Error 2 connecting to 10.0.0.1:6379. No such file or directory.", "ssl_ca_certs"),
        ("Error UNKNOWN while writing to socket. Connection lost.", "maxclients"),
        ("Too many connections", "max_connections"),
        ("max number of clients reached", "raise maxclients"),
        ("something new", "server's log"),
    ],
)
def test_a_reason_has_its_advice(reason: str, words: str) -> None:
    """What redis-py and servers say in words that could be taken for something else."""
    findings = judged(healthy(1, down=reason))
    assert any(words in finding.advice for finding in findings if finding.message == reason)


def test_a_command_that_the_server_does_not_have_is_checked_by_hand() -> None:
    """Hosted servers take CONFIG away; that is no reason for another server."""
    findings = judged(healthy(1, host=None, default_user=frozenset({"nopass"}),
                              config=Silence("ERR unknown command 'CONFIG'")))  # fmt: skip
    advice = {finding.check: finding.advice for finding in findings if finding.level == "warning"}
    assert set(advice) == {"access", "persistence"}
    assert all("by hand" in words for words in advice.values())


@pytest.mark.parametrize(
    ("prefix", "pattern"),
    [
        (b"redlock:", "~redlock:* "),
        (b"a*[b]?\\:", r"~a\*\[b\]\?\\:* "),
        (b"my app:", "~my?app:* "),
        (b"", "~* "),
    ],
)
def test_the_acl_line_fits_the_prefix(prefix: bytes, pattern: str) -> None:
    """What is special in a pattern is escaped, so that the user gets these keys and no others."""
    assert pattern in acl_line(prefix)
    assert pattern.replace("~", " resetchannels &", 1) in acl_line(prefix)
    assert acl_line(prefix).endswith(ACL_RIGHTS)


def test_the_docs_have_the_same_acl_line() -> None:
    """There is one minimal line of rights."""
    assert acl_line(b"redlock:") in (ROOT / "docs" / "how-to" / "nodes.md").read_text().splitlines()


def test_escaped_text_matches_itself() -> None:
    """Every byte that means something in a pattern is escaped, and nothing else."""
    every = bytes(range(256))
    assert glob_escaped(every).replace(b"\\", b"") == every.replace(b"\\", b"")
    assert {glob_escaped(bytes([b])) for b in every if len(glob_escaped(bytes([b]))) > 1} == {
        b"\\\\", b"\\*", b"\\?", b"\\[", b"\\]"
    }  # fmt: skip


# -- gathering ---------------------------------------------------------------------------------------


@virtual
async def test_masters_in_memory_are_diagnosed() -> None:
    """What they cannot answer is a warning; nothing is an error, and no key is left."""
    async with world(3) as w:
        findings = await w.manager.diagnose()
        assert {check for _, check, level in not_ok(findings) if level == "error"} == set()
        assert {check for _, check, _ in not_ok(findings)} == {"persistence", "access", "quarantine"}
        assert w.keys == [()] * 3


@virtual
async def test_a_trial_does_on_each_node_what_locks_do() -> None:
    """All the scripts of locks, on names of the node's own, with fresh owners."""
    async with world(3) as w:
        await w.manager.diagnose()
        await w.manager.diagnose()
        for node in w.nodes:
            done = [words[0] + words[1] for words in node.executed if words[0].startswith(b"EVAL")]
            for script in (_scripts.ACQUIRE, _scripts.RELEASE):
                assert done.count(b"EVALSHA" + script.digest) == 4
            assert done.count(b"EVALSHA" + _scripts.INSPECT.digest) == 6
            for script in (_scripts.RAISE, _scripts.EXTEND, _scripts.TOP_UP):
                assert done.count(b"EVALSHA" + script.digest) == 2
            for script in (_scripts.RW_RAISE, _scripts.RW_EXTEND, _scripts.RW_TOP_UP):
                assert done.count(b"EVALSHA" + script.digest) == 2
            for script in (_scripts.READ, _scripts.WRITE):
                assert done.count(b"EVALSHA" + script.digest) == 4
            assert done.count(b"EVALSHA" + _scripts.RW_RELEASE.digest) == 6
            for script in (_scripts.SLOTS_ACQUIRE, _scripts.SLOTS_TOP_UP, _scripts.SLOTS_RELEASE):
                assert done.count(b"EVALSHA" + script.digest) == 2
            assert done.count(b"EVALSHA" + _scripts.FAIR_ACQUIRE.digest) == 6
            assert done.count(b"EVALSHA" + _scripts.FAIR_RELEASE.digest) == 4
            assert done.count(b"EVALSHA" + _scripts.QUEUE.digest) == 2
            assert done.count(b"EVAL" + _scripts.INSPECT.source) == 2
        executed = [words for node in w.nodes for words in node.executed]
        acquires = [words for words in executed if words[1:2] == (_scripts.ACQUIRE.digest,)]
        owners = {words[3 + int(words[2])] for words in acquires}
        assert len(acquires) == len({words[3] for words in acquires}) == len(owners) == 12


@pytest.mark.parametrize(
    ("script", "call", "reply", "told"),
    [
        (_scripts.READ, 1, "*4\r\n+tag\r\n:0\r\n:5\r\n:1\r\n", "read lock beside another: refused"),
        (_scripts.READ, 0, "-ERR Error running script\r\n", "read lock: ERR Error running script"),
        (
            _scripts.WRITE,
            0,
            "*5\r\n+tag\r\n:1\r\n:8\r\n:1\r\n:7\r\n",
            "refuse a writer beside readers: it was let in",
        ),
        (_scripts.WRITE, 1, "*5\r\n+tag\r\n:0\r\n:5\r\n:1\r\n:0\r\n", "write lock: refused"),
        (_scripts.RW_RELEASE, 0, "*4\r\n+tag\r\n:0\r\n:0\r\n:0\r\n", "release one of two: was not held"),
    ],
    ids=["no second reader", "a script error", "a writer beside readers", "no writer", "not in"],
)
@virtual
async def test_a_read_write_lock_is_tried(script, call, reply, told, monkeypatch):
    """Readers together, a writer alone, all released: what one node does otherwise is its own error."""
    async with world(3) as w:
        node = w.nodes[0]
        execute, calls = node.execute, itertools.count()

        def answer(words: list[bytes], *by: Any) -> bytes:
            result = execute(words, *by)
            if words[1:2] == [script.digest] and next(calls) == call:
                tag = words[-1]
                return reply.encode().replace(b"+tag", b"$%d\r\n%b" % (len(tag), tag))
            return result

        monkeypatch.setattr(node, "execute", answer)
        findings = await w.manager.diagnose()
        (found,) = [one for one in findings if one.level == "error"]
        assert (found.node, found.check) == (node.name, "writes")
        assert found.message.startswith(f"read-write locks: {told}")
        assert not [one for one in findings if one.check == "quorum" and one.level == "error"]


@virtual
async def test_scripts_that_were_flushed_are_no_fault() -> None:
    """A running manager's nodes have forgotten them: locks send them anew, so that nothing is wrong."""
    async with world(3) as w:
        for node in w.nodes:
            node.flush_scripts()
        assert not [finding for finding in await w.manager.diagnose() if finding.level == "error"]


@virtual
async def test_locks_are_not_disturbed() -> None:
    """No counter moves and no event is told."""

    class Hearer:
        def on_node_changed(self, event: object) -> None:
            heard.append(event)

        on_acquired = on_refused = on_extended = on_lost = on_released = on_node_changed

    heard: list[object] = []
    async with world(3, latency=0.01, hooks=[Hearer()]) as w, w.manager.lock("held") as lease:
        await asyncio.sleep(0.1)
        heard.clear()
        await w.manager.diagnose()
        assert lease.held
        assert heard == []
        counted = w.manager.statistics()
        assert (counted.acquired, counted.refused, counted.extended, counted.released) == (1, 0, 0, 0)
        assert (counted.held, counted.waiting) == (1, 0)


@virtual
async def test_a_manager_that_is_closed_meanwhile_says_so() -> None:
    """Its nodes are not dead, and no log has to be read."""
    async with world(3, latency=0.01) as w:
        diagnosis = asyncio.create_task(w.manager.diagnose())
        await asyncio.sleep(0.03)
        await w.manager.aclose()
        with pytest.raises(ManagerClosedError):
            await diagnosis


@pytest.mark.heavy
@pytest.mark.parametrize(
    "reply", [b"$-1\r\n", b"*1\r\n$1\r\nx\r\n", b":7\r\n", b"+OK\r\n", b"*2\r\n$1\r\nx\r\n:1\r\n"]
)
@pytest.mark.parametrize("verb", [b"INFO", b"TIME", b"ACL", b"CONFIG", b"UNSUBSCRIBE"])
@virtual
async def test_strange_answers_cost_no_connection(verb, reply, monkeypatch):
    """A server of another make may answer as it likes: that is a warning, and locks go on."""
    async with world(3) as w, w.manager.lock("held") as lease:
        node = w.nodes[0]
        connections, execute = list(node._connections), node.execute
        monkeypatch.setattr(
            node, "execute", lambda words, *by: reply if words[0] == verb else execute(words, *by)
        )
        findings = await w.manager.diagnose()
        assert not [finding for finding in findings if finding.level == "error"]
        await asyncio.sleep(0.1)  # the connections that only looked for other servers have ended
        assert node._connections == connections
        assert lease.held


@virtual
async def test_a_diagnosis_of_frozen_and_dead_nodes_ends() -> None:
    """One hangs during the diagnosis, one is dead: both are errors, and the third is still judged."""
    async with world(3) as w:
        w.nodes[0].crash()
        await asyncio.sleep(0.2)
        w.nodes[1].freeze()
        findings = await w.manager.diagnose()
        errors = {(node, check) for node, check, level in not_ok(findings) if level == "error"}
        assert errors == {(None, "quorum"), (w.nodes[0].name, "reachable"), (w.nodes[1].name, "writes")}
        w.nodes[1].thaw()


@virtual
async def test_clocks_are_compared_by_the_middle_of_the_round_trip() -> None:
    """Slow answers make a reading uncertain by half of the round trip, and not wrong."""
    async with world(3, latency=0.02) as w:
        w.nodes[2].latency = 0.04
        findings = await w.manager.diagnose()
        clocks = [finding.message for finding in findings if finding.check == "clock"]
        assert all(message.startswith("+0.000 s (± 0.0") for message in clocks), clocks
        (latency, *_) = [finding.message for finding in findings if finding.check == "latency"]
        assert latency.startswith("40.0 ms")


@virtual
async def test_a_cancelled_diagnosis_leaves_no_key() -> None:
    """What is released was queued together with what is acquired."""
    async with world(3, latency=0.01) as w:
        for delay in (0.001, 0.1, 0.105, 0.115):
            task = asyncio.create_task(w.manager.diagnose())
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.wait((task,))
            await asyncio.sleep(0.1)
            assert w.keys == [()] * 3


@pytest.mark.heavy
@virtual
async def test_nothing_stays_subscribed() -> None:
    """Every node was listened to, on a channel of a random name; also a cancelled diagnosis leaves none."""
    async with world(3, latency=0.01) as w:
        await w.manager.diagnose()
        for node in w.nodes:
            words = [words for words in node.executed if words[0].endswith(b"SUBSCRIBE")]
            assert [verb for verb, _ in words] == [b"UNSUBSCRIBE", b"SUBSCRIBE", b"UNSUBSCRIBE"]
            assert words[0][1].startswith(b"redlock:diagnosis:")
            assert len({channel for _, channel in words}) == 1
            assert node._server._channels == {}
        began = sim().time()
        await w.manager.diagnose()
        took = sim().time() - began
        subscribed = sum(words[0] == b"SUBSCRIBE" for words in w.nodes[0].executed)
        for percent in range(100):
            task = asyncio.create_task(w.manager.diagnose())
            await asyncio.sleep(took * percent / 100)
            task.cancel()
            await asyncio.wait((task,))
            await asyncio.sleep(0.1)
            assert [node._server._channels for node in w.nodes] == [{}] * 3
        assert sum(words[0] == b"SUBSCRIBE" for words in w.nodes[0].executed) > subscribed


@pytest.mark.parametrize(
    ("verb", "reply", "told", "asked"),
    [
        (b"UNSUBSCRIBE", b"-NOPERM no permissions to run the 'unsubscribe' command\r\n", "'unsubscribe'", 0),
        (b"UNSUBSCRIBE", b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n", "RESP2", 0),
        (b"SUBSCRIBE", b"-NOPERM No permissions to access a channel\r\n", "access a channel", 1),
    ],
    ids=["no way back", "RESP2", "no channel"],
)
@virtual
async def test_nothing_is_subscribed_that_could_not_be_undone(verb, reply, told, asked, monkeypatch):
    """Whether the server answers as it should to taking it back is known before; no connection is lost."""
    async with world(3) as w:
        node = w.nodes[0]
        connections, execute = list(node._connections), node.execute
        seen: list[bytes] = []

        def answer(words: list[bytes], *by: Any) -> bytes:
            seen.append(words[0])
            return reply if words[0] == verb else execute(words, *by)

        monkeypatch.setattr(node, "execute", answer)
        (found,) = [
            one
            for one in await w.manager.diagnose()
            if (one.node, one.check, one.level) == (node.name, "notices", "warning")
        ]
        assert told in found.message
        assert seen.count(b"SUBSCRIBE") == asked
        await asyncio.sleep(0.1)  # the connections that only looked for other servers have ended
        assert node._connections == connections
