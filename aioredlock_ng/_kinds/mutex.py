"""The mutex: one holder, over one name or over several at once (all or nothing)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .. import _scripts
from .._core.command import GRANTED, Answer, Reply
from .._core.owner import parse_owner
from .._core.quorum import Vote
from . import answers
from .answers import NO_VOTE, fits_int, silent
from .kind import Holder, Kind, Operation

REFUSED: Final = Answer(Vote.REFUSED)

_SET: Final = 0

_SET_WITHOUT_VOTE: Final = -2
"""The answer of `set_all.lua` without a vote; other numbers are the time that the key in the way has left."""


def _fits_set(reply: object) -> bool:
    return reply is None or reply == b"OK"


def _read_set(reply: Reply) -> Answer:
    """Read the answer to the Redlock page's SET, which does not say how long the key in its way stays."""
    if reply == b"OK":
        return GRANTED
    return REFUSED if reply is None else silent(reply)


def _read_set_all(reply: Reply) -> Answer:
    if not isinstance(reply, int):
        return silent(reply)
    if reply == _SET:
        return GRANTED
    return NO_VOTE if reply == _SET_WITHOUT_VOTE else Answer(Vote.REFUSED, wait=answers.seconds(reply))


def _read_key(found: object, left_ms: int) -> tuple[Holder, ...] | None:
    """Read the owner value under a lock's key: a string."""
    # Readers and slots come as lists, and are for other kinds.
    owner = parse_owner(found) if isinstance(found, bytes) else None
    if owner is None:
        return None
    ttl = answers.seconds(left_ms)
    return (Holder(owner=owner.value, label=owner.label, since=owner.since, ttl=ttl, letter=owner.letter),)


MUTEX: Final = Kind(
    name="mutex",
    noun="mutex",
    acquire=Operation(script=_scripts.ACQUIRE, fits=answers.fits_grant, read=answers.read_grant),
    acquire_plain=Operation(script=_scripts.SET_ALL, fits=fits_int, read=_read_set_all),
    acquire_one_plain=Operation(script=None, fits=_fits_set, read=_read_set),
    raise_=Operation(script=_scripts.RAISE, fits=fits_int, read=answers.read_raise),
    extend=Operation(script=_scripts.EXTEND, fits=fits_int, read=answers.read_extend),
    repair=Operation(script=_scripts.REPAIR, fits=fits_int, read=answers.read_repair),
    release=Operation(script=_scripts.RELEASE, fits=answers.fits_release, read=answers.read_release),
    batched=True,
    read_key=_read_key,
)

LEADER: Final = replace(MUTEX, name="leader", noun="leader", letter=b"l", batched=False)
"""The lock of an election, which is a mutex (R31); never in a batch, so that its letter shows the kind."""
