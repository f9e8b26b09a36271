"""What is under a lock's keys where no lock can be: asked once, when that costs the quorum (R19)."""

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
"""What has a key of each type, unless another program has it."""

FREE: Final = b"none"
"""What TYPE says of a key that is not there."""

_NOT_ASKED: Final = Answer(Vote.SILENT, "not asked")


@final
class _Found(NamedTuple):
    """What is no part of a lock, under a key of it."""

    part: str
    key: bytes
    type: bytes


async def other_kind(
    outbox: Outbox, primitive: Primitive, refusal: LockNotAcquiredError, timeout: float
) -> ConfigurationError | None:
    """Return the error of a name that is something else's on so many nodes that no majority is left.

    None when another try may help: also when it has gone by the time the nodes are asked what it is, or
    something else has failed with those words.  A node that does not tell within `timeout` seconds, or may
    not, is taken at its first word.
    """
    votes, size = refusal.votes, len(refusal.votes)
    wrong = [node for node, vote in enumerate(votes) if WRONG_TYPE in vote.reason]  # old servers wrap it
    spared = size - majority(size)
    if len(wrong) <= spared:
        return None
    seen = await _look(outbox, primitive, wrong, timeout)
    if sum(found is None or bool(found) for found in seen) <= spared:
        return None
    counted = Counter(each for found in seen for each in found or ())
    kind = primitive.kind
    wanted = f"lock {printable(primitive.names)} is wanted as a {kind.noun}"
    there = "; ".join(
        f"on {count} of {size} nodes the key {ascii(found.key)[1:]} holds {_called(found)}"
        for found, count in counted.most_common()
    )
    return ConfigurationError(f"{wanted}, but {there or 'under its keys is what is no lock of this package'}")


async def _look(
    outbox: Outbox, primitive: Primitive, wrong: Sequence[int], timeout: float
) -> list[list[_Found] | None]:
    """Return what is in the way on each of these nodes; None where that is not known."""
    kind = primitive.kind
    fitting = {"lock": kind.key_types, "counter": {kind.counter_type}, "mark": {b"zset"}}
    others = {node: _NOT_ASKED for node in range(outbox.size) if node not in wrong}
    seen: list[list[_Found] | None] = [[] for _ in wrong]
    if timeout <= 0:
        return [None for _ in wrong]
    asked = []
    for part, keys in primitive.parts:
        for key in keys:
            round_ = Round(outbox, keep)
            round_.ask(_type_of(key), timeout, known=others)
            asked.append((part, key, round_))
    for part, key, round_ in asked:
        await round_.wait(all_answered)
        for place, node in enumerate(wrong):
            answer, found = round_.answers[node], seen[place]
            if answer is None or not isinstance(answer.found, bytes):
                seen[place] = found or None  # what has been found so far is enough
            elif answer.found not in fitting[part] | {FREE}:
                seen[place] = [*(found or ()), _Found(part, key, answer.found)]
    return seen


def _type_of(key: bytes) -> Command:
    return Command(Purpose.OTHER, owner=b"", fits=_fits_type, keys=(key,), verb=b"TYPE")


def _fits_type(reply: object) -> bool:
    return isinstance(reply, bytes)


def _called(found: _Found) -> str:
    """Say what a key has: by what people call a type of Redis, or a kind of lock."""
    type_ = "sorted set" if found.type == b"zset" else ascii(found.type.decode(errors="replace"))[1:-1]
    if found.part == "lock" and found.type in KINDS_OF:
        return f"a {type_}, of {KINDS_OF[found.type]} or of another program: a name is of one kind"
    return f"a {type_}, which is no {found.part} of this package"
