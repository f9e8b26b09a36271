"""Making servers fresh that no manager has used yet: they may vote at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

from .. import _scripts
from .._core.fencing import floor_at
from .._options import DEFAULT_PREFIX, sentinel_under

TIMEOUT: Final = 5.0
"""Seconds that one server may take."""

AHEAD_US: Final = 1_000_000
"""Microseconds between the time and that of the common floor: they are told one after the other."""


def initialise(urls: Sequence[str], prefix: str = DEFAULT_PREFIX) -> None:
    """Do what ``aioredlock-ng init`` does, for managers over exactly these servers.

    A server that cannot be told is left out: it will have to wait for its vote.
    """
    key, floor = sentinel_under(prefix.encode()), 0
    for url in urls:
        with suppress(RedisError), Redis.from_url(url, socket_timeout=TIMEOUT) as client:
            if not floor:
                seconds, microseconds = client.time()
                floor = floor_at(seconds * 1_000_000 + microseconds + AHEAD_US)
            client.eval(_scripts.INIT.source, 1, key, len(urls), 0, floor)
