"""How the scripts of every kind answer; a kind whose scripts say more has readers of its own for that."""

from __future__ import annotations

from typing import Any, Final

from .._core.command import ABOVE_FENCE, GRANTED, Answer, Reply, Silence
from .._core.quarantine import SENTINEL_CHANGED
from .._core.quorum import Vote

_GRANT: Final = Vote.GRANTED
_REFUSAL: Final = Vote.REFUSED
"""Both have names of their own here: looking up the member of an enumeration takes its time."""

_new: Final = tuple.__new__
"""Makes an answer from all its fields in their order, which is the fastest way to make one."""

RELEASED: Final = Answer(_GRANT, "released", wait=0.0)

HELD_BY_ANOTHER: Final = Answer(_REFUSAL, "the key is held by another client")

NO_VOTE: Final = Answer(Vote.SILENT, SENTINEL_CHANGED)
"""What a node says whose sentinel is not the expected one (R12)."""

WITHOUT_VOTE: Final = 10
"""Added to what an extension answers on such a node."""

_FOREIGN: Final = -2
"""What a release answers when another program's key is in the way; 1 less for each that listens."""

_TRIPLE: Final = 3
"""Numbers in the answers to a fenced acquire and to a release."""

_RAISED: Final = {
    1: GRANTED,
    0: Answer(_REFUSAL, "the key is not ours any more"),
    -1: NO_VOTE,
    -2: Answer(Vote.SILENT, "the fence is too far ahead of the node's clock: see `aioredlock-ng doctor`"),
    -3: ABOVE_FENCE,
}
"""What the answers to a raise mean.  Only the first makes a certificate."""


def fits_int(reply: object) -> bool:
    """Whether it is a number: an extension's answer, a raise's, a top-up's."""
    return type(reply) is int


def fits_grant(reply: object) -> bool:
    """Whether it is the answer to a fenced acquire."""
    # Of exactly these types: a push is a list, too, of a class of its own.
    if type(reply) is not list or len(reply) != _TRIPLE:
        return False
    first, second, third = reply
    return type(first) is int and type(second) is int and type(third) is int


def fits_release(reply: object) -> bool:
    """Whether it is the answer to a release: three numbers, and perhaps a label."""
    if type(reply) is list and len(reply) > _TRIPLE:
        return len(reply) == _TRIPLE + 1 and type(reply[_TRIPLE]) is bytes and fits_grant(reply[:_TRIPLE])
    return fits_grant(reply)


def seconds(wait_ms: int) -> float | None:
    """Return what a script says of the key in the way: seconds, or None when it has no expiry."""
    return None if wait_ms < 0 else wait_ms / 1000


def silent(reply: Reply) -> Answer:
    """Read a reply that can only be silence, since `fits` was asked about all others."""
    assert isinstance(reply, Silence), "checked by `fits`"
    return Answer(Vote.SILENT, reply.reason, sent=reply.sent)


def read_grant(reply: Reply) -> Answer:
    """Read the answer to a fenced acquire."""
    if type(reply) is not list:
        return silent(reply)
    answer: list[Any] = reply  # as `fits` found it
    code, value, time_us = answer
    if code == 1:
        return _new(Answer, (_GRANT, "", None, True, False, value, time_us / 1_000_000, None, 0, False))
    if code == 0:
        return Answer(_REFUSAL, "", seconds(value))
    return NO_VOTE


def read_raise(reply: Reply) -> Answer:
    """Read the answer to a raise: GRANTED where all is ours and stands at the fence."""
    return _RAISED.get(reply, NO_VOTE) if isinstance(reply, int) else silent(reply)


def read_extend(reply: Reply) -> Answer:
    """Read the answer to an extension."""
    if reply == 1:
        return GRANTED
    if not isinstance(reply, int):
        return silent(reply)
    if reply >= WITHOUT_VOTE - 1:
        return Answer(Vote.SILENT, NO_VOTE.reason, missing=reply == WITHOUT_VOTE)
    if reply == 0:
        return Answer(_REFUSAL, "the key is gone", missing=True)
    return HELD_BY_ANOTHER


def read_top_up(reply: Reply) -> Answer:
    """Read the answer to a top-up: GRANTED where all is ours again."""
    if not isinstance(reply, int):
        return silent(reply)
    return GRANTED if reply == 0 else HELD_BY_ANOTHER


def read_release(reply: Reply) -> Answer:
    """Read the answer to a release: GRANTED if something of ours was there, REFUSED if not."""
    if type(reply) is not list:
        return silent(reply)
    answer: list[Any] = reply
    deleted, wait, told, *holder = answer
    if deleted and not wait and not told:
        return RELEASED
    foreign = told <= _FOREIGN
    reached = _FOREIGN - told if foreign else told
    if deleted:
        return Answer(_GRANT, "released", seconds(wait), reached=reached, foreign=foreign)
    found = holder[0] if holder else None
    return Answer(_REFUSAL, "was not held", seconds(wait), found=found, reached=reached, foreign=foreign)
