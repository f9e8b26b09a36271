"""Checks of one node by itself: the trial, the set-up of its server, and the way to it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..._core.command import Silence
from ..._core.keyspace import hash_tag, no_tag
from ..._core.rights import COUNT_RIGHT, NOTICE_RIGHTS, channel_rule, denied, unknown
from .facts import NO_COMMANDS, NOT_ASKED, Lacking, NodeFacts
from .findings import Finding, Said, error, explained, finding, missing, ok, unchecked, warning

OLDEST: Final = (6, 0)
"""The oldest server version on which everything works: RESP3 and ACLs came with it."""

OLDEST_WITH_FENCES: Final = (5, 0)
"""Until this version a script may not write once it has asked for the time."""

BIND_IS_NO_EXCUSE: Final = (7, 0)
"""Until this version an explicit bind address switched the protected mode off."""

CROWDED: Final = 0.9
"""Share of `maxclients` from which new connections may soon be refused."""


def check_locking(node: NodeFacts, prefix: bytes) -> Iterator[Finding]:
    """Report the trial; failures that one reason explains are one finding."""
    by_right = [one for one in node.lacking if denied(one.why) or unknown(one.why)]
    if by_right:
        rights = " ".join(dict.fromkeys(" ".join(one.right for one in by_right).split()))
        advice = f"give its user the rights {rights}, and do not rename these commands"
        yield finding(node, "rights", warning(_together(map(_without, by_right)), advice))
    elif not node.failures:
        yield finding(node, "rights", ok("everything that locking needs is allowed"))
    if not node.failures:
        what = "repaired" if node.without_vote else "acquired, extended"
        yield finding(node, "writes", ok(f"a lock was {what} and released"))
    # Allowed, and does not work.
    broken = [_without(one) for one in node.lacking if one not in by_right]
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for what, reason in (*broken, *node.failures):
        found.setdefault(explained(reason, "writes", prefix), []).append((what, reason))
    for (check, advice), failures in found.items():
        yield finding(node, check, error(_together(failures), advice))


def _without(one: Lacking) -> tuple[str, str]:
    return one.what, f"{one.why}; {one.without}"


def _together(failures: Iterable[tuple[str, str]]) -> str:
    """Name the steps that failed for the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for what, reason in failures:
        by_reason.setdefault(reason, []).append(what)
    return "; ".join(f"{', '.join(what)}: {reason}" for reason, what in by_reason.items())


def check_info(node: NodeFacts, prefix: bytes) -> dict[str, Said]:
    """Check what the server says of itself."""
    info = node.info
    if isinstance(info, Silence):
        return {"info": unchecked(info, "+info")}
    return {
        "role": _role(info),
        "mode": _mode(node, info, prefix),
        "replicas": _replicas(node, info),
        "eviction": _eviction(info),
        "persistence": _persistence(node, info),
        "clients": _clients(node, info),
        "version": _version(info),
    }


def _role(info: Mapping[str, str]) -> Said:
    role = info.get("role")
    if role is None:
        return missing("role")
    if role == "master":
        return ok("master")
    what = "replica" if role == "slave" else role
    advice = "name an independent master instead, or make this server one with REPLICAOF NO ONE"
    return error(f"it is a {what}, not a master: it has no vote of its own", advice)


def _mode(node: NodeFacts, info: Mapping[str, str], prefix: bytes) -> Said:
    mode = info.get("redis_mode") or info.get("server_mode") or "standalone"
    if info.get("cluster_enabled") == "1":
        mode = "cluster"
    if mode == "standalone":
        return ok(mode)
    if mode != "cluster":
        advice = "name the masters, not the Redis Sentinels themselves: redis+sentinel://host:26379/service"
        return error(f"it runs in {mode} mode: it stores no locks", advice)
    if hash_tag(prefix) is None:
        advice = "use that prefix in all clients, or use servers with cluster-enabled no"
        return error(f"it runs in cluster mode: {no_tag(prefix)}", advice)
    if node.quarantine:
        return ok(f"cluster; after a failover or a move of its slot it has no vote for {node.quarantine:g} s")
    return warning(
        "it runs in cluster mode: a failover loses the most recently granted locks (A2)",
        "set the same restart_quarantine in all clients, to the longest ttl or more",
    )


def _replicas(node: NodeFacts, info: Mapping[str, str]) -> Said:
    replicas = info.get("connected_slaves", "0")
    if replicas == "0":
        return ok("none attached")
    if node.quarantine:
        return ok(f"{replicas} attached; a promoted replica has no vote for {node.quarantine:g} s")
    return warning(
        f"{replicas} attached: a promoted replica may lack the most recently granted locks (A2)",
        "set a restart_quarantine, run the nodes without replicas, or make sure that a failover takes longer "
        "than the longest ttl",
    )


def _eviction(info: Mapping[str, str]) -> Said:
    policy = info.get("maxmemory_policy")
    if policy is None:
        return missing("maxmemory_policy")
    if policy == "noeviction":
        return ok(policy)
    limit = info.get("maxmemory", "0")
    when = "once maxmemory is set (it is not set now)"
    if limit != "0":
        when = f"when maxmemory ({limit} bytes) is reached"
    return error(
        f"maxmemory-policy is {policy}: the server deletes held locks and fence counters {when}, and no "
        "client can detect that (A2)",
        "run CONFIG SET maxmemory-policy noeviction, and set it in the configuration file, too; use a "
        "server for locks only",
    )


def _persistence(node: NodeFacts, info: Mapping[str, str]) -> Said:
    if node.quarantine:
        return ok(f"not needed: the restart quarantine of {node.quarantine:g} s covers restarts")
    if node.incarnation is None:
        return ok("not checked before its first use or `init`: then a restart quarantine may cover restarts")
    advice = (
        "set a restart_quarantine; or set appendonly yes and appendfsync always; or keep a stopped node "
        "down for the longest ttl"
    )
    if info.get("aof_enabled") != "1":
        return warning("a restart loses granted locks (A2): the server has no append-only file", advice)
    if isinstance(node.config, Silence):
        return unchecked(node.config, "+config|get")
    fsync = node.config.get("appendfsync")
    if fsync == "always":
        return ok("append-only file, synced at every write")
    return warning(f"a restart may lose the most recently granted locks (A2): appendfsync is {fsync}", advice)


def _clients(node: NodeFacts, info: Mapping[str, str]) -> Said:
    limit = info.get("maxclients")
    if limit is None and isinstance(node.config, Mapping):
        limit = node.config.get("maxclients")
    connected = info.get("connected_clients")
    if connected is None or limit is None or not (connected.isdigit() and limit.isdigit()):
        return missing("connected_clients and maxclients")
    message = f"{connected} of {limit} connections in use"
    if int(connected) < CROWDED * int(limit):
        return ok(message)
    advice = "raise maxclients, or find out what opens that many connections"
    return warning(f"{message}: new connections will soon be refused", advice)


def _version(info: Mapping[str, str]) -> Said:
    version = _version_of(info)
    if version is None:
        return missing("redis_version")
    valkey = info.get("valkey_version")
    message = f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"
    if version >= OLDEST:
        return ok(message)
    less = "has no RESP3, so waiters poll, and no ACL users"
    if version < OLDEST_WITH_FENCES:
        less = "is too old for fences and quarantines: scripts may not write after they have read the time"
    return warning(f"{message} {less}", "update it to Redis 6.0 or newer, or to Valkey")


def check_access(node: NodeFacts) -> Said:
    """Report a server on which any client that reaches it can delete locks, without a password."""
    if isinstance(node.default_user, Silence):
        return unchecked(node.default_user, "+acl|getuser")
    if "nopass" not in node.default_user or "off" in node.default_user:
        return ok("the default user needs a password")
    if NO_COMMANDS in node.default_user:
        return ok("without a password no command is allowed")
    if node.host is not None and not _loopback(node.host):
        how = f"it is reached at {node.host}"
    elif isinstance(node.config, Silence):
        return unchecked(node.config, "+config|get")
    elif not _listens_to_others(node.config, {} if isinstance(node.info, Silence) else node.info):
        return ok("no password, but only its own machine can connect")
    else:
        how = f"bind is {node.config.get('bind', '')!r} and protected mode does not apply"
    return error(
        f"any client that can connect may take or delete locks: there is no password, and {how}",
        "give its default user a password (ACL SETUSER default resetpass >…) or disable that user, and "
        "restrict access with a firewall",
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


def check_tls(node: NodeFacts) -> Said | None:
    """Report TLS that protects against no one who can redirect the connection; None without TLS."""
    if node.unverified is None:
        return None
    if not node.unverified:
        return ok("the server's certificate is verified")
    return warning(
        f"{node.unverified}: another server can pose as this one, and see the password",
        "remove ssl_cert_reqs=none and ssl_check_hostname=false, and name the issuer with ssl_ca_certs=…",
    )


def check_latency(node: NodeFacts, node_timeout: float) -> Said:
    """Report a node whose answers are likely to come too late."""
    if node.round_trip is None:
        return warning("could not be measured", "see the other findings about this node")
    message = f"{node.round_trip * 1000:.1f} ms round trip"
    if node.round_trip <= node_timeout / 2:
        return ok(message)
    return warning(
        f"{message}, more than half of node_timeout ({node_timeout:g} s): its votes may come too late",
        "raise node_timeout, or place the node and the clients closer together; on the node, check SLOWLOG",
    )


def check_notices(node: NodeFacts, prefix: bytes) -> Said | None:
    """Report what keeps release notices away (R13), which costs time alone; None beside a worse finding."""
    deaf = node.deaf
    why = "" if deaf is None else deaf.reason
    if deaf is NOT_ASKED or why in (reason for _, reason in node.failures):
        return None
    if not why and not node.mute and not node.uncounted:
        return None if node.failures else ok("releases are published")
    faults, advice = [], []
    if why:
        faults.append(f"it sends us no release notifications ({why})")
    if node.mute:
        faults.append("it does not pass our release notifications to others (PUBLISH is refused)")
    if node.uncounted:
        faults.append("it does not report how many clients wait for a release (PUBSUB NUMSUB is refused)")
    if why and not denied(why):
        advice.append(explained(why, "notices", prefix)[1])
    lacks = (("+publish", node.mute), (COUNT_RIGHT, node.uncounted))
    rights = NOTICE_RIGHTS if denied(why) else " ".join(right for right, lacking in lacks if lacking)
    if rights:
        # A user that could subscribe has the channels; a server refuses to add some of them to all.
        has_channels = deaf is None or not (node.mute or denied(why))
        channels = "" if has_channels else f", and {channel_rule(prefix)} unless it has all channels"
        advice.append(f"give its user the rights {rights}{channels}")
    costs = "waiters poll, so they get a released lock later"
    if not why and not node.mute:
        costs = "all processes that wait for a lock retry at each of its releases"
    return warning(f"{' and '.join(faults)}: {costs}", "; ".join(advice))


def _version_of(info: Mapping[str, str]) -> tuple[int, ...] | None:
    numbers = re.match(r"(\d+)\.(\d+)", info.get("redis_version", ""))
    return None if numbers is None else (int(numbers[1]), int(numbers[2]))
