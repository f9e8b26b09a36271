"""The floor in Python: the bytes of the plain mode over bare connections, a tally, one future per round."""
# ruff: noqa: D102 (`benchmarks.peers` says what they are for)

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import final
from urllib.parse import urlsplit

from benchmarks.peers import Body
from benchmarks.peers.wire import Link, Round, load_scripts, packed


@final
class Peer:
    """One connection per node."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._links: list[Link] = []

    async def open(self) -> None:
        load_scripts(self._urls)
        loop = asyncio.get_running_loop()
        for url in map(urlsplit, self._urls):
            _, link = await loop.create_connection(Link, url.hostname, url.port)
            self._links.append(link)

    async def cycle(self, name: str, body: Body) -> None:
        acquire, release = packed(name)
        await Round(self._links, acquire).done
        await body()
        await Round(self._links, release).done

    async def close(self) -> None:
        for link in self._links:
            link.transport.close()
