"""One node in use, scripts sent past the lock kinds, and comparisons that allow for time that has passed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any, Final

from aioredlock_ng._clock import SystemClock
from aioredlock_ng._core.command import Command, Purpose, Script, Silence
from aioredlock_ng._node import NodeState
from aioredlock_ng._node.redis_node import Node, NodeEnv
from aioredlock_ng._settings.specs import make_nodes
from tests.servers import eventually

OURS: Final = b"0123456789abcdef0123456789abcdef01234567:ours"
OTHERS: Final = b"fedcba9876543210fedcba9876543210fedcba98:others"
FOREIGN: Final = b"another program's value"
SLACK: Final = 8.0
"""Seconds that may pass between putting keys and looking at them; the ttls are further apart."""


class Receiver:
    """Waits for a reply; a release that was unanswered may get another one later, which is none of ours."""

    def __init__(self) -> None:
        self.awaited = True
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_reply(self, node: int, reply: Any) -> None:
        """Take it."""
        if not self.future.done():
            self.future.set_result(reply)


class Asked:
    """A node in use."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def up(self) -> None:
        """Wait until it is up."""
        await eventually(lambda: self.node.status.state is NodeState.UP, what=repr(self.node.status))

    def send(self, command: Command) -> asyncio.Future[Any]:
        """Submit a command; the future is its reply."""
        sink = Receiver()
        self.node.submit(command, sink, 0)
        return sink.future

    async def ask(self, command: Command) -> Any:
        """Submit a command and wait for its reply."""
        return await asyncio.wait_for(self.send(command), 60.0)

    async def run(self, script: Script, keys: Sequence[bytes], *args: bytes | float) -> Any:
        """Run a script with exactly these arguments; an error is its first word."""
        words = tuple(arg if isinstance(arg, bytes) else b"%d" % arg for arg in args)
        asked = {"keys": tuple(keys), "args": words, "script": script}
        return plain(await self.ask(Command(Purpose.OTHER, owner=b"", fits=lambda _: True, **asked)))  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def connected(spec: Any, **env: Any) -> AsyncIterator[Asked]:
    """Run a node, one without records of its own by default, for as long as the block lasts."""
    (node,) = make_nodes([spec])
    env = {"node_timeout": 0.1, "connect_timeout": 5.0, "on_change": lambda _: None} | env
    node.bind(NodeEnv(clock=SystemClock(), random=Random(0), **env))
    task = asyncio.create_task(node.run())
    try:
        asked = Asked(node)
        await asked.up()
        yield asked
    finally:
        await node.aclose()
        task.cancel()
        await asyncio.wait((task,))


async def turns() -> None:
    """Let the loop do what it can do at once: write, and in memory deliver what was written."""
    for _ in range(10):
        await asyncio.sleep(0)


def kind_of(error: str) -> str:
    """Return the part of an error that all servers share: old ones wrap those of scripts in words."""
    return "WRONGTYPE" if "WRONGTYPE" in error else error.partition(" ")[0]


def plain(reply: Any) -> Any:
    """Reduce a reply to the part that all servers share: of an error its kind."""
    return kind_of(reply.reason) if isinstance(reply, Silence) else reply


def alike(seen: Any, wanted: Any) -> bool:
    """Return whether a reply is the wanted one, but for time that has passed (milliseconds)."""
    if isinstance(wanted, list):
        return isinstance(seen, list) and len(seen) == len(wanted) and all(map(alike, seen, wanted))
    if isinstance(wanted, int) and wanted > 1000:
        return isinstance(seen, int) and wanted - SLACK * 1000 < seen <= wanted
    return type(seen) is type(wanted) and seen == wanted


def close(left: Any, right: Any, tolerance_ms: float, below: float = 10**9) -> bool:
    """Return whether replies, or what is under keys, are equal, but for time that has passed.

    Times are numbers above 1,000 and `below` some other.
    """
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        pairs = zip(left, right, strict=False)
        return len(left) == len(right) and all(close(*pair, tolerance_ms, below) for pair in pairs)
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right) < tolerance_ms / 1000
    if isinstance(left, int) and isinstance(right, int) and 1000 < min(abs(left), abs(right)) < below:
        return abs(left - right) < tolerance_ms
    return type(left) is type(right) and left == right


def lives(seen: float | None, wanted: float | None) -> bool:
    """Return whether a ttl is the wanted one, but for time that has passed."""
    if seen is None or wanted is None:
        return seen is wanted
    return wanted - SLACK < seen <= wanted
