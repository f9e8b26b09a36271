"""Looking at a lock from outside: its holder on each node; and, for administrators, taking it away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from .. import _scripts
from .._core.command import WRONG_TYPE, Answer, Command, Purpose, Reply, Silence
from .._core.quorum import Vote
from .._kinds import KINDS
from .._kinds.answers import seconds
from .._kinds.kind import Holder, Kind
from .._round.round import Round, all_answered

if TYPE_CHECKING:
    from .._node import Node
    from .._session.runtime import Runtime


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInspection:
    """What one node holds under a lock's name."""

    node: str
    held: bool | None
    """None when the node did not answer."""
    ours: bool = False
    """Whether a lease of this manager holds it."""
    holder: str | None = None
    """The holder label; None when the key is free or another program's."""
    since: float | None = None
    """When the holder asked for it, in Unix seconds by the holder's own clock; None when unknown."""
    ttl: float | None = None
    """Seconds until the key expires; None when it is free or has no expiry."""
    reason: str = ""
    """Why the node did not answer."""

    @property
    def wrong_type(self) -> bool:
        """Whether something else than a string is under the key: no lock, but in the way of one.

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
    round_ = Round(runtime.outbox, read)
    round_.ask(command, runtime.node_timeout)
    await round_.wait(all_answered)
    return [answer for answer in round_.answers if answer is not None]


async def ask(runtime: Runtime, node: Node, command: Command, timeout: float) -> Reply:
    """Ask one node, and return what it says, or its silence."""
    round_ = Round(runtime.outbox.over(node), read)
    round_.ask(command, timeout)
    await round_.wait(all_answered)
    (answer,) = round_.answers
    assert answer is not None, "all answered"
    if answer.vote is Vote.SILENT:
        return Silence(answer.reason)
    return answer.found  # type: ignore[return-value]  # `read` put the reply there


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
    return (value is None or isinstance(value, bytes)) and isinstance(left, int)


def _fits_deletion(reply: object) -> bool:
    return isinstance(reply, int)


def read(reply: Reply) -> Answer:
    """Take any reply for an answer that counts, and keep it."""
    if isinstance(reply, Silence):
        return Answer(Vote.SILENT, reply.reason)
    return Answer(Vote.GRANTED, found=reply)


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


def inspections(
    nodes: Sequence[Node],
    answers: Sequence[Answer],
    seen: Sequence[tuple[Holder, ...] | None],
    owners: set[bytes],
) -> tuple[NodeInspection, ...]:
    """Say what the answers to `look` mean, in which these holders were `seen`; the owner values stay here."""
    return tuple(
        _inspection(node.name, answer.reason, holders, owners)
        for node, answer, holders in zip(nodes, answers, seen, strict=True)
    )


def _inspection(
    node: str, reason: str, holders: tuple[Holder, ...] | None, owners: set[bytes]
) -> NodeInspection:
    if holders is None:
        return NodeInspection(node=node, held=None, reason=reason)
    if not holders:
        return NodeInspection(node=node, held=False)
    first = holders[0]
    return NodeInspection(
        node=node,
        held=True,
        ours=any(holder.owner in owners for holder in holders),
        holder=first.label,
        since=first.since,
        ttl=first.ttl,
    )
