"""Redis Sentinels: the servers that know where the master of a service is.

A failover that they start shows in the incarnation record (R12): the new master may have forgotten locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import Context
from typing import Any, Final

from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from .addresses import Addresses
from .failures import why
from .handshake import ask_once
from .link import Link
from .urls import Service

LOOK_AFTER: Final = 2.0
"""Seconds between checks whether the master is still the same.  A master that is cut off from its Redis
Sentinels, but not from us, goes on granting; it has to be left before the new one's quarantine is over."""

_OF_THE_MASTER: Final = ("username", "password", "db", "host", "port")

Address = tuple[str, int]


class RedisSentinels:
    """The Redis Sentinels of one service."""

    def __init__(
        self,
        service: Service,
        connection_class: type[Connection],
        options: Mapping[str, Any],
        addresses: Addresses,
    ) -> None:
        self._name = service.name
        self._hosts = list(service.hosts)
        self._connection_class = connection_class
        self._addresses = addresses
        own = {name: value for name, value in options.items() if name not in _OF_THE_MASTER}
        self._options = own | dict(service.login)
        self._following: asyncio.Task[None] | None = None

    async def master(self, timeout: float) -> Address:
        """Ask one Redis Sentinel after the other; together they have half of `timeout`.

        The first one that knows the master is asked first next time.

        Raises:
            RedisConnectionError: none of them knows the master.
        """
        reasons: list[str] = []
        for host, port in tuple(self._hosts):
            try:
                async with asyncio.timeout(timeout / 2 / len(self._hosts)):
                    address = await self._ask(host, port, timeout)
            except TimeoutError:
                reasons.append(f"{host}:{port}: no answer in time")
            except Exception as error:  # noqa: BLE001 (a peer that is none may raise anything here)
                reasons.append(f"{host}:{port}: {self._reason(error)}")
            else:
                self._hosts.remove((host, port))
                self._hosts.insert(0, (host, port))
                return address
        raise RedisConnectionError(
            f"no Redis Sentinel reported the master of {self._name!r}: {'; '.join(reasons)}"
        )

    def _reason(self, error: Exception) -> str:
        """Return the reason of an error, unless it repeats the password that was sent."""
        reason, secret = why(error), self._options.get("password")
        return type(error).__name__ if secret and secret in reason else reason

    async def _ask(self, host: str, port: int, timeout: float) -> Address:
        options = {**self._options, "host": host, "port": port}
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)
        match await ask_once(self._connection_class, options, timeout, self._addresses, *question):
            case [bytes(master), bytes(its_port)] if its_port.isdigit():
                return master.decode(errors="replace"), int(its_port)
            case None:
                raise ResponseError(f"it does not know the service {self._name!r}")
        raise ResponseError("its reply is malformed")

    def follow(self, link: Link, address: Address, timeout: float) -> None:
        """Give up `link`, which leads to the master at `address`, when another master is named."""
        task = Context().run(asyncio.create_task, self._follow(link, address, timeout))
        self._following = task  # the loop itself keeps no task alive
        link.lost.add_done_callback(lambda _: task.cancel())

    async def _follow(self, link: Link, address: Address, timeout: float) -> None:
        # redis-py may swallow the one cancellation, with the `asyncio.wait_for` of Python 3.11.
        while not link.lost.done():
            await asyncio.sleep(LOOK_AFTER)
            try:
                now = await self.master(timeout)
            except RedisConnectionError:
                # No Redis Sentinel answers: that is no reason to leave a master that does.
                continue
            if now != address:
                link.give_up("the Redis Sentinels name another master")
                return
