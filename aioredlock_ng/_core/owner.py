"""The owner value that stands under a lock's key: random (A5), then since when, and the holder's label.

    0123456789abcdef0123456789abcdef01234567:1763640000000:host.example.org:12345
    0123456789abcdef0123456789abcdef01234567:1763640000000w:host.example.org:12345

The random part makes it a secret: it is what a release or an extension shows.  The rest is for people that
look at a lock, and the value is compared as a whole.  The letter behind the time, of a mutex none, says what
kind of lock was asked for, or that its holder has released it (`KEPT`): slots of another kind are not shared
(R19), and no other decision rests on it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_FORM: Final = re.compile(
    rb"[0-9a-f]{40}:(?:(?P<since_ms>[0-9]{13})(?P<letter>[a-z]?):)?(?P<label>.*)", re.DOTALL
)

KEPT: Final = b"k"
"""The letter of a lock that was released and stays taken, for the rest of its `at_least` (R34)."""


class Owner(NamedTuple):
    """An owner value, read."""

    value: bytes
    label: str
    """The label that the holder gave itself."""
    since: float | None
    """When it asked for the lock, in Unix seconds by its own clock; None in the values of older versions."""
    letter: bytes
    """Which kind of lock it asked for (`Kind.letter`)."""

    def __repr__(self) -> str:
        return f"<Owner {self.label!r}>"  # not the value, which may end up in a log line


def parse_owner(value: bytes) -> Owner | None:
    """Read what is under a key; None when this package did not write it."""
    found = _FORM.fullmatch(value)
    if found is None:
        return None
    since_ms = found["since_ms"]
    since = None if since_ms is None else int(since_ms) / 1000
    return Owner(value, found["label"].decode(errors="replace"), since, found["letter"] or b"")


def signed(value: bytes, letter: bytes, holder: str | None = None) -> bytes:
    """Return an owner value that says which kind of lock it is for, and perhaps another `holder`."""
    random, since_ms, label = value.split(b":", 2)
    return b"%b:%b%b:%b" % (random, since_ms, letter, label if holder is None else holder.encode())
