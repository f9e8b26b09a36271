"""Looking at a lock from outside: who holds it where; and, for administrators, taking it away."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from . import _scripts
from ._ask import Round, all_answered
from ._core.command import Answer, Command, Purpose, Reply, Silence
from ._core.quorum import Vote

if TYPE_CHECKING:
    from ._runtime import Runtime

_OUR_VALUE: Final = re.compile(rb"[0-9a-f]{40}:(?P<holder>.*)", re.DOTALL)
"""What this package writes under a lock: the owner, which is secret, and the holder, which is not."""


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
    ttl: float | None = None
    """Seconds until the key expires; None when it is free or has no expiry."""
    reason: str = ""
    """Why the node did not answer."""


async def inspect(runtime: Runtime, key: bytes) -> tuple[NodeInspection, ...]:
    """Ask every node what is under `key`."""
    command = Command(Purpose.OTHER, owner=b"", fits=_fits_inspection, keys=(key,), script=_scripts.INSPECT)
    round_ = Round(runtime.nodes, _read_inspection)
    round_.ask(command, runtime.node_timeout)
    await round_.wait(all_answered)
    owners = {holding.owner for holding in runtime.holdings}
    return tuple(
        _inspection(node.name, answer, owners)
        for node, answer in zip(runtime.nodes, round_.answers, strict=True)
        if answer is not None
    )


async def force_release(runtime: Runtime, key: bytes) -> tuple[NodeInspection, ...]:
    """Delete `key` on every node and return what was there before."""
    before = await inspect(runtime, key)
    command = Command(Purpose.OTHER, owner=b"", fits=_fits_deletion, keys=(key,), verb=b"DEL")
    round_ = Round(runtime.nodes, _read_deletion)
    round_.ask(command, runtime.node_timeout)
    await round_.wait(all_answered)
    return tuple(
        entry if vote.vote is Vote.GRANTED else NodeInspection(node=entry.node, held=None, reason=vote.reason)
        for entry, vote in zip(before, round_.votes(), strict=True)
    )


def _fits_inspection(reply: object) -> bool:
    if not isinstance(reply, list) or len(reply) != 2:  # noqa: PLR2004 (a pair)
        return False
    value, left = reply
    return (value is None or isinstance(value, bytes)) and isinstance(left, int)


def _fits_deletion(reply: object) -> bool:
    return isinstance(reply, int)


def _read_inspection(reply: Reply) -> Answer:
    if isinstance(reply, Silence):
        return Answer(Vote.SILENT, reply.reason)
    return Answer(Vote.GRANTED, found=reply)


def _read_deletion(reply: Reply) -> Answer:
    if isinstance(reply, Silence):
        return Answer(Vote.SILENT, reply.reason)
    return Answer(Vote.GRANTED)


def _inspection(node: str, answer: Answer, owners: set[bytes]) -> NodeInspection:
    if not isinstance(answer.found, list):
        return NodeInspection(node=node, held=None, reason=answer.reason)
    value, left_ms = answer.found
    if value is None:
        return NodeInspection(node=node, held=False)
    ours = _OUR_VALUE.fullmatch(value)
    return NodeInspection(
        node=node,
        held=True,
        ours=value in owners,
        holder=ours["holder"].decode(errors="replace") if ours else None,
        ttl=left_ms / 1000 if left_ms >= 0 else None,
    )
