"""The Redlock page as one would write it by hand: `asyncio.gather` over clients of redis-py."""
# ruff: noqa: D101, D102 (`benchmarks.peers` says what they are for)

import asyncio
import random
import secrets

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from benchmarks.peers import TTL, Body

DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
OPTIONS = {"socket_timeout": 0.5, "retry": Retry(NoBackoff(), 0)}


class Peer:
    def __init__(self, urls: list[str]) -> None:
        self._clients = [Redis.from_url(url, **OPTIONS) for url in urls]
        self._deletes = [client.register_script(DELETE) for client in self._clients]

    async def open(self) -> None:
        await asyncio.gather(*(client.ping() for client in self._clients))

    async def cycle(self, name: str, body: Body) -> None:
        owner = secrets.token_hex(20)
        while not await self._acquire(name, owner):  # noqa: ASYNC110 (no notice tells of a release)
            await asyncio.sleep(random.uniform(0, 0.05))
        await body()
        await self._release(name, owner)

    async def _acquire(self, name: str, owner: str) -> bool:
        sets = (client.set(name, owner, nx=True, px=int(TTL * 1000)) for client in self._clients)
        votes = await asyncio.gather(*sets, return_exceptions=True)
        if not (won := votes.count(True) > len(votes) // 2):
            await self._release(name, owner)
        return won

    async def _release(self, name: str, owner: str) -> None:
        deletes = (delete(keys=[name], args=[owner]) for delete in self._deletes)
        await asyncio.gather(*deletes, return_exceptions=True)

    async def close(self) -> None:
        await asyncio.gather(*(client.aclose() for client in self._clients))
