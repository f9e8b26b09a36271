"""What is wrong with one node by itself: what was tried, how its server is set up, how it is reached."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Final

from ..._core.command import Silence
from ..._core.hash_tag import hash_tag, no_tag
from ..._core.rights import COUNT_RIGHT, NOTICE_RIGHTS, channel_rule, denied, unknown
from .dispensable import DISPENSABLE
from .facts import BY_CLIENT, NO_COMMANDS, NOT_ASKED, NodeFacts
from .findings import Finding, bad, explained, missing, ok, unchecked

OLDEST: Final = (6, 0)
"""The oldest server version on which everything works: RESP3 and ACLs came with it."""

OLDEST_WITH_FENCES: Final = (5, 0)
"""Until this version a script may not write once it has asked for the time."""

BIND_IS_NO_EXCUSE: Final = (7, 0)
"""Until this version an explicit bind address switched the protected mode off."""


CROWDED: Final = 0.9
"""Share of `maxclients` from which new connections may soon be refused."""


def check_locking(node: NodeFacts, prefix: bytes) -> Iterator[Finding]:
    """Report what was tried; what one reason explains is one finding."""
    yield from _check_lacking(node, prefix)
    if not node.failures:
        what = "given back" if node.without_vote else "acquired, extended"
        yield ok(node, "writes", f"a lock was {what} and released")
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for what, reason in node.failures:
        found.setdefault(explained(reason, "writes", prefix), {}).setdefault(reason, []).append(what)
    for (check, advice), reasons in found.items():
        message = "; ".join(f"{', '.join(what)}: {reason}" for reason, what in reasons.items())
        yield bad(node, check, "error", message, advice)


def _check_lacking(node: NodeFacts, prefix: bytes) -> Iterator[Finding]:
    """Report what locks do without: it is not worth a vote."""
    by_right = {what: why for what, why in node.lacking if denied(why) or unknown(why)}
    told = "; ".join(f"{what}: {why}, {DISPENSABLE[what].without}" for what, why in by_right.items())
    if by_right:
        rights = " ".join(DISPENSABLE[what].right for what in by_right)
        advice = f"give its user the rights {rights}, and leave the commands their names"
        yield bad(node, "rights", "warning", told, advice)
    elif not node.failures:
        yield ok(node, "rights", "everything that locking needs is allowed")
    for what, why in node.lacking:
        if what not in by_right:  # it is allowed, and does not work
            check, advice = explained(why, "writes", prefix)
            message = f"{what}: {why}, {DISPENSABLE[what].without}"
            yield bad(node, check, "error", message, advice)


def check_info(node: NodeFacts, prefix: bytes) -> tuple[Finding, ...]:
    """Report what the server says of itself."""
    if isinstance(node.info, Silence):
        return (unchecked(node, "info", node.info, "+info"),)
    return (
        _role(node, node.info),
        _mode(node, node.info, prefix),
        _replicas(node, node.info),
        _eviction(node, node.info),
        _persistence(node, node.info),
        _clients(node, node.info),
        _version(node, node.info),
    )


def _role(node: NodeFacts, info: Mapping[str, str]) -> Finding:
    role = info.get("role")
    if role is None:
        return missing(node, "role", "role")
    if role == "master":
        return ok(node, "role", "master")
    what = "replica" if role == "slave" else role
    advice = "name an independent master instead; REPLICAOF NO ONE makes this server one"
    return bad(node, "role", "error", f"it is a {what}, not a master: it has no vote of its own", advice)


def _mode(node: NodeFacts, info: Mapping[str, str], prefix: bytes) -> Finding:
    mode = info.get("redis_mode") or info.get("server_mode") or "standalone"
    if info.get("cluster_enabled") == "1":
        mode = "cluster"
    if mode == "standalone":
        return ok(node, "mode", mode)
    if mode != "cluster":
        advice = "name the masters, not the Redis Sentinels themselves: redis+sentinel://host:26379/service"
        return bad(node, "mode", "error", f"it runs in {mode} mode: it stores no locks", advice)
    if hash_tag(prefix) is None:
        advice = "give it to them, or use servers with cluster-enabled no"
        return bad(node, "mode", "error", f"it runs in cluster mode: {no_tag(prefix)}", advice)
    if node.quarantine:
        message = f"cluster; after a failover or a move of its slot it has no vote for {node.quarantine:g} s"
        return ok(node, "mode", message)
    return bad(
        node,
        "mode",
        "warning",
        "it runs in cluster mode: a failover forgets the locks that were granted last (A2)",
        "set a restart_quarantine of the longest ttl or more, alike in all clients",
    )


def _replicas(node: NodeFacts, info: Mapping[str, str]) -> Finding:
    replicas = info.get("connected_slaves", "0")
    if replicas == "0":
        return ok(node, "replicas", "none attached")
    if node.quarantine:
        message = f"{replicas} attached; one that is promoted has no vote for {node.quarantine:g} s"
        return ok(node, "replicas", message)
    return bad(
        node,
        "replicas",
        "warning",
        f"{replicas} attached: one that is promoted does not know the locks granted last (A2)",
        "set a restart_quarantine, run the nodes without replicas, or make sure that nothing fails over to "
        "them within the longest ttl",
    )


def _eviction(node: NodeFacts, info: Mapping[str, str]) -> Finding:
    policy = info.get("maxmemory_policy")
    if policy is None:
        return missing(node, "eviction", "maxmemory_policy")
    if policy == "noeviction":
        return ok(node, "eviction", policy)
    limit = info.get("maxmemory", "0")
    when = (
        "as soon as maxmemory is set, which it is not at present"
        if limit == "0"
        else f"when its {limit} bytes of maxmemory are full"
    )
    return bad(
        node,
        "eviction",
        "error",
        f"maxmemory-policy is {policy}: it deletes locks that are held, and the counters of fences, {when}; "
        "nothing notices that (A2)",
        "CONFIG SET maxmemory-policy noeviction, there and in its configuration file; "
        "give locks a server of their own",
    )


def _persistence(node: NodeFacts, info: Mapping[str, str]) -> Finding:
    if node.quarantine:
        return ok(
            node,
            "persistence",
            f"not needed: the restart quarantine of {node.quarantine:g} s covers restarts",
        )
    if node.incarnation is None:
        covered = "not judged before its first use or `init`: then a restart quarantine may cover restarts"
        return ok(node, "persistence", covered)
    advice = (
        "set a restart_quarantine; or appendonly yes with appendfsync always; or keep it down for the "
        "longest ttl before it returns"
    )
    if info.get("aof_enabled") != "1":
        message = "a restart forgets granted locks (A2): it has no append-only file"
        return bad(node, "persistence", "warning", message, advice)
    if isinstance(node.config, Silence):
        return unchecked(node, "persistence", node.config, "+config|get")
    fsync = node.config.get("appendfsync")
    if fsync == "always":
        return ok(node, "persistence", "append-only file, written through")
    message = f"a restart may forget locks granted last (A2): appendfsync is {fsync}"
    return bad(node, "persistence", "warning", message, advice)


def _clients(node: NodeFacts, info: Mapping[str, str]) -> Finding:
    limit = info.get("maxclients") or (
        node.config.get("maxclients") if isinstance(node.config, Mapping) else None
    )
    connected = info.get("connected_clients")
    if connected is None or limit is None or not (connected.isdigit() and limit.isdigit()):
        return missing(node, "clients", "connected_clients and maxclients")
    message = f"{connected} of {limit} connections in use"
    if int(connected) < CROWDED * int(limit):
        return ok(node, "clients", message)
    advice = "raise maxclients, or find out what opens so many connections"
    return bad(node, "clients", "warning", f"{message}: soon no client can connect any more", advice)


def _version(node: NodeFacts, info: Mapping[str, str]) -> Finding:
    version = _version_of(info)
    if version is None:
        return missing(node, "version", "redis_version")
    valkey = info.get("valkey_version")
    message = f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"
    if version >= OLDEST:
        return ok(node, "version", message)
    less = "has no RESP3, so that waiters poll, and no users with rights of their own"
    if version < OLDEST_WITH_FENCES:
        less = "is too old for fences and quarantines: its scripts may not write once they know the time"
    return bad(node, "version", "warning", f"{message} {less}", "update it: Redis 6.0 or newer, or Valkey")


def check_access(node: NodeFacts) -> Finding:
    """Report a server on which any client that reaches it can delete locks, without a password."""
    if isinstance(node.default_user, Silence):
        return unchecked(node, "access", node.default_user, "+acl|getuser")
    if "nopass" not in node.default_user or "off" in node.default_user:
        return ok(node, "access", "the default user needs a password")
    if NO_COMMANDS in node.default_user:
        return ok(node, "access", "without a password nothing is allowed")
    if node.host is not None and not _loopback(node.host):
        how = f"it is reached at {node.host}"
    elif isinstance(node.config, Silence):
        return unchecked(node, "access", node.config, "+config|get")
    elif not _listens_to_others(node.config, {} if isinstance(node.info, Silence) else node.info):
        return ok(node, "access", "no password, but reachable from its own machine only")
    else:
        how = f"bind is {node.config.get('bind', '')!r} and the protected mode does not apply"
    return bad(
        node,
        "access",
        "error",
        f"any client that reaches it can delete or take locks: no password, and {how}",
        "give its default user a password (ACL SETUSER default resetpass >…) or turn it off, and keep "
        "strangers out with a firewall",
    )


def _listens_to_others(config: Mapping[str, str], info: Mapping[str, str]) -> bool:
    if info.get("tcp_port") == "0":
        return False  # a socket in the file system is all there is
    bind = [address.removeprefix("-") for address in config.get("bind", "").split()]
    if bind and all(map(_loopback, bind)):
        return False
    if config.get("protected-mode") != "yes":
        return True
    version = _version_of(info)
    return bool(bind) and version is not None and version < BIND_IS_NO_EXCUSE


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_latency(node: NodeFacts, node_timeout: float) -> Finding:
    """Report a node whose answers are likely to come too late."""
    if node.round_trip is None:
        return bad(node, "latency", "warning", "could not be measured", "see what else is reported of it")
    message = f"{node.round_trip * 1000:.1f} ms there and back"
    if node.round_trip <= node_timeout / 2:
        return ok(node, "latency", message)
    return bad(
        node,
        "latency",
        "warning",
        f"{message}, more than half of node_timeout ({node_timeout:g} s): its vote is easily lost",
        "raise node_timeout, or bring node and clients nearer to each other; on the node, look at SLOWLOG",
    )


def check_notices(node: NodeFacts, prefix: bytes) -> Finding | None:
    """Report what keeps release notices away (R13), which costs time alone; None where worse is told."""
    deaf = node.deaf
    why = "" if deaf is None or deaf is BY_CLIENT else deaf.reason
    if deaf is NOT_ASKED or why in (reason for _, reason in node.failures):
        return None
    if not why and not node.mute and not node.uncounted:
        polls = "" if deaf is None else "; a client hears of none, so that its manager's waiters poll"
        return None if node.failures else ok(node, "notices", f"releases are published{polls}")
    faults, advice = [], []
    if why:
        faults.append(f"it does not tell us of releases ({why})")
    if node.mute:
        faults.append("it does not tell others of ours (PUBLISH is refused)")
    if node.uncounted:
        faults.append("it does not say how many wait for a release (PUBSUB NUMSUB is refused)")
    if why and not denied(why):
        advice.append(explained(why, "notices", prefix)[1])
    lacks = (("+publish", node.mute), (COUNT_RIGHT, node.uncounted))
    rights = NOTICE_RIGHTS if denied(why) else " ".join(right for right, lacking in lacks if lacking)
    if rights:
        # A user that could subscribe has the channels; a server refuses to add some of them to all.
        has_channels = deaf is None or not (node.mute or denied(why))
        channels = "" if has_channels else f", and {channel_rule(prefix)} unless it has all channels"
        advice.append(f"give its user the rights {rights}{channels}")
    costs = "waiters poll, and get the lock later"
    if not why and not node.mute:
        costs = "of many processes that wait for one lock, all ask whenever it is released"
    return bad(node, "notices", "warning", f"{' and '.join(faults)}: {costs}", "; ".join(advice))


def _version_of(info: Mapping[str, str]) -> tuple[int, ...] | None:
    numbers = re.match(r"(\d+)\.(\d+)", info.get("redis_version", ""))
    return None if numbers is None else (int(numbers[1]), int(numbers[2]))
