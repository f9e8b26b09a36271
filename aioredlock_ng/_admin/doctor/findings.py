"""Findings of a diagnosis, and the advice that fits a server's error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from ..._core.command import Silence
from ..._core.quarantine import INCARNATION_CHANGED
from ..._core.rights import UNKNOWN, acl_line, denied, unknown
from .facts import NodeFacts

Level: TypeAlias = Literal["ok", "warning", "error"]
"""``error``: locks cannot be acquired, or are lost unseen.  ``warning``: under conditions that are named."""

BY_HAND: Final = "check it by hand, or ask the server's operators"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    node: str | None
    """None when it concerns all of them together."""
    check: str
    """Which check, in one word that stays the same."""
    level: Level
    message: str
    advice: str = ""
    """The remedy; empty when it is ok."""


Said: TypeAlias = tuple[Level, str, str]
"""The result of a check of which it is known which one it is: level, message and advice."""


def finding(node: NodeFacts | None, check: str, said: Said) -> Finding:
    """Make a finding of what a check has said of a node, or of all of them."""
    level, message, advice = said
    return Finding(node=node.name if node else None, check=check, level=level, message=message, advice=advice)


def ok(message: str) -> Said:
    """Say that a check found nothing wrong."""
    return "ok", message, ""


def warning(message: str, advice: str) -> Said:
    """Say what is wrong under the conditions that the message names, and what to do about it."""
    return "warning", message, advice


def error(message: str, advice: str) -> Said:
    """Say what is wrong, and what to do about it."""
    return "error", message, advice


def unchecked(silence: Silence, right: str) -> Said:
    """Say that a node did not answer to a check, and by which right it would."""
    if denied(silence.reason):
        advice = allow(right)
    elif unknown(silence.reason):
        advice = BY_HAND
    else:
        _, advice = explained(silence.reason, "", b"")
    return warning(f"could not be checked: {silence.reason}", advice)


def missing(fact: str) -> Said:
    """Say that a server leaves out what a check is about."""
    return warning(f"could not be checked: the server's INFO does not contain {fact}", BY_HAND)


def allow(right: str) -> str:
    """Return the advice to grant a right."""
    return f"grant {right} and do not rename the command, or run the diagnosis as a user with that right"


# -- why a node does not do what it is asked ---------------------------------------------------------


_REASONS: Final[Mapping[str, tuple[str | None, str]]] = {
    r"prefix with a hash tag":
        ("mode", "start all clients with that prefix, or use servers with cluster-enabled no"),
    r"no Redis Sentinel reported":
        (None, ("check that the Redis Sentinels in the node's URL run and know its service; give their "
                "password as an option of the URL: "
                "redis+sentinel://user:password@host:26379/service?sentinel_password=…")),
    r"older than Redis":
        ("version", "use Redis 6.0 or newer, or Valkey"),
    UNKNOWN.pattern:
        ("mode", ("use an ordinary Redis or Valkey server (not a Redis Sentinel) on which these commands "
                  "are not renamed")),
    r"WRONGPASS|NOAUTH|authentication required|invalid username-password|AUTH .*without any password":
        (None, ("correct the user and the password in the node's URL, or add them: "
                "redis://user:password@host; on a new server, create the user first (`aioredlock-ng acl`)")),
    r"protected mode":
        ("access", ("set a password on the server (ACL SETUSER or requirepass), and give it in the "
                    "node's URL")),
    r"not a master|READONLY|read only replica|MASTERDOWN|link with master is down":
        ("role", ("name an independent master in the node list instead, or make this server one with "
                  "REPLICAOF NO ONE")),
    r"MOVED|^\d+ \S+:\d+$|CROSSSLOT|CLUSTERDOWN|hash slot|same slot":
        ("mode", ("use independent servers with cluster-enabled no; or use one Redis Cluster as one "
                  "node, with a prefix with a hash tag, such as '{locks}:', and a "
                  "redis.asyncio.RedisCluster client")),
    r"MISCONF":
        ("writes", ("make room for its snapshots or turn them off (CONFIG SET save ''); its log says why "
                    "they fail")),
    r"\bOOM\b|maxmemory":
        ("writes", "free memory on it or raise maxmemory; use a server for locks only"),
    r"NOREPLICAS":
        ("writes", "set min-replicas-to-write 0: a node of a quorum has no replicas to wait for"),
    re.escape(INCARNATION_CHANGED):
        ("incarnation", ("run the diagnosis again: the node has just lost its data, or `aioredlock-ng "
                         "init` has just been run")),
    r"LOADING|loading the dataset":
        ("writes", "wait until it has loaded its data"),
    r"\bBUSY\b":
        ("writes", "end the script that blocks it (SCRIPT KILL), and find out which client runs it"),
    r"max number of clients":
        ("clients", "raise maxclients, or find out what opens that many connections"),
    "RESP2":
        (None, ("make HELLO 3 work: remove protocol=2 from the node's URL, grant +hello, avoid proxies "
                "that do not support it")),
    # No such file, over a network: one of those that TLS needs.
    r"SSL|certificate|Error 2 connecting to \S+:\d+\.":
        (None, ("match the URL's scheme and options to the server: rediss:// for TLS, ssl_ca_certs=… for "
                "its issuer")),
    r"name or service|name resolution|getaddrinfo|nodename|no address|Error -\d+ connecting":
        (None, "correct the host name in the node's URL, or the DNS"),
    r"refused|connect call failed|no such file|Error (111|61) connecting":
        (None, "start the server; if it runs, check host and port, its bind option and the firewall"),
    r"no answer|timed? ?out|unreachable|no route":
        (None, ("check whether the server hangs, its machine is overloaded, or a firewall drops packets; "
                "for a distant server raise connect_timeout or node_timeout")),
    r"closed|reset|broken pipe|connection lost":
        (None, ("read the server's log; a server closes connections beyond its maxclients, and "
                "connections without TLS where it expects TLS (rediss://)")),
}  # fmt: skip
"""For each pattern of a reason the check that it belongs to (None: the one that met it), and the advice.

Servers, the operating system and redis-py give reasons in text only, and redis-py leaves out some of the
servers' error codes, and old versions what the operating system says.
"""


def explained(reason: str, check: str, prefix: bytes) -> tuple[str, str]:
    """Return the check that a reason belongs to, instead of the one that met it, and what to do about it."""
    if denied(reason):
        return "rights", "give its user the rights: " + acl_line(prefix)
    for words, (belongs_to, advice) in _REASONS.items():
        if re.search(words, reason, re.IGNORECASE):
            return belongs_to or check, advice
    return check, "read the server's log"
