"""Makes nodes and primitives from the node list and the lock names of users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final
from urllib.parse import quote

import redis
from redis.asyncio import Redis, RedisCluster

from .._core.keyspace import hash_tag, lock_key, mark_key, no_tag
from .._kinds.kind import Kind
from .._kinds.primitive import Primitive
from .._node.clients import ClientEndpoint, ClusterEndpoint
from .._node.connection import UrlEndpoint
from .._node.redis_node import Node, NodeSource
from .._node.urls import names_redis_sentinels
from ..errors import ConfigurationError
from .options import Options, checked_names, encoded

MAX_KINDS: Final = 64
"""Kinds whose latest primitive a manager keeps; each number of permits of a semaphore is one."""

NodeSpec: TypeAlias = str | Redis | RedisCluster | NodeSource
"""An entry of a node list: a URL, a client, or an object that makes a node."""


def listed(specs: Iterable[NodeSpec]) -> tuple[NodeSpec, ...]:
    """Return the entries of a node list, from which nodes are made for each loop.

    Raises:
        ConfigurationError: it is no list.
    """
    if isinstance(specs, str):
        raise ConfigurationError("nodes must be a list of nodes, not one string")
    if isinstance(specs, Mapping):
        example = f": [{url!r}]" if (url := url_of(specs)) else ""
        raise ConfigurationError(f"nodes must be a list of nodes, not a mapping{example}")
    if not isinstance(specs, Iterable):
        raise ConfigurationError(f"nodes must be a list of nodes, got one {type(specs).__name__}")
    return tuple(specs)


def make_nodes(specs: Sequence[NodeSpec]) -> tuple[Node, ...]:
    """Make the nodes of one manager; refuse a list that cannot be a quorum.

    Raises:
        ConfigurationError: the list is empty, or has a duplicate, or an entry that cannot be a node.
    """
    urls = [spec for spec in specs if isinstance(spec, str)]
    whole = ["://" in url for url in urls]
    if not all(whole) and (any(whole) or any("@" in url for url in urls)):
        # Perhaps cut at the comma in a password: the message must not show any of it.
        raise ConfigurationError(
            "each node that is a URL begins with its scheme, such as redis://; "
            "a comma that belongs to a password is written %2C"
        )
    nodes = tuple(_make_node(spec) for spec in specs)
    if not nodes:
        raise ConfigurationError("a lock manager needs at least one node, got none")
    seen: dict[object, Node] = {}
    for node in nodes:
        if (twin := seen.setdefault(node.address, node)) is not node:
            raise ConfigurationError(
                f"node {node.name} is given twice (also as {twin.name}): N nodes must be N different servers"
            )
    return nodes


def refuse_untagged(nodes: Iterable[Node], prefix: bytes) -> None:
    """Refuse the client of a Redis Cluster with a prefix that would spread its keys (R17).

    Raises:
        ConfigurationError: the prefix has no hash tag; the message suggests one that has.
    """
    for node in nodes:
        if node.clustered and hash_tag(prefix) is None:
            raise ConfigurationError(f"node {node.name}: {no_tag(prefix)}")


def _make_node(spec: NodeSpec) -> Node:
    if isinstance(spec, str):
        return Node(UrlEndpoint(spec))
    if isinstance(spec, Redis):
        return Node(ClientEndpoint(spec))
    if isinstance(spec, RedisCluster):
        return Node(ClusterEndpoint(spec))
    # A class has the method, too, and makes no node.
    if isinstance(spec, NodeSource) and not isinstance(spec, type):
        return spec.link()
    raise ConfigurationError(_why_no_node(spec))


def _why_no_node(spec: object) -> str:
    """Return a message that says what to write instead of an object that cannot be a node."""
    if isinstance(spec, type):
        return f"a node is an object, got the class {spec.__name__} itself: make one, {spec.__name__}(…)"
    if isinstance(spec, (redis.Redis, redis.RedisCluster)):
        name = type(spec).__name__
        return (
            f"a redis.{name} would block the event loop: use a redis.asyncio.{name} with the same "
            "arguments, or its URL"
        )
    kind = f"a {type(spec).__name__}"
    if url := url_of(spec):
        return f"a node is a URL, not {kind}: write {url}"
    return f"a node is a URL or a redis.asyncio.Redis or RedisCluster client, got {kind}"


@final
class Primitives:
    """Makes the primitives of one manager."""

    __slots__ = ("_latest", "_options")

    def __init__(self, options: Options) -> None:
        self._options = options
        # Of each kind the latest one over a single name: the next one differs in its name alone.
        self._latest: dict[Kind, Primitive] = {}

    def for_names(self, kind: Kind, names: tuple[str, ...]) -> Primitive:
        """Return a kind's primitive over `names`, in any order; raises as `checked_names` does."""
        latest = self._latest.get(kind)
        # Several names; or the first ones of the kind.
        if len(names) != 1 or latest is None:
            primitive = primitive_of(kind, checked_names(names), self._options)
        # The same name again.
        elif latest.names == names:
            return latest
        # Another name.
        else:
            encoded(names[0])  # raises if it cannot be a name
            primitive = latest.over(names[0], self._options.key(names[0]))
        if len(primitive.names) == 1:
            if latest is None and len(self._latest) >= MAX_KINDS:
                self._latest.clear()
            self._latest[kind] = primitive
        return primitive


def primitive_of(kind: Kind, names: tuple[str, ...], options: Options) -> Primitive:
    """Make the primitive of a kind over `names` under these settings."""
    prefix = options.prefix
    keys = tuple([lock_key(prefix, name) for name in names])
    return Primitive(
        kind,
        names,
        keys,
        counters=tuple([mark_key(prefix, kind.counter, key) for key in keys]) if options.fencing else (),
        beside=tuple([mark_key(prefix, mark, key) for mark in kind.beside for key in keys]),
        incarnation=options.incarnation,
        fence_ttl=options.fence_ttl,
        weaker=None if kind.weaker is None else primitive_of(kind.weaker, names, options),
    )


# -- lists of nodes as users write them: one text, or the nodes of other libraries -----------------------


def split_urls(text: str) -> list[str]:
    """Split a list of node URLs at its commas, except those between the hosts of a Redis Sentinel URL.

    The hosts end at the next slash, where the name of the service begins.  A piece behind a comma before that
    is another host, unless it begins with a scheme.
    """
    urls: list[str] = []
    for piece in filter(None, map(str.strip, text.split(","))):
        if urls and "://" not in piece and _goes_on(urls[-1]):
            urls[-1] += f",{piece}"
        else:
            urls.append(piece)
    return urls


def _goes_on(url: str) -> bool:
    return names_redis_sentinels(url) and "/" not in url.partition("://")[2]


def url_of(spec: object) -> str | None:
    """Return the URL for a node as other libraries describe it; None for anything else.

    That is a pair of host and port, or a mapping with the arguments of a client, or with the Redis
    Sentinels of a service.  The URL is for messages: a placeholder stands for the password.
    """
    if isinstance(spec, Mapping):
        return _url_of_mapping(spec)
    match spec:
        case (str(host), int() | str() as port, *_) if str(port).isdigit():
            return f"redis://{_host(host)}:{port}"
    return None


def _url_of_mapping(spec: Mapping[Any, Any]) -> str | None:
    scheme = "rediss" if spec.get("ssl") else "redis"
    login = f"{quote(str(spec.get('username') or ''))}:<password>@" if spec.get("password") else ""
    database = f"/{spec['db']}" if spec.get("db") else ""
    host = spec.get("host") or spec.get("address")
    if sentinels := spec.get("sentinels") or (
        spec.get("master") and host and [(host, spec.get("port", 26379))]
    ):
        hosts = ",".join(filter(None, map(_place, sentinels)))
        return f"{scheme}+sentinel://{login}{hosts}/{quote(str(spec.get('master') or 'service'))}{database}"
    if path := spec.get("unix_socket_path") or spec.get("path"):
        return f"unix://{login}{path}"
    if host:
        if isinstance(host, (tuple, list)):
            return url_of(tuple(host))
        return f"{scheme}://{login}{_host(str(host))}:{spec.get('port') or 6379}{database}"
    return None


def _place(spec: object) -> str:
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return ":".join(map(str, spec[:2]))
    return str(spec)


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
