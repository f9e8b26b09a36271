"""The fair mutex: one holder, and the others in line, first come, first served (R28 to R30).

To the nodes it is a mutex, with the same owner value under the same key, and excludes one.  Beside it are
the seats of those that wait, with their tickets: a node grants the lock to the first in line, and to the next
ones after a head start each.  They are hints: what they say wrong costs order or time, and no exclusion.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from .. import _scripts
from .._core.command import Answer, Reply
from .._core.keyspace import SEATS, TICKETS
from . import answers
from .kind import Kind, Question
from .mutex import MUTEX


def _read_acquire(reply: Reply) -> Answer:
    if type(reply) is not list:
        return answers.silent(reply)
    answer: list[Any] = reply
    *grant, ticket, ahead = answer
    return answers.read_grant(grant)._replace(ticket=ticket, ahead=ahead)


_ACQUIRE: Final = Question(
    script=_scripts.FAIR_ACQUIRE, fits=answers.fits_grant_and_place, read=_read_acquire
)

FAIR: Final = Kind(
    name="fair",
    letter=b"f",
    passes_on=False,
    seats=True,
    own_marks=True,
    in_line=True,
    acquire=_ACQUIRE,
    acquire_plain=_ACQUIRE,
    acquire_one_plain=_ACQUIRE,
    raise_=replace(MUTEX.raise_, marks=False),
    extend=replace(MUTEX.extend, marks=False),
    top_up=replace(MUTEX.top_up, marks=False),
    release=Question(script=_scripts.FAIR_RELEASE, fits=answers.fits_release, read=answers.read_release),
    beside=(TICKETS, SEATS),
    read_key=MUTEX.read_key,
)
