"""An election's announcements, and the conclusions that an observer may draw from them (R31, R32).

A leader announces the term that it has won, its fence, on all nodes, where the greatest is kept.  A term that
was won stays won, so any node may keep it and tell of it.  An observer looks at all nodes, time and again.
What it reads may be past, but never wrong:

- It goes by what Q nodes with a vote answered: they share one with those that acknowledged an announcement.
- It knows the greatest term that it has heard of, and forgets it never.
- A term is over when Q nodes with a vote show no lock, each at a moment when that term had been won: a leader
  that still leads has its key on one of them.  Had been won: the observer knew of it before it asked, or the
  node itself showed it, or a later one.
- Nodes are not asked at one moment.  So it asks twice within a ttl: a node that shows no lock both times had
  none in between, where no key ends that was set after the first time.  The leader might give up such a key
  earlier, but then its term is over.

Not read is the lock's key for an owner: Q nodes may show one that has no certificate, and never won.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple, final

MAX_TERM_DIGITS: Final = 16
"""Digits of a term: fences stay below 2 ** 53."""

MAX_LABEL_BYTES: Final = 800
"""Bytes of a leader's name for itself that are read: 200 characters, in UTF-8."""


@final
@dataclass(frozen=True, slots=True)
class Leader:
    """A leader of an election, as it announced itself; `election.observe()` tells of it."""

    term: int
    """The fence of its leadership: unique, and greater than those of all earlier leaders (R10)."""
    holder: str
    """Its label: the `holder` of its `LockManager.election`."""


@final
class LeaderUnknown(Enum):
    """Reported by `election.observe()` instead of a leader once it has been cut off for longer than a ttl."""

    UNKNOWN = "unknown"
    """Another one may lead by now, or none: too few nodes with a vote have answered for so long."""

    def __bool__(self) -> Literal[False]:
        """No leader is known, as with None."""
        return False


def read_announcement(value: bytes) -> Leader | None:
    """Read ``term:holder``; None of anything else."""
    term, colon, holder = value.partition(b":")
    if not colon or not term.isdigit() or len(term) > MAX_TERM_DIGITS:
        return None
    return Leader(int(term), holder[:MAX_LABEL_BYTES].decode(errors="replace"))


@final
class Look(NamedTuple):
    """The state of one node at a poll."""

    votes: bool
    """Whether it has a vote: its incarnation record is the expected one (R12)."""
    held: bool
    """Whether anything is under the lock's key."""
    announced: Leader | None
    """The greatest term that was announced there."""


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """An observer's conclusions so far."""

    newest: Leader | None = None
    """The greatest term that it has heard of."""
    ended: int = 0
    """Terms up to this one are over."""
    free: bool = False
    """Whether Q nodes showed no lock at the last look."""
    tells: bool = False
    """Whether there is anything to report: a leader, or that there is none."""

    @property
    def leader(self) -> Leader | None:
        """The leader that is reported: the newest, unless its term is over."""
        newest = self.newest
        return None if newest is None or self.free or newest.term <= self.ended else newest


def confirmed(before: Seen, looks: Mapping[int, Look], earlier: Container[int]) -> list[Look]:
    """Return looks, by nodes, in which only those show no lock that have done so `earlier`, too.

    All of them where no term is known that may last.
    """
    terms = (_term(before.newest), *(_term(look.announced) for look in looks.values()))
    if max(terms) <= before.ended:
        return list(looks.values())
    return [look._replace(held=look.held or node not in earlier) for node, look in looks.items()]


def free_in(looks: Mapping[int, Look]) -> frozenset[int]:
    """Return the nodes with a vote that show no lock."""
    return frozenset(node for node, look in looks.items() if look.votes and not look.held)


def seen(before: Seen, looks: Sequence[Look], quorum: int) -> Seen | None:
    """Return what an observer knows after a look at all nodes; None when too few of them have a vote."""
    if sum(look.votes for look in looks) < quorum:
        return None
    newest = before.newest
    for look in looks:
        if _term(look.announced) > _term(newest):
            newest = look.announced
    # On each node that is free: up to which term those that had been won when it was looked at.
    known = _term(before.newest)
    free = sorted(max(known, _term(look.announced)) for look in looks if look.votes and not look.held)
    is_free = len(free) >= quorum
    ended = max(before.ended, free[-quorum]) if is_free else before.ended
    return Seen(newest, ended, is_free, before.tells or is_free or newest is not None)


def _term(leader: Leader | None) -> int:
    return 0 if leader is None else leader.term
