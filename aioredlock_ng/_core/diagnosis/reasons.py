"""Why a node does not do what it is asked: kinds of reasons, told apart by their words.

Servers, the operating system and redis-py say it in text only, and redis-py leaves out some of the
servers' error codes, and old versions what the operating system says.  What is not recognised still
gets a finding with the text itself.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, final

from ..quarantine import SENTINEL_CHANGED
from .rights import DENIED, UNKNOWN, acl_line


@final
class Kind(NamedTuple):
    """A kind of reasons: the check that it belongs to, and what helps."""

    words: re.Pattern[str]
    check: str | None
    """None: whichever check met it."""
    advice: str


def _kind(words: str, check: str | None, advice: str) -> Kind:
    return Kind(re.compile(words, re.IGNORECASE), check, advice)


_RIGHTS: Final = Kind(DENIED, "rights", "give its user the rights: ")

_UNKNOWN: Final = Kind(
    UNKNOWN,
    "mode",
    "use an ordinary Redis or Valkey server (not a Sentinel) that has these commands under their names",
)

_KINDS: Final = (
    _RIGHTS,
    _kind(
        r"prefix with a hash tag",
        "mode",
        "start all clients with that prefix, or use servers with cluster-enabled no",
    ),
    _kind(
        r"no Sentinel tells",
        None,
        "see that the Sentinels of the node's URL run and know its service, and that their password is one "
        "of its options: redis+sentinel://user:password@host:26379/service?sentinel_password=…",
    ),
    _kind(r"older than Redis", "version", "use Redis 6.0 or newer, or Valkey"),
    _UNKNOWN,
    _kind(
        r"WRONGPASS|NOAUTH|authentication required|invalid username-password|AUTH .*without any password",
        None,
        "correct user and password in the node's URL, or give it some: redis://user:password@host",
    ),
    _kind(
        r"protected mode",
        "access",
        "set a password on the server (ACL SETUSER or requirepass), and give it in the node's URL",
    ),
    _kind(
        r"not a master|READONLY|read only replica|MASTERDOWN|link with master is down",
        "role",
        "name an independent master in the node list instead; REPLICAOF NO ONE makes this server one",
    ),
    _kind(
        r"MOVED|^\d+ \S+:\d+$|CROSSSLOT|CLUSTERDOWN|hash slot|same slot",
        "mode",
        "use independent servers with cluster-enabled no; or one Redis Cluster as one node: a prefix with a "
        "hash tag, such as '{locks}:', and a redis.asyncio.RedisCluster client",
    ),
    _kind(
        r"MISCONF",
        "writes",
        "make room for its snapshots or turn them off (CONFIG SET save ''); its log says why they fail",
    ),
    _kind(
        r"\bOOM\b|maxmemory",
        "writes",
        "free memory on it or raise maxmemory; give locks a server of their own",
    ),
    _kind(
        r"NOREPLICAS", "writes", "set min-replicas-to-write 0: a node of a quorum has no replicas to wait for"
    ),
    _kind(
        re.escape(SENTINEL_CHANGED),
        "sentinel",
        "diagnose it again: it has lost its data just now, or `aioredlock-ng init` was run meanwhile",
    ),
    _kind(r"LOADING|loading the dataset", "writes", "wait until it has loaded its data"),
    _kind(r"\bBUSY\b", "writes", "end the script that blocks it (SCRIPT KILL), and find out who runs it"),
    _kind(r"max number of clients", "clients", "raise maxclients, or find out who opens so many connections"),
    _kind(
        r"too many connections",
        None,
        "give this client a pool with more connections (max_connections), or the manager its URL instead",
    ),
    _kind(
        "RESP2",
        None,
        "let it answer HELLO 3: no protocol=2 in its URL, the right +hello, no proxy that does not know it",
    ),
    _kind(
        # No such file, over a network: one of those that TLS needs.
        r"SSL|certificate|Error 2 connecting to \S+:\d+\.",
        None,
        "make the URL's scheme and options fit the server: rediss:// for TLS, ssl_ca_certs=… for its issuer",
    ),
    _kind(
        r"name or service|name resolution|getaddrinfo|nodename|no address|Error -\d+ connecting",
        None,
        "correct the host name in the node's URL, or the DNS",
    ),
    _kind(
        r"refused|connect call failed|no such file|Error (111|61) connecting",
        None,
        "start the server; if it runs, check host and port, its bind option and the firewall",
    ),
    _kind(
        r"no answer|timed? ?out|unreachable|no route",
        None,
        "see whether the server hangs or its machine is overloaded, and whether a firewall drops packets; "
        "raise connect_timeout or node_timeout for one that is far away",
    ),
    _kind(
        r"closed|reset|broken pipe|connection lost",
        None,
        "read the server's log; a server closes what is beyond its maxclients, and plain connections when it "
        "expects TLS (rediss://)",
    ),
)


def explained(reason: str, check: str, prefix: bytes) -> tuple[str, str]:
    """Return the check that a reason belongs to, instead of the one that met it, and what to do about it."""
    for kind in _KINDS:
        if kind.words.search(reason):
            advice = kind.advice + acl_line(prefix) if kind is _RIGHTS else kind.advice
            return kind.check or check, advice
    return check, "read the server's log"
