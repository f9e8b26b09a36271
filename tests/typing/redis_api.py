"""The helpers for a resource in Redis as users call them.  Never run: ``mypy --strict`` reads it."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from redis.asyncio import Redis, RedisCluster

from aioredlock_ng import Lease
from aioredlock_ng.contrib.redis import claim, guarded_set


async def write(lease: Lease, client: Redis, cluster: RedisCluster) -> None:
    """A lease's fence goes in as it is."""
    assert_type(await claim(client, "key", lease.fence), bool)
    assert_type(await guarded_set(client, "key", "text", lease.fence), bool)
    await guarded_set(client, b"key", b"text", 17, ttl=60)
    await guarded_set(cluster, "key", 1.5, lease.fence, ttl=timedelta(minutes=1))
