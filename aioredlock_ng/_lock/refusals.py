"""The errors of a call of `acquire` that does not get the lock: by the nodes, or by its own process (R13)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from .._clock import Clock
from .._core.command import WRITER_WAITS, WRONG_TYPE, Answer, Command, Purpose
from .._core.quorum import WON, Tally, Vote, majority
from .._core.validity import free_after
from .._kinds.primitive import Primitive
from .._lock.local_queue import Held, LocalQueue, NameQueue
from .._lock.runner import current_runners
from .._log import Once, one_line, report
from .._node import Node
from .._round.outbox import Outbox
from .._round.round import Round, all_answered, keep
from ..errors import (
    ConfigurationError,
    LockNotAcquiredError,
    LockTakenError,
    NodeVote,
    QuorumUnavailableError,
    WouldDeadlockError,
    printable,
)

KINDS_OF: Final = {b"string": "a mutex or a writer", b"zset": "readers", b"hash": "a semaphore"}
"""The lock kinds by the type of their keys, unless the key is another program's."""

FREE: Final = b"none"
"""The answer of TYPE for a missing key."""

_NOT_ASKED: Final = Answer(Vote.SILENT, "not asked")


# -- by the nodes --------------------------------------------------------------------------------------


def knows_why(acquire_round: Round, undo: Round) -> bool:
    """Whether it is certain why the round was lost, and how long the keys in the way will stay.

    A node that refused says so in its reply to the release.  Without a quorum, wait for every node that can
    answer, so that the error shows which ones are at fault.
    """
    tally = acquire_round
    # All releases have been answered: no more can be learned.
    if undo.pending == 0:
        return True
    # No quorum, or still open whether there is one: each node's answer to the acquire counts.
    if not tally.taken:
        return tally.taken is False and tally.pending == 0
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


# -- by this process -----------------------------------------------------------------------------------


@final
@dataclass(slots=True, eq=False)
class LocalRefusals:
    """The errors of a call that a task of its own process keeps from the lock: no node is asked."""

    queue: LocalQueue
    clock: Clock
    holder: str

    def check_deadlock(self, primitive: Primitive, *, reentrant: bool = False) -> None:
        """Raise an error if this task, or thread, would wait for a lock that its own block holds.

        Names that this process uses for another kind are refused first (`check_kind`).

        A call with `reentrant` comes here if no lease of its own task covers what it wants (R27).
        """
        names = primitive.names
        for name in names:
            # No task of this process has to do with the name.
            if (entry := self.queue.entries.get(name)) is None:
                continue
            # First: a lock of another kind will never be free for this one, not even after its release.
            self.check_kind(primitive, name)
            held, runners = [contender.held for contender in entry.inside], current_runners()
            mine = sum(each is not None and each.task in runners for each in held)
            kind = primitive.kind
            # Of three permits this task holds two: the third may become free, and it may wait.  If all three
            # are its own, it would wait for itself.
            if mine and kind.full(mine):
                why = "requested without reentrant=True"
                # It holds "a", and wants "a" and "b"; or it reads "a", and wants to write it.
                if reentrant:
                    wanted = f"{printable(names)} as a {kind.noun}"
                    why = f"reentrant, but none of its leases covers all of {wanted}"
                if kind.permits:
                    why = f"it holds {kind.permits} of {kind.permits} permits itself"
                runner = "task" if isinstance(runners[0], asyncio.Task) else "thread"
                msg = f"this {runner} holds {printable((name,))} and would wait for itself ({why})"
                raise WouldDeadlockError(msg, names=names)

    def check_kind(self, primitive: Primitive, name: str) -> None:
        """Raise an error if this process uses the name for a kind that cannot exist beside this one (R19)."""
        for contender in self.queue.entries[name].inside:
            other = contender.primitive.kind
            # A mutex and a semaphore, say: their keys have different types, and nodes would refuse for ever.
            if other.key_types.isdisjoint(primitive.kind.key_types):
                raise ConfigurationError(
                    f"lock {printable((name,))} is requested as a {primitive.kind.noun}, but this process "
                    f"already uses this name for a {other.noun}: give each its own name"
                )

    def cooling(self, names: tuple[str, ...]) -> LockTakenError | None:
        """Return the error for names that stay taken after their release by this process, or None (R34)."""
        cooldowns = self.queue.cooldowns
        # No name does: the usual case; or none of these.
        if not cooldowns.until or not (left := cooldowns.left(names, self.clock.now())):
            return None
        msg = f"lock {printable(names)} was released but stays taken for another {left:.3f} s (at_least)"
        return LockTakenError(msg, names=names, retry_after=left, holder=self.holder)

    def held_here(self, names: tuple[str, ...], held: Held) -> LockTakenError:
        """Return the error for a lock that this process holds."""
        return LockTakenError(
            f"lock {printable(names)} is held by this process",
            names=names,
            retry_after=max(0.0, held.valid_until - self.clock.now()),
            holder=self.holder,
        )

    def in_the_way(
        self, names: tuple[str, ...], entry: NameQueue, verdict: LockNotAcquiredError | None = None
    ) -> LockNotAcquiredError:
        """Return the error for a call in the queue of a name: what keeps the contender inside, too (R13)."""
        # A task of this process holds the lock.
        if entry.held is not None:
            return self.held_here(names, entry.held)
        # One has released it, but it stays taken.
        if (error := self.cooling(names)) is not None:
            return error
        # One asks the nodes, and was refused: by a holder, or for want of a quorum.  The error is made again,
        # with the names of this call.
        last = verdict or entry.refusal
        if isinstance(last, LockTakenError):
            return LockTakenError(
                last.args[0], names=names, votes=last.votes, retry_after=last.retry_after, holder=last.holder
            )
        if last is not None:
            return QuorumUnavailableError(last.args[0], names=names, votes=last.votes)
        # One asks the nodes, and no attempt has ended: it may still win.  Unless all nodes have answered or
        # are silent and there is no quorum among them: that is known although its task has not run since.
        acquire_round = entry.acquire_round
        if acquire_round is None or acquire_round.pending or acquire_round.answered >= acquire_round.quorum:
            msg = f"another task of this process is acquiring {printable(names)}"
            return LockTakenError(msg, names=names)
        msg = f"lock {printable(names)}: too few nodes have answered so far"
        return QuorumUnavailableError(msg, names=names, votes=acquire_round.votes())


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
