"""Looking at the line for a fair lock from outside: which processes wait, in which order (R28)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from .. import _scripts
from .._core.command import Command, Purpose
from .._core.fencing import SHIFT, at
from .._core.keyspace import SEATS, TICKETS, mark_key, marks_begin
from .look import ask_all
from .survey import SilentNode

if TYPE_CHECKING:
    from .._session.session import Session

MAX_WAITING: Final = 100
"""Waiters of one line that a node is asked for, the first ones; of more it is only told that there are
more."""

_LAST: Final = at(2**43)
"""The greatest ticket that is believed, of the year 2248: other programs may write anything."""

_SHOWN_BYTES: Final = 1024
"""So much of a seat's name a node tells."""

_SEAT: Final = re.compile(rb"[0-9a-f]{40}:(?P<label>.*?)\}?", re.DOTALL)
"""A seat's name behind its mark; of a long one the end is missing.  The digits are a secret: on the channel
of that name a process is told of releases."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WaiterInspection:
    """One process that waits in line for a fair lock."""

    place: int
    """Its place: 0 is next."""
    holder: str | None
    """Its holder label; None when another program's entry stands there."""
    since: float
    """Since when it waits, in Unix seconds by the nodes' clocks."""
    ours: bool
    """Whether it is this manager."""
    known_to: int
    """How many nodes have it in their line."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInspection:
    """The line for one fair lock, as the nodes that answered have it."""

    name: str
    waiters: tuple[WaiterInspection, ...]
    """Those that most of these nodes know of, in their order."""
    more_waiters: bool
    """Whether there are more than the 100 in `waiters`."""
    silent: tuple[SilentNode, ...]
    """The nodes that did not answer, and why; what only they know of is missing."""

    def __len__(self) -> int:
        """How many are in `waiters`."""
        return len(self.waiters)

    def __iter__(self) -> Iterator[WaiterInspection]:
        """Go through `waiters`."""
        return iter(self.waiters)


async def look_at_line(session: Session, key: bytes, name: str) -> QueueInspection:
    """Ask every node which processes wait for the lock under `key`, and put the answers together."""
    prefix = session.options.prefix
    answers = await ask_all(session, look_for_line(prefix, key))
    lines: list[dict[bytes, int]] = []
    more, silent = False, []
    for node, answer in zip(session.nodes, answers, strict=True):
        found: Any = answer.found
        if not isinstance(found, list):
            silent.append(SilentNode(node=node.name, reason=answer.reason))
            continue
        longer, line = found
        lines.append(dict(zip(line[::2], line[1::2], strict=True)))
        more = more or longer > 0
    waiters = _in_order(lines, prefix, session.seat.name[:_SHOWN_BYTES])
    return QueueInspection(
        name=name,
        waiters=waiters[:MAX_WAITING],
        more_waiters=more or len(waiters) > MAX_WAITING,
        silent=tuple(silent),
    )


def _in_order(lines: Sequence[dict[bytes, int]], prefix: bytes, ours: bytes) -> tuple[WaiterInspection, ...]:
    """Put the lines of several nodes together: a seat's place is by the greatest of its tickets."""
    tickets: dict[bytes, list[int]] = defaultdict(list)
    for line in lines:
        for seat, ticket in line.items():
            tickets[seat].append(ticket)
    known = sorted((max(all_), seat) for seat, all_ in tickets.items() if 2 * len(all_) > len(lines))
    return tuple(
        WaiterInspection(
            place=place,
            holder=_label(seat, prefix),
            since=(max(0, min(ticket, _LAST)) >> SHIFT) / 1000,
            ours=seat == ours,
            known_to=len(tickets[seat]),
        )
        for place, (ticket, seat) in enumerate(known)
    )


def _label(seat: bytes, prefix: bytes) -> str | None:
    found = _SEAT.fullmatch(seat.removeprefix(marks_begin(prefix, SEATS)))
    return None if found is None else found["label"].decode(errors="replace")


def look_for_line(prefix: bytes, key: bytes) -> Command:
    """Build the question which processes stand in line for the lock under `key`."""
    return Command(
        Purpose.OTHER,
        owner=b"",
        fits=_fits_line,
        keys=(mark_key(prefix, TICKETS, key), mark_key(prefix, SEATS, key)),
        args=(b"%d" % MAX_WAITING,),
        script=_scripts.QUEUE,
    )


def _fits_line(reply: object) -> bool:
    if not isinstance(reply, list) or len(reply) != 2:  # noqa: PLR2004 (a pair)
        return False
    more, line = reply
    if not isinstance(more, int) or not isinstance(line, list) or len(line) % 2:
        return False
    return all(isinstance(seat, bytes) for seat in line[::2]) and all(
        isinstance(ticket, int) for ticket in line[1::2]
    )
