"""Asking nodes from outside: one or all of them, what they have under locks' keys, and which keys they have.

One script tells of many locks, in the same words for all nodes.  It costs client and server a fraction of
what as many scripts do, and each lock is answered for as if it had been asked for alone: a key of another
type is the answer of that lock.  A node leaves locks out once its answer is long, and is asked for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import anyio

from .. import _scripts
from .._core.command import Answer, Command, Purpose, Reply, Silence
from .._core.keyspace import COUNTER, is_record, locks_among, mark_key
from .._core.quorum import Vote
from .._core.rights import denied, glob_escaped
from .._kinds.semaphore import is_slots
from .._round.deadlines import move_on_after
from .._round.round import Round, all_answered, keep

if TYPE_CHECKING:
    from .._lock.session import Session
    from .._node.redis_node import Node


MAX_BATCH: Final = 128
"""Locks that one script tells of: it holds up a server for a quarter of a millisecond."""

MAX_ANSWER: Final = 16_384
"""Bytes from which on an answer leaves out the other locks of its batch.  Of one lock it may have more to
tell: 100 readers, or 256 permits, with the longest of labels."""

_ENTRY: Final = 3
"""The parts of an answer for each lock: the value under the key, the milliseconds that the key has left, and
the value of the counter, if it was read."""

_OF_ONE_KEY: Final = "CROSSSLOT"
"""The beginning of a reason that concerns several keys together, as those for want of a right do: the keys
are in different slots of a Redis Cluster."""

KeyEntry: TypeAlias = "tuple[object, int, bytes | None] | str"
"""One node's answer for a key; or the reason why there is none."""


async def ask_all(session: Session, command: Command) -> list[Answer]:
    """Ask every node, and return what they say in their order; silence is an answer."""
    round_ = Round(session.outbox, keep)
    round_.ask(command, session.node_timeout)
    await round_.wait(all_answered)
    return [answer for answer in round_.answers if answer is not None]


async def ask(session: Session, node: Node, command: Command, timeout: float) -> Reply:
    """Ask one node, and return what it says, or its silence."""
    round_ = Round(session.outbox.for_node(node), keep)
    round_.ask(command, timeout)
    await round_.wait(all_answered)
    (answer,) = round_.answers
    assert answer is not None, "all answered"
    if answer.vote is Vote.SILENT:
        return Silence(answer.reason)
    return answer.found  # type: ignore[return-value]  # `keep` put the reply there


def look_for(prefix: bytes, *keys: bytes) -> Command:
    """Build the question what is under `keys`, and what their counters have."""
    return Command(
        Purpose.OTHER,
        owner=b"",
        fits=partial(fits_look, len(keys)),
        keys=tuple([each for key in keys for each in (key, mark_key(prefix, COUNTER, key))]),
        args=(b"%d" % MAX_ANSWER,),
        script=_scripts.INSPECT,
    )


async def look(session: Session, keys: Sequence[bytes]) -> list[tuple[KeyEntry, ...]]:
    """Ask every node for the first of `keys`, for one at least; return the answers for each, node by node.

    They are as many as one script tells of, on every node that answers.
    """
    batch = keys[:MAX_BATCH]
    answers = await ask_all(session, look_for(session.options.prefix, *batch))
    columns = [entries_in(answer.found, answer.reason, len(batch)) for answer in answers]
    if len(batch) > 1:
        count = min(map(len, columns))
        for number, answer in enumerate(answers):
            if answer.vote is Vote.SILENT and _may_be_of_one_key(answer.reason):
                columns[number] = await _one_by_one(session, session.nodes[number], batch[:count])
    return list(zip(*columns, strict=False))  # for some locks only some nodes have answered


async def _one_by_one(session: Session, node: Node, keys: Sequence[bytes]) -> list[KeyEntry]:
    """Ask a node for each of `keys` alone: a forbidden one is no reason to tell nothing of the others."""
    looks = [look_for(session.options.prefix, key) for key in keys]
    replies = await asyncio.gather(*(ask(session, node, each, session.node_timeout) for each in looks))
    return [entry for reply in replies for entry in entries_in(reply, getattr(reply, "reason", ""), 1)]


def only_records(key: bytes, row: Sequence[KeyEntry]) -> bool:
    """Whether all that nodes have under a key are the records of a longer prefix (R16)."""
    values = [entry[0] for entry in row if not isinstance(entry, str) and entry[0] is not None]
    return bool(values) and all(is_record(key, value) for value in values)


def _may_be_of_one_key(reason: str) -> bool:
    return denied(reason) or reason.startswith(_OF_ONE_KEY)


def entries_in(found: object, reason: str, count: int) -> list[KeyEntry]:
    """Return what an answer to `look_for` tells of each lock; of all `count` the reason for a silence."""
    if not isinstance(found, list):
        return [reason] * count
    entries: list[KeyEntry] = list(zip(found[::_ENTRY], found[1::_ENTRY], found[2::_ENTRY], strict=True))
    if list in set(map(type, found)):
        entries = [_error_in(entry[0]) or entry for entry in entries]
    return entries


def read_one(reply: Reply) -> Answer:
    """Read the answer to `look_for` one key; an error in its place is silence."""
    answer = keep(reply)
    (entry,) = entries_in(answer.found, answer.reason, 1)
    return Answer(Vote.SILENT, entry) if isinstance(entry, str) else answer


def _error_in(value: object) -> str:
    """Return the error that stands in the place of what is under a key; empty where there is none."""
    if not isinstance(value, list) or len(value) != 1:
        return ""
    return cast("bytes", value[0]).decode(errors="replace")


def fits_look(count: int, reply: object) -> bool:
    """Whether it is an answer to `look_for` this number of keys: it may leave out some, but not the first."""
    if not isinstance(reply, list) or len(reply) % _ENTRY or not 0 < len(reply) <= _ENTRY * count:
        return False
    values = reply[::_ENTRY]
    plain = {bytes, NoneType}.issuperset(map(type, values)) or all(map(_fits_value, values))
    numbers = {int}.issuperset(map(type, reply[1::_ENTRY]))
    return plain and numbers and {bytes, NoneType}.issuperset(map(type, reply[2::_ENTRY]))


def _fits_value(value: object) -> bool:
    """Whether it is what a node has under a key: nothing, a value, readers or slots; or an error."""
    if not isinstance(value, list):
        return value is None or isinstance(value, bytes)
    if is_slots(value):
        return True
    values, lefts = value[::2], value[1::2]  # readers, each with the milliseconds that it has left
    if not all(isinstance(each, bytes) for each in values):
        return False
    return len(value) == 1 or (len(values) == len(lefts) and all(isinstance(left, int) for left in lefts))


SCAN_COUNT: Final = 500
"""Keys that a node looks at for one SCAN: a fraction of a millisecond of its time."""

SCAN_TIME: Final = 5.0
"""Seconds that all nodes are searched for locks, at most."""


@final
@dataclass(slots=True)
class Search:
    """A search for locks, on all nodes together."""

    prefix: bytes
    limit: int
    found: set[bytes] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    """Why nodes could not be searched, by their number."""
    truncated: bool = False

    async def run_on_all(self, session: Session) -> None:
        """Search all nodes at the same time."""
        with move_on_after(SCAN_TIME) as time:
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
