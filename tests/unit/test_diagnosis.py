"""The findings of a diagnosis from facts, also of records, quarantines and clocks: tables, no nodes."""

from __future__ import annotations

import pytest

from aioredlock_ng._admin.doctor.facts import (
    NO_COMMANDS,
    RESP2,
    ClockReading,
    Facts,
    Lacking,
    NodeFacts,
)
from aioredlock_ng._admin.doctor.judge import judge
from aioredlock_ng._core.command import Silence
from aioredlock_ng._core.quarantine import Incarnation
from aioredlock_ng._core.rights import ACL_RIGHTS, acl_line
from tests.environments.interpreters import ROOT

PREFIX = b"redlock:"
NOPERM = Silence("NOPERM this user has no permissions to run the 'info' command")
OPEN = frozenset({"on", "nopass"})
UNPROTECTED = {"protected-mode": "no"}
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


def clock(ahead, uncertainty=0):
    """Return how far a clock is ahead of those of healthy nodes."""
    return ClockReading(offset=1e9 + ahead, uncertainty=uncertainty)


def healthy(number, **facts):
    """Return a node without fault, but for the given facts; dicts are merged, None leaves a fact out."""
    known = {
        "name": f"node {number}",
        "host": "127.0.0.1",
        "run_id": f"{number:040x}",
        "round_trip": 0.001,
        "info": INFO,
        "config": CONFIG,
        "default_user": frozenset({"on"}),
        "clock": clock(0, 0.001),
        "deaf": None,
    }
    for name, value in facts.items():
        merged = known[name] | value if isinstance(value, dict) else None
        known[name] = (
            value if merged is None else {key: one for key, one in merged.items() if one is not None}
        )
    return NodeFacts(**known)


def incarnation(size=3, quarantine=60.0, identity=b"0" * 80):
    """Return an incarnation record without anything special."""
    return bytes(
        Incarnation(identity=identity, floor=1, ready_ms=0, size=size, quarantine_ms=round(quarantine * 1000))
    )


def known(number, **facts):
    """Return a node without fault that has an incarnation record, but for the given facts."""
    return healthy(number, **({"incarnation": incarnation()} | facts))


def judged(*nodes, beside=healthy, **facts):
    """Judge nodes; with one, two without fault stand beside it."""
    if len(nodes) == 1:
        nodes = (*nodes, beside(2), beside(3))
    return judge(Facts(**{"nodes": nodes, "prefix": PREFIX, "node_timeout": 0.1, **facts}))


def with_incarnations(*nodes, **facts):
    """Judge nodes for a client with a quarantine, as `judged` does."""
    return judged(*nodes, beside=known, **{"quarantine": 60.0, **facts})


def not_ok(findings):
    """Return what is wrong: node, check, level."""
    return [(one.node, one.check, one.level) for one in findings if one.level != "ok"]


def found(findings, check):
    """Return what one check came to, where that is not ok."""
    return [finding for finding in findings if finding.check == check and finding.level != "ok"]


def test_nothing_is_wrong_with_healthy_nodes():
    """Three nodes without fault: every check has run, for all and for each, and each is ok."""
    findings = judged(*map(healthy, range(3)))
    assert not_ok(findings) == []
    every = (
        "reachable rights writes role mode replicas eviction persistence clients version access latency "
        "notices clock"
    )
    of_each = [(f"node {number}", check) for number in range(3) for check in every.split()]
    ran = [(one.node, one.check) for one in findings]
    assert ran == [(None, "quorum"), (None, "identity"), *of_each]
    findings = with_incarnations(*map(known, range(3)))
    assert not_ok(findings) == []
    assert [one.check for one in findings if one.node is None] == ["quorum", "identity", "quarantine"]
    assert sum(one.check == "incarnation" for one in findings) == 3


def one(finding, words, advice, **facts):
    """Make a row: the only finding, and what is different at the node."""
    return pytest.param(facts, finding, words, advice, id=words[:40])


def failing(finding, reason, advice):
    """Make a row of a node where one step of the trial has failed."""
    return one(finding, f"acquire: {reason}", advice, failures=(("acquire", reason),))


def down(finding, reason, advice):
    """Make a row of a node that cannot be reached."""
    return one(finding, reason, advice, down=reason)


@pytest.mark.parametrize(
    ("facts", "finding", "words", "advice"),
    [
        one("role error", "it is a replica", "independent master", info={"role": "slave"}),
        one("role warning", "does not contain role", "by hand", info={"role": None}),
        one("replicas warning", "2 attached", "without replicas", info={"connected_slaves": "2"}),
        one("mode error", "prefix='{redlock}:'", "cluster-enabled no", info={"redis_mode": "cluster"}),
        one("mode error", "cluster mode", "cluster-enabled no", info={"cluster_enabled": "1"}),
        one("mode error", "sentinel mode", "redis+sentinel", info={"redis_mode": "sentinel"}),
        one("mode error", "sentinel mode", "sentinel", info={"redis_mode": None, "server_mode": "sentinel"}),
        one("eviction error", "it is not set now", "noeviction", info={"maxmemory_policy": "allkeys-lru"}),
        one("eviction error", "maxmemory (1000 bytes)", "noeviction",
            info={"maxmemory_policy": "volatile-ttl", "maxmemory": "1000"}),
        one("eviction warning", "does not contain", "by hand", info={"maxmemory_policy": None}),
        one("persistence warning", "no append-only file", "longest ttl", info={"aof_enabled": "0"}),
        one("persistence warning", "appendfsync is everysec", "always", config={"appendfsync": "everysec"}),
        one("clients warning", "9000 of 10000", "maxclients", info={"connected_clients": "9000"}),
        one("clients warning", "95 of 100", "maxclients",
            info={"connected_clients": "95", "maxclients": None}, config={"maxclients": "100"}),
        one("clients warning", "does not contain", "by hand", info={"connected_clients": None}),
        one("version warning", "Redis 5.0.7 has no RESP3", "6.0", info={"redis_version": "5.0.7"}),
        one("version warning", "4.0.14 is too old for fences", "6.0", info={"redis_version": "4.0.14"}),
        one("version warning", "does not contain", "by hand", info={"redis_version": None}),
        one("latency warning", "51.0 ms", "raise node_timeout", round_trip=0.051),
        one("latency warning", "could not be measured", "see", round_trip=None),
        one("clock warning", "+5.100 s", "NTP", clock=clock(5.1)),
        one("clock warning", "-7.000 s", "NTP", clock=clock(-7)),
        one("clock warning", "could not be checked", "+time", clock=NOPERM),
        one("clock warning", "+6.000 s", "NTP", clock=clock(6, 0.9)),
        one("info warning", "could not be checked", "+info", info=NOPERM),
        one("persistence warning", "could not be checked", "+config|get", config=NOPERM),
        one("access warning", "could not be checked", "+acl|getuser", default_user=NOPERM),
        one("access error", "reached at 10.0.0.1", "password", host="10.0.0.1", default_user=OPEN),
        one("access error", "bind is '*'", "pass", config={"bind": "*", **UNPROTECTED}, default_user=OPEN),
        one("access error", "bind is ''", "password", config={"bind": "", **UNPROTECTED}, default_user=OPEN),
        one("access error", "protected mode does not apply", "password",
            config={"bind": "0.0.0.0"}, info={"redis_version": "6.2.1"}, default_user=OPEN),
        one("notices warning", "speaks RESP2", "remove protocol=2", deaf=RESP2),
        one("notices warning", "sends us no release notifications (NOPERM",
            "rights +subscribe +unsubscribe +publish +pubsub|numsub, and &redlock:* unless", deaf=NOPERM),
        one("notices warning", "notifications to others (PUBLISH is", "rights +publish", mute=True),
        one("notices warning", "notifications to others", "give its user the rights +publish", mute=True),
        one("notices warning", "(PUBSUB NUMSUB is refused): all", "+pubsub|numsub", uncounted=True),
        one("notices warning", "(ERR unknown command", "not renamed",
            deaf=Silence("ERR unknown command 'UNSUBSCRIBE'")),
        one("rights warning", "read lock, write lock: acquire: NOPERM; others do not", "rights +x +y +z,",
            lacking=(Lacking("read lock", "acquire: NOPERM", "+x +y", "others do not"),
                     Lacking("write lock", "acquire: NOPERM", "+y +z", "others do not"))),
        one("writes error", "write lock: acquire: ERR x; others do not", "log",
            lacking=(Lacking("write lock", "acquire: ERR x", "+y", "others do not"),)),
        failing("rights error", "NOPERM this user has no permissions to run the 'pexpire'", acl_line(PREFIX)),
        failing("writes error", "MISCONF Redis is configured to save RDB snapshots", "snapshots"),
        failing("writes error", "OOM command not allowed when used memory > 'maxmemory'.", "memory"),
        failing("writes error", "command not allowed when used memory > 'maxmemory'.", "free memory"),
        failing("writes error", "BUSY Redis is busy running a script.", "SCRIPT KILL"),
        failing("writes error", "Redis is loading the dataset in memory", "wait"),
        failing("writes error", "what", "log"),
        failing("mode error", "MOVED 1234 10.0.0.9:6379", "cluster-enabled no"),
        failing("mode error", "1234 10.0.0.9:6379", "cluster-enabled no"),
        failing("mode error", "Hash slot not served", "cluster-enabled no"),
        failing("role error", "You can't write against a read only replica.", "independent master"),
        down("reachable error", "[Errno 111] Connect call failed ('127.0.0.1', 6379)", "start the server"),
        down("reachable error", "no answer to connecting and login within 1 s", "hangs"),
        down("reachable error", "Error -2: Name or service not known.", "DNS"),
        down("reachable error", "Error -2 connecting to a:1. -2.", "DNS"),
        down("reachable error", "Error 111 connecting to a:1. 111.", "start the server"),
        down("reachable error", "WRONGPASS invalid username-password pair or user is", "and the password"),
        down("reachable error", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "rediss://"),
        down("reachable error", "Connection closed by server.", "rediss://"),
        down("rights error", "NOPERM this user has no permissions to run 'script|load'", acl_line(PREFIX)),
        down("role error", "the server is a slave, not a master", "independent master"),
        down("mode error", "ERR unknown command 'SCRIPT', with args beginning with: ", "Sentinel"),
        down("access error", "DENIED Redis is running in protected mode because", "password"),
        down("clients error", "ERR max number of clients reached", "raise maxclients"),
        down("writes error", "LOADING Redis is loading the dataset in memory", "wait"),
        down("", "Error 2 connecting to /run/redis/socket. No such file or directory.", "start the server"),
        down("", "Error 2 connecting to unix socket: /run/redis/socket. No such file", "start the server"),
        down("", "Error 2 connecting to 10.0.0.1:6379. No such file or directory.", "ssl_ca_certs"),
        down("", "Error UNKNOWN while writing to socket. Connection lost.", "maxclients"),
        down("", "something new", "server's log"),
    ],
)  # fmt: skip
def test_one_fault_is_one_finding(facts, finding, words, advice):
    """A node that differs from a healthy one in one fact: the one finding says what and what to do."""
    findings = judged(healthy(1, **facts))
    (wrong,) = [one for one in findings if one.level != "ok"]
    assert wrong.node == "node 1"
    assert f"{wrong.check} {wrong.level}".startswith(finding)
    assert words in wrong.message
    assert advice in wrong.advice


def test_every_finding_that_is_not_ok_has_an_advice():
    """Also for a node at which everything is wrong, and of nodes that are silent about everything."""
    failures = tuple((f"step {number}", f"reason {number}") for number in range(3))
    facts = {"info": dict.fromkeys(INFO), "default_user": frozenset({"nopass"}), "host": "example.org"}
    worst = healthy(1, failures=failures, deaf=Silence("a reason of its own"), mute=True, **facts)
    for finding in judged(worst, NodeFacts(name="mute"), NodeFacts(name="down", down="why not")):
        assert bool(finding.advice) is (finding.level != "ok")


@pytest.mark.parametrize(
    ("facts", "level", "words", "advice"),
    [
        ({"deaf": RESP2, "mute": True}, "warning", "RESP2) and it does not pass our release",
         "support it; give its user the rights +publish, and &redlock:* unless it has all channels"),
        ({"deaf": NOPERM, "mute": True}, "warning", "PUBLISH", "it has all channels"),
        # a user that could subscribe has the channels
        ({"mute": True}, "warning", "PUBLISH", "give its user the rights +publish"),
        ({"mute": True, "uncounted": True}, "warning",
         "PUBLISH is refused) and it does not report how many",
         "give its user the rights +publish +pubsub|numsub"),
    ],
)  # fmt: skip
def test_what_is_missing_for_notices_is_told_at_once(facts, level, words, advice):
    """Two faults are one finding, with what helps against both and no right that is there; a client that
    hears of no release is fine.
    """
    findings = judged(healthy(1, **facts))
    (said,) = [one for one in findings if (one.node, one.check) == ("node 1", "notices")]
    assert said.level == level
    assert words in said.message
    assert said.advice.endswith(advice)
    assert said.advice.count("+publish") == ("mute" in facts)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"host": "localhost"}, id="by name"),
        pytest.param({"host": "::1"}, id="IPv6"),
        pytest.param({"host": None}, id="a socket"),
        pytest.param({"config": {"bind": "* -::*"}}, id="protected from others"),
        pytest.param({"config": {"bind": ""}, "info": {"redis_version": "6.0.0"}}, id="Redis 6 without bind"),
        pytest.param({"config": UNPROTECTED}, id="bound to its own machine"),
        pytest.param({"default_user": frozenset({"on"}), "host": "10.0.0.1"}, id="a password"),
        pytest.param({"default_user": frozenset({"off", "nopass"}), "host": "10.0.0.1"}, id="turned off"),
        pytest.param({"default_user": OPEN | {NO_COMMANDS}, "host": "10.0.0.1"}, id="may do nothing"),
        pytest.param({"host": None, "config": {"bind": "*", **UNPROTECTED}, "info": {"tcp_port": "0"}},
                     id="a socket only"),
    ],
)  # fmt: skip
def test_what_strangers_cannot_reach_needs_no_password(facts):
    """Without a password a node is fine as long as no other machine gets to it."""
    assert not_ok(judged(healthy(1, **({"default_user": OPEN} | facts)))) == []


@pytest.mark.parametrize(
    ("size", "down", "level", "words"),
    [
        (1, 0, "warning", ""), (2, 0, "warning", ""), (4, 0, "warning", ""), (5, 0, "ok", ""),
        (1, 1, "error", ""), (2, 1, "error", ""), (3, 2, "error", ""), (4, 2, "error", ""), (5, 2, "ok", ""),
        (5, 3, "error", ""),
        (3, 0, "ok", "3 of 3 nodes can grant locks; 1 may fail"),
        (3, 1, "ok", "2 of 3 nodes can grant locks; no more may fail"),
        (5, 1, "ok", "4 of 5 nodes can grant locks; 1 more may fail"),
    ],
)  # fmt: skip
def test_how_many_nodes_there_are(size, down, level, words):
    """An odd number from three on is right; too few that can be asked is an error; what has failed cannot
    fail again.
    """
    nodes = tuple(healthy(i, down="gone" if i < down else "") for i in range(size))
    first = judge(Facts(nodes=nodes, prefix=b"", node_timeout=0.1))[0]
    assert (first.check, first.level) == ("quorum", level)
    assert words in first.message


def test_one_server_twice_is_named():
    """Both nodes are named; three times is three pairs.  Servers that do not tell may be different ones."""
    findings = judged(healthy(1), healthy(2), healthy(3, run_id=f"{1:040x}"))
    assert not_ok(findings) == [(None, "identity", "error")]
    assert "node 1 and node 3" in findings[1].message
    assert len(not_ok(judged(*[healthy(i, run_id="x") for i in range(3)]))) == 3
    findings = judged(healthy(1, run_id=None), healthy(2), healthy(3))
    assert not_ok(findings) == [(None, "identity", "warning")]
    assert "node 1" in findings[1].message
    findings = judged(healthy(1, run_id=None), healthy(2), healthy(2))
    assert [one.level for one in found(findings, "identity")] == ["error", "warning"]


def test_failures_of_one_kind_are_one_finding():
    """Commands that are not allowed need one line of rights, and what fails for the same reason is named
    together; a full memory is another matter.
    """
    failures = (("acquire", "OOM x"), ("extend", "NOPERM for 'pexpire'"), ("look", "NOPERM for 'get'"))
    findings = judged(healthy(1, failures=failures))
    assert sorted(check for _, check, _ in not_ok(findings)) == ["rights", "writes"]
    (rights,) = found(findings, "rights")
    assert "pexpire" in rights.message
    assert "look: NOPERM" in rights.message
    failures = (("acquire", "no answer within 1 s"), ("look", "OOM x"), ("extend", "no answer within 1 s"))
    messages = [finding.message for finding in judged(healthy(1, failures=failures)) if finding.advice]
    assert messages == ["acquire, extend: no answer within 1 s", "look: OOM x"]


def test_a_command_that_the_server_does_not_have_is_checked_by_hand():
    """Hosted servers take CONFIG away; that is no reason for another server."""
    unknown = Silence("ERR unknown command 'CONFIG'")
    findings = judged(healthy(1, host=None, default_user=frozenset({"nopass"}), config=unknown))
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
def test_the_acl_line_fits_the_prefix(prefix, pattern):
    """All that is special in a pattern is escaped, so that the user gets these keys and no others."""
    assert pattern in acl_line(prefix)
    assert pattern.replace("~", " resetchannels &", 1) in acl_line(prefix)
    assert acl_line(prefix).endswith(ACL_RIGHTS)


def test_the_docs_have_the_same_acl_line():
    """There is one minimal line of rights."""
    assert acl_line(b"redlock:") in (ROOT / "docs" / "operate" / "nodes.md").read_text().splitlines()


# -- records ---------------------------------------------------------------------------------------

ANOTHERS = {"info": {"run_id": "1" * 40, "master_replid": "0" * 40}}


@pytest.mark.parametrize(
    ("facts", "level", "words", "advice"),
    [
        ({"incarnation": None}, "warning", "not used so far, restarted without data", "aioredlock-ng init"),
        (ANOTHERS, "warning", "another server's", "aioredlock-ng init"),
        ({"incarnation": b"2:x"}, "warning", "another version", "of another version run"),
        (
            {"incarnation": incarnation(5)},
            "error",
            "a quorum of 5 nodes, this client has 3",
            "compare their lists",
        ),
        ({"votes_in": 12.345}, "warning", "no vote for another 12.3 s", "wait until it ends; if no lock"),
        ({"incarnation": incarnation(identity=b"-")}, "warning", "does not report its identity", "+info"),
        ({"incarnation": NOPERM}, "warning", "could not be checked: NOPERM", "+get"),
    ],
)
def test_a_fault_of_an_incarnation_is_one_finding(facts, level, words, advice):
    """A node whose incarnation record differs from a healthy one's: the finding says what and what to do."""
    (finding,) = found(with_incarnations(known(1, **facts)), "incarnation")
    assert (finding.node, finding.level) == ("node 1", level)
    assert words in finding.message
    assert advice in finding.advice


@pytest.mark.parametrize(
    "stray",
    [
        {"incarnation": incarnation(5)},
        {"belongs_elsewhere": True, "votes_in": 60.0, "without_vote": True},
        {"replaces": True, "votes_in": 60.0, "without_vote": True},
    ],
)
@pytest.mark.parametrize("waiting", [{"incarnation": None}, {"votes_in": 12.3}, ANOTHERS])
def test_init_is_never_the_advice_where_a_node_is_another_quorums(stray, waiting):
    """It would stop the clients that know the node by the other size (R12a)."""
    findings = with_incarnations(known(1, **stray), known(2, **waiting, without_vote=True), known(3))
    assert found(findings, "incarnation")
    assert not any("init" in finding.advice for finding in findings)
    assert any("compare their lists" in finding.advice for finding in findings)


@pytest.mark.parametrize(
    ("stored", "own", "level", "words"),
    [
        ((60, 60, 60), 60, "ok", "no vote for 60 s"),
        ((60, 60, 60), 0, "ok", "no vote for 60 s"),  # without one of its own the client takes what there is
        ((90, 90, 90), 60, "warning", "is 90 s, this client asks for 60 s"),
        ((60, 90, 60), 60, "warning", "differ: node 0: 60 s, node 1: 90 s, node 2: 60 s"),
        ((0, 60, 60), 60, "warning", "differ: node 0: 0 s"),
        ((0, 0, 0), 0, "warning", "is off: a node that restarts empty votes at once"),
        ((0, 0), 0, "ok", "off, which is the default"),
        ((30,), 30, "ok", "no vote for 30 s"),
    ],
)
def test_the_quarantines_of_all(stored, own, level, words):
    """They are compared with each other and with the client's own; none at all is a choice with a price."""
    nodes = [known(i, incarnation=incarnation(len(stored), each)) for i, each in enumerate(stored)]
    findings = judge(Facts(nodes=tuple(nodes), prefix=PREFIX, node_timeout=0.1, quarantine=own))
    (finding,) = [one for one in findings if one.check == "quarantine"]
    assert (finding.node, finding.level) == (None, level)
    assert words in finding.message
    assert bool(finding.advice) is (level != "ok")


@pytest.mark.parametrize(
    ("waiting", "down", "level"),
    [
        (1, 0, "ok"), (2, 0, "warning"), (3, 0, "warning"),
        (2, 1, "warning"), (1, 2, "error"), (1, 1, "warning"),
    ],
)  # fmt: skip
def test_a_quorum_that_has_to_wait(waiting, down, level):
    """Nodes in quarantine, or not used yet, cannot grant a lock now; that is no error if they soon will."""
    reasons = [{"votes_in": 9.0}, {"incarnation": None}, {"info": {"run_id": "x"}}]
    nodes = [known(i, down="gone") for i in range(down)]
    nodes += [known(i, without_vote=True, **reasons[i]) for i in range(down, down + waiting)]
    nodes += [known(i) for i in range(down + waiting, 3)]
    finding = with_incarnations(*nodes)[0]
    assert (finding.check, finding.level) == ("quorum", level)
    assert (
        level != "warning"
        or "more will be able to, at once or after the restart quarantine" in finding.message
    )


@pytest.mark.parametrize("check", ["persistence", "replicas"])
def test_what_the_quarantine_covers_is_no_fault(check):
    """Restarts without data and failovers cost a vote for a while; without a quarantine, a lock.  An evicted
    lock, or the counter of a fence alone, goes unnoticed.
    """
    info = {"aof_enabled": "0", "connected_slaves": "1"}
    assert found(with_incarnations(known(1, info=info)), check) == []
    uncovered = known(1, info=info, incarnation=incarnation(quarantine=0))
    (finding,) = found(with_incarnations(uncovered, quarantine=0), check)
    assert (finding.level, "restart_quarantine" in finding.advice) == ("warning", True)
    evicts = known(1, info={"maxmemory_policy": "volatile-lru"})
    (finding,) = found(with_incarnations(evicts), "eviction")
    assert (finding.level, "fence counters" in finding.message) == ("error", True)


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
def test_clocks_apart(apart, unsure, fencing, level, words):
    """From 5 s on a warning, from 10 s on nodes may not agree on fences; in doubt the less."""
    nodes = [known(1, clock=clock(apart, unsure)), known(2, clock=clock(0)), known(3, clock=clock(0))]
    findings = with_incarnations(*nodes, fencing=fencing)
    (finding,) = [one for one in findings if (one.node, one.check) == ("node 1", "clock")]
    assert finding.level == level
    assert words in finding.message


def test_a_clock_that_seems_to_have_jumped():
    """The node has no vote until that is settled."""
    (finding,) = found(with_incarnations(known(1, distrusted=True, without_vote=True)), "clock")
    assert (finding.level, "no vote for now" in finding.message) == ("warning", True)
