"""The answers of the scripts, and their readers; a kind whose scripts return more adds its own readers.

The meaning of the numbers depends on the script, also that of -1:

===========  ========  ==============================================================================
script       answers   which means
===========  ========  ==============================================================================
`acquire`    1, F, µs  all names are ours, with their counters at F (R10)
..           0, w, µs  taken by a key that has w left
..           -1, 0, µs no vote: the incarnation record is not the expected one (R12)
`set_all`    0         all names are ours
..           w         taken by a key that has w left, so that -1 is a key without expiry
..           -2        no vote
`raise`      1         all names are ours, and their counters stand at the fence
..           0         a name is not ours any more
..           -1        no vote
..           -2        the fence is too far ahead of the node's clock
..           -3        a counter is above the fence
`extend`     1         all names are ours, and live on
..           0         a name is free, and none is another's
..           -1        a name is another's
..           11 10 9   the same three, from a node without a vote
`repair`     0         all names are ours again
..           -1        a name is another's
`release`    d, w, t   d names were ours; of the other keys one has w left; t listen to one of the channels
..           … f, l    behind these, where other keys are there: whether another program wrote one of them
                       (1 or 0), and the label of the holder of one, if it has one
batches      µs, …     of acquires: the time, and an answer for each lock.  The time alone: no vote
(R42)        F         the lock is ours, with its counter at F
..           -w        taken by a key that has w left; 0: by one without expiry
..           …         of extensions and releases: an answer for each lock, as for it alone, or 1 where it was
                       released and none listens; of a single lock without a list around it
..           text      in the place of any lock's answer: the error where a key is of another type
===========  ========  ==============================================================================

*w* is the longest of several, in milliseconds: 0 where there is no such key, -1 where it has no expiry.  *t*
is the greatest of several: 0 where none listens or nothing was to be published, -1 where that was refused.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from .._core.command import ABOVE_FENCE, GRANTED, Answer, Reply, Silence
from .._core.owner import parse_owner
from .._core.quarantine import INCARNATION_CHANGED
from .._core.quorum import Vote
from .kind import Holder

# Names for both: looking up a member of an enumeration takes longer.
_GRANT: Final = Vote.GRANTED
_REFUSAL: Final = Vote.REFUSED

_new: Final = tuple.__new__  # the fastest way to make an answer from all its fields

RELEASED: Final = Answer(_GRANT, "released", wait=0.0)
HELD_BY_ANOTHER: Final = Answer(_REFUSAL, "the key is held by another client")
NO_VOTE: Final = Answer(Vote.SILENT, INCARNATION_CHANGED)  # R12

# A fenced acquire: a smaller number than these is no vote.
_ACQUIRED: Final = 1
_TAKEN: Final = 0

# An extension; where a name is free, the node may be repaired (R9).  Without a vote, ten more.
_EXTENDED: Final = 1
_NAME_FREE: Final = 0
_EXTEND_WITHOUT_VOTE: Final = 10

_TOPPED_UP: Final = 0

_TRIPLE: Final = 3  # numbers in the answers to a fenced acquire and to a release
_LONGEST_RELEASE: Final = _TRIPLE + 2

_RELEASED: Final = 1  # in a batch: the lock is gone, and no other process listens

# The answers to a raise: only the first one counts for a certificate.
_RAISED: Final = {
    1: GRANTED,
    0: Answer(_REFUSAL, "the key is not ours any more"),
    -1: NO_VOTE,
    -2: Answer(Vote.SILENT, "the fence is too far ahead of the node's clock: see `aioredlock-ng doctor`"),
    -3: ABOVE_FENCE,
}


def fits_int(reply: object) -> bool:
    """Whether it is a number: an extension's answer, a raise's, a repair's."""
    return type(reply) is int


def fits_grant(reply: object) -> bool:
    """Whether it is the answer to a fenced acquire."""
    # Of exactly these types: a push is a list, too, of a class of its own.
    if type(reply) is not list or len(reply) != _TRIPLE:
        return False
    first, second, third = reply
    return type(first) is int and type(second) is int and type(third) is int


def fits_grant_and(further: int, reply: object) -> bool:
    """Whether it is such an answer with `further` numbers behind it."""
    if type(reply) is not list or len(reply) != _TRIPLE + further:
        return False
    return fits_grant(reply[:_TRIPLE]) and all(type(number) is int for number in reply[_TRIPLE:])


fits_grant_and_number: Final = partial(fits_grant_and, 1)  # the counter before, or a slot
fits_grant_and_place: Final = partial(fits_grant_and, 2)  # a ticket, and how many waiters are ahead


def fits_release(reply: object) -> bool:
    """Whether it is the answer to a release: three numbers, and the facts about other holders' keys."""
    if type(reply) is not list or len(reply) <= _TRIPLE:
        return fits_grant(reply)
    foreign, label = reply[_TRIPLE], reply[-1] if len(reply) > _TRIPLE + 1 else b""
    if len(reply) > _LONGEST_RELEASE or type(foreign) is not int or type(label) is not bytes:
        return False
    return foreign in (0, 1) and fits_grant(reply[:_TRIPLE])


def seconds(wait_ms: int) -> float | None:
    """Return how long the key in the way lives, by a script: seconds, or None when it has no expiry."""
    return None if wait_ms < 0 else wait_ms / 1000


def holder_of(
    value: bytes, left_ms: int, *, reads: bool = False, letter: bytes | None = None, slot: int | None = None
) -> Holder:
    """Return one of several holders that a node has under a key, from its value and its milliseconds left.

    `letter` is that of its kind, unless its value has another one.
    """
    owner = parse_owner(value)
    letter = (owner and owner.letter) or letter
    label, since = (None, None) if owner is None else (owner.label, owner.since)
    ttl = seconds(left_ms)
    return Holder(owner=value, label=label, since=since, ttl=ttl, reads=reads, letter=letter, slot=slot)


def silent(reply: Reply) -> Answer:
    """Read a reply that can only be silence, since `fits` has checked all others."""
    assert isinstance(reply, Silence), "checked by `fits`"
    return Answer(Vote.SILENT, reply.reason, sent=reply.sent)


def read_grant(reply: Reply) -> Answer:
    """Read the answer to a fenced acquire."""
    if type(reply) is not list:
        return silent(reply)
    answer: list[Any] = reply  # as `fits` has checked
    code, value, time_us = answer
    if code == _ACQUIRED:
        return granted_at(value, time_us / 1_000_000)
    if code == _TAKEN:
        return Answer(_REFUSAL, "", seconds(value))
    return NO_VOTE


def granted_at(fence: int, time: float) -> Answer:
    """Return the answer of a node that granted at its time of day, and whose counter stands at `fence`."""
    return _new(Answer, (_GRANT, "", None, True, False, fence, time, None, 0, False, 0, -1, 0, 0))


def read_batched_grant(value: int, time: float) -> Answer:
    """Read the answer of `acquire_many` for one lock."""
    if value > 0:
        return granted_at(value, time)
    # Taken: by a key without expiry where the number is 0.
    return Answer(_REFUSAL, "", -value / 1000 if value else None)


def fits_batched_release(value: object) -> bool:
    """Whether it is an answer of `release_many` for one lock."""
    return (type(value) is int and value == _RELEASED) or fits_release(value)


def read_batched_release(value: Reply) -> Answer:
    """Read the answer of `release_many` for one lock."""
    return RELEASED if type(value) is int else read_release(value)


def read_raise(reply: Reply) -> Answer:
    """Read the answer to a raise: GRANTED where all names are ours, and their counters at the fence."""
    return _RAISED.get(reply, NO_VOTE) if isinstance(reply, int) else silent(reply)


def read_extend(reply: Reply) -> Answer:
    """Read the answer to an extension."""
    if reply == _EXTENDED:
        return GRANTED
    if not isinstance(reply, int):
        return silent(reply)
    # No vote; but whether the name is free is known all the same, and the node can be repaired.
    if reply >= _EXTEND_WITHOUT_VOTE - 1:
        name_free = reply == _EXTEND_WITHOUT_VOTE + _NAME_FREE
        return Answer(Vote.SILENT, NO_VOTE.reason, missing=name_free)
    if reply == _NAME_FREE:
        return Answer(_REFUSAL, "the key is gone", missing=True)
    return HELD_BY_ANOTHER


def read_repair(reply: Reply) -> Answer:
    """Read the answer to a repair: GRANTED where all names are ours again."""
    if not isinstance(reply, int):
        return silent(reply)
    return GRANTED if reply == _TOPPED_UP else HELD_BY_ANOTHER


def read_release(reply: Reply) -> Answer:
    """Read the answer to a release: GRANTED if something of ours was there, REFUSED if not."""
    if type(reply) is not list:
        return silent(reply)
    answer: list[Any] = reply
    deleted, wait, reached, *others = answer
    # The most frequent case: there is nothing else to report.
    if deleted and not wait and not reached:
        return RELEASED
    foreign = bool(others and others[0])
    if deleted:
        return Answer(_GRANT, "released", seconds(wait), reached=reached, foreign=foreign)
    found = others[1] if len(others) > 1 else None
    return Answer(_REFUSAL, "was not held", seconds(wait), found=found, reached=reached, foreign=foreign)


def tells_of_holders(reply: list[Any]) -> bool:
    """Whether a release found another holder's value under a key."""
    return len(reply) > _TRIPLE
