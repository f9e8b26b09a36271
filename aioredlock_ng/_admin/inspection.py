"""Looking at a lock from outside: its holder on each node; and, for administrators, taking it away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from .. import _scripts
from .._core.command import WRONG_TYPE, Answer, Command, Purpose, Reply, Silence
from .._core.quorum import Vote
from .._kinds import KINDS
from .._kinds.answers import seconds
from .._kinds.kind import Holder, Kind
from .._kinds.read_write import READ
from .._kinds.semaphore import is_slots
from .._round.round import Round, all_answered, keep

if TYPE_CHECKING:
    from .._node import Node
    from .._session.runtime import Runtime


MAX_READERS: Final = 100
"""Readers of one lock that a node is asked for, those that stay longest; of more it is only told that there
are more."""


_NAMES: Final[Mapping[bytes | None, str]] = {kind.letter: kind.name for kind in KINDS}
"""How kinds are called, by what owner values tell."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderInspection:
    """One reader of a read-write lock, as a node has it, or as several do."""

    holder: str | None
    """The holder label; None when it is another program's."""
    since: float | None = None
    """When it asked for the lock, in Unix seconds by its own clock; None when unknown."""
    ttl: float | None = None
    """Seconds until it reads no more unless it is extended: on this node, or on a majority of them; of one
    that no majority has, on any."""
    ours: bool = False
    """Whether it is a lease of this manager."""
    held_by: int = 1
    """How many nodes have it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PermitInspection:
    """One permit of a semaphore that is held, as a node has it, or as several do."""

    slot: int
    """Which one, from 0 on: as `Lease.slot`."""
    holder: str | None
    """The holder label; None when it is another program's."""
    since: float | None = None
    """When it asked for a permit, in Unix seconds by its own clock; None when unknown."""
    ttl: float | None = None
    """Seconds until it is free again unless it is extended: as `ReaderInspection.ttl`."""
    ours: bool = False
    """Whether it is a lease of this manager."""
    held_by: int = 1
    """How many nodes have it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInspection:
    """What one node holds under a lock's name."""

    node: str
    held: bool | None
    """None when the node did not answer."""
    ours: bool = False
    """Whether a lease of this manager holds it; of `more_readers` than are named, one of those that are."""
    holder: str | None = None
    """The holder label, of readers that of the one that stays longest, of a semaphore's permits that of the
    first; None when the key is free or another program's."""
    since: float | None = None
    """When that holder asked for it, in Unix seconds by the holder's own clock; None when unknown."""
    ttl: float | None = None
    """Seconds until the key expires; None when it is free or has no expiry."""
    reason: str = ""
    """Why the node did not answer."""
    kind: str | None = None
    """What sort of lock that is by what the holder wrote: ``"mutex"``, ``"fair"``, ``"write"``, ``"leader"``;
    ``"read"`` where readers are, ``"semaphore"`` where permits are held.  None when the key is free or
    another program's."""
    readers: tuple[ReaderInspection, ...] = ()
    """The readers that have it, those first that stay longest; empty when one holder has it alone."""
    more_readers: bool = False
    """Whether there are more than the 100 in `readers`."""
    permits: tuple[PermitInspection, ...] = ()
    """The permits of a semaphore that are held, by their slots; empty of any other lock."""

    @property
    def wrong_type(self) -> bool:
        """Whether something else than a lock is under the key, in the way of one.

        `held` is None then, and `reason` is the server's error.
        """
        return self.reason.startswith(WRONG_TYPE)


async def inspect(runtime: Runtime, key: bytes) -> tuple[NodeInspection, ...]:
    """Ask every node what is under `key`."""
    answers = await look(runtime, key)
    return inspections(runtime.nodes, answers, [holders_in(answer) for answer in answers], owners_of(runtime))


async def force_release(runtime: Runtime, key: bytes) -> tuple[NodeInspection, ...]:
    """Delete `key` on every node and return what was there before."""
    before = await inspect(runtime, key)
    command = Command(Purpose.OTHER, owner=b"", fits=_fits_deletion, keys=(key,), verb=b"DEL")
    return tuple(
        entry
        if answer.vote is Vote.GRANTED
        else NodeInspection(node=entry.node, held=None, reason=answer.reason)
        for entry, answer in zip(before, await ask_all(runtime, command), strict=True)
    )


async def ask_all(runtime: Runtime, command: Command) -> list[Answer]:
    """Ask every node, and return what they say in their order; silence is an answer."""
    round_ = Round(runtime.outbox, keep)
    round_.ask(command, runtime.node_timeout)
    await round_.wait(all_answered)
    return [answer for answer in round_.answers if answer is not None]


async def ask(runtime: Runtime, node: Node, command: Command, timeout: float) -> Reply:
    """Ask one node, and return what it says, or its silence."""
    round_ = Round(runtime.outbox.over(node), keep)
    round_.ask(command, timeout)
    await round_.wait(all_answered)
    (answer,) = round_.answers
    assert answer is not None, "all answered"
    if answer.vote is Vote.SILENT:
        return Silence(answer.reason)
    return answer.found  # type: ignore[return-value]  # `keep` put the reply there


def look_for(key: bytes) -> Command:
    """Build the question what is under `key`."""
    return Command(Purpose.OTHER, owner=b"", fits=_fits_inspection, keys=(key,), script=_scripts.INSPECT)


async def look(runtime: Runtime, key: bytes) -> list[Answer]:
    """Ask every node what is under `key`, and return the answers in the order of the nodes."""
    return await ask_all(runtime, look_for(key))


def owners_of(runtime: Runtime) -> set[bytes]:
    """Return the owner values of this manager's leases."""
    return {holding.owner for holding in runtime.holdings.all}


def _fits_inspection(reply: object) -> bool:
    if not isinstance(reply, list) or len(reply) != 2:  # noqa: PLR2004 (a pair)
        return False
    value, left = reply
    if is_slots(value):
        return isinstance(left, int)
    if isinstance(value, list):  # readers, each with the milliseconds that it has left
        values, lefts = value[::2], value[1::2]
        pairs = len(values) == len(lefts) and all(isinstance(each, bytes) for each in values)
        return pairs and all(isinstance(each, int) for each in (*lefts, left))
    return (value is None or isinstance(value, bytes)) and isinstance(left, int)


def _fits_deletion(reply: object) -> bool:
    return isinstance(reply, int)


def holders_in(answer: Answer, kinds: Sequence[Kind] = KINDS) -> tuple[Holder, ...] | None:
    """Return the holders that a node has under a key, as the key's kind reads it; None when it is silent."""
    if not isinstance(answer.found, list):
        return None
    found, left_ms = answer.found
    if found is None:
        return ()
    for kind in kinds:
        holders = kind.read_key(found, left_ms)
        if holders is not None:
            return holders
    return (Holder(owner=found, ttl=seconds(left_ms)),)  # another program's


def _kind_of(holder: Holder) -> str | None:
    return READ.name if holder.reads else _NAMES.get(holder.letter)


def inspections(
    nodes: Sequence[Node],
    answers: Sequence[Answer],
    seen: Sequence[tuple[Holder, ...] | None],
    owners: set[bytes],
) -> tuple[NodeInspection, ...]:
    """Say what the answers to `look` mean, in which these holders were `seen`; the owner values stay here."""
    return tuple(
        inspection_of(node.name, answer.reason, holders, owners)
        for node, answer, holders in zip(nodes, answers, seen, strict=True)
    )


def inspection_of(
    node: str, reason: str, holders: tuple[Holder, ...] | None, owners: set[bytes]
) -> NodeInspection:
    """Say what one node has, or why that is not known."""
    if holders is None:
        return NodeInspection(node=node, held=None, reason=reason)
    if not holders:
        return NodeInspection(node=node, held=False)
    first, readers = holders[0], [holder for holder in holders if holder.reads]
    return NodeInspection(
        node=node,
        held=True,
        ours=any(holder.owner in owners for holder in holders),
        holder=first.label,
        since=first.since,
        ttl=first.ttl,
        kind=_kind_of(first),
        readers=tuple(
            ReaderInspection(
                holder=reader.label, since=reader.since, ttl=reader.ttl, ours=reader.owner in owners
            )
            for reader in readers[:MAX_READERS]
        ),
        more_readers=len(readers) > MAX_READERS,
        permits=tuple(
            PermitInspection(
                slot=each.slot,
                holder=each.label,
                since=each.since,
                ttl=each.ttl,
                ours=each.owner in owners,
            )
            for each in holders
            if each.slot is not None
        ),
    )
