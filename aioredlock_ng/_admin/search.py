"""Searching nodes for locks: for all keys under a prefix that can be locks'."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast, final

import anyio

from .._core.command import Command, Purpose, Silence
from .._core.keyspace import locks_among
from .._core.rights import glob_escaped
from .look import ask

if TYPE_CHECKING:
    from .._node import Node
    from .._session.session import Session

SCAN_COUNT: Final = 500
"""Keys that a node looks at for one SCAN: a fraction of a millisecond of its time."""

SCAN_TIME: Final = 5.0
"""Seconds that all nodes are searched for locks, at most."""


@final
@dataclass(slots=True)
class Search:
    """What a search for locks has found so far, on all nodes together."""

    prefix: bytes
    limit: int
    found: set[bytes] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    """Why nodes could not be searched, by their number."""
    truncated: bool = False

    async def run_on_all(self, session: Session) -> None:
        """Search all nodes at the same time."""
        with anyio.move_on_after(SCAN_TIME) as time:
            async with anyio.create_task_group() as tasks:
                for number, node in enumerate(session.nodes):
                    tasks.start_soon(self._run, session, number, node)
        self.truncated = self.truncated or time.cancelled_caught

    async def _run(self, session: Session, number: int, node: Node) -> None:
        """Search one node from the beginning to the end of its keys."""
        cursor = b"0"
        while not self.truncated:
            reply = await ask(session, node, scan(self.prefix, cursor), session.node_timeout)
            if isinstance(reply, Silence):
                self.failed[number] = reply.reason
                return
            cursor, keys = cast("tuple[bytes, list[bytes]]", reply)  # checked by `fits`
            # Not all were asked for, and others' keys are none of our business (R16).
            self._add(locks_among(self.prefix, keys) - self.found)
            if int(cursor) == 0:
                return

    def _add(self, locks: set[bytes]) -> None:
        room = self.limit - len(self.found)
        self.found.update(locks if len(locks) <= room else sorted(locks)[:room])
        self.truncated = self.truncated or len(locks) > room


def scan(prefix: bytes, cursor: bytes = b"0") -> Command:
    """Build one step of a search for the keys that begin with `prefix`."""
    args = (cursor, b"MATCH", glob_escaped(prefix) + b"*", b"COUNT", b"%d" % SCAN_COUNT)
    return Command(Purpose.OTHER, owner=b"", fits=_fits_scan, keys=(), args=args, verb=b"SCAN")


def _fits_scan(reply: object) -> bool:
    if not isinstance(reply, list) or len(reply) != 2:  # noqa: PLR2004 (a pair)
        return False
    cursor, keys = reply
    there = isinstance(cursor, bytes) and cursor.isdigit() and isinstance(keys, list)
    return there and {bytes}.issuperset(map(type, keys))
