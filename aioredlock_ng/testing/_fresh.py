"""Making servers fresh that no manager has used yet: they may vote at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

from .. import _scripts
from .._core import keyspace
from .._core.quarantine import parse
from .._settings.options import DEFAULT_PREFIX

TIMEOUT: Final = 5.0
"""Seconds that one server may take."""


def initialise(urls: Sequence[str], prefix: str = DEFAULT_PREFIX) -> None:
    """Do what ``aioredlock-ng init`` does, for managers over exactly these servers.

    But for the floor: fresh servers have given no fence, and a floor ahead of the nodes' clocks keeps them
    from agreeing on contended locks for the first 2 seconds (R10, R12).
    A server that cannot be told is left out: it will have to wait for its vote.
    """
    key = keyspace.incarnation_key(prefix.encode())
    for url in urls:
        with suppress(RedisError), Redis.from_url(url, socket_timeout=TIMEOUT) as client:
            _, stored = client.eval(_scripts.INIT.source, 1, key, len(urls), 0, 0, "local nodes", "tag")
            incarnation = parse(stored)
            if incarnation is not None:
                client.set(key, bytes(replace(incarnation, floor=0)))
