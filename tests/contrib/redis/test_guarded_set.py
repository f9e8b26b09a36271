"""`guarded_set` and `claim` against a real server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import fakeredis
import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from aioredlock_ng.contrib.redis import claim, guarded_set
from tests.servers import Nodes

FENCE = 1_830_000_000_000_001
"""Of the size that fences have."""


@pytest.fixture(params=["server", "fakeredis"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Redis]:
    """Give a client of an empty server, and of fakeredis, which users' tests may have."""
    if request.param == "server":
        nodes: Nodes = request.getfixturevalue("shared_nodes")
        client = Redis.from_url(nodes.urls[0])
    else:
        client = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer())
    async with client:
        yield client


async def stored(client: Redis) -> dict[bytes, bytes]:
    """Return what is under the key."""
    return await client.hgetall("key")


async def test_it_writes_value_and_fence(client: Redis) -> None:
    """A first write finds nothing in its way; both are stored to the last digit, without a ttl."""
    assert await guarded_set(client, "key", "text", FENCE) is True

    assert await stored(client) == {b"value": b"text", b"fence": str(FENCE).encode()}
    assert await client.ttl("key") == -1


async def test_an_older_fence_changes_nothing(client: Redis) -> None:
    """The value, the fence and the ttl stay what they are."""
    await guarded_set(client, "key", "new", FENCE, ttl=100)

    assert await guarded_set(client, "key", "old", FENCE - 1, ttl=9000) is False
    assert await guarded_set(client, "key", "old", FENCE - 1) is False
    assert await claim(client, "key", FENCE - 1) is False

    assert await stored(client) == {b"value": b"new", b"fence": str(FENCE).encode()}
    assert 0 < await client.ttl("key") <= 100


async def test_a_claim_keeps_the_value(client: Redis) -> None:
    """After a claim older fences are refused; value and ttl are untouched, and need not be there."""
    assert await claim(client, "key", FENCE) is True
    assert await stored(client) == {b"fence": str(FENCE).encode()}
    await guarded_set(client, "key", "text", FENCE, ttl=100)

    assert await claim(client, "key", FENCE + 1) is True

    assert await guarded_set(client, "key", "late", FENCE) is False
    assert await stored(client) == {b"value": b"text", b"fence": str(FENCE + 1).encode()}
    assert 0 < await client.ttl("key") <= 100


@pytest.mark.parametrize(
    ("ttl", "expected"), [(2, 2000), (0.25, 250), (timedelta(milliseconds=1500), 1500), (0.001, 1)]
)
async def test_a_ttl_is_set(ttl: Any, expected: int, client: Redis) -> None:
    """Seconds or a timedelta; the key lives so long."""
    await guarded_set(client, "key", "text", FENCE, ttl=ttl)

    assert expected - 200 <= await client.pttl("key") <= expected


async def test_a_write_without_a_ttl_stays(client: Redis) -> None:
    """As with SET, a ttl that was there is gone; one holder writes as often as it likes, whatever bytes."""
    for value in (bytes(range(256)), b""):
        assert await guarded_set(client, b"key", value, FENCE, ttl=100)
        assert (await stored(client))[b"value"] == value
    assert await guarded_set(client, "key", "text", FENCE)
    assert await client.ttl("key") == -1


async def test_many_writers_end_in_the_order_of_their_fences(client: Redis) -> None:
    """Whatever order writes arrive in, the greatest fence's value stays, and each answer is true."""
    fences = random.Random(4).sample(range(FENCE, FENCE + 100), 100)

    accepted = await asyncio.gather(*(guarded_set(client, "key", fence, fence) for fence in fences))

    assert (await stored(client))[b"value"] == str(FENCE + 99).encode()
    assert accepted[fences.index(FENCE + 99)]
    assert not all(accepted)


async def test_a_plain_value_is_an_error(client: Redis) -> None:
    """A write by other means is found out, instead of being overwritten."""
    await client.set("key", "plain")

    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await guarded_set(client, "key", "text", FENCE)
    assert await client.get("key") == b"plain"


@pytest.mark.parametrize(
    ("fence", "ttl", "error", "match"),
    [
        (-1, None, ValueError, "fence"),
        (2**53, None, ValueError, "fence"),  # Lua would round it
        *(
            (FENCE, ttl, ValueError, "ttl must be 1 ms or more")
            for ttl in (0, -1, 0.0009, float("nan"), timedelta(0))
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("client", ["server"], indirect=True)
async def test_what_guards_nothing_is_refused(
    *, fence: Any, ttl: Any, error: type[Exception], match: str, client: Redis
) -> None:
    """A fence that cannot be compared, and a key that would be gone at once, with its fence."""
    with pytest.raises(error, match=match):
        await guarded_set(client, "key", "text", fence, ttl=ttl)
    if ttl is None:
        with pytest.raises(error, match=match):
            await claim(client, "key", fence)
    assert not await client.exists("key")
