"""The addresses of one name: one that swallows packets does not hide the others.

As in RFC 8305 ("happy eyeballs"), the next address is tried beside the first one after a moment, and families
alternate.  An address that failed comes last in the next attempt.  asyncio itself offers the first half of
that; uvloop does not, and neither of them reports which address did not answer.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 (the first name that is looked up imports it, in the event loop)
import ipaddress
import os
import socket
from collections import Counter
from collections.abc import Sequence
from contextvars import Context
from typing import Any, Final, final

NEXT_ADDRESS: Final = 0.25
"""Seconds that one address has to itself before the next one is tried beside it (RFC 8305)."""

MAX_ADDRESSES: Final = 8
"""Addresses that are tried in one attempt; the next attempt begins with the others."""

Info = tuple[int, int, int, str, tuple[Any, ...]]
"""The entry of ``getaddrinfo`` for one address."""


class UnreachableError(Exception):
    """No address of a name takes a connection; the message says why, for each."""


def is_address(host: str) -> bool:
    """Whether `host` is an address itself, which need not be looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@final
class Addresses:
    """The addresses of one node's names, and which of them failed."""

    def __init__(self) -> None:
        self._failed: set[tuple[Any, ...]] = set()
        self._tried: list[tuple[Any, ...]] = []

    @property
    def tried(self) -> str:
        """The address that was reached in this attempt, else those that have not answered; may be empty."""
        return ", ".join(map(_shown, self._tried))

    def start(self) -> None:
        """Begin an attempt."""
        self._tried = []

    def failed(self) -> None:
        """Note that the address that was reached, or did not answer, is of no use: others go first."""
        self._failed.update(self._tried)

    def succeeded(self) -> None:
        """Note that the address that was reached is the one to go to."""
        self._failed.difference_update(self._tried)

    async def connect(self, host: str, port: int) -> socket.socket:
        """Return a socket that is connected to one of the addresses of `host`.

        Raises:
            OSError: the name cannot be looked up.
            UnreachableError: no address takes a connection.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self._failed.intersection_update(info[4] for info in found)
        waiting = self._in_order(found)[:MAX_ADDRESSES]
        under_way: dict[asyncio.Task[socket.socket], tuple[Any, ...]] = {}
        reasons: list[str] = []
        try:
            while waiting or under_way:
                if waiting:
                    info = waiting.pop(0)
                    under_way[Context().run(loop.create_task, _connect(info))] = info[4]
                self._tried = list(under_way.values())
                timeout = NEXT_ADDRESS if waiting else None
                done, _ = await asyncio.wait(under_way, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                # The first one that is connected wins; one that failed makes room for the next at once.
                for task in done:
                    address = under_way.pop(task)
                    if (error := task.exception()) is None:
                        self._tried = [address]
                        return task.result()
                    self._failed.add(address)
                    reasons.append(f"{_shown(address)}: {_why(error)}")
        finally:
            self._failed.update(under_way.values())  # another one was quicker, or the time is up
            for task in under_way:
                task.add_done_callback(_close)  # also one that was connected in the same moment
                task.cancel()
        self._tried = []
        raise UnreachableError(
            f"cannot connect to {host}:{port}: {'; '.join(reasons) or 'it has no address'}"
        )

    def _in_order(self, found: Sequence[Info]) -> list[Info]:
        """Return each address once: the families in turns, those that failed before at the end."""
        once = {info[4]: info for info in found}.values()
        of_family: Counter[int] = Counter()
        ranked = []
        for info in once:
            ranked.append((info[4] in self._failed, of_family[info[0]], info))
            of_family[info[0]] += 1
        return [info for *_, info in sorted(ranked, key=lambda each: each[:2])]


async def _connect(info: Info) -> socket.socket:
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)  # noqa: FBT003 (its one argument)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _close(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _shown(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(error: BaseException) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return str(error) if number is None else os.strerror(number)
