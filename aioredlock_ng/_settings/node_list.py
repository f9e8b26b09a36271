"""Reads lists of nodes as users write them: one text, or the nodes of other libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from .._node.urls import names_redis_sentinels


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
