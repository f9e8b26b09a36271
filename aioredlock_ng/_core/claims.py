"""Which quorum a node belongs to, since when, and by which client: the claim in its record (R12a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

BY_INIT: Final = b"init"
"""An operator's statement: no client takes such a node away."""

BY_USE: Final = b"use"
"""A client found the node without an incarnation record, and used it."""

_YEAR_10000_MS: Final = 253_402_300_800_000

_MAX_LABEL: Final = 200
"""Characters of a holder label that are shown."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """How a quorum came by its nodes; every incarnation record that its clients write has the same one."""

    born_ms: int = 0
    """When that was, in Unix milliseconds by the clock of one of its nodes."""
    how: bytes = BY_USE
    label: bytes = b""
    """The holder label of the client that made it."""

    def __bytes__(self) -> bytes:
        return b"%d:%b:%b" % (self.born_ms, self.how, self.label)

    def __str__(self) -> str:
        how = "initialised by `init` of" if self.how == BY_INIT else "first used by"
        label = ascii(self.label.decode(errors="replace")[:_MAX_LABEL])[1:-1] or "an unknown client"
        return f"{how} {label} at {_moment(self.born_ms)}"

    def outranks(self, other: Claim) -> bool:
        """Whether a quorum with this claim may take a node that a quorum with the `other` one has claimed.

        Never from an `init`.  Else `init` goes before use, and the older before the younger.  A node that
        was taken back has the claim of the quorum that took it: no two take it from each other for ever.
        """
        return other.how != BY_INIT and self.rank < other.rank

    @property
    def rank(self) -> tuple[bool, int]:
        """The less, the higher."""
        return self.how != BY_INIT, self.born_ms


def read_claim(value: bytes) -> Claim | None:
    """Read a claim; None when it is none."""
    born, _, rest = value.partition(b":")
    how, separator, label = rest.partition(b":")
    if not born.isdigit() or not how.isalpha() or not separator:
        return None
    return Claim(born_ms=int(born), how=how, label=label)


def _moment(ms: int) -> str:
    """Return a moment of Unix time as people read it, in UTC."""
    if ms >= _YEAR_10000_MS:
        return "an unknown time"
    days, seconds = divmod(ms // 1000, 86_400)
    year = 1970
    while days >= (length := 365 + _leap(year)):
        days, year = days - length, year + 1
    month = 1
    for length in (31, 28 + _leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30):
        if days < length:
            break
        days, month = days - length, month + 1
    minutes, second = divmod(seconds, 60)
    return f"{year}-{month:02}-{days + 1:02} {minutes // 60:02}:{minutes % 60:02}:{second:02} UTC"


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
