"""The errors of a call of `acquire` that the nodes keep from the lock (R13, R19)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from .._core.command import WRITER_WAITS, WRONG_TYPE, Answer, Command, Purpose
from .._core.quorum import WON, Tally, Vote, majority
from .._core.validity import free_after
from .._kinds.primitive import Primitive
from .._log import Once, one_line, report
from .._node.redis_node import Node
from .._round.outbox import Outbox
from .._round.round import Round, all_answered, keep
from ..errors import (
    ConfigurationError,
    LockNotAcquiredError,
    LockTakenError,
    NodeVote,
    QuorumUnavailableError,
    printable,
)

KINDS_OF: Final = {b"string": "a mutex or a writer", b"zset": "readers", b"hash": "a semaphore"}
"""The lock kinds by the type of their keys, unless the key is another program's."""

FREE: Final = b"none"  # the answer of TYPE for a missing key

_NOT_ASKED: Final = Answer(Vote.SILENT, "not asked")


# -- by the nodes --------------------------------------------------------------------------------------


def knows_why(acquire_round: Round, undo: Round) -> bool:
    """Whether it is certain why the round was lost, and how long the keys in the way will stay.

    A node that refused says so in its reply to the release.  Without a quorum, wait for every node that can
    answer, so that the error shows which ones are at fault.
    """
    # All releases have been answered: no more can be learned.
    if undo.pending == 0:
        return True
    # No quorum, or still open whether there is one: each node's answer to the acquire counts.
    if not acquire_round.taken:
        return acquire_round.taken is False and acquire_round.pending == 0
    # Taken: the releases on the nodes that refused say for how long.
    return all(
        then is not None
        for first, then in zip(acquire_round.answers, undo.answers, strict=True)
        if first is not None and first.vote is Vote.REFUSED
    )


def without_fence(names: tuple[str, ...], acquire_round: Round) -> QuorumUnavailableError:
    """Return the error for an attempt that a majority granted, without a certificate for its fence (R10)."""
    msg = (
        f"lock {printable(names)}: a majority granted it, but the nodes did not agree on a fence; after "
        "nodes have lost their data this may take two seconds"
    )
    return QuorumUnavailableError(msg, names=names, votes=acquire_round.votes())


def refusal_by_nodes(
    names: tuple[str, ...], acquire_round: Round, undo: Round, *, ahead: int = 0
) -> LockNotAcquiredError:
    """Return the error for a lost attempt: taken or no quorum, with every node's answer and when to retry.

    `undo` are the releases of the attempt; `ahead` is the number of calls before it in the queue (R28).
    """
    votes = tuple(map(_with_wait, acquire_round.votes(), undo.answers))
    # Won, but its validity was used up when the task ran: slow nodes, or an event loop that stood still.
    if acquire_round.verdict is WON:
        msg = f"lock {printable(names)}: a majority granted it too late to be of use"
        return QuorumUnavailableError(msg, names=names, votes=votes)
    # Counted again: a refusal becomes silence where the release has met a key of another type.
    tally = Tally(len(votes))
    for vote in votes:
        tally.cast(vote.vote)
    quorum = tally.quorum
    # Too few nodes answered.
    if tally.answered < quorum:
        answered = f"{tally.answered} of {len(votes)} nodes voted, {quorum} are needed"
        msg = f"lock {printable(names)}: {answered}"
        return QuorumUnavailableError(msg, names=names, votes=votes)
    # Taken by another client.
    waits = [0.0 if v.vote is Vote.GRANTED else v.retry_after for v in votes if v.vote is not Vote.SILENT]
    holder = _holder(acquire_round, undo)
    msg = f"lock {printable(names)} is held by {holder or 'another client'}"
    # A reader was refused because a writer waits: only readers hold the lock.
    if holder is None and sum(vote.reason == WRITER_WAITS for vote in votes) >= quorum:
        msg = f"lock {printable(names)}: {WRITER_WAITS} and comes first"
    # A fair lock: it may be free, and kept for the calls ahead.
    if ahead:
        held = f"held by {holder}" if holder else "taken"
        queued = "1 process is" if ahead == 1 else f"{ahead} processes are"
        msg = f"lock {printable(names)} is {held}; {queued} ahead in the queue"
    wait = free_after(waits, quorum)
    return LockTakenError(msg, names=names, votes=votes, retry_after=wait, holder=holder)


def _with_wait(vote: NodeVote, undo: Answer | None) -> NodeVote:
    """Add to a refusal what the release after it has found under the key."""
    # Granted or silent, or the release has not been answered: nothing to add.
    if vote.vote is not Vote.REFUSED or undo is None:
        return vote
    if undo.vote is Vote.SILENT:
        # A plain SET refuses whatever is under the key; only the release meets its type: no vote then.
        if undo.reason.startswith(WRONG_TYPE):
            return NodeVote(vote.node, Vote.SILENT, undo.reason)
        return vote
    # The usual case: a holder, and when its key expires.
    reason = WRITER_WAITS if undo.reason == WRITER_WAITS else vote.reason
    return NodeVote(vote.node, vote.vote, reason, undo.wait)


def _holder(acquire_round: Round, undo: Round) -> str | None:
    """Return the label of the holder, if a majority of the nodes agrees on it, else None."""
    labels = Counter(
        then.found
        for first, then in zip(acquire_round.answers, undo.answers, strict=True)
        if first is not None and first.vote is Vote.REFUSED and then is not None
    )
    label, count = labels.most_common(1)[0] if labels else (None, 0)
    # No majority: the votes are split between holders.  No label: another program, or readers.
    if not isinstance(label, bytes) or count < acquire_round.quorum:
        return None
    # Any client may have written it: show control characters as escapes.
    return one_line(label.decode(errors="replace"))


def not_asked(names: tuple[str, ...], nodes: Sequence[Node], most: int) -> QuorumUnavailableError:
    """Return the error for a call that has made no attempt, because `most` attempts were in flight."""
    reason = f"not attempted: this process has {most} attempts in flight and others queued ahead"
    votes = tuple(NodeVote(node.name, Vote.SILENT, reason) for node in nodes)
    return QuorumUnavailableError(f"lock {printable(names)}: {reason}", names=names, votes=votes)


def report_key_without_expiry(once: Once, lock: Primitive, node: str) -> None:
    """Report a key without expiry that is in the way on a node: no ttl will ever free it (R16)."""
    # Every attempt meets it: one line for a lock is enough.
    if once.first(lock.keys[0]):
        report(
            logging.WARNING,
            "node %s: a key without expiry blocks lock %s (%s); delete it with force_release() or "
            "`aioredlock-ng release`",
            node,
            printable(lock.names),
            ", ".join(ascii(key)[1:] for key in lock.keys),
            lock=lock.names,
            node=node,
            kind=lock.kind.name,
        )


# -- by what is under a lock's keys if that is no lock (R19) ----------------------------------------------


@final
class _Found(NamedTuple):
    """A value under a lock's key that is no part of such a lock."""

    part: str
    key: bytes
    type: bytes


async def other_kind(
    outbox: Outbox, primitive: Primitive, refusal: LockNotAcquiredError, timeout: float
) -> ConfigurationError | None:
    """Return an error if too few nodes are left on which no key has another type, else None.

    The nodes are asked once, when it costs the quorum.

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
