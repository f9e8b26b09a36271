"""Finds out what is under a lock's keys if that is no lock: asked once, when it costs the quorum (R19)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from .._core.command import WRONG_TYPE, Answer, Command, Purpose
from .._core.quorum import Vote, majority
from .._kinds.primitive import Primitive
from .._round.outbox import Outbox
from .._round.round import Round, all_answered, keep
from ..errors import ConfigurationError, LockNotAcquiredError, printable

KINDS_OF: Final = {b"string": "a mutex or a writer", b"zset": "readers", b"hash": "a semaphore"}
"""The lock kinds by the type of their keys, unless the key is another program's."""

FREE: Final = b"none"
"""The answer of TYPE for a missing key."""

_NOT_ASKED: Final = Answer(Vote.SILENT, "not asked")


@final
class _Found(NamedTuple):
    """A value under a lock's key that is no part of such a lock."""

    part: str
    key: bytes
    type: bytes


async def other_kind(
    outbox: Outbox, primitive: Primitive, refusal: LockNotAcquiredError, timeout: float
) -> ConfigurationError | None:
    """Return an error if keys have another type on so many nodes that no majority is left, else None.

    None also if the keys have gone by the time the nodes are asked for their types, or if another error has
    the same words: another attempt may help then.  A node that does not answer within `timeout` seconds, or
    does not allow the question, counts by its first answer.
    """
    votes, size = refusal.votes, len(refusal.votes)
    # Anywhere in the text: old servers add words of their own before it.
    wrong = [node for node, vote in enumerate(votes) if WRONG_TYPE in vote.reason]
    spared = size - majority(size)
    # The other nodes can still be a majority.
    if len(wrong) <= spared:
        return None
    seen = await _look(outbox, primitive, wrong, timeout)
    # On enough nodes the key has gone since.
    if sum(found is None or bool(found) for found in seen) <= spared:
        return None
    counted = Counter(each for found in seen for each in found or ())
    kind = primitive.kind
    wanted = f"lock {printable(primitive.names)} is requested as a {kind.noun}"
    there = "; ".join(
        f"on {count} of {size} nodes the key {ascii(found.key)[1:]} holds {_called(found)}"
        for found, count in counted.most_common()
    )
    return ConfigurationError(
        f"{wanted}, but {there or 'its keys hold something that is not a lock of this package'}"
    )


async def _look(
    outbox: Outbox, primitive: Primitive, wrong: Sequence[int], timeout: float
) -> list[list[_Found] | None]:
    """Return what is in the way on each of these nodes; None for a node where that is unknown."""
    kind = primitive.kind
    fitting = {"lock": kind.key_types, "counter": {kind.counter_type}, "mark": {b"zset"}}
    others = {node: _NOT_ASKED for node in range(outbox.size) if node not in wrong}
    seen: list[list[_Found] | None] = [[] for _ in wrong]
    # No time is left to ask.
    if timeout <= 0:
        return [None for _ in wrong]
    # All rounds first, and then the waits: one round trip for all keys.
    asked = []
    for part, keys in primitive.parts:
        for key in keys:
            round_ = Round(outbox, keep)
            round_.ask(_type_of(key), timeout, known=others)
            asked.append((part, key, round_))
    for part, key, round_ in asked:
        await round_.wait(all_answered)
        for index, node in enumerate(wrong):
            answer, found = round_.answers[node], seen[index]
            # No answer: unknown, unless another key of this node has been found to be in the way.
            if answer is None or not isinstance(answer.found, bytes):
                seen[index] = found or None
            # Neither free nor a part of such a lock.
            elif answer.found not in fitting[part] | {FREE}:
                seen[index] = [*(found or ()), _Found(part, key, answer.found)]
    return seen


def _type_of(key: bytes) -> Command:
    return Command(Purpose.OTHER, owner=b"", fits=_fits_type, keys=(key,), verb=b"TYPE")


def _fits_type(reply: object) -> bool:
    return isinstance(reply, bytes)


def _called(found: _Found) -> str:
    """Describe a value by the usual name of its Redis type, and by the lock kind that it may be of."""
    type_ = "sorted set" if found.type == b"zset" else ascii(found.type.decode(errors="replace"))[1:-1]
    # The key of a lock of another kind, or another program's: the type alone cannot tell.
    if found.part == "lock" and found.type in KINDS_OF:
        return (
            f"a {type_}, which belongs to {KINDS_OF[found.type]} or to another program: give each kind of "
            "lock its own name"
        )
    part = "queue" if found.part == "mark" else found.part
    return f"a {type_}, which is not a {part} of this package"
